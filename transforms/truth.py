"""The true figures of a population, for comparing estimates with. Holds raw records: never on a server.

Only `evaluate` and simulations use this; a collection never does.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any

import apache_beam as beam
import numpy as np
import numpy.typing as npt
import pyarrow as pa

from ..mechanisms import VALUE_ONE
from .record_batches import batch_to_records
from .rejects import in_global_window

__all__ = ["AddTruth", "CountTruth", "Truth"]

_LOW_BITS = 20


@dataclass(frozen=True, eq=False)
class Truth:
    """Exact sums over a population of n users.

    Attributes:
        n: users.
        holders: users who hold each key, int64 (d,).
        high: sums of the upper parts of the fixed-point values, int64 (d,); None without values.
        low: sums of their lower 20 bits, so that no sum overflows below 2^43 users.
    """

    n: int
    holders: npt.NDArray[np.int64]
    high: npt.NDArray[np.int64] | None
    low: npt.NDArray[np.int64] | None

    @classmethod
    def zero(cls, keys: int, *, has_values: bool) -> Truth:
        """Return the truth about nobody."""
        sums = [np.zeros(keys, np.int64) if has_values else None for _ in range(2)]
        return cls(0, np.zeros(keys, np.int64), sums[0], sums[1])

    def __add__(self, other: Truth) -> Truth:
        if self.high is None or self.low is None or other.high is None or other.low is None:
            return Truth(self.n + other.n, self.holders + other.holders, None, None)
        return Truth(self.n + other.n, self.holders + other.holders, self.high + other.high, self.low + other.low)

    def frequency(self) -> npt.NDArray[np.float64]:
        """Return the share of users who hold each key, float64 (d,); NaN without users."""
        return self.holders / self.n if self.n else np.full(len(self.holders), np.nan)

    def mean(self) -> npt.NDArray[np.float64] | None:
        """Return the mean value among each key's holders, in [-1, 1]; NaN without holders."""
        if self.high is None or self.low is None:
            return None
        total = self.high.astype(np.float64) * 2.0**_LOW_BITS + self.low
        with np.errstate(invalid="ignore"):
            return np.where(self.holders > 0, total / np.maximum(self.holders, 1) / VALUE_ONE, np.nan)


class CountTruth(beam.PTransform):
    """Record batches of canonical records → one `Truth` a bundle."""

    def __init__(self, keys: int, *, has_values: bool) -> None:
        super().__init__()
        self._zero = (keys, has_values)

    def expand(self, records: beam.PCollection[pa.RecordBatch]) -> beam.PCollection[Truth]:
        partial = records | "Sum" >> beam.ParDo(_Sum(*self._zero)).with_output_types(Truth)
        return partial | "Add" >> beam.CombineGlobally(AddTruth(*self._zero))


class _Sum(beam.DoFn):
    def __init__(self, keys: int, has_values: bool) -> None:
        self._keys, self._has_values = keys, has_values

    def start_bundle(self) -> None:
        self._truth = Truth.zero(self._keys, has_values=self._has_values)

    def process(self, element: pa.RecordBatch) -> None:
        records = batch_to_records(element)
        holders = np.bincount(records.keys, minlength=self._keys).astype(np.int64)
        high = low = None
        if records.values is not None:
            high, low = np.zeros(self._keys, np.int64), np.zeros(self._keys, np.int64)
            np.add.at(high, records.keys, records.values >> _LOW_BITS)
            np.add.at(low, records.keys, records.values & ((1 << _LOW_BITS) - 1))
        self._truth += Truth(records.n, holders, high, low)

    def finish_bundle(self) -> Iterator[Any]:
        yield in_global_window(self._truth)


class AddTruth(beam.CombineFn):
    """Adds truths."""

    def __init__(self, keys: int, has_values: bool) -> None:
        self._keys, self._has_values = keys, has_values

    def create_accumulator(self) -> Truth:
        """Return the truth about nobody."""
        return Truth.zero(self._keys, has_values=self._has_values)

    def add_input(self, accumulator: Truth, element: Truth) -> Truth:
        """Add one."""
        return accumulator + element

    def merge_accumulators(self, accumulators: Iterable[Truth]) -> Truth:
        """Add several."""
        return sum(accumulators, self.create_accumulator())

    def extract_output(self, accumulator: Truth) -> Truth:
        """Return the sum."""
        return accumulator
