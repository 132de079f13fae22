"""MeanEst: a report is a vector of signs that mostly points where the user's own vector does.

Every coordinate is discretised to a sign, which gives V. With probability e^eps C / ((e^eps - 1) C + 2^d) the report t
is uniform among the C sign vectors with t V > 0, else among those with t V <= 0. The often-quoted probability
e^eps / (e^eps + 1) is right for odd d alone, where no t is orthogonal to V.

Uniform among a part of all sign vectors: draw all signs as fair coins. For odd d turn t round where it lies on the
wrong side. For even d draw again where t lies outside the part (or is orthogonal), at most 64 times; the rest, at most
one in 2^64, is moved by one sign or turned round. `exact_epsilon` includes this.

Source:
    Duchi, Jordan, Wainwright: Minimax Optimal Procedures for Locally Private Estimation, JASA 2018, section 4.2.3.
"""

from __future__ import annotations

from collections.abc import Mapping
from decimal import Decimal
from fractions import Fraction
from functools import lru_cache
from math import comb
from typing import ClassVar, Final

import numpy as np
import numpy.typing as npt

from ..categorical.unary_encoding import padding_bits_clear
from ..data import F64, I64, Bool, Counts, Field, Records, Reports
from ..probability import EXACT, WORDS, budget_ratio, largest_threshold, log_up, round_down
from ..randomness import U64, BlockSource, Stream
from ..unary import column_sums, row_words, wide_rows
from .harmony import MeanMechanism, positive_with_value

__all__ = ["DRAW_BITS", "FIRST_VALUE", "MeanEst", "half_size", "meanest_ratio"]

_KEYS: Final = 10_000
#: Draws of all signs before the last one is mended.
_TRIES: Final = 64
#: Numbers of blocks: those that discretise begin here, those of draw r at (r + 1) * 2^32.
FIRST_VALUE: Final = 1
DRAW_BITS: Final = 32
_CELLS: Final = 1 << 18


