"""The server's estimators for one symbol a user: from counts of supporting reports to shares of the symbols.

A report *supports* some of the d symbols. It supports symbol x with probability base_x + gain_x if its user holds x,
and with probability base_x if she holds another one; that is all that these estimators know of a mechanism. GRR, unary
encodings, local hashing, subset selection, Hadamard response and the utility-optimised mechanisms all have this form.

* ``empirical``: unbiased, may be negative.
* ``thresholded``: what is below the significance threshold becomes 0, and the mass that is left is shared equally
  among those symbols.
* ``em``: the most likely distribution, where every report supports one symbol only (GRR, uRR).
* ``composite-em``: the distribution that maximises the product of the symbols' binomial likelihoods, where reports
  support several symbols; what the counts alone do not tell are the dependencies between the symbols of one report.
* ``clip``: negative figures become 0, and all are divided by their sum.
* ``norm-sub``: the nearest distribution: one constant is subtracted from all, and what is then negative becomes 0.
* ``base-cut``: what is below the significance threshold becomes 0, all else stays as it is.

`joint_em` uses the reports themselves, not only their counts.

Source:
    Murakami, Kawamoto, USENIX Security 2019, section 5 (empirical, EM); Erlingsson, Pihur, Korolova, CCS 2014
    (significance threshold); Wang, Lopuhaa-Zwakenberg, Li, Skoric, Li, NDSS 2020 (norm-sub, base-cut).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from statistics import NormalDist
from types import MappingProxyType
from typing import Final

import numpy as np
import numpy.typing as npt

from ...errors import ParameterError, did_you_mean
from ..data import F64, I64, Bool, Estimates

__all__ = [
    "COMPOSITE_ESTIMATORS",
    "SET_ESTIMATORS",
    "SINGLE_ESTIMATORS",
    "Supports",
    "adjusted",
    "base_cut",
    "clip_and_renormalise",
    "composite_em",
    "estimate_shares",
    "joint_em",
    "most_likely",
    "norm_sub",
    "thresholded",
]

#: Estimators where every report supports one symbol.
SINGLE_ESTIMATORS: Final = ("empirical", "thresholded", "em", "clip", "norm-sub", "base-cut")
#: Estimators where a report supports several symbols.
COMPOSITE_ESTIMATORS: Final = ("empirical", "thresholded", "composite-em", "clip", "norm-sub", "base-cut")
#: Estimators for sets of items, whose shares do not add up to 1; "clip" moves each into [0, 1] on its own.
SET_ESTIMATORS: Final = ("empirical", "clip", "base-cut")

#: Level of the significance threshold before it is divided by the number of symbols.
ALPHA: Final = 0.05
_Z95: Final = 1.959963984540054
_FEW: Final = 30.0
_HALVINGS: Final = 200


@dataclass(frozen=True, kw_only=True, eq=False)
class Supports:
    """Counts of supporting reports and the probabilities behind them.

    Attributes:
        n: number of reports.
        counts: reports that support each symbol, int64 (d,).
        base: probability that a report supports the symbol though its user holds another, float64 (d,).
        gain: by how much holding the symbol raises that probability, float64 (d,), all positive.
        scale: padding length of item sets, from each of which one slot was drawn; 1 for one symbol a user.
    """

    n: int
    counts: I64
    base: F64
    gain: F64
    scale: float = 1.0

    @classmethod
    def alike(cls, n: int, counts: I64, own: float, other: float, *, scale: float = 1.0) -> Supports:
        """Return the supports of a mechanism that treats all symbols alike.

        Args:
            n: number of reports.
            counts: reports that support each symbol, int64 (d,).
            own: probability that a report supports its user's symbol.
            other: probability that it supports a given other symbol.
            scale: padding length of item sets.
        """
        d = len(counts)
        return cls(n=n, counts=counts, base=np.full(d, other), gain=np.full(d, own - other), scale=scale)

    def raw(self) -> F64:
        """Unbiased shares, not clipped, float64 (d,)."""
        share: F64 = self.scale * (self.counts / self.n - self.base) / self.gain
        return share

    def error(self, share: npt.ArrayLike) -> F64:
        """Standard error of the unbiased shares if the true ones were `share`, users being a random sample."""
        support = np.clip(self.base + self.gain * np.asarray(share, dtype=np.float64) / self.scale, 0.0, 1.0)
        error: F64 = self.scale * np.sqrt(support * (1.0 - support) / self.n) / self.gain
        return error

    def significance(self, alpha: float = ALPHA) -> F64:
        """Threshold that a share of 0 exceeds with probability alpha / d, by the normal approximation."""
        return self.quantile(len(self.counts), alpha) * self.error(0.0)

    @staticmethod
    def quantile(symbols: int, alpha: float = ALPHA) -> float:
        """Return how many standard errors one of so many symbols exceeds with probability alpha / symbols."""
        return -NormalDist().inv_cdf(alpha / symbols)


# -- from unbiased shares to distributions --------------------------------------------------------------------


def thresholded(raw: F64, threshold: F64) -> F64:
    """Set shares below their threshold to 0, then share what is left of 1 equally among those symbols.

    Where the others already exceed 1 nothing is left, and their sum stays as it is.
    """
    low = raw < threshold
    result = np.where(low, 0.0, raw)
    if low.any():
        result[low] = max(0.0, 1.0 - float(result.sum())) / int(low.sum())
    return result


def base_cut(raw: F64, threshold: F64) -> F64:
    """Set shares below their threshold to 0."""
    return np.where(raw < threshold, 0.0, raw)


def clip_and_renormalise(raw: F64) -> F64:
    """Set negative shares to 0 and divide all by their sum; all alike where none is positive."""
    positive = np.maximum(raw, 0.0)
    total = float(positive.sum())
    result: F64 = positive / total if total > 0.0 else np.full(len(raw), 1.0 / len(raw))
    return result


def norm_sub(raw: F64) -> F64:
    """Subtract the constant after which the positive shares add up to 1, and set the others to 0."""
    falling = np.sort(raw)[::-1]
    # with the k largest shares left the constant is (their sum - 1) / k; k is the last for which they stay positive
    constants = (np.cumsum(falling) - 1.0) / np.arange(1, len(raw) + 1)
    last = int(np.flatnonzero(falling > constants)[-1])
    result: F64 = np.maximum(raw - constants[last], 0.0)
    return result


# -- maximum likelihood ---------------------------------------------------------------------------------------


def most_likely(supports: Supports) -> F64:
    """Return the distribution under which the counts are most likely, where each report supports one symbol.

    It is the limit of the EM iteration x <- x (sum_y w_y base_y / r_y + w gain / r) with r = base + gain x and
    observed shares w, found directly: at the maximum every positive share is w / c - base / gain for one c.
    """
    w, ratio = supports.counts / supports.n, supports.base / supports.gain
    with np.errstate(divide="ignore"):
        leaves = np.divide(w, ratio, out=np.where(w > 0.0, np.inf, 0.0), where=ratio > 0.0)
    order = np.argsort(-leaves, kind="stable")
    # with the k last leavers positive, c = (their observed share) / (1 + sum of their ratios)
    constants = np.cumsum(w[order]) / (1.0 + np.cumsum(ratio[order]))
    positive = np.flatnonzero(leaves[order] > constants)
    c = constants[positive[-1]]
    share = np.maximum(w / c - ratio, 0.0)
    result: F64 = share / share.sum()
    return result


def composite_em(supports: Supports) -> F64:
    """Return the distribution that maximises the product over symbols of Binomial(n, base + gain x).

    The symbols hang together through the sum alone, so that for each value of its multiplier every share follows
    from a quadratic equation; the multiplier is found by halving.
    """
    w = supports.counts / supports.n

    def shares(multiplier: float) -> F64:
        b = multiplier + supports.gain
        root = np.sqrt(np.maximum(b * b - 4.0 * multiplier * supports.gain * w, 0.0))
        # gain (w - r) = multiplier r (1 - r); each form is free of cancellation on its side of b = 0
        with np.errstate(divide="ignore", invalid="ignore"):
            rate = np.where(b >= 0.0, 2.0 * supports.gain * w / (b + root), (b - root) / (2.0 * multiplier))
        rate = np.nan_to_num(rate, nan=0.0)
        return np.clip((rate - supports.base) / supports.gain, 0.0, 1.0)

    low, high = -1.0, 1.0
    for _ in range(_HALVINGS):  # rounding may keep a single symbol's share just below 1 for ever
        low, high = low * (2.0 if shares(low).sum() < 1.0 else 1.0), high * (2.0 if shares(high).sum() > 1.0 else 1.0)
    for _ in range(_HALVINGS):
        middle = (low + high) / 2.0
        low, high = (middle, high) if shares(middle).sum() > 1.0 else (low, middle)
    share = shares((low + high) / 2.0)
    result: F64 = share / share.sum()
    return result


def joint_em(
    support: npt.NDArray[np.bool_],
    supported: npt.ArrayLike,
    other: npt.ArrayLike,
    *,
    certain: I64 | None = None,
    iterations: int = 10_000,
    tolerance: float = 1e-9,
) -> F64:
    """Return the distribution under which the reports themselves are most likely, by EM.

    Args:
        support: which symbols each report supports, bool (n, d).
        supported: likelihood of a report for a symbol that it supports, up to a factor of the report's own; one
            number or float64 (d,). For unary encodings with bit probabilities p and q it is p / q.
        other: likelihood for a symbol that it does not support, up to the same factor; (1 - p) / (1 - q).
        certain: further reports, each of which only one symbol can have caused, by symbol, int64 (d,).
        iterations: largest number of iterations, each of three steps of EM.
        tolerance: stop when no share changes by more in one step.

    Returns:
        Shares that add up to 1, float64 (d,).

    Source:
        Varadhan, Roland: Simple and Globally Convergent Methods for Accelerating the Convergence of Any EM Algorithm,
        Scandinavian Journal of Statistics 2008.
    """
    n, d = support.shape
    known = np.zeros(d) if certain is None else certain.astype(np.float64)
    total = n + float(known.sum())
    if total == 0.0:
        return np.full(d, np.nan)
    rows = support.astype(np.float64)
    low = np.broadcast_to(np.asarray(other, dtype=np.float64), (d,))
    step = np.broadcast_to(np.asarray(supported, dtype=np.float64), (d,)) - low

    def update(share: F64) -> tuple[F64, float]:
        """One step of EM, and the log-likelihood before it."""
        likelihood = share @ low + rows @ (share * step)
        weight = 1.0 / likelihood
        new: F64 = (share * (low * weight.sum() + step * (weight @ rows)) + known) / total
        seen = known > 0.0
        return new, float(np.log(likelihood).sum() + known[seen] @ np.log(share[seen]))

    return _accelerated(update, np.full(d, 1.0 / d), iterations, tolerance)


def _accelerated(update: Callable[[F64], tuple[F64, float]], share: F64, iterations: int, tolerance: float) -> F64:
    """Iterate EM with squared extrapolation (SQUAREM): from two steps a third, longer one, unless that is worse."""
    for _ in range(iterations):
        first, _ = update(share)
        second, before = update(first)
        move, bend = first - share, second - 2.0 * first + share
        size = float(np.linalg.norm(bend))
        if float(np.abs(second - first).max()) < tolerance:
            return second
        length = max(1.0, float(np.linalg.norm(move)) / size) if size > 0.0 else 1.0
        # Never onto the boundary, which EM cannot leave.
        far = np.maximum(share + 2.0 * length * move + length**2 * bend, second * 1e-3)
        share, after = update(far / far.sum())
        if after < before:
            share = second
    return share


# -- all that a mechanism needs -------------------------------------------------------------------------------

_ADJUST: Final[Mapping[str, Callable[[Supports], F64]]] = MappingProxyType(
    {
        "empirical": lambda s: s.raw(),
        "thresholded": lambda s: thresholded(s.raw(), s.significance()),
        "em": most_likely,
        "composite-em": composite_em,
        "clip": lambda s: clip_and_renormalise(s.raw()) if s.scale == 1.0 else np.clip(s.raw(), 0.0, 1.0),
        "norm-sub": lambda s: norm_sub(s.raw()),
        "base-cut": lambda s: base_cut(s.raw(), s.significance()),
    }
)


def adjusted(supports: Supports, estimator: str) -> F64:
    """Return the shares that an estimator gives, float64 (d,); NaN without reports.

    Args:
        supports: counts of at least one symbol.
        estimator: "empirical", "thresholded", "em", "composite-em", "clip", "norm-sub" or "base-cut".

    Raises:
        ParameterError: for another name.
    """
    if estimator not in _ADJUST:
        raise ParameterError(f"estimator is {estimator!r}. {did_you_mean(str(estimator), _ADJUST)}")
    if supports.n == 0:
        return np.full(len(supports.counts), np.nan)
    return _ADJUST[estimator](supports)


def estimate_shares(supports: Supports, estimator: str, support: Mapping[str, I64]) -> Estimates:
    """Estimate all symbols at once, with standard errors, 95 % intervals and flags.

    Args:
        supports: counts and probabilities.
        estimator: a name that `adjusted` knows.
        support: counts to show beside the estimates, int64 (d,) each.

    Returns:
        Estimates without means. Standard errors and intervals are those of the unbiased shares, whatever the
        estimator. Flags: "no-reports"; "few-holders" where fewer than 30 reports are expected to stem from users who
        hold the symbol and show it, or the unbiased share lies within a standard error of 0; "clipped" where the
        estimator set a figure to 0, or moved it down to 1.
    """
    d = len(supports.counts)
    frequency = adjusted(supports, estimator)
    if supports.n == 0:
        nan, off = np.full(d, np.nan), np.zeros(d, dtype=np.bool_)
        flags = {"no-reports": ~off, "few-holders": off, "clipped": off}
        return _estimates(0, nan, nan, nan, nan, nan, support, flags)
    raw = supports.raw()
    error = supports.error(np.clip(raw, 0.0, 1.0))
    low, high = (np.clip(raw + sign * _Z95 * error, 0.0, 1.0) for sign in (-1, 1))
    shown = supports.n * (supports.base + supports.gain) * frequency / supports.scale
    flags = {
        "no-reports": np.zeros(d, dtype=np.bool_),
        "few-holders": (shown < _FEW) | (np.abs(raw) <= error),
        "clipped": (frequency != raw) & ((frequency <= 0.0) | (raw > 1.0)),
    }
    return _estimates(supports.n, frequency, error, low, high, raw, support, flags)


def _estimates(
    n: int,
    frequency: F64,
    error: F64,
    low: F64,
    high: F64,
    raw: F64,
    support: Mapping[str, I64],
    flags: Mapping[str, Bool],
) -> Estimates:
    return Estimates(
        n=n,
        frequency=frequency,
        frequency_se=error,
        frequency_low=low,
        frequency_high=high,
        frequency_raw=raw,
        support=support,
        flags=flags,
    )
