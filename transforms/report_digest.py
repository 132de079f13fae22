"""An order-independent digest of a set of reports: equal sets have equal digests, on every engine.

Each report is hashed to 128 bits and the hashes are added modulo 2^128, so that workers add up what they saw and
the order does not matter, while a report that is there twice counts twice.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final

import apache_beam as beam
import numpy as np
import numpy.typing as npt
import pyarrow as pa
from apache_beam.utils.windowed_value import WindowedValue

from ..mechanisms import Reports, UserDigests
from .batches import batch_to_reports
from .collection import Collection
from .summary import DIGEST_MODULUS, Summary

__all__ = ["DigestReports", "digest_reports"]

#: The hash has no secret key: the digest says nothing that the reports do not say.
_HASH: Final = UserDigests(bytes(16), bytes(32))


def digest_reports(reports: Reports) -> int:
    """Return the digest of a batch; digests add up modulo 2^128."""
    if not reports.n:
        return 0
    rows = _rows(reports)
    width = rows.shape[1]
    hashes = _HASH.text(np.arange(reports.n + 1, dtype=np.int64) * width, rows.reshape(-1)).view("<u4")
    sums = hashes.sum(axis=0, dtype=np.uint64)  # up to 2^32 reports
    return sum(int(part) << (32 * place) for place, part in enumerate(sums)) % DIGEST_MODULUS


def _rows(reports: Reports) -> npt.NDArray[np.uint8]:
    """Bytes of each report, its arrays in order of their names."""
    parts = [
        np.ascontiguousarray(array).view(np.uint8).reshape(reports.n, -1) for _, array in sorted(reports.arrays.items())
    ]
    return np.ascontiguousarray(np.concatenate(parts, axis=1))


class DigestReports(beam.PTransform):
    """Record batches of reports → `Summary`s with their digests."""

    def __init__(self, collection: Collection) -> None:
        super().__init__()
        self._collection = collection

    def expand(self, reports: beam.PCollection[pa.RecordBatch]) -> beam.PCollection[Summary]:
        return reports | "Digest" >> beam.ParDo(_Digest(self._collection)).with_output_types(Summary)


class _Digest(beam.DoFn):
    def __init__(self, collection: Collection) -> None:
        self._layout = collection.mechanism.layout()

    def start_bundle(self) -> None:
        self._total = 0

    def process(self, element: pa.RecordBatch) -> None:
        self._total += digest_reports(batch_to_reports(element, self._layout))

    def finish_bundle(self) -> Iterator[Any]:
        window = beam.transforms.window.GlobalWindow()
        yield WindowedValue(Summary(digest=self._total % DIGEST_MODULUS), window.max_timestamp(), (window,))
