"""Bringing the rows of each user together, with memory that does not grow with the number of rows.

Rows are spilled to bucket files by a part of the user's digest (36 bytes a row or fewer), and the *names* of
the files cross the shuffle; then each bucket is read, sorted by user and key, and merged. A row's text never
reaches the disk: digests, key indices and fixed-point values only.
"""

from __future__ import annotations

import uuid
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import apache_beam as beam
import numpy as np
import numpy.typing as npt
import pyarrow as pa

from ..schemas.tally import Tally
from .inputs import Columns, FileSlice, RecordInputs
from .prepare import PairRows, Preparer
from .record_batches import records_to_batch
from .record_files import read_slice
from .rejects import RejectsFile, in_global_window
from .summary import Summary

__all__ = ["RegroupPairs"]

BATCH_ROWS = 1 << 16
#: Rows that one bucket should hold: what one worker sorts at a time.
_BUCKET_ROWS = 1 << 19
_MAX_BUCKETS = 1024
_USERS_OUT = 1 << 15


class RegroupPairs(beam.PTransform):
    """`FileSlice`s of rows → record batches of canonical records, one row a user, and `Summary`s.

    Returns (from `expand`): a tuple (records, summaries).
    """

    def __init__(self, preparer: Preparer, inputs: RecordInputs, spill: str, *, rejects: str | None) -> None:
        super().__init__()
        self._preparer = preparer
        buckets = _buckets(inputs.estimated_rows)
        self._spill = _Spill(preparer, inputs.columns, spill, buckets, rejects)

    def expand(
        self, slices: beam.PCollection[FileSlice]
    ) -> tuple[beam.PCollection[pa.RecordBatch], beam.PCollection[Summary]]:
        files, read = slices | "Spill" >> beam.ParDo(self._spill).with_outputs("summary", main="files")
        files.element_type = beam.typehints.KV[int, str]
        merged = files | "ByBucket" >> beam.GroupByKey()
        merge = beam.ParDo(_Merge(self._preparer)).with_outputs("summary", main="records")
        records, users = merged | "Merge" >> merge
        records.element_type = pa.RecordBatch
        read.element_type = users.element_type = Summary
        return records, (read, users) | "Summaries" >> beam.Flatten()


def _buckets(rows: int) -> int:
    wanted = max(1, -(-rows // _BUCKET_ROWS))
    return min(_MAX_BUCKETS, 1 << (wanted - 1).bit_length())


class _Spill(beam.DoFn):
    """Validates rows and appends them to one file a bucket, named for this attempt alone."""

    def __init__(self, preparer: Preparer, columns: Columns, folder: str, buckets: int, rejects: str | None) -> None:
        self._preparer, self._columns, self._folder = preparer, columns, folder
        self._buckets, self._rejects = buckets, rejects

    def start_bundle(self) -> None:
        self._tally = Tally()
        self._rejected = RejectsFile(self._rejects)
        self._attempt = uuid.uuid4().hex
        self._files: dict[int, Any] = {}

    def process(self, element: FileSlice) -> None:
        for raw in read_slice(element, self._columns, batch_rows=BATCH_ROWS):
            rows, tally, rejects = self._preparer.prepare_pairs(raw)
            self._tally += tally
            self._rejected.write(rejects)
            self._append(rows.packed())

    def _append(self, rows: npt.NDArray[np.void]) -> None:
        bucket = rows["digest"][:, 0].astype(np.uint16) | (rows["digest"][:, 1].astype(np.uint16) << 8)
        bucket &= np.uint16(self._buckets - 1)
        order = np.argsort(bucket, kind="stable")
        ends = np.cumsum(np.bincount(bucket, minlength=self._buckets))
        rows = rows[order]
        start = 0
        for number, end in enumerate(ends.tolist()):
            if end > start:
                self._file(number).write(rows[start:end].view(np.uint8).data)
            start = end

    def _file(self, bucket: int) -> Any:
        if bucket not in self._files:
            self._files[bucket] = Path(self._folder, f"{bucket:04d}-{self._attempt}").open("wb")  # noqa: SIM115 - closed at the end of the bundle
        return self._files[bucket]

    def finish_bundle(self) -> Iterator[Any]:
        for bucket, file in self._files.items():
            file.close()
            yield in_global_window((bucket, file.name))
        yield beam.pvalue.TaggedOutput("summary", in_global_window(Summary(self._tally, self._rejected.close())))


class _Merge(beam.DoFn):
    """Reads a bucket, merges the rows of each user and yields canonical records."""

    def __init__(self, preparer: Preparer) -> None:
        self._preparer = preparer

    def start_bundle(self) -> None:
        self._tally = Tally()

    def process(self, element: tuple[int, Iterable[str]]) -> Iterator[pa.RecordBatch]:
        paths = [Path(path) for path in element[1]]
        rows = np.concatenate([np.fromfile(path, dtype=self._preparer.row_dtype) for path in sorted(paths)])
        records, tally = self._preparer.merge_pairs(PairRows.unpacked(rows))
        del rows
        self._tally += tally
        for chunk in records.chunks(_USERS_OUT):
            yield records_to_batch(chunk)

    def finish_bundle(self) -> Iterator[Any]:
        yield beam.pvalue.TaggedOutput("summary", in_global_window(Summary(self._tally)))
