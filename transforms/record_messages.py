"""Raw records of simulated clients in messages and files: true data, for the client side of a demonstration only.

A message is an Arrow IPC stream of one batch with the columns of raw records, nested or pairs, and a column of times:
each row has its own event time. Real clients perturb before they send; nothing of this is ever needed then.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field

import fastavro
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from ..schemas.messages import NO_REPORTS, UNREADABLE, WRONG_COLUMNS, MessageHeaders, RefusedMessage, Reject, read_arrow
from ..schemas.records import Columns
from .avro_blocks import AvroBlocks, Wanted
from .avro_columns import arrow_schema
from .input_files import open_bytes
from .kafka_source import Decoded

__all__ = ["RecordDecoder", "RecordFiles", "record_message"]

_BATCH_ROWS = 1 << 15


def record_message(batch: pa.RecordBatch) -> bytes:
    """Return the value of a message of raw records."""
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, batch.schema) as writer:
        writer.write_batch(batch)
    return bytes(sink.getvalue())


@dataclass(frozen=True)
class RecordDecoder:
    """Reads messages of raw records for `ReadKafka`; the batch's timestamp is the earliest of its rows.

    Attributes:
        columns: names of the columns.
    """

    columns: Columns = field(default_factory=Columns)

    def __call__(self, value: bytes | None, headers: MessageHeaders, now: float) -> Decoded:
        """Return the rows of a message.

        Raises:
            RefusedMessage: It holds no records.
        """
        del headers, now  # clients of a demonstration may tell of any time
        batch = read_arrow(value)
        return Decoded([(earliest(batch, self.columns), batch)])


@dataclass(frozen=True)
class RecordFiles:
    """Reads files of raw records for `WatchFolder`; a file's event time is the earliest of its rows.

    Attributes:
        columns: names of the columns.
    """

    columns: Columns = field(default_factory=Columns)
    suffixes: tuple[str, ...] = (".parquet", ".avro")

    def event_time(self, path: str, now: float) -> float:
        """Return the earliest event time in a file.

        Raises:
            RefusedMessage: It holds no records, or cannot be read.
        """
        del now
        try:
            return min(earliest(batch, self.columns) for batch in _batches(path, self.columns))
        except RefusedMessage:
            raise
        except Exception as error:  # what readers raise for damaged files is of any type
            raise RefusedMessage(UNREADABLE, f"it cannot be read: {error}. Is it complete?") from error

    def read(self, path: str, now: float) -> Iterator[tuple[float, pa.RecordBatch] | Reject]:
        """Yield the rows of a file."""
        del now
        try:
            for batch in _batches(path, self.columns):
                yield earliest(batch, self.columns), batch
        except RefusedMessage as error:
            yield Reject(error.reason, 1, path, str(error))
        except Exception as error:  # as above
            yield Reject(UNREADABLE, 1, path, f"it is damaged ({error}); the rest is lost")


def earliest(batch: pa.RecordBatch, columns: Columns) -> float:
    """Return the earliest time of raw records in seconds since 1970; a time without a zone is UTC.

    Raises:
        RefusedMessage: A column is absent, or no row has a time.
    """
    names = batch.schema.names
    missing = [name for name in (columns.user, columns.time) if name not in names]
    if missing:
        raise RefusedMessage(WRONG_COLUMNS, f"there is no column {missing[0]!r}; records of a stream have it")
    times = batch.column(columns.time)
    if not pa.types.is_timestamp(times.type):
        raise RefusedMessage(WRONG_COLUMNS, f"the column {columns.time!r} holds {times.type}, not times")
    first = pc.min(times.cast(pa.timestamp("us", tz=times.type.tz))).cast(pa.int64()).as_py()
    if first is None:
        raise RefusedMessage(NO_REPORTS, "no row has a time")
    return float(first) / 1e6


def _batches(path: str, columns: Columns) -> Iterator[pa.RecordBatch]:
    if path.endswith(".avro"):
        wanted = _wanted(path, columns)
        with open_bytes(path) as file:
            yield from AvroBlocks(file, wanted).batches(_BATCH_ROWS)
    else:
        with open_bytes(path) as file:
            yield from pq.ParquetFile(file).iter_batches(_BATCH_ROWS)


def _wanted(path: str, columns: Columns) -> Wanted:
    """Return the columns of records that an Avro file has; what else it holds is passed over."""
    with open_bytes(path) as file:
        schema = arrow_schema(fastavro.block_reader(file).writer_schema)
    ours = (columns.user, columns.key, columns.value, columns.items, columns.time, *columns.attributes)
    names = tuple(name for name in schema.names if name in ours)
    if columns.items not in names:
        return Wanted(names)
    item = schema.field(columns.items).type.value_type
    inside = [item.field(i).name for i in range(item.num_fields)]
    return Wanted(names, columns.items, tuple(name for name in inside if name in (columns.key, columns.value)))
