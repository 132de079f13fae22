"""Closed forms of PCKV: variance and bias of its estimators, for plans and error bars.

Letters as in the paper: a, b, p of the mechanism, padding length ell, n users, a key's frequency f and mean
m, delta = (a - b) f / ell, gamma = a (2p - 1) f / ell.

Source:
    PCKV, theorems 5 and 6 and section 5.2. The published variance of the frequency leaves out the sampling
    step; both complete forms are given here.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from ..data import F64
from .budget import Law

__all__ = ["Probabilities", "factors", "frequency_variance", "mean_bias", "mean_variance"]

Number = float | F64


@dataclass(frozen=True, kw_only=True)
class Probabilities:
    """The probabilities of a mechanism as floats, each rounded once from the exact thresholds.

    Attributes:
        a: a sampled key is reported.
        b: another key is reported.
        p: the sign of a reported key is kept.
        gap: a - b.
        trust: a (2p - 1).
    """

    a: float
    b: float
    p: float
    gap: float
    trust: float

    @classmethod
    def of(cls, law: Law) -> Probabilities:
        """Round the exact probabilities of a law."""
        return cls(
            a=float(law.a),
            b=float(law.b),
            p=float(law.p),
            gap=float(law.a - law.b),
            trust=float(law.a * (2 * law.p - 1)),
        )


def frequency_variance(
    law: Probabilities, padding: int, frequency: npt.ArrayLike, users: npt.ArrayLike, *, fixed: bool = False
) -> F64:
    """Variance of the raw frequency estimate.

    Args:
        law: probabilities of the mechanism.
        padding: padding length; every user is taken to hold no more keys.
        frequency: true frequencies, any shape.
        users: number of users.
        fixed: false (the error bars' form): the users are a random sample of a population. True: the users
            are given and only the mechanism is random.
    """
    f, n = np.asarray(frequency, dtype=np.float64), np.asarray(users, dtype=np.float64)
    share = law.b + law.gap * f / padding
    sampled: F64 = padding**2 * share * (1.0 - share) / (n * law.gap**2)
    if not fixed:
        return sampled
    # a user who holds the key supports it with probability a/ell + b(1 - 1/ell), the others with b
    held = law.b + law.gap / padding
    noise: F64 = padding**2 * (f * held * (1.0 - held) + (1.0 - f) * law.b * (1.0 - law.b)) / (n * law.gap**2)
    return noise


def mean_bias(
    law: Probabilities, padding: int, frequency: npt.ArrayLike, mean: npt.ArrayLike, users: npt.ArrayLike
) -> F64:
    """Bias of the baseline estimate of a mean, to first order in 1/n.

    Args:
        law: probabilities of the mechanism.
        padding: padding length.
        frequency: true frequencies above 0.
        mean: true means in [-1, 1].
        users: number of users.
    """
    f, m = np.asarray(frequency, dtype=np.float64), np.asarray(mean, dtype=np.float64)
    delta = law.gap * f / padding
    bias: F64 = (1.0 - law.b - delta) * law.b * m / (np.asarray(users, dtype=np.float64) * delta**2)
    return bias


def mean_variance(
    law: Probabilities, padding: int, frequency: npt.ArrayLike, mean: npt.ArrayLike, users: npt.ArrayLike
) -> F64:
    """Variance of the baseline estimate of a mean, to first order in 1/n, users being a random sample.

    For values near -1 or 1 it exceeds the variance among given users, as the server cannot see how far values
    lie apart.

    Args:
        law: probabilities of the mechanism.
        padding: padding length.
        frequency: true frequencies above 0.
        mean: true means in [-1, 1].
        users: number of users.
    """
    f, m = np.asarray(frequency, dtype=np.float64), np.asarray(mean, dtype=np.float64)
    n = np.asarray(users, dtype=np.float64)
    delta, gamma = law.gap * f / padding, law.trust * f / padding
    variance: F64 = (law.b + delta) / (n * gamma**2) + (law.b - law.b**2 - delta) * m**2 / (n * delta**2)
    return variance


def factors(law: Probabilities) -> tuple[float, float]:
    """Return g and h: for rare keys the mean's squared error is about (ell^2 / (n f^2)) (g + h m^2)."""
    return law.b / law.trust**2, law.b * (1.0 - law.b) / law.gap**2
