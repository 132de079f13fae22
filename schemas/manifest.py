"""The manifest: one JSON object beside every result that says what the result is and how it came about."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from ..errors import InputError
from .reports import FORMAT_VERSION

__all__ = ["MANIFEST_NAME", "Manifest", "Randomness", "read_manifest"]

MANIFEST_NAME = "manifest.json"


@dataclass(frozen=True, kw_only=True)
class Randomness:
    """Where the random bits of the reports came from; holds nothing that is secret.

    Attributes:
        source: "fresh secret", "secret file", "seed", or "reports" where the reports were made elsewhere.
        private: False where a seed was used: whoever knows it can undo the perturbation.
        secret_id: truncated pseudo-random value of the secret; None where the secret is not known here.
        period: name of the period; empty where none was named.
    """

    source: str
    private: bool
    secret_id: str | None = None
    period: str = ""

    def as_json(self) -> dict[str, Any]:
        """Return the fields for the manifest."""
        statement = "private" if self.private else "not private: the randomness came from a seed"
        return {
            "source": self.source,
            "private": self.private,
            "statement": statement,
            "secret_id": self.secret_id,
            "period": self.period,
        }


@dataclass(frozen=True, kw_only=True)
class Manifest:
    """What a run was given, did and left behind.

    Attributes:
        verb: the command that ran.
        definition: public form of the collection definition.
        fingerprint: SHA-256 (hex) that the reports carry.
        mechanism: parameters and probabilities by name.
        epsilon: declared and exact privacy loss, and what each user spent in this run.
        randomness: see `Randomness`.
        records: tallies of the client side (rows read, users, rejects by reason); None on the server side.
            They are exact counts of raw data and belong to whoever holds the records.
        reports: reports counted and malformed; None where none were counted.
        engine: name and options of the engine.
        versions: versions of what computed the result.
        files: names of the result files, with kind and rows.
        started: time of the start, ISO 8601, UTC.
        seconds: duration.
        counts_store: of a run on a counts store, the period, its gaps, and which days were counted; else None.
        metrics: what the engine's own counters say, "unavailable" where it does not tell; None where none were asked.
    """

    verb: str
    definition: Mapping[str, Any]
    fingerprint: str
    mechanism: Mapping[str, Any]
    epsilon: Mapping[str, Any]
    randomness: Randomness
    records: Mapping[str, Any] | None
    reports: Mapping[str, int] | None
    engine: Mapping[str, Any]
    versions: Mapping[str, str]
    files: Sequence[Mapping[str, Any]]
    started: str
    seconds: float
    warnings: Sequence[str] = field(default_factory=tuple)
    counts_store: Mapping[str, Any] | None = None
    metrics: Mapping[str, int | str] | None = None

    def as_json(self) -> dict[str, Any]:
        """Return the manifest as one JSON object."""
        parts = {"metrics": self.metrics, "counts_store": self.counts_store}
        return {
            "format": FORMAT_VERSION,
            "verb": self.verb,
            "collection": dict(self.definition),
            "fingerprint": self.fingerprint,
            "mechanism": dict(self.mechanism),
            "epsilon": dict(self.epsilon),
            "randomness": self.randomness.as_json(),
            "records": None if self.records is None else dict(self.records),
            "reports": None if self.reports is None else dict(self.reports),
            "engine": dict(self.engine),
            "versions": dict(self.versions),
            "files": [dict(f) for f in self.files],
            "warnings": list(self.warnings),
            "started": self.started,
            "seconds": round(self.seconds, 3),
            **{name: dict(part) for name, part in parts.items() if part is not None},
        }

    def write(self, folder: Path) -> None:
        """Write the manifest into a folder."""
        text = json.dumps(self.as_json(), indent=2, ensure_ascii=False, allow_nan=False)
        (folder / MANIFEST_NAME).write_text(text + "\n", encoding="utf-8")


def read_manifest(folder: Path) -> dict[str, Any]:
    """Read the manifest of a result folder.

    Raises:
        InputError: There is none, or it is not one of ours.
    """
    path = folder / MANIFEST_NAME
    try:
        content = json.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        raise InputError(f"{folder} holds no {MANIFEST_NAME}, so it is no complete result of ldp-beam.") from None
    except (json.JSONDecodeError, UnicodeDecodeError) as error:
        raise InputError(f"{path} is not readable JSON: {error}.") from error
    if not isinstance(content, dict) or "fingerprint" not in content:
        raise InputError(f"{path} is not a manifest of ldp-beam.")
    return content
