"""Rejected rows, on the client side, and only where the user asked for them: they are raw data."""

from __future__ import annotations

import uuid
from typing import Any

import pyarrow as pa
from apache_beam.io.filesystems import FileSystems
from apache_beam.transforms.window import GlobalWindow
from apache_beam.utils.windowed_value import WindowedValue

from .summary import WrittenFile
from .table_files import TableWriter

__all__ = ["RejectsFile", "in_global_window"]


class RejectsFile:
    """Rejected rows of one bundle, written only where the user asked for them. They are raw data."""

    def __init__(self, folder: str | None) -> None:
        self._folder = folder
        self._writer: TableWriter | None = None

    def write(self, rejects: pa.Table | None) -> None:
        """Append rejected rows."""
        if self._folder is None or rejects is None or not rejects.num_rows:
            return
        if self._writer is None:
            path = FileSystems.join(self._folder, f"rejects-{uuid.uuid4().hex}.parquet")
            self._writer = TableWriter(path, rejects.schema, "parquet", name="rejects")
        for batch in rejects.to_batches():
            self._writer.write(batch)

    def close(self) -> tuple[WrittenFile, ...]:
        """Close the file and return what was written."""
        if self._writer is None:
            return ()
        self._writer.close()
        return (WrittenFile("rejects", self._writer.path, self._writer.rows),)


def in_global_window(value: Any) -> WindowedValue:
    """Return an element for the end of a bundle of a batch job."""
    window = GlobalWindow()
    return WindowedValue(value, window.max_timestamp(), (window,))
