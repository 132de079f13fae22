"""Canonical records as Arrow batches: what travels between the client-side transforms. Client side only."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from ..mechanisms import Records
from ..schemas.records import canonical_schema

__all__ = ["batch_to_records", "records_to_batch"]


def records_to_batch(records: Records) -> pa.RecordBatch:
    """Return canonical records as a record batch; the pair columns are not copied."""
    schema = canonical_schema(has_values=records.values is not None, has_tags=records.tags is not None)
    users = np.ascontiguousarray(records.users)
    digests = pa.Array.from_buffers(schema.field(0).type, records.n, [None, pa.py_buffer(users)])
    children = [pa.array(records.keys)]
    if records.values is not None:
        children.append(pa.array(records.values))
    if records.tags is not None:
        children.append(pa.array(records.tags))
    item_type = schema.field(1).type.value_type
    items = pa.StructArray.from_arrays(children, fields=[item_type.field(i) for i in range(item_type.num_fields)])
    offsets = pa.array(records.offsets.astype(np.int32))
    return pa.RecordBatch.from_arrays(
        [digests, pa.ListArray.from_arrays(offsets, items, type=schema.field(1).type)], schema=schema
    )


def batch_to_records(batch: pa.RecordBatch) -> Records:
    """Return the canonical records of a batch that `records_to_batch` made (sliced or not)."""
    digests, items = batch.column(0), batch.column(1)
    users = np.frombuffer(digests.buffers()[1], dtype=np.uint8)
    users = users[digests.offset * 16 : (digests.offset + len(digests)) * 16].reshape(-1, 16)
    offsets = items.offsets.to_numpy().astype(np.int64)
    pairs = items.flatten()
    return Records(
        users=users,
        offsets=offsets - offsets[0],
        keys=_child(pairs, "key", np.int32),
        values=_child(pairs, "value", np.int64) if pairs.type.get_field_index("value") >= 0 else None,
        tags=_child(pairs, "tag", np.int16) if pairs.type.get_field_index("tag") >= 0 else None,
    )


def _child(pairs: pa.StructArray, name: str, dtype: type) -> npt.NDArray[Any]:
    return pairs.field(name).to_numpy(zero_copy_only=True).astype(dtype, copy=False)
