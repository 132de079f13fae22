"""Generalised randomised response: a report is one symbol, the user's own or another one drawn uniformly.

Source:
    Kairouz, Bonawitz, Ramage: Discrete Distribution Estimation under Local Privacy, ICML 2016 (k-RR); Warner, 1965,
    for two symbols; Wang, Li, Jha, IEEE S&P 2018, section IV, for item sets and what padding adds to their privacy.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from decimal import Decimal
from fractions import Fraction
from functools import lru_cache
from typing import ClassVar, Final

import numpy as np
import numpy.typing as npt

from .. import compiled
from ..data import I32, Bool, Counts, Field, Records, Reports
from ..probability import EXACT, WORDS, budget_ratio, largest_threshold, log_up, round_down
from ..randomness import U64, Stream, mulhi
from .base import FrequencyOracle, SetOracle, draw_share, sample_padded, sample_symbol
from .estimation import SINGLE_ESTIMATORS

__all__ = ["GRR", "PSFOGRR", "RR", "grr_ratio", "psfo_grr_ratio"]

_KEYS: Final = 1_000_000


def grr_ratio(kept: int, keys: int) -> Fraction:
    """Return the largest ratio of the probabilities of one report under two records, GRR.

    Args:
        kept: a word below it reports the drawn symbol.
        keys: size of the domain, at least 2.
    """
    own, moved = Fraction(kept, WORDS), Fraction(WORDS - kept, WORDS)
    low, high = (moved * share for share in draw_share(keys - 1))
    return max(own, high) / min(own, low)


def psfo_grr_ratio(kept: int, keys: int, padding: int) -> Fraction:
    """Return the same for padding and sampling with GRR over the keys and `padding` dummies, which are written alike.

    A slot of the record is drawn by ceil(2^64 / padding) words at most; then the numerator grows to the share of its
    own symbol, while a record without that key gives it only as another one.
    """
    own, moved = Fraction(kept, WORDS), Fraction(WORDS - kept, WORDS)
    others = keys + padding - 1
    low, high = (moved * share for share in draw_share(others))
    slot = draw_share(padding)[1]
    ratio = max(slot * own + (1 - slot) * high, high) / min(own, low)
    # of a dummy's others the keys come first and then the other dummies; a key's others hold all dummies
    from_dummy = own + moved * _at_least(keys, others)
    from_key = moved * _at_least(keys - 1, others)
    return max(ratio, max(from_dummy, from_key) / min(from_dummy, from_key))


def _at_least(index: int, bound: int) -> Fraction:
    """Probability that a uniform draw of `bound` integers is at least `index`."""
    return 1 - Fraction(-(-WORDS * index // bound), WORDS)


def _threshold(epsilon: Decimal, weight: Decimal, others: int, ratio: Callable[[int], Fraction]) -> int:
    """Return weight / (weight + others) of 2^64, lowered until the ratio is within e^epsilon."""
    start, limit = round_down(EXACT.divide(weight, EXACT.add(weight, Decimal(others)))), budget_ratio(epsilon)
    even = WORDS // (others + 1)  # below it the other symbols would be the likelier ones
    return largest_threshold(max(start // 2, even), start, lambda kept: ratio(kept) <= limit)


@lru_cache(maxsize=256)
def _grr_threshold(epsilon: Decimal, keys: int) -> int:
    return _threshold(epsilon, EXACT.exp(epsilon), keys - 1, lambda kept: grr_ratio(kept, keys))


@lru_cache(maxsize=256)
def _psfo_threshold(epsilon: Decimal, keys: int, padding: int) -> int:
    amplified = EXACT.add(EXACT.multiply(Decimal(padding), EXACT.subtract(EXACT.exp(epsilon), Decimal(1))), Decimal(1))
    return _threshold(epsilon, amplified, keys + padding - 1, lambda kept: psfo_grr_ratio(kept, keys, padding))


class _OneSymbol(FrequencyOracle):
    """What the reports of both mechanisms share: one index, of which `keys` and above stand for no key."""

    keys_max: ClassVar[int] = _KEYS
    #: Number of indices that a report may hold beyond the keys.
    _beyond: ClassVar[int] = 0

    _kept: int

    def layout(self) -> tuple[Field, ...]:
        """`key`: index of the reported symbol."""
        return (Field(name="key", dtype="int32"),)

    @property
    def _others(self) -> int:
        """Number of symbols that may be reported instead of the drawn one."""
        return self.keys - 1

    @property
    def own(self) -> Fraction:
        """Probability that the drawn symbol is reported."""
        return Fraction(self._kept, WORDS)

    @property
    def other(self) -> Fraction:
        """Probability that a given other symbol is reported."""
        return Fraction(WORDS - self._kept, WORDS * self._others)

    def likelihoods(self) -> tuple[float, float]:
        """Return a report's likelihood for the symbol that it names and for another."""
        return float(self.own), float(self.other)

    def thresholds(self) -> Mapping[str, int]:
        """Threshold of 2^64 below which the drawn symbol is reported, and the number of other symbols."""
        return {"kept": self._kept, "other_keys": self._others}

    def _respond(self, own: I32, blocks: U64, out: I32) -> None:
        """Write the reported symbols: own ones where a word is below the threshold, else uniform other ones."""
        if (loops := compiled.loops(len(out))) is not None:
            loops.draw(np.ascontiguousarray(own), blocks[0], np.uint64(self._others), np.uint64(self._kept), out)
            return
        out[...] = mulhi(blocks[0, :, 0], self._others).view(np.int64)
        out += out >= own
        np.copyto(out, own, where=blocks[0, :, 1] < np.uint64(self._kept))

    def _plausible(self, reports: Reports) -> Bool:
        key = np.asarray(reports.arrays["key"], dtype=np.int32)
        good: Bool = (key >= 0) & (key < self.keys + self._beyond)
        return good

    def count(self, reports: Reports, into: Counts | None = None) -> Counts:
        """Count the reports of every symbol.

        Args:
            reports: valid reports.
            into: a counter of the caller's own, updated in place.
        """
        total = self.zero() if into is None else into
        key = np.asarray(reports.arrays["key"], dtype=np.int32)
        if self.keys <= reports.n:
            total.cells["supports"][...] += np.bincount(key, minlength=self.keys)[: self.keys]
        else:
            np.add.at(total.cells["supports"], key[key < self.keys], 1)
        return Counts(n=total.n + reports.n, cells=total.cells)

    def supported(self, reports: Reports) -> npt.NDArray[np.bool_]:
        """Return which symbol each report names, bool (n, keys)."""
        same: Bool = np.asarray(reports.arrays["key"], dtype=np.int32)[:, None] == np.arange(self.keys)
        return same


