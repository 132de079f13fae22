"""The server's look at reports that no honest crowd sends: reports → one small file of additive statistics."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import apache_beam as beam
import numpy as np
import pyarrow as pa
from apache_beam.io.filesystem import CompressionTypes
from apache_beam.io.filesystems import FileSystems
from apache_beam.transforms.window import GlobalWindow
from apache_beam.utils.windowed_value import WindowedValue

from ..errors import InputError
from ..mechanisms import Counts
from ..mechanisms.audit.poisoning import Finding, UnaryNull, suspicious, unary_null
from .batches import batch_to_reports
from .collection import Collection
from .count import AddCounts, add_counts

__all__ = ["CountSuspicious", "read_findings", "require_unary"]


def require_unary(collection: Collection) -> UnaryNull:
    """Return what honest reports of a collection look like.

    Raises:
        InputError: Its reports are not unary.
    """
    null = unary_null(collection.mechanism)
    if null is None:
        raise InputError(
            f"--detect-poisoning looks at the cells of unary reports; those of {collection.mechanism.name} have none."
        )
    return null


class CountSuspicious(beam.PTransform):
    """Record batches of reports → a file of statistics at `path`, for `read_findings`."""

    def __init__(self, collection: Collection, path: str) -> None:
        super().__init__()
        self._collection, self._path = collection, path
        self._null = require_unary(collection)

    def expand(self, reports: beam.PCollection[pa.RecordBatch]) -> beam.PCollection[str]:
        count = _Count(self._collection, self._null)
        return (
            reports
            | "Count" >> beam.ParDo(count).with_output_types(Counts)
            | "Add" >> beam.CombineGlobally(AddCounts()).without_defaults()
            | "Write" >> beam.Map(_write, self._path).with_output_types(str)
        )


class _Count(beam.DoFn):
    def __init__(self, collection: Collection, null: UnaryNull) -> None:
        self._mechanism, self._null = collection.mechanism, null

    def start_bundle(self) -> None:
        self._total: Counts | None = None

    def process(self, element: pa.RecordBatch) -> None:
        reports = batch_to_reports(element, self._mechanism.layout())
        counted = self._null.count(reports.select(self._mechanism.valid(reports)))
        self._total = counted if self._total is None else add_counts([self._total, counted])

    def finish_bundle(self) -> Iterator[Any]:
        if self._total is not None:
            window = GlobalWindow()
            yield WindowedValue(self._total, window.max_timestamp(), (window,))


def _write(counts: Counts, path: str) -> str:
    arrays: dict[str, Any] = {"n": counts.n, **counts.cells}
    with FileSystems.create(path, compression_type=CompressionTypes.UNCOMPRESSED) as file:
        np.savez(file, **arrays)
    return path


def read_findings(collection: Collection, path: str) -> list[Finding]:
    """Judge the statistics that a run left at `path`; none where no report was there."""
    if not FileSystems.exists(path):
        return []
    with FileSystems.open(path, compression_type=CompressionTypes.UNCOMPRESSED) as file, np.load(file) as stored:
        cells = {name: stored[name] for name in stored.files if name != "n"}
        return suspicious(require_unary(collection), Counts(n=int(stored["n"]), cells=cells))
