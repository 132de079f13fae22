"""A collection ready for use: its definition, the mechanism that the definition names, its fingerprint."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from ..mechanisms import Mechanism, make_mechanism
from ..schemas.collection import Definition
from ..schemas.reports import FileHeader

__all__ = ["Collection"]


@dataclass(frozen=True, eq=False)
class Collection:
    """What both sides know of a collection; holds neither a secret nor a record.

    Attributes:
        definition: the parsed TOML.
        mechanism: the mechanism with its integer thresholds.
        fingerprint: SHA-256 (hex) over the client-side fields and thresholds.
    """

    definition: Definition
    mechanism: Mechanism
    fingerprint: str

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
            **definition.parameters,
        )
        return cls(definition, mechanism, definition.fingerprint(mechanism.thresholds()))

    @classmethod
    def load(cls, path: str | Path) -> Collection:
        """Read a collection definition (TOML) and build its mechanism."""
        return cls.of(Definition.load(path))

    def header(self, kind: str, *, period: str = "", private: bool = True) -> FileHeader:
        """Return the header of a file of this collection."""
        return FileHeader(
            kind=kind,
            collection=self.definition.name,
            mechanism=self.definition.mechanism,
            fingerprint=self.fingerprint,
            period=period,
            private=private,
        )
