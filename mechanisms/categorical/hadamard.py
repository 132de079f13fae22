"""Oracles over the Hadamard matrix H[j, x] = (-1)^(number of bits that j and x share): two short reports.

Both have w rows, a power of two, and the same errors; they differ in who may choose the row.

* ``shist``, the succinct histogram with Hadamard rows: a public row j is drawn uniformly, whatever the user holds,
  and H[j, x] is sent with a noisy sign. A report is (j, sign); w is at least d.
* ``hadamard``, Hadamard response: the row is the answer. The rows j with H[j, x + 1] = 1 are half of all; one of
  them is sent with probability e^epsilon / (e^epsilon + 1), else one of the other half. A report is j alone; w is
  at least d + 1, because the constant column cannot be used.

The server counts by row, and a fast transform over the counts gives the supporters of every symbol.

Source:
    Bassily, Smith: Local, Private, Efficient Protocols for Succinct Histograms, STOC 2015 (with a random matrix);
    Acharya, Sun, Zhang: Hadamard Response, AISTATS 2019, section 3; Kulkarni, Cormode, Srivastava: Answering Range
    Queries under Local Differential Privacy, VLDB 2019 (Hadamard rows for one bit).
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Mapping
from decimal import Decimal
from fractions import Fraction
from functools import lru_cache
from typing import ClassVar, Final

import numpy as np
import numpy.typing as npt

from ..data import I64, Bool, Counts, Field, Records, Reports
from ..probability import EXACT, WORDS, budget_ratio, largest_threshold, log_up, round_down
from ..randomness import Stream, mulhi
from .base import FrequencyOracle, sample_symbol

__all__ = ["HadamardResponse", "SHist", "sign_ratio", "sign_threshold", "walsh_hadamard"]

_KEYS: Final = 1_000_000


def walsh_hadamard(values: I64) -> I64:
    """Return sum_j H[j, x] values[j] for every x, int64 (w,) for w a power of two."""
    result = values.copy()
    half = 1
    while half < len(result):
        pairs = result.reshape(-1, 2, half)
        first, second = pairs[:, 0] + pairs[:, 1], pairs[:, 0] - pairs[:, 1]
        pairs[:, 0], pairs[:, 1] = first, second
        half *= 2
    return result


def _negative(rows: npt.NDArray[np.integer], columns: npt.NDArray[np.integer]) -> Bool:
    """Whether H[row, column] is -1."""
    odd: Bool = (np.bitwise_count(rows & columns) & 1).astype(np.bool_)
    return odd


def sign_ratio(kept: int) -> Fraction:
    """Return the ratio of the probabilities of a sign that is kept below a threshold: kept over flipped."""
    return Fraction(max(kept, WORDS - kept), min(kept, WORDS - kept))


@lru_cache(maxsize=256)
def sign_threshold(epsilon: Decimal) -> int:
    """Return the threshold of e^epsilon / (e^epsilon + 1), lowered until its ratio is within e^epsilon."""
    root, limit = EXACT.exp(epsilon), budget_ratio(epsilon)
    start = round_down(EXACT.divide(root, EXACT.add(root, Decimal(1))))
    return largest_threshold(WORDS // 2, start, lambda kept: sign_ratio(kept) <= limit)


class _Hadamard(FrequencyOracle):
    """What both share: half of all rows support a symbol."""

    keys_max: ClassVar[int] = _KEYS
    #: Columns that no symbol uses.
    _unused: ClassVar[int]

    _kept: int

    def _prepare(self) -> None:
        object.__setattr__(self, "_kept", sign_threshold(self.epsilon))

    @property
    def rows(self) -> int:
        """Number w of rows of the matrix."""
        return 1 << (self.keys + self._unused - 1).bit_length()

    @property
    def own(self) -> Fraction:
        """Probability that a report supports the drawn symbol."""
        return Fraction(self._kept, WORDS)

    @property
    def other(self) -> Fraction:
        """Probability that a report supports a given other symbol: exactly one half."""
        return Fraction(1, 2)

    def parameters(self) -> Mapping[str, float]:
        """Probabilities p and q, and the number of rows."""
        return {**super().parameters(), "rows": float(self.rows)}

    def thresholds(self) -> Mapping[str, int]:
        """Threshold of 2^64 below which the sign is kept, and the number of rows."""
        return {"kept": self._kept, "rows": self.rows}

    def exact_epsilon(self) -> float:
        """The loss over every pair of records and every report, rounded up; rows are drawn without bias."""
        return log_up(sign_ratio(self._kept))

    @abstractmethod
    def _balance(self, counts: Counts) -> I64:
        """Return supporters minus others by row, int64 (rows,)."""

    def supporters(self, counts: Counts) -> I64:
        """Return how many reports support each symbol, int64 (keys,)."""
        surplus = walsh_hadamard(self._balance(counts))[self._unused : self._unused + self.keys]
        return (counts.n + surplus) // 2  # both have the parity of n


class SHist(_Hadamard):
    """Succinct histogram with Hadamard rows: 5 bytes whatever the domain; one public row, one private bit.

    Privacy:
        epsilon-LDP for the whole record: the row is drawn without it, the sign is randomised response.

    Source:
        Bassily, Smith, STOC 2015.
    """

    name: ClassVar[str] = "shist"
    _unused: ClassVar[int] = 0

    def layout(self) -> tuple[Field, ...]:
        """`row`: 0 to w - 1; `sign`: 1 or -1."""
        return Field(name="row", dtype="int32"), Field(name="sign", dtype="int8")

    def perturb(self, records: Records, stream: Stream) -> Reports:
        """Perturb a batch: one report a user.

        Args:
            records: canonical records; of several keys one is drawn, of none a uniform symbol.
            stream: random bits of the collection.

        Returns:
            `row`, int32 (n,), and `sign`, int8 (n,).

        Privacy:
            epsilon-LDP for the whole record; see the class.
        """
        row, sign = np.empty(records.n, dtype=np.int32), np.empty(records.n, dtype=np.int8)
        for rows, part, _, blocks, _ in self._chunks(records, stream):
            symbol = sample_symbol(part, self.keys, blocks[0, :, 0])
            row[rows] = mulhi(blocks[1, :, 0], self.rows)
            negative = _negative(row[rows], symbol) ^ (blocks[0, :, 1] >= np.uint64(self._kept))
            sign[rows] = 1 - 2 * negative.astype(np.int8)
        return Reports(n=records.n, arrays={"row": row, "sign": sign})

    def _plausible(self, reports: Reports) -> Bool:
        row, sign = (np.asarray(reports.arrays[name]) for name in ("row", "sign"))
        good: Bool = (row >= 0) & (row < self.rows) & ((sign == 1) | (sign == -1))
        return good

    def zero(self) -> Counts:
        """Counts of no reports: those of either sign for every row."""
        return Counts(n=0, cells={name: np.zeros(self.rows, dtype=np.int64) for name in ("n1", "n2")})

    def count(self, reports: Reports, into: Counts | None = None) -> Counts:
        """Count the reports n1 of sign +1 and n2 of sign -1 of every row.

        Args:
            reports: valid reports.
            into: a counter of the caller's own, updated in place.
        """
        total = self.zero() if into is None else into
        row = np.asarray(reports.arrays["row"], dtype=np.int64)
        place = row * 2 + (np.asarray(reports.arrays["sign"], dtype=np.int8) > 0)
        found = np.bincount(place, minlength=2 * self.rows)
        total.cells["n1"][...] += found[1::2]
        total.cells["n2"][...] += found[0::2]
        return Counts(n=total.n + reports.n, cells=total.cells)

    def _balance(self, counts: Counts) -> I64:
        balance: I64 = counts.cells["n1"] - counts.cells["n2"]
        return balance

    def supported(self, reports: Reports) -> Bool:
        """Return for which symbols the row has the sign of the report, bool (n, keys)."""
        row = np.asarray(reports.arrays["row"], dtype=np.int32)
        minus = np.asarray(reports.arrays["sign"], dtype=np.int8) < 0
        same: Bool = _negative(row[:, None], np.arange(self.keys, dtype=np.int32)) == minus[:, None]
        return same


class HadamardResponse(_Hadamard):
    """Hadamard response: a report is one row number of 4 bytes, whatever the domain.

    Privacy:
        epsilon-LDP for the whole record: a row that supports the own symbol is e^epsilon times as likely as another.

    Source:
        Acharya, Sun, Zhang, AISTATS 2019, section 3.
    """

    name: ClassVar[str] = "hadamard"
    _unused: ClassVar[int] = 1

    def layout(self) -> tuple[Field, ...]:
        """`row`: 0 to w - 1."""
        return (Field(name="row", dtype="int32"),)

    def perturb(self, records: Records, stream: Stream) -> Reports:
        """Perturb a batch: one report a user.

        Args:
            records: canonical records; of several keys one is drawn, of none a uniform symbol.
            stream: random bits of the collection.

        Returns:
            `row`, int32 (n,).

        Privacy:
            epsilon-LDP for the whole record; see the class.
        """
        row = np.empty(records.n, dtype=np.int32)
        for rows, part, _, blocks, _ in self._chunks(records, stream):
            column = sample_symbol(part, self.keys, blocks[0, :, 0]) + np.int32(1)
            drawn = mulhi(blocks[1, :, 0], self.rows).astype(np.int32)
            # flipping the lowest bit of the column maps one half of the rows onto the other
            wrong = _negative(drawn, column) ^ (blocks[0, :, 1] >= np.uint64(self._kept))
            row[rows] = np.where(wrong, drawn ^ (column & -column), drawn)
        return Reports(n=records.n, arrays={"row": row})

    def _plausible(self, reports: Reports) -> Bool:
        row = np.asarray(reports.arrays["row"], dtype=np.int32)
        good: Bool = (row >= 0) & (row < self.rows)
        return good

    def zero(self) -> Counts:
        """Counts of no reports: those of every row."""
        return Counts(n=0, cells={"reports": np.zeros(self.rows, dtype=np.int64)})

    def count(self, reports: Reports, into: Counts | None = None) -> Counts:
        """Count the reports of every row.

        Args:
            reports: valid reports.
            into: a counter of the caller's own, updated in place.
        """
        total = self.zero() if into is None else into
        row = np.asarray(reports.arrays["row"], dtype=np.int32)
        total.cells["reports"][...] += np.bincount(row, minlength=self.rows)
        return Counts(n=total.n + reports.n, cells=total.cells)

    def _balance(self, counts: Counts) -> I64:
        return counts.cells["reports"]

    def supported(self, reports: Reports) -> Bool:
        """Return which symbols the row of each report supports, bool (n, keys)."""
        row = np.asarray(reports.arrays["row"], dtype=np.int32)
        return ~_negative(row[:, None], np.arange(1, self.keys + 1, dtype=np.int32))
