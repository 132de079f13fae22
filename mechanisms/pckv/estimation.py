"""The server's estimators of PCKV: frequencies and means with error bars, from the counts of each key.

Source:
    PCKV, section 4.3 (baseline) and 4.4 (the corrected estimator, here with the frequency clipped from below
    at 1/n); Fieller, Biometrika 1940 (intervals of ratios).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

import numpy as np

from ..data import F64, I64, Bool, Estimates
from .theory import Probabilities, frequency_variance, mean_variance

__all__ = ["estimate"]

#: 97.5 % quantile of the normal distribution.
_Z95: Final = 1.959963984540054
#: Fewer expected true reports of a key than this are too few to trust its mean.
_FEW: Final = 30.0


@dataclass(frozen=True, kw_only=True, eq=False)
class _Raw:
    """Unbiased figures, not clipped: NaN means no mean exists."""

    frequency: F64
    frequency_se: F64
    mean: F64
    mean_se: F64


def estimate(law: Probabilities, padding: int, n: int, positive: I64, negative: I64, *, corrected: bool) -> Estimates:
    """Estimate all keys at once.

    Args:
        law: probabilities of the mechanism.
        padding: padding length.
        n: number of reports.
        positive: reports that support each key with sign +1, int64 (d,).
        negative: reports that support each key with sign -1, int64 (d,).
        corrected: whether to clip, or to give the baseline figures as they are.

    Returns:
        Estimates with the flags "no-reports", "few-holders" and "clipped". Without reports all figures are
        NaN.
    """
    if n == 0:
        return _nothing(positive, negative)
    raw = _raw(law, padding, n, positive, negative)
    frequency, mean = raw.frequency, raw.mean
    clipped = np.zeros(len(positive), dtype=np.bool_)
    if corrected:
        frequency, mean, clipped = _corrected(law, padding, n, positive, negative, raw.frequency)
    frequency_low, frequency_high = _interval(raw.frequency, raw.frequency_se, 0.0)
    total: F64 = (positive - negative) * np.float64(padding / (n * law.trust))
    mean_low, mean_high = _ratio_interval(law, padding, n, raw, total)
    # No key can have more holders than there are users, whatever an unclipped estimate says.
    few = n * law.a * np.minimum(frequency, 1.0) / padding < _FEW
    few |= np.abs(raw.frequency) <= raw.frequency_se
    return Estimates(
        n=n,
        frequency=frequency,
        frequency_se=raw.frequency_se,
        frequency_low=frequency_low,
        frequency_high=frequency_high,
        frequency_raw=raw.frequency,
        mean=mean,
        mean_se=raw.mean_se,
        mean_low=mean_low,
        mean_high=mean_high,
        mean_raw=raw.mean,
        support={"n1": positive, "n2": negative},
        flags={"no-reports": np.zeros_like(clipped), "few-holders": few, "clipped": clipped},
    )


def _nothing(positive: I64, negative: I64) -> Estimates:
    """Estimates of no reports at all."""

    def nan() -> F64:
        return np.full(len(positive), np.nan)

    def flag(value: bool) -> Bool:
        return np.full(len(positive), value)

    return Estimates(
        n=0,
        frequency=nan(),
        frequency_se=nan(),
        frequency_low=nan(),
        frequency_high=nan(),
        frequency_raw=nan(),
        mean=nan(),
        mean_se=nan(),
        mean_low=nan(),
        mean_high=nan(),
        mean_raw=nan(),
        support={"n1": positive, "n2": negative},
        flags={"no-reports": flag(True), "few-holders": flag(False), "clipped": flag(False)},
    )


def _raw(law: Probabilities, padding: int, n: int, positive: I64, negative: I64) -> _Raw:
    excess = (positive + negative) / n - law.b
    frequency = excess * padding / law.gap
    # The share behind a frequency lies between b and b + (a - b)/ell; outside, the plug-in would give errors
    # of 0.
    frequency_se = np.sqrt(frequency_variance(law, padding, np.clip(frequency, 0.0, 1.0), n))
    exists = frequency > 0.0
    mean = np.full(len(positive), np.nan)
    mean[exists] = ((positive - negative)[exists] / n) * law.gap / (law.trust * excess[exists])
    mean_se = np.full(len(positive), np.nan)
    inside = np.clip(mean[exists], -1.0, 1.0)
    mean_se[exists] = np.sqrt(np.maximum(mean_variance(law, padding, frequency[exists], inside, n), 0.0))
    return _Raw(frequency=frequency, frequency_se=frequency_se, mean=mean, mean_se=mean_se)


def _corrected(
    law: Probabilities, padding: int, n: int, positive: I64, negative: I64, raw: F64
) -> tuple[F64, F64, Bool]:
    """Clip the frequency to [1/n, 1], solve for the holders of either sign, clip those, and divide."""
    frequency = np.clip(raw, 1.0 / n, 1.0)
    top = n * frequency / padding
    # the 2 x 2 system has the eigenvectors sum and difference
    total = (positive + negative - n * law.b) / law.gap
    surplus = (positive - negative) / law.trust
    first, second = (total + surplus) / 2.0, (total - surplus) / 2.0
    first_in, second_in = np.clip(first, 0.0, top), np.clip(second, 0.0, top)
    mean = np.clip((first_in - second_in) / top, -1.0, 1.0)
    tolerance = 1e-9 * top
    clipped = (frequency != raw) | (np.abs(first_in - first) > tolerance) | (np.abs(second_in - second) > tolerance)
    return frequency, mean, clipped


def _ratio_interval(law: Probabilities, padding: int, n: int, raw: _Raw, total: F64) -> tuple[F64, F64]:
    """95 % interval of means after Fieller, clipped to [-1, 1]; the full range where the frequency may be 0.

    A mean is the ratio of two estimates, a sum of values and a frequency. Its standard error comes from a linear
    approximation that is poor while the frequency is only a few standard errors above 0: intervals centred on the ratio
    held the truth in as few as 78 % of collections. This one holds every m for which total - m frequency is within its
    own error of 0, which is exact for normal estimates; it is not centred on the raw mean.

    Args:
        law: probabilities of the mechanism.
        padding: padding length.
        n: number of reports.
        raw: raw figures.
        total: unbiased estimate of frequency times mean, float64 (d,).
    """
    f = raw.frequency
    share = law.gap * np.clip(f, 0.0, 1.0) / padding
    # the variance of total - m f is fixed + slope m^2
    fixed = _Z95**2 * padding**2 * (law.b + share) / (n * law.trust**2)
    slope = _Z95**2 * padding**2 * (law.b - law.b**2 - share) / (n * law.gap**2)
    square = f**2 - slope
    inside = np.maximum((total * f) ** 2 - square * (total**2 - fixed), 0.0)
    bounded = (f > 0.0) & (square > 0.0)
    safe = np.where(bounded, square, 1.0)
    low = np.where(bounded, (total * f - np.sqrt(inside)) / safe, -1.0)
    high = np.where(bounded, (total * f + np.sqrt(inside)) / safe, 1.0)
    return np.clip(low, -1.0, 1.0), np.clip(high, -1.0, 1.0)


def _interval(centre: F64, error: F64, lowest: float) -> tuple[F64, F64]:
    """95 % interval, clipped to [lowest, 1]; the full range where there is no centre."""
    low = np.clip(centre - _Z95 * error, lowest, 1.0)
    high = np.clip(centre + _Z95 * error, lowest, 1.0)
    missing = np.isnan(centre)
    low[missing], high[missing] = lowest, 1.0
    return low, high
