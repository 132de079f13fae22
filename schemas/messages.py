"""Reports in Kafka messages: how the client side writes them and the server side takes them, whoever sent them.

A message belongs to one slice of time, which its header names, as a file does. It has one of two forms:

*Arrow*: the value is one Arrow IPC stream of one batch of reports; the header is the schema's metadata.

*Packed*: the value holds nothing but the reports, each as the bytes of its columns one after the other, integers in
little-endian order; the header stands in the message's Kafka headers, under the names that it has in files. A single
report costs its own bytes and the header, which brokers compress within a batch.

What arrives comes from strangers. A message is bounded before it is opened, never decompressed, and either gives whole
reports of this collection or a reason why it does not.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final, NamedTuple

import numpy as np
import pyarrow as pa

from ..errors import InputError
from .reports import FileHeader

__all__ = [
    "ANOTHER_COLLECTION",
    "ANOTHER_SLICE",
    "FROM_THE_FUTURE",
    "MAX_MESSAGE_BYTES",
    "NO_HEADER",
    "NO_REPORTS",
    "NULL_REPORTS",
    "TOO_LARGE",
    "TOO_LATE",
    "UNREADABLE",
    "WRONG_COLUMNS",
    "MessageHeaders",
    "RefusedMessage",
    "Reject",
    "ReportMessage",
    "arrow_message",
    "check_header",
    "decode_message",
    "packed_headers",
    "packed_message",
    "read_arrow",
]

#: Bytes of the largest message that is opened.
MAX_MESSAGE_BYTES: Final = 1 << 24

#: Reasons for which a message, or a file of a watched folder, is set aside.
TOO_LARGE = "too_large"
UNREADABLE = "unreadable"
NO_HEADER = "no_header"
NO_REPORTS = "no_reports"
ANOTHER_COLLECTION = "another_collection"
ANOTHER_SLICE = "another_slice"
FROM_THE_FUTURE = "from_the_future"
WRONG_COLUMNS = "wrong_columns"
#: Reason for which reports are set aside whose windows an earlier run has closed.
TOO_LATE = "too_late"
#: Reason for which single reports of a message are set aside: a null could not be told from zeros.
NULL_REPORTS = "null_reports"

#: Kafka's headers of a message: names and values.
MessageHeaders = Iterable[tuple[str, bytes | None]]


class RefusedMessage(ValueError):
    """A message that is set aside.

    Attributes:
        reason: one of the reasons of this module.
    """

    def __init__(self, reason: str, detail: str) -> None:
        super().__init__(detail)
        self.reason = reason


@dataclass(frozen=True)
class Reject:
    """What a source set aside.

    Attributes:
        reason: one of the reasons of this module.
        count: how many messages or files; with `NULL_REPORTS` and `TOO_LATE`, how many reports.
        where: topic, partition and offset, or path.
        detail: one sentence for people.
        payload: the message itself, as far as it is kept; empty for files, which stay where they are.
    """

    reason: str
    count: int
    where: str
    detail: str = ""
    payload: bytes = b""


@dataclass(frozen=True)
class ReportMessage:
    """What a message holds.

    Attributes:
        header: what it says of itself.
        batch: whole reports with the columns of the collection.
        nulls: reports that were left out because they hold a null.
    """

    header: FileHeader
    batch: pa.RecordBatch
    nulls: int = 0


# -- writing ----------------------------------------------------------------------------------------------


def arrow_message(batch: pa.RecordBatch, header: FileHeader) -> bytes:
    """Return the value of a message in the Arrow form; it needs no Kafka headers."""
    schema = batch.schema.with_metadata(dict(header.metadata()))
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, schema) as writer:
        writer.write_batch(pa.RecordBatch.from_arrays(batch.columns, schema=schema))
    return bytes(sink.getvalue())


def packed_message(batch: pa.RecordBatch) -> bytes:
    """Return the value of a message in the packed form; send it with `packed_headers`."""
    rows = np.zeros(batch.num_rows, dtype=_row_type(batch.schema))
    for field, column in zip(batch.schema, batch.columns, strict=True):
        rows[field.name] = _numbers(column)
    return rows.tobytes()


def packed_headers(header: FileHeader) -> list[tuple[str, bytes]]:
    """Return the Kafka headers of a message in the packed form."""
    return [(name, value.encode()) for name, value in header.metadata().items()]


# -- reading ----------------------------------------------------------------------------------------------


def decode_message(
    value: bytes | None,
    headers: MessageHeaders,
    *,
    expected: pa.Schema,
    fingerprint: str,
    round_: int = 0,
    slice_seconds: int | None = None,
    now: float | None = None,
) -> ReportMessage:
    """Return what a message holds.

    Args:
        value: the message's value.
        headers: its Kafka headers; those of other programs are passed over.
        expected: columns of the collection's reports.
        fingerprint: of the collection.
        round_: the round that is counted; 0 for collections of a single round.
        slice_seconds: a slice must fit into this many seconds a whole number of times, and start at a multiple of its
            own length, so that it lies in one window; None for any.
        now: seconds since 1970; a slice that ends later is refused. None not to look.

    Raises:
        RefusedMessage: It is set aside; nothing else is raised, whatever the message.
    """
    if not value:
        raise RefusedMessage(NO_REPORTS, "the message is empty")
    if len(value) > MAX_MESSAGE_BYTES:
        raise RefusedMessage(TOO_LARGE, f"it has {len(value):,} bytes; {MAX_MESSAGE_BYTES:,} are read at most")
    ours = {name: text for name, text in headers if name.startswith("ldp_beam.") and text is not None}
    if ours:
        header = _header(ours)
        check_header(header, fingerprint=fingerprint, round_=round_, slice_seconds=slice_seconds, now=now)
        batch = _unpacked(value, expected)
    else:
        stream = _stream(value)
        header = _header(stream.schema.metadata)
        check_header(header, fingerprint=fingerprint, round_=round_, slice_seconds=slice_seconds, now=now)
        batch = _read(stream, expected)
    if not batch.num_rows:
        raise RefusedMessage(NO_REPORTS, "it holds no report")
    return _without_nulls(header, batch)


def check_header(
    header: FileHeader, *, fingerprint: str, round_: int, slice_seconds: int | None, now: float | None
) -> int:
    """Return the event time of reports with this header, in seconds since 1970; arguments as in `decode_message`.

    Raises:
        RefusedMessage: They cannot be counted in this stream.
    """
    try:
        header.require(kind="reports", fingerprint=fingerprint, path="It", round_=round_)
    except InputError as error:
        raise RefusedMessage(ANOTHER_COLLECTION, str(error)) from error
    start, length = header.event_time(), header.window_seconds
    if start is None:
        raise RefusedMessage(ANOTHER_SLICE, "its header names no slice of time (window_start), so it has no event time")
    if slice_seconds is not None and (slice_seconds % length or start % length):
        raise RefusedMessage(
            ANOTHER_SLICE,
            f"its slice of {length} s starts at {header.window_start}; this stream counts slices that divide "
            f"{slice_seconds} s and start at multiples of their length",
        )
    if now is not None and start + length > now:
        raise RefusedMessage(FROM_THE_FUTURE, f"its slice of {length} s from {header.window_start} on is not over yet")
    return start


def _header(metadata: object) -> FileHeader:
    try:
        return FileHeader.read(metadata, "It")  # type: ignore[arg-type]  # Arrow's metadata has no type
    except InputError as error:
        raise RefusedMessage(NO_HEADER, str(error)) from error


# -- the packed form --------------------------------------------------------------------------------------


def _row_type(schema: pa.Schema) -> np.dtype[np.void]:
    return np.dtype([(field.name, _column_type(field.type)) for field in schema])


def _column_type(kind: pa.DataType) -> str:
    if pa.types.is_fixed_size_binary(kind):
        return f"V{kind.byte_width}"
    return str(np.dtype(kind.to_pandas_dtype()).newbyteorder("<").str)


def _numbers(column: pa.Array) -> np.ndarray[tuple[int], np.dtype[np.generic]]:
    """Return a column without nulls as NumPy's array of its elements, bytes as void."""
    if not pa.types.is_fixed_size_binary(column.type):
        return np.asarray(column.to_numpy(zero_copy_only=True))
    width = column.type.byte_width
    return np.frombuffer(column.buffers()[1], dtype=f"V{width}")[column.offset : column.offset + len(column)]


