"""The server's guard against counting a report twice, where reports carry ids: one report an id is left.

Two deliveries of one report share its id, since the id is a pseudo-random function of the same label as the report.
Equal reports of different people do not. Where somebody made a report with another content under the same id, the one
whose bytes come first is counted, so that the result does not depend on order or engine. Who can mint reports can
mint ids, so this guards against repeated deliveries and copied files, not against fake users.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any, Final

import apache_beam as beam
import numpy as np
import numpy.typing as npt
import pyarrow as pa
from apache_beam.transforms.window import BoundedWindow

from ..mechanisms import Mechanism
from ..schemas.reports import REPORT_ID, REPORT_ID_BYTES
from ..schemas.tally import REPORTS_DUPLICATE, Tally
from .batches import batch_to_reports
from .collection import Collection
from .summary import Summary

__all__ = ["DistinctReports", "distinct_reports", "id_bytes"]

#: Reports are brought together by the first byte of their ids; ids are uniform, so that the parts are alike in size.
_SHARDS: Final = 256


class DistinctReports(beam.PTransform):
    """Record batches of reports with ids → record batches without repeated ids, and `Summary`s of what was left out.

    All reports cross a shuffle, 16 bytes a report larger than they are. Malformed reports pass, for `CountReports` to
    tell of: they must not displace a true one.

    Returns (from `expand`): a tuple (reports, summaries).
    """

    def __init__(self, collection: Collection) -> None:
        super().__init__()
        self._mechanism = collection.mechanism

    def expand(
        self, reports: beam.PCollection[pa.RecordBatch]
    ) -> tuple[beam.PCollection[pa.RecordBatch], beam.PCollection[Summary]]:
        shards = reports | "Shard" >> beam.FlatMap(_shards).with_output_types(beam.typehints.KV[int, pa.RecordBatch])
        one = beam.ParDo(_Distinct(self._mechanism)).with_outputs("summary", main="reports")
        distinct, summaries = shards | "Together" >> beam.GroupByKey() | "Distinct" >> one
        distinct.element_type, summaries.element_type = pa.RecordBatch, Summary
        return distinct, summaries


def _shards(batch: pa.RecordBatch) -> Iterator[tuple[int, pa.RecordBatch]]:
    shard = id_bytes(batch)[:, 0]
    order = np.argsort(shard, kind="stable")
    sorted_ = batch.take(pa.array(order))
    bounds = np.searchsorted(shard[order], np.arange(_SHARDS + 1))
    for number in np.unique(shard).tolist():
        yield number, sorted_.slice(bounds[number], bounds[number + 1] - bounds[number])


class _Distinct(beam.DoFn):
    def __init__(self, mechanism: Mechanism) -> None:
        self._mechanism = mechanism

    def process(
        self, element: tuple[int, Iterable[pa.RecordBatch]], window: BoundedWindow = beam.DoFn.WindowParam
    ) -> Iterator[Any]:
        together = pa.Table.from_batches(element[1]).combine_chunks().to_batches()[0]
        distinct, left_out = distinct_reports(self._mechanism, together)
        yield distinct
        yield beam.pvalue.TaggedOutput("summary", Summary(Tally({REPORTS_DUPLICATE: left_out})))


def distinct_reports(mechanism: Mechanism, batch: pa.RecordBatch) -> tuple[pa.RecordBatch, int]:
    """Return the reports of a batch without repeated ids, sorted by id, and how many were left out.

    Of several valid reports with one id the one whose columns sort first is kept; malformed reports are all kept.
    """
    valid = mechanism.valid(batch_to_reports(batch, mechanism.layout()))
    malformed = batch.filter(pa.array(~valid))
    kept = _distinct(batch.filter(pa.array(valid)))
    table = pa.Table.from_batches([kept, malformed], schema=batch.schema).combine_chunks()
    whole = table.to_batches()[0] if table.num_rows else batch.slice(0, 0)
    return whole, int(np.count_nonzero(valid)) - kept.num_rows


def _distinct(batch: pa.RecordBatch) -> pa.RecordBatch:
    """Return one report an id, sorted by id.

    Most ids come once, or again with the very same report: after one sort of numbers such reports lie side by side.
    Only what is left of ids with several contents is sorted as a whole.
    """
    begins = _begins(batch)
    order = np.argsort(begins)
    ordered, begins = batch.take(pa.array(order)), begins[order]
    new = ~_like_the_one_before(ordered)
    left, begins = ordered.filter(pa.array(new)), begins[new]
    again = np.zeros(len(begins) + 1, dtype=np.bool_)
    again[1:-1] = begins[1:] == begins[:-1]
    unclear = again[1:] | again[:-1]
    if not unclear.any():
        return left
    parts = [left.filter(pa.array(~unclear)), _least(left.filter(pa.array(unclear)))]
    together = pa.concat_batches(parts)
    return together.take(pa.array(np.lexsort((_begins(together, 8), _begins(together)))))


def _least(batch: pa.RecordBatch) -> pa.RecordBatch:
    """Return of each id the report whose columns sort first."""
    columns = [REPORT_ID, *(name for name in batch.schema.names if name != REPORT_ID)]
    candidates = batch.sort_by([(name, "ascending") for name in columns])
    ids = id_bytes(candidates)
    first = np.ones(len(ids), dtype=np.bool_)
    first[1:] = (ids[1:] != ids[:-1]).any(axis=1)
    return candidates.filter(pa.array(first))


def _begins(batch: pa.RecordBatch, at: int = 0) -> npt.NDArray[np.uint64]:
    """Return eight bytes of each id as numbers that sort as the bytes do."""
    return np.ascontiguousarray(id_bytes(batch)[:, at : at + 8]).view(">u8")[:, 0].astype(np.uint64)


def _like_the_one_before(batch: pa.RecordBatch) -> npt.NDArray[np.bool_]:
    """Return which reports are, byte for byte, the one before them."""
    like = np.zeros(batch.num_rows, dtype=np.bool_)
    like[1:] = True
    for column in batch.columns:
        rows = _bytes(column, column.type.bit_width // 8)
        like[1:] &= (rows[1:] == rows[:-1]).all(axis=1)
    return like


def id_bytes(batch: pa.RecordBatch) -> npt.NDArray[np.uint8]:
    """Return the ids as bytes, uint8 (n, 16)."""
    return _bytes(batch.column(REPORT_ID), REPORT_ID_BYTES)


def _bytes(column: pa.Array, width: int) -> npt.NDArray[np.uint8]:
    data = np.frombuffer(column.buffers()[1], dtype=np.uint8) if len(column) else np.empty(0, dtype=np.uint8)
    return data[column.offset * width : (column.offset + len(column)) * width].reshape(-1, width)
