"""Numerical allocation of PCKV-UE: the split of the budget with the smallest predicted error for a declared prior.

The paper reports a held key with probability a = 1/2. Every a of (0, 1) spends exactly epsilon when

    p = e^epsilon / (e^epsilon + 1),    b = 2 a p / (2 a p + (1 - a) e^epsilon),

since the factors by which one report separates two records (see `pckv_budget.ue_ratio`) are then D, D / e^epsilon and
1 with D = 2 a p + (1 - a) e^epsilon, and 1 <= D <= e^epsilon. So a is free, and a larger one pays off wherever keys are
frequent or epsilon is large. Which a is best depends on how frequent keys are, on their means and on the number of
users: all declared beforehand, or taken from published estimates, and never from the records.

Both sides must find the same a, so the search is over multiples of 1/4096 in decimal arithmetic, which gives the same
digits on every machine.

PCKV-GRR has no such freedom worth taking: its closed form is within 0.1 % of the best split unless the noise swamps
everything.
"""

from __future__ import annotations

from dataclasses import dataclass
from decimal import Context, Decimal, InvalidOperation
from functools import lru_cache
from typing import Any, Final

from ...errors import ParameterError

__all__ = ["FREQUENCY_LIMIT", "STEPS", "Prior", "best_share", "other_share"]

#: a is a multiple of 1 / STEPS.
STEPS: Final = 4096
#: By what factor the frequency's squared error may exceed that of the paper's allocation, whatever the objective: for
#: rare keys of mean 0 the best a for the mean alone tends to 1, where nothing could be said about frequencies.
FREQUENCY_LIMIT: Final = Decimal("1.25")

_COARSE: Final = 64
_DIGITS: Final = Context(prec=50)
_HALF: Final = Decimal("0.5")
_WHAT: Final = {
    "frequency": "a number above 0, at most 1: the share of users who hold a typical key",
    "mean": "a number from -1 to 1: the mean of a typical key, on the scale to which values are mapped",
    "users": "a number of at least 1: about how many users will report",
    "mean_weight": "a number from 0 to 1: 1 minimises the error of means, 0 that of frequencies",
}


@dataclass(frozen=True, kw_only=True, init=False)
class Prior:
    """What is believed beforehand of a typical key; a declared constant or taken from published estimates.

    Attributes:
        frequency: share of users who hold it, above 0.
        mean: mean of its values, in [-1, 1].
        users: number of users.
        mean_weight: weight of the mean's squared error, and 1 minus it that of the frequency's; both errors are
            relative to those of the paper's allocation.

    Privacy:
        The prior decides probabilities, so it must not depend on the records of this collection.
    """

    frequency: Decimal
    mean: Decimal
    users: Decimal
    mean_weight: Decimal

    def __init__(self, *, frequency: object, mean: object, users: object, mean_weight: object = 1) -> None:
        """Check the figures; a float stands for its shortest text.

        Raises:
            ParameterError: for a figure outside what is allowed.
        """
        given = {"frequency": frequency, "mean": mean, "users": users, "mean_weight": mean_weight}
        for name, figure in given.items():
            object.__setattr__(self, name, _figure(name, figure))


def _figure(name: str, given: Any) -> Decimal:
    low, high = {"frequency": (0, 1), "mean": (-1, 1), "users": (1, 10**12), "mean_weight": (0, 1)}[name]
    try:
        if isinstance(given, bool):
            raise InvalidOperation
        figure = Decimal(repr(given) if isinstance(given, float) else given)
    except (InvalidOperation, TypeError, ValueError):
        raise ParameterError(f"The prior's {name} is {given!r}, but must be {_WHAT[name]}.") from None
    if not figure.is_finite() or not low <= figure <= high or (name == "frequency" and not figure):
        raise ParameterError(f"The prior's {name} is {given!r}, but must be {_WHAT[name]}.")
    return figure


def other_share(share: Decimal, budget: Decimal, context: Context = _DIGITS) -> Decimal:
    """Return b for a = `share` in (0, 1) and e^epsilon = `budget`, so that exactly epsilon is spent."""
    sign_kept = context.divide(budget, context.add(budget, 1))
    held = context.multiply(2, context.multiply(share, sign_kept))
    return context.divide(held, context.add(held, context.multiply(context.subtract(1, share), budget)))


@lru_cache(maxsize=256)
def best_share(epsilon: Decimal, padding: int, prior: Prior) -> Decimal:
    """Return the multiple of 1/4096 in (0, 1) with the smallest predicted error.

    Args:
        epsilon: privacy budget of one report.
        padding: padding length.
        prior: what is believed of a typical key.

    Source:
        PCKV, theorems 5 and 6, with the sampling step in the frequency's variance; minimised over a.
    """
    loss = _Loss(epsilon, padding, prior)
    rough = min(range(1, _COARSE), key=lambda j: loss(_DIGITS.divide(j, _COARSE))) * (STEPS // _COARSE)
    near = range(max(1, rough - STEPS // _COARSE), min(STEPS, rough + STEPS // _COARSE + 1))
    return min((_DIGITS.divide(j, STEPS) for j in near), key=loss)


class _Loss:
    """The weighted squared error at a, relative to a = 1/2; infinite beyond `FREQUENCY_LIMIT`."""

    def __init__(self, epsilon: Decimal, padding: int, prior: Prior) -> None:
        self._budget = _DIGITS.exp(epsilon)
        self._padding, self._prior = Decimal(padding), prior
        self._paper = self._errors(_HALF)

    def __call__(self, share: Decimal) -> Decimal:
        frequency, mean = (_DIGITS.divide(x, y) for x, y in zip(self._errors(share), self._paper, strict=True))
        if frequency > FREQUENCY_LIMIT:
            return Decimal("Infinity")
        weight = self._prior.mean_weight
        return _DIGITS.add(_DIGITS.multiply(weight, mean), _DIGITS.multiply(_DIGITS.subtract(1, weight), frequency))

    def _errors(self, share: Decimal) -> tuple[Decimal, Decimal]:
        """Predicted squared errors of the frequency and of the mean: variance, and for the mean squared bias."""
        c, prior = _DIGITS, self._prior
        f, m, n = c.divide(prior.frequency, self._padding), prior.mean, prior.users
        b = other_share(share, self._budget)
        gap = c.subtract(share, b)
        trust = c.multiply(share, c.divide(c.subtract(self._budget, 1), c.add(self._budget, 1)))
        delta, gamma = c.multiply(gap, f), c.multiply(trust, f)
        held = c.add(b, delta)
        empty = c.subtract(1, held)
        square, gap_square = c.multiply(self._padding, self._padding), c.multiply(gap, gap)
        frequency = c.divide(c.multiply(square, c.multiply(held, empty)), c.multiply(n, gap_square))
        scale = c.multiply(n, c.multiply(delta, delta))
        spread = c.subtract(c.multiply(b, c.subtract(1, b)), delta)
        noise = c.divide(held, c.multiply(n, c.multiply(gamma, gamma)))
        ratio = c.divide(c.multiply(spread, c.multiply(m, m)), scale)
        bias = c.divide(c.multiply(c.multiply(empty, b), m), scale)
        return frequency, c.add(c.add(noise, ratio), c.multiply(bias, bias))
