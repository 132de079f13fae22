"""The rules for the columns of a file of raw records: which layout it has, and which types are allowed."""

from __future__ import annotations

from dataclasses import replace

import pyarrow as pa

from ..errors import InputError, did_you_mean
from ..schemas.collection import Definition
from ..schemas.records import Columns, Layout

__all__ = ["check_columns", "check_tags", "columns_of", "is_list", "is_number", "is_text", "plain_type"]


def columns_of(definition: Definition, columns: Columns | None = None) -> Columns:
    """Return names of columns, with the attributes and coordinates that a collection's definition names."""
    return replace(columns or Columns(), coordinates=definition.coordinates, **(definition.attributes or {}))


def check_columns(path: str, schema: pa.Schema, columns: Columns, *, has_values: bool, with_times: bool) -> Layout:
    """Recognise the layout of a file and check the columns that its records need.

    Args:
        path: the file, for messages.
        schema: its columns.
        columns: names of the columns to look for.
        has_values: whether values are needed.
        with_times: whether times are needed.

    Raises:
        InputError: A column is missing, ambiguous or of a type that it cannot have.
    """
    return _SchemaCheck(path, schema, columns).run(has_values, with_times)


def check_tags(path: str, schema: pa.Schema, columns: Columns, layout: Layout, *, wanted: bool) -> None:
    """Check the tags beside the keys of a file whose other columns have been checked.

    Args:
        path: the file, for messages.
        schema: its columns.
        columns: names of the columns.
        layout: layout of the file.
        wanted: whether the tags stand in this file; else a table of sensitive keys was given, and they must not.

    Raises:
        InputError: They are missing, of a type that they cannot have, or given twice.
    """
    _SchemaCheck(path, schema, columns).tags(layout, wanted)


