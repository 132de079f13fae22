"""Probabilities as exact integer thresholds.

A choice of probability q is made by comparing a uniform 64-bit word with an integer t: it happens when
word < t, so with probability t / 2^64 and no other. Real numbers become integers here and nowhere else, in
decimal arithmetic of 80 digits, rounded in a stated direction.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from decimal import ROUND_CEILING, ROUND_FLOOR, Context, Decimal, InvalidOperation
from fractions import Fraction
from typing import Final

from ..errors import ParameterError

__all__ = [
    "EPSILON_MAX",
    "EPSILON_MIN",
    "EXACT",
    "WORDS",
    "budget_ratio",
    "largest_threshold",
    "log_up",
    "parse_epsilon",
    "round_down",
    "round_up",
]

#: Number of values of a 64-bit word.
WORDS: Final = 1 << 64
#: Arithmetic for everything that is rounded afterwards.
EXACT: Final = Context(prec=80)
EPSILON_MIN: Final = Decimal("0.001")
EPSILON_MAX: Final = Decimal(20)

_SLACK: Final = Decimal("1e-60")


def parse_epsilon(epsilon: Decimal | int | float | str) -> Decimal:
    """Return a privacy budget as an exact decimal; a float stands for its shortest text.

    Raises:
        ParameterError: unless it is a number of [0.001, 20].
    """
    if isinstance(epsilon, bool) or not isinstance(epsilon, Decimal | int | float | str):
        raise _bad_epsilon(epsilon)
    try:
        value = Decimal(repr(float(epsilon)) if isinstance(epsilon, float) else epsilon)
    except InvalidOperation:
        raise _bad_epsilon(epsilon) from None
    if not value.is_finite() or not EPSILON_MIN <= value <= EPSILON_MAX:
        raise _bad_epsilon(epsilon)
    return value


def _bad_epsilon(given: object) -> ParameterError:
    return ParameterError(
        f"epsilon is {given!r}, but must be a number from {EPSILON_MIN} to {EPSILON_MAX}: above, the truth "
        "is sent nearly always; below, nothing can be learnt."
    )


def round_down(probability: Decimal) -> int:
    """Return floor(probability * 2^64)."""
    return int(EXACT.multiply(probability, Decimal(WORDS)).to_integral_value(rounding=ROUND_FLOOR))


def round_up(probability: Decimal) -> int:
    """Return ceil(probability * 2^64)."""
    return int(EXACT.multiply(probability, Decimal(WORDS)).to_integral_value(rounding=ROUND_CEILING))


def budget_ratio(epsilon: Decimal) -> Fraction:
    """Return a number just below e^epsilon: the largest ratio of probabilities that may be spent.

    It belongs to the largest float that is not above epsilon, so that the loss, rounded up to a float, is
    not above epsilon either.
    """
    nearest = float(epsilon)
    below = nearest if Decimal(nearest) <= epsilon else math.nextafter(nearest, 0.0)
    return Fraction(EXACT.multiply(EXACT.exp(Decimal(below)), EXACT.subtract(Decimal(1), _SLACK)))


def log_up(ratio: Fraction) -> float:
    """Return the natural logarithm of a ratio above 1 as a float, rounded up."""
    quotient = EXACT.divide(Decimal(ratio.numerator), Decimal(ratio.denominator))
    exact = EXACT.add(EXACT.ln(quotient), Decimal("1e-70"))
    nearest = float(exact)
    return nearest if Decimal(nearest) >= exact else math.nextafter(nearest, math.inf)


def largest_threshold(low: int, high: int, allowed: Callable[[int], bool]) -> int:
    """Return the largest integer of [low, high] that is allowed, where smaller ones are allowed too.

    Raises:
        ParameterError: where none is.
    """
    if allowed(high):
        return high
    if not allowed(low):
        raise ParameterError("No threshold of 64 bits meets this epsilon; choose a smaller padding or epsilon.")
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (middle, high) if allowed(middle) else (low, middle)
    return low
