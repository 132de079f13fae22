"""The length question: how many keys does a user hold? And what its answers tell of all users.

A record becomes one symbol, its number of keys, where everything from a declared cap on is one symbol; that goes
through the frequency oracle with the smallest error for so many symbols. Above 64 keys a symbol stands for lengths
within 10 % of each other, so that a large cap does not drown the answers in symbols that hardly anybody has.

The server's raw estimates of 65 shares add up to 1 and are mostly noise where people hold few keys. A padding length
depends on the far tail, in which noise weighs most, so the shares are estimated by empirical Bayes: what is believed of
a share is a mixture of exactly 0 and of many sizes, whose weights make the raw estimates most likely, with a penalty in
favour of 0. A share counts only if it is very unlikely to be 0. So isolated noise vanishes, and a broad distribution is
left as it is.

Source:
    Stephens, Biostatistics 2017 (adaptive shrinkage with a penalty in favour of 0).
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from decimal import Decimal
from typing import Final

import numpy as np

from ..categorical.base import FrequencyOracle
from ..categorical.grr import GRR
from ..categorical.subset_selection import SubsetSelection
from ..categorical.unary_encoding import OUE
from ..data import F64, I32, I64, Counts, Records

__all__ = ["CAP_MAX", "Lengths", "length_oracle", "length_symbols", "lengths_of", "of_sizes"]

#: Largest number of keys that the question tells apart from more.
CAP_MAX: Final = 1_000
#: Every length up to this one is a symbol of its own; above, a symbol's lengths differ by a tenth at most.
_EXACT: Final = 64
_STEP: Final = 1.1
_ORACLES: Final[tuple[type[FrequencyOracle], ...]] = (GRR, OUE, SubsetSelection)
#: Observations that speak for a share of exactly 0 before any is seen.
_PENALTY: Final = 10.0
#: A share counts if it is 0 with at most this probability.
_NOTHING: Final = 0.05
_SIZES: Final = 40
_EM_STEPS: Final = 200
#: A cumulative share whose standard error is larger tells nothing.
_ERROR_MAX: Final = 0.1


def length_symbols(cap: int) -> I64:
    """Return the smallest length of every symbol: 0, 1, …, and the cap, int64 (s,)."""
    starts = list(range(min(cap, _EXACT) + 1))
    while starts[-1] < cap:
        starts.append(min(cap, math.ceil(starts[-1] * _STEP)))
    return np.array(starts, dtype=np.int64)


def length_oracle(epsilon: Decimal, cap: int) -> FrequencyOracle:
    """Return the oracle with the smallest error for a typical share among the symbols of a cap."""
    symbols = len(length_symbols(cap))

    def error(oracle: FrequencyOracle) -> float:
        return oracle.predict(frequency=1.0 / symbols, users=1).frequency_se

    return min((kind(epsilon=epsilon, keys=symbols) for kind in _ORACLES), key=error)


def of_sizes(records: Records, cap: int) -> Records:
    """Return records that hold one symbol each, which tells the number of keys of the given ones, at most `cap`."""
    symbols: I32 = (np.searchsorted(length_symbols(cap), records.sizes, side="right") - 1).astype(np.int32)
    return Records(users=records.users, offsets=np.arange(records.n + 1, dtype=np.int64), keys=symbols)


@dataclass(frozen=True, kw_only=True, eq=False)
class Lengths:
    """What is believed of the number of keys that users hold.

    Attributes:
        sizes: number of keys that each symbol stands for, float64 (s,), rising; the last one is the cap.
        share: share of the users with each symbol, float64 (s,), adding up to 1.
        raw: the unbiased estimates behind it, which may be negative.
        answers: number of users who answered.
        error: standard error of the raw share of a length that nobody has.
    """

    sizes: F64
    share: F64
    raw: F64
    answers: int
    error: float

    @property
    def paddings(self) -> list[int]:
        """Padding lengths to choose from: one for each symbol but 0."""
        return [int(size) for size in self.sizes[1:]]

    @property
    def mean(self) -> float:
        """Mean number of keys, everything from the cap on counted as the cap."""
        return float(self.share @ self.sizes)

    @property
    def doubt(self) -> float:
        """Largest standard error of a raw cumulative share: at the middle, where half of the errors add up."""
        return self.error * float(np.sqrt(len(self.share) / 2.0))

    @property
    def enough(self) -> bool:
        """Whether enough users answered for a choice to mean anything."""
        return self.answers > 0 and self.doubt <= _ERROR_MAX and self.mean > 0.0

    @property
    def answers_needed(self) -> int:
        """Number of answers with which there would be enough."""
        return int(np.ceil(self.answers * (self.doubt / _ERROR_MAX) ** 2)) if self.answers else 0

    def kept(self, padding: int) -> float:
        """Return E[min(1, padding / size)] over the holders of a key: how much of a frequency a padding leaves.

        A holder of some key has s keys with a probability that grows with s (the size-biased distribution), if how
        many keys people hold says nothing of which ones.
        """
        return float(self.share @ np.minimum(self.sizes, padding)) / self.mean

    def percentile(self, percent: float) -> int:
        """Return the smallest length, at least 1, that so many per cent of the users do not exceed."""
        reached = np.flatnonzero(np.cumsum(self.share) >= percent / 100.0 - 1e-12)
        return max(1, int(self.sizes[int(reached[0]) if len(reached) else -1]))


def lengths_of(oracle: FrequencyOracle, counts: Counts, cap: int) -> Lengths:
    """Estimate the distribution of lengths from the counts of the answers.

    Args:
        oracle: what `length_oracle` returned.
        counts: its counts.
        cap: largest number of keys that is told apart from more.
    """
    starts = length_symbols(cap)
    sizes = np.append((starts[:-1] + starts[1:] - 1) / 2.0, float(cap))
    symbols = oracle.keys
    if counts.n == 0:
        even, unknown = np.full(symbols, 1.0 / symbols), np.full(symbols, np.nan)
        return Lengths(sizes=sizes, share=even, raw=unknown, answers=0, error=np.inf)
    found = oracle.estimate(counts, "empirical")
    least = oracle.predict(frequency=0.0, users=counts.n).frequency_se
    share = _denoised(found.frequency_raw, np.maximum(found.frequency_se, least))
    return Lengths(sizes=sizes, share=share, raw=found.frequency_raw, answers=counts.n, error=least)


def _denoised(raw: F64, error: F64) -> F64:
    """Posterior means of the shares that are very likely not 0, divided by their sum."""
    sizes = np.concatenate([[0.0], np.geomspace(0.5 * float(error.min()), 1.0, _SIZES)])
    logs = -0.5 * ((raw[:, None] - sizes) / error[:, None]) ** 2
    likelihood = np.exp(logs - logs.max(axis=1, keepdims=True))
    weights = np.full(len(sizes), 0.5 / _SIZES)
    weights[0] = 0.5
    for _ in range(_EM_STEPS):
        total = (likelihood * weights / (likelihood @ weights)[:, None]).sum(axis=0)
        total[0] += _PENALTY
        weights = total / (len(raw) + _PENALTY)
    belief = likelihood * weights / (likelihood @ weights)[:, None]
    share = np.where(belief[:, 0] <= _NOTHING, belief @ sizes, 0.0)
    if not share.any():
        share[int(np.argmax(raw))] = 1.0
    normalised: F64 = share / share.sum()
    return normalised
