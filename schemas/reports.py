"""The files that clients send to the server: perturbed reports, and the header that says what they are.

A report holds no user id, no time finer than its period, and has the same size for every user of a
collection. The header (file metadata in Parquet and Avro) carries the fingerprint of the collection, so
that the server can refuse reports that were made under another definition.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

import pyarrow as pa

from ..errors import InputError
from .event_time import parse_time, time_text

__all__ = ["FORMAT_VERSION", "REPORT_ID", "REPORT_ID_BYTES", "FileHeader", "report_schema"]

#: Version of the layout of report, counts and estimates files.
FORMAT_VERSION = "1"

#: Column of the opaque ids, where a collection has them.
REPORT_ID = "report_id"
REPORT_ID_BYTES = 16

_PREFIX = "ldp_beam."
_TYPES = {
    "int8": pa.int8(),
    "int32": pa.int32(),
    "int64": pa.int64(),
    "uint32": pa.uint32(),
    "uint64": pa.uint64(),
}


@dataclass(frozen=True, kw_only=True)
class FileHeader:
    """What a file of reports, counts or estimates says of itself, as file metadata.

    Attributes:
        kind: "reports", "counts" or "estimates".
        collection: name in the collection definition.
        mechanism: name of the mechanism.
        fingerprint: SHA-256 (hex) of the client-side fields of the definition.
        period: what the user named the period of this collection; empty where nothing was named.
        private: False where the randomness came from a number (`--seed`): such data protect nobody.
        round: number of the round that was answered; 0 for mechanisms of a single round.
        round_epsilon: budget of that round as decimal text; empty for mechanisms of a single round.
        round_thresholds: integer thresholds of that round by name.
        memoised: an unchanged record repeats its report in every period, so that periods are not independent.
        window_start: start of the slice of time that the reports belong to, as `schemas.event_time` writes it: their
            event time, and nothing finer is known; empty where they belong to no slice.
        window_seconds: length of that slice; 0 where there is none.
    """

    kind: str
    collection: str
    mechanism: str
    fingerprint: str
    period: str = ""
    private: bool = True
    round: int = 0
    round_epsilon: str = ""
    round_thresholds: Mapping[str, int] = field(default_factory=dict)
    memoised: bool = False
    window_start: str = ""
    window_seconds: int = 0

    def metadata(self) -> dict[str, str]:
        """File metadata, as text to text."""
        fields = {
            "kind": self.kind,
            "format": FORMAT_VERSION,
            "collection": self.collection,
            "mechanism": self.mechanism,
            "fingerprint": self.fingerprint,
            "period": self.period,
            "randomness": "secret" if self.private else "seed: not private",
        }
        if self.round:
            thresholds = {name: str(number) for name, number in self.round_thresholds.items()}
            fields["round"], fields["round_epsilon"] = str(self.round), self.round_epsilon
            fields["round_thresholds"] = json.dumps(thresholds, sort_keys=True)
        if self.memoised:
            fields["memoised"] = "yes"
        if self.window_start:
            fields["window_start"], fields["window_seconds"] = self.window_start, str(self.window_seconds)
        return {_PREFIX + name: value for name, value in fields.items()}

    @classmethod
    def read(cls, metadata: Mapping[bytes | str, bytes | str] | None, path: str) -> FileHeader:
        """Read the header of the file at `path` from its metadata.

        Raises:
            InputError: The file was not written by ldp-beam, or by a version with another layout.
        """
        text = {_text(k): _text(v) for k, v in (metadata or {}).items()}
        found = {k.removeprefix(_PREFIX): v for k, v in text.items() if k.startswith(_PREFIX)}
        missing = {"kind", "format", "collection", "mechanism", "fingerprint"} - found.keys()
        if missing:
            raise InputError(
                f"{path} holds no header of ldp-beam (missing: {', '.join(sorted(missing))}), so nothing says "
                "under which collection definition it was made. Give files that `ldp-beam perturb`, "
                "`collect --keep-reports` or `aggregate` wrote."
            )
        if found["format"] != FORMAT_VERSION:
            raise InputError(
                f"{path} has layout version {found['format']}; this ldp-beam reads version {FORMAT_VERSION}."
            )
        try:
            thresholds = {str(k): int(v) for k, v in json.loads(found.get("round_thresholds", "{}")).items()}
            number = int(found.get("round", "0"))
            start, length = found.get("window_start", ""), int(found.get("window_seconds", "0"))
        except (ValueError, TypeError, AttributeError, RecursionError) as error:
            raise InputError(f"{path} has a damaged header of ldp-beam: {error}.") from error
        if bool(start) != (length > 0) or length < 0:
            raise InputError(f"{path} has a damaged header of ldp-beam: a window has a start and a length.")
        return cls(
            kind=found["kind"],
            collection=found["collection"],
            mechanism=found["mechanism"],
            fingerprint=found["fingerprint"],
            period=found.get("period", ""),
            private=found.get("randomness", "secret") == "secret",
            round=number,
            round_epsilon=found.get("round_epsilon", ""),
            round_thresholds=thresholds,
            memoised=found.get("memoised", "no") == "yes",
            window_start=time_text(parse_time(start)) if start else "",
            window_seconds=length,
        )

    def event_time(self) -> int | None:
        """Return the start of the slice in seconds since 1970; None where the reports belong to no slice."""
        return parse_time(self.window_start) if self.window_start else None

    def require(self, *, kind: str, fingerprint: str, path: str, round_: int = 0) -> None:
        """Refuse a file of another kind, of another collection definition, or of another round.

        Raises:
            InputError: The kind, the fingerprint or the round differs.
        """
        if self.kind != kind:
            raise InputError(f"{path} holds {self.kind}, not {kind}.")
        if self.fingerprint != fingerprint:
            raise InputError(
                f"{path} was made under another collection definition: its fingerprint is "
                f"{self.fingerprint[:16]}… (collection {self.collection!r}, mechanism {self.mechanism!r}), the given "
                f"definition has {fingerprint[:16]}…. Give the definition that the clients used; counts of "
                "different definitions are never added."
            )
        if self.round != round_:
            theirs, ours = (f"round {n}" if n else "no round" for n in (self.round, round_))
            raise InputError(
                f"{path} holds {kind} of {theirs}, but {kind} of {ours} are wanted: each round is answered and counted "
                "once. Give the files of the open round, with --round and --state."
            )


def report_schema(
    layout: Iterable[tuple[str, str, int]], header: FileHeader | None = None, *, ids: bool = False
) -> pa.Schema:
    """Arrow schema of report batches and files.

    Args:
        layout: (name, NumPy dtype name, width) of each report array; uint8 arrays with a width are planes
            of bytes, everything else is a scalar column.
        header: metadata to attach.
        ids: whether a report carries an opaque id, the last column.
    """
    fields = [pa.field(name, _arrow_type(dtype, width), nullable=False) for name, dtype, width in layout]
    if ids:
        fields.append(pa.field(REPORT_ID, pa.binary(REPORT_ID_BYTES), nullable=False))
    return pa.schema(fields, metadata=None if header is None else dict(header.metadata()))


def _arrow_type(dtype: str, width: int) -> pa.DataType:
    if dtype == "uint8" and width:
        return pa.binary(width)
    if width == 0 and dtype in _TYPES:
        return _TYPES[dtype]
    raise TypeError(f"a report array of {width} {dtype} has no file type")


def _text(value: bytes | str) -> str:
    return value.decode("utf-8", "replace") if isinstance(value, bytes) else value
