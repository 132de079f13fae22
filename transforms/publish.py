"""The server's last step: counts and estimates → files. Knows nothing of records or reports."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

import apache_beam as beam
import pyarrow as pa

from ..mechanisms import Counts
from ..schemas.counts import counts_schema, counts_table
from .collection import Collection
from .summary import Summary, WrittenFile
from .table_files import TableWriter, write_table

__all__ = ["WriteCounts", "WriteEstimates", "write_counts"]


class WriteEstimates(beam.PTransform):
    """Record batches of estimates → one file, and a `Summary` that lists it.

    Args:
        prefix: path without extension.
        format_: one of `table_files.FORMATS`.
    """

    def __init__(self, prefix: str, format_: str) -> None:
        super().__init__()
        self._path, self._format = f"{prefix}.{format_}", format_

    def expand(self, estimates: beam.PCollection[pa.RecordBatch]) -> beam.PCollection[Summary]:
        return estimates | "Write" >> beam.Map(_write_estimates, self._path, self._format).with_output_types(Summary)


def _write_estimates(batch: pa.RecordBatch, path: str, format_: str) -> Summary:
    rows = write_table(path, batch, format_, name="estimates")
    return Summary(files=(WrittenFile("estimates", path, rows),))


class WriteCounts(beam.PTransform):
    """((round, group), `Counts`) of all groups → one Parquet file of long rows, and a `Summary`."""

    def __init__(
        self, collection: Collection, path: str, *, private: bool = True, period: str = "", memoised: bool = False
    ) -> None:
        super().__init__()
        self._path = path
        header = collection.header("counts", period=period, private=private, memoised=memoised)
        self._schema = counts_schema(header)

    def expand(self, counts: beam.PCollection[tuple[tuple[int, str], Counts]]) -> beam.PCollection[Summary]:
        return (
            counts
            | "Together" >> beam.combiners.ToList()
            | "Write" >> beam.ParDo(_WriteCounts(self._path, self._schema)).with_output_types(Summary)
        )


class _WriteCounts(beam.DoFn):
    def __init__(self, path: str, schema: pa.Schema) -> None:
        self._path, self._schema = path, schema

    def process(self, element: list[tuple[tuple[int, str], Counts]]) -> Iterator[Summary]:
        yield Summary(files=(write_counts(self._path, self._schema, element),))


def write_counts(path: str, schema: pa.Schema, groups: Iterable[tuple[tuple[int, str], Counts]]) -> WrittenFile:
    """Write ((round, group), counts) to one new Parquet file of long rows."""
    with TableWriter(path, schema, "parquet", name="counts") as writer:
        for (round_, group), counts in sorted(groups, key=lambda item: item[0]):
            table = counts_table(round_, group, counts.n, counts.cells, schema)
            for batch in table.to_batches():
                writer.write(batch)
    return WrittenFile("counts", path, writer.rows)
