"""A collection ready for use: its definition, the mechanism that the definition names, its fingerprint."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pyarrow as pa

from ..errors import InputError
from ..mechanisms import Mechanism, make_mechanism
from ..mechanisms.privkv.rounds import Round
from ..schemas.attribute_fields import COMPOSITE, attribute_sizes
from ..schemas.attribute_fields import TABLE as ATTRIBUTES
from ..schemas.collection import REPORT_IDS, Definition
from ..schemas.mechanism_fields import MECHANISM_FIELDS
from ..schemas.reports import FileHeader, report_schema
from .batches import layout_tuples

__all__ = ["Collection"]


@dataclass(frozen=True, eq=False)
class Collection:
    """What both sides know of a collection; holds neither a secret nor a record.

    Attributes:
        definition: the parsed TOML.
        mechanism: the mechanism with its integer thresholds.
        fingerprint: SHA-256 (hex) over the client-side fields and thresholds.
        round: number of the round that `mechanism` asks; 0 where the collection has no rounds, or all are meant.
    """

    definition: Definition
    mechanism: Mechanism
    fingerprint: str
    round: int = 0

    @classmethod
    def of(cls, definition: Definition) -> Collection:
        """Build the mechanism that a definition names.

        Raises:
            InputError: The mechanism is unknown, not available yet, or refuses a parameter.
        """
        mechanism = make_mechanism(
            definition.mechanism,
            epsilon=definition.epsilon,
            keys=len(definition.keys),
            **_arguments(definition),
        )
        if definition.estimator not in mechanism.estimators:
            raise InputError(
                f"the field 'estimator' is {definition.estimator!r}; with these parameters of {definition.mechanism} "
                f"it must be one of {', '.join(mechanism.estimators)}."
            )
        return cls(definition, mechanism, definition.fingerprint(mechanism.thresholds()))

    @classmethod
    def load(cls, path: str | Path) -> Collection:
        """Read a collection definition (TOML) and build its mechanism."""
        return cls.of(Definition.load(path))

    def for_round(self, one: Round) -> Collection:
        """Return this collection with one of its rounds as the mechanism; the fingerprint stays that of all."""
        return replace(self, mechanism=one, round=one.number)

    def header(
        self,
        kind: str,
        *,
        period: str = "",
        private: bool = True,
        memoised: bool = False,
        window_start: str = "",
        window_seconds: int = 0,
    ) -> FileHeader:
        """Return the header of a file of this collection; with a window, of the reports of that slice of time."""
        return FileHeader(
            kind=kind,
            collection=self.definition.name,
            mechanism=self.definition.mechanism,
            fingerprint=self.fingerprint,
            period=period,
            private=private,
            memoised=memoised,
            window_start=window_start,
            window_seconds=window_seconds,
            round=self.round,
            round_epsilon=str(self.mechanism.epsilon) if self.round else "",
            round_thresholds=dict(self.mechanism.thresholds()) if self.round else {},
        )

    def report_schema(self, header: FileHeader | None = None) -> pa.Schema:
        """Return the schema of batches and files of this collection's reports."""
        return report_schema(layout_tuples(self.mechanism.layout()), header, ids=self.definition.report_ids)


def _arguments(definition: Definition) -> dict[str, Any]:
    """Parameters by name; a table groups some for people, the mechanism takes them one by one, and keys by index."""
    flat: dict[str, Any] = {}
    for name, value in definition.parameters.items():
        if name == REPORT_IDS:  # says nothing to a mechanism
            continue
        if name == ATTRIBUTES:  # combinations of all attributes are ordinary keys
            flat |= {} if value["mode"] == COMPOSITE else {name: (value["mode"], attribute_sizes(value))}
            continue
        if name == "padding" and isinstance(value, int):  # given in keys; a key makes a pair of each coordinate
            value = value * max(1, len(definition.coordinates))
        flat |= value if isinstance(value, Mapping) else {name: value}
    resolve = MECHANISM_FIELDS[definition.mechanism].resolve
    return flat if resolve is None else resolve(flat, definition.keys)
