"""uRAP, utility-optimised RAPPOR: one bit for every symbol, noise on the bits of the sensitive ones alone.

The own bit of a sensitive symbol is set with probability theta, any other sensitive bit with
d1 = theta / ((1 - theta) e^epsilon + theta), also for users of other symbols. Of the other bits only the own one may be
set, with probability 1 - d2, d2 = ((1 - theta) e^epsilon + theta) / e^epsilon.

So at most one of those bits is set, and a report holds the sensitive bits and the number of that bit: the same
information in fewer bytes.

Source:
    Murakami, Kawamoto: Utility-Optimized Local Differential Privacy Mechanisms for Distribution Estimation, USENIX
    Security 2019, section 4.2.
"""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from decimal import Decimal
from fractions import Fraction
from typing import ClassVar, Final

import numpy as np

from ...errors import ParameterError
from ..categorical.base import has_layout
from ..categorical.estimation import COMPOSITE_ESTIMATORS, Supports, joint_em
from ..data import F64, I32, I64, Bool, Field, Reports
from ..probability import EXACT, WORDS, budget_ratio, largest_threshold, round_down
from ..randomness import U64, BlockSource
from ..unary import column_sums, row_words, set_cells, set_noise, wide_rows
from .core import Core, UtilityOptimised, parse_theta, threshold_share
from .definition import SymbolSets

__all__ = ["URAP", "BitsCore"]

#: Most sensitive symbols: a report of them has 12.5 KB.
_SENSITIVE_MAX: Final = 100_000


