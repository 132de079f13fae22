"""The mechanisms by name: what the command line lists and the collection definition may ask for."""

from __future__ import annotations

import inspect
from collections.abc import Mapping
from dataclasses import dataclass
from decimal import Decimal
from types import MappingProxyType
from typing import Final

from ..errors import NotAvailableError, ParameterError, did_you_mean
from .pckv import PCKV, PCKVGRR, PCKVUE

__all__ = ["MECHANISMS", "RESERVED", "Entry", "make_mechanism"]


@dataclass(frozen=True, kw_only=True)
class Entry:
    """One mechanism as people read about it.

    Attributes:
        mechanism: its class.
        estimates: what it estimates.
        report_size: size of one report, in words.
        guarantee: what privacy it gives.
        source: where it was published.
    """

    mechanism: type[PCKV]
    estimates: str
    report_size: str
    guarantee: str
    source: str

    @property
    def name(self) -> str:
        """Name in the collection definition."""
        return self.mechanism.name

    @property
    def parameters(self) -> tuple[str, ...]:
        """Names of the parameters."""
        return tuple(p for p in inspect.signature(self.mechanism).parameters)

    @property
    def has_values(self) -> bool:
        """Whether records carry values."""
        return self.mechanism.has_values


_PAPER: Final = "Gu, Li, Cheng, Xiong, Cao: PCKV, USENIX Security 2020"
_ENTRIES: Final = (
    Entry(
        mechanism=PCKVUE,
        estimates="frequency and mean of each key",
        report_size="2 bits a key",
        guarantee="epsilon-LDP for the whole record",
        source=_PAPER,
    ),
    Entry(
        mechanism=PCKVGRR,
        estimates="frequency and mean of each key",
        report_size="5 bytes",
        guarantee="epsilon-LDP for the whole record",
        source=_PAPER,
    ),
)

#: Mechanisms of this version by name.
MECHANISMS: Final[Mapping[str, Entry]] = MappingProxyType({entry.name: entry for entry in _ENTRIES})

#: Names that belong to mechanisms which this version does not have.
RESERVED: Final = (
    "privkv",
    "privkvm",
    "privkvm+",
    "kvue",
    "rr",
    "grr",
    "sue",
    "oue",
    "olh",
    "shist",
    "subset-selection",
    "psfo-grr",
    "psfo-oue",
    "harmony",
    "meanest",
    "urr",
    "urap",
    "pum",
)


def make_mechanism(name: str, **parameters: Decimal | int | float | str) -> PCKV:
    """Make a mechanism from its name and parameters.

    Args:
        name: a name of `MECHANISMS`.
        **parameters: epsilon, keys, padding, allocation, …

    Raises:
        ParameterError: for an unknown name, an unknown or missing parameter, or a value that is not allowed.
        NotAvailableError: for a name or value that is reserved for a later version.
    """
    if name in RESERVED:
        raise NotAvailableError.of(f"mechanism = {name!r}", instead=f"Use one of: {', '.join(MECHANISMS)}.")
    if name not in MECHANISMS:
        raise ParameterError(f"mechanism is {name!r}. {did_you_mean(str(name), MECHANISMS)}")
    entry = MECHANISMS[name]
    for given in parameters:
        if given not in entry.parameters:
            raise ParameterError(f"{name} has no parameter {given!r}. {did_you_mean(given, entry.parameters)}")
    for wanted in ("epsilon", "keys", "padding"):
        if wanted in entry.parameters and wanted not in parameters:
            raise ParameterError(f"{name} needs {wanted!r}, which is missing; there is no default for it.")
    build: type[PCKV] = entry.mechanism
    return build(**parameters)  # type: ignore[arg-type]  # the constructor checks every value itself
