"""The rules for a single pair: which are kept, and for which reason the others are dropped."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from ..mechanisms import to_fixed
from ..schemas import tally as names
from ..schemas.keys import MISSING, OUTSIDE, KeyDomain
from ..schemas.records import Columns
from ..schemas.values import ValueRange
from .raw_columns import null_mask, numbers
from .record_files import RawBatch

__all__ = ["UNKNOWN_TAG", "JudgedPairs", "judge_pairs", "tags_of"]

#: The tag of a key that is sensitive for a reason that the collection does not name.
UNKNOWN_TAG = -1

F64 = npt.NDArray[np.float64]
I8 = npt.NDArray[np.int8]
I16 = npt.NDArray[np.int16]
I32 = npt.NDArray[np.int32]
I64 = npt.NDArray[np.int64]
Bool = npt.NDArray[np.bool_]

#: Reasons by code; 0 means that the pair is kept, the last one that the row declares no pair at all.
_REASONS = ("", *names.INVALID_REASONS, names.OUTSIDE_DOMAIN, names.EMPTY_ROWS)
_CODE = {reason: code for code, reason in enumerate(_REASONS)}


@dataclass(frozen=True, eq=False)
class JudgedPairs:
    """The m pairs of a batch and what becomes of them.

    Attributes:
        keys: key indices where a pair is kept, int32 (m,).
        values: fixed-point values where a pair is kept, int64 (m,), or None.
        codes: why a pair is dropped, int8 (m,); None where every pair is kept.
        tags: tags as `Records` has them, int16 (m,); None where the collection has none.
        clipped: number of kept pairs whose value was moved into the range.
    """

    keys: I32
    values: I64 | None
    codes: I8 | None
    clipped: int = 0
    tags: I16 | None = None

    def counts(self) -> dict[str, int]:
        """Return how many pairs were read and dropped by reason, and how many rows declare no pair."""
        counts = {names.PAIRS_READ: len(self.keys), names.CLIPPED_VALUES: self.clipped}
        if self.codes is not None:
            found = np.bincount(self.codes, minlength=len(_REASONS)).tolist()
            counts |= dict(zip(_REASONS[1:], found[1:], strict=True))
            counts[names.PAIRS_READ] -= counts[names.EMPTY_ROWS]
        if self.tags is not None:
            counts[names.UNKNOWN_TAGS] = int(np.count_nonzero(self._unknown()))
        return counts

    def _unknown(self) -> Bool:
        """Where a pair is kept with a tag that the collection does not have."""
        if self.tags is None:
            return np.zeros(len(self.keys), dtype=np.bool_)
        return (self.tags < 0) if self.codes is None else (self.tags < 0) & (self.codes == 0)

    def invalid(self) -> tuple[I64, list[str]]:
        """Return where the pairs with a fault stand, and what it is; one with an unknown tag is kept all the same."""
        unknown = self._unknown()
        if self.codes is None and not unknown.any():
            return np.empty(0, dtype=np.int64), []
        codes = np.zeros(len(self.keys), dtype=np.int8) if self.codes is None else self.codes
        where = np.flatnonzero((codes > 0) & (codes <= len(names.INVALID_REASONS)) | unknown)
        return where, [_REASONS[code] or names.UNKNOWN_TAGS for code in codes[where].tolist()]

    def kept(self, offsets: I64) -> tuple[I64, I32, I64 | None, I16 | None]:
        """Return the kept pairs alone, with the offsets that `offsets` become."""
        if self.codes is None:
            return offsets, self.keys, self.values, self.tags
        kept = self.codes == 0
        before = np.zeros(len(kept) + 1, dtype=np.int64)
        np.cumsum(kept, out=before[1:])
        values = None if self.values is None else self.values[kept]
        return before[offsets], self.keys[kept], values, None if self.tags is None else self.tags[kept]


def judge_pairs(raw: RawBatch, domain: KeyDomain, span: ValueRange | None, columns: Columns) -> JudgedPairs:
    """Look up the keys of a batch, read its values, and judge each pair.

    A key outside the domain comes before all faults, so that its pair is never shown as a rejected one.

    Args:
        raw: rows in either layout.
        domain: the key domain.
        span: the range of values and its rules; None where the collection has no values.
        columns: names of the columns, for messages.

    Raises:
        InputError: A column is of a type that it cannot have.
    """
    keys = domain.index(raw.keys, where=f"{raw.path}: column {columns.key!r}")
    known = not len(keys) or bool(keys.min() >= 0)
    if span is None:
        return JudgedPairs(keys, None, None if known else _with_key_codes(_zeros(keys), keys, _declares_none(raw)))
    low, high = span.bounds
    values = numbers(raw.values, where=f"{raw.path}: column {columns.value!r}")
    inside = (values >= low) & (values <= high)
    if known and inside.all():
        return JudgedPairs(keys, to_fixed(values, low, high), None)
    codes = _with_key_codes(_value_codes(raw, values, inside, span), keys, _declares_none(raw))
    kept = codes == 0
    fixed = to_fixed(np.clip(np.where(kept, values, low), low, high), low, high)
    return JudgedPairs(keys, fixed, codes, int(np.count_nonzero(kept & ~inside)))


def tags_of(raw: RawBatch, tags: KeyDomain, columns: Columns) -> I16:
    """Return the tag of each key as `Records` has it: 0 for none, 1 for the first, -1 for one that is unknown.

    Args:
        raw: rows in either layout.
        tags: names of the tags.
        columns: names of the columns, for messages.

    Raises:
        InputError: The column is of a type that it cannot have.
    """
    if raw.tags is None:
        return np.zeros(len(raw.keys), dtype=np.int16)
    found = tags.index(raw.tags, where=f"{raw.path}: column {columns.tag!r}")
    known = found + 1
    known[found == MISSING] = 0
    known[found == OUTSIDE] = UNKNOWN_TAG
    return known.astype(np.int16)


def _zeros(keys: I32) -> I8:
    return np.zeros(len(keys), dtype=np.int8)


def _value_codes(raw: RawBatch, values: F64, inside: Bool, span: ValueRange) -> I8:
    codes = np.zeros(len(values), dtype=np.int8)
    if span.outside == "drop":
        codes[~inside] = _CODE[names.OUTSIDE_RANGE]
    codes[~np.isfinite(values)] = _CODE[names.NOT_A_NUMBER]
    null = null_mask(raw.values)
    if null is not None:
        codes[null] = _CODE[names.NULL_VALUE]
    return codes


def _with_key_codes(codes: I8, keys: I32, declares_none: Bool | bool) -> I8:
    """Let what is wrong with a key override what is wrong with its value."""
    codes[keys == OUTSIDE] = _CODE[names.OUTSIDE_DOMAIN]
    missing = keys == MISSING
    codes[missing] = _CODE[names.NULL_KEY]
    codes[missing & declares_none] = _CODE[names.EMPTY_ROWS]
    return codes


def _declares_none(raw: RawBatch) -> Bool | bool:
    """Where a row without a key declares that its user holds nothing: only in the pairs layout."""
    if raw.offsets is not None:
        return False
    if raw.values is None:
        return True
    null = null_mask(raw.values)
    return False if null is None else null
