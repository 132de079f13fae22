"""What happens to the faulty rows and pairs of a batch: refuse the file, collect them, or only count them."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from ..errors import InputError
from ..schemas import tally as names
from ..schemas.records import Columns
from .record_files import RawBatch

__all__ = ["REJECTS_SCHEMA", "Faults"]

#: Rejected rows and pairs: raw data, for the client side's eyes only.
REJECTS_SCHEMA = pa.schema(
    [
        pa.field("path", pa.string()),
        pa.field("row", pa.int64()),
        pa.field("reason", pa.string()),
        pa.field("user_id", pa.string()),
        pa.field("key", pa.string()),
        pa.field("value", pa.string()),
    ]
)

#: For each reason which column is at fault, and what is wrong with the row.
_FAULTS = {
    names.UNREADABLE_ROWS: ("", "does not have as many fields as the header"),
    names.ROWS_WITHOUT_USER: ("user", "has no user id"),
    names.UNREADABLE_TIMES: ("time", "has no readable time"),
    names.NULL_KEY: ("key", "has a value but no key"),
    names.NULL_VALUE: ("value", "has no value"),
    names.NOT_A_NUMBER: ("value", "holds a value that is not a finite number"),
    names.OUTSIDE_RANGE: ("value", "holds a value outside the declared range"),
    names.UNKNOWN_TAGS: ("tag", "holds a tag that the collection does not have"),
}

I64 = npt.NDArray[np.int64]


class Faults:
    """Collects the faults of one batch.

    Args:
        path: the file of the batch.
        columns: names of the columns, for messages.
        strict: refuse the file at the first fault.
        keep: collect the raw rows.
    """

    def __init__(self, path: str, columns: Columns, *, strict: bool, keep: bool) -> None:
        self._path, self._columns = path, columns
        self._strict, self._keep = strict, keep
        self._tables: list[pa.Table] = []
        #: Rows that were set aside or hold an invalid pair.
        self.rejected_rows = 0

    def rows(self, numbers: I64, reason: str) -> None:
        """Note whole rows that are set aside.

        Args:
            numbers: their numbers in the file, (r,).
            reason: why, one of `SET_ASIDE_REASONS`.
        """
        if not len(numbers):
            return
        self._refuse(int(numbers[0]), reason)
        self.rejected_rows += len(numbers)
        if self._keep:
            nothing = pa.nulls(len(numbers), pa.string())
            self._collect(numbers, pa.repeat(reason, len(numbers)), nothing, nothing, nothing)

    def times(self, numbers: I64) -> None:
        """Note rows without a readable time; they stay, so only strict mode minds."""
        if len(numbers):
            self._refuse(int(numbers[0]), names.UNREADABLE_TIMES)

    def pairs(self, raw: RawBatch, numbers: I64, rows: I64, pairs: I64, reasons: list[str]) -> None:
        """Note invalid pairs, which are dropped while their rows stay.

        Args:
            raw: the batch.
            numbers: number of each row of the batch in the file, (n,).
            rows: row of each invalid pair within the batch, (r,), non-decreasing.
            pairs: where the invalid pairs stand in `raw.keys` and `raw.values`, (r,).
            reasons: why, r of `INVALID_REASONS`, or `UNKNOWN_TAGS` for a pair that is kept as sensitive.
        """
        if not len(pairs):
            return
        self._refuse(int(numbers[rows[0]]), reasons[0])
        self.rejected_rows += len(np.unique(rows))
        if self._keep:
            self._collect(
                numbers[rows],
                pa.array(reasons, pa.string()),
                _as_text(raw.users, rows),
                _as_text(raw.keys, pairs),
                pa.nulls(len(pairs), pa.string()) if raw.values is None else _as_text(raw.values, pairs),
            )

    def table(self) -> pa.Table | None:
        """Return the collected rows, of `REJECTS_SCHEMA`; None where there are none."""
        return pa.concat_tables(self._tables) if self._tables else None

    def _collect(self, numbers: I64, reasons: pa.Array, users: pa.Array, keys: pa.Array, values: pa.Array) -> None:
        columns = [pa.repeat(self._path, len(numbers)), pa.array(numbers), reasons, users, keys, values]
        self._tables.append(pa.Table.from_arrays(columns, schema=REJECTS_SCHEMA))

    def _refuse(self, number: int, reason: str) -> None:
        if not self._strict:
            return
        column, fault = _FAULTS[reason]
        place = f", column {getattr(self._columns, column)!r}" if column else ""
        # What the row holds is raw data and is not told.
        raise InputError(
            f"{self._path}, row {number}{place}: the row {fault}. Strict mode refuses such input: correct the "
            "row, or run without --strict to have such rows and pairs counted and left out."
        )


def _as_text(column: pa.Array, rows: I64) -> pa.Array:
    some = column.take(pa.array(rows))
    if pa.types.is_dictionary(some.type):
        some = some.dictionary_decode()
    return pc.cast(some, pa.string())
