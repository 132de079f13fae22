"""Who answered a round: digests of users, and nothing of what they answered. Client side writes, the server reads.

That somebody takes part is not protected, and the server needs to know to whom it owes the signs of the next round.
"""

from __future__ import annotations

import uuid
from collections.abc import Iterator
from typing import Any

import apache_beam as beam
import pyarrow as pa
import pyarrow.compute as pc
from apache_beam.io.filesystems import FileSystems
from apache_beam.transforms.window import GlobalWindow
from apache_beam.utils.windowed_value import WindowedValue

from .summary import Summary, WrittenFile
from .table_files import TableWriter

__all__ = ["ANSWERS_SCHEMA", "WriteAnswers"]

#: One row a user: its digest under the clients' secret.
ANSWERS_SCHEMA = pa.schema([pa.field("user", pa.binary(16), nullable=False)])


class WriteAnswers(beam.PTransform):
    """Record batches of canonical records → files of the users' digests, sorted, and `Summary`s that list them."""

    def __init__(self, folder: str) -> None:
        super().__init__()
        self._folder = folder

    def expand(self, records: beam.PCollection[pa.RecordBatch]) -> beam.PCollection[Summary]:
        return records | "Write" >> beam.ParDo(_Write(self._folder)).with_output_types(Summary)


class _Write(beam.DoFn):
    def __init__(self, folder: str) -> None:
        self._folder = folder

    def start_bundle(self) -> None:
        self._users: list[pa.Array] = []

    def process(self, element: pa.RecordBatch) -> None:
        self._users.append(element.column(0))

    def finish_bundle(self) -> Iterator[Any]:
        if not self._users:
            return
        users = pa.chunked_array(self._users).combine_chunks()
        path = FileSystems.join(self._folder, f"answers-{uuid.uuid4().hex}.parquet")
        table = pa.table([users.take(pc.array_sort_indices(users))], schema=ANSWERS_SCHEMA)
        with TableWriter(path, ANSWERS_SCHEMA, "parquet", name="answers") as writer:
            for batch in table.to_batches():
                writer.write(batch)
        window = GlobalWindow()
        written = WrittenFile("answers", path, writer.rows)
        yield WindowedValue(Summary(files=(written,)), window.max_timestamp(), (window,))
