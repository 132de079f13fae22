"""What the user gave as input: paths, formats, layout and columns, all checked before anything runs."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from ..errors import InputError
from ..schemas.records import Columns, Layout
from .generated import is_generated
from .input_columns import check_columns, check_tags
from .input_files import Facts, inspect_file
from .paths import expand, format_of

__all__ = ["SENSITIVE_COLUMNS", "Columns", "FileSlice", "InputFile", "RecordInputs", "inspect_records", "slices"]

#: Columns of a table of sensitive keys.
SENSITIVE_COLUMNS = Columns()

#: A slice ends with the row group that reaches one of these.
_SLICE_ROWS = 1_000_000
_SLICE_BYTES = 64 << 20


@dataclass(frozen=True, kw_only=True)
class InputFile:
    """A file of raw records whose schema has been checked, and what is known of its size."""

    path: str
    format: str
    facts: Facts


@dataclass(frozen=True, kw_only=True)
class RecordInputs:
    """The checked input of a run.

    Attributes:
        files: in the order of their paths.
        layout: "nested" (one row a user) or "pairs" (one row a user and key), the same for all files.
        columns: names of the columns.
        has_values: whether values are read.
        has_times: whether times are read.
        has_tags: whether tags are read from these files.
        sensitive: files of a table that says which keys are sensitive to whom, and why.
    """

    files: tuple[InputFile, ...]
    layout: Layout
    columns: Columns
    has_values: bool
    has_times: bool
    has_tags: bool = False
    sensitive: tuple[InputFile, ...] = ()

    @property
    def total_rows(self) -> int | None:
        """Number of rows, or None where a file does not tell it before it is read."""
        counts = [file.facts.rows for file in self.files]
        return None if None in counts else sum(count for count in counts if count is not None)

    @property
    def estimated_rows(self) -> int:
        """About how many pairs there are, with rows of the sensitive table; rather too many than too few."""
        return sum(file.facts.estimated_pairs for file in self.files + self.sensitive)


@dataclass(frozen=True, kw_only=True)
class FileSlice:
    """A part of a file that one worker reads at a time; small and picklable.

    Attributes:
        path: the file.
        format: "parquet", "avro", "csv" or "generated".
        layout: "nested" or "pairs".
        has_values: whether values are read.
        with_times: whether times are read.
        with_tags: whether tags are read.
        sensitive: whether it belongs to the table of sensitive keys instead of the records.
        first_row: number of its first row in the file, counting from 1.
        groups: the row groups groups[0] to groups[1] - 1 of a Parquet file, or blocks of made-up users; None for a
            whole file.
        rows: number of rows, where known.
    """

    path: str
    format: str
    layout: Layout
    has_values: bool
    with_times: bool
    with_tags: bool = False
    sensitive: bool = False
    first_row: int = 1
    groups: tuple[int, int] | None = None
    rows: int | None = None


# -- schemas --------------------------------------------------------------------------------------------


def inspect_records(
    patterns: Sequence[str],
    columns: Columns | None = None,
    *,
    has_values: bool,
    with_times: bool = False,
    has_tags: bool = False,
    sensitive_table: str | None = None,
) -> RecordInputs:
    """Open every file that the patterns mean and check its columns and types.

    Args:
        patterns: paths, folders, globs, and populations to make up (`generated`).
        columns: names of the columns.
        has_values: whether the collection needs values.
        with_times: whether it needs the time of a row (duplicates = "latest").
        has_tags: whether it needs tags.
        sensitive_table: file with the columns user_id, key and tag that holds them instead of the records' files.

    Raises:
        InputError: A path, a file, a column or a type is not what records need.
    """
    names = columns or Columns()
    files, layouts = [], {}
    for path, kind in _inputs(patterns):
        facts = inspect_file(path, kind)
        layouts[path] = check_columns(path, facts.schema, names, has_values=has_values, with_times=with_times)
        if has_tags:
            check_tags(path, facts.schema, names, layouts[path], wanted=sensitive_table is None)
        files.append(InputFile(path=path, format=kind, facts=facts))
    return RecordInputs(
        files=tuple(files),
        layout=_one_layout(layouts),
        columns=names,
        has_values=has_values,
        has_times=with_times,
        has_tags=has_tags and sensitive_table is None,
        sensitive=() if sensitive_table is None else _sensitive_files(sensitive_table),
    )


def _inputs(patterns: Sequence[str]) -> Iterator[tuple[str, str]]:
    """Yield what is read, and its format: the files of the patterns, and records that are made up."""
    made_up = sorted({pattern for pattern in patterns if is_generated(pattern)})
    files = [pattern for pattern in patterns if not is_generated(pattern)]
    for path in expand(files) if files or not made_up else ():
        yield path, format_of(path) or ""
    for pattern in made_up:
        yield pattern, "generated"


def _sensitive_files(pattern: str) -> tuple[InputFile, ...]:
    """Check the table of sensitive keys, in the columns that `SENSITIVE_COLUMNS` names."""
    files = []
    for path in expand([pattern]):
        facts = inspect_file(path, format_of(path) or "")
        check_columns(path, facts.schema, SENSITIVE_COLUMNS, has_values=False, with_times=False)
        check_tags(path, facts.schema, SENSITIVE_COLUMNS, "pairs", wanted=True)
        files.append(InputFile(path=path, format=format_of(path) or "", facts=facts))
    return tuple(files)


def _one_layout(layouts: dict[str, Layout]) -> Layout:
    first_path, first = next(iter(layouts.items()))
    for path, layout in layouts.items():
        if layout != first:
            raise InputError(
                f"The input mixes two layouts: {first_path} is {first}, {path} is {layout}. Run the two sets "
                "of files one at a time, or convert one of them."
            )
    return first


# -- slices ---------------------------------------------------------------------------------------------


def slices(inputs: RecordInputs) -> list[FileSlice]:
    """Cut the input into parts that workers read independently; empty files give none."""
    records = [part for file in inputs.files for part in _file_slices(file, inputs)]
    return records + [part for file in inputs.sensitive for part in _file_slices(file, inputs, sensitive=True)]


def _file_slices(file: InputFile, inputs: RecordInputs, *, sensitive: bool = False) -> Iterator[FileSlice]:
    def part(first_row: int, groups: tuple[int, int] | None, rows: int | None) -> FileSlice:
        return FileSlice(
            path=file.path,
            format=file.format,
            layout="pairs" if sensitive else inputs.layout,
            has_values=inputs.has_values and not sensitive,
            with_times=inputs.has_times and not sensitive,
            with_tags=inputs.has_tags or sensitive,
            sensitive=sensitive,
            first_row=first_row,
            groups=groups,
            rows=rows,
        )

    if file.facts.rows == 0:
        return
    if not file.facts.groups:
        yield part(1, None, file.facts.rows)
        return
    start, row, rows, size = 0, 1, 0, 0
    for number, group in enumerate(file.facts.groups, start=1):
        rows, size = rows + group.rows, size + group.bytes
        if rows >= _SLICE_ROWS or size >= _SLICE_BYTES or number == len(file.facts.groups):
            if rows:
                yield part(row, (start, number), rows)
            start, row, rows, size = number, row + rows, 0, 0
