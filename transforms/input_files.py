"""Opening a file of records and finding out what it holds, in each of the three formats."""

from __future__ import annotations

import csv
import gzip
import io
import zlib
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any

import fastavro
import pyarrow as pa
import pyarrow.parquet as pq
from apache_beam.io.filesystem import CompressionTypes
from apache_beam.io.filesystems import FileSystems

from ..errors import InputError
from .avro_columns import arrow_schema
from .generated import Generated
from .paths import is_local
from .store_clients import share_clients

__all__ = ["Facts", "RowGroup", "inspect_file", "open_bytes", "open_parquet"]

#: Smallest plausible bytes of a pair, for estimates of how many there are.
_PAIR_BYTES = {"avro": 8, "csv": 12, "gz": 4}


@dataclass(frozen=True)
class RowGroup:
    """Size of a row group of a Parquet file."""

    rows: int
    bytes: int


@dataclass(frozen=True, kw_only=True)
class Facts:
    """What a file says of itself before its rows are read.

    Attributes:
        schema: its columns as Arrow types; all text in CSV.
        rows: number of rows, where it says so.
        estimated_pairs: about how many pairs it holds, rather too many than too few.
        groups: row groups of a Parquet file, else empty.
    """

    schema: pa.Schema
    rows: int | None
    estimated_pairs: int
    groups: tuple[RowGroup, ...] = ()


def open_bytes(path: str) -> IO[bytes]:
    """Open a file as it is, compressed or not, on any file system that Beam knows."""
    if is_local(path):
        return Path(path).open("rb")
    share_clients(path)
    stream: IO[bytes] = FileSystems.open(path, compression_type=CompressionTypes.UNCOMPRESSED)
    return stream


def open_parquet(path: str) -> pq.ParquetFile:
    """Open a Parquet file, memory-mapped where it is local."""
    if is_local(path):
        return pq.ParquetFile(path, memory_map=True)
    return pq.ParquetFile(pa.PythonFile(open_bytes(path), mode="r"))


def inspect_file(path: str, kind: str) -> Facts:
    """Read a file's schema and size.

    Args:
        path: the file.
        kind: "parquet", "avro" or "csv"; "generated" for records that are made up.

    Raises:
        InputError: It is damaged or not of this format.
    """
    inspect = {"parquet": _parquet, "avro": _avro, "csv": _csv, "generated": _generated}[kind]
    try:
        return inspect(path)
    except InputError:
        raise
    except UnicodeDecodeError as error:
        raise InputError(
            f"The input file {path} is not UTF-8 text ({error.reason} near byte {error.start}). Convert it to UTF-8."
        ) from error
    except (pa.ArrowException, OSError, EOFError, ValueError, KeyError, zlib.error, csv.Error) as error:
        raise InputError(
            f"The input file {path} cannot be read as {kind}: {error}. It is damaged or of another format; "
            "write it again or remove it."
        ) from error


def _parquet(path: str) -> Facts:
    with open_parquet(path) as file:
        metadata = file.metadata
        groups, pairs = [], 0
        for number in range(metadata.num_row_groups):
            group = metadata.row_group(number)
            sizes = [group.column(i) for i in range(group.num_columns)]
            groups.append(RowGroup(group.num_rows, sum(column.total_compressed_size for column in sizes)))
            pairs += max([group.num_rows, *(column.num_values for column in sizes)])
        return Facts(schema=file.schema_arrow, rows=metadata.num_rows, estimated_pairs=pairs, groups=tuple(groups))


def _avro(path: str) -> Facts:
    with open_bytes(path) as stream:
        reader = fastavro.reader(stream)
        schema = arrow_schema(reader.writer_schema)
        # The first record proves that the codec is known.
        empty = next(iter(reader), None) is None
    pairs = _size(path) // _PAIR_BYTES["avro"]
    return Facts(schema=schema, rows=0 if empty else None, estimated_pairs=pairs)


def _csv(path: str) -> Facts:
    packed = path.lower().endswith(".gz")
    with open_bytes(path) as stream:
        data: Any = gzip.GzipFile(fileobj=stream) if packed else stream
        rows = csv.reader(io.TextIOWrapper(data, encoding="utf-8-sig", newline=""))
        header = next(rows, None)
        if not header:
            raise InputError(f"The input file {path} has no header; its first line must name the columns.")
        empty = _is_at_end(rows)
    schema = pa.schema([pa.field(name, pa.string()) for name in header])
    pairs = _size(path) // _PAIR_BYTES["gz" if packed else "csv"]
    return Facts(schema=schema, rows=0 if empty else None, estimated_pairs=pairs)


def _generated(path: str) -> Facts:
    people = Generated.parse(path)
    groups = tuple(RowGroup(rows, 0) for rows in people.block_sizes())
    pairs = people.users * max(1, people.population.pairs)
    return Facts(schema=people.schema, rows=people.users, estimated_pairs=pairs, groups=groups)


def _is_at_end(rows: Any) -> bool:
    try:
        return next(rows, None) is None
    except (UnicodeDecodeError, csv.Error):
        # There is a row; what is wrong with it is told when it is read.
        return False


def _size(path: str) -> int:
    if is_local(path):
        return Path(path).stat().st_size
    return int(FileSystems.match([path])[0].metadata_list[0].size_in_bytes)
