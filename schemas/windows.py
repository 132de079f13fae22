"""Estimates of a window of time: the columns that say which one, after those of the estimates."""

from __future__ import annotations

from datetime import datetime

import pyarrow as pa

__all__ = ["WINDOW_COLUMNS", "in_window"]

WINDOW_COLUMNS = [
    pa.field("window_start", pa.timestamp("us", tz="UTC"), nullable=False),
    pa.field("window_end", pa.timestamp("us", tz="UTC"), nullable=False),
    pa.field("pane", pa.int64(), nullable=False),
    pa.field("is_final", pa.bool_(), nullable=False),
]


def in_window(
    estimates: pa.RecordBatch, start: datetime, end: datetime, *, pane: int = 0, is_final: bool = True
) -> pa.RecordBatch:
    """Append the columns of a window to estimates.

    Args:
        estimates: one row a key.
        start: first moment of the window, with a time zone.
        end: first moment after it.
        pane: number of the result of this window; a later one replaces an earlier one.
        is_final: whether no later one will come.
    """
    values = (start, end, pane, is_final)
    columns = [
        pa.repeat(pa.scalar(value, field.type), estimates.num_rows)
        for field, value in zip(WINDOW_COLUMNS, values, strict=True)
    ]
    schema = pa.schema([*estimates.schema, *WINDOW_COLUMNS], metadata=estimates.schema.metadata)
    return pa.RecordBatch.from_arrays([*estimates.columns, *columns], schema=schema)
