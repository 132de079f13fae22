"""Exact thresholds and the budget that they spend."""

import math
from decimal import Decimal
from fractions import Fraction

import numpy as np
import pytest
from ldp_beam.errors import InputError, ParameterError
from ldp_beam.mechanisms.probability import (
    WORDS,
    budget_ratio,
    largest_threshold,
    log_up,
    parse_epsilon,
    round_down,
    round_up,
)


@pytest.mark.parametrize(
    ("given", "exact"),
    [("0.1", "0.1"), (0.1, "0.1"), (1, "1"), (Decimal("2.50"), "2.5"), (0.001, "0.001"), (20, "20")],
)
def test_epsilon_is_kept_exactly(given, exact):
    assert parse_epsilon(given) == Decimal(exact)


@pytest.mark.parametrize(
    "given",
    [
        *(1e-17, 1e-9, 40, 709, 710, math.inf, -math.inf, math.nan, 0, -1, True, False),
        *("", "one", "nan", "inf", "1e", None, [1], Decimal("NaN"), Decimal("sNaN"), "20.000001", "0.00099"),
    ],
)
def test_epsilon_outside_the_allowed_is_refused(given):
    with pytest.raises(ParameterError, match=r"0\.001 to 20") as error:
        parse_epsilon(given)
    assert isinstance(error.value, InputError)


def test_numpy_floats_are_numbers_too():
    assert parse_epsilon(np.float64(0.1)) == Decimal("0.1")


def test_rounding_has_a_direction():
    third = Decimal(1) / Decimal(3)
    assert round_down(third) == WORDS // 3
    assert round_up(third) == WORDS // 3 + 1
    assert round_down(Decimal("0.5")) == round_up(Decimal("0.5")) == WORDS // 2


@pytest.mark.parametrize("epsilon", ["0.001", "0.1", "0.3", "1", "7.7", "20"])
def test_logarithm_of_the_budget_is_not_above_epsilon(epsilon):
    ratio = budget_ratio(Decimal(epsilon))
    assert log_up(ratio) <= Decimal(epsilon)
    assert abs(log_up(ratio) - float(epsilon)) <= math.ulp(float(epsilon))


def test_logarithm_is_rounded_up():
    for numerator, denominator in ((2, 1), (3, 2), (10**12 + 1, 10**12)):
        ratio = Fraction(numerator, denominator)
        assert Decimal(log_up(ratio)) >= (Decimal(numerator) / Decimal(denominator)).ln()
    assert log_up(Fraction(2)) == pytest.approx(math.log(2), rel=1e-15)


def test_largest_threshold_is_found():
    assert largest_threshold(3, 1000, lambda t: t <= 517) == 517
    assert largest_threshold(3, 1000, lambda t: t <= 5000) == 1000
    assert largest_threshold(3, 4, lambda t: t <= 3) == 3
    with pytest.raises(ParameterError, match="No threshold"):
        largest_threshold(3, 1000, lambda t: t < 3)
