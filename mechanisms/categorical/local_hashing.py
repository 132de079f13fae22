"""Optimal local hashing: a report is a public hash function of the user's own and a noisy bucket.

The hash family is h(x) = floor(g * floor(((a x + b) mod 2^64) / 2^32) / 2^32) with two uniform 64-bit numbers a and b,
which the user's random bits give and the report carries as `seed` (little-endian, a first). The inner value is a
strongly universal hash of 32 bits for symbols below 2^32 (multiply-shift), so that two symbols fall into any two
buckets independently. The seed depends on the user's random bits and not on what she would answer: for each seed the
bucket is a GRR answer over g buckets.

Source:
    Wang, Blocki, Li, Jha, USENIX Security 2017, section 4.4; Dietzfelbinger: Universal Hashing and k-wise Independent
    Random Variables via Integer Arithmetic without Primes, STACS 1996 (the family).
"""

from __future__ import annotations

from collections.abc import Mapping
from decimal import ROUND_HALF_EVEN, Decimal
from fractions import Fraction
from functools import lru_cache
from typing import ClassVar, Final

import numpy as np

from ..data import Bool, Counts, Field, Records, Reports
from ..probability import EXACT, WORDS, budget_ratio, largest_threshold, log_up, round_down
from ..randomness import U64, Stream, mulhi
from .base import FrequencyOracle, sample_symbol
from .grr import grr_ratio

__all__ = ["OLH", "bucket_bounds", "hashed"]

_KEYS: Final = 1_000_000
_HALF: Final = np.uint64(32)
_CELLS: Final = 1 << 32
#: Reports whose supports are counted together: their three arrays stay in the first-level cache.
_COUNT_ROWS: Final = 1 << 11


def hashed(seeds: U64, symbols: np.ndarray[tuple[int, ...], np.dtype[np.integer]], buckets: int) -> U64:
    """Return the bucket of one symbol for each seed.

    Args:
        seeds: a and b, uint64 (n, 2).
        symbols: integers from 0 on, (n,).
        buckets: number of buckets.

    Returns:
        uint64 (n,).
    """
    inner = seeds[:, 0] * symbols.astype(np.uint64)
    inner += seeds[:, 1]
    inner >>= _HALF
    inner *= np.uint64(buckets)
    inner >>= _HALF
    return inner


def bucket_bounds(bucket: U64, buckets: int) -> tuple[U64, U64]:
    """Return the first (a x + b) mod 2^64 of a bucket and their number, uint64 (n,) each; at least 2 buckets."""
    g = np.uint64(buckets)
    first = (bucket * np.uint64(_CELLS) + (g - np.uint64(1))) // g
    after = ((bucket + np.uint64(1)) * np.uint64(_CELLS) + (g - np.uint64(1))) // g
    return first << _HALF, (after - first) << _HALF


