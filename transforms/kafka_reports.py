"""Files of reports → messages of a topic, for clients whose server listens there."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

import pyarrow as pa

from ..schemas.messages import arrow_message
from .collection import Collection
from .kafka_client import Sender
from .report_files import inspect_report_file, read_batches

__all__ = ["send_report_files"]

#: Most bytes of reports in a message, below what a broker takes by default (1 MB), and most reports.
_MESSAGE_BYTES: Final = 1 << 19
_MESSAGE_REPORTS: Final = 20_000


def send_report_files(sender: Sender, collection: Collection, paths: Iterable[str]) -> tuple[int, int]:
    """Send the reports of files, with the header of their file, and wait until they have arrived.

    Messages that are sent again after a failure are second messages: the same reports arrive twice. Give the collection
    `report_ids = true` where that can happen; the server then counts each once.

    Returns:
        The numbers of reports and of messages.

    Raises:
        RunError: A message did not arrive.
    """
    reports = messages = 0
    for path in paths:
        header, parts, _ = inspect_report_file(path, collection)
        for part in parts:
            for batch, _ in read_batches(collection, part):
                rows = _rows_of_message(batch.schema)
                for start in range(0, batch.num_rows, rows):
                    piece = batch.slice(start, rows)
                    sender.send(arrow_message(piece, header))
                    reports, messages = reports + piece.num_rows, messages + 1
    sender.flush()
    return reports, messages


def _rows_of_message(schema: pa.Schema) -> int:
    width = sum(field.type.bit_width // 8 for field in schema)
    return max(1, min(_MESSAGE_REPORTS, _MESSAGE_BYTES // width))
