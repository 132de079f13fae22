"""Which fields of a collection definition each mechanism has, and how they are read.

This is where a new mechanism says what its users write in TOML. The mathematics, and the limits that only it
knows, are checked again where the mechanism itself is made.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from decimal import Decimal
from pathlib import Path
from types import MappingProxyType
from typing import Any, Final

from . import uldp_fields
from .auto_fields import TABLE as AUTO_TABLE
from .auto_fields import auto_arguments, inline_frequencies, read_padding
from .fields import choice, integer, number, wrong
from .keys import KeyDomain
from .prior_fields import TABLE as PRIOR_TABLE
from .prior_fields import prior_arguments, read_prior
from .privkv_fields import TABLE as PRIVKV_TABLE
from .privkv_fields import read_privkv, read_privkvm, read_privkvm_plus

__all__ = ["LATER_ESTIMATORS", "LATER_MECHANISMS", "LATER_TABLES", "MECHANISM_FIELDS", "MechanismFields"]


_ALLOCATIONS: Final = ("optimized", "naive", "non-optimized")


@dataclass(frozen=True, kw_only=True)
class MechanismFields:
    """The fields that one mechanism adds to those of every definition.

    Attributes:
        has_values: whether records carry values, that is, whether there is a table [values].
        fields: names of the additional fields and tables.
        estimators: names of the server's estimators, the default first.
        read: reads the additional fields of a definition into the mechanism's parameters by name; their
            values are text, integers, decimals or tuples of them, which the fingerprint covers.
        inline: replaces files that the definition names, relative to its folder, by what they hold; None where it
            names none.
        resolve: turns keys in the parameters from texts into indices; None where there are none.
    """

    has_values: bool
    fields: tuple[str, ...]
    estimators: tuple[str, ...]
    read: Callable[[Mapping[str, Any]], dict[str, Any]]
    inline: Callable[[Mapping[str, Any], Path], Mapping[str, Any]] | None = None
    resolve: Callable[[Mapping[str, Any], KeyDomain], dict[str, Any]] | None = None


def _pckv(data: Mapping[str, Any]) -> dict[str, Any]:
    return {**read_padding(data), "allocation": choice(data, "allocation", _ALLOCATIONS, default="optimized")}


def _pckv_ue(data: Mapping[str, Any]) -> dict[str, Any]:
    allocation = choice(data, "allocation", (*_ALLOCATIONS, "numerical"), default="optimized")
    return {**read_padding(data), "allocation": allocation, **read_prior(data, allocation)}


def _pckv_ue_arguments(parameters: Mapping[str, Any], keys: KeyDomain) -> dict[str, Any]:
    return prior_arguments(auto_arguments(parameters, keys), keys)


_PCKV_GRR: Final = MechanismFields(
    has_values=True,
    fields=("padding", AUTO_TABLE, "allocation"),
    estimators=("corrected", "baseline", "empirical-bayes", "norm-sub", "base-cut"),
    read=_pckv,
    inline=inline_frequencies,
    resolve=auto_arguments,
)
_PCKV_UE: Final = replace(
    _PCKV_GRR, fields=("padding", AUTO_TABLE, "allocation", PRIOR_TABLE), read=_pckv_ue, resolve=_pckv_ue_arguments
)

_ADJUSTED: Final = ("clip", "norm-sub", "base-cut")
#: A report that names one symbol has an exact likelihood; one that supports several only a composite one.
_ONE_SYMBOL: Final = MechanismFields(
    has_values=False, fields=(), estimators=("empirical", "thresholded", "em", *_ADJUSTED), read=lambda _: {}
)
_SYMBOLS: Final = MechanismFields(
    has_values=False, fields=(), estimators=("empirical", "thresholded", "composite-em", *_ADJUSTED), read=lambda _: {}
)


def _percentiles(data: Mapping[str, Any]) -> dict[str, Any]:
    oracles = ("psfo-oue", "psfo-grr", "grr", "sue", "oue", "olh", "shist", "hadamard")
    oracle = choice(data, "oracle", oracles, default="psfo-oue")
    what = "a list of numbers between 0 and 100, such as [25, 50, 75]"
    wanted = data.get("percentiles", [25, 50, 75])
    if not isinstance(wanted, list):
        raise wrong("percentiles", wanted, what)
    read: dict[str, Any] = {
        "bins": integer(data.get("bins", 16), "bins", "an integer of at least 2", least=2),
        "oracle": oracle,
        # a manifest holds decimals as text
        "percentiles": [Decimal(one) if isinstance(one, str) else number(one, "percentiles", what) for one in wanted],
    }
    if oracle.startswith("psfo") or "padding" in data:
        read |= read_padding(data)
    return read


_PERCENTILES: Final = MechanismFields(
    has_values=True,
    fields=("bins", "oracle", "percentiles", "padding", AUTO_TABLE),
    estimators=("empirical",),
    read=_percentiles,
    inline=inline_frequencies,
    resolve=auto_arguments,
)
_MEANS: Final = MechanismFields(has_values=True, fields=(), estimators=("corrected", "baseline"), read=lambda _: {})
_ITEM_SETS: Final = MechanismFields(
    has_values=False,
    fields=("padding", AUTO_TABLE),
    estimators=("empirical", "clip", "base-cut"),
    read=read_padding,
    inline=inline_frequencies,
    resolve=auto_arguments,
)

_FROM_SIGNS: Final = ("corrected", "baseline")
_PRIVKV: Final = MechanismFields(
    has_values=True,
    fields=("allocation", PRIVKV_TABLE),
    estimators=(*_FROM_SIGNS, "virtual-same-key", "virtual-half"),
    read=read_privkv,
)
_PRIVKVM: Final = MechanismFields(has_values=True, fields=(PRIVKV_TABLE,), estimators=_FROM_SIGNS, read=read_privkvm)
_PRIVKVM_PLUS: Final = MechanismFields(
    has_values=True, fields=(PRIVKV_TABLE,), estimators=_FROM_SIGNS, read=read_privkvm_plus
)
_KVUE: Final = MechanismFields(has_values=True, fields=(), estimators=_FROM_SIGNS, read=lambda _: {})

_URR: Final = MechanismFields(
    has_values=False,
    fields=(uldp_fields.TABLE,),
    estimators=_ONE_SYMBOL.estimators,
    read=uldp_fields.read_urr,
    inline=uldp_fields.inline_files,
    resolve=uldp_fields.resolve,
)
_URAP: Final = replace(_URR, estimators=_SYMBOLS.estimators, read=uldp_fields.read_urap)
#: Which maximum-likelihood estimator there is depends on the base, which the mechanism checks.
_PUM: Final = replace(_URR, estimators=(*_ONE_SYMBOL.estimators, "composite-em"), read=uldp_fields.read_pum)

#: Fields by name of the mechanism.
MECHANISM_FIELDS: Final[Mapping[str, MechanismFields]] = MappingProxyType(
    {
        "pckv-ue": _PCKV_UE,
        "pckv-grr": _PCKV_GRR,
        "rr": _ONE_SYMBOL,
        "grr": _ONE_SYMBOL,
        "sue": _SYMBOLS,
        "oue": _SYMBOLS,
        "olh": _SYMBOLS,
        "subset-selection": _SYMBOLS,
        "shist": _SYMBOLS,
        "hadamard": _SYMBOLS,
        "psfo-grr": _ITEM_SETS,
        "psfo-oue": _ITEM_SETS,
        "harmony": _MEANS,
        "meanest": _MEANS,
        "percentiles": _PERCENTILES,
        "urr": _URR,
        "urap": _URAP,
        "pum": _PUM,
        "privkv": _PRIVKV,
        "privkvm": _PRIVKVM,
        "privkvm+": _PRIVKVM_PLUS,
        "privkvm-harmony": _PRIVKVM,
        "privkvm-meanest": _PRIVKVM,
        "kvue": _KVUE,
    }
)

#: Names that belong to later versions.
LATER_MECHANISMS: Final[tuple[str, ...]] = ()
LATER_ESTIMATORS: Final[tuple[str, ...]] = ()
LATER_TABLES: Final[tuple[str, ...]] = ()
