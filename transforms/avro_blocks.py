"""Reading the records of an Avro file as Arrow batches, by blocks.

Framing and codecs are fastavro's. The records of many blocks are then decoded at once where the schema allows it
(`avro_plan`). Every other schema, and every group of blocks in which something is unexpected, is decoded by fastavro
record by record, so that what is accepted, what is refused and why is always what fastavro says.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Iterator
from typing import IO, Any, Final

import fastavro
import numpy as np
import pyarrow as pa

from .avro_columns import arrow_schema, to_column
from .avro_lanes import Irregular
from .avro_plan import Wanted, child, plan_of, structs

__all__ = ["AvroBlocks", "Wanted"]

#: A group of blocks ends with the block that reaches one of these.
_GROUP_BYTES: Final = 8 << 20
_GROUP_BLOCKS: Final = 1024


class AvroBlocks:
    """One open Avro file.

    Attributes:
        read: number of blocks read so far, for messages.
    """

    def __init__(self, stream: IO[bytes], wanted: Wanted) -> None:
        """Read the header.

        Raises:
            ValueError: It is not Avro, or no records.
        """
        self.read = 0
        self._wanted = wanted
        self._blocks = fastavro.block_reader(stream)
        self._schema = arrow_schema(self._blocks.writer_schema)
        self._plan = plan_of(self._blocks.writer_schema, self._schema, wanted)

    def batches(self, batch_rows: int) -> Iterator[pa.RecordBatch]:
        """Yield the wanted columns, in batches of at most so many rows.

        Raises:
            Exception: whatever fastavro raises about a damaged block; `read` is then the number of the last block
                whose frame was found in order.
        """
        if self._plan is None:
            yield from self._one_by_one(self._counted(self._blocks), batch_rows)
            return
        for group in self._groups():
            try:
                data = self._plan.decode(group)
            except (Irregular, pa.ArrowInvalid):
                self.read -= len(group)
                yield from self._one_by_one(self._counted(group), batch_rows)
                continue
            for start in range(0, data.num_rows, batch_rows):
                yield data.slice(start, batch_rows)

    def _counted(self, blocks: Iterable[Any]) -> Iterator[Any]:
        for block in blocks:
            self.read += 1
            yield block

    def _groups(self) -> Iterator[list[Any]]:
        group: list[Any] = []
        size = 0
        try:
            for block in self._counted(self._blocks):
                group.append(block)
                size += block.bytes_.getbuffer().nbytes
                if size >= _GROUP_BYTES or len(group) >= _GROUP_BLOCKS:
                    yield group
                    group, size = [], 0
        except GeneratorExit:
            raise
        except Exception:  # what comes before the damage is read first
            if group:
                yield group
            raise
        if group:
            yield group

    def _one_by_one(self, blocks: Iterable[Any], batch_rows: int) -> Iterator[pa.RecordBatch]:
        """Let fastavro decode."""
        rows: list[Any] = []
        for block in blocks:
            rows.extend(block)
            while len(rows) >= batch_rows:
                head, rows = rows[:batch_rows], rows[batch_rows:]
                yield self._converted(head)
        if rows:
            yield self._converted(rows)

    def _converted(self, rows: list[Any]) -> pa.RecordBatch:
        names = self._wanted.names
        columns = [
            self._lists([row[name] for row in rows])
            if name == self._wanted.items
            else to_column([row[name] for row in rows], self._schema.field(name).type)
            for name in names
        ]
        return pa.RecordBatch.from_arrays(columns, names=list(names))

    def _lists(self, lists: list[Any]) -> pa.Array:
        kind = self._schema.field(self._wanted.items).type
        held = [items or () for items in lists]
        offsets = np.zeros(len(held) + 1, dtype=np.int32)
        np.cumsum([len(items) for items in held], out=offsets[1:])
        pairs = list(itertools.chain.from_iterable(held))
        fields = kind if pa.types.is_null(kind) else kind.value_type
        if not pa.types.is_struct(fields):
            return pa.ListArray.from_arrays(pa.array(offsets), pa.nulls(len(pairs)))
        children = [
            to_column([None if pair is None else pair[name] for pair in pairs], child(fields, name).type)
            for name in self._wanted.inside
        ]
        missing = np.array([pair is None for pair in pairs], dtype=np.bool_)
        items = structs(children, self._wanted.inside, len(pairs), missing)
        return pa.ListArray.from_arrays(pa.array(offsets), items)
