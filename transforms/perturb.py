"""The client's step: canonical records → perturbed reports. The last place where a record exists."""

from __future__ import annotations

from collections.abc import Iterator

import apache_beam as beam
import pyarrow as pa

from ..errors import ParameterError
from ..mechanisms import AutoPadding, MultiRound, Secret, Stream
from ..mechanisms.padding.auto import Group
from .batches import reports_to_batch
from .collection import Collection
from .memo import MEMOISED_PERIOD, Memo
from .record_batches import batch_to_records

__all__ = ["PerturbRecords"]


class PerturbRecords(beam.PTransform):
    """Record batches of canonical records → record batches of reports, one report a user.

    Privacy:
        Each report satisfies the collection's epsilon under local differential privacy for the user's whole
        record. The report is a pseudo-random function of the secret and (fingerprint, period, user,
        record): a retried bundle, another worker, batch size or engine gives the same report.

    Args:
        collection: what is collected.
        secret: the clients' secret; it travels in the pickled stage to the client-side workers and nowhere
            else.
        period: what the user named this period; another period gives fresh, independent reports.
        memo: memoised collection: an unchanged record repeats its report in every period, see `Memo`.
        group: padding "auto": who answers this question, and with what; None for everybody, with the whole record.
    """

    def __init__(
        self,
        collection: Collection,
        secret: Secret,
        *,
        period: str = "",
        memo: Memo | None = None,
        group: Group | None = None,
    ) -> None:
        super().__init__()
        if isinstance(collection.mechanism, AutoPadding):
            raise ParameterError(
                f'{collection.mechanism.name} with padding = "auto" asks two questions: run `ldp-beam collect`, or '
                "use the resolved definition, which holds the padding that was chosen."
            )
        if isinstance(collection.mechanism, MultiRound):
            raise ParameterError(
                f"{collection.mechanism.name} asks in rounds, and this is one of them: give `collection.for_round(…)`, "
                "or run `ldp-beam collect`, which asks them all."
            )
        self._memo, self._group = memo, group
        # The id of a memoised report changes with the period although the report does not.
        self._ids = secret.stream(fingerprint=collection.fingerprint, period=period, round=collection.round)
        period = period if memo is None else MEMOISED_PERIOD
        self._collection = collection
        self._stream = secret.stream(fingerprint=collection.fingerprint, period=period, round=collection.round)

    def expand(self, records: beam.PCollection[pa.RecordBatch]) -> beam.PCollection[pa.RecordBatch]:
        return records | "Perturb" >> beam.ParDo(self._step()).with_output_types(pa.RecordBatch)

    def perturb(self, records: pa.RecordBatch) -> Iterator[pa.RecordBatch]:
        """Perturb one batch here and now, for a step of another pipeline."""
        return self._step().process(records)

    def _step(self) -> _Perturb:
        return _Perturb(self._collection, self._stream, self._ids, self._memo, self._group)


class _Perturb(beam.DoFn):
    def __init__(
        self, collection: Collection, stream: Stream, ids: Stream, memo: Memo | None, group: Group | None
    ) -> None:
        self._mechanism = collection.mechanism
        self._stream, self._memo, self._group = stream, memo, group
        self._ids = ids if collection.definition.report_ids else None
        self._schema = collection.report_schema()

    def process(self, element: pa.RecordBatch) -> Iterator[pa.RecordBatch]:
        records = batch_to_records(element)
        if self._group is not None:
            records = self._group.of(records)
            if not records.n:
                return
        reports = self._mechanism.perturb(records, self._stream)
        if self._memo is not None:
            reports = self._memo.admit(self._mechanism, records.users, self._stream.seeds(records), reports)
        ids = None if self._ids is None else self._ids.ids(self._ids.seeds(records))
        yield reports_to_batch(reports, self._schema, ids=ids)
