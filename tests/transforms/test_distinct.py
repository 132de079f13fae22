"""The sketch of distinct users: exact while small, mergeable, close when large."""

from __future__ import annotations

import pickle

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from ldp_beam.transforms import distinct
from ldp_beam.transforms.distinct import DistinctUsers


def digests(first: int, last: int) -> np.ndarray:
    """Digests of the users first to last - 1: hashes of their numbers (splitmix64), twice."""
    x = np.arange(first, last, dtype=np.uint64) * np.uint64(0x9E3779B97F4A7C15) + np.uint64(1)
    for shift, factor in ((30, 0xBF58476D1CE4E5B9), (27, 0x94D049BB133111EB)):
        x = (x ^ (x >> np.uint64(shift))) * np.uint64(factor)
    x ^= x >> np.uint64(31)
    return np.stack([x, x], axis=1).view(np.uint8).reshape(-1, 16)


def sketch(*spans: tuple[int, int]) -> DistinctUsers:
    result = DistinctUsers()
    for first, last in spans:
        result.add(digests(first, last))
    return result


def test_exact_below_its_size() -> None:
    assert DistinctUsers().estimate() == 0
    assert sketch((0, 1000), (500, 1500), (0, 10)).estimate() == 1500


def test_close_above_its_size() -> None:
    n = 3_000_000
    found = sketch(*((start, start + 100_000) for start in range(0, n, 100_000)), (0, 200_000))
    # Six standard errors: a false alarm once in 10^9 draws, and the draw is fixed.
    assert abs(found.estimate() / n - 1) < 6 / np.sqrt(distinct.K)


@given(st.lists(st.tuples(st.integers(0, 80), st.integers(0, 80)), max_size=6))
def test_any_order_and_merge_tree_gives_the_same_sketch(spans: list[tuple[int, int]]) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(distinct, "K", 16)
        whole = sketch(*spans)
        left, right = sketch(*spans[:2]), sketch(*spans[2:])
        assert left.merge(right) == whole == right.merge(left)
        assert whole.merge(whole) == whole
        assert left == sketch(*spans[:2])
        assert pickle.loads(pickle.dumps(whole)) == whole
        assert whole.merge(DistinctUsers()).estimate() == whole.estimate()


def test_pickles_compactly() -> None:
    large = sketch((0, 1_000_000))
    assert len(pickle.dumps(large)) < 8 * distinct.K + 200
    clone = pickle.loads(pickle.dumps(large))
    clone.add(digests(0, 1_000_000))
    assert clone == large
    assert large != sketch((0, 5))
    assert large != "sketch"


def test_input_is_not_changed_or_kept() -> None:
    data = digests(0, 10)
    before = data.copy()
    found = sketch()
    found.add(data)
    data[:] = 0
    assert np.array_equal(before, digests(0, 10))
    assert found.estimate() == 10