def half_size(coordinates: int) -> int:
    """Return C, the number of sign vectors t with t V > 0 for a given V."""
    ties = comb(coordinates, coordinates // 2) if coordinates % 2 == 0 else 0
    return ((1 << coordinates) - ties) // 2


def meanest_ratio(toward: int, coordinates: int) -> Fraction:
    """Bound the largest ratio of the probabilities of one report under two vectors.

    Args:
        toward: a word below it sends a vector of the part with t V > 0.
        coordinates: their number d.
    """
    part = Fraction(half_size(coordinates), 1 << coordinates)
    ratio = Fraction(toward, WORDS - toward) * (1 - part) / part
    if coordinates % 2:
        return max(ratio, 1 / ratio)
    # of the draws a share of 2^-64 at most is mended; d / 2 + 1 of them at most become the same vector
    return max(ratio, 1 / ratio) * (1 + Fraction(coordinates + 4, WORDS - 1))


@lru_cache(maxsize=64)
def _threshold(epsilon: Decimal, coordinates: int) -> tuple[int, Fraction]:
    """Threshold of the part with t V > 0, and the ratio that it gives."""
    part = Fraction(half_size(coordinates), 1 << coordinates)
    root = EXACT.exp(epsilon)
    share = EXACT.divide(Decimal(int(part * 10**70)), Decimal(10**70))
    weight = EXACT.multiply(root, share)
    start = round_down(EXACT.divide(weight, EXACT.add(EXACT.multiply(EXACT.subtract(root, Decimal(1)), share), 1)))
    limit, even = budget_ratio(epsilon), int(part * WORDS)
    toward = largest_threshold(even, start, lambda t: meanest_ratio(t, coordinates) <= limit)
    return toward, meanest_ratio(toward, coordinates)


class MeanEst(MeanMechanism):
    """MeanEst, after Duchi and others: a noisy sign for every coordinate, which hang together.

    Privacy:
        epsilon-LDP for the whole vector: a sign vector on the side of V is e^epsilon times as likely as another.

    Source:
        Duchi, Jordan, Wainwright, JASA 2018.
    """

    name: ClassVar[str] = "meanest"
    keys_max: ClassVar[int] = _KEYS
    own_blocks: ClassVar[int] = 1

    _toward: int
    _ratio: Fraction

    def _prepare(self) -> None:
        toward, ratio = _threshold(self.epsilon, self.keys)
        object.__setattr__(self, "_toward", toward)
        object.__setattr__(self, "_ratio", ratio)

    @property
    def gain(self) -> Fraction:
        """Mean of t_j V_j: by how much a report agrees with each coordinate, 1 / B of the source."""
        d, part = self.keys, half_size(self.keys)
        lean = comb(d - 1, d // 2)  # sum of t_j V_j over the part; over the other part it is its negative
        p = Fraction(self._toward, WORDS)
        return lean * (p / part - (1 - p) / ((1 << d) - part))

    def parameters(self) -> Mapping[str, float]:
        """Probability of the part with t V > 0, and the factor B that undoes the noise."""
        return {"p": self._toward / WORDS, "scale": float(1 / self.gain)}

    def thresholds(self) -> Mapping[str, int]:
        """Threshold of 2^64 below which a vector on the own side is sent, and the number of coordinates."""
        return {"toward": self._toward, "coordinates": self.keys}

    def exact_epsilon(self) -> float:
        """The loss over every pair of vectors and every report, rounded up; for even d a bound within 1e-12."""
        return log_up(self._ratio)

    def layout(self) -> tuple[Field, ...]:
        """`plus`: a plane of ceil(keys / 8) bytes, a bit set where the sign is +1, padding bits 0."""
        return (Field(name="plus", dtype="uint8", width=-(-self.keys // 8)),)

    def perturb(self, records: Records, stream: Stream) -> Reports:
        """Perturb a batch: one report a user.

        Args:
            records: canonical records with values; a missing coordinate counts as 0.
            stream: random bits of the collection.

        Returns:
            `plus`, uint8 (n, ceil(keys / 8)), as a view of rows of whole 16-byte blocks.

        Privacy:
            epsilon-LDP for the whole vector; see the class.
        """
        words = row_words(self.keys)
        plus = np.empty((records.n, words), dtype="<u8")
        size = max(16, min(16_384, _CELLS // self.keys))
        for rows, part, seeds, blocks, source in self._chunks(records, stream, size):
            own = self._discretised(part, seeds, source)
            toward = blocks[0, :, 0] < np.uint64(self._toward)
            self._draw(own, toward, seeds, source, plus[rows])
        return Reports(n=records.n, arrays={"plus": plus.view(np.uint8)[:, : -(-self.keys // 8)]})

    def _discretised(self, part: Records, seeds: U64, source: BlockSource) -> U64:
        """Return the signs V as rows of bits, 0 beyond the coordinates."""
        n, pairs = part.n, -(-self.keys // 2)
        values = np.zeros((n, 2 * pairs), dtype=np.int64)
        if part.values is not None:
            values[np.repeat(np.arange(n), part.sizes), part.keys] = part.values
        numbers = np.arange(FIRST_VALUE, FIRST_VALUE + pairs, dtype=np.uint64)
        drawn = seeds[:, None, :] ^ numbers[None, :, None]
        source.fill(drawn, drawn)
        positive = positive_with_value(drawn.reshape(n, 2 * pairs), values)[:, : self.keys]
        wide = np.zeros((n, 8 * row_words(self.keys)), dtype=np.uint8)
        wide[:, : -(-self.keys // 8)] = np.packbits(positive, axis=1, bitorder="little")
        return wide.view("<u8")

    @property
    def _mask(self) -> U64:
        """The bits of the coordinates, uint64 (row words,)."""
        bits = np.zeros(64 * row_words(self.keys), dtype=np.uint8)
        bits[: self.keys] = 1
        return np.packbits(bits, bitorder="little").view("<u8")

    def _draw(self, own: U64, toward: Bool, seeds: U64, source: BlockSource, out: U64) -> None:
        """Write one vector of the chosen part for each row."""
        mask, left = self._mask, np.arange(len(own))
        numbers = np.arange(own.shape[1] // 2, dtype=np.uint64)[None, :, None]
        for draw in range(_TRIES):
            drawn = seeds[left][:, None, :] ^ (numbers + np.uint64((draw + 1) << DRAW_BITS))
            source.fill(drawn, drawn)
            signs = drawn.reshape(len(left), -1) & mask
            margin = self.keys - 2 * np.bitwise_count(signs ^ own[left]).sum(axis=1, dtype=np.int64)
            kept = self._settle(signs, margin, toward[left], mask)
            out[left] = signs
            left = left[~kept]
            if not len(left):
                return
        self._mend(out, own, left, toward, mask)

    def _settle(self, signs: U64, margin: I64, toward: Bool, mask: U64) -> Bool:
        """Turn rows round that may be, in place; return which rows now are uniform in their part."""
        if self.keys % 2:
            turn, kept = (margin < 0) == toward, np.ones(len(signs), dtype=np.bool_)
        else:
            turn, kept = toward & (margin < 0), np.where(toward, margin != 0, margin <= 0)
        signs[turn] ^= mask
        return kept

    def _mend(self, out: U64, own: U64, left: I64, toward: Bool, mask: U64) -> None:
        """Move the rows that are left into their part: turn them round, or take one more sign of the own vector."""
        for row in left:
            if not toward[row]:
                out[row] ^= mask
                continue
            differ = out[row] ^ own[row]
            word = int(np.flatnonzero(differ)[0])
            out[row, word] ^= differ[word] & (~differ[word] + np.uint64(1))

    def _plausible(self, reports: Reports) -> Bool:
        return padding_bits_clear(np.asarray(reports.arrays["plus"], dtype=np.uint8), self.keys)

    def count(self, reports: Reports, into: Counts | None = None) -> Counts:
        """Count the positive and negative signs of every coordinate.

        Args:
            reports: valid reports.
            into: a counter of the caller's own, updated in place.
        """
        total = self.zero() if into is None else into
        rows = wide_rows(np.asarray(reports.arrays["plus"], dtype=np.uint8), self.keys)
        positive = column_sums(rows)[: self.keys]
        total.cells["n1"][...] += positive
        total.cells["n2"][...] += reports.n - positive
        return Counts(n=total.n + reports.n, cells=total.cells)

    def _divisors(self, counts: Counts, *, corrected: bool) -> F64:
        return np.full(self.keys, float(counts.n))

    def _variance(self, mean: npt.ArrayLike, reports: npt.ArrayLike, *, corrected: bool) -> F64:
        variance: F64 = (float(1 / self.gain**2) - np.square(mean)) / np.asarray(reports, dtype=np.float64)
        return variance
