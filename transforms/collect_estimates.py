"""The whole collection as one transform, for somebody's own pipeline: records → estimates."""

from __future__ import annotations

from typing import Any

import apache_beam as beam
import pyarrow as pa

from ..mechanisms import Secret
from ..schemas.records import Columns
from .collection import Collection
from .estimate_reports import EstimateReports
from .in_memory import PrepareRecords
from .perturb import PerturbRecords

__all__ = ["CollectEstimates", "RecordsToReports"]


class RecordsToReports(beam.PTransform):
    """The client half: records → record batches of reports, one report a user.

    Privacy:
        Each report satisfies the collection's epsilon under local differential privacy for everything that its
        element holds. See `PrepareRecords` for the forms of an element.

    Args:
        collection: what is collected.
        secret: the clients' secret: `Secret.new()` for a collection that happens once.
        period: name of the period; under another name an unchanged record gives a fresh report.
        columns: names of the fields in mappings and batches.
    """

    def __init__(
        self, collection: Collection, secret: Secret, *, period: str = "", columns: Columns | None = None
    ) -> None:
        super().__init__()
        self._prepare = PrepareRecords(collection, secret, columns=columns)
        self._perturb = PerturbRecords(collection, secret, period=period)

    def expand(self, records: beam.PCollection[Any]) -> beam.PCollection[pa.RecordBatch]:
        return records | "Prepare" >> self._prepare | "Perturb" >> self._perturb


class CollectEstimates(beam.PTransform):
    """Records → estimates of every declared key, in one transform.

    Both halves run in one pipeline here, which suits simulations and whoever holds the records. Where people's
    own devices perturb, use `RecordsToReports` there and `EstimateReports` on the server.

    Privacy:
        What comes out is a function of the reports alone.

    Args:
        collection: what is collected.
        secret: the clients' secret.
        period: name of the period.
        columns: names of the fields in mappings and batches.

    Returns (from `expand`): one `pyarrow.RecordBatch`, one row a key; `to_pandas()` gives a data frame.
    """

    def __init__(
        self, collection: Collection, secret: Secret, *, period: str = "", columns: Columns | None = None
    ) -> None:
        super().__init__()
        self._perturb = RecordsToReports(collection, secret, period=period, columns=columns)
        self._estimate = EstimateReports(collection, private=secret.private, period=period)

    def expand(self, records: beam.PCollection[Any]) -> beam.PCollection[pa.RecordBatch]:
        return records | "Reports" >> self._perturb | "Estimates" >> self._estimate
