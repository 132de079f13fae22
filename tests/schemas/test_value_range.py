"""The range of values, and numbers in their one decimal form."""

from __future__ import annotations

from decimal import Decimal

import pytest
from hypothesis import given
from hypothesis import strategies as st
from ldp_beam.errors import InputError
from ldp_beam.schemas.values import ValueRange, decimal_text


@pytest.mark.parametrize(
    ("given_", "text"),
    [
        ("1", "1"),
        ("1.0", "1"),
        ("1.00", "1"),
        ("-0.0", "0"),
        ("0.10", "0.1"),
        ("1E+3", "1000"),
        ("100", "100"),
    ],
)
def test_one_form(given_: str, text: str) -> None:
    assert decimal_text(Decimal(given_)) == text


def test_integers() -> None:
    assert decimal_text(-(10**30)) == "-1" + "0" * 30


@given(st.decimals(allow_nan=False, allow_infinity=False, min_value=-(10**20), max_value=10**20))
def test_the_text_is_exact_and_alike_for_equal_numbers(number: Decimal) -> None:
    text = decimal_text(number)
    assert Decimal(text) == number
    assert "E" not in text
    assert decimal_text(Decimal(text)) == text


def test_rules_are_checked() -> None:
    with pytest.raises(InputError, match=r"values\.outside is 'clamp'.*'clip'"):
        ValueRange(low=Decimal(0), high=Decimal(1), outside="clamp")
    with pytest.raises(InputError, match=r"values\.duplicates is 'last'.*Did you mean 'latest'"):
        ValueRange(low=Decimal(0), high=Decimal(1), duplicates="last")


def test_bounds_are_floats() -> None:
    assert ValueRange(low=Decimal("-0.1"), high=Decimal(1)).bounds == (-0.1, 1.0)