def _unpacked(value: bytes, expected: pa.Schema) -> pa.RecordBatch:
    kind = _row_type(expected)
    if len(value) % kind.itemsize:
        raise RefusedMessage(
            WRONG_COLUMNS, f"its {len(value):,} bytes are no whole number of reports of {kind.itemsize} bytes"
        )
    rows = np.frombuffer(value, dtype=kind)
    columns = []
    for field in expected:
        data = np.ascontiguousarray(rows[field.name])
        if not pa.types.is_fixed_size_binary(field.type):
            data = data.astype(data.dtype.newbyteorder("="), copy=False)
        columns.append(pa.Array.from_buffers(field.type, len(rows), [None, pa.py_buffer(data)]))
    return pa.RecordBatch.from_arrays(columns, schema=expected)


# -- the Arrow form ---------------------------------------------------------------------------------------


class _Stream(NamedTuple):
    schema: pa.Schema
    columns: dict[str, pa.DataType]
    batch: pa.ipc.Message


def _stream(value: bytes) -> _Stream:
    """Open a stream of exactly one uncompressed batch, without reading the batch."""
    try:
        messages = list(pa.ipc.MessageReader.open_stream(value))
        if [message.type for message in messages] != ["schema", "record batch"]:
            raise RefusedMessage(UNREADABLE, "it is no Arrow stream of one batch")
        if _is_compressed(messages[1]):
            raise RefusedMessage(UNREADABLE, "its batch is compressed; let Kafka compress (compression.type)")
        schema = pa.ipc.read_schema(messages[0])
        return _Stream(schema, {field.name: field.type for field in schema}, messages[1])
    except RefusedMessage:
        raise
    except Exception as error:  # what Arrow raises for foreign bytes is of any type
        raise RefusedMessage(UNREADABLE, f"it is neither an Arrow stream nor has our headers: {error}") from error


