"""Looking for reports that no honest crowd sends: two tests of unary reports with a bounded rate of false alarms.

Fake users who want to push keys set the cells of their targets in every report. Two things give them away, whatever
the honest users hold:

* The number of set cells of an honest report is a sum of independent draws: d cells set with probability b, or d - 1
  of them and one with probability a. Fakes that set their targets alone have far too few set cells.
* An honest report has one own key at most, so that (x_i - b)(x_j - b) has the expectation 0 for any two cells i, j,
  set or not. Fakes that push several keys set them together.

Fakes that push a single key and fill their reports with noise like honest ones look like people who hold that key;
nothing here, or anywhere on a server, can tell them apart.

Source:
    The attacks: Cao, Jia, Gong: Data Poisoning Attacks to Local Differential Privacy Protocols, USENIX Security 2021;
    Wu, Cao, Jia, Gong: Poisoning Attacks to Local Differential Privacy Protocols for Key-Value Data, USENIX Security
    2022. The tests and their bounds are ours.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Final

import numpy as np
import numpy.typing as npt

from ..data import F64, I64, Counts, Reports
from ..protocol import Mechanism
from .law import Cells
from .laws import law_of

__all__ = ["FALSE_ALARM", "PAIR_KEYS_MAX", "Finding", "UnaryNull", "suspicious", "unary_null"]

#: Probability that a run over honest reports, whatever they hold, is called suspicious.
FALSE_ALARM: Final = 1e-6
#: Pairs of keys are looked at in domains of so many keys at most.
PAIR_KEYS_MAX: Final = 1_000
_BATCH_CELLS: Final = 1 << 23


@dataclass(frozen=True, kw_only=True)
class Finding:
    """Something that honest reports do not show.

    Attributes:
        what: in words.
        keys: keys that it is about, by index; empty where it is about reports as a whole.
        observed: number of reports, or of standard deviations for pairs.
        expected: at most so many are expected.
        fakes: rough number of fake reports that would explain it.
    """

    what: str
    keys: tuple[int, ...]
    observed: float
    expected: float
    fakes: int


@dataclass(frozen=True, kw_only=True)
class UnaryNull:
    """What honest unary reports look like.

    Attributes:
        keys: number of cells.
        a: probability that the own key's cell is set.
        b: probability that another cell is set.
    """

    keys: int
    a: float
    b: float

    @property
    def pairs(self) -> bool:
        """Whether pairs of keys are looked at."""
        return 1 < self.keys <= PAIR_KEYS_MAX

    def zero(self) -> Counts:
        """Statistics of no reports; they add up like counts."""
        cells = {"set_cells": np.zeros(self.keys + 1, dtype=np.int64), "set": np.zeros(self.keys, dtype=np.int64)}
        if self.pairs:
            cells["together"] = np.zeros(self.keys * self.keys, dtype=np.int64)
        return Counts(n=0, cells=cells)

    def count(self, reports: Reports) -> Counts:
        """Return the statistics of valid reports."""
        total = self.zero()
        step = max(1, _BATCH_CELLS // self.keys)
        for start in range(0, reports.n, step):
            cells = self._cells(reports, start, start + step)
            total.cells["set_cells"][...] += np.bincount(cells.sum(axis=1, dtype=np.int64), minlength=self.keys + 1)
            total.cells["set"][...] += cells.sum(axis=0, dtype=np.int64)
            if self.pairs:  # whole numbers below 2^24 are exact in single precision
                wide = cells.astype(np.float32)
                total.cells["together"][...] += np.rint(wide.T @ wide).astype(np.int64).reshape(-1)
        return Counts(n=reports.n, cells=total.cells)

    def _cells(self, reports: Reports, start: int, stop: int) -> npt.NDArray[np.uint8]:
        joined: npt.NDArray[np.uint8] | None = None
        for _, plane in sorted(reports.arrays.items()):
            rows = np.ascontiguousarray(plane[start:stop]).view(np.uint8)
            joined = rows if joined is None else joined | rows
        assert joined is not None
        return np.unpackbits(joined, axis=1, count=self.keys, bitorder="little")


def unary_null(mechanism: Mechanism) -> UnaryNull | None:
    """Return what honest reports of a mechanism look like; None where its reports are not unary."""
    laws = law_of(mechanism)
    if len(laws) != 1 or not isinstance(laws[0].form, Cells):
        return None
    form = laws[0].form
    own = {1 - law["0"] for law in form.own.values()}
    planes = all(part.dtype == "uint8" and 8 * part.width >= mechanism.keys for part in mechanism.layout())
    if len(own) != 1 or not planes:
        return None
    return UnaryNull(keys=mechanism.keys, a=float(own.pop()), b=float(1 - form.other["0"]))


def suspicious(null: UnaryNull, statistics: Counts, *, false_alarm: float = FALSE_ALARM) -> list[Finding]:
    """Test reports against what an honest crowd can send.

    Args:
        null: what honest reports look like.
        statistics: of the reports, from `UnaryNull.count`.
        false_alarm: probability of any finding if all reports are honest; half of it for each test.

    Returns:
        Findings, the strongest first. None is no proof of honesty.
    """
    if not statistics.n:
        return []
    found = _numbers(null, statistics, false_alarm / 2)
    if null.pairs:
        found += _together(null, statistics, false_alarm / 2)
    return found


# -- the number of set cells ----------------------------------------------------------------------------------------


def _numbers(null: UnaryNull, statistics: Counts, false_alarm: float) -> list[Finding]:
    """Compare both tails of the number of set cells with the larger of the two laws that honest reports mix."""
    n, histogram = statistics.n, statistics.cells["set_cells"]
    dummy = _binomial(null.keys, null.b)
    own = np.convolve(_binomial(null.keys - 1, null.b), [1 - null.a, null.a])
    allowed = false_alarm / (2 * (null.keys + 1))
    found = []
    for side, words in ((1, "at most"), (-1, "at least")):
        tails = np.maximum(np.cumsum(dummy[::side]), np.cumsum(own[::side]))
        observed = np.cumsum(histogram[::side])
        excess = [(number, *one) for number, one in enumerate(zip(observed.tolist(), tails.tolist(), strict=True))]
        worst = min(excess, key=lambda one: _log_tail(n, one[1], one[2]))
        if _log_tail(n, worst[1], worst[2]) < math.log(allowed):
            cells = worst[0] if side == 1 else null.keys - worst[0]
            found.append(
                Finding(
                    what=f"reports with {words} {cells} of {null.keys} cells set",
                    keys=(),
                    observed=worst[1],
                    expected=n * worst[2],
                    fakes=round(worst[1] - n * worst[2]),
                )
            )
    return found


def _binomial(n: int, p: float) -> F64:
    """Probabilities of 0 to n successes."""
    k = np.arange(n + 1)
    log_choose = math.lgamma(n + 1) - np.array([math.lgamma(i + 1) + math.lgamma(n - i + 1) for i in range(n + 1)])
    result: F64 = np.exp(log_choose + k * math.log(p) + (n - k) * math.log1p(-p))
    return result


def _log_tail(n: int, successes: int, p: float) -> float:
    """Chernoff's bound of ln Pr[Binomial(n, p) >= successes]; exact enough, and never too small."""
    share = successes / n
    if share <= p:
        return 0.0
    if p <= 0:
        return -math.inf
    divergence = share * math.log(share / p) + ((1 - share) * math.log((1 - share) / (1 - p)) if share < 1 else 0.0)
    return -n * divergence


