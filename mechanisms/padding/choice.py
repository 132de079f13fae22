"""Which padding length to take, given how many keys people hold.

A length that is too small leaves out what people hold beyond it: a frequency f is estimated as f E[min(1, length /
size)]. One that is too large multiplies the noise. The rule "error" takes the length with the smallest predicted
squared error of all frequencies together, bias and variance; the frequencies themselves come from a declared shape (a
power law whose sum is the mean number of keys) or from earlier published estimates. The rule "percentile" takes the
length that 90 % of the users do not exceed, and looks at no error.

Source:
    PCKV, section 6 (leaves the choice open, and names the percentile); the prediction is ours.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from ..data import F64
from ..protocol import Mechanism
from .lengths import Lengths

__all__ = ["RULES", "Choice", "choose", "power_law", "predicted_errors", "squared_error"]

#: Names of the rules, the default first.
RULES: Final = ("error", "percentile")
_PERCENT: Final = 90.0
#: If more users than this share hold as many keys as the cap, or more, the choice says so.
_MANY: Final = 0.1
#: Frequencies of neighbouring size that are predicted together.
_CLASSES: Final = 160
_HALVINGS: Final = 200
_ROOT_2: Final = math.sqrt(2.0)
_ROOT_2_PI: Final = math.sqrt(2.0 * math.pi)
_erf: Final = np.frompyfunc(math.erf, 1, 1)


@dataclass(frozen=True, kw_only=True)
class Choice:
    """A padding length and why it was taken.

    Attributes:
        padding: the length.
        rule: the rule that was asked for.
        trusted: whether enough users answered; where not, the length is the declared fallback.
        reason: why, in words.
        lengths: what was learnt of the lengths.
        errors: predicted squared error of all frequencies together by padding length.
    """

    padding: int
    rule: str
    trusted: bool
    reason: str
    lengths: Lengths
    errors: Mapping[int, float]

    def as_json(self) -> dict[str, Any]:
        """Return the choice for a manifest; everything in it follows from reports."""
        told = self.lengths.answers > 0
        return {
            "padding": self.padding,
            "rule": self.rule,
            "trusted": self.trusted,
            "reason": self.reason,
            "answers": self.lengths.answers,
            "mean_length": self.lengths.mean if told else None,
            "lengths": _shares(self.lengths) if told else None,
            "length_error": self.lengths.error if told else None,
            "predicted_errors": {str(padding): float(f"{error:.6g}") for padding, error in self.errors.items()},
        }


def _shares(lengths: Lengths) -> dict[str, float]:
    """Shares above 0 by length."""
    pairs = zip(lengths.sizes, lengths.share, strict=True)
    return {f"{size:g}": float(f"{share:.6g}") for size, share in pairs if share > 0.0}


def power_law(keys: int, total: float, exponent: float = 1.0) -> F64:
    """Return frequencies that fall as 1, 2^-exponent, 3^-exponent, …, each at most 1, with the given sum.

    Args:
        keys: number of keys.
        total: the sum, at most the number of keys.
        exponent: of the power law; 0 for keys that are all alike.
    """
    shape = np.arange(1.0, keys + 1.0) ** -exponent
    if total >= keys:
        return np.ones(keys)
    low, high = 0.0, keys / float(shape[-1])
    for _ in range(_HALVINGS):
        middle = (low + high) / 2.0
        low, high = (middle, high) if np.minimum(1.0, middle * shape).sum() < total else (low, middle)
    frequency: F64 = np.minimum(1.0, low * shape)
    return frequency


def squared_error(expected: F64, deviation: F64, truth: F64, *, clipped: bool) -> F64:
    """Return E (Z - truth)^2 of a normal estimate Z, which is set to 0 where it is negative if `clipped`.

    Args:
        expected: mean of the estimates.
        deviation: their standard deviation, above 0.
        truth: true values.
        clipped: whether negative estimates are set to 0.
    """
    if not clipped:
        plain: F64 = deviation**2 + (expected - truth) ** 2
        return plain
    z = expected / deviation
    above = (1.0 + np.asarray(_erf(z / _ROOT_2), dtype=np.float64)) / 2.0
    density = np.exp(-0.5 * z**2) / _ROOT_2_PI
    first = expected * above + deviation * density
    second = (expected**2 + deviation**2) * above + expected * deviation * density
    error: F64 = second - 2.0 * truth * first + truth**2
    return error


def predicted_errors(
    make: Callable[[int], Mechanism], lengths: Lengths, frequency: F64, users: int, *, clipped: bool
) -> dict[int, float]:
    """Predict the squared error of all frequencies together for every padding length that may be chosen.

    Args:
        make: makes the mechanism from its padding length.
        lengths: what is known of the number of keys that people hold.
        frequency: believed frequencies, float64 (d,).
        users: number of users of the main question.
        clipped: whether the estimator sets negative frequencies to 0.

    Returns:
        The error by padding length, the shortest first.
    """
    classes = np.array_split(np.sort(frequency), min(_CLASSES, len(frequency)))
    typical = np.array([float(part.mean()) for part in classes])
    number = np.array([len(part) for part in classes])
    errors = {}
    for padding in lengths.paddings:
        expected = typical * lengths.kept(padding)
        deviation = np.sqrt(_variance(make(padding), expected, users))
        errors[padding] = float(number @ squared_error(expected, deviation, typical, clipped=clipped))
    return errors


def _variance(mechanism: Mechanism, frequency: F64, users: int) -> F64:
    """Variance of the raw frequency at so many frequencies: it is a polynomial of degree 2, fixed by three points."""
    points = np.array([1e-9, 0.5, 1.0])
    found = [mechanism.predict(frequency=float(f), mean=0.0, users=users).frequency_se ** 2 for f in points]
    bend = 2.0 * (found[0] - 2.0 * found[1] + found[2])
    slope = found[2] - found[0] - bend
    variance: F64 = np.maximum(found[0] + slope * frequency + bend * frequency**2, 1e-300)
    return variance


def choose(
    make: Callable[[int], Mechanism],
    lengths: Lengths,
    *,
    keys: int,
    users: int,
    rule: str,
    fallback: int,
    exponent: float = 1.0,
    frequency: npt.ArrayLike | None = None,
    clipped: bool = True,
) -> Choice:
    """Choose a padding length.

    Args:
        make: makes the mechanism from its padding length.
        lengths: what the length question brought.
        keys: number of keys.
        users: number of users of the main question.
        rule: a name of `RULES`.
        fallback: length to take where too few users answered.
        exponent: of the power law that frequencies are believed to follow.
        frequency: frequencies from earlier published estimates, (d,), instead of the power law.
        clipped: whether the estimator sets negative frequencies to 0.
    """
    if not lengths.enough:
        return Choice(
            padding=fallback,
            rule=rule,
            trusted=False,
            reason=_too_few(lengths, fallback),
            lengths=lengths,
            errors={},
        )
    believed = power_law(keys, lengths.mean, exponent) if frequency is None else np.asarray(frequency, dtype=np.float64)
    errors = predicted_errors(make, lengths, believed, max(users, 1), clipped=clipped)
    padding = lengths.percentile(_PERCENT) if rule == "percentile" else min(errors, key=lambda one: errors[one])
    return Choice(
        padding=padding,
        rule=rule,
        trusted=True,
        reason=_why(lengths, rule, padding, errors),
        lengths=lengths,
        errors=errors,
    )


def _too_few(lengths: Lengths, fallback: int) -> str:
    needed = f"; about {lengths.answers_needed:,} would do" if lengths.answers else ""
    return (
        f"{lengths.answers:,} users answered the length question, too few to tell how many keys people hold{needed}. "
        f"The declared fallback {fallback} was taken; frequencies are underestimated where people hold more keys. "
        "Ask more users, or declare a fixed padding."
    )


def _why(lengths: Lengths, rule: str, padding: int, errors: Mapping[int, float]) -> str:
    at_cap = float(lengths.share[-1])
    more = (
        f" {at_cap:.0%} hold {lengths.sizes[-1]:g} or more; a larger cap would tell them apart."
        if at_cap > _MANY
        else ""
    )
    if rule == "percentile":
        share = float(lengths.share[lengths.sizes <= padding].sum())
        return f"{share:.1%} of the users are estimated to hold at most {padding} keys.{more}"
    return (
        f"The predicted squared error of all frequencies together, {errors[padding]:.3g}, is smallest there; about "
        f"{lengths.kept(padding):.1%} of a frequency is seen with it, and people hold {lengths.mean:.3g} keys on "
        f"average.{more}"
    )
