"""Reports in files: the client side writes them, the server side reads them. No record passes here.

The rows of a batch are written sorted by their content: the order of a file then says nothing about the
order of the people, and equal sets of reports give equal files.
"""

from __future__ import annotations

import uuid
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import apache_beam as beam
import fastavro
import pyarrow as pa
import pyarrow.parquet as pq
from apache_beam.io.filesystem import CompressionTypes
from apache_beam.io.filesystems import FileSystems
from apache_beam.transforms.window import GlobalWindow
from apache_beam.utils.windowed_value import WindowedValue

from ..errors import InputError, RunError
from ..schemas.reports import FileHeader, report_schema
from .batches import layout_tuples
from .collection import Collection
from .rows_read import WATCHED_ROWS
from .summary import Summary, WrittenFile
from .table_files import TableWriter

__all__ = ["REPORT_FORMATS", "ReadReports", "ReportInputs", "ReportSlice", "WriteReports", "inspect_reports"]

#: Formats that reports exist in.
REPORT_FORMATS = ("parquet", "avro")

_BATCH_ROWS = 1 << 16
_SLICE_ROWS = 1 << 22


# -- writing ----------------------------------------------------------------------------------------------


class WriteReports(beam.PTransform):
    """Record batches of reports → one file a bundle in a folder, and `Summary`s that list them.

    Args:
        collection: the reports' collection.
        folder: an existing folder; files of failed attempts may stay there, unlisted.
        format_: "parquet" or "avro".
        period: name of the period.
        private: whether the randomness is secret.
    """

    def __init__(
        self,
        collection: Collection,
        folder: str,
        format_: str = "parquet",
        *,
        period: str = "",
        private: bool = True,
    ) -> None:
        super().__init__()
        header = collection.header("reports", period=period, private=private)
        schema = report_schema(layout_tuples(collection.mechanism.layout()), header)
        self._write = _Write(folder, format_, schema)

    def expand(self, reports: beam.PCollection[pa.RecordBatch]) -> beam.PCollection[Summary]:
        return reports | "Write" >> beam.ParDo(self._write).with_output_types(Summary)


class _Write(beam.DoFn):
    def __init__(self, folder: str, format_: str, schema: pa.Schema) -> None:
        self._folder, self._format, self._schema = folder, format_, schema

    def start_bundle(self) -> None:
        self._writer: TableWriter | None = None

    def process(self, element: pa.RecordBatch) -> None:
        if self._writer is None:
            path = FileSystems.join(self._folder, f"reports-{uuid.uuid4().hex}.{self._format}")
            self._writer = TableWriter(path, self._schema, self._format, name="report")
        self._writer.write(_sorted_by_content(element).cast(self._schema))

    def finish_bundle(self) -> Iterator[Any]:
        if self._writer is not None:
            self._writer.close()
            written = WrittenFile("reports", self._writer.path, self._writer.rows)
            window = GlobalWindow()
            yield WindowedValue(Summary(files=(written,)), window.max_timestamp(), (window,))


def _sorted_by_content(batch: pa.RecordBatch) -> pa.RecordBatch:
    return batch.sort_by([(name, "ascending") for name in batch.schema.names])


# -- reading ----------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class ReportSlice:
    """A part of a report file that one worker reads: row groups of Parquet, or a whole Avro file."""

    path: str
    format: str
    row_groups: tuple[int, ...] = ()


@dataclass(frozen=True)
class ReportInputs:
    """What `inspect_reports` found.

    Attributes:
        slices: parts to read in parallel.
        private: False as soon as one file's randomness came from a seed.
        periods: names of the periods that the files belong to, sorted.
        rows: reports in all files, or None where a format does not tell beforehand.
    """

    slices: tuple[ReportSlice, ...]
    private: bool
    periods: tuple[str, ...]
    rows: int | None


def inspect_reports(paths: list[str], collection: Collection) -> ReportInputs:
    """Check header and schema of every report file before anything runs.

    Raises:
        InputError: A file is unreadable, holds something else, or belongs to another definition.
    """
    slices: list[ReportSlice] = []
    headers: list[FileHeader] = []
    rows: int | None = 0
    for path in paths:
        format_ = _format_of(path)
        if format_ == "parquet":
            header, groups, file_rows = _inspect_parquet(path, collection)
            rows = None if rows is None else rows + file_rows
        else:
            header, groups, rows = _inspect_avro(path, collection), [()], None
        headers.append(header)
        slices += [ReportSlice(path, format_, part) for part in groups]
    private = all(header.private for header in headers)
    return ReportInputs(tuple(slices), private, tuple(sorted({h.period for h in headers})), rows)


def _format_of(path: str) -> str:
    for format_ in REPORT_FORMATS:
        if path.endswith("." + format_):
            return format_
    raise InputError(f"{path} is neither .parquet nor .avro; reports exist in these formats only.")


def _open(path: str) -> Any:
    return FileSystems.open(path, compression_type=CompressionTypes.UNCOMPRESSED)


