"""Records from files, validated: the entrance of the client side.

`ReadRecords` turns file slices into canonical record batches: users digested, keys looked up, values in
fixed point, invalid pairs dropped and tallied. Rows of the pairs layout (and of nested files that do not
keep the promise of one row a user) are first brought together by user, see `regroup`.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import apache_beam as beam
import pyarrow as pa

from ..schemas.tally import Tally
from .distinct import DistinctUsers
from .inputs import Columns, FileSlice, RecordInputs
from .prepare import Preparer
from .record_batches import records_to_batch
from .record_files import read_slice
from .regroup import RegroupPairs
from .rejects import RejectsFile, in_global_window
from .summary import Summary

__all__ = ["ReadRecords"]

#: Rows of a raw batch: enough to make the cost of each NumPy and Arrow call vanish, few enough for the cache.
BATCH_ROWS = 1 << 15


class ReadRecords(beam.PTransform):
    """`FileSlice`s → record batches of canonical records, one row a user, and `Summary`s.

    Args:
        preparer: the rules of validation, with the digests of the clients' secret.
        inputs: what `inspect_records` found.
        spill: a folder that only this user can read and all workers share, for the bucket files of the pairs layout
            and of `merge_users`, deleted by the caller; None to shuffle the rows instead.
        merge_users: bring rows of nested input together by user instead of relying on one row a user; a table of
            sensitive keys does so too.
        rejects: where to write rejected rows (raw data!), or None not to keep them.

    Returns (from `expand`): a tuple (records, summaries).
    """

    def __init__(
        self,
        preparer: Preparer,
        inputs: RecordInputs,
        *,
        spill: str | None,
        merge_users: bool = False,
        rejects: str | None = None,
    ) -> None:
        super().__init__()
        self._inputs, self._preparer = inputs, preparer
        self._spill, self._rejects = spill, rejects
        self._regroup = merge_users or inputs.layout == "pairs" or bool(inputs.sensitive)

    def expand(
        self, slices: beam.PCollection[FileSlice]
    ) -> tuple[beam.PCollection[pa.RecordBatch], beam.PCollection[Summary]]:
        if self._regroup:
            regroup = RegroupPairs(self._preparer, self._inputs, self._spill, rejects=self._rejects)
            return slices | "Regroup" >> regroup
        read = _ReadNested(self._preparer, self._inputs.columns, self._rejects)
        records, summaries = slices | "Read" >> beam.ParDo(read).with_outputs("summary", main="records")
        records.element_type = pa.RecordBatch
        summaries.element_type = Summary
        return records, summaries


class _ReadNested(beam.DoFn):
    def __init__(self, preparer: Preparer, columns: Columns, rejects: str | None) -> None:
        self._preparer, self._columns, self._rejects = preparer, columns, rejects

    def start_bundle(self) -> None:
        self._tally = Tally()
        self._distinct = DistinctUsers()
        self._rejected = RejectsFile(self._rejects)

    def process(self, element: FileSlice) -> Iterator[pa.RecordBatch]:
        for raw in read_slice(element, self._columns, batch_rows=BATCH_ROWS):
            records, tally, rejects = self._preparer.prepare_nested(raw)
            self._tally += tally
            self._distinct.add(records.users)
            self._rejected.write(rejects)
            if records.n:
                yield records_to_batch(records)

    def finish_bundle(self) -> Iterator[Any]:
        summary = Summary(self._tally, self._rejected.close(), self._distinct)
        yield beam.pvalue.TaggedOutput("summary", in_global_window(summary))
