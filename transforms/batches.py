"""Arrow record batches as the elements of our PCollections, and their NumPy counterparts.

Between transforms travel `pyarrow.RecordBatch`es of thousands of users. This module gives Beam a coder for
them (importing it registers the coder) and converts, without copying where that is possible, between
batches and the structures of `mechanisms`.
"""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np
import numpy.typing as npt
import pyarrow as pa
from apache_beam import coders

from ..mechanisms import Field, Reports
from ..schemas.reports import REPORT_ID

__all__ = ["ArrowBatchCoder", "batch_to_reports", "layout_tuples", "reports_to_batch"]


class ArrowBatchCoder(coders.Coder):
    """Encodes a record batch as one Arrow IPC stream.

    Pickle would write the whole parent buffers of a sliced batch; IPC writes the slice alone.
    """

    def encode(self, value: pa.RecordBatch) -> bytes:
        """Return the batch, schema included, as bytes."""
        sink = pa.BufferOutputStream()
        with pa.ipc.new_stream(sink, value.schema) as writer:
            writer.write_batch(value)
        return sink.getvalue().to_pybytes()

    def decode(self, encoded: bytes) -> pa.RecordBatch:
        """Return the batch that `encode` was given."""
        with pa.ipc.open_stream(encoded) as reader:
            return reader.read_next_batch()

    def estimate_size(self, value: pa.RecordBatch) -> int:
        """Return about how many bytes `encode` would give; Beam asks often, and must not encode for it."""
        return int(value.nbytes)

    def is_deterministic(self) -> bool:
        """Equal batches encode equally; Beam may still not use batches as keys."""
        return False

    def to_type_hint(self) -> type:
        """The type this coder is for."""
        return pa.RecordBatch


coders.registry.register_coder(pa.RecordBatch, ArrowBatchCoder)


def layout_tuples(layout: Iterable[Field]) -> list[tuple[str, str, int]]:
    """Return a mechanism's report layout as plain tuples, the form that `schemas` takes."""
    return [(field.name, field.dtype, field.width) for field in layout]


def reports_to_batch(
    reports: Reports, schema: pa.Schema, *, ids: npt.NDArray[np.uint8] | None = None
) -> pa.RecordBatch:
    """Return reports as a record batch of `schemas.report_schema`.

    Args:
        reports: n reports.
        schema: of the collection, with or without ids.
        ids: of the reports, uint8 (n, 16), where the schema has them.
    """
    arrays = reports.arrays if ids is None else {**reports.arrays, REPORT_ID: ids}
    return pa.RecordBatch.from_arrays([_column(arrays[field.name], field.type) for field in schema], schema=schema)


def _column(array: npt.NDArray[np.generic], kind: pa.DataType) -> pa.Array:
    rows = np.ascontiguousarray(array)
    if pa.types.is_fixed_size_binary(kind):
        return pa.Array.from_buffers(kind, len(rows), [None, pa.py_buffer(rows)])
    return pa.array(rows, type=kind)


def batch_to_reports(batch: pa.RecordBatch, layout: Iterable[Field]) -> Reports:
    """Return the reports of a record batch; the batch must have the schema of this layout.

    The arrays may be read-only views of the batch's buffers.
    """
    arrays = {field.name: _rows(batch.column(field.name), field) for field in layout}
    return Reports(n=batch.num_rows, arrays=arrays)


def _rows(column: pa.Array, field: Field) -> npt.NDArray[np.generic]:
    if not field.width:
        return column.to_numpy(zero_copy_only=True)
    width = field.width
    data = np.frombuffer(column.buffers()[1], dtype=np.uint8)
    start = column.offset * width
    return data[start : start + len(column) * width].reshape(len(column), width)
