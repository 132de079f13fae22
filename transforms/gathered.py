"""Batches of a few reports → elements of thousands, for sources whose clients send one report at a time."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any, Final

import pyarrow as pa
from apache_beam.transforms.window import TimestampedValue
from apache_beam.utils.timestamp import Timestamp

__all__ = ["Gathered"]

#: Most reports of an element that is put together from several messages.
_ELEMENT_ROWS: Final = 1 << 15


@dataclass
class Gathered:
    """Small batches that become one element: devices send single reports, and an element of thousands costs no more."""

    event_time: float = 0.0
    batches: list[pa.RecordBatch] = field(default_factory=list)
    rows: int = 0

    def add(self, event_time: float, batch: pa.RecordBatch) -> Iterator[Any]:
        """Take a batch; yield those before it where it does not go with them."""
        if self.batches and (
            event_time != self.event_time
            or self.rows + batch.num_rows > _ELEMENT_ROWS
            or not batch.schema.equals(self.batches[0].schema, check_metadata=True)
        ):
            yield from self.flush()
        self.event_time, self.rows = event_time, self.rows + batch.num_rows
        self.batches.append(batch)

    def flush(self) -> Iterator[Any]:
        """Yield what was taken as one element at its event time."""
        if not self.batches:
            return
        whole = self.batches[0]
        if len(self.batches) > 1:
            (whole,) = pa.Table.from_batches(self.batches).combine_chunks().to_batches()
        self.batches, self.rows = [], 0
        yield TimestampedValue(whole, Timestamp(self.event_time))
