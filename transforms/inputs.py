"""What the user gave as input: paths, formats, layout and columns, all checked before anything runs."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from apache_beam.io.filesystem import BeamIOError
from apache_beam.io.filesystems import FileSystems

from ..errors import InputError
from ..schemas.records import Columns, Layout
from .input_columns import check_columns
from .input_files import FORMATS, Facts, inspect_file, is_local

__all__ = ["Columns", "FileSlice", "InputFile", "RecordInputs", "expand", "inspect_records", "slices"]

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
    """

    files: tuple[InputFile, ...]
    layout: Layout
    columns: Columns
    has_values: bool
    has_times: bool

    @property
    def total_rows(self) -> int | None:
        """Number of rows, or None where a file does not tell it before it is read."""
        counts = [file.facts.rows for file in self.files]
        return None if None in counts else sum(count for count in counts if count is not None)

    @property
    def estimated_rows(self) -> int:
        """About how many pairs there are, rather too many than too few."""
        return sum(file.facts.estimated_pairs for file in self.files)


@dataclass(frozen=True, kw_only=True)
class FileSlice:
    """A part of a file that one worker reads at a time; small and picklable.

    Attributes:
        path: the file.
        format: "parquet", "avro" or "csv".
        layout: "nested" or "pairs".
        has_values: whether values are read.
        with_times: whether times are read.
        first_row: number of its first row in the file, counting from 1.
        groups: the row groups groups[0] to groups[1] - 1 of a Parquet file; None for a whole file.
        rows: number of rows, where known.
    """

    path: str
    format: str
    layout: Layout
    has_values: bool
    with_times: bool
    first_row: int = 1
    groups: tuple[int, int] | None = None
    rows: int | None = None


# -- paths ----------------------------------------------------------------------------------------------


def expand(patterns: Iterable[str]) -> list[str]:
    """Find the files that paths, folders and globs mean, on any file system that Beam knows.

    A folder means its files, without those whose names start with "_" or "."; so does a glob.

    Returns:
        Paths, sorted, each once; local ones absolute.

    Raises:
        InputError: A pattern matches nothing, a file is empty, or its extension tells no format.
    """
    given = list(patterns)
    if not given:
        raise InputError("No input was given. Give at least one file, folder or pattern.")
    found: dict[str, str] = {}
    for pattern in given:
        for path in _match(pattern):
            found.setdefault(os.path.realpath(path) if is_local(path) else path, path)
    return sorted(found.values())


def _match(pattern: str) -> list[str]:
    if is_local(pattern) and Path(pattern).is_file():
        # Taken literally, since names may hold the characters of globs.
        matched = [(str(Path(pattern).absolute()), Path(pattern).stat().st_size)]
    else:
        matched = [entry for entry in _list(pattern) if not _is_hidden(entry[0])]
    if not matched:
        raise InputError(_nothing(pattern))
    for path, size in matched:
        _require_format(path)
        if size == 0:
            raise InputError(f"The input file {path} is empty (0 bytes). Remove it or write it again.")
    return [path for path, _ in matched]


def _list(pattern: str) -> list[tuple[str, int]]:
    local = is_local(pattern)
    if pattern.endswith("/") or (local and Path(pattern).is_dir()):
        pattern = FileSystems.join(pattern, "*")
    if local:
        pattern = str(Path(pattern).absolute())
    try:
        matches = FileSystems.match([pattern])
    except (BeamIOError, ValueError, OSError) as error:
        raise InputError(f"The input {pattern} cannot be listed: {error}.") from error
    found = [(entry.path, int(entry.size_in_bytes)) for match in matches for entry in match.metadata_list]
    return [(path, size) for path, size in found if not (local and Path(path).is_dir())]


def _nothing(pattern: str) -> str:
    if is_local(pattern) and Path(pattern).is_dir():
        return (
            f"The input folder {pattern} holds no data file (names that start with '_' or '.' and folders do "
            "not count; for files in subfolders give a pattern such as FOLDER/*/*.parquet)."
        )
    return f"The input {pattern} matches no file. Check the path or the pattern."


def _is_hidden(path: str) -> bool:
    return path.rsplit("/", 1)[-1].startswith(("_", "."))


def _require_format(path: str) -> None:
    if _format(path) is None:
        raise InputError(
            f"The extension of the input file {path} tells no format; known are {', '.join(FORMATS)}."
        )


def _format(path: str) -> str | None:
    name = path.lower()
    return next((kind for extension, kind in FORMATS.items() if name.endswith(extension)), None)


# -- schemas --------------------------------------------------------------------------------------------


def inspect_records(
    patterns: Sequence[str], columns: Columns | None = None, *, has_values: bool, with_times: bool = False
) -> RecordInputs:
    """Open every file that the patterns mean and check its columns and types.

    Args:
        patterns: paths, folders, globs.
        columns: names of the columns.
        has_values: whether the collection needs values.
        with_times: whether it needs the time of a row (duplicates = "latest").

    Raises:
        InputError: A path, a file, a column or a type is not what records need.
    """
    names = columns or Columns()
    files, layouts = [], {}
    for path in expand(patterns):
        kind = _format(path) or ""
        facts = inspect_file(path, kind)
        layouts[path] = check_columns(path, facts.schema, names, has_values=has_values, with_times=with_times)
        files.append(InputFile(path=path, format=kind, facts=facts))
    return RecordInputs(
        files=tuple(files),
        layout=_one_layout(layouts),
        columns=names,
        has_values=has_values,
        has_times=with_times,
    )


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
    return [part for file in inputs.files for part in _file_slices(file, inputs)]


def _file_slices(file: InputFile, inputs: RecordInputs) -> Iterator[FileSlice]:
    def part(first_row: int, groups: tuple[int, int] | None, rows: int | None) -> FileSlice:
        return FileSlice(
            path=file.path,
            format=file.format,
            layout=inputs.layout,
            has_values=inputs.has_values,
            with_times=inputs.has_times,
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
