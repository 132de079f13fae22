"""Validated rows of user and key, and how they become canonical records. Client side only."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Final

import numpy as np
import numpy.typing as npt

from ..mechanisms import Records, canonical_pairs
from ..mechanisms.records import merge_tags

__all__ = ["NO_PAIR", "TABLE_TAG", "PairRows", "merge_rows", "merge_within", "row_dtype", "tags_within"]

#: Key index of a row that only says that its user takes part.
NO_PAIR = -1
#: A digest as one element.
_DIGEST: Final = np.dtype("V16")
#: What marks a tag as one of a table of sensitive keys; tags themselves are far smaller.
TABLE_TAG = 1 << 14

I16 = npt.NDArray[np.int16]
I32 = npt.NDArray[np.int32]
I64 = npt.NDArray[np.int64]
Bool = npt.NDArray[np.bool_]


def row_dtype(*, has_values: bool, with_times: bool, has_tags: bool = False) -> np.dtype[np.void]:
    """Return the type of a packed row: digest, key index, value, time, tag."""
    fields: list[tuple[str, str] | tuple[str, str, tuple[int]]] = [("digest", "u1", (16,)), ("key", "<i4")]
    if has_values:
        fields.append(("value", "<i8"))
    if with_times:
        fields.append(("time", "<i8"))
    if has_tags:
        fields.append(("tag", "<i2"))
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
        tags: tags of `Records`, int16 (n,), None where the collection has none. A row of a table of sensitive keys,
            which says nothing of what the user holds, has `TABLE_TAG` added.
    """

    digests: npt.NDArray[np.uint8]
    keys: I32
    values: I64 | None = None
    times: I64 | None = None
    tags: I16 | None = None

    @property
    def n(self) -> int:
        """Number of rows."""
        return len(self.keys)

    def packed(self) -> npt.NDArray[np.void]:
        """Return the rows as one structured array of `row_dtype`, for files."""
        kind = row_dtype(
            has_values=self.values is not None, with_times=self.times is not None, has_tags=self.tags is not None
        )
        rows = np.empty(self.n, dtype=kind)
        rows["digest"] = self.digests
        rows["key"] = self.keys
        if self.values is not None:
            rows["value"] = self.values
        if self.times is not None:
            rows["time"] = self.times
        if self.tags is not None:
            rows["tag"] = self.tags
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
            tags=rows["tag"].astype(np.int16) if "tag" in names else None,
        )

    @property
    def from_table(self) -> Bool:
        """Which rows come from a table of sensitive keys, bool (n,)."""
        if self.tags is None:
            return np.zeros(self.n, dtype=np.bool_)
        return self.tags >= TABLE_TAG - 1

    def select(self, keep: Bool) -> PairRows:
        """Return the rows where `keep`, bool (n,), is true."""
        return PairRows(
            digests=take_digests(self.digests, np.flatnonzero(keep)),
            keys=self.keys[keep],
            values=None if self.values is None else self.values[keep],
            times=None if self.times is None else self.times[keep],
            tags=None if self.tags is None else self.tags[keep],
        )


def merge_rows(rows: PairRows, *, latest: bool) -> Records:
    """Bring the rows of each user together.

    Args:
        rows: in any order; the order does not change the result.
        latest: of several pairs of a user and key keep the one with the greatest time, ties broken by the
            greatest value; otherwise average their values, halves to even.

    Returns:
        Records in the order of the digests; a user whose rows hold no pair has an empty record, and a user who only
        stands in a table of sensitive keys none.
    """
    table = rows.from_table
    if table.any():
        return _with_table(merge_rows(rows.select(~table), latest=latest), rows.select(table))
    order, group, first, users = _group_users(rows.digests)
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
    tags = None
    if rows.tags is not None:
        tags = tags_within(group[held], rows.keys[source], rows.tags[source], offsets, keys)
    return Records(users=users, offsets=offsets, keys=keys, values=values, tags=tags)


