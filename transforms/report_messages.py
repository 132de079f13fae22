"""What the server side takes from a stream's messages and files: reports of one collection and of one slice of time."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from ..errors import InputError
from ..schemas.messages import (
    NO_HEADER,
    NULL_REPORTS,
    UNREADABLE,
    WRONG_COLUMNS,
    MessageHeaders,
    RefusedMessage,
    Reject,
    check_header,
    decode_message,
)
from ..schemas.reports import FileHeader
from .collection import Collection
from .kafka_source import Decoded
from .report_files import REPORT_FORMATS, inspect_report_file, read_batches
from .report_files_avro import AvroReports
from .report_files_checks import open_file

__all__ = ["ReportDecoder", "ReportFiles"]


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
        # The packed form has none in its batch.
        batch = message.batch.replace_schema_metadata(message.header.metadata())
        parts = [(float(start), batch)] if start is not None and batch.num_rows else []
        nulls = [(NULL_REPORTS, message.nulls, "reports with a null")] if message.nulls else []
        return Decoded(parts, nulls)


@dataclass(frozen=True)
class ReportFiles:
    """Reads files of reports for `WatchFolder`.

    Attributes:
        collection: whose reports they are.
        slice_seconds: length of the slices that are counted; None for any.
    """

    collection: Collection
    slice_seconds: int | None = None
    suffixes: tuple[str, ...] = tuple(f".{name}" for name in REPORT_FORMATS)

    def event_time(self, path: str, now: float) -> float:
        """Return the event time of a file's reports.

        Raises:
            RefusedMessage: It holds none that belong here.
        """
        header = self._header(path)
        start = check_header(
            header,
            fingerprint=self.collection.fingerprint,
            round_=self.collection.round,
            slice_seconds=self.slice_seconds,
            now=now,
        )
        try:
            inspect_report_file(path, self.collection)
        except InputError as error:
            raise RefusedMessage(WRONG_COLUMNS, str(error)) from error
        return float(start)

    def read(self, path: str, now: float) -> Iterator[tuple[float, pa.RecordBatch] | Reject]:
        """Yield the reports of a file; of a damaged one what can be read."""
        rows = 0
        try:
            start, told = self.event_time(path, now), self._header(path).metadata()
            for part in inspect_report_file(path, self.collection)[1]:
                for batch, malformed in read_batches(self.collection, part):
                    rows += batch.num_rows
                    if batch.num_rows:
                        yield start, batch.replace_schema_metadata(told)
                    if malformed:
                        yield Reject(NULL_REPORTS, malformed, path, "reports with a null or a number out of range")
        except RefusedMessage as error:  # it was replaced since it was listed
            yield Reject(error.reason, 1, path, str(error))
        except Exception as error:  # what readers raise for damaged files is of any type
            yield Reject(UNREADABLE, 1, path, f"it is damaged after {rows:,} reports ({error}); the rest is lost")

    def _header(self, path: str) -> FileHeader:
        try:
            with open_file(path) as file:
                metadata: Any
                if path.endswith(".avro"):
                    metadata = AvroReports(file, self.collection.report_schema()).metadata
                else:
                    metadata = pq.read_schema(file).metadata
        except Exception as error:  # as above
            raise RefusedMessage(UNREADABLE, f"it cannot be read: {error}. Is it complete?") from error
        try:
            return FileHeader.read(metadata, path)
        except InputError as error:
            raise RefusedMessage(NO_HEADER, str(error)) from error
