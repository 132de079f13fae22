"""What a file of reports from a stranger must satisfy before its reports are looked at. Knows no record."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable
from typing import Any, Final

import pyarrow as pa
import pyarrow.parquet as pq
from apache_beam.io.filesystem import CompressionTypes
from apache_beam.io.filesystems import FileSystems

from ..errors import InputError
from .store_clients import share_clients

__all__ = ["COPY_ROWS", "check_columns", "check_row_groups", "copies", "digest_of", "open_file"]

#: Rows of the largest row group that is read.
_GROUP_ROWS: Final = 1 << 23
#: A column chunk may be so much larger than its rows: dictionaries, page heads, statistics.
_SLACK_SHARE: Final = 1.5
_SLACK_BYTES: Final = 1 << 20
#: Two files with the same bytes and at least so many reports are one file twice; with fewer, people may have
#: sent the same by chance.
COPY_ROWS: Final = 1_000


def open_file(path: str) -> Any:
    """Open a file on any file system, as it is."""
    share_clients(path)
    return FileSystems.open(path, compression_type=CompressionTypes.UNCOMPRESSED)


def check_columns(found: pa.Schema, expected: pa.Schema, path: str) -> None:
    """Require exactly the columns of a report.

    Raises:
        InputError: A column is absent, has another type, or is one that no report has.
    """
    for field in expected:
        index = found.get_field_index(field.name)
        if index < 0 or found.field(index).type != field.type:
            what = "absent" if index < 0 else f"of type {found.field(index).type}"
            raise InputError(
                f"{path}: column {field.name!r} is {what}; reports of this collection hold {field.type} there."
            )
    more = [name for name in found.names if name not in expected.names]
    if more or len(found) != len(expected):
        raise InputError(
            f"{path} holds the column {(more or found.names)[0]!r}, which no report of this collection has. Such a "
            "file is not counted, since what it says about people is not known."
        )


def check_row_groups(metadata: pq.FileMetaData, expected: pa.Schema, path: str) -> None:
    """Refuse row groups that would unpack to much more than their reports: decompression bombs.

    Raises:
        InputError: A row group has too many rows or too many bytes.
    """
    for number in range(metadata.num_row_groups):
        group = metadata.row_group(number)
        if not 0 <= group.num_rows <= _GROUP_ROWS:
            raise InputError(f"{path}: row group {number} claims {group.num_rows:,} reports; {_GROUP_ROWS:,} are read.")
        for column in range(group.num_columns):
            chunk = group.column(column)
            width = _width(expected, chunk.path_in_schema)
            limit = int(group.num_rows * width * _SLACK_SHARE) + _SLACK_BYTES
            if not 0 <= chunk.total_uncompressed_size <= limit:
                raise InputError(
                    f"{path}: column {chunk.path_in_schema!r} of row group {number} unpacks to "
                    f"{chunk.total_uncompressed_size:,} bytes, but {group.num_rows:,} reports need {limit:,} at most."
                )


def _width(schema: pa.Schema, name: str) -> int:
    kind = schema.field(name).type
    return int(kind.byte_width) if pa.types.is_fixed_size_binary(kind) else 8


def copies(paths: Iterable[str]) -> dict[str, str]:
    """Return the files that have the same bytes as an earlier one, with that one.

    Only files of equal size are read for this.
    """
    by_size: dict[int, list[str]] = {}
    for path in paths:
        by_size.setdefault(_size(path), []).append(path)
    found: dict[str, str] = {}
    for same in by_size.values():
        seen: dict[bytes, str] = {}
        for path in same if len(same) > 1 else []:
            first = seen.setdefault(digest_of(path), path)
            if first != path:
                found[path] = first
    return found


def _size(path: str) -> int:
    (match,) = FileSystems.match([path])
    return int(match.metadata_list[0].size_in_bytes) if match.metadata_list else -1


def digest_of(path: str) -> bytes:
    """Return the SHA-256 of a file's bytes."""
    digest = hashlib.sha256()
    with open_file(path) as file:
        while block := file.read(1 << 20):
            digest.update(block)
    return digest.digest()
