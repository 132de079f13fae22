"""Writing tables of one schema to Parquet, Avro, CSV or JSON Lines files, batch by batch.

This is the only place that knows how our tables look in each format. Flags and other lists of text are
lists in Parquet, Avro and JSON, and joined by ";" in CSV.
"""

from __future__ import annotations

import contextlib
import json
from collections.abc import Iterator
from datetime import UTC, datetime
from types import TracebackType
from typing import Any, BinaryIO, Protocol

import fastavro.write
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.csv as pacsv
import pyarrow.parquet as pq
from apache_beam.io.filesystem import CompressionTypes
from apache_beam.io.filesystems import FileSystems

from ..schemas.avro import avro_schema
from .store_clients import share_clients

__all__ = ["FORMATS", "TableWriter", "write_table"]

#: Output formats by name, which is also the extension.
FORMATS = ("parquet", "avro", "csv", "json")

_PARQUET_ROWS = 1 << 20


class _Encoder(Protocol):
    def write(self, batch: pa.RecordBatch) -> None: ...

    def close(self) -> None: ...

    def abandon(self) -> None: ...


class TableWriter:
    """Writes record batches of one schema to one new file; a context manager.

    Args:
        path: where to write, on any of Beam's file systems.
        schema: Arrow schema of every batch; its metadata becomes file metadata (Parquet, Avro).
        format_: one of `FORMATS`.
        name: record name for Avro.
    """

    def __init__(self, path: str, schema: pa.Schema, format_: str, *, name: str) -> None:
        self.path = path
        self.rows = 0
        share_clients(path)
        self._file: BinaryIO = FileSystems.create(path, compression_type=CompressionTypes.UNCOMPRESSED)
        self._encoder = _ENCODERS[format_](self._file, schema, name)

    def write(self, batch: pa.RecordBatch) -> None:
        """Append the rows of a batch."""
        with self._abandoned_on_failure():
            self._encoder.write(batch)
        self.rows += batch.num_rows

    def close(self) -> None:
        """Write what is outstanding and close the file."""
        with self._abandoned_on_failure():
            self._encoder.close()
            self._file.close()

    @contextlib.contextmanager
    def _abandoned_on_failure(self) -> Iterator[None]:
        """Close the file without what is outstanding, which a full disk would not take at the end either."""
        try:
            yield
        except BaseException:
            self._abandon()
            raise

    def _abandon(self) -> None:
        self._encoder.abandon()
        with contextlib.suppress(OSError, ValueError):
            self._file.close()

    def __enter__(self) -> TableWriter:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if error is None:
            self.close()
        else:
            self._abandon()


def write_table(path: str, table: pa.Table | pa.RecordBatch, format_: str, *, name: str) -> int:
    """Write a whole table to a new file and return its number of rows."""
    with TableWriter(path, table.schema, format_, name=name) as writer:
        batches = table.to_batches() if isinstance(table, pa.Table) else [table]
        for batch in batches:
            writer.write(batch)
        return writer.rows


class _Parquet:
    """Gathers small batches into row groups of useful size."""

    def __init__(self, file: BinaryIO, schema: pa.Schema, name: str) -> None:
        del name
        self._writer = pq.ParquetWriter(file, schema, compression="zstd")
        self._schema = schema
        self._waiting: list[pa.RecordBatch] = []
        self._rows = 0

    def write(self, batch: pa.RecordBatch) -> None:
        self._waiting.append(batch)
        self._rows += batch.num_rows
        if self._rows >= _PARQUET_ROWS:
            self._flush()

    def _flush(self) -> None:
        table = pa.Table.from_batches(self._waiting, schema=self._schema)
        self._writer.write_table(table, row_group_size=_PARQUET_ROWS)
        self._waiting, self._rows = [], 0

    def close(self) -> None:
        if self._rows:
            self._flush()
        self._writer.close()

    def abandon(self) -> None:
        self._writer.is_open = False  # else it writes its footer when it is collected


class _Avro:
    def __init__(self, file: BinaryIO, schema: pa.Schema, name: str) -> None:
        parsed = fastavro.parse_schema(avro_schema(schema, name))
        metadata = {_text(k): _text(v) for k, v in (schema.metadata or {}).items()}
        self._writer = fastavro.write.Writer(file, parsed, codec="deflate", metadata=metadata)

    def write(self, batch: pa.RecordBatch) -> None:
        for row in batch.to_pylist():
            self._writer.write(row)

    def close(self) -> None:
        self._writer.flush()

    def abandon(self) -> None:
        """Nothing is written later."""


class _Csv:
    def __init__(self, file: BinaryIO, schema: pa.Schema, name: str) -> None:
        del name
        flat = [pa.field(f.name, pa.string() if pa.types.is_list(f.type) else f.type) for f in schema]
        self._schema = pa.schema(flat)
        self._writer = pacsv.CSVWriter(file, self._schema, write_options=pacsv.WriteOptions(quoting_style="needed"))

    def write(self, batch: pa.RecordBatch) -> None:
        columns = [_joined(column) if pa.types.is_list(column.type) else column for column in batch.columns]
        self._writer.write_batch(pa.RecordBatch.from_arrays(columns, schema=self._schema))

    def close(self) -> None:
        self._writer.close()

    def abandon(self) -> None:
        """Nothing is written later."""


def _joined(lists: pa.Array) -> pa.Array:
    # The kernel exists for lists of nullable text only.
    return pc.binary_join(lists.cast(pa.list_(pa.string())), ";")


class _Json:
    def __init__(self, file: BinaryIO, schema: pa.Schema, name: str) -> None:
        del schema, name
        self._file = file

    def write(self, batch: pa.RecordBatch) -> None:
        for line in _json_lines(batch):
            self._file.write(line)

    def close(self) -> None:
        """Nothing is outstanding."""

    def abandon(self) -> None:
        """Nothing is written later."""


def _json_lines(batch: pa.RecordBatch) -> Iterator[bytes]:
    for row in batch.to_pylist():
        yield json.dumps(row, ensure_ascii=False, allow_nan=False, default=_time).encode() + b"\n"


def _time(value: object) -> str:
    """Return a time, which JSON does not know, as ISO 8601 text in UTC."""
    if not isinstance(value, datetime):
        raise TypeError(f"a {type(value).__name__} has no form in JSON")
    return value.astimezone(UTC).isoformat().replace("+00:00", "Z")


def _text(value: bytes | str) -> str:
    return value.decode() if isinstance(value, bytes) else value


_ENCODERS: dict[str, Any] = {"parquet": _Parquet, "avro": _Avro, "csv": _Csv, "json": _Json}
