"""Unary encodings: a report has one noisy bit for every symbol of the domain.

Source:
    Erlingsson, Pihur, Korolova: RAPPOR, CCS 2014 (symmetric, its one-time form); Wang, Blocki, Li, Jha, USENIX
    Security 2017 (optimised); Wang, Li, Jha, IEEE S&P 2018 (item sets).
"""

from __future__ import annotations

from collections.abc import Mapping
from decimal import Decimal
from fractions import Fraction
from functools import lru_cache
from typing import ClassVar, Final

import numpy as np

from ..data import I32, I64, Bool, Counts, Field, Records, Reports
from ..probability import EXACT, WORDS, budget_ratio, largest_threshold, log_up, round_down, round_up
from ..randomness import U64, BlockSource, Stream
from ..unary import column_sums, row_words, set_cells, set_noise, wide_rows
from .base import CHUNK_USERS, FrequencyOracle, SetOracle, sample_padded, sample_symbol

__all__ = ["OUE", "PSFOOUE", "SUE", "PlaneOracle", "padding_bits_clear", "unary_ratio"]

_KEYS: Final = 100_000
_PLANE_BYTES: Final = 1 << 19


def unary_ratio(own: int, other: int) -> Fraction:
    """Return the largest ratio of the probabilities of one report under two records.

    Two records differ in the cells of their drawn symbols alone: one shows its own and not the other's.

    Args:
        own: a word below it sets the drawn symbol's cell.
        other: a word below it sets another symbol's cell.
    """
    return Fraction(own * (WORDS - other), other * (WORDS - own))


