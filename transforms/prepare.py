"""Validation of raw rows on the client side: users digested, keys looked up, values in fixed point.

Whether somebody takes part must not depend on her data: an invalid pair is dropped and counted, and its user
stays. Only a row that names no user is set aside. A key outside the domain is no fault and is only counted;
its text goes nowhere.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from ..errors import InputError
from ..mechanisms import Records, UserDigests
from ..schemas import tally as names
from ..schemas.collection import Definition
from ..schemas.keys import KeyDomain
from ..schemas.records import Columns
from ..schemas.tally import Tally
from .faults import REJECTS_SCHEMA, Faults
from .pair_rows import NO_PAIR, PairRows, merge_rows, merge_within, row_dtype, tags_within
from .pair_rules import JudgedPairs, judge_pairs, tags_of
from .raw_columns import NO_TIME, digest_users, microseconds, null_mask
from .record_files import RawBatch
from .sensitive_table import prepare_table

__all__ = ["REJECTS_SCHEMA", "PairRows", "Preparer"]

U8 = npt.NDArray[np.uint8]
I16 = npt.NDArray[np.int16]
I32 = npt.NDArray[np.int32]
I64 = npt.NDArray[np.int64]
Bool = npt.NDArray[np.bool_]


class Preparer:
    """The rules of one collection for raw rows; picklable, holds no state of a run.

    Args:
        definition: key domain, range of values and the rules for what breaks them.
        digests: the keyed hash of user ids, from the clients' secret.
        columns: names of the columns, for messages.
        strict: refuse the file at the first invalid pair or row without a user.
        keep_rejects: also return the rejected rows, which are raw data.
        sensitive_table: whether tags come from a table of sensitive keys (`prepare_table`) instead of the records.
    """

    def __init__(
        self,
        definition: Definition,
        digests: UserDigests,
        columns: Columns | None = None,
        *,
        strict: bool = False,
        keep_rejects: bool = False,
        sensitive_table: bool = False,
    ) -> None:
        self._keys = definition.keys
        self._range = definition.values
        self._digests = digests
        self._columns = columns or Columns()
        self._strict = strict
        self._keep_rejects = keep_rejects
        self._tags = KeyDomain.of_texts(definition.tags, where="uldp.tags") if definition.tags else None
        self._sensitive_table = sensitive_table

    @property
    def latest(self) -> bool:
        """Whether the time of a row decides between duplicates; then raw batches must have times."""
        return self._range is not None and self._range.duplicates == "latest"

    @property
    def row_dtype(self) -> np.dtype[np.void]:
        """The type of the rows that `PairRows.packed` gives in this collection."""
        return row_dtype(has_values=self._range is not None, with_times=self.latest, has_tags=self._tags is not None)

    def prepare_nested(self, raw: RawBatch) -> tuple[Records, Tally, pa.Table | None]:
        """Validate rows that each hold all pairs of one user.

        Args:
            raw: rows of the nested layout.

        Returns:
            Records with one user for each row that names one, what was counted, and the rejected rows
            (`REJECTS_SCHEMA`) where they were asked for.

        Raises:
            InputError: A column has a wrong type; in strict mode, the first row that breaks a rule.
        """
        rows, (offsets, keys, values, tags), faults, tally, _ = self._validate(raw)
        sizes, before = np.diff(offsets), len(keys)
        if before and int(sizes.max()) > 1:
            group, held = np.repeat(np.arange(rows.n, dtype=np.int64), sizes), keys
            offsets, keys, values = merge_within(group, rows.n, keys, values, None, latest=self.latest)
            tags = None if tags is None else tags_within(group, held, tags, offsets, keys)
        records = Records(users=self._digest(rows), offsets=offsets, keys=keys, values=values, tags=tags)
        return records, tally + _merged(records, before), faults.table()

    def prepare_pairs(self, raw: RawBatch) -> tuple[PairRows, Tally, pa.Table | None]:
        """Validate rows of which several may belong to one user.

        Args:
            raw: rows of the pairs layout, or of the nested layout, whose rows are taken apart.

        Returns:
            At least one row for each row that names a user, `NO_PAIR` where nothing of it is left; what was
            counted (users and kept pairs are counted by `merge_pairs`); rejected rows as above.

        Raises:
            InputError: A column has a wrong type; in strict mode, the first row that breaks a rule.
        """
        rows, pairs, faults, tally, numbers = self._validate(raw)
        times = self._times(rows, numbers, faults)
        unreadable = 0 if times is None else int(np.count_nonzero(times == NO_TIME))
        result = _one_pair_a_row(self._digest(rows), *pairs, times)
        return result, tally + Tally({names.UNREADABLE_TIMES: unreadable}), faults.table()

    def prepare_table(self, raw: RawBatch) -> tuple[PairRows, Tally]:
        """Validate rows of a table of sensitive keys; see `sensitive_table.prepare_table`."""
        if self._tags is None:
            raise InputError("A table of sensitive keys was given, but the collection has no tags.")
        return prepare_table(raw, self._keys, self._tags, self._digests, strict=self._strict)

    def merge_pairs(self, rows: PairRows) -> tuple[Records, Tally]:
        """Bring together all rows of each user; every row of a user must be among `rows`.

        Returns:
            Records in the order of the digests, and users, kept and merged pairs.
        """
        records = merge_rows(rows, latest=self.latest)
        return records, _merged(records, int(np.count_nonzero((rows.keys != NO_PAIR) & ~rows.from_table)))

    def _validate(
        self, raw: RawBatch
    ) -> tuple[RawBatch, tuple[I64, I32, I64 | None, I16 | None], Faults, Tally, I64 | None]:
        """Return rows with a user, their kept pairs, faults, counts, row numbers (None: as in `raw`)."""
        faults = Faults(raw.path, self._columns, strict=self._strict, keep=self._keep_rejects)
        rows, numbers = _with_users(raw, faults)
        counts = {
            names.ROWS_READ: raw.n + len(raw.unreadable),
            names.UNREADABLE_ROWS: len(raw.unreadable),
            names.ROWS_WITHOUT_USER: raw.n - rows.n,
        }
        offsets = np.arange(rows.n + 1, dtype=np.int64) if rows.offsets is None else rows.offsets
        judged = self._judge(rows)
        _note_invalid(judged, rows, offsets, numbers, faults)
        counts |= judged.counts()
        if rows.offsets is not None:
            counts[names.EMPTY_ROWS] = int(np.count_nonzero(offsets[1:] == offsets[:-1]))
        counts[names.REJECTED_ROWS] = faults.rejected_rows
        return rows, judged.kept(offsets), faults, Tally(counts), numbers

    def _judge(self, rows: RawBatch) -> JudgedPairs:
        judged = judge_pairs(rows, self._keys, self._range, self._columns)
        if self._tags is None:
            return judged
        if rows.tags is None and not self._sensitive_table:
            raise InputError(
                f"{rows.path} has no tags, which say what is sensitive to whom; without them nothing would be hidden. "
                "Give a field with tags beside each key, or a table of sensitive keys."
            )
        return replace(judged, tags=tags_of(rows, self._tags, self._columns))

    def _digest(self, rows: RawBatch) -> U8:
        return digest_users(rows.users, self._digests, where=f"{rows.path}: column {self._columns.user!r}")

    def _times(self, rows: RawBatch, numbers: I64 | None, faults: Faults) -> I64 | None:
        if not self.latest:
            return None
        if rows.times is None:
            raise InputError(
                f'{rows.path} has no column {self._columns.time!r}, which duplicates = "latest" needs. '
                "Name yours with --time-column."
            )
        times = microseconds(rows.times)
        unreadable = times == NO_TIME
        if unreadable.any():
            faults.times((rows.row_numbers() if numbers is None else numbers)[unreadable])
        return times


def _with_users(raw: RawBatch, faults: Faults) -> tuple[RawBatch, I64 | None]:
    """Set rows aside that name no user; the other rows, and their numbers unless none was set aside."""
    if raw.unreadable:
        faults.rows(np.array(raw.unreadable, dtype=np.int64), names.UNREADABLE_ROWS)
    missing = null_mask(raw.users)
    if missing is None:
        return raw, None
    numbers = raw.row_numbers()
    faults.rows(numbers[missing], names.ROWS_WITHOUT_USER)
    return _select(raw, ~missing), numbers[~missing]


def _note_invalid(judged: JudgedPairs, rows: RawBatch, offsets: I64, numbers: I64 | None, faults: Faults) -> None:
    where, reasons = judged.invalid()
    if len(where):
        owner = np.searchsorted(offsets, where, side="right") - 1
        faults.pairs(rows, rows.row_numbers() if numbers is None else numbers, owner, where, reasons)


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
        tags=None if raw.tags is None else raw.tags.filter(items),
        offsets=offsets,
        times=None if raw.times is None else raw.times.filter(rows),
        unreadable=(),
    )


def _one_pair_a_row(
    users: U8, offsets: I64, keys: I32, values: I64 | None, tags: I16 | None, times: I64 | None
) -> PairRows:
    """Repeat each user for each of its pairs; a user without any gets one row."""
    sizes = np.diff(offsets)
    if len(keys) == len(users) and (sizes == 1).all():
        return PairRows(digests=users, keys=keys, values=values, times=times, tags=tags)
    repeats = np.maximum(sizes, 1)
    row, held = np.repeat(np.arange(len(sizes)), repeats), np.repeat(sizes > 0, repeats)
    all_keys = np.full(len(row), NO_PAIR, dtype=np.int32)
    all_keys[held] = keys
    all_values = None
    if values is not None:
        all_values = np.zeros(len(row), dtype=np.int64)
        all_values[held] = values
    all_tags = None
    if tags is not None:
        all_tags = np.zeros(len(row), dtype=np.int16)
        all_tags[held] = tags
    return PairRows(
        digests=users[row],
        keys=all_keys,
        values=all_values,
        times=None if times is None else times[row],
        tags=all_tags,
    )


def _merged(records: Records, before: int) -> Tally:
    kept = len(records.keys)
    return Tally({names.USERS: records.n, names.KEPT_PAIRS: kept, names.DUPLICATE_PAIRS: before - kept})
