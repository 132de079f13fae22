"""Making key-value estimates consistent with what is known: post-processing, off by default.

Each frequency lies in [0, 1]. If nobody holds more keys than the padding, all frequencies together are at most the
padding; they do not sum to 1 unless everybody holds exactly one key. Means are those of the corrected estimator.

Source:
    Wang, Lopuhaa-Zwakenberg, Li, Skoric, Li, NDSS 2020 (norm-sub, base-cut, there for shares that sum to 1).
"""

from __future__ import annotations

from dataclasses import replace
from statistics import NormalDist
from typing import Final

import numpy as np

from ..data import F64, Estimates
from .theory import Probabilities, frequency_variance

__all__ = ["ALPHA", "base_cut", "norm_sub"]

#: Level of the significance threshold before it is divided by the number of keys.
ALPHA: Final = 0.05
_HALVINGS: Final = 200


def norm_sub(padding: int, corrected: Estimates) -> Estimates:
    """Move the frequencies to the nearest ones of [0, 1] whose sum is at most the padding.

    One constant is subtracted from all, and what is then negative becomes 0; nothing is subtracted where the sum is
    small enough already.

    Args:
        padding: padding length, which nobody's number of keys may exceed.
        corrected: what the corrected estimator gives.
    """
    if corrected.n == 0:
        return corrected
    return replace(corrected, frequency=_at_most(corrected.frequency_raw, float(padding)))


def _at_most(raw: F64, total: float) -> F64:
    low, high = 0.0, max(float(raw.max()), 0.0)
    if np.clip(raw, 0.0, 1.0).sum() <= total:
        return np.clip(raw, 0.0, 1.0)
    for _ in range(_HALVINGS):
        middle = (low + high) / 2.0
        low, high = (middle, high) if np.clip(raw - middle, 0.0, 1.0).sum() > total else (low, middle)
    return np.clip(raw - high, 0.0, 1.0)


def base_cut(law: Probabilities, padding: int, corrected: Estimates) -> Estimates:
    """Set frequencies that noise alone could have produced to 0, and give their keys no mean.

    The threshold is exceeded by one of all keys that nobody holds with a probability of about 5 %.

    Args:
        law: probabilities of the mechanism.
        padding: padding length.
        corrected: what the corrected estimator gives.
    """
    if corrected.n == 0 or corrected.mean is None:
        return corrected
    quantile = NormalDist().inv_cdf(1.0 - ALPHA / len(corrected.frequency))
    threshold = quantile * np.sqrt(frequency_variance(law, padding, 0.0, corrected.n))
    cut = corrected.frequency_raw < threshold
    return replace(
        corrected,
        frequency=np.where(cut, 0.0, np.minimum(corrected.frequency_raw, 1.0)),
        mean=np.where(cut, np.nan, corrected.mean),
    )
