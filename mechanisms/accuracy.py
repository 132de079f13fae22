"""How far estimates are from the truth: every figure by which the papers judge a mechanism, each defined here once.

All functions take arrays of the same shape, one entry a key, and leave out the keys whose true or estimated figure
does not exist (NaN). A figure that is not defined for what it was given is None, never NaN; `why_undefined` holds the
reasons by name.

Source:
    Relative errors and log MSE: Ye et al., PrivKV, IEEE S&P 2019, section 6. MSE over keys: Gu et al., PCKV, USENIX
    Security 2020, section 6. l1, squared l2, total variation: Murakami, Kawamoto, USENIX Security 2019, section 3.
    Precision of the most frequent keys: PCKV, section 6.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

import numpy as np
import numpy.typing as npt

from .data import F64, Bool

__all__ = [
    "TOP_SHARE",
    "Figures",
    "correlation",
    "frequency_figures",
    "mean_figures",
    "pearson",
    "precision",
    "relative_error",
    "top_keys",
]

#: Part of the keys, those with the largest true frequency, over which "top 10 %" figures are taken; at least one key.
TOP_SHARE: Final = 0.1
#: A spread below this part of the largest entry is rounding, not a spread.
_CONSTANT: Final = 1e-12

Figure = float | int | None


@dataclass(frozen=True, kw_only=True, eq=False)
class Figures:
    """Figures by name, and why some do not exist.

    Attributes:
        values: the figures; None where one is not defined.
        why_undefined: for each None, the reason.
    """

    values: Mapping[str, Figure]
    why_undefined: Mapping[str, str]

    def __or__(self, other: Figures) -> Figures:
        return Figures(
            values={**self.values, **other.values}, why_undefined={**self.why_undefined, **other.why_undefined}
        )


class _Collected:
    """Figures while they are computed; a text in the place of a figure is the reason why there is none."""

    def __init__(self, prefix: str) -> None:
        self._prefix = prefix
        self._values: dict[str, Figure] = {}
        self._reasons: dict[str, str] = {}

    def add(self, name: str, figure: float | int | str) -> None:
        full = f"{self._prefix}_{name}"
        self._values[full] = None if isinstance(figure, str) else figure
        if isinstance(figure, str):
            self._reasons[full] = figure

    def figures(self) -> Figures:
        return Figures(values=self._values, why_undefined=self._reasons)


def top_keys(frequency: F64, count: int | None = None) -> npt.NDArray[np.int64]:
    """Return the keys with the largest true frequency, the largest first; of equal ones those that come first.

    Args:
        frequency: true frequencies, (d,); keys without one come last.
        count: how many; the tenth part, rounded up, where none is given.
    """
    wanted = -(-len(frequency) // round(1 / TOP_SHARE)) if count is None else count
    return np.argsort(-np.nan_to_num(frequency, nan=-np.inf), kind="stable")[:wanted]


def relative_error(estimate: F64, truth: F64) -> float | None:
    """Median over the keys of |estimate - truth| / |truth|; keys whose true figure is 0 have no relative error.

    Args:
        estimate: estimated figures, (d,).
        truth: true figures, (d,).

    Returns:
        The median; None where no key has a true figure other than 0.

    Source:
        PrivKV, section 6.
    """
    usable = _known(estimate, truth) & (truth != 0.0)
    if not usable.any():
        return None
    return float(np.median(np.abs(estimate[usable] - truth[usable]) / np.abs(truth[usable])))


def pearson(x: F64, y: F64) -> float | None:
    """Pearson's correlation of two columns, over the rows where both exist.

    Returns:
        A number from -1 to 1; None with fewer than two rows, or where a column is constant.
    """
    usable = _known(x, y)
    if usable.sum() < 2:
        return None
    parts = [column[usable] - column[usable].mean() for column in (x, y)]
    sizes = [float(np.abs(column[usable]).max()) for column in (x, y)]
    if any(float(np.abs(part).max()) <= _CONSTANT * size for part, size in zip(parts, sizes, strict=True)):
        return None
    first, second = (part / np.abs(part).max() for part in parts)
    found = float((first * second).sum() / np.sqrt(np.square(first).sum() * np.square(second).sum()))
    return min(1.0, max(-1.0, found))


def precision(estimate: F64, truth: F64, count: int) -> float | None:
    """Share of the `count` keys with the largest estimates that are among the `count` truly largest.

    Args:
        estimate: estimated frequencies, (d,).
        truth: true frequencies, (d,).
        count: how many keys.

    Returns:
        A share; None where there are fewer keys than that.

    Source:
        PCKV, section 6: the most frequent keys.
    """
    if count < 1 or count > len(truth):
        return None
    return len(np.intersect1d(top_keys(estimate, count), top_keys(truth, count))) / count


def frequency_figures(estimate: F64, truth: F64, low: F64, high: F64, flagged: Bool) -> Figures:
    """Return the figures of estimated frequencies, their names beginning with "frequency_".

    Args:
        estimate: estimated frequencies, (d,).
        truth: true frequencies, (d,).
        low: lower ends of the intervals, (d,).
        high: upper ends, (d,).
        flagged: keys whose approximation is not trusted, (d,).

    Returns:
        "keys" compared, "mse", "log_mse", "l1", "l2_squared", "total_variation" (half of l1; a total variation only
        where the frequencies are a distribution), "relative_error" (median), "relative_error_top", "coverage",
        "coverage_trusted" (of the keys that are not flagged).
    """
    into = _Collected("frequency")
    _distances(into, estimate, truth)
    l1 = into.figures().values["frequency_l1"]
    into.add("total_variation", l1 / 2 if l1 is not None else _NOTHING)
    for name, some in (("relative_error", np.arange(len(truth))), ("relative_error_top", top_keys(truth))):
        found = relative_error(estimate[some], truth[some])
        into.add(name, found if found is not None else "the true frequency of every key is 0 or unknown")
    _coverage(into, truth, low, high, flagged)
    return into.figures()


def mean_figures(estimate: F64, truth: F64, low: F64, high: F64, flagged: Bool) -> Figures:
    """Return the figures of estimated means, their names beginning with "mean_"; see `frequency_figures`.

    Means have no relative error: it would depend on where the scale of the values has its 0.

    Returns:
        "keys" compared, "without_holders" (no true mean), "without_estimate", "mse", "log_mse", "l1", "l2_squared",
        "coverage", "coverage_trusted".
    """
    into = _Collected("mean")
    _distances(into, estimate, truth)
    into.add("without_holders", int(np.isnan(truth).sum()))
    into.add("without_estimate", int((np.isnan(estimate) & ~np.isnan(truth)).sum()))
    _coverage(into, truth, low, high, flagged)
    return into.figures()


def correlation(frequency: F64, mean: F64, true_frequency: F64, true_mean: F64) -> Figures:
    """Return how much of the correlation of keys and values is left in the estimates.

    Args:
        frequency: estimated frequencies, (d,).
        mean: estimated means, (d,).
        true_frequency: true frequencies, (d,).
        true_mean: true means, (d,).

    Returns:
        "correlation_true" and "correlation_estimated", Pearson's correlation of frequency and mean over the keys for
        which all four figures exist, and "correlation_kept", the second divided by the first.

    Source:
        PrivKV, section 6: key-value correlation.
    """
    into = _Collected("correlation")
    known = _known(frequency, mean) & _known(true_frequency, true_mean)
    true, estimated = pearson(true_frequency[known], true_mean[known]), pearson(frequency[known], mean[known])
    constant = "fewer than two keys have all figures, or a column of them is constant"
    into.add("true", constant if true is None else true)
    into.add("estimated", constant if estimated is None else estimated)
    if true is None or estimated is None:
        into.add("kept", constant)
    else:
        into.add("kept", estimated / true if abs(true) > _CONSTANT else "the true correlation is 0")
    return into.figures()


_NOTHING: Final = "no key has both a true and an estimated figure"


def _known(x: F64, y: F64) -> Bool:
    known: Bool = np.isfinite(x) & np.isfinite(y)
    return known


def _distances(into: _Collected, estimate: F64, truth: F64) -> None:
    known = _known(estimate, truth)
    into.add("keys", int(known.sum()))
    if not known.any():
        for name in ("mse", "log_mse", "l1", "l2_squared"):
            into.add(name, _NOTHING)
        return
    difference = estimate[known] - truth[known]
    mse = float(np.square(difference).mean())
    into.add("mse", mse)
    into.add("log_mse", float(np.log10(mse)) if mse > 0.0 else "the error is 0")
    into.add("l1", float(np.abs(difference).sum()))
    into.add("l2_squared", float(np.square(difference).sum()))


def _coverage(into: _Collected, truth: F64, low: F64, high: F64, flagged: Bool) -> None:
    bounded = np.isfinite(truth) & _known(low, high)
    held = (low <= truth) & (truth <= high)
    into.add("coverage", float(held[bounded].mean()) if bounded.any() else "no key has a true figure and an interval")
    trusted = bounded & ~flagged
    into.add("coverage_trusted", float(held[trusted].mean()) if trusted.any() else "every key is flagged")
