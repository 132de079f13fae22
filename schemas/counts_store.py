"""The files of a counts store: the counts of one day each, in folders that name the date (`date=2026-11-01`).

A day's file is an ordinary file of counts, long rows that any Parquet reader understands. Its header adds, under one
name, what the day was counted from. The bytes of the file depend on that and on nothing else: no clock, no path.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import date
from pathlib import Path
from typing import Any, BinaryIO, Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.parquet as pq

from ..errors import InputError
from .counts import COUNTS_COLUMNS, MAIN_GROUP, counts_schema, counts_table
from .reports import FileHeader

__all__ = ["DAY_FILE", "DayFile", "StoredDay", "day_of_folder", "folder_of_day", "parse_day", "read_day", "write_day"]

#: Name of the file in a day's folder.
DAY_FILE: Final = "counts.parquet"

_FOLDER: Final = re.compile(r"date=(\d{4}-\d{2}-\d{2})")
_DATE: Final = re.compile(r"\d{4}-\d{2}-\d{2}")
_DAY_FIELD: Final = "ldp_beam.day"
#: No honest count is larger.
_LARGEST_COUNT: Final = 1 << 50


def parse_day(text: str, what: str) -> date:
    """Return the date that a text such as "2026-11-01" names.

    Args:
        text: the date.
        what: where it was given, for the message.

    Raises:
        InputError: It is no date of that form.
    """
    try:
        if _DATE.fullmatch(text):
            return date.fromisoformat(text)
    except ValueError:
        pass
    raise InputError(f"{what} {text!r}: a counts store knows days; give a date such as 2026-11-01.")


def folder_of_day(day: date) -> str:
    """Return the name of a day's folder, as Hive, Spark and DuckDB know partitions."""
    return f"date={day.isoformat()}"


def day_of_folder(name: str) -> date | None:
    """Return the day of a folder's name, or None where it is no folder of a day."""
    match = _FOLDER.fullmatch(name)
    try:
        return None if match is None else date.fromisoformat(match[1])
    except ValueError:
        return None


@dataclass(frozen=True, kw_only=True)
class StoredDay:
    """What a day was counted from.

    Attributes:
        files: digests of the files that were counted whole, sorted; reports are no secret, their digests neither.
        reports: reports that were counted.
        malformed: reports that no client of the collection can have made.
        unreadable: reports lost in damaged files.
    """

    files: tuple[str, ...]
    reports: int
    malformed: int = 0
    unreadable: int = 0

    def as_text(self) -> str:
        """Return the field for the header."""
        fields = {
            "files": sorted(self.files),
            "reports": self.reports,
            "malformed": self.malformed,
            "unreadable": self.unreadable,
        }
        return json.dumps(fields, sort_keys=True, separators=(",", ":"))

    @classmethod
    def from_text(cls, text: str) -> StoredDay:
        """Read the field back.

        Raises:
            ValueError: It is not what `as_text` gives.
        """
        found = json.loads(text)
        numbers = {name: found[name] for name in ("reports", "malformed", "unreadable")}
        if not all(type(number) is int and number >= 0 for number in numbers.values()):
            raise ValueError("a number of reports is none")
        return cls(files=tuple(map(str, found["files"])), **numbers)


@dataclass(frozen=True, kw_only=True, eq=False)
class DayFile:
    """A day's file, read: its header, what it was counted from, and the counts by statistic."""

    header: FileHeader
    day: StoredDay
    cells: Mapping[str, npt.NDArray[np.int64]]


def write_day(file: BinaryIO, content: DayFile) -> None:
    """Write a day's file; equal contents give equal bytes."""
    schema = counts_schema(content.header)
    schema = schema.with_metadata({**(schema.metadata or {}), _DAY_FIELD: content.day.as_text()})
    table = counts_table(0, MAIN_GROUP, content.day.reports, content.cells, schema)
    pq.write_table(
        table,
        file,
        compression="zstd",
        row_group_size=max(1, table.num_rows),
        use_dictionary=["round", "group", "statistic"],
        column_encoding={"cell": "DELTA_BINARY_PACKED", "count": "DELTA_BINARY_PACKED"},
    )


