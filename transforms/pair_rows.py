"""Validated rows of user and key, and how they become canonical records. Client side only."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from ..mechanisms import Records, canonical_pairs

__all__ = ["NO_PAIR", "PairRows", "merge_rows", "merge_within", "row_dtype"]

#: Key index of a row that only says that its user takes part.
NO_PAIR = -1

I32 = npt.NDArray[np.int32]
I64 = npt.NDArray[np.int64]
Bool = npt.NDArray[np.bool_]


def row_dtype(*, has_values: bool, with_times: bool) -> np.dtype[np.void]:
    """Return the type of a packed row: digest, key index, value, time."""
    fields: list[tuple[str, str] | tuple[str, str, tuple[int]]] = [("digest", "u1", (16,)), ("key", "<i4")]
    if has_values:
        fields.append(("value", "<i8"))
    if with_times:
        fields.append(("time", "<i8"))
    return np.dtype(fields)


# No repr: what it holds is raw data and must not reach a log.
@dataclass(frozen=True, kw_only=True, eq=False, repr=False)
class PairRows:
    """n rows, each a user and at most one pair.

    Attributes:
        digests: user digests, uint8 (n, 16).
        keys: key indices, int32 (n,); `NO_PAIR` where the row holds none.
        values: fixed-point values, int64 (n,); None where the collection has none.
        times: microseconds, int64 (n,); None where they do not matter.
    """

    digests: npt.NDArray[np.uint8]
    keys: I32
    values: I64 | None = None
    times: I64 | None = None

    @property
    def n(self) -> int:
        """Number of rows."""
        return len(self.keys)

    def packed(self) -> npt.NDArray[np.void]:
        """Return the rows as one structured array of `row_dtype`, for files."""
        rows = np.empty(self.n, dtype=row_dtype(has_values=self.values is not None, with_times=self.times is not None))
        rows["digest"] = self.digests
        rows["key"] = self.keys
        if self.values is not None:
            rows["value"] = self.values
        if self.times is not None:
            rows["time"] = self.times
        return rows

    @classmethod
    def unpacked(cls, rows: npt.NDArray[np.void]) -> PairRows:
        """Return the rows of a structured array that `packed` made."""
        names = rows.dtype.names or ()
        return cls(
            digests=np.ascontiguousarray(rows["digest"]),
            keys=rows["key"].astype(np.int32),
            values=rows["value"].astype(np.int64) if "value" in names else None,
            times=rows["time"].astype(np.int64) if "time" in names else None,
        )


def merge_rows(rows: PairRows, *, latest: bool) -> Records:
    """Bring the rows of each user together.

    Args:
        rows: in any order; the order does not change the result.
        latest: of several pairs of a user and key keep the one with the greatest time, ties broken by the
            greatest value; otherwise average their values, halves to even.

    Returns:
        Records in the order of the digests; a user whose rows hold no pair has an empty record.
    """
    order, group, first = _group_users(rows.digests)
    keys = rows.keys[order]
    held = keys != NO_PAIR
    source = order[held]
    offsets, keys, values = merge_within(
        group[held],
        len(first),
        keys[held],
        None if rows.values is None else rows.values[source],
        None if rows.times is None else rows.times[source],
        latest=latest,
    )
    return Records(users=rows.digests[order[first]], offsets=offsets, keys=keys, values=values)


def _group_users(digests: npt.NDArray[np.uint8]) -> tuple[I64, I64, I64]:
    """Sort rows by digest: their order, the number of each sorted row's user, each user's first row."""
    words = np.ascontiguousarray(digests).view("<u8")
    high, low = words[:, 0], words[:, 1]
    order: I64 = np.argsort(high)
    other = np.diff(high[order]) != 0
    differs = np.diff(low[order]) != 0
    if np.any(differs & ~other):  # two users share 64 bits, or a user's rows do not: sort by all bits
        order = np.lexsort((low, high))
        other, differs = np.diff(high[order]) != 0, np.diff(low[order]) != 0
    starts = np.ones(len(order), dtype=np.bool_)
    starts[1:] = other | differs
    return order, np.cumsum(starts) - 1, np.flatnonzero(starts)


def merge_within(
    group: I64,
    groups: int,
    keys: I32,
    values: I64 | None,
    times: I64 | None,
    *,
    latest: bool,
) -> tuple[I64, I32, I64 | None]:
    """Sort the pairs of each group by key and merge those with the same key.

    Args:
        group: number of each pair's group, non-decreasing, int64 (m,).
        groups: number of groups, empty ones included.
        keys: key indices, (m,), none negative.
        values: fixed-point values, (m,), or None.
        times: times, (m,), or None where all are alike.
        latest: see `merge_rows`.

    Returns:
        offsets (groups + 1,), keys and values, as in `Records`.
    """
    if latest and values is not None:
        last = _latest(group, keys, values, times)
        group, keys, values = group[last], keys[last], values[last]
    return canonical_pairs(group, keys, values, groups)


def _latest(group: I64, keys: I32, values: I64, times: I64 | None) -> I64:
    """Return where the last pair of each group and key lies, sorted by group and key."""
    order = np.lexsort((values, keys, group) if times is None else (values, times, keys, group))
    ends = np.ones(len(order), dtype=np.bool_)
    ends[:-1] = (np.diff(group[order]) != 0) | (np.diff(keys[order]) != 0)
    last: I64 = order[ends]
    return last