def _with_table(records: Records, table: PairRows) -> Records:
    """Tag the pairs of the records that the rows of a table of sensitive keys speak of."""
    assert table.tags is not None  # only rows with tags come from a table
    assert records.tags is not None
    order, group, first, _ = _group_users(np.concatenate([records.users, table.digests]))
    group_of = np.empty(len(order), dtype=np.int64)
    group_of[order] = group
    user_of = np.full(len(first), -1, dtype=np.int64)
    user_of[group_of[: records.n]] = np.arange(records.n)
    owner = user_of[group_of[records.n :]]
    held = owner >= 0
    places, span = _places(records.offsets, records.keys, int(table.keys.max()) + 1)
    of = np.concatenate([places, owner[held] * span + table.keys[held]])
    tags = np.concatenate([records.tags, table.tags[held] - np.int16(TABLE_TAG)])
    return replace(records, tags=merge_tags(places, of, tags))


def _places(offsets: I64, keys: I32, span: int) -> tuple[I64, int]:
    """Return a number for each canonical pair that increases with user and key, and the numbers of one user."""
    span = max(span, int(keys.max()) + 1 if len(keys) else 1)
    return np.repeat(np.arange(len(offsets) - 1), np.diff(offsets)) * span + keys, span


def tags_within(group: I64, keys: I32, tags: I16, offsets: I64, merged: I32) -> I16:
    """Return the tags of merged pairs.

    Args:
        group: number of the group of each pair before it was merged, int64 (r,).
        keys: its key, (r,).
        tags: its tag, (r,).
        offsets: where the groups of the merged pairs begin, (groups + 1,).
        merged: keys of the merged pairs, strictly increasing within a group, (m,).

    Returns:
        int16 (m,).
    """
    places, span = _places(offsets, merged, 1)
    return merge_tags(places, group * span + keys, tags)


def take_digests(digests: npt.NDArray[np.uint8], rows: I64) -> npt.NDArray[np.uint8]:
    """Return some rows of digests, (m, 16). They are moved as wholes: byte by byte takes ten times as long."""
    whole = np.ascontiguousarray(digests).view(_DIGEST).reshape(-1)
    return np.take(whole, rows).view(np.uint8).reshape(-1, _DIGEST.itemsize)


def _group_users(digests: npt.NDArray[np.uint8]) -> tuple[I64, I64, I64, npt.NDArray[np.uint8]]:
    """Sort rows by digest.

    Returns:
        The order of the rows, the number of each sorted row's user, each user's first row, each user's digest.
    """
    order, unseen = _by_first_bits(digests)
    ordered = take_digests(digests, order)
    starts, clash = _starts(ordered, unseen)
    if clash:  # two users share the bits that were sorted: sort by all
        words = np.ascontiguousarray(digests).view("<u8")
        order = np.lexsort((words[:, 1], words[:, 0]))
        ordered = take_digests(digests, order)
        starts, _ = _starts(ordered, unseen)
    first = np.flatnonzero(starts)
    return order, np.cumsum(starts) - 1, first, take_digests(ordered, first)


def _by_first_bits(digests: npt.NDArray[np.uint8]) -> tuple[I64, int]:
    """Return the order of the digests' first words but for their lowest bits, and how many these are.

    The row's number takes the place of the lowest bits: words are sorted six times as fast as an order is found.
    """
    words = np.ascontiguousarray(digests).view("<u8")[:, 0]
    unseen = max(1, (len(words) - 1).bit_length())
    low = np.uint64((1 << unseen) - 1)
    sorted_ = words & ~low
    sorted_ |= np.arange(len(words), dtype=np.uint64)
    sorted_.sort()
    sorted_ &= low
    return sorted_.view(np.int64), unseen


def _starts(ordered: npt.NDArray[np.uint8], unseen: int) -> tuple[Bool, bool]:
    """Return where another digest begins, and whether two neighbours that differ share the sorted bits."""
    words = ordered.view("<u8")
    differing = words[1:] ^ words[:-1]
    starts = np.ones(len(words), dtype=np.bool_)
    starts[1:] = (differing[:, 0] | differing[:, 1]) != 0
    return starts, bool(np.any(starts[1:] & (differing[:, 0] >> np.uint64(unseen) == 0)))


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
