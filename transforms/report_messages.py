"""What the server side takes from a message of a stream: reports of one collection and of one slice of time."""

from __future__ import annotations

from dataclasses import dataclass

import pyarrow as pa

from ..schemas.messages import NULL_REPORTS, MessageHeaders, decode_message
from .collection import Collection
from .kafka_source import Decoded

__all__ = ["ReportDecoder"]


@dataclass(frozen=True)
class ReportDecoder:
    """Reads messages of reports for `ReadKafka`.

    Attributes:
        expected: columns of the collection's reports.
        fingerprint: of the collection.
        round: the round that is counted; 0 for collections of a single round.
        slice_seconds: length of the slices that are counted; None for any.
    """

    expected: pa.Schema
    fingerprint: str
    round: int = 0
    slice_seconds: int | None = None

    @classmethod
    def of(cls, collection: Collection, *, slice_seconds: int | None = None) -> ReportDecoder:
        """Return the decoder of a collection."""
        return cls(collection.report_schema(), collection.fingerprint, collection.round, slice_seconds)

    def __call__(self, value: bytes | None, headers: MessageHeaders, now: float) -> Decoded:
        """Return the reports of a message at their event time.

        Raises:
            RefusedMessage: It holds none that belong here.
        """
        message = decode_message(
            value,
            headers,
            expected=self.expected,
            fingerprint=self.fingerprint,
            round_=self.round,
            slice_seconds=self.slice_seconds,
            now=now,
        )
        start = message.header.event_time()
        batch = message.batch.replace_schema_metadata(
            message.header.metadata()
        )  # the packed form has none in its batch
        parts = [(float(start), batch)] if start is not None and batch.num_rows else []
        nulls = [(NULL_REPORTS, message.nulls, "reports with a null")] if message.nulls else []
        return Decoded(parts, nulls)