def read_arrow(value: bytes | None) -> pa.RecordBatch:
    """Return the batch of a message in the Arrow form, whatever its columns; for records, which have many shapes.

    Raises:
        RefusedMessage: There is none, or it is damaged.
    """
    if not value:
        raise RefusedMessage(NO_REPORTS, "the message is empty")
    if len(value) > MAX_MESSAGE_BYTES:
        raise RefusedMessage(TOO_LARGE, f"it has {len(value):,} bytes; {MAX_MESSAGE_BYTES:,} are read at most")
    stream = _stream(value)
    return _batch(stream, stream.schema.names)


def _read(stream: _Stream, expected: pa.Schema) -> pa.RecordBatch:
    found = stream.columns
    wanted = {field.name: field.type for field in expected}
    if found != wanted or len(stream.schema) != len(expected):
        raise RefusedMessage(WRONG_COLUMNS, f"it holds {_show(found)}; reports of this collection hold {_show(wanted)}")
    return _batch(stream, expected.names)


def _batch(stream: _Stream, names: list[str]) -> pa.RecordBatch:
    try:
        batch = pa.ipc.read_record_batch(stream.batch, stream.schema).select(names)
        batch.validate(full=True)
    except Exception as error:  # as above
        raise RefusedMessage(UNREADABLE, f"its batch is damaged: {error}") from error
    return batch


def _show(columns: dict[str, pa.DataType]) -> str:
    shown = ", ".join(f"{name[:40]} ({kind})" for name, kind in list(columns.items())[:8])
    return shown or "no column"


def _is_compressed(message: pa.ipc.Message) -> bool:
    """Look up in the batch's own description whether its buffers are compressed.

    Arrow would decompress to whatever size a buffer claims. The description is a flatbuffer, verified when the message
    was opened: a table starts with the distance to its list of fields' places.
    """
    data = memoryview(message.metadata)
    root = struct.unpack_from("<I", data)[0]
    header = _field(data, root, 2)
    if header is None:
        raise ValueError("the batch has no description")
    batch = header + struct.unpack_from("<I", data, header)[0]
    return _field(data, batch, 3) is not None


def _field(data: memoryview, table: int, number: int) -> int | None:
    """Return where a field of a flatbuffer's table stands, or None where it is absent."""
    places = table - struct.unpack_from("<i", data, table)[0]
    size = struct.unpack_from("<H", data, places)[0]
    if 4 + 2 * number + 2 > size:
        return None
    offset = struct.unpack_from("<H", data, places + 4 + 2 * number)[0]
    return table + offset if offset else None


def _without_nulls(header: FileHeader, batch: pa.RecordBatch) -> ReportMessage:
    rows = batch.num_rows
    if any(column.null_count for column in batch.columns):
        batch = batch.drop_null()
    return ReportMessage(header, batch, rows - batch.num_rows)
