"""The server's first step: reports → counts, added up per (round, group, key block)."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

import apache_beam as beam
import numpy as np
import pyarrow as pa
from apache_beam.transforms.window import BoundedWindow
from apache_beam.utils.windowed_value import WindowedValue

from ..mechanisms import Counts
from ..schemas.counts import MAIN_GROUP
from ..schemas.tally import REPORTS_COUNTED, REPORTS_MALFORMED, Tally
from .batches import batch_to_reports
from .collection import Collection
from .summary import Summary

__all__ = [
    "BLOCK_CELLS",
    "BLOCK_COUNTS",
    "AddCounts",
    "CountBlock",
    "CountReports",
    "add_counts",
    "join_blocks",
    "split_blocks",
]

#: Cells of a key block: a small domain is one block, a million keys spread over many workers.
BLOCK_CELLS = 1 << 16

#: The key of a partial count: (round, group, block of cells). A plain tuple, which Beam encodes alike everywhere.
CountBlock = tuple[int, str, int]

#: Beam's type of an element (`CountBlock`, `Counts`).
BLOCK_COUNTS = beam.typehints.KV[CountBlock, Counts]


class CountReports(beam.PTransform):
    """Record batches of reports → (`CountBlock`, `Counts`), one for each block, and a `Summary`.

    Reports that the mechanism cannot have produced are set aside and tallied, never counted.

    Returns (from `expand`): a tuple (counts, summaries).
    """

    def __init__(self, collection: Collection, *, group: str = MAIN_GROUP) -> None:
        super().__init__()
        self._collection, self._round, self._group = collection, collection.round, group

    def expand(
        self, reports: beam.PCollection[pa.RecordBatch]
    ) -> tuple[beam.PCollection[tuple[CountBlock, Counts]], beam.PCollection[Summary]]:
        count = _Count(self._collection, self._round, self._group)
        partial, summaries = reports | "Count" >> beam.ParDo(count).with_outputs("summary", main="counts")
        partial.element_type = BLOCK_COUNTS
        return partial | "Add" >> beam.CombinePerKey(AddCounts()), summaries


class _Count(beam.DoFn):
    """Counts a bundle into arrays of its own and emits them at its end: arrays cross the shuffle, not rows."""

    def __init__(self, collection: Collection, round_: int, group: str) -> None:
        self._mechanism = collection.mechanism
        self._round, self._group = round_, group

    def start_bundle(self) -> None:
        self._counts: dict[BoundedWindow, Counts] = {}
        self._malformed: dict[BoundedWindow, int] = {}

    def process(self, element: pa.RecordBatch, window: Any = beam.DoFn.WindowParam) -> None:
        reports = batch_to_reports(element, self._mechanism.layout())
        valid = self._mechanism.valid(reports)
        malformed = reports.n - int(np.count_nonzero(valid))
        if malformed:
            reports = reports.select(valid)
        into = self._counts.get(window)
        self._counts[window] = self._mechanism.count(reports, into=into)
        self._malformed[window] = self._malformed.get(window, 0) + malformed

    def finish_bundle(self) -> Iterator[Any]:
        for window, counts in self._counts.items():
            time = window.max_timestamp()
            for block, part in split_blocks(counts):
                key = (self._round, self._group, block)
                yield WindowedValue((key, part), time, (window,))
            tally = Tally({REPORTS_COUNTED: counts.n, REPORTS_MALFORMED: self._malformed[window]})
            yield beam.pvalue.TaggedOutput("summary", WindowedValue(Summary(tally), time, (window,)))


def split_blocks(counts: Counts) -> Iterator[tuple[int, Counts]]:
    """Yield (block number, counts of its cells); n stands in every block."""
    size = max((len(v) for v in counts.cells.values()), default=0)
    for block in range(max(1, -(-size // BLOCK_CELLS))):
        part = slice(block * BLOCK_CELLS, (block + 1) * BLOCK_CELLS)
        yield block, Counts(n=counts.n, cells={k: v[part] for k, v in counts.cells.items()})


def join_blocks(blocks: Iterable[tuple[int, Counts]]) -> Counts:
    """Put the blocks of one group together again.

    Raises:
        ValueError: The blocks disagree on n, that is, a block was lost or counted twice.
    """
    parts = [counts for _, counts in sorted(blocks, key=lambda item: item[0])]
    if len({part.n for part in parts}) != 1:
        raise ValueError(f"key blocks disagree on the number of reports: {sorted({p.n for p in parts})}")
    names = parts[0].cells.keys()
    return Counts(n=parts[0].n, cells={k: np.concatenate([p.cells[k] for p in parts]) for k in names})


def add_counts(counts: Iterable[Counts]) -> Counts | None:
    """Add counts into fresh arrays; None for none. The inputs are not changed."""
    total: Counts | None = None
    for item in counts:
        if total is None:
            total = Counts(n=item.n, cells={k: v.copy() for k, v in item.cells.items()})
            continue
        if total.cells.keys() != item.cells.keys():
            raise ValueError(f"counts of {sorted(total.cells)} and {sorted(item.cells)} cannot be added")
        for name, array in item.cells.items():
            np.add(total.cells[name], array, out=total.cells[name])
        total = Counts(n=total.n + item.n, cells=total.cells)
    return total


class AddCounts(beam.CombineFn):
    """Adds counts of one block. An accumulator's arrays are its own, so it may be changed; inputs may not."""

    def create_accumulator(self) -> Counts | None:
        """Return None: the counts of nothing, of any shape."""
        return None

    def add_input(self, accumulator: Counts | None, element: Counts) -> Counts | None:
        """Add one partial count."""
        return add_counts([element] if accumulator is None else [accumulator, element])

    def merge_accumulators(self, accumulators: Iterable[Counts | None]) -> Counts | None:
        """Add several partial counts."""
        return add_counts(a for a in accumulators if a is not None)

    def extract_output(self, accumulator: Counts | None) -> Counts:
        """Return the sum."""
        if accumulator is None:
            raise ValueError("there is nothing to add")
        return accumulator