class _SchemaCheck:
    """Checks the columns of one file."""

    def __init__(self, path: str, schema: pa.Schema, columns: Columns) -> None:
        self._path, self._schema, self._columns = path, schema, columns

    def run(self, has_values: bool, with_times: bool) -> Layout:
        layout = "nested" if self._columns.attributes else self._layout()
        self._require("user", self._columns.user, self._schema.names, "--user-column")
        self._require_id(self._columns.user, self._schema.field(self._columns.user).type)
        if self._columns.attributes:
            self._attributes()
        elif layout == "nested":
            self._nested(has_values)
        else:
            self._pairs(has_values)
        if with_times:
            self._time()
        return layout

    def _layout(self) -> Layout:
        names = self._schema.names
        items, key = self._columns.items, self._columns.key
        # A list of items decides, even where some other column is called like a key; a text does not.
        if items in names and (key not in names or is_list(self._schema.field(items).type)):
            return "nested"
        if key in names:
            return "pairs"
        raise self._error(
            f"has neither a column {key!r} (one row per user and key) nor a column {items!r} (one row per "
            f"user); its columns are {', '.join(map(repr, names))}",
            f"Name yours with --key-column or --items-column. {did_you_mean(key, names)}",
        )

    def _attributes(self) -> None:
        names = self._schema.names
        for name in self._columns.attributes:
            if name not in names:
                raise self._error(
                    f"has no column {name!r}, which [attributes] of the collection names",
                    f"Rename the column, or the attribute in the collection. {did_you_mean(name, names)}",
                )
            self._require("attribute", name, names, "[attributes]")
            self._require_id(name, self._schema.field(name).type)

    def _nested(self, has_values: bool) -> None:
        name = self._columns.items
        self._require("items", name, self._schema.names, "--items-column")
        kind = self._schema.field(name).type
        if pa.types.is_null(kind):
            return
        if not is_list(kind) or not (pa.types.is_struct(kind.value_type) or pa.types.is_null(kind.value_type)):
            raise self._wrong_type(name, kind, "a list of structs with the fields key and value")
        if pa.types.is_null(kind.value_type):
            return
        fields = {field.name: field.type for field in kind.value_type}
        self._require("key", self._columns.key, list(fields), "--key-column", inside=name)
        self._require_id(f"{name}.{self._columns.key}", fields[self._columns.key])
        if has_values:
            self._require("value", self._columns.value, list(fields), "--value-column", inside=name)
            self._require_number(f"{name}.{self._columns.value}", fields[self._columns.value])

    def _pairs(self, has_values: bool) -> None:
        key, value = self._columns.key, self._columns.value
        self._require("key", key, self._schema.names, "--key-column")
        self._require_id(key, self._schema.field(key).type)
        if has_values:
            self._require("value", value, self._schema.names, "--value-column")
            self._require_number(value, self._schema.field(value).type)

    def tags(self, layout: Layout, wanted: bool) -> None:
        inside = self._columns.items if layout == "nested" else ""
        fields = self._schema
        if inside:
            kind = self._schema.field(inside).type
            if pa.types.is_null(kind) or pa.types.is_null(kind.value_type):
                return
            fields = list(kind.value_type)
        kinds, name = {field.name: field.type for field in fields}, self._columns.tag
        place = f" in the items of column {inside!r}" if inside else ""
        if not wanted and name in kinds:
            raise self._error(
                f"has tags in {name!r}{place}, and a table of sensitive keys was given too",
                "Give the tags once: leave out --sensitive-table, or call the tags in the records something else.",
            )
        if wanted and name not in kinds:
            raise self._error(
                f"has no tag {'field' if inside else 'column'} {name!r}{place}, which says what is sensitive to whom",
                f"Name yours with --tag-column, or give a --sensitive-table. {did_you_mean(name, kinds)}",
            )
        if wanted:
            self._require_id(f"{inside}.{name}" if inside else name, kinds[name])

    def _time(self) -> None:
        name = self._columns.time
        if name not in self._schema.names:
            raise self._error(
                f'has no column {name!r}, which duplicates = "latest" needs',
                f"Name yours with --time-column. {did_you_mean(name, self._schema.names)}",
            )
        kind = plain_type(self._schema.field(name).type)
        if not (pa.types.is_temporal(kind) or pa.types.is_integer(kind) or is_text(kind) or pa.types.is_null(kind)):
            raise self._wrong_type(name, kind, "a timestamp, an integer, or text in ISO 8601")

    def _require(self, what: str, name: str, names: list[str], option: str, *, inside: str = "") -> None:
        place = f" in the items of column {inside!r}" if inside else ""
        if name not in names:
            raise self._error(
                f"has no {what} {'field' if inside else 'column'} {name!r}{place}",
                f"Name yours with {option}. {did_you_mean(name, names)}",
            )
        if names.count(name) > 1:
            raise self._error(f"has more than one column {name!r}{place}", "Rename all but one.")

    def _require_id(self, name: str, kind: pa.DataType) -> None:
        kind = plain_type(kind)
        if not (is_text(kind) or pa.types.is_integer(kind) or pa.types.is_null(kind)):
            raise self._wrong_type(name, kind, "text or integers")

    def _require_number(self, name: str, kind: pa.DataType) -> None:
        kind, allowed = plain_type(kind), "numbers, or text that holds numbers"
        if self._columns.coordinates:
            allowed = f"lists of {len(self._columns.coordinates)} numbers, the values of {self._columns.coordinates}"
            if pa.types.is_null(kind):
                return
            if not is_list(kind):
                raise self._wrong_type(name, kind, allowed)
            kind = plain_type(kind.value_type)
        if not (is_text(kind) or is_number(kind) or pa.types.is_null(kind)):
            raise self._wrong_type(name, kind, allowed)

    def _wrong_type(self, name: str, kind: pa.DataType, allowed: str) -> InputError:
        return self._error(f"has the type {kind} in column {name!r}", f"It must hold {allowed}; convert it.")

    def _error(self, fault: str, advice: str) -> InputError:
        return InputError(f"The input file {self._path} {fault}. {advice}".rstrip())


def plain_type(kind: pa.DataType) -> pa.DataType:
    """Return the type of the values of a dictionary type, other types as they are."""
    return kind.value_type if pa.types.is_dictionary(kind) else kind


def is_text(kind: pa.DataType) -> bool:
    """Whether a type is one of Arrow's string types."""
    return bool(pa.types.is_string(kind) or pa.types.is_large_string(kind) or pa.types.is_string_view(kind))


def is_number(kind: pa.DataType) -> bool:
    """Whether a type holds numbers; booleans do not count."""
    return bool(pa.types.is_integer(kind) or pa.types.is_floating(kind) or pa.types.is_decimal(kind))


def is_list(kind: pa.DataType) -> bool:
    """Whether a type is one of Arrow's list types."""
    return bool(
        pa.types.is_list(kind)
        or pa.types.is_large_list(kind)
        or pa.types.is_fixed_size_list(kind)
        or pa.types.is_list_view(kind)
        or pa.types.is_large_list_view(kind)
    )
