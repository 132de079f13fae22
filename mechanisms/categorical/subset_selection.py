"""Subset selection: a report is a set of k symbols, which holds the user's own with a raised probability.

The set is drawn by Floyd's method: with N others, for j from N - k to N - 1 draw t from 0 to j and take t, or j where t
is taken already. Each draw is the high word of a product, so a set's probability is known within a factor, which
`exact_epsilon` includes.

Source:
    Wang, Blocki, Li, Jha: USENIX Security 2017; Ye, Barg: Optimal Schemes for Discrete Distribution Estimation under
    Locally Differential Privacy, IEEE Transactions on Information Theory 2018; Wang et al.: Mutual Information
    Optimally Local Private Discrete Distribution Estimation, 2016; Floyd, Bentley, CACM 1987 (drawing the set).
"""

from __future__ import annotations

from collections.abc import Mapping
from decimal import ROUND_HALF_EVEN, Decimal
from fractions import Fraction
from functools import lru_cache
from typing import ClassVar, Final

import numpy as np

from ..data import I64, Bool, Records, Reports
from ..probability import EXACT, WORDS, budget_ratio, largest_threshold, log_up, round_down
from ..randomness import U64, BlockSource, Stream, mulhi
from ..unary import row_words
from .base import sample_symbol
from .unary_encoding import PlaneOracle

__all__ = ["FIRST_DRAW", "SubsetSelection", "set_bias", "subset_ratio"]

_KEYS: Final = 10_000
_ONE: Final = np.uint64(1)
_ROW_BYTES: Final = 1 << 20
#: Numbers of the blocks that hold the draws of a set's members.
FIRST_DRAW: Final = 2


