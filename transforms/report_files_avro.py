"""Reading Avro files of reports that come from strangers: block by block, nothing larger than its reports can be.

Avro's own readers decompress a block of any claimed size. Here a block of n reports is decompressed to n times the
largest size of a report and no further, and what is left over makes it refused.
"""

from __future__ import annotations

import io
import json
import zlib
from collections.abc import Iterator, Mapping
from typing import Any, BinaryIO, Final

import fastavro
import numpy as np
import numpy.typing as npt
import pyarrow as pa
from fastavro.schema import to_parsing_canonical_form

from ..schemas.avro import avro_schema

__all__ = ["AvroReports"]

_HEADER: Final = fastavro.parse_schema(
    {
        "type": "record",
        "name": "Header",
        "fields": [
            {"name": "magic", "type": {"type": "fixed", "name": "Magic", "size": 4}},
            {"name": "meta", "type": {"type": "map", "values": "bytes"}},
            {"name": "sync", "type": {"type": "fixed", "name": "Sync", "size": 16}},
        ],
    }
)
_HEADER_BYTES: Final = 1 << 20
_BLOCK_BYTES: Final = 1 << 26
_BLOCK_ROWS: Final = 1 << 20
#: Bytes of the longest encoded integer.
_LONG: Final = 10
#: A varint of 32 bits.
_INT: Final = 5


class _Bounded:
    """A file of which at most so many bytes may be read at once or in all."""

    def __init__(self, file: BinaryIO, limit: int) -> None:
        self._file, self._left = file, limit

    def read(self, size: int = -1) -> bytes:
        if not 0 <= size <= self._left:
            raise ValueError("its header is larger than any header of ldp-beam")
        self._left -= size
        return self._file.read(size)


class AvroReports:
    """One open Avro file of reports.

    Args:
        file: open at its beginning.
        schema: Arrow schema of the reports.

    Raises:
        ValueError: It is no Avro file, has another schema, or a codec that we never write.
    """

    def __init__(self, file: BinaryIO, schema: pa.Schema) -> None:
        self._file, self._schema = file, schema
        header = fastavro.schemaless_reader(_Bounded(file, _HEADER_BYTES), _HEADER)
        if not isinstance(header, dict) or header["magic"] != b"Obj\x01":
            raise ValueError("it is no Avro file")
        meta: Mapping[str, bytes] = header["meta"]
        self._sync: bytes = header["sync"]
        self._codec = meta.get("avro.codec", b"null").decode()
        if self._codec not in ("null", "deflate"):
            raise ValueError(f"its codec is {self._codec!r}; reports are written with null or deflate")
        self._writer = fastavro.parse_schema(json.loads(meta["avro.schema"]))
        expected = fastavro.parse_schema(avro_schema(schema.remove_metadata(), "report"))
        if to_parsing_canonical_form(self._writer) != to_parsing_canonical_form(expected):
            fields = self._writer.get("fields", []) if isinstance(self._writer, dict) else []
            raise ValueError(_difference([field["name"] for field in fields], schema))
        self.metadata: dict[bytes | str, bytes | str] = {
            name: value for name, value in meta.items() if not name.startswith("avro.")
        }

    def batches(self) -> Iterator[tuple[pa.RecordBatch, int]]:
        """Yield the reports of each block, and how many of the block hold numbers that their type cannot.

        Raises:
            ValueError: A block is damaged; those before it were whole.
        """
        while (first := self._file.read(1)) != b"":
            rows, size = self._long(first), self._long()
            if not 0 <= rows <= _BLOCK_ROWS or not 0 <= size <= _BLOCK_BYTES:
                raise ValueError(f"a block claims {rows} reports in {size} bytes")
            data = self._file.read(size)
            if len(data) != size or self._file.read(16) != self._sync:
                raise ValueError("a block is cut off or out of step")
            yield self._decoded(self._decompressed(data, rows), rows)

    def _long(self, first: bytes | None = None) -> int:
        value, shift = 0, 0
        byte = self._file.read(1) if first is None else first
        while True:
            if not byte or shift >= 7 * _LONG:
                raise ValueError("a block's head is damaged")
            value |= (byte[0] & 0x7F) << shift
            if byte[0] < 0x80:
                return (value >> 1) ^ -(value & 1)
            shift += 7
            byte = self._file.read(1)

    def _decompressed(self, data: bytes, rows: int) -> bytes:
        largest = rows * sum(self._width(field) for field in self._schema)
        if self._codec == "deflate":
            unpacker = zlib.decompressobj(-15)
            try:
                data = unpacker.decompress(data, largest + 1)
            except zlib.error as error:
                raise ValueError(f"a block cannot be decompressed: {error}") from error
        if len(data) > largest:
            raise ValueError(f"a block of {rows} reports holds more than {largest} bytes")
        return data

    @staticmethod
    def _width(field: pa.Field) -> int:
        if pa.types.is_fixed_size_binary(field.type):
            return int(field.type.byte_width)
        return _INT if pa.types.is_integer(field.type) and field.type.bit_width <= 32 else _LONG

    def _decoded(self, data: bytes, rows: int) -> tuple[pa.RecordBatch, int]:
        stream = io.BytesIO(data)
        decoded: list[Any] = [fastavro.schemaless_reader(stream, self._writer) for _ in range(rows)]
        if stream.tell() != len(data):
            raise ValueError("a block holds more than its reports")
        return _batch(decoded, self._schema)


def _difference(names: list[str], schema: pa.Schema) -> str:
    for name in schema.names:
        if name not in names:
            return f"column {name!r} is absent; reports of this collection hold it"
    more = [name for name in names if name not in schema.names]
    if more:
        return f"it holds the column {more[0]!r}, which no report of this collection has"
    return "its columns have other types than the reports of this collection"


def _batch(rows: list[Any], schema: pa.Schema) -> tuple[pa.RecordBatch, int]:
    """Put rows into columns, without those whose numbers do not fit their types."""
    columns: dict[str, Any] = {}
    good: npt.NDArray[np.bool_] = np.ones(len(rows), dtype=np.bool_)
    for field in schema:
        values = [row[field.name] for row in rows]
        if pa.types.is_integer(field.type):
            numbers = np.array(values, dtype=object)
            low, high = _range(field.type)
            good &= np.fromiter((low <= value <= high for value in values), np.bool_, len(values))
            columns[field.name] = numbers
        else:
            columns[field.name] = np.array(values, dtype=object)
    arrays = [pa.array(columns[field.name][good].tolist(), type=field.type) for field in schema]
    return pa.RecordBatch.from_arrays(arrays, names=schema.names), int(np.count_nonzero(~good))


def _range(kind: pa.DataType) -> tuple[int, int]:
    limits = np.iinfo(kind.to_pandas_dtype())
    return int(limits.min), int(limits.max)