class BitsCore(Core):
    """uRAP over the symbols of `sets`: the sensitive bits, and which other bit is set."""

    estimators: ClassVar[tuple[str, ...]] = COMPOSITE_ESTIMATORS

    def __init__(self, sets: SymbolSets, epsilon: Decimal, theta: Decimal | None) -> None:
        """Round theta down, then find the nearest other thresholds of 64 bits that epsilon allows.

        Raises:
            ParameterError: for more sensitive symbols than a report can hold.
        """
        if sets.number > _SENSITIVE_MAX:
            raise ParameterError(
                f"There are {sets.number:,} sensitive keys, but urap has room for {_SENSITIVE_MAX:,}; use urr."
            )
        self.sets = sets
        self._own, self._other, self._shown = _thresholds(epsilon, theta)
        self._width, self._words = -(-sets.number // 8), row_words(sets.number)

    def thresholds(self) -> Mapping[str, int]:
        """Thresholds of 2^64: own sensitive bit, another sensitive bit, own other bit set."""
        return {
            "own_sensitive": self._own,
            "other_sensitive": self._other,
            "own_other": self._shown,
            "sensitive": self.sets.number,
        }

    def parameters(self) -> Mapping[str, float]:
        """theta, d1, d2 of the paper and the number of sensitive symbols."""
        theta, d1 = threshold_share(self._own), threshold_share(self._other)
        d2 = threshold_share(WORDS - self._shown)
        return {"theta": theta, "d1": d1, "d2": d2, "sensitive": float(self.sets.number)}

    def channel(self) -> tuple[list[dict[object, Fraction]], list[int], list[object]]:
        """The law over two sensitive and two other symbols, all bits of which are listed."""
        u, others = min(2, self.sets.number), min(2, self.sets.size - self.sets.number)
        rows: list[dict[object, Fraction]] = []
        for x in range(u + others):
            set_ = [self._chance(i == x, sensitive=i < u) for i in range(u + others)]
            row: dict[object, Fraction] = {}
            for bits in itertools.product((0, 1), repeat=u + others):
                chance = Fraction(1)
                for bit, one in zip(bits, set_, strict=True):
                    chance *= one if bit else 1 - one
                if chance:
                    row[bits] = chance
            rows.append(row)
        protected: list[object] = [(*bits, *(0,) * others) for bits in itertools.product((0, 1), repeat=u)]
        return rows, list(range(u)), protected

    def _chance(self, own: bool, *, sensitive: bool) -> Fraction:
        """Probability that a bit is set."""
        if sensitive:
            return Fraction(self._own if own else self._other, WORDS)
        return Fraction(self._shown if own else 0, WORDS)

    def layout(self) -> tuple[Field, ...]:
        """`bits`: of the sensitive symbols, little bit order, padded with 0; `other`: which other bit is set, or -1."""
        return Field(name="bits", dtype="uint8", width=self._width), Field(name="other", dtype="int32")

    @property
    def row_words(self) -> int:
        """Words of a row of sensitive bits, whole blocks."""
        return self._words

    def empty(self, n: int) -> Reports:
        """Room for n reports; the rows of bits are views of rows of whole blocks."""
        rows = np.empty((n, self._words), dtype="<u8")
        return Reports(
            n=n, arrays={"bits": rows.view(np.uint8)[:, : self._width], "other": np.empty(n, dtype=np.int32)}
        )

    def obfuscate(self, symbols: I32, seeds: U64, words: U64, source: BlockSource, out: Reports) -> None:
        """Set the sensitive bits of all users at once, then the own bit of each."""
        cells = set_noise(seeds, self._other, self.sets.number, source)
        place, fate = self.sets.place[symbols], words[:, 0]
        users = np.flatnonzero(place >= 0)
        set_cells(users, place[users], (cells, fate[users] < np.uint64(self._own)))
        if self.sets.number % 8:
            cells[:, (self.sets.number - 1) // 64] &= np.uint64((1 << ((self.sets.number - 1) % 64 + 1)) - 1)
        out.arrays["bits"][:] = cells.view(np.uint8)[:, : self._width]
        shown = (place < 0) & (fate < np.uint64(self._shown))
        out.arrays["other"][:] = np.where(shown, symbols, np.int32(-1))

    def valid(self, reports: Reports) -> Bool:
        """Which reports have no padding bit, and no sensitive symbol as the other bit."""
        other = np.asarray(reports.arrays["other"], dtype=np.int32)
        good: Bool = (other >= -1) & (other < self.sets.size)
        good &= np.append(self.sets.place, np.int32(-1))[np.where(good, other, -1)] < 0
        if self.sets.number % 8:
            padding = np.uint8(0xFF << self.sets.number % 8 & 0xFF)
            good &= (np.asarray(reports.arrays["bits"], dtype=np.uint8)[:, -1] & padding) == 0
        return good

    def add(self, reports: Reports, counts: I64) -> None:
        """Add how often the bit of each symbol is set."""
        rows = wide_rows(np.asarray(reports.arrays["bits"], dtype=np.uint8), self.sets.number)
        counts[self.sets.sensitive] += column_sums(rows)[: self.sets.number]
        other = np.asarray(reports.arrays["other"], dtype=np.int32)
        shown = other[other >= 0]
        if self.sets.size <= len(shown):
            counts += np.bincount(shown, minlength=self.sets.size)
        else:
            np.add.at(counts, shown, 1)

    def supports(self, n: int, counts: I64) -> Supports:
        """A report supports the symbols whose bits are set."""
        theta, d1, shown = (threshold_share(t) for t in (self._own, self._other, self._shown))
        sensitive = self.sets.place >= 0
        return Supports(
            n=n, counts=counts, base=np.where(sensitive, d1, 0.0), gain=np.where(sensitive, theta - d1, shown)
        )

    def covariance(self, supports: Supports, shares: F64) -> tuple[F64, F64]:
        """Given the symbol the bits are independent, so that only the true shares make estimates hang together."""
        error = supports.error(shares)
        return error * error + shares * shares / supports.n, shares

    def joint_shares(self, reports: Reports, iterations: int, tolerance: float) -> F64:
        """The shares under which the reports themselves are most likely, float64 (size,)."""
        theta, d1, shown = (threshold_share(t) for t in (self._own, self._other, self._shown))
        sensitive = self.sets.place >= 0
        other = np.asarray(reports.arrays["other"], dtype=np.int32)
        hidden = other < 0
        bits = np.unpackbits(np.asarray(reports.arrays["bits"], dtype=np.uint8)[hidden], axis=1, bitorder="little")
        support = np.zeros((len(bits), self.sets.size), dtype=np.bool_)
        support[:, self.sets.sensitive] = bits[:, : self.sets.number]
        return joint_em(
            support,
            np.where(sensitive, theta / d1, 1.0),
            np.where(sensitive, (1.0 - theta) / (1.0 - d1), 1.0 - shown),
            certain=np.bincount(other[~hidden], minlength=self.sets.size),
            iterations=iterations,
            tolerance=tolerance,
        )


def _thresholds(epsilon: Decimal, theta: Decimal | None) -> tuple[int, int, int]:
    """Thresholds for theta, d1 and 1 - d2 with both ratios of the definition within the budget."""
    if theta is None:
        root = EXACT.exp(EXACT.divide(epsilon, Decimal(2)))
        theta = EXACT.divide(root, EXACT.add(root, Decimal(1)))
    own, budget = round_down(theta), budget_ratio(epsilon)
    # Two sensitive symbols: theta (1 - d1) <= e^epsilon d1 (1 - theta); fewer set bits would break it.
    low = largest_threshold(1, WORDS - 1, lambda t: own * t <= budget * (WORDS - t) * (WORDS - own))
    other = WORDS - low
    # A sensitive and another symbol: theta <= e^epsilon d1 d2.
    shown = largest_threshold(0, WORDS - 1, lambda t: own * WORDS <= budget * other * (WORDS - t))
    if not other < own or not shown:
        raise ParameterError("theta leaves nothing to learn from the reports at this epsilon; leave it out.")
    return own, other, shown


@dataclass(frozen=True, kw_only=True, init=False)
class URAP(UtilityOptimised):
    """uRAP: a report is a bit for every sensitive key, and at most one other key.

    Better than uRR for many sensitive keys or small epsilon.

    Attributes:
        theta: probability that the own bit of a sensitive key is set; None for e^(epsilon/2) / (e^(epsilon/2) + 1).

    Privacy:
        (sensitive keys, reports without another key, epsilon)-ULDP for the whole record: a user who holds a sensitive
        key enjoys epsilon-LDP; a user who holds none may reveal one of her keys, and that she holds no sensitive one.

    Source:
        Murakami and Kawamoto, section 4.2.
    """

    name: ClassVar[str] = "urap"
    estimators: ClassVar[tuple[str, ...]] = BitsCore.estimators

    theta: Decimal | None
    _core: BitsCore = field(init=False, repr=False, compare=False)

    def __init__(
        self,
        *,
        epsilon: Decimal | int | float | str,
        keys: int,
        sensitive: Sequence[int],
        theta: Decimal | float | str | None = None,
    ) -> None:
        """Check the parameters and compute the thresholds.

        Args:
            epsilon: privacy budget of one report, in [0.001, 20].
            keys: number of keys of the domain.
            sensitive: indices of the sensitive keys, at least one.
            theta: probability that the own bit of a sensitive key is set.

        Raises:
            ParameterError: for a parameter outside what is allowed.
        """
        sets = self._prepare(epsilon, keys, sensitive)
        object.__setattr__(self, "theta", parse_theta(theta))
        object.__setattr__(self, "_core", BitsCore(sets, self.epsilon, self.theta))

    def joint_shares(self, reports: Reports, *, iterations: int = 10_000, tolerance: float = 1e-9) -> F64:
        """The joint EM estimate, which needs the reports and not only their counts.

        Args:
            reports: all valid reports of the collection.
            iterations: largest number of iterations.
            tolerance: stop when no share changes by more in one iteration.

        Returns:
            Shares that add up to 1, float64 (keys,).
        """
        if not has_layout(self, reports):
            raise ValueError("these are not reports of this mechanism")
        return self._core.joint_shares(reports, iterations, tolerance)
