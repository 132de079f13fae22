"""Tallies are a commutative monoid of named integers."""

from __future__ import annotations

import json
import pickle

import pytest
from hypothesis import given
from hypothesis import strategies as st
from ldp_beam.schemas.tally import ROWS_READ, USERS, Tally

tallies = st.builds(Tally, st.dictionaries(st.sampled_from(["a", "b", "c"]), st.integers(0, 2**70)))


@given(tallies, tallies, tallies)
def test_monoid(a: Tally, b: Tally, c: Tally) -> None:
    assert a + b == b + a
    assert (a + b) + c == a + (b + c)
    assert a + Tally() == a
    assert sum([a, b, c]) == a + b + c
    assert hash(a + b) == hash(b + a)


@given(tallies, tallies)
def test_adds_by_name_without_overflow(a: Tally, b: Tally) -> None:
    for name in "abc":
        assert (a + b)[name] == a[name] + b[name]


def test_missing_names_are_zero_and_zeros_are_missing() -> None:
    tally = Tally({ROWS_READ: 3, USERS: 0})
    assert tally[USERS] == tally["no such counter"] == 0
    assert dict(tally) == {ROWS_READ: 3}
    assert USERS not in tally
    assert len(tally) == 1
    assert tally == Tally({ROWS_READ: 3})
    assert tally != {ROWS_READ: 3}


def test_pickles_prints_and_becomes_json() -> None:
    tally = Tally({"b": 2, "a": 1})
    assert pickle.loads(pickle.dumps(tally)) == tally
    assert repr(tally) == "Tally({'a': 1, 'b': 2})"
    assert json.dumps(dict(tally)) == '{"a": 1, "b": 2}'


def test_only_tallies_add_up() -> None:
    with pytest.raises(TypeError):
        Tally() + 3
