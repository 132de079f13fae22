"""Our transforms for Beam YAML: a pipeline in a text file can collect without a line of Python.

A YAML pipeline names them in its `providers`:

    providers:
      - type: python
        config: {}
        transforms:
          LdpCollect: ldp_beam.pipelines.beam_yaml.Collect
          LdpPerturb: ldp_beam.pipelines.beam_yaml.Perturb
          LdpEstimate: ldp_beam.pipelines.beam_yaml.Estimate

Rows go in and rows come out. Records may be nested (user_id, items) or pairs (user_id, key, value), which are
brought together by user first.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any, Final

import apache_beam as beam
import numpy as np
import pyarrow as pa
from apache_beam.typehints.row_type import RowTypeConstraint

from ..errors import InputError, did_you_mean
from ..mechanisms import Secret
from ..schemas.manifest import Randomness
from ..schemas.records import Columns
from ..transforms.collect_estimates import RecordsToReports
from ..transforms.collection import Collection
from ..transforms.estimate_reports import EstimateReports, EstimatesToRows
from .randomness_options import choose_secret

__all__ = ["Collect", "Estimate", "Perturb"]

#: Rows of reports that are counted together.
_BATCH: Final = 8192


class _Client(beam.PTransform):
    """What `Collect` and `Perturb` share: the collection, the secret, and rows that become records.

    Args:
        collection: path of the collection definition.
        secret_file: secret made by `ldp-beam secret new`; needs a period. Without one a fresh secret is drawn.
        period: name of the period.
        seed: derive the secret from a number: for tests, NOT PRIVATE.
        user_column: name of the column of user ids.
        key_column: name of the column, or item field, of keys.
        value_column: name of the column, or item field, of values.
        items_column: name of the column of lists (nested rows).
    """

    def __init__(
        self,
        collection: str,
        *,
        secret_file: str | None = None,
        period: str | None = None,
        seed: int | None = None,
        user_column: str = "user_id",
        key_column: str = "key",
        value_column: str = "value",
        items_column: str = "items",
    ) -> None:
        super().__init__()
        self._collection = Collection.load(collection)
        chosen: tuple[Secret, Randomness] = choose_secret(secret_file=secret_file, seed=seed, period=period)
        self._secret, self._randomness = chosen
        self._columns = Columns(user=user_column, key=key_column, value=value_column, items=items_column)

    def _reports(self, rows: beam.PCollection[Any]) -> beam.PCollection[pa.RecordBatch]:
        records = rows | "Records" >> _RowsToRecords(self._columns, self._collection)
        period = self._randomness.period
        return records | "Reports" >> RecordsToReports(self._collection, self._secret, period=period)

    def _estimate(self) -> EstimateReports:
        chosen = self._randomness
        return EstimateReports(self._collection, private=chosen.private, period=chosen.period)


class Collect(_Client):
    """Rows of records → one row of estimates a key.

    Privacy:
        Rows of one user make one report, which satisfies the collection's epsilon for the whole record.
    """

    def expand(self, rows: beam.PCollection[Any]) -> beam.PCollection[Any]:
        estimates = self._reports(rows) | "Estimates" >> self._estimate()
        return estimates | "Rows" >> EstimatesToRows(self._collection)


class Perturb(_Client):
    """Rows of records → one row a report, in the columns that the mechanism's reports have.

    Privacy:
        Rows of one user make one report, which satisfies the collection's epsilon for the whole record.
    """

    def expand(self, rows: beam.PCollection[Any]) -> beam.PCollection[Any]:
        schema = self._collection.report_schema()
        fields = [(field.name, _type_of(field.type)) for field in schema]
        rows_type = RowTypeConstraint.from_fields(fields)
        return self._reports(rows) | "Rows" >> beam.FlatMap(_report_rows).with_output_types(rows_type)


class Estimate(beam.PTransform):
    """Rows of reports → one row of estimates a key.

    Args:
        collection: path of the collection definition under which the reports were made.
        private: False where the reports' randomness came from a seed.
    """

    def __init__(self, collection: str, *, private: bool = True) -> None:
        super().__init__()
        self._collection, self._private = Collection.load(collection), private

    def expand(self, rows: beam.PCollection[Any]) -> beam.PCollection[Any]:
        schema = self._collection.report_schema()
        batches = (
            rows
            | "Together" >> beam.BatchElements(min_batch_size=64, max_batch_size=_BATCH)
            | "Batch" >> beam.Map(_report_batch, schema).with_output_types(pa.RecordBatch)
        )
        estimates = batches | "Estimates" >> EstimateReports(self._collection, private=self._private)
        return estimates | "Rows" >> EstimatesToRows(self._collection)


class _RowsToRecords(beam.PTransform):
    """Nested rows pass; rows of pairs are brought together by user."""

    def __init__(self, columns: Columns, collection: Collection) -> None:
        super().__init__()
        self._columns, self._has_values = columns, collection.definition.values is not None

    def expand(self, rows: beam.PCollection[Any]) -> beam.PCollection[Any]:
        names = [name for name, _ in getattr(rows.element_type, "_fields", ())]
        columns = self._columns
        if columns.items in names:
            nested = beam.Map(_nested, columns).with_output_types(tuple[str, Any])
            return rows | "Nested" >> nested
        wanted = [columns.user, columns.key, *([columns.value] if self._has_values else [])]
        for name in wanted:
            if names and name not in names:
                raise InputError(f"The rows have no column {name!r}. {did_you_mean(name, names)}")
        pair_type = beam.typehints.KV[str, Any]
        return (
            rows
            | "ByUser" >> beam.Map(_pair, columns, self._has_values).with_output_types(pair_type)
            | beam.GroupByKey()
            | "OneUser" >> beam.MapTuple(_one_user).with_output_types(tuple[str, Any])
        )


def _nested(row: Any, columns: Columns) -> tuple[str, Any]:
    held = row._asdict()
    return _id_of(held[columns.user]), held[columns.items]


def _pair(row: Any, columns: Columns, has_values: bool) -> tuple[str, Any]:
    held = row._asdict()
    key = None if held[columns.key] is None else str(held[columns.key])
    return _id_of(held[columns.user]), (key, held[columns.value]) if has_values else key


def _id_of(user: Any) -> str:
    if isinstance(user, bool | float | np.floating) or user is None:
        raise InputError("A user id is missing or is no text and no whole number; filter such rows out first.")
    return str(user)


def _one_user(user: str, pairs: Iterable[Any]) -> tuple[str, list[Any]]:
    return user, [pair for pair in pairs if pair is not None and pair != (None, None)]


# Beam's rows have signed integers only, and its coder of the smallest cannot hold a negative one: all integers
# travel as 64 bits, unsigned ones as the signed integer of the same bits.


def _type_of(kind: pa.DataType) -> Any:
    return bytes if pa.types.is_fixed_size_binary(kind) else np.int64


def _report_rows(batch: pa.RecordBatch) -> Iterator[beam.Row]:
    columns = [column.view(pa.int64()) if column.type == pa.uint64() else column for column in batch.columns]
    for row in pa.RecordBatch.from_arrays(columns, names=batch.schema.names).to_pylist():
        yield beam.Row(**row)


def _report_batch(rows: list[Any], schema: pa.Schema) -> pa.RecordBatch:
    signed = pa.schema([f.with_type(pa.int64()) if f.type == pa.uint64() else f for f in schema])
    try:
        batch = pa.RecordBatch.from_pylist([row._asdict() for row in rows], schema=signed)
    except (pa.ArrowException, OverflowError) as error:
        raise InputError(f"Rows of reports do not fit the collection's reports ({schema.names}): {error}.") from error
    columns = [column.view(field.type) for column, field in zip(batch.columns, schema, strict=True)]
    return pa.RecordBatch.from_arrays(columns, schema=schema)
