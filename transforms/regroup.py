"""Bringing the rows of each user together, with memory that does not grow with the number of rows.

Rows are put into buckets by a part of the user's digest (36 bytes a row or fewer); then each bucket is sorted by
user and key, and merged. Where all workers share a disk, the buckets are files and only their *names* cross the
shuffle. On a cluster the rows themselves cross it, thousands in one piece. A row's text goes neither way: digests,
key indices and fixed-point values only.
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
from .inputs import SENSITIVE_COLUMNS, Columns, FileSlice, RecordInputs
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
#: Fewest buckets of a cluster, so that its workers share the merging.
_CLUSTER_BUCKETS = 16
#: Rows that are gathered before they cross the shuffle, so that pieces stay large with many buckets.
_GATHERED_ROWS = 1 << 21


class RegroupPairs(beam.PTransform):
    """`FileSlice`s of rows → record batches of canonical records, one row a user, and `Summary`s.

    Args:
        preparer: the rules of validation.
        inputs: what is read.
        spill: a folder that all workers share, for bucket files; None to shuffle the rows.
        rejects: where to write rejected rows, or None not to keep them.

    Returns (from `expand`): a tuple (records, summaries).
    """

    def __init__(self, preparer: Preparer, inputs: RecordInputs, spill: str | None, *, rejects: str | None) -> None:
        super().__init__()
        self._preparer = preparer
        buckets = _buckets(inputs.estimated_rows, fewest=1 if spill is not None else _CLUSTER_BUCKETS)
        self._spilled = spill is not None
        self._to_buckets = _ToBuckets(preparer, inputs.columns, spill, buckets, rejects)

    def expand(
        self, slices: beam.PCollection[FileSlice]
    ) -> tuple[beam.PCollection[pa.RecordBatch], beam.PCollection[Summary]]:
        parts, read = slices | "ToBuckets" >> beam.ParDo(self._to_buckets).with_outputs("summary", main="parts")
        parts.element_type = beam.typehints.KV[int, str if self._spilled else bytes]  # (bucket, path or rows)
        merged = parts | "ByBucket" >> beam.GroupByKey()
        merge = beam.ParDo(_Merge(self._preparer)).with_outputs("summary", main="records")
        records, users = merged | "Merge" >> merge
        records.element_type = pa.RecordBatch
        read.element_type = users.element_type = Summary
        return records, (read, users) | "Summaries" >> beam.Flatten()


def _buckets(rows: int, *, fewest: int) -> int:
    wanted = max(fewest, -(-rows // _BUCKET_ROWS))
    return min(_MAX_BUCKETS, 1 << (wanted - 1).bit_length())


class _BucketFiles:
    """One file a bucket, named for this attempt alone."""

    def __init__(self, folder: str) -> None:
        self._folder, self._attempt = folder, uuid.uuid4().hex
        self._files: dict[int, Any] = {}

    def append(self, bucket: int, rows: npt.NDArray[np.void]) -> None:
        if bucket not in self._files:
            self._files[bucket] = Path(self._folder, f"{bucket:04d}-{self._attempt}").open("wb")  # noqa: SIM115 - closed at the end of the bundle
        self._files[bucket].write(rows.view(np.uint8).data)

    def full(self) -> Iterator[tuple[int, str]]:
        """Nothing leaves before the end."""
        return iter(())

    def rest(self) -> Iterator[tuple[int, str]]:
        for bucket, file in self._files.items():
            file.close()
            yield bucket, file.name

    def close(self) -> None:
        for file in self._files.values():
            file.close()


class _BucketPieces:
    """Rows gathered in memory until there are enough for large pieces."""

    def __init__(self) -> None:
        self._rows: dict[int, list[bytes]] = {}
        self._gathered = 0

    def append(self, bucket: int, rows: npt.NDArray[np.void]) -> None:
        self._rows.setdefault(bucket, []).append(rows.tobytes())
        self._gathered += len(rows)

    def full(self) -> Iterator[tuple[int, bytes]]:
        if self._gathered >= _GATHERED_ROWS:
            yield from self.rest()

    def rest(self) -> Iterator[tuple[int, bytes]]:
        rows, self._rows, self._gathered = self._rows, {}, 0
        for bucket, pieces in rows.items():
            yield bucket, b"".join(pieces)

    def close(self) -> None:
        self._rows = {}


class _ToBuckets(beam.DoFn):
    """Validates rows and puts each into the bucket of its user."""

    def __init__(
        self, preparer: Preparer, columns: Columns, folder: str | None, buckets: int, rejects: str | None
    ) -> None:
        self._preparer, self._columns, self._folder = preparer, columns, folder
        self._buckets, self._rejects = buckets, rejects

    def start_bundle(self) -> None:
        self._tally = Tally()
        self._rejected = RejectsFile(self._rejects)
        self._parts = _BucketPieces() if self._folder is None else _BucketFiles(self._folder)

    def process(self, element: FileSlice) -> Iterator[tuple[int, str | bytes]]:
        try:
            for rows in self._rows(element):
                self._append(rows.packed())
                yield from self._parts.full()
        except Exception:  # a refused row ends the bundle, and with it the use of its files
            self._parts.close()
            raise

    def _rows(self, element: FileSlice) -> Iterator[PairRows]:
        if element.sensitive:
            for raw in read_slice(element, SENSITIVE_COLUMNS, batch_rows=BATCH_ROWS):
                rows, tally = self._preparer.prepare_table(raw)
                self._tally += tally
                yield rows
            return
        for raw in read_slice(element, self._columns, batch_rows=BATCH_ROWS):
            rows, tally, rejects = self._preparer.prepare_pairs(raw)
            self._tally += tally
            self._rejected.write(rejects)
            yield rows

    def _append(self, rows: npt.NDArray[np.void]) -> None:
        bucket = rows["digest"][:, 0].astype(np.uint16) | (rows["digest"][:, 1].astype(np.uint16) << 8)
        bucket &= np.uint16(self._buckets - 1)
        order = np.argsort(bucket, kind="stable")
        ends = np.cumsum(np.bincount(bucket, minlength=self._buckets))
        rows = np.take(rows, order)  # several times as fast as indexing, field by field
        start = 0
        for number, end in enumerate(ends.tolist()):
            if end > start:
                self._parts.append(number, rows[start:end])
            start = end

    def finish_bundle(self) -> Iterator[Any]:
        for part in self._parts.rest():
            yield in_global_window(part)
        yield beam.pvalue.TaggedOutput("summary", in_global_window(Summary(self._tally, self._rejected.close())))


class _Merge(beam.DoFn):
    """Reads a bucket, merges the rows of each user and yields canonical records."""

    def __init__(self, preparer: Preparer) -> None:
        self._preparer = preparer

    def start_bundle(self) -> None:
        self._tally = Tally()

    def process(self, element: tuple[int, Iterable[str | bytes]]) -> Iterator[pa.RecordBatch]:
        rows = np.concatenate([self._read(part) for part in element[1]])
        records, tally = self._preparer.merge_pairs(PairRows.unpacked(rows))
        del rows
        self._tally += tally
        for chunk in records.chunks(_USERS_OUT):
            yield records_to_batch(chunk)

    def _read(self, part: str | bytes) -> npt.NDArray[np.void]:
        if isinstance(part, bytes):
            return np.frombuffer(part, dtype=self._preparer.row_dtype)
        return np.fromfile(part, dtype=self._preparer.row_dtype)

    def finish_bundle(self) -> Iterator[Any]:
        yield beam.pvalue.TaggedOutput("summary", in_global_window(Summary(self._tally)))
