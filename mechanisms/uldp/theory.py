"""Losses to expect of the empirical estimates, and the closed forms of the utility-optimised mechanisms.

For a report that supports symbol x with probability r_x = base_x + gain_x p_x, n times the variance of the estimated
share is s_x = r_x (1 - r_x) / gain_x^2. Then E l2^2 = sum_x s_x / n exactly, and by the normal approximation
E l1 = sqrt(2 / (n pi)) sum_x sqrt(s_x).

Source:
    Murakami, Kawamoto: Utility-Optimized Local Differential Privacy Mechanisms for Distribution Estimation, USENIX
    Security 2019, section 4.3.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from ..categorical.estimation import Supports
from ..data import Bool

__all__ = [
    "Losses",
    "expected_losses",
    "no_privacy_l2_squared",
    "urap_l1",
    "urap_l2_squared",
    "urr_l1",
    "urr_l2_squared",
]


@dataclass(frozen=True, kw_only=True)
class Losses:
    """Expected losses between estimated and true distribution, users being a sample of a population.

    Attributes:
        l1: expected sum of absolute errors, by the normal approximation; the total variation is half of it.
        l2_squared: expected sum of squared errors, exact.
        mse: `l2_squared` divided by the number of symbols.
    """

    l1: float
    l2_squared: float
    mse: float


def expected_losses(supports: Supports, distribution: npt.ArrayLike) -> Losses:
    """Predict the losses of the empirical estimates from n, base and gain of `supports`; its counts do not matter.

    Args:
        supports: number of users and the probabilities of a mechanism.
        distribution: share of each symbol, (d,).
    """
    error = supports.error(np.asarray(distribution, dtype=np.float64))
    squares = float((error * error).sum())
    return Losses(
        l1=math.sqrt(2.0 / math.pi) * float(error.sum()), l2_squared=squares, mse=squares / len(supports.base)
    )


def no_privacy_l2_squared(distribution: npt.ArrayLike, users: int) -> float:
    """E l2^2 of the observed shares themselves: (1 - sum p^2) / n."""
    p = np.asarray(distribution, dtype=np.float64)
    return float(1.0 - (p * p).sum()) / users


def urr_l2_squared(epsilon: float, sensitive: Bool, distribution: npt.ArrayLike, users: int) -> float:
    """Closed form of E l2^2 of uRR.

    Args:
        epsilon: budget.
        sensitive: which symbols are sensitive, bool (d,).
        distribution: share of each symbol, (d,).
        users: number of users.
    """
    p = np.asarray(distribution, dtype=np.float64)
    grown, u = math.expm1(epsilon), int(sensitive.sum())
    noise = (2.0 * grown * (u - p[sensitive].sum()) + u * (u - 1)) / grown**2
    return float(noise + 1.0 - (p * p).sum()) / users


def urap_l2_squared(epsilon: float, sensitive: Bool, distribution: npt.ArrayLike, users: int) -> float:
    """Closed form of E l2^2 of uRAP at its default theta; arguments as for `urr_l2_squared`."""
    p = np.asarray(distribution, dtype=np.float64)
    grown, u = math.expm1(epsilon / 2.0), int(sensitive.sum())
    noise = p[~sensitive].sum() / grown + u * (grown + 1.0) / grown**2
    return float(1.0 - (p * p).sum() + noise) / users


def urr_l1(epsilon: float, sensitive: Bool, distribution: npt.ArrayLike, users: int) -> float:
    """Closed form of E l1 of uRR, by the normal approximation; arguments as for `urr_l2_squared`."""
    p = np.asarray(distribution, dtype=np.float64)
    grown = math.expm1(epsilon)
    v = (int(sensitive.sum()) + grown) / grown
    s = np.where(sensitive, (p + 1.0 / grown) * (v - p - 1.0 / grown), p * (v - p))
    return math.sqrt(2.0 / (users * math.pi)) * float(np.sqrt(s).sum())


def urap_l1(epsilon: float, sensitive: Bool, distribution: npt.ArrayLike, users: int) -> float:
    """Closed form of E l1 of uRAP at its default theta, by the normal approximation; as for `urr_l2_squared`."""
    p = np.asarray(distribution, dtype=np.float64)
    grown = math.expm1(epsilon / 2.0)
    s = np.where(sensitive, (grown + 1.0) / grown**2 + p * (1.0 - p), p * ((grown + 1.0) / grown - p))
    return math.sqrt(2.0 / (users * math.pi)) * float(np.sqrt(s).sum())
