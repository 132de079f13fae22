"""Frequencies that are drawn towards a prior although a padding may hide a part of them.

Of a list longer than the padding only a part is seen, and the truth is larger than what the reports show. The corrected
estimator, whose clipping makes rare keys too large, then errs less than one would think, and posterior means, which
come nearer to what is seen, may err more. How much is hidden the counts do not show. Three things follow:

* Nothing is hidden where nobody can hold more keys than the padding. A padding of 1 is for people of one pair each.
* The posterior means stay where they win even so. What they win against what is seen is known (Stein's estimate); every
  hidden key takes a part of it away; and the share of sampled pairs that are real tells how many keys are hidden on
  average, if lengths have a heavy tail. That share is noisy, so the number is averaged over all that the counts leave
  open of it: a share near 1 hides much, and noise as wide as everything very little beside itself.
* Elsewhere the corrected figures are projected onto the functions alpha + beta sqrt(g) + gamma g of the posterior means
  g. A projection comes nearer to *every* such function, so to every truth whose hidden part goes with what is seen in
  this way (evenly, in proportion, or more of the rare keys), however large it is. Only noise is taken away.

Source:
    Stein, Annals of Statistics 1981; Lomax, Journal of the American Statistical Association 1954 (the tail).
"""

from __future__ import annotations

from typing import Final

import numpy as np

from ..data import F64

__all__ = ["expected_hidden", "guarded"]

#: Shares that the average runs over.
_SHARES: Final = (np.arange(10_000) + 0.5) / 10_000


def guarded(padding: int, *, raw: F64, noise: F64, corrected: F64, posterior: F64, slope: F64, least: float) -> F64:
    """Return the posterior means, or the projection where hidden keys could make those worse than the corrected ones.

    Args:
        padding: padding length.
        raw: unbiased estimates of what is seen of each frequency, float64 (d,), as the others.
        noise: their variances.
        corrected: the raw ones, clipped to [least, 1].
        posterior: posterior means, clipped to the same.
        slope: derivative of each posterior mean in the raw estimate.
        least: smallest frequency that a key may have.
    """
    if padding == 1 or len(raw) <= padding:
        return posterior
    inside = (raw > least) & (raw < 1.0)
    gain = (corrected - raw) ** 2 - (posterior - raw) ** 2 - 2.0 * noise * (slope - inside)
    price = 2.0 * _each(posterior, corrected - posterior)
    hidden = expected_hidden(padding, len(raw), float(raw.sum()) / padding, float(np.sqrt(noise.sum())) / padding)
    if gain.sum() > hidden * price:
        return posterior
    return np.clip(_projected(corrected, posterior), least, 1.0)


def expected_hidden(padding: int, keys: int, share: float, error: float) -> float:
    """Return how many keys of a person the padding hides on average, given the share of sampled pairs that are real.

    Lengths are taken to exceed x with probability (1 + x / m)^-2: the heaviest tail of a whole exponent that has a
    mean, m. Then the share is m / (m + padding), and padding share^2 / (1 - share) keys are hidden. All shares are
    equally likely beforehand.

    Args:
        padding: padding length.
        keys: number of keys, which no length exceeds.
        share: unbiased estimate of the share.
        error: its standard error.
    """
    hidden = np.minimum(padding * _SHARES**2 / (1.0 - _SHARES), max(0, keys - padding))
    logs = -0.5 * ((_SHARES - share) / error) ** 2
    weight = np.exp(logs - logs.max())
    return float(weight @ hidden / weight.sum())


def _each(posterior: F64, above: F64) -> float:
    """By how much the corrected figures are above the posterior means where a hidden key may lie: at best for them.

    Hidden keys are spread in proportion to what is seen, or evenly.
    """
    return max(0.0, float(posterior @ above / posterior.sum()), float(above.mean()))


def _projected(corrected: F64, posterior: F64) -> F64:
    """Least squares of the corrected figures in 1, the root of the posterior means and these."""
    columns = np.stack([np.ones_like(posterior), np.sqrt(posterior), posterior], axis=1)
    columns /= np.linalg.norm(columns, axis=0)
    factors, *_ = np.linalg.lstsq(columns, corrected, rcond=None)
    return np.asarray(columns @ factors)