@lru_cache(maxsize=256)
def _threshold(epsilon: Decimal) -> tuple[int, int]:
    """Number of buckets, and the threshold below which the own bucket is reported."""
    root = EXACT.exp(epsilon)
    buckets = int(root.to_integral_value(rounding=ROUND_HALF_EVEN)) + 1
    start, limit = round_down(EXACT.divide(root, EXACT.add(root, Decimal(buckets - 1)))), budget_ratio(epsilon)
    low = max(start // 2, WORDS // buckets)
    return buckets, largest_threshold(low, start, lambda kept: grr_ratio(kept, buckets) <= limit)


class OLH(FrequencyOracle):
    """Optimal local hashing: the errors of optimised unary encoding with reports of 20 bytes whatever the domain.

    Counting takes time in proportion to reports times symbols.

    Privacy:
        epsilon-LDP for the whole record: for each seed the bucket is a GRR answer.

    Source:
        Wang, Blocki, Li, Jha, USENIX Security 2017, section 4.4.
    """

    name: ClassVar[str] = "olh"
    keys_max: ClassVar[int] = _KEYS
    own_blocks: ClassVar[int] = 3

    _buckets: int
    _kept: int

    def _prepare(self) -> None:
        buckets, kept = _threshold(self.epsilon)
        object.__setattr__(self, "_buckets", buckets)
        object.__setattr__(self, "_kept", kept)

    def layout(self) -> tuple[Field, ...]:
        """`seed`: 16 bytes, the public hash function; `bucket`: 0 to g - 1."""
        return Field(name="seed", dtype="uint8", width=16), Field(name="bucket", dtype="int32")

    @property
    def own(self) -> Fraction:
        """Probability that the own bucket is reported."""
        return Fraction(self._kept, WORDS)

    @property
    def other(self) -> Fraction:
        """Probability that another symbol falls into the reported bucket, with buckets of unequal size."""
        small, larger = divmod(_CELLS, self._buckets)
        together = Fraction(larger * (small + 1) ** 2 + (self._buckets - larger) * small**2, _CELLS**2)
        return self.own * together + (1 - self.own) * (1 - together) / (self._buckets - 1)

    def likelihoods(self) -> tuple[float, float]:
        """Return a report's likelihood for a symbol in its bucket and for another, up to a common factor."""
        return float(self.own), float((1 - self.own) / (self._buckets - 1))

    def parameters(self) -> Mapping[str, float]:
        """Probabilities p and q, and the number of buckets."""
        return {**super().parameters(), "buckets": float(self._buckets)}

    def thresholds(self) -> Mapping[str, int]:
        """Threshold of 2^64 below which the own bucket is reported, and the number of buckets."""
        return {"kept": self._kept, "buckets": self._buckets}

    def exact_epsilon(self) -> float:
        """The loss over every pair of records and every report, from the integer draws, rounded up."""
        return log_up(grr_ratio(self._kept, self._buckets))

    def perturb(self, records: Records, stream: Stream) -> Reports:
        """Perturb a batch: one report a user.

        Args:
            records: canonical records; of several keys one is drawn, of none a uniform symbol.
            stream: random bits of the collection.

        Returns:
            `seed`, uint8 (n, 16), and `bucket`, int32 (n,).

        Privacy:
            epsilon-LDP for the whole record; see the class.
        """
        seed, bucket = np.empty((records.n, 2), dtype="<u8"), np.empty(records.n, dtype=np.int32)
        for rows, part, _, blocks, _ in self._chunks(records, stream):
            seed[rows] = blocks[2]
            symbol = sample_symbol(part, self.keys, blocks[0, :, 0])
            own = hashed(blocks[2], symbol, self._buckets).astype(np.int32)
            moved = mulhi(blocks[1, :, 0], self._buckets - 1).astype(np.int32)
            moved += moved >= own
            bucket[rows] = np.where(blocks[0, :, 1] < np.uint64(self._kept), own, moved)
        return Reports(n=records.n, arrays={"seed": seed.view(np.uint8), "bucket": bucket})

    def _plausible(self, reports: Reports) -> Bool:
        bucket = np.asarray(reports.arrays["bucket"], dtype=np.int32)
        good: Bool = (bucket >= 0) & (bucket < self._buckets)
        return good

    def _seeds(self, reports: Reports) -> tuple[U64, U64]:
        seeds = np.ascontiguousarray(np.asarray(reports.arrays["seed"], dtype=np.uint8)).view("<u8")
        return seeds, np.asarray(reports.arrays["bucket"], dtype=np.int32).astype(np.uint64)

    def count(self, reports: Reports, into: Counts | None = None) -> Counts:
        """Count for every symbol the reports in whose bucket it lies.

        Args:
            reports: valid reports.
            into: a counter of the caller's own, updated in place.
        """
        total = self.zero() if into is None else into
        seeds, bucket = self._seeds(reports)
        first, width = bucket_bounds(bucket, self._buckets)
        place = seeds[:, 1] - first  # a x + b lies in the bucket where its distance from the first is below the width
        for start in range(0, reports.n, _COUNT_ROWS):
            rows = slice(start, start + _COUNT_ROWS)
            self._count_rows(seeds[rows, 0].copy(), place[rows], width[rows], total)
        return Counts(n=total.n + reports.n, cells=total.cells)

    def _count_rows(self, step: U64, place: U64, width: U64, total: Counts) -> None:
        supports = total.cells["supports"]
        inside = np.empty(len(step), dtype=np.bool_)
        for symbol in range(self.keys):
            np.less(place, width, out=inside)
            supports[symbol] += np.count_nonzero(inside)
            place += step

    def supported(self, reports: Reports) -> Bool:
        """Return which symbols lie in the bucket of each report, bool (n, keys)."""
        seeds, bucket = self._seeds(reports)
        first, width = bucket_bounds(bucket, self._buckets)
        place = (seeds[:, 1] - first)[:, None] + seeds[:, :1] * np.arange(self.keys, dtype=np.uint64)
        inside: Bool = place < width[:, None]
        return inside