def set_bias(others: int, size: int) -> tuple[Fraction, Fraction]:
    """Bound the probability of a given set of `size` of `others` symbols, as factors of the ideal one.

    Returns:
        Factors from below and above; a draw of b integers gives each with floor(2^64 / b) words or one more.
    """
    low = high = Fraction(1)
    for bound in range(others - size + 1, others + 1):
        low *= Fraction(WORDS // bound * bound, WORDS)
        high *= Fraction(-(-WORDS // bound) * bound, WORDS)
        if low.denominator.bit_length() > 4096:  # keeps the fractions short, outwards
            low, high = Fraction(int(low * WORDS**3), WORDS**3), Fraction(-int(-high * WORDS**3 // 1), WORDS**3)
    return low, high


def subset_ratio(own: int, keys: int, size: int, bias: tuple[tuple[Fraction, Fraction], ...] | None = None) -> Fraction:
    """Bound the largest ratio of the probabilities of one report under two records.

    Args:
        own: a word below it takes the drawn symbol into the set.
        keys: size of the domain.
        size: size of the sets.
        bias: what `set_bias` gives for the sets with and without the drawn symbol, where it is known already.
    """
    within, without = bias or (set_bias(keys - 1, size - 1), set_bias(keys - 1, size))
    # C(keys - 1, size) / C(keys - 1, size - 1) = (keys - size) / size
    odds = Fraction(own, WORDS - own) * Fraction(keys - size, size)
    same = max(factors[1] / factors[0] for factors in (within, without))
    return max(odds * within[1] / without[0], 1 / odds * without[1] / within[0], same)


@lru_cache(maxsize=64)
def _threshold(epsilon: Decimal, keys: int) -> tuple[int, int, Fraction]:
    """Size of the sets, the threshold of the own symbol, and the ratio that it gives."""
    root = EXACT.exp(epsilon)
    size = int(EXACT.divide(Decimal(keys), EXACT.add(root, Decimal(1))).to_integral_value(rounding=ROUND_HALF_EVEN))
    size = max(1, size)
    weight = EXACT.multiply(Decimal(size), root)
    start = round_down(EXACT.divide(weight, EXACT.add(weight, Decimal(keys - size))))
    bias = (set_bias(keys - 1, size - 1), set_bias(keys - 1, size))
    limit = budget_ratio(epsilon)
    low = max(start // 2, WORDS * size // keys)
    own = largest_threshold(low, start, lambda t: subset_ratio(t, keys, size, bias) <= limit)
    return size, own, subset_ratio(own, keys, size, bias)


class SubsetSelection(PlaneOracle):
    """Subset selection: sets of about keys / (e^epsilon + 1) symbols, as a plane of bits with exactly so many set.

    The least variance of all for domains of medium size. Making a report takes time in proportion to the set.

    Privacy:
        epsilon-LDP for the whole record: a set with the own symbol is e^epsilon times as likely as one without.

    Source:
        Ye, Barg, IEEE Transactions on Information Theory 2018.
    """

    name: ClassVar[str] = "subset-selection"
    keys_max: ClassVar[int] = _KEYS
    own_blocks: ClassVar[int] = 1

    _size: int
    _own: int
    _bound: Fraction

    @classmethod
    def _advice(cls) -> str:
        return " Drawing so large a set takes too long; use oue, olh or shist for more symbols."

    def _prepare(self) -> None:
        size, own, bound = _threshold(self.epsilon, self.keys)
        object.__setattr__(self, "_size", size)
        object.__setattr__(self, "_own", own)
        object.__setattr__(self, "_bound", bound)

    @property
    def own(self) -> Fraction:
        """Probability that the set holds the drawn symbol."""
        return Fraction(self._own, WORDS)

    @property
    def other(self) -> Fraction:
        """Probability that the set holds a given other symbol."""
        return (self._size - self.own) / (self.keys - 1)

    def likelihoods(self) -> tuple[float, float]:
        """Return a report's likelihood for a symbol in its set and for another, up to a common factor."""
        return float(self.own / (1 - self.own) * Fraction(self.keys - self._size, self._size)), 1.0

    def parameters(self) -> Mapping[str, float]:
        """Probabilities p and q, and the size of the sets."""
        return {**super().parameters(), "set_size": float(self._size)}

    def thresholds(self) -> Mapping[str, int]:
        """Threshold of 2^64 below which the set holds the drawn symbol, and the size of the sets."""
        return {"own": self._own, "set_size": self._size}

    def exact_epsilon(self) -> float:
        """A bound of the loss over every pair of records and every report, from the integer draws, rounded up."""
        return log_up(self._bound)

    def perturb(self, records: Records, stream: Stream) -> Reports:
        """Perturb a batch: one report a user.

        Args:
            records: canonical records; of several keys one is drawn, of none a uniform symbol.
            stream: random bits of the collection.

        Returns:
            `bits`, uint8 (n, ceil(keys / 8)), as a view of rows of whole 16-byte blocks.

        Privacy:
            epsilon-LDP for the whole record; see the class.
        """
        words = row_words(self.keys)
        bits = np.zeros((records.n, words), dtype="<u8")
        size = max(64, min(16_384, _ROW_BYTES // (8 * words)))
        for rows, part, seeds, blocks, source in self._chunks(records, stream, size):
            own = sample_symbol(part, self.keys, blocks[0, :, 0]).astype(np.int64)
            inside = blocks[0, :, 1] < np.uint64(self._own)
            self._draw_sets(own, inside, seeds, source, bits[rows])
        return Reports(n=records.n, arrays={"bits": bits.view(np.uint8)[:, : -(-self.keys // 8)]})

    def _draw_sets(self, own: I64, inside: Bool, seeds: U64, source: BlockSource, out: U64) -> None:
        """Fill rows of zeros: the own symbol where it is inside, and others up to the size of the sets."""
        flat, base = out.reshape(-1), np.arange(len(own)) * out.shape[1]
        outside = np.flatnonzero(~inside)
        block = np.empty_like(seeds)
        for draw in range(self._size):
            if draw % 2 == 0:
                np.bitwise_xor(seeds, np.uint64(FIRST_DRAW + draw // 2), out=block)
                source.fill(block, block)
            last = self.keys - 1 - self._size + draw
            # a set with the own symbol lacks one member: it leaves out the first draw, which finds nothing taken
            users = outside if draw == 0 else slice(None)
            self._add_member(block[users, draw % 2], last, own[users], flat, base[users])
        users = np.flatnonzero(inside)
        flat[base[users] + (own[users] >> 6)] |= _ONE << (own[users] & 63).astype(np.uint64)

    @staticmethod
    def _add_member(words: U64, last: int, own: I64, flat: U64, base: I64) -> None:
        """Take one of the others 0 to `last` that are not yet taken, or `last`; the own symbol is not among them."""
        drawn = mulhi(words, last + 1).view(np.int64)
        drawn += drawn >= own
        place = base + (drawn >> 6)
        taken = flat[place] >> (drawn & 63).astype(np.uint64) & _ONE
        highest = last + (last >= own)
        member = np.where(taken != 0, highest, drawn)
        flat[base + (member >> 6)] |= _ONE << (member & 63).astype(np.uint64)

    def _plausible(self, reports: Reports) -> Bool:
        plane = np.asarray(reports.arrays["bits"], dtype=np.uint8)
        size = np.bitwise_count(plane).sum(axis=1, dtype=np.int64)
        good: Bool = super()._plausible(reports) & (size == self._size)
        return good