# -- keys that are set together ----------------------------------------------------------------------------------------


def _together(null: UnaryNull, statistics: Counts, false_alarm: float) -> list[Finding]:
    """Find pairs of keys that are set together more often than one own key a report allows."""
    n, b = statistics.n, null.b
    set_, both = statistics.cells["set"].astype(np.float64), statistics.cells["together"]
    excess = both.reshape(null.keys, null.keys) - b * (set_[:, None] + set_[None, :]) + n * b * b
    limit = _bernstein(null, n, false_alarm / (null.keys * (null.keys - 1) / 2))
    first, second = np.nonzero(np.triu(excess > limit, k=1))
    if not len(first):
        return []
    strongest = np.argsort(-excess[first, second])
    keys: I64 = np.unique(np.concatenate([first, second]))
    top = float(excess[first, second][strongest[0]])
    return [
        Finding(
            what=f"{len(first)} pairs of keys that are set together too often",
            keys=tuple(keys.tolist()),
            observed=top,
            expected=limit,
            fakes=round(top / (1 - b) ** 2),
        )
    ]


def _bernstein(null: UnaryNull, n: int, false_alarm: float) -> float:
    """Bound that the sum of (x_i - b)(x_j - b) over n honest reports exceeds with this probability at most."""
    a, b = null.a, null.b
    own = a * (1 - b) ** 2 + (1 - a) * b**2
    variance = b * (1 - b) * max(b * (1 - b), own)
    largest = max((1 - b) ** 2, b**2)
    log = -math.log(false_alarm)
    # Pr[sum > t] <= exp(-t^2 / (2 (n variance + largest t / 3))), solved for t
    return largest * log / 3 + math.sqrt((largest * log / 3) ** 2 + 2 * n * variance * log)
