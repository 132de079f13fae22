"""Files of counts as an input of the server: what kind a file is of, and what counts it holds."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from ..errors import InputError
from ..mechanisms import Counts
from ..schemas.counts import COUNTS_COLUMNS, MAIN_GROUP, counts_from_table
from ..schemas.reports import FileHeader
from ..transforms.collection import Collection
from ..transforms.report_files_checks import copies, open_file

__all__ = ["CountsInputs", "counts_header", "kind_of_file", "read_counts"]

#: No honest count is larger.
_LARGEST_COUNT = 1 << 50


@dataclass(frozen=True)
class CountsInputs:
    """Stored counts, read by the driver: a few integers a key."""

    counts: Counts
    private: bool
    periods: tuple[str, ...]
    memoised: bool = False
    refused: tuple[tuple[str, str], ...] = ()


def kind_of_file(path: str) -> str:
    """Return "counts" or "reports"; what cannot be read is refused with the reports."""
    if not path.endswith(".parquet"):
        return "reports"
    try:
        with open_file(path) as file:
            return FileHeader.read(pq.read_schema(file).metadata, path).kind
    except Exception:  # a stranger's file: what the reader raises is of any type, and it is refused later
        return "reports"


def counts_header(path: str, collection: Collection) -> FileHeader:
    """Return the header of a file of counts.

    Raises:
        InputError: It cannot be read, or was made under another definition or of a round.
    """
    try:
        with open_file(path) as file:
            header = FileHeader.read(pq.read_schema(file).metadata, path)
    except (pa.ArrowException, OSError) as error:
        raise InputError(f"{path} cannot be read as Parquet: {error}. Is the file complete?") from error
    header.require(kind="counts", fingerprint=collection.fingerprint, path=path)
    return header


def read_counts(paths: Sequence[str], collection: Collection) -> CountsInputs:
    """Read files of counts and add them.

    Raises:
        InputError: A file stands twice, was made under another definition, or holds what no count can be.
    """
    for path, first in copies(paths).items():
        raise InputError(f"{path} is a copy of {first}; a report is never counted twice.")
    total, headers = collection.mechanism.zero(), []
    for path in paths:
        table = _rows(path)
        header = FileHeader.read(table.schema.metadata, path)
        header.require(kind="counts", fingerprint=collection.fingerprint, path=path)
        total = total + _counts(table, collection, path)
        headers.append(header)
    return CountsInputs(
        total,
        all(h.private for h in headers),
        tuple(sorted({h.period for h in headers})),
        any(h.memoised for h in headers),
    )


def _rows(path: str) -> pa.Table:
    try:
        with open_file(path) as file:
            return pq.read_table(file)
    except Exception as error:  # what the reader raises for a damaged file is of any type
        raise InputError(f"{path} cannot be read as Parquet: {error}. Is the file complete?") from error


def _counts(table: pa.Table, collection: Collection, path: str) -> Counts:
    total = collection.mechanism.zero()
    sizes = {name: len(cells) for name, cells in total.cells.items()}
    if not table.schema.remove_metadata().equals(pa.schema(COUNTS_COLUMNS)):
        raise InputError(f"{path} has other columns than a counts file: {', '.join(table.schema.names)}.")
    try:
        _require_plausible(table)
        groups = counts_from_table(table, sizes)
        for n, cells in groups.values():
            _require_within(n * getattr(collection.mechanism, "times", 1), cells)  # several answers a report
    except ValueError as error:
        raise InputError(f"{path} holds counts that cannot be: {error}.") from error
    if set(groups) - {(0, MAIN_GROUP)}:
        raise InputError(f"{path} holds the groups {sorted(groups)}; this mechanism has only the main one.")
    for n, cells in groups.values():
        total = total + Counts(n=n, cells=cells)
    return total


def _require_plausible(table: pa.Table) -> None:
    """Refuse counts whose sums might not fit into 64 bits."""
    if table.num_rows and pc.max(table["count"]).as_py() > _LARGEST_COUNT:
        raise ValueError(f"a count is above {_LARGEST_COUNT:,}")


def _require_within(answers: int, cells: Mapping[str, npt.NDArray[np.int64]]) -> None:
    """Refuse counts above the number of answers, of which each adds 1 to a cell at most."""
    if any(len(counts) and int(counts.max()) > answers for counts in cells.values()):
        raise ValueError(f"a count is larger than the number of reports, {answers:,}")