class GRR(_OneSymbol):
    """Generalised randomised response, k-RR: best for small domains, up to about 3 e^epsilon symbols.

    Privacy:
        epsilon-LDP for the whole record: an own symbol is e^epsilon times as likely as any other.

    Source:
        Kairouz, Bonawitz, Ramage, ICML 2016, section 4.
    """

    name: ClassVar[str] = "grr"
    estimators: ClassVar[tuple[str, ...]] = SINGLE_ESTIMATORS

    def _prepare(self) -> None:
        object.__setattr__(self, "_kept", _grr_threshold(self.epsilon, self.keys))

    def exact_epsilon(self) -> float:
        """The loss over every pair of records and every report, from the integer draws, rounded up."""
        return log_up(grr_ratio(self._kept, self.keys))

    def perturb(self, records: Records, stream: Stream) -> Reports:
        """Perturb a batch: one report a user.

        Args:
            records: canonical records; of several keys one is drawn, of none a uniform symbol.
            stream: random bits of the collection.

        Returns:
            `key`, int32 (n,).

        Privacy:
            epsilon-LDP for the whole record; see the class.
        """
        key = np.empty(records.n, dtype=np.int32)
        # the second block draws the symbol, and is not needed where everybody holds one
        for rows, part, _, blocks, _ in self._chunks(records, stream, own_blocks=1 if records.one_each else 2):
            self._respond(sample_symbol(part, self.keys, blocks[-1, :, 0]), blocks, key[rows])
        return Reports(n=records.n, arrays={"key": key})


class RR(GRR):
    """Randomised response: a domain of two symbols, the own one kept with probability e^epsilon / (e^epsilon + 1).

    Privacy:
        epsilon-LDP for the whole record.

    Source:
        Warner: Randomized Response, JASA 1965.
    """

    name: ClassVar[str] = "rr"
    keys_max: ClassVar[int] = 2

    @classmethod
    def _advice(cls) -> str:
        return " It is for questions with two answers; use grr for more."


class PSFOGRR(SetOracle, _OneSymbol):
    """Padding and sampling with GRR for sets of items; all dummies are written as index `keys`.

    Privacy:
        epsilon-LDP for the whole set. One slot of `padding` decides the report, so GRR may spend
        epsilon' = ln(padding (e^epsilon - 1) + 1).

    Source:
        Wang, Li, Jha, IEEE S&P 2018, theorem 1.
    """

    name: ClassVar[str] = "psfo-grr"
    _beyond: ClassVar[int] = 1

    @property
    def _others(self) -> int:
        """Number of keys and dummies that may be reported instead of the drawn one."""
        return self.keys + self.padding - 1

    def _prepare(self) -> None:
        object.__setattr__(self, "_kept", _psfo_threshold(self.epsilon, self.keys, self.padding))

    def exact_epsilon(self) -> float:
        """The loss over every pair of sets and every report, from the integer draws, rounded up."""
        return log_up(psfo_grr_ratio(self._kept, self.keys, self.padding))

    def parameters(self) -> Mapping[str, float]:
        """Probabilities p and q, and the amplified budget that GRR spends."""
        return {**super().parameters(), "amplified_epsilon": float(np.log(float(self.own / self.other)))}

    def perturb(self, records: Records, stream: Stream) -> Reports:
        """Perturb a batch: one report a user.

        Args:
            records: canonical records, sets of keys.
            stream: random bits of the collection.

        Returns:
            `key`, int32 (n,), where `keys` stands for every dummy.

        Privacy:
            epsilon-LDP for the whole set; see the class.
        """
        key = np.empty(records.n, dtype=np.int32)
        last = np.int32(self._others)
        for rows, part, _, blocks, _ in self._chunks(records, stream):
            drawn, real = sample_padded(part, self.padding, blocks[1, :, 0])
            # dummies are alike to the server, so a drawn one may be taken for the last
            self._respond(np.where(real, drawn, last), blocks, key[rows])
        np.minimum(key, np.int32(self.keys), out=key)
        return Reports(n=records.n, arrays={"key": key})
