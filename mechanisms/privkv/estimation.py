"""The server's estimators of PrivKV, its rounds and KVUE: frequencies and means with error bars, from the counts.

Letters: N users drew the key in a round; a, b, p as in `KeyLaw`; x is the mean of the fake values of the round; f and
m are the key's frequency and mean. A +1 or -1 comes with probability a f + b (1 - f), and their signs add up to
(2p - 1)(a f m + b (1 - f) x) on average. So the published mean, the average of the signs over 2p - 1, is a mixture of
m and x, in which m has the weight a f / (a f + b (1 - f)). The raw mean solves for m instead, and error bars and
intervals are those of the raw figures.

Source:
    PrivKV, sections 4.2 (estimators), 5.1 and 5.3 (iterations, computed by the collector alone). The variance is
    ours, by the delta method; with one round and x = 0 it is PCKV's, theorem 6, for padding 1.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np

from ..data import F64, I64, Bool, Counts, Estimates
from .law import KeyLaw

__all__ = [
    "RoundCounts",
    "clipped_frequency",
    "publish",
    "published_mean",
    "raw_frequency",
    "raw_mean",
    "virtual_mean",
]

#: 97.5 % quantile of the normal distribution.
_Z95: Final = 1.959963984540054
#: Fewer expected true answers about a key than this are too few to trust its mean.
_FEW: Final = 30.0


@dataclass(frozen=True, kw_only=True, eq=False)
class RoundCounts:
    """What one round brought for all keys, (d,) each.

    Attributes:
        law: thresholds of the round.
        drawn: users who drew the key.
        plus: answers +1.
        minus: answers -1.
        fake: mean of the fake values.
    """

    law: KeyLaw
    drawn: I64 | F64
    plus: I64 | F64
    minus: I64 | F64
    fake: F64

    @classmethod
    def of(cls, law: KeyLaw, counts: Counts, fake: F64 | None = None) -> RoundCounts:
        """Take the counts of a round; without `fake` the client drew the fake values."""
        drawn = counts.cells["n_drawn"]
        means = np.full(len(drawn), law.initial) if fake is None else fake
        return cls(law=law, drawn=drawn, plus=counts.cells["n1"], minus=counts.cells["n2"], fake=means)

    @property
    def given(self) -> I64 | F64:
        """Answers with a sign."""
        return self.plus + self.minus


def _divide(numerator: F64 | I64, denominator: F64 | I64) -> F64:
    """Quotients; NaN where the denominator is 0 or below."""
    result = np.full(len(denominator), np.nan)
    np.divide(numerator, denominator, out=result, where=denominator > 0)
    return result


def raw_frequency(first: RoundCounts) -> tuple[F64, F64]:
    """Unbiased frequencies and their standard errors; NaN where nobody drew the key.

    Source:
        PrivKV, section 4.2: (p1 - 1 + f') / (2 p1 - 1).
    """
    law = first.law
    frequency = (_divide(first.given, first.drawn) - law.b) / law.gap
    share = law.b + law.gap * np.clip(frequency, 0.0, 1.0)
    return frequency, np.sqrt(_divide(share * (1.0 - share), first.drawn)) / law.gap


def clipped_frequency(first: RoundCounts, n: int) -> F64:
    """Frequencies clipped to [1/n, 1]; NaN where nobody drew the key."""
    return np.clip(raw_frequency(first)[0], 1.0 / max(n, 1), 1.0)


def published_mean(counts: RoundCounts) -> F64:
    """The published mean before anything is clipped: average sign over 2p - 1; NaN without any sign.

    The published calibration n_i* = ((p - 1) N + n_i) / (2p - 1) keeps n_1* + n_2* = N, so clipping both to [0, N]
    is clipping this quotient (n_1* - n_2*) / N to [-1, 1].
    """
    return _divide(counts.plus - counts.minus, counts.given) / counts.law.trust


def raw_mean(rounds: Sequence[RoundCounts]) -> tuple[F64, F64]:
    """Means solved from all rounds together, not clipped, and their standard errors.

    Rounds are weighted by (2p - 1)^2, since noise of size 1 / (2p - 1) dominates each answer; the frequency is that
    of the first round. Users are taken to be a random sample, and to be other ones in each round: each round draws
    the keys anew.

    Returns:
        NaN where the raw frequency is not positive.
    """
    frequency, error = raw_frequency(rounds[0])
    exists = np.nan_to_num(frequency, nan=-1.0) > 0.0
    f = np.where(exists, frequency, 1.0)
    weights = [part.law.trust**2 for part in rounds]
    total, fakes, holders = (np.zeros(len(f)) for _ in range(3))
    for weight, part in zip(weights, rounds, strict=True):
        total += weight * (part.plus - part.minus) / part.law.trust
        fakes += weight * part.drawn * part.law.b * part.fake
        holders += weight * part.drawn * part.law.a
    mean = _divide(total - (1.0 - f) * fakes, f * holders)
    mean[~exists] = np.nan
    inside = np.clip(np.where(exists, mean, 0.0), -1.0, 1.0)
    slope = (_divide(fakes, holders) - inside) / f
    variance = (slope * np.where(exists, error, 0.0)) ** 2
    for weight, part in zip(weights, rounds, strict=True):
        variance += weight**2 * _divide(_round_variance(part, f, inside), (f * holders) ** 2)
    variance += 2.0 * slope * weights[0] * _divide(_covariance(rounds[0], f, inside), f * holders)
    variance[~exists] = np.nan
    return mean, np.sqrt(np.maximum(variance, 0.0))


def _signs(part: RoundCounts, f: F64, m: F64) -> tuple[F64, F64]:
    """Probability of an answer with a sign, and the average sign over 2p - 1."""
    inside, law = np.clip(f, 0.0, 1.0), part.law
    return law.a * inside + law.b * (1.0 - inside), law.a * inside * m + law.b * (1.0 - inside) * part.fake


def _round_variance(part: RoundCounts, f: F64, m: F64) -> F64:
    """Variance of the sum of signs over 2p - 1 in one round."""
    share, average = _signs(part, f, m)
    variance: F64 = part.drawn * (share / part.law.trust**2 - average**2)
    return variance


def _covariance(first: RoundCounts, f: F64, m: F64) -> F64:
    """Covariance of that sum with the frequency, which comes from the same answers of the first round."""
    share, average = _signs(first, f, m)
    covariance: F64 = average * (1.0 - share) / first.law.gap
    return covariance


def virtual_mean(first: F64, law: KeyLaw, frequency: F64, rounds: int, *, half: bool) -> F64:
    """The mean after virtual rounds that the collector computes from one real round.

    Each virtual round would mix the mean of the round before into the fake values. Both readings tend to
    first / (1 - theta), the mean without the fakes' share.

    Args:
        first: published means of the real round, clipped, (d,).
        law: thresholds of the real round.
        frequency: frequencies clipped to [1/n, 1], (d,).
        rounds: number of virtual rounds.
        half: whether virtual rounds would spend nothing on the key (p1 = 1/2), as real rounds of PrivKVM do;
            otherwise they keep the first round's key perturbation.

    Source:
        PrivKV, section 5.3. The published display was not available: both readings are our interpretation.
    """
    fakes = law.b * (1.0 - frequency)
    theta = fakes / (law.a * frequency + fakes)
    left = theta * (1.0 - frequency) ** rounds if half else theta ** (rounds + 1)
    return np.clip(first * (1.0 - left) / (1.0 - theta), -1.0, 1.0)


def _interval(centre: F64, error: F64, lowest: float) -> tuple[F64, F64]:
    """95 % interval, clipped to [lowest, 1]; the full range where there is no centre."""
    low = np.clip(centre - _Z95 * error, lowest, 1.0)
    high = np.clip(centre + _Z95 * error, lowest, 1.0)
    missing = np.isnan(centre)
    low[missing], high[missing] = lowest, 1.0
    return low, high


def publish(
    n: int, rounds: Sequence[RoundCounts], frequency: F64 | None = None, mean: F64 | None = None, *, stale: Bool
) -> Estimates:
    """Put the estimates of all keys together.

    Args:
        n: reports of the first round.
        rounds: all rounds that were answered.
        frequency: frequencies to publish; None for the raw ones.
        mean: means to publish, NaN where there is none; None for the raw ones.
        stale: where the mean is that of an earlier round.

    Returns:
        Estimates with the flags "no-reports" (nobody drew the key), "no-signs" (no answer has a sign, so there is no
        mean), "few-holders", "clipped" and "earlier-round". Support is that of the first round.
    """
    first = rounds[0]
    frequency_raw, frequency_se = raw_frequency(first)
    mean_raw, mean_se = raw_mean(rounds)
    frequency_low, frequency_high = _interval(frequency_raw, frequency_se, 0.0)
    mean_low, mean_high = _interval(mean_raw, mean_se, -1.0)
    shown, shown_mean = frequency_raw if frequency is None else frequency, mean_raw if mean is None else mean
    silent = first.drawn == 0
    few = first.drawn * first.law.a * np.nan_to_num(shown) < _FEW
    few |= np.abs(np.nan_to_num(frequency_raw)) <= np.nan_to_num(frequency_se)
    clipped = (shown != frequency_raw) & ~silent
    if mean is not None:
        last = published_mean(rounds[-1])
        clipped |= np.isfinite(mean) & (np.abs(mean) >= 1.0) & (np.abs(np.nan_to_num(last)) > 1.0)
    nothing = np.full(len(silent), np.nan) if n == 0 else None
    return Estimates(
        n=n,
        frequency=shown,
        frequency_se=frequency_se,
        frequency_low=frequency_low if nothing is None else nothing,
        frequency_high=frequency_high if nothing is None else nothing,
        frequency_raw=frequency_raw,
        mean=shown_mean,
        mean_se=mean_se,
        mean_low=mean_low if nothing is None else nothing,
        mean_high=mean_high if nothing is None else nothing,
        mean_raw=mean_raw,
        support={
            name: counts.astype(np.int64)
            for name, counts in (("n1", first.plus), ("n2", first.minus), ("n_drawn", first.drawn))
        },
        flags={
            "no-reports": silent,
            "no-signs": (first.given == 0) & ~silent,
            "few-holders": few & ~silent,
            "clipped": clipped,
            "earlier-round": stale,
        },
    )
