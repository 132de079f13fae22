"""The server's half as one transform: reports → estimates. Knows nothing of records."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import apache_beam as beam
import numpy as np
import pyarrow as pa
from apache_beam.typehints.row_type import RowTypeConstraint

from ..schemas.estimates import estimates_schema
from .collection import Collection
from .count import CountReports
from .count_distinct import DistinctReports
from .estimate import EstimateCounts, GatherCounts

__all__ = ["EstimateReports", "EstimatesToRows"]


class EstimateReports(beam.PTransform):
    """Record batches of reports → one record batch of estimates, with one row a key.

    Args:
        collection: the definition under which the reports were made; where it has ids, each id counts once.
        private: False where the reports' randomness came from a seed.
        period: name of the period, kept in the schema's metadata.
    """

    def __init__(self, collection: Collection, *, private: bool = True, period: str = "") -> None:
        super().__init__()
        self._collection, self._private, self._period = collection, private, period

    def expand(self, reports: beam.PCollection[pa.RecordBatch]) -> beam.PCollection[pa.RecordBatch]:
        if self._collection.definition.report_ids:
            reports, _ = reports | "Distinct" >> DistinctReports(self._collection)
        blocks, _ = reports | "Count" >> CountReports(self._collection)
        counts = blocks | "Gather" >> GatherCounts(self._collection)
        estimate = EstimateCounts(self._collection, private=self._private, period=self._period)
        return counts | "Estimate" >> estimate


class EstimatesToRows(beam.PTransform):
    """Record batches of estimates → one `beam.Row` a key, for transforms that work row by row.

    The flags of a key are one text, joined by ";".

    Args:
        collection: what was collected; it decides the columns.
    """

    def __init__(self, collection: Collection) -> None:
        super().__init__()
        estimates = collection.mechanism.estimate(collection.mechanism.zero())
        self._schema = estimates_schema(has_values=estimates.mean is not None, support=tuple(sorted(estimates.support)))

    def expand(self, estimates: beam.PCollection[pa.RecordBatch]) -> beam.PCollection[Any]:
        fields = [(field.name, _row_type(field)) for field in self._schema]
        return estimates | beam.FlatMap(_rows).with_output_types(RowTypeConstraint.from_fields(fields))


def _row_type(field: pa.Field) -> Any:
    if pa.types.is_floating(field.type):
        return float | None
    return np.int64 if pa.types.is_integer(field.type) else str


def _rows(batch: pa.RecordBatch) -> Iterator[beam.Row]:
    for row in batch.to_pylist():
        yield beam.Row(**(row | {"flags": ";".join(row["flags"])}))
