"""What the users of a personalised collection truly tell of. Holds raw records: never on a server.

Only `evaluate` uses this, for the terms of the error bound; a collection never does.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any

import apache_beam as beam
import numpy as np
import numpy.typing as npt
import pyarrow as pa

from ..mechanisms.uldp.pum import PUM
from .record_batches import batch_to_records
from .rejects import in_global_window

__all__ = ["AddSymbolTruth", "CountSymbols", "SymbolTruth"]


# No repr: what it holds is raw data and must not reach a log.
@dataclass(frozen=True, eq=False, repr=False)
class SymbolTruth:
    """Sums over a population of n users; see `PUM.true_shares`.

    Attributes:
        n: users.
        joint: users by tag (row 0: none) and key, float64 (tags + 1, keys).
        untold: users who tell of a symbol that they do not hold, by symbol, float64 (keys + tags,).
    """

    n: int
    joint: npt.NDArray[np.float64]
    untold: npt.NDArray[np.float64]

    @classmethod
    def zero(cls, mechanism: PUM) -> SymbolTruth:
        """Return the truth about nobody."""
        keys, tags = mechanism.keys, len(mechanism.tags)
        return cls(0, np.zeros((tags + 1, keys)), np.zeros(keys + tags))

    def __add__(self, other: SymbolTruth) -> SymbolTruth:
        return SymbolTruth(self.n + other.n, self.joint + other.joint, self.untold + other.untold)


class CountSymbols(beam.PTransform):
    """Record batches of canonical records with tags → one `SymbolTruth`."""

    def __init__(self, mechanism: PUM) -> None:
        super().__init__()
        self._mechanism = mechanism

    def expand(self, records: beam.PCollection[pa.RecordBatch]) -> beam.PCollection[SymbolTruth]:
        partial = records | "Sum" >> beam.ParDo(_Sum(self._mechanism)).with_output_types(SymbolTruth)
        return partial | "Add" >> beam.CombineGlobally(AddSymbolTruth(self._mechanism))


class _Sum(beam.DoFn):
    def __init__(self, mechanism: PUM) -> None:
        self._mechanism = mechanism

    def start_bundle(self) -> None:
        self._truth = SymbolTruth.zero(self._mechanism)

    def process(self, element: pa.RecordBatch) -> None:
        records = batch_to_records(element)
        self._truth += SymbolTruth(records.n, *self._mechanism.true_shares(records))

    def finish_bundle(self) -> Iterator[Any]:
        yield in_global_window(self._truth)


class AddSymbolTruth(beam.CombineFn):
    """Adds truths."""

    def __init__(self, mechanism: PUM) -> None:
        self._mechanism = mechanism

    def create_accumulator(self) -> SymbolTruth:
        """Return the truth about nobody."""
        return SymbolTruth.zero(self._mechanism)

    def add_input(self, accumulator: SymbolTruth, element: SymbolTruth) -> SymbolTruth:
        """Add one."""
        return accumulator + element

    def merge_accumulators(self, accumulators: Iterable[SymbolTruth]) -> SymbolTruth:
        """Add several."""
        return sum(accumulators, self.create_accumulator())

    def extract_output(self, accumulator: SymbolTruth) -> SymbolTruth:
        """Return the sum."""
        return accumulator
