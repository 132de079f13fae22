"""The declared range of values, and what becomes of values that break its rules."""

from __future__ import annotations

import math
from dataclasses import dataclass
from decimal import Decimal

from ..errors import InputError, did_you_mean

__all__ = ["DUPLICATES_RULES", "OUTSIDE_RULES", "ValueRange", "decimal_text"]

#: What becomes of a value outside the range.
OUTSIDE_RULES = ("drop", "clip")
#: What becomes of two pairs of one user and key.
DUPLICATES_RULES = ("mean", "latest")

#: Beyond this decimal exponent no 64-bit float differs from 0 or from infinity.
_LARGEST_EXPONENT = 400


@dataclass(frozen=True, kw_only=True)
class ValueRange:
    """The range [low, high] of raw values, in raw units; results come back in them.

    Attributes:
        low: smallest value, exact.
        high: largest value, exact, above `low`.
        outside: "drop" drops a pair whose value lies outside, "clip" moves it to the nearest end.
        duplicates: "mean" averages several pairs of one user and key, "latest" keeps the one with the
            greatest time.
        coordinates: names of the coordinates where values are vectors; empty where they are numbers.
    """

    low: Decimal
    high: Decimal
    outside: str = "drop"
    duplicates: str = "mean"
    coordinates: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        for name, end in (("low", self.low), ("high", self.high)):
            if not end.is_finite() or abs(end.adjusted()) > _LARGEST_EXPONENT or not math.isfinite(float(end)):
                raise InputError(f"values.range: its {name} end is {end}; both ends must be finite numbers.")
        low, high = self.bounds
        if not low < high:
            raise InputError(
                f"values.range is [{self.low}, {self.high}]; the first number must be below the second one."
            )
        if not math.isfinite(2.0 * (high - low)):
            raise InputError(
                f"values.range is [{self.low}, {self.high}]; twice its width must be a finite 64-bit float."
            )
        _require_one_of("values.outside", self.outside, OUTSIDE_RULES)
        _require_one_of("values.duplicates", self.duplicates, DUPLICATES_RULES)

    @property
    def bounds(self) -> tuple[float, float]:
        """Both ends as floats."""
        return float(self.low), float(self.high)


def _require_one_of(field: str, given: str, allowed: tuple[str, ...]) -> None:
    if given not in allowed:
        raise InputError(
            f"{field} is {given!r}; it must be one of {', '.join(map(repr, allowed))}. {did_you_mean(given, allowed)}"
        )


def decimal_text(number: Decimal | int) -> str:
    """Return a number as plain decimal text in one form only: 1, 1.0 and 1.00 all give "1"."""
    if isinstance(number, int):
        return str(number)
    text = format(number, "f")
    if "." in text:
        text = text.rstrip("0").rstrip(".")
    return "0" if text == "-0" else text