def _inspect_parquet(path: str, collection: Collection) -> tuple[FileHeader, list[tuple[int, ...]], int]:
    with _open(path) as file:
        try:
            parquet = pq.ParquetFile(file)
        except (pa.ArrowException, OSError) as error:
            raise InputError(f"{path} cannot be read as Parquet: {error}. Is the file complete?") from error
        header = FileHeader.read(parquet.schema_arrow.metadata, path)
        _require_columns(parquet.schema_arrow, collection, header, path)
        return header, _row_group_slices(parquet.metadata), parquet.metadata.num_rows


def _row_group_slices(metadata: pq.FileMetaData) -> list[tuple[int, ...]]:
    slices: list[tuple[int, ...]] = []
    current: list[int] = []
    rows = 0
    for group in range(metadata.num_row_groups):
        current.append(group)
        rows += metadata.row_group(group).num_rows
        if rows >= _SLICE_ROWS:
            slices.append(tuple(current))
            current, rows = [], 0
    return [*slices, tuple(current)] if current else slices


def _require_columns(schema: pa.Schema, collection: Collection, header: FileHeader, path: str) -> None:
    header.require(kind="reports", fingerprint=collection.fingerprint, path=path, round_=collection.round)
    expected = report_schema(layout_tuples(collection.mechanism.layout()))
    for field in expected:
        index = schema.get_field_index(field.name)
        if index < 0 or schema.field(index).type != field.type:
            found = "absent" if index < 0 else f"of type {schema.field(index).type}"
            raise InputError(
                f"{path}: column {field.name!r} is {found}; reports of this collection hold {field.type} there."
            )


def _inspect_avro(path: str, collection: Collection) -> FileHeader:
    with _open(path) as file:
        try:
            reader = fastavro.reader(file)
            schema = reader.writer_schema
            metadata = reader.metadata
        except Exception as error:  # fastavro raises several unrelated types for broken files
            raise InputError(f"{path} cannot be read as Avro: {error}. Is the file complete?") from error
        header = FileHeader.read(metadata, path)
        header.require(kind="reports", fingerprint=collection.fingerprint, path=path, round_=collection.round)
        names = {field["name"] for field in schema.get("fields", [])} if isinstance(schema, dict) else set()
        for name, _, _ in layout_tuples(collection.mechanism.layout()):
            if name not in names:
                raise InputError(f"{path}: column {name!r} is absent; reports of this collection hold it.")
        return header


class ReadReports(beam.PTransform):
    """`ReportSlice`s → record batches of reports as the files hold them; `CountReports` checks them."""

    def __init__(self, collection: Collection) -> None:
        super().__init__()
        self._collection = collection

    def expand(self, slices: beam.PCollection[ReportSlice]) -> beam.PCollection[pa.RecordBatch]:
        return slices | "Read" >> beam.ParDo(_Read(self._collection)).with_output_types(pa.RecordBatch)


class _Read(beam.DoFn):
    def __init__(self, collection: Collection) -> None:
        self._schema = report_schema(layout_tuples(collection.mechanism.layout()))

    def process(self, element: ReportSlice) -> Iterator[pa.RecordBatch]:
        read = self._parquet if element.format == "parquet" else self._avro
        try:
            for batch in read(element):
                WATCHED_ROWS.add(batch.num_rows)
                yield batch
        except (pa.ArrowException, OSError, EOFError, ValueError) as error:
            raise RunError(
                f"{element.path} is damaged ({type(error).__name__}: {error}). Nothing was published; "
                "ask for the file again or leave it out."
            ) from error

    def _parquet(self, part: ReportSlice) -> Iterator[pa.RecordBatch]:
        with _open(part.path) as file:
            parquet = pq.ParquetFile(file)
            names = self._schema.names
            for batch in parquet.iter_batches(_BATCH_ROWS, row_groups=list(part.row_groups), columns=names):
                yield self._required(batch.select(names), part.path)

    def _avro(self, part: ReportSlice) -> Iterator[pa.RecordBatch]:
        with _open(part.path) as file:
            rows: list[Any] = []
            for row in fastavro.reader(file):
                rows.append(row)
                if len(rows) == _BATCH_ROWS:
                    yield self._from_rows(rows, part.path)
                    rows = []
            if rows:
                yield self._from_rows(rows, part.path)

    def _from_rows(self, rows: list[Any], path: str) -> pa.RecordBatch:
        columns = [pa.array([row[f.name] for row in rows], type=f.type) for f in self._schema]
        return self._required(pa.RecordBatch.from_arrays(columns, names=self._schema.names), path)

    def _required(self, batch: pa.RecordBatch, path: str) -> pa.RecordBatch:
        """Check that no cell is null: a null report could not be told from a report of zeros."""
        for name, column in zip(batch.schema.names, batch.columns, strict=True):
            if column.null_count:
                raise ValueError(f"column {name!r} holds nulls in {path}")
        return pa.RecordBatch.from_arrays(batch.columns, schema=self._schema)
