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
import pyarrow as pa
import pyarrow.parquet as pq
from apache_beam.io.filesystems import FileSystems
from apache_beam.transforms.window import GlobalWindow
from apache_beam.utils.windowed_value import WindowedValue

from ..errors import InputError, RunError
from ..schemas.reports import FileHeader
from ..schemas.tally import REPORTS_MALFORMED, REPORTS_UNREADABLE, Tally
from .collection import Collection
from .report_files_avro import AvroReports
from .report_files_checks import COPY_ROWS, check_columns, check_row_groups, copies, open_file
from .rows_read import WATCHED_ROWS
from .summary import Summary, WrittenFile
from .table_files import TableWriter

__all__ = [
    "REPORT_FORMATS",
    "AcceptReports",
    "ReadReports",
    "ReportInputs",
    "ReportSlice",
    "WriteReports",
    "inspect_report_file",
    "inspect_reports",
    "read_reports",
]

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
        memoised: whether an unchanged record repeats its report in every period.
        window_start: start of the slice of time that the reports belong to, or "".
        window_seconds: its length.
    """

    def __init__(
        self,
        collection: Collection,
        folder: str,
        format_: str = "parquet",
        *,
        period: str = "",
        private: bool = True,
        memoised: bool = False,
        window_start: str = "",
        window_seconds: int = 0,
    ) -> None:
        super().__init__()
        header = collection.header(
            "reports",
            period=period,
            private=private,
            memoised=memoised,
            window_start=window_start,
            window_seconds=window_seconds,
        )
        schema = collection.report_schema(header)
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
    """A part of a report file that one worker reads: row groups of Parquet with so many rows, or a whole Avro file."""

    path: str
    format: str
    row_groups: tuple[int, ...] = ()
    rows: int = 0


@dataclass(frozen=True)
class ReportInputs:
    """What `inspect_reports` found.

    Attributes:
        slices: parts to read in parallel.
        private: False as soon as one file's randomness came from a seed.
        periods: names of the periods that the files belong to, sorted.
        rows: reports in all files, or None where a format does not tell beforehand.
        refused: files that are not read, each with the reason.
        memoised: whether an unchanged record repeats its report in every period.
    """

    slices: tuple[ReportSlice, ...]
    private: bool
    periods: tuple[str, ...]
    rows: int | None
    refused: tuple[tuple[str, str], ...] = ()
    memoised: bool = False


def inspect_reports(paths: list[str], collection: Collection, *, period: str | None = None) -> ReportInputs:
    """Check header, schema and sizes of every report file before anything runs.

    Reports come from strangers: a file that is wrong is refused with a reason, and the others are read.

    Args:
        paths: files.
        collection: under which they must have been made.
        period: refuse files of any other period.

    Raises:
        InputError: No file is left; the message is the first one's reason.
    """
    found: list[tuple[FileHeader, list[ReportSlice], int | None]] = []
    refused: list[tuple[str, str]] = []
    twice = copies(paths)
    for path in paths:
        try:
            one = inspect_report_file(path, collection)
            _require_period(one[0], period, path)
            _require_new(path, one[2], twice)
        except InputError as error:
            refused.append((path, str(error)))
        else:
            found.append(one)
    if not found:
        raise InputError(refused[0][1])
    rows = [rows for _, _, rows in found]
    return ReportInputs(
        slices=tuple(part for _, parts, _ in found for part in parts),
        private=all(header.private for header, _, _ in found),
        periods=tuple(sorted({header.period for header, _, _ in found})),
        rows=None if None in rows else sum(number for number in rows if number is not None),
        refused=tuple(refused),
        memoised=any(header.memoised for header, _, _ in found),
    )


def inspect_report_file(path: str, collection: Collection) -> tuple[FileHeader, list[ReportSlice], int | None]:
    """Check header, schema and sizes of one report file.

    Returns:
        Its header, the parts to read in parallel, and its reports, or None where its format does not tell beforehand.

    Raises:
        InputError: It holds no reports of this collection.
    """
    format_ = _format_of(path)
    try:
        if format_ == "avro":
            return _inspect_avro(path, collection), [ReportSlice(path, format_)], None
        return _inspect_parquet(path, collection)
    except InputError:
        raise
    except Exception as error:  # what readers raise for broken files is of any type
        raise InputError(f"{path} cannot be read as {format_.capitalize()}: {error}. Is the file complete?") from error


def _require_period(header: FileHeader, period: str | None, path: str) -> None:
    if period is not None and header.period != period:
        raise InputError(f"{path} holds reports of the period {header.period!r}, but {period!r} is counted.")


def _require_new(path: str, rows: int | None, twice: dict[str, str]) -> None:
    """Refuse a copy; small equal files may be equal by chance (Avro does not tell its rows: any copy)."""
    if path in twice and (rows is None or rows >= COPY_ROWS):
        raise InputError(f"{path} is a copy of {twice[path]}; a report is never counted twice.")


def _format_of(path: str) -> str:
    for format_ in REPORT_FORMATS:
        if path.endswith("." + format_):
            return format_
    raise InputError(f"{path} is neither .parquet nor .avro; reports exist in these formats only.")


def _inspect_parquet(path: str, collection: Collection) -> tuple[FileHeader, list[ReportSlice], int]:
    with open_file(path) as file:
        parquet = pq.ParquetFile(file)
        header = FileHeader.read(parquet.schema_arrow.metadata, path)
        header.require(kind="reports", fingerprint=collection.fingerprint, path=path, round_=collection.round)
        expected = collection.report_schema()
        check_columns(parquet.schema_arrow, expected, path)
        check_row_groups(parquet.metadata, expected, path)
        return header, _row_group_slices(parquet.metadata, path), parquet.metadata.num_rows


def _row_group_slices(metadata: pq.FileMetaData, path: str) -> list[ReportSlice]:
    slices: list[ReportSlice] = []
    current: list[int] = []
    rows = 0
    for group in range(metadata.num_row_groups):
        current.append(group)
        rows += metadata.row_group(group).num_rows
        if rows >= _SLICE_ROWS or group == metadata.num_row_groups - 1:
            slices.append(ReportSlice(path, "parquet", tuple(current), rows))
            current, rows = [], 0
    return slices


def _inspect_avro(path: str, collection: Collection) -> FileHeader:
    with open_file(path) as file:
        header = FileHeader.read(AvroReports(file, collection.report_schema()).metadata, path)
        header.require(kind="reports", fingerprint=collection.fingerprint, path=path, round_=collection.round)
        return header


class ReadReports(beam.PTransform):
    """`ReportSlice`s → record batches of reports; a damaged file or a null in a report fails the run."""

    def __init__(self, collection: Collection) -> None:
        super().__init__()
        self._collection = collection

    def expand(self, slices: beam.PCollection[ReportSlice]) -> beam.PCollection[pa.RecordBatch]:
        return slices | "Read" >> beam.ParDo(_Read(self._collection)).with_output_types(pa.RecordBatch)


def read_batches(collection: Collection, part: ReportSlice) -> Iterator[tuple[pa.RecordBatch, int]]:
    """Yield the whole reports of a slice by batches, and how many of a batch are malformed beside them."""
    yield from _Read(collection).batches(part)


def read_reports(collection: Collection, part: ReportSlice) -> Iterator[pa.RecordBatch]:
    """Yield the reports of a slice that can be read, in the driver; `AcceptReports` says in a job what cannot."""
    reader = _Read(collection)
    try:
        for batch, _ in reader.batches(part):
            yield batch
    except Exception:  # what readers raise for damaged files is of any type
        return


class AcceptReports(beam.PTransform):
    """`ReportSlice`s → record batches of the reports that can be read, and `Summary`s of what was set aside.

    Reports come from strangers: reports with nulls are malformed, and of a damaged file what cannot be read is
    counted and named. `CountReports` checks what is left.

    Returns (from `expand`): a tuple (reports, summaries).
    """

    def __init__(self, collection: Collection) -> None:
        super().__init__()
        self._collection = collection

    def expand(
        self, slices: beam.PCollection[ReportSlice]
    ) -> tuple[beam.PCollection[pa.RecordBatch], beam.PCollection[Summary]]:
        read = beam.ParDo(_Accept(self._collection)).with_outputs("summary", main="reports")
        reports, summaries = slices | "Accept" >> read
        reports.element_type, summaries.element_type = pa.RecordBatch, Summary
        return reports, summaries


class _Read(beam.DoFn):
    def __init__(self, collection: Collection) -> None:
        self._schema = collection.report_schema()

    def process(self, element: ReportSlice) -> Iterator[Any]:
        try:
            for batch, malformed in self.batches(element):
                if malformed:
                    raise ValueError(f"{malformed} of its reports hold nulls or numbers out of range")
                WATCHED_ROWS.add(batch.num_rows)
                yield batch
        except (pa.ArrowException, OSError, EOFError, ValueError) as error:
            raise RunError(
                f"{element.path} is damaged ({type(error).__name__}: {error}). Nothing was published; "
                "ask for the file again or leave it out."
            ) from error

    def batches(self, part: ReportSlice) -> Iterator[tuple[pa.RecordBatch, int]]:
        """Yield whole reports, and how many beside them are malformed."""
        with open_file(part.path) as file:
            if part.format == "avro":
                yield from AvroReports(file, self._schema).batches()
                return
            names = self._schema.names
            for batch in pq.ParquetFile(file).iter_batches(
                _BATCH_ROWS, row_groups=list(part.row_groups), columns=names
            ):
                yield self._without_nulls(batch.select(names))

    def _without_nulls(self, batch: pa.RecordBatch) -> tuple[pa.RecordBatch, int]:
        """Leave reports with nulls out: a null could not be told from zeros."""
        rows = batch.num_rows
        if any(column.null_count for column in batch.columns):
            batch = batch.drop_null()
        return pa.RecordBatch.from_arrays(batch.columns, schema=self._schema), rows - batch.num_rows


class _Accept(_Read):
    def process(self, element: ReportSlice) -> Iterator[Any]:
        read = lost = 0
        refused: tuple[tuple[str, str], ...] = ()
        try:
            for batch, malformed in self.batches(element):
                read, lost = read + batch.num_rows + malformed, lost + malformed
                WATCHED_ROWS.add(batch.num_rows)
                if batch.num_rows:
                    yield batch
        except Exception as error:  # what readers raise for damaged files is of any type
            refused = ((element.path, f"{element.path} is damaged after {read:,} reports ({error}); the rest is lost"),)
        unreadable = max(0, element.rows - read) if refused else 0
        tally = Tally({REPORTS_MALFORMED: lost, REPORTS_UNREADABLE: unreadable})
        yield beam.pvalue.TaggedOutput("summary", Summary(tally, refused=refused))