@lru_cache(maxsize=256)
def _thresholds(epsilon: Decimal, symmetric: bool) -> tuple[int, int]:
    """Thresholds of own and other cells: the other rounded up, then the own lowered until the ratio fits."""
    half = EXACT.exp(EXACT.divide(epsilon, Decimal(2)))
    root = half if symmetric else EXACT.exp(epsilon)
    other = round_up(EXACT.divide(Decimal(1), EXACT.add(root, Decimal(1))))
    start = round_down(EXACT.divide(half, EXACT.add(half, Decimal(1)))) if symmetric else WORDS // 2
    limit = budget_ratio(epsilon)
    return largest_threshold(start // 2, start, lambda own: unary_ratio(own, other) <= limit), other


def padding_bits_clear(plane: np.ndarray[tuple[int, ...], np.dtype[np.uint8]], cells: int) -> Bool:
    """Which rows of a plane have no bit set beyond the cells, bool (n,)."""
    good: Bool = np.ones(len(plane), dtype=np.bool_)
    if cells % 8:
        good &= (plane[:, -1] & np.uint8(0xFF << cells % 8 & 0xFF)) == 0
    return good


class PlaneOracle(FrequencyOracle):
    """An oracle whose report is a plane of bits, one for each symbol; set bits support theirs."""

    def layout(self) -> tuple[Field, ...]:
        """`bits`: ceil(keys / 8) bytes, little bit order, padding bits 0."""
        return (Field(name="bits", dtype="uint8", width=-(-self.keys // 8)),)

    def _plausible(self, reports: Reports) -> Bool:
        return padding_bits_clear(np.asarray(reports.arrays["bits"], dtype=np.uint8), self.keys)

    def count(self, reports: Reports, into: Counts | None = None) -> Counts:
        """Count the set cells of every symbol.

        Args:
            reports: valid reports.
            into: a counter of the caller's own, updated in place.
        """
        total = self.zero() if into is None else into
        rows = wide_rows(np.asarray(reports.arrays["bits"], dtype=np.uint8), self.keys)
        total.cells["supports"][...] += column_sums(rows)[: self.keys]
        return Counts(n=total.n + reports.n, cells=total.cells)

    def supported(self, reports: Reports) -> Bool:
        """Return the cells of each report, bool (n, keys)."""
        plane = np.asarray(reports.arrays["bits"], dtype=np.uint8)
        bits: Bool = np.unpackbits(plane, axis=1, count=self.keys, bitorder="little").view(np.bool_)
        return bits


class _Unary(PlaneOracle):
    """What unary encodings share: thresholds, the plane of bits, its noise."""

    keys_max: ClassVar[int] = _KEYS
    own_blocks: ClassVar[int] = 1
    #: Whether a set and a clear own cell tell equally much.
    _symmetric: ClassVar[bool] = False

    _own: int
    _other: int

    @classmethod
    def _advice(cls) -> str:
        return " A report would grow beyond 12 KB; use olh or shist for more symbols."

    def _prepare(self) -> None:
        own, other = _thresholds(self.epsilon, self._symmetric)
        object.__setattr__(self, "_own", own)
        object.__setattr__(self, "_other", other)

    @property
    def own(self) -> Fraction:
        """Probability that the drawn symbol's cell is set."""
        return Fraction(self._own, WORDS)

    @property
    def other(self) -> Fraction:
        """Probability that another symbol's cell is set."""
        return Fraction(self._other, WORDS)

    def thresholds(self) -> Mapping[str, int]:
        """Thresholds of 2^64 for the cell of the drawn symbol and of another one."""
        return {"own": self._own, "other": self._other}

    def exact_epsilon(self) -> float:
        """The loss over every pair of records and every report, from the integer thresholds, rounded up."""
        return log_up(unary_ratio(self._own, self._other))

    def perturb(self, records: Records, stream: Stream) -> Reports:
        """Perturb a batch: one report a user.

        Args:
            records: canonical records.
            stream: random bits of the collection.

        Returns:
            `bits`, uint8 (n, ceil(keys / 8)), as a view of rows of whole 16-byte blocks.

        Privacy:
            epsilon-LDP for the whole record; see the class.
        """
        words = row_words(self.keys)
        bits = np.empty((records.n, words), dtype="<u8")
        size = max(64, min(CHUNK_USERS, _PLANE_BYTES // (8 * words)))
        for rows, part, seeds, blocks, source in self._chunks(records, stream, size):
            symbols, users = self._drawn(part, blocks[0, :, 0])
            self._noisy(symbols, users, seeds, blocks[0, :, 1], source, bits[rows])
        return Reports(n=records.n, arrays={"bits": bits.view(np.uint8)[:, : -(-self.keys // 8)]})

    def _drawn(self, part: Records, words: U64) -> tuple[I32, I64]:
        """Return the drawn symbols and whose they are; users without one have noise only."""
        return sample_symbol(part, self.keys, words), np.arange(part.n)

    def _noisy(self, symbols: I32, users: I64, seeds: U64, fates: U64, source: BlockSource, out: U64) -> None:
        cells = set_noise(seeds, self._other, self.keys, source)
        set_cells(users, symbols, (cells, (fates < np.uint64(self._own))[users]))
        if self.keys % 64:
            cells[:, self.keys // 64] &= np.uint64((1 << self.keys % 64) - 1)
        out[...] = cells


class SUE(_Unary):
    """Symmetric unary encoding, the one-time form of basic RAPPOR: each bit is kept with e^(epsilon/2) odds.

    Privacy:
        epsilon-LDP for the whole record: two symbols differ in two cells.

    Source:
        Erlingsson, Pihur, Korolova, CCS 2014; Wang, Blocki, Li, Jha, USENIX Security 2017, section 4.
    """

    name: ClassVar[str] = "sue"
    _symmetric: ClassVar[bool] = True


class OUE(_Unary):
    """Optimised unary encoding: an own bit is kept with probability 1/2, another set with 1 / (e^epsilon + 1).

    Least variance of all for large domains and rare symbols, like local hashing, which has shorter reports.

    Privacy:
        epsilon-LDP for the whole record.

    Source:
        Wang, Blocki, Li, Jha, USENIX Security 2017, section 4.3.
    """

    name: ClassVar[str] = "oue"


class PSFOOUE(SetOracle, _Unary):
    """Padding and sampling with optimised unary encoding for sets of items.

    The cells of the dummies are never made: they depend on nothing secret and the server has no use for them.

    Privacy:
        epsilon-LDP for the whole set, whatever the padding; sampling adds nothing here, because a report may
        show every item at once.

    Source:
        Wang, Li, Jha, IEEE S&P 2018, section IV.
    """

    name: ClassVar[str] = "psfo-oue"

    @classmethod
    def _advice(cls) -> str:
        return " A report would grow beyond 12 KB; use psfo-grr for more items."

    def _drawn(self, part: Records, words: U64) -> tuple[I32, I64]:
        drawn, real = sample_padded(part, self.padding, words)
        return drawn[real], np.flatnonzero(real)
