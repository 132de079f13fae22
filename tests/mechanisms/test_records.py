"""Canonical records: fixed point, sorting, averaging, and building them from Python data."""

from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from ldp_beam.errors import InputError
from ldp_beam.mechanisms import (
    VALUE_ONE,
    Records,
    Secret,
    canonical_pairs,
    digest_ids,
    make_records,
    to_fixed,
)
from ldp_beam.mechanisms import records as module

DIGESTS = Secret.from_seed(3).users()


def test_fixed_point_hits_the_ends_and_the_middle():
    assert to_fixed([1.0, 3.0, 5.0], 1.0, 5.0).tolist() == [-VALUE_ONE, 0, VALUE_ONE]
    assert to_fixed([0.1], 0.1, 0.3).tolist() == [-VALUE_ONE]
    assert to_fixed([0.3], 0.1, 0.3).tolist() == [VALUE_ONE]
    half = 0.5 / VALUE_ONE
    assert to_fixed([half, 3 * half, -half], -1.0, 1.0).tolist() == [0, 2, 0]  # halves to even


@given(st.floats(-1, 1))
def test_fixed_point_is_the_nearest_integer(value):
    assert to_fixed(np.array([value]), -1.0, 1.0)[0] == round(Fraction(2 * (value + 1) / 2 - 1) * VALUE_ONE)


def slow_canonical(user, keys, values, users):
    pairs = {}
    for u, k, v in zip(user, keys, values, strict=True):
        pairs.setdefault((u, k), []).append(v)
    rows = sorted(pairs)
    offsets = [sum(u < i for u, _ in rows) for i in range(users + 1)]
    means = [round(Fraction(sum(pairs[row]), len(pairs[row]))) for row in rows]  # halves to even
    return offsets, [k for _, k in rows], means


PAIRS = st.lists(
    st.tuples(st.integers(0, 4), st.integers(0, 3), st.integers(-9, 9) | st.integers(-VALUE_ONE, VALUE_ONE)),
    max_size=25,
)


@given(PAIRS, st.booleans())
def test_canonical_pairs_equal_the_slow_reference(pairs, in_order):
    if in_order:
        pairs = sorted(pairs)
    user, keys, values = (np.array([pair[i] for pair in pairs], np.int64) for i in range(3))
    offsets, out_keys, out_values = canonical_pairs(user, keys.astype(np.int32), values, 5)
    assert (offsets.tolist(), out_keys.tolist(), out_values.tolist()) == slow_canonical(user, keys, values, 5)
    assert offsets.dtype == np.int64
    assert out_keys.dtype == np.int32
    assert out_values.dtype == np.int64
    bare = canonical_pairs(user.astype(np.int32), keys.astype(np.int32), None, 5)
    assert (bare[0].tolist(), bare[1].tolist(), bare[2]) == (offsets.tolist(), out_keys.tolist(), None)


def test_pairs_in_order_are_not_copied():
    keys, values = np.array([1, 2, 0], np.int32), np.array([1, 2, 3])
    _, out_keys, out_values = canonical_pairs(np.array([0, 0, 3]), keys, values, 4)
    assert out_keys is keys
    assert out_values is values


@pytest.mark.parametrize("sign", [1, -1])
def test_very_many_duplicates_do_not_overflow(sign, monkeypatch):
    monkeypatch.setattr(module, "_SUMMABLE", 4)
    values = np.full(11, sign * VALUE_ONE)
    values[:5] = sign
    expected = round(Fraction(5 * sign + 6 * sign * VALUE_ONE, 11))
    assert canonical_pairs(np.zeros(11, int), np.zeros(11, np.int32), values, 1)[2].tolist() == [expected]


def test_records_from_python_data():
    records = make_records(DIGESTS, ["a", "b", "c"], [{2: 5.0, 0: 1.0}, [], [(1, 2.0), (1, 4.0)]], low=1.0, high=5.0)
    assert records.offsets.tolist() == [0, 2, 2, 3]
    assert records.keys.tolist() == [0, 2, 1]
    assert records.values.tolist() == [-VALUE_ONE, VALUE_ONE, 0]
    assert make_records(DIGESTS, [], []).n == 0


def test_ids_are_texts():
    expected = digest_ids(DIGESTS, ["5", "-7", "ä"])
    assert np.array_equal(digest_ids(DIGESTS, [5, np.int64(-7), "ä"]), expected)
    assert np.array_equal(digest_ids(DIGESTS, np.array([5, -7])), expected[:2])
    for wrong in (True, 1.0, None, b"5"):
        with pytest.raises(InputError, match="user id"):
            digest_ids(DIGESTS, [wrong])


@pytest.mark.parametrize("value", [5.1, 0.9, float("nan"), float("inf")])
def test_values_outside_are_refused(value):
    with pytest.raises(InputError, match="range is"):
        make_records(DIGESTS, ["a"], [{0: value}], low=1.0, high=5.0)


def test_as_many_ids_as_records():
    with pytest.raises(InputError, match="2 user ids but 1 records"):
        make_records(DIGESTS, ["a", "b"], [{}])


def test_slices_and_chunks():
    records = make_records(DIGESTS, range(5), [dict.fromkeys(range(i), 0.0) for i in range(5)])
    part = records.slice(2, 4)
    assert part.sizes.tolist() == [2, 3]
    assert part.keys.tolist() == [0, 1, 0, 1, 2]
    assert [chunk.n for chunk in records.chunks(2)] == [2, 2, 1]
    assert [chunk.n for chunk in records.chunks(9)] == [5]
    assert list(records.slice(0, 0).chunks(3)) == []


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"users": np.zeros((2, 8), np.uint8)}, "users must be"),
        ({"keys": np.zeros(1, np.int64)}, "keys must be"),
        ({"offsets": np.array([0, 1, 2])}, "must run from 0 to 1"),
        ({"values": np.zeros(1)}, "values must be"),
    ],
)
def test_records_of_wrong_shape_are_refused(change, message):
    good = {
        "users": np.zeros((2, 16), np.uint8),
        "offsets": np.array([0, 1, 1]),
        "keys": np.zeros(1, np.int32),
        "values": np.zeros(1, np.int64),
    }
    Records(**good)
    with pytest.raises(ValueError, match=message):
        Records(**{**good, **change})
