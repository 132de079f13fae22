"""Additive counts as long rows: (round, group, cell, statistic, count).

A *group* is the set of users who answer the same question. The number of reports, statistic "n", stands
once a group with a null cell. The counts of two disjoint sets of reports add up to the counts of their
union, row by row; counts of different fingerprints must never be added.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from .reports import FileHeader

__all__ = ["COUNTS_COLUMNS", "MAIN_GROUP", "counts_from_table", "counts_schema", "counts_table"]

#: The group of the main question.
MAIN_GROUP = "main"

COUNTS_COLUMNS = [
    pa.field("round", pa.int32(), nullable=False),
    pa.field("group", pa.string(), nullable=False),
    pa.field("cell", pa.int64()),
    pa.field("statistic", pa.string(), nullable=False),
    pa.field("count", pa.int64(), nullable=False),
]


def counts_schema(header: FileHeader | None = None) -> pa.Schema:
    """Arrow schema of counts files."""
    return pa.schema(COUNTS_COLUMNS, metadata=None if header is None else dict(header.metadata()))


def counts_table(
    round_: int, group: str, n: int, cells: Mapping[str, npt.NDArray[np.int64]], schema: pa.Schema
) -> pa.Table:
    """Lay the counts of one group out as long rows.

    Args:
        round_: number of the round, 0 for mechanisms of a single round.
        group: name of the group.
        n: reports that were counted.
        cells: int64 arrays over cells, by statistic.
        schema: result of `counts_schema`.
    """
    rows = [_rows(round_, group, "n", None, np.array([n], dtype=np.int64))]
    for statistic in sorted(cells):
        values = cells[statistic]
        rows.append(_rows(round_, group, statistic, np.arange(len(values), dtype=np.int64), values))
    return pa.concat_tables(rows).cast(schema)


def _rows(
    round_: int, group: str, statistic: str, cell: npt.NDArray[np.int64] | None, count: npt.NDArray[np.int64]
) -> pa.Table:
    size = len(count)
    columns: list[Any] = [
        pa.array(np.full(size, round_, dtype=np.int32)),
        pa.repeat(pa.scalar(group), size),
        pa.nulls(size, pa.int64()) if cell is None else pa.array(cell),
        pa.repeat(pa.scalar(statistic), size),
        pa.array(count),
    ]
    return pa.Table.from_arrays(columns, schema=pa.schema(COUNTS_COLUMNS))


def counts_from_table(
    table: pa.Table, sizes: Mapping[str, int]
) -> dict[tuple[int, str], tuple[int, dict[str, npt.NDArray[np.int64]]]]:
    """Read long rows back: (round, group) to (n, arrays by statistic), summing what stands twice.

    Args:
        table: rows of a counts file.
        sizes: number of cells of each statistic that the mechanism counts.

    Raises:
        ValueError: A statistic, a cell or a negative count that the mechanism cannot have.
    """
    unknown = set(table["statistic"].unique().to_pylist()) - sizes.keys() - {"n"}
    if unknown:
        raise ValueError(f"statistics {sorted(unknown)} are not counted by this mechanism")
    if table.num_rows and pc.min(table["count"]).as_py() < 0:
        raise ValueError("a count is negative")
    result: dict[tuple[int, str], tuple[int, dict[str, npt.NDArray[np.int64]]]] = {}
    groups = table.group_by(["round", "group"]).aggregate([])
    for entry in groups.to_pylist():
        part = table.filter(pc.and_(pc.equal(table["round"], entry["round"]), pc.equal(table["group"], entry["group"])))
        arrays = {name: _cells(part, name, size) for name, size in sizes.items()}
        n_rows = part.filter(pc.equal(part["statistic"], "n"))
        if n_rows.num_rows == 0:
            raise ValueError(f"group {entry['group']!r} has no row for n")
        result[entry["round"], entry["group"]] = (int(pc.sum(n_rows["count"]).as_py()), arrays)
    return result


def _cells(part: pa.Table, statistic: str, size: int) -> npt.NDArray[np.int64]:
    rows = part.filter(pc.equal(part["statistic"], statistic))
    if rows["cell"].null_count:
        raise ValueError(f"a row of {statistic!r} has no cell")
    cell = rows["cell"].to_numpy()
    if len(cell) and (cell.min() < 0 or cell.max() >= size):
        raise ValueError(f"cells of {statistic!r} must lie in 0 to {size - 1}")
    total = np.zeros(size, dtype=np.int64)
    np.add.at(total, cell, rows["count"].to_numpy())
    return total