def read_day(path: Path, sizes: Mapping[str, int]) -> DayFile:
    """Read a day's file and check that its counts can be.

    Args:
        path: the file.
        sizes: number of cells of each statistic that the mechanism counts.

    Raises:
        InputError: The file is damaged, or is no day's file.
    """
    try:
        table = pq.ParquetFile(path, read_dictionary=["group", "statistic"]).read()
        metadata: dict[bytes | str, bytes | str] = dict(table.schema.metadata or {})
        header = FileHeader.read(metadata, str(path))
        day = StoredDay.from_text(table.schema.metadata[_DAY_FIELD.encode()].decode())
        cells = _cells(table, day.reports, sizes)
        _require_plausible(cells)
    except InputError:
        raise
    except (OSError, pa.ArrowException, ValueError, KeyError, TypeError) as error:
        raise InputError(
            f"{path} is no whole file of a counts store ({type(error).__name__}: {error}). Take its folder away and "
            "count the reports of that day again."
        ) from error
    return DayFile(header=header, day=day, cells=cells)


def _cells(table: pa.Table, n: int, sizes: Mapping[str, int]) -> Mapping[str, npt.NDArray[np.int64]]:
    """Return the counts by statistic, by position: the rows are checked to stand where `write_day` puts them."""
    names = sorted(sizes)
    if not _is_laid_out(table, [(name, sizes[name]) for name in names]):
        raise ValueError("its rows are not the counters of this collection in their order")
    counts = table["count"].combine_chunks().to_numpy()
    if int(counts[0]) != n:
        raise ValueError(f"its header says {n} reports, its rows {counts[0]}")
    return dict(zip(names, _parts(counts[1:], [sizes[name] for name in names]), strict=True))


def _parts(counts: npt.NDArray[np.int64], sizes: Sequence[int]) -> list[npt.NDArray[np.int64]]:
    return np.split(counts, np.cumsum(sizes)[:-1])


def _is_laid_out(table: pa.Table, sizes: Sequence[tuple[str, int]]) -> bool:
    """Whether the rows are n, then the cells of each statistic in order, and nothing else."""
    rows = [size for _, size in sizes]
    if table.schema.names != [field.name for field in COUNTS_COLUMNS] or table.num_rows != 1 + sum(rows):
        return False
    cell, round_ = table["cell"], table["round"]
    if cell.null_count != 1 or cell[0].is_valid or round_.null_count or table["count"].null_count:
        return False
    expected = np.concatenate([np.arange(size, dtype=np.int64) for size in rows])
    same_cells = np.array_equal(cell[1:].combine_chunks().to_numpy(), expected)
    return bool(
        same_cells
        and not round_.combine_chunks().to_numpy().any()
        and _all_equal(table["group"], [(MAIN_GROUP, table.num_rows)])
        and _all_equal(table["statistic"], [("n", 1), *sizes])
    )


def _all_equal(column: Any, runs: Sequence[tuple[str, int]]) -> bool:
    """Whether a dictionary column holds these texts in runs of these lengths."""
    array = column.combine_chunks() if isinstance(column, pa.ChunkedArray) else column
    array = array.chunk(0) if isinstance(array, pa.ChunkedArray) else array
    if not pa.types.is_dictionary(array.type) or array.null_count:
        return False
    places = {text: place for place, text in enumerate(array.dictionary.to_pylist())}
    if not all(text in places for text, _ in runs):
        return False
    expected = np.repeat([places[text] for text, _ in runs], [length for _, length in runs])
    return bool(np.array_equal(array.indices.to_numpy(), expected))


def _require_plausible(cells: Mapping[str, npt.NDArray[np.int64]]) -> None:
    """Refuse negative counts, and counts whose sums might not fit into 64 bits."""
    for name, counts in cells.items():
        if len(counts) and (counts.min() < 0 or counts.max() > _LARGEST_COUNT):
            raise ValueError(f"a count of {name!r} is negative or above {_LARGEST_COUNT:,}")
