"""Reading the rows of record files as Arrow batches, alike in every format. Client side only."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.csv as pa_csv

from ..errors import InputError, RunError
from ..schemas.records import Columns
from .attribute_columns import attribute_items
from .avro_blocks import AvroBlocks, Wanted
from .generated import Generated
from .input_files import open_bytes, open_parquet
from .inputs import FileSlice
from .rows_read import WATCHED_ROWS
from .vector_values import coordinate_pairs

__all__ = ["RawBatch", "raw_batch", "read_slice"]

#: Rows of a batch, unless told otherwise.
BATCH_ROWS = 1 << 15

_CSV_BLOCK = 1 << 20

I64 = npt.NDArray[np.int64]


# No repr: what it holds is raw data and must not reach a log.
@dataclass(frozen=True, kw_only=True, eq=False, repr=False)
class RawBatch:
    """n rows of a file, not validated.

    Attributes:
        path: the file.
        first_row: number of its first row among the data rows of the file, counting from 1.
        users: user ids (n,).
        keys: keys; one a row in the pairs layout, all items of all rows in the nested one.
        values: values, likewise; None where they are not read.
        tags: tags of the keys, likewise; None where they are not read.
        offsets: in the nested layout, row i holds the items offsets[i] to offsets[i + 1], int64 (n + 1,);
            None in the pairs layout.
        times: times (n,); None where they are not read.
        unreadable: numbers of the rows at or after `first_row` that could not be split into fields and are
            missing from the batch.
    """

    path: str
    first_row: int
    users: pa.Array
    keys: pa.Array
    values: pa.Array | None = None
    tags: pa.Array | None = None
    offsets: I64 | None = None
    times: pa.Array | None = None
    unreadable: tuple[int, ...] = field(default=())

    @property
    def n(self) -> int:
        """Number of rows."""
        return len(self.users)

    def row_numbers(self) -> I64:
        """Return the number of each row in the file, counting from 1, int64 (n,)."""
        numbers = np.arange(self.first_row, self.first_row + self.n + len(self.unreadable), dtype=np.int64)
        if self.unreadable:
            numbers = numbers[~np.isin(numbers, np.array(self.unreadable))]
        return numbers[: self.n]


def read_slice(part: FileSlice, columns: Columns, *, batch_rows: int = BATCH_ROWS) -> Iterator[RawBatch]:
    """Read the rows of a slice, only the columns that are needed.

    Args:
        part: what to read.
        columns: names of the columns.
        batch_rows: largest number of rows of a batch.

    Raises:
        InputError: A CSV file is not UTF-8 text.
        RunError: The file is damaged.
    """
    read = {"parquet": _read_parquet, "avro": _read_avro, "csv": _read_csv, "generated": _read_generated}[part.format]
    for batch in read(part, columns, batch_rows):
        WATCHED_ROWS.add(batch.n)
        yield batch


def raw_batch(
    part: FileSlice, columns: Columns, data: pa.RecordBatch, first_row: int, unreadable: tuple[int, ...] = ()
) -> RawBatch:
    """Return the columns that records need of rows whose schema has been checked (`check_columns`)."""
    offsets = None
    values = tags = None
    if columns.attributes:
        held = [data.column(name) for name in columns.attributes]
        offsets, keys = attribute_items(held, columns.attributes, composite=columns.composite)
    elif part.layout == "nested":
        offsets, keys, values, tags = _flatten(data.column(columns.items), columns, part)
    else:
        keys = data.column(columns.key)
        values = data.column(columns.value) if part.has_values else None
        tags = data.column(columns.tag) if part.with_tags else None
    if columns.coordinates and values is not None:
        offsets, keys, values = coordinate_pairs(keys, values, offsets, columns.coordinates)
    return RawBatch(
        path=part.path,
        first_row=first_row,
        users=data.column(columns.user),
        keys=keys,
        values=values,
        tags=tags,
        offsets=offsets,
        times=data.column(columns.time) if part.with_times else None,
        unreadable=unreadable,
    )


def _needed(part: FileSlice, columns: Columns) -> list[str]:
    needed = [columns.user]
    if columns.attributes:
        needed += columns.attributes
    elif part.layout == "nested":
        needed.append(columns.items)
    else:
        needed.append(columns.key)
        if part.has_values:
            needed.append(columns.value)
        if part.with_tags:
            needed.append(columns.tag)
    if part.with_times:
        needed.append(columns.time)
    return needed


def _flatten(
    items: pa.Array, columns: Columns, part: FileSlice
) -> tuple[I64, pa.Array, pa.Array | None, pa.Array | None]:
    """Split a list column into offsets and the columns of its items; a null list is an empty one."""
    offsets = np.zeros(len(items) + 1, dtype=np.int64)
    if pa.types.is_null(items.type):
        none = pa.nulls(0)
        return offsets, none, none if part.has_values else None, none if part.with_tags else None
    lengths = pc.list_value_length(items)
    if lengths.null_count:
        lengths = pc.fill_null(lengths, 0)
    np.cumsum(lengths.to_numpy(zero_copy_only=False), out=offsets[1:])
    pairs = items.flatten()
    if pa.types.is_null(pairs.type):
        return offsets, pairs, pairs if part.has_values else None, pairs if part.with_tags else None
    # `flatten`, unlike `field`, makes the fields of a null item null.
    children = pairs.flatten() if pairs.null_count else [pairs.field(i) for i in range(pairs.type.num_fields)]

    def child(name: str) -> pa.Array:
        return children[pairs.type.get_field_index(name)]

    values = child(columns.value) if part.has_values else None
    return offsets, child(columns.key), values, child(columns.tag) if part.with_tags else None


# -- Parquet --------------------------------------------------------------------------------------------


def _read_parquet(part: FileSlice, columns: Columns, batch_rows: int) -> Iterator[RawBatch]:
    done = 0
    try:
        with open_parquet(part.path) as file:
            first, stop = part.groups or (0, file.metadata.num_row_groups)
            batches = file.iter_batches(
                batch_size=batch_rows, row_groups=list(range(first, stop)), columns=_needed(part, columns)
            )
            for data in batches:
                if data.num_rows:
                    yield raw_batch(part, columns, data, part.first_row + done)
                done += data.num_rows
    except (pa.ArrowException, OSError) as error:
        raise _damaged(part.path, f"after row {part.first_row + done - 1}", error) from error


def _damaged(path: str, place: str, error: Exception) -> RunError:
    return RunError(
        f"The input file {path} is damaged: {place} it cannot be read ({error}). Write it again or remove it "
        "from the input."
    )


# -- CSV ------------------------------------------------------------------------------------------------


def _read_csv(part: FileSlice, columns: Columns, batch_rows: int) -> Iterator[RawBatch]:
    row = part.first_row
    unreadable: list[int] = []

    def skip(bad: Any) -> str:
        # The header is row 1 to Arrow.
        unreadable.append(bad.number - 1)
        return "skip"

    try:
        with open_bytes(part.path) as stream:
            for data in _open_csv(part, columns, stream, skip):
                for start in range(0, data.num_rows, batch_rows):
                    batch = data.slice(start, batch_rows)
                    met = _met(unreadable, row, batch.num_rows)
                    yield raw_batch(part, columns, batch, row, met)
                    row += batch.num_rows + len(met)
    except (pa.ArrowException, OSError) as error:
        if "invalid UTF8" in str(error):
            raise InputError(f"The input file {part.path} is not UTF-8 text ({error}). Convert it to UTF-8.") from error
        raise _damaged(part.path, f"after row {row - 1}", error) from error
    if unreadable:
        empty = _csv_schema(part, columns).empty_table().to_batches() or [
            pa.RecordBatch.from_pylist([], schema=_csv_schema(part, columns))
        ]
        yield raw_batch(part, columns, empty[0], row, tuple(unreadable))


def _met(unreadable: list[int], row: int, n: int) -> tuple[int, ...]:
    """Take out the unreadable rows that stand before the last of the n readable rows from `row` on."""
    count = 0
    while count < len(unreadable) and unreadable[count] < row + n + count:
        count += 1
    met = tuple(unreadable[:count])
    del unreadable[:count]
    return met


def _open_csv(part: FileSlice, columns: Columns, stream: Any, skip: Any) -> Any:
    source: Any = pa.PythonFile(stream, mode="r")
    if part.path.lower().endswith(".gz"):
        source = pa.CompressedInputStream(source, "gzip")
    schema = _csv_schema(part, columns)
    return pa_csv.open_csv(
        source,
        # One thread, so that rows keep their numbers.
        read_options=pa_csv.ReadOptions(use_threads=False, block_size=_CSV_BLOCK),
        parse_options=pa_csv.ParseOptions(newlines_in_values=True, invalid_row_handler=skip),
        convert_options=pa_csv.ConvertOptions(
            column_types=schema,
            include_columns=schema.names,
            null_values=[""],
            strings_can_be_null=True,
            quoted_strings_can_be_null=False,
        ),
    )


def _csv_schema(part: FileSlice, columns: Columns) -> pa.Schema:
    return pa.schema([pa.field(name, pa.string()) for name in _needed(part, columns)])


# -- Avro -----------------------------------------------------------------------------------------------


def _read_avro(part: FileSlice, columns: Columns, batch_rows: int) -> Iterator[RawBatch]:
    row, blocks = part.first_row, None
    try:
        with open_bytes(part.path) as stream:
            blocks = AvroBlocks(stream, _wanted(part, columns))
            for data in blocks.batches(batch_rows):
                yield raw_batch(part, columns, data, row)
                row += data.num_rows
    except (pa.ArrowException, OSError, EOFError, ValueError, KeyError, IndexError, TypeError) as error:
        raise _damaged(part.path, f"after block {0 if blocks is None else blocks.read}", error) from error


def _wanted(part: FileSlice, columns: Columns) -> Wanted:
    names = tuple(_needed(part, columns))
    if part.layout == "pairs" or columns.attributes:
        return Wanted(names)
    inside = [columns.key] + [columns.value] * part.has_values + [columns.tag] * part.with_tags
    return Wanted(names, columns.items, tuple(inside))


# -- made-up people -------------------------------------------------------------------------------------


def _read_generated(part: FileSlice, columns: Columns, batch_rows: int) -> Iterator[RawBatch]:
    row = part.first_row
    for block in Generated.parse(part.path).blocks(*(part.groups or (0, 0))):
        for start in range(0, block.num_rows, batch_rows):
            data = block.slice(start, batch_rows)
            yield raw_batch(part, columns, data, row)
            row += data.num_rows
