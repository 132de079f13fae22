"""Validation of raw rows on the client side: users digested, keys looked up, values in fixed point.

Whether somebody takes part must not depend on her data: an invalid pair is dropped and counted, and its user
stays. Only a row that names no user is set aside. A key outside the domain is no fault and is only counted;
its text goes nowhere.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from ..errors import InputError
from ..mechanisms import Records, UserDigests, to_fixed
from ..schemas import tally as names
from ..schemas.collection import Definition
from ..schemas.keys import MISSING, OUTSIDE
from ..schemas.records import Columns
from ..schemas.tally import Tally
from .pair_rows import NO_PAIR, PairRows, merge_rows, merge_within, row_dtype
from .raw_columns import NO_TIME, digest_users, microseconds, null_mask, numbers
from .record_files import RawBatch

__all__ = ["REJECTS_SCHEMA", "PairRows", "Preparer"]

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

F64 = npt.NDArray[np.float64]
I8 = npt.NDArray[np.int8]
I32 = npt.NDArray[np.int32]
I64 = npt.NDArray[np.int64]
Bool = npt.NDArray[np.bool_]

# What becomes of a pair. Codes from 1 on stand in the order of `INVALID_REASONS`.
_KEEP, _NULL_KEY, _NULL_VALUE, _NOT_A_NUMBER, _OUTSIDE_RANGE, _OUTSIDE_DOMAIN, _NO_PAIR = range(7)
_INVALID = range(_NULL_KEY, _OUTSIDE_DOMAIN)

_ADVICE = {
    names.NULL_KEY: "has a value but no key",
    names.NULL_VALUE: "has no value",
    names.NOT_A_NUMBER: "holds a value that is not a finite number",
    names.OUTSIDE_RANGE: "holds a value outside the declared range",
}


@dataclass(frozen=True, eq=False)
class _Pairs:
    """The judged pairs of a batch."""

    keys: I32
    values: I64 | None
    fate: I8 | None  # None: every pair is kept
    clipped: int

    @property
    def kept(self) -> Bool | None:
        return None if self.fate is None else self.fate == _KEEP


class Preparer:
    """The rules of one collection for raw rows; picklable, holds no state of a run.

    Args:
        definition: key domain, range of values and the rules for what breaks them.
        digests: the keyed hash of user ids, from the clients' secret.
        columns: names of the columns, for messages.
        strict: refuse the file at the first invalid pair or row without a user.
        keep_rejects: also return the rejected rows, which are raw data.
    """

    def __init__(
        self,
        definition: Definition,
        digests: UserDigests,
        columns: Columns | None = None,
        *,
        strict: bool = False,
        keep_rejects: bool = False,
    ) -> None:
        self._keys = definition.keys
        self._range = definition.values
        self._digests = digests
        self._columns = columns or Columns()
        self._strict = strict
        self._keep_rejects = keep_rejects

    @property
    def latest(self) -> bool:
        """Whether the time of a row decides between duplicates; then raw batches must have times."""
        return self._range is not None and self._range.duplicates == "latest"

    @property
    def row_dtype(self) -> np.dtype[np.void]:
        """The type of the rows that `PairRows.packed` gives in this collection."""
        return row_dtype(has_values=self._range is not None, with_times=self.latest)

    # -- the two layouts --------------------------------------------------------------------------------

    def prepare_nested(self, raw: RawBatch) -> tuple[Records, Tally, pa.Table | None]:
        """Validate rows that each hold all pairs of one user.

        Args:
            raw: rows of the nested layout.

        Returns:
            Records with one user a row that names one, what was counted, and the rejected rows where they
            were asked for.

        Raises:
            InputError: In strict mode, the first row that breaks a rule.
        """
        rows, numbers_, tally, rejects = self._with_users(raw)
        offsets = _offsets(rows)
        pairs = self._judge(rows)
        tally, rejects = self._account(rows, offsets, numbers_, pairs, tally, rejects)
        kept_offsets, keys, values = _keep(pairs, offsets)
        sizes = np.diff(kept_offsets)
        before = len(keys)
        if before and sizes.max() > 1:
            group = np.repeat(np.arange(rows.n, dtype=np.int64), sizes)
            kept_offsets, keys, values = merge_within(group, rows.n, keys, values, None, latest=self.latest)
        users = self._digest(rows)
        records = Records(users=users, offsets=kept_offsets, keys=keys, values=values)
        return records, tally + self._merged(records, before), _table(rejects)

    def prepare_pairs(self, raw: RawBatch) -> tuple[PairRows, Tally, pa.Table | None]:
        """Validate rows of which several may belong to one user.

        Args:
            raw: rows of the pairs layout, or of the nested layout, whose rows are taken apart.

        Returns:
            At least one row for each row that names a user; `NO_PAIR` where nothing of it is left. Users
            and kept pairs are counted by `merge_pairs`.

        Raises:
            InputError: In strict mode, the first row that breaks a rule.
        """
        rows, numbers_, tally, rejects = self._with_users(raw)
        offsets = _offsets(rows)
        pairs = self._judge(rows)
        tally, rejects = self._account(rows, offsets, numbers_, pairs, tally, rejects)
        times, unreadable = self._times(rows, numbers_)
        users = self._digest(rows)
        kept_offsets, keys, values = _keep(pairs, offsets)
        result = _one_pair_a_row(users, kept_offsets, keys, values, times)
        return result, tally + Tally({names.UNREADABLE_TIMES: unreadable}), _table(rejects)

    def merge_pairs(self, rows: PairRows) -> tuple[Records, Tally]:
        """Bring together all rows of each user; every row of a user must be among `rows`.

        Returns:
            Records in the order of the digests, and users, kept and merged pairs.
        """
        records = merge_rows(rows, latest=self.latest)
        return records, self._merged(records, int(np.count_nonzero(rows.keys != NO_PAIR)))

    def _merged(self, records: Records, before: int) -> Tally:
        kept = len(records.keys)
        return Tally({names.USERS: records.n, names.KEPT_PAIRS: kept, names.DUPLICATE_PAIRS: before - kept})

    # -- users and times --------------------------------------------------------------------------------

    def _with_users(self, raw: RawBatch) -> tuple[RawBatch, I64 | None, Tally, list[pa.Table]]:
        """Set rows without a user aside: the others, their numbers (None: as in `raw`), counts, rejects."""
        unreadable = len(raw.unreadable)
        if unreadable and self._strict:
            self._refuse(raw.path, raw.unreadable[0], None, "does not have as many fields as the header")
        missing = null_mask(raw.users) if _may_have_nulls(raw.users) else None
        without = 0 if missing is None else int(np.count_nonzero(missing))
        counts = {
            names.ROWS_READ: raw.n + unreadable,
            names.UNREADABLE_ROWS: unreadable,
            names.ROWS_WITHOUT_USER: without,
            names.REJECTED_ROWS: unreadable + without,
        }
        rejects = self._rejected_rows(
            raw.path, np.array(raw.unreadable, dtype=np.int64), names.UNREADABLE_ROWS
        )
        if missing is None or not without:
            return raw, None, Tally(counts), rejects
        all_numbers = raw.row_numbers()
        if self._strict:
            first = int(all_numbers[np.argmax(missing)])
            self._refuse(raw.path, first, self._columns.user, "has no user id")
        rejects += self._rejected_rows(raw.path, all_numbers[missing], names.ROWS_WITHOUT_USER)
        return _select(raw, ~missing), all_numbers[~missing], Tally(counts), rejects

    def _digest(self, rows: RawBatch) -> npt.NDArray[np.uint8]:
        return digest_users(rows.users, self._digests, where=self._where(rows.path, self._columns.user))

    def _times(self, rows: RawBatch, row_numbers: I64 | None) -> tuple[I64 | None, int]:
        if not self.latest:
            return None, 0
        if rows.times is None:
            raise InputError(
                f'{rows.path} has no column {self._columns.time!r}, which duplicates = "latest" needs. '
                "Name yours with --time-column."
            )
        times = microseconds(rows.times)
        bad = times == NO_TIME
        unreadable = int(np.count_nonzero(bad))
        if unreadable and self._strict:
            at = rows.row_numbers() if row_numbers is None else row_numbers
            self._refuse(rows.path, int(at[np.argmax(bad)]), self._columns.time, "has no readable time")
        return times, unreadable

    # -- pairs ------------------------------------------------------------------------------------------

    def _judge(self, rows: RawBatch) -> _Pairs:
        keys = self._keys.index(rows.keys, where=self._where(rows.path, self._columns.key))
        ends = self._range
        if ends is None:
            fate = None if _all_inside(keys) else _fate_of_keys(keys)
            if fate is not None and rows.offsets is None:
                fate[keys == MISSING] = _NO_PAIR
            return _Pairs(keys, None, fate, 0)
        assert rows.values is not None
        low, high = ends.bounds
        values = numbers(rows.values, where=self._where(rows.path, self._columns.value))
        inside = (values >= low) & (values <= high)
        if _all_inside(keys) and inside.all():
            return _Pairs(keys, to_fixed(values, low, high), None, 0)
        fate = self._fate(rows, keys, values, inside)
        kept = fate == _KEEP
        clipped = int(np.count_nonzero(kept & ~inside))
        fixed = to_fixed(np.clip(np.where(kept, values, low), low, high), low, high)
        return _Pairs(keys, fixed, fate, clipped)

    def _fate(self, rows: RawBatch, keys: I32, values: F64, inside: Bool) -> I8:
        """Judge pairs with values: the last rule that applies decides."""
        assert self._range is not None
        assert rows.values is not None
        fate = np.zeros(len(keys), dtype=np.int8)
        if self._range.outside == "drop":
            fate[~inside] = _OUTSIDE_RANGE
        fate[~np.isfinite(values)] = _NOT_A_NUMBER
        null = null_mask(rows.values)
        fate[null] = _NULL_VALUE
        of_keys = _fate_of_keys(keys)
        fate = np.where(of_keys == _KEEP, fate, of_keys)
        if rows.offsets is None:
            fate[null & (keys == MISSING)] = _NO_PAIR
        return fate

    def _account(
        self,
        rows: RawBatch,
        offsets: I64,
        row_numbers: I64 | None,
        pairs: _Pairs,
        tally: Tally,
        rejects: list[pa.Table],
    ) -> tuple[Tally, list[pa.Table]]:
        """Count what became of the pairs; refuse the file in strict mode; collect rejects."""
        empty = int(np.count_nonzero(offsets[1:] == offsets[:-1]))
        counts = {names.PAIRS_READ: len(pairs.keys), names.CLIPPED_VALUES: pairs.clipped}
        if pairs.fate is not None:
            by_fate = np.bincount(pairs.fate, minlength=_NO_PAIR + 1).tolist()
            counts[names.PAIRS_READ] -= by_fate[_NO_PAIR]
            counts[names.OUTSIDE_DOMAIN] = by_fate[_OUTSIDE_DOMAIN]
            counts |= dict(zip(names.INVALID_REASONS, by_fate[_NULL_KEY:_OUTSIDE_DOMAIN], strict=True))
            empty += by_fate[_NO_PAIR]
            bad = np.flatnonzero((pairs.fate >= _NULL_KEY) & (pairs.fate < _OUTSIDE_DOMAIN))
            if len(bad):
                row = np.searchsorted(offsets, bad, side="right") - 1
                counts[names.REJECTED_ROWS] = len(np.unique(row))
                at = (rows.row_numbers() if row_numbers is None else row_numbers)[row]
                reasons = pairs.fate[bad]
                self._refuse_pair(rows.path, int(at[0]), int(reasons[0]))
                rejects = rejects + self._rejected_pairs(rows, bad, row, at, reasons)
        counts[names.EMPTY_ROWS] = empty
        return tally + Tally(counts), rejects

    # -- messages and rejects ---------------------------------------------------------------------------

    @staticmethod
    def _where(path: str, column: str) -> str:
        return f"{path}: column {column!r}"

    def _refuse_pair(self, path: str, row: int, fate: int) -> None:
        if self._strict:
            reason = names.INVALID_REASONS[fate - _NULL_KEY]
            column = self._columns.key if fate == _NULL_KEY else self._columns.value
            self._refuse(path, row, column, _ADVICE[reason])

    @staticmethod
    def _refuse(path: str, row: int, column: str | None, fault: str) -> None:
        place = f"{path}, row {row}" + ("" if column is None else f", column {column!r}")
        raise InputError(
            f"{place}: the row {fault}. Strict mode refuses such input: correct the row, or run without "
            "--strict to have it counted and left out while its user still takes part."
        )

    def _rejected_rows(self, path: str, rows: I64, reason: str) -> list[pa.Table]:
        if not self._keep_rejects or not len(rows):
            return []
        n = len(rows)
        columns = [pa.repeat(path, n), pa.array(rows), pa.repeat(reason, n)]
        columns += [pa.nulls(n, pa.string())] * 3
        return [pa.Table.from_arrays(columns, schema=REJECTS_SCHEMA)]

    def _rejected_pairs(self, rows: RawBatch, bad: I64, row: I64, at: I64, fate: I8) -> list[pa.Table]:
        if not self._keep_rejects:
            return []
        reasons = pa.array(names.INVALID_REASONS).take(pa.array(fate.astype(np.int64) - _NULL_KEY))
        columns = [
            pa.repeat(rows.path, len(bad)),
            pa.array(at),
            reasons,
            _as_text(rows.users, row),
            _as_text(rows.keys, bad),
            pa.nulls(len(bad), pa.string()) if rows.values is None else _as_text(rows.values, bad),
        ]
        return [pa.Table.from_arrays(columns, schema=REJECTS_SCHEMA)]


def _may_have_nulls(column: pa.Array) -> bool:
    if pa.types.is_dictionary(column.type) and column.dictionary.null_count:
        return True
    return bool(column.null_count)


def _offsets(rows: RawBatch) -> I64:
    return np.arange(rows.n + 1, dtype=np.int64) if rows.offsets is None else rows.offsets


def _select(raw: RawBatch, keep: Bool) -> RawBatch:
    """Return the rows where `keep` is true; their numbers are lost."""
    rows = pa.array(keep)
    pairs, offsets = keep, None
    if raw.offsets is not None:
        sizes = np.diff(raw.offsets)
        pairs = np.repeat(keep, sizes)
        offsets = np.concatenate([[0], np.cumsum(sizes[keep])]).astype(np.int64)
    items = pa.array(pairs)
    return replace(
        raw,
        users=raw.users.filter(rows),
        keys=raw.keys.filter(items),
        values=None if raw.values is None else raw.values.filter(items),
        offsets=offsets,
        times=None if raw.times is None else raw.times.filter(rows),
        unreadable=(),
    )


def _all_inside(keys: I32) -> bool:
    return not len(keys) or bool(keys.min() >= 0)


def _fate_of_keys(keys: I32) -> I8:
    fate = np.zeros(len(keys), dtype=np.int8)
    fate[keys == OUTSIDE] = _OUTSIDE_DOMAIN
    fate[keys == MISSING] = _NULL_KEY
    return fate


def _keep(pairs: _Pairs, offsets: I64) -> tuple[I64, I32, I64 | None]:
    """Leave only the kept pairs, with their offsets."""
    kept = pairs.kept
    if kept is None:
        return offsets, pairs.keys, pairs.values
    before = np.concatenate([[0], np.cumsum(kept)]).astype(np.int64)
    values = None if pairs.values is None else pairs.values[kept]
    return before[offsets], pairs.keys[kept], values


def _one_pair_a_row(
    users: npt.NDArray[np.uint8], offsets: I64, keys: I32, values: I64 | None, times: I64 | None
) -> PairRows:
    """Repeat each user for each of its pairs; a user without any gets one row."""
    sizes = np.diff(offsets)
    row = np.repeat(np.arange(len(sizes)), np.maximum(sizes, 1))
    held = np.repeat(sizes > 0, np.maximum(sizes, 1))
    all_keys = np.full(len(row), NO_PAIR, dtype=np.int32)
    all_keys[held] = keys
    all_values = None
    if values is not None:
        all_values = np.zeros(len(row), dtype=np.int64)
        all_values[held] = values
    return PairRows(
        digests=users[row], keys=all_keys, values=all_values, times=None if times is None else times[row]
    )


def _as_text(column: pa.Array, rows: I64) -> pa.Array:
    some = column.take(pa.array(rows))
    if pa.types.is_dictionary(some.type):
        some = some.dictionary_decode()
    return pc.cast(some, pa.string())


def _table(rejects: list[pa.Table]) -> pa.Table | None:
    return pa.concat_tables(rejects) if rejects else None
