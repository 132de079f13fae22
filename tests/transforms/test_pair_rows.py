"""Merging rows of users: order never matters, digests are compared whole, sums do not overflow."""

from __future__ import annotations

from collections import defaultdict

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from ldp_beam.mechanisms import VALUE_ONE
from ldp_beam.transforms.pair_rows import NO_PAIR, PairRows, merge_rows, row_dtype


def rows(data: list[tuple[int, int, int, int]]) -> PairRows:
    """Rows of (user, key, value, time); users differ in any of their 128 bits."""
    digests = np.zeros((len(data), 2), dtype="<u8")
    for i, (user, *_) in enumerate(data):
        digests[i] = (user % 2, user // 2)
    return PairRows(
        digests=digests.view(np.uint8).reshape(-1, 16),
        keys=np.array([key for _, key, _, _ in data], np.int32),
        values=np.array([value for _, _, value, _ in data], np.int64),
        times=np.array([time for *_, time in data], np.int64),
    )


DATA = st.lists(
    st.tuples(st.integers(0, 5), st.integers(-1, 3), st.integers(-VALUE_ONE, VALUE_ONE), st.integers(-3, 3)),
    max_size=25,
)


@given(DATA)
def test_latest_takes_the_greatest_time_then_the_greatest_value(
    data: list[tuple[int, int, int, int]],
) -> None:
    best: dict[int, dict[int, tuple[int, int]]] = defaultdict(dict)
    for user, key, value, time in data:
        mine = best[user]
        if key != NO_PAIR:
            mine[key] = max(mine.get(key, (time, value)), (time, value))
    records = merge_rows(rows(data), latest=True)
    assert records.values is not None
    users = [int(low) + 2 * int(high) for low, high in records.users.view("<u8").reshape(-1, 2).tolist()]
    assert sorted(users) == sorted(best)
    for i, user in enumerate(users):
        one = slice(records.offsets[i], records.offsets[i + 1])
        expected = sorted((key, value) for key, (_, value) in best[user].items())
        assert list(zip(records.keys[one].tolist(), records.values[one].tolist(), strict=True)) == expected


@given(DATA, st.booleans())
def test_packing_keeps_everything(data: list[tuple[int, int, int, int]], with_values: bool) -> None:
    whole = rows(data)
    some = whole if with_values else PairRows(digests=whole.digests, keys=whole.keys)
    packed = some.packed()
    assert packed.dtype == row_dtype(has_values=with_values, with_times=with_values)
    again = PairRows.unpacked(np.frombuffer(packed.tobytes(), packed.dtype))
    for name in ("digests", "keys", "values", "times"):
        left, right = getattr(some, name), getattr(again, name)
        assert (left is None and right is None) or np.array_equal(left, right)


def test_rows_have_28_bytes_with_values() -> None:
    assert row_dtype(has_values=True, with_times=False).itemsize == 28


@pytest.mark.parametrize("value", [VALUE_ONE, -VALUE_ONE, VALUE_ONE - 1])
def test_very_many_duplicates_do_not_overflow(value: int) -> None:
    n = 1 << 23  # 2^23 values of 2^40 exceed 63 bits
    many = PairRows(digests=np.zeros((n, 16), np.uint8), keys=np.zeros(n, np.int32), values=np.full(n, value, np.int64))
    records = merge_rows(many, latest=False)
    assert records.values is not None
    assert records.values.tolist() == [value]


def test_without_values() -> None:
    whole = rows([(1, 2, 0, 0), (1, 0, 0, 0), (1, 2, 0, 0), (2, -1, 0, 0)])
    for latest in (False, True):
        records = merge_rows(PairRows(digests=whole.digests, keys=whole.keys), latest=latest)
        assert records.values is None
        assert sorted(records.sizes.tolist()) == [0, 2]
        assert records.keys.tolist() == [0, 2]


@pytest.mark.parametrize("bits", [1, 12, 40, 64])
def test_users_whose_digests_share_their_first_bits_are_kept_apart(bits):
    """Digests of few different bits collide in what is sorted first; every user still gets all of its rows."""
    random = np.random.default_rng(bits)
    n = 1_000
    words = np.stack([random.integers(0, 2**64, n, dtype=np.uint64) >> np.uint64(64 - bits), np.arange(n) % 3], axis=1)
    digests = words.astype("<u8").view(np.uint8).reshape(n, 16)
    keys = np.arange(n, dtype=np.int32)
    expected = {}
    for digest, key in zip(digests, keys.tolist(), strict=True):
        expected.setdefault(digest.tobytes(), []).append(key)
    records = merge_rows(PairRows(digests=digests, keys=keys), latest=False)
    found = {
        user.tobytes(): records.keys[start:stop].tolist()
        for user, start, stop in zip(records.users, records.offsets, records.offsets[1:], strict=False)
    }
    assert found == expected
