"""From an Avro schema to what reads its records many at a time.

Known are primitive types, null in a union with one other type, records, and lists; times and symbols too.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

import pyarrow as pa
from fastavro.read import LOGICAL_READERS

from .avro_lanes import I64, Array, Capture, Field, Irregular, Lanes, Longs, Nullable, Numbers, Record, Skipped, Texts

__all__ = ["Plan", "Wanted", "child", "plan_of", "structs"]

_FIXED: Final = {"null": 0, "boolean": 1}
_TIMES: Final = {"long-timestamp-millis": 1000, "long-timestamp-micros": 1}
#: The times that Python knows, in microseconds since 1970.
_FIRST_TIME: Final = -62_135_596_800_000_000
_LAST_TIME: Final = 253_402_300_799_999_999


@dataclass(frozen=True)
class Wanted:
    """The columns to read.

    Attributes:
        names: fields of the record.
        items: which of them is a list of records, or "".
        inside: fields of these.
    """

    names: tuple[str, ...]
    items: str = ""
    inside: tuple[str, ...] = ()


def child(kind: pa.DataType, name: str) -> pa.Field:
    """Return a field of a struct type."""
    return kind.field(kind.get_field_index(name))


def structs(children: list[pa.Array], names: Sequence[str], n: int, missing: Any) -> pa.Array:
    """Return n structs; `missing` says which are null, bool (n,), or is None."""
    mask = None if missing is None else pa.array(missing)
    return pa.StructArray.from_arrays(children, names=list(names), mask=mask)


class _Unusual(Exception):
    """A schema that only fastavro reads."""


@dataclass
class Plan:
    """What reads the records of one schema.

    Attributes:
        wanted: the columns.
        record: reads a record.
        columns: what holds the columns, by name.
        checked: what nobody asked for, but fastavro may refuse, such as texts that are no UTF-8.
        items: the list of items, or None.
        maybe_item: the union that holds an item or null, or None.
        inside: what holds the fields of an item, by name.
    """

    wanted: Wanted
    record: Field = field(default_factory=lambda: Record([]))
    columns: dict[str, Capture] = field(default_factory=dict)
    checked: list[Capture] = field(default_factory=list)
    items: Array | None = None
    maybe_item: Nullable | None = None
    inside: dict[str, Capture] = field(default_factory=dict)

    def decode(self, blocks: Sequence[Any]) -> pa.RecordBatch:
        """Decode a group of blocks.

        Raises:
            Irregular: Something is unexpected.
            pa.ArrowInvalid: A text is not UTF-8.
        """
        lanes = Lanes([block.bytes_.getvalue() for block in blocks], [block.num_records for block in blocks])
        self.record.clear()
        lanes.read(self.record)
        for unwanted in self.checked:
            unwanted.check(lanes)
        columns = [
            self._lists(lanes) if name == self.wanted.items else self.columns[name].column(lanes, lanes.n, None)
            for name in self.wanted.names
        ]
        return pa.RecordBatch.from_arrays(columns, names=list(self.wanted.names))

    def _lists(self, lanes: Lanes) -> pa.Array:
        assert self.items is not None  # wanted, so planned
        offsets, places = self.items.places(lanes.n)
        names = self.wanted.inside
        children = [self.inside[name].column(lanes, len(places), places) for name in names]
        missing = None if self.maybe_item is None else self.maybe_item.missing(len(places), places)
        return pa.ListArray.from_arrays(pa.array(offsets), structs(children, names, len(places), missing))


def plan_of(schema: Any, kinds: pa.Schema, wanted: Wanted) -> Plan | None:
    """Return what reads the records of a schema many at a time, or None where only fastavro does."""
    try:
        return _Planner(kinds, wanted).plan(schema)
    except _Unusual:
        return None


class _Planner:
    """Makes the plan of one schema, field by field."""

    def __init__(self, kinds: pa.Schema, wanted: Wanted) -> None:
        self._kinds = kinds
        self._plan = Plan(wanted)
        self._named: dict[str, Any] = {}
        self._open: list[str] = []

    def plan(self, schema: Any) -> Plan:
        wanted = self._plan.wanted
        fields: list[Field] = []
        with_name = self._entered(schema)
        for one in with_name["fields"]:
            name = one["name"]
            if name == wanted.items:
                fields.append(self._items(one["type"]))
            elif name in wanted.names:
                fields.append(self._column(one["type"], self._kinds.field(name).type, self._plan.columns, name))
            else:
                fields.append(self._skipped(one["type"]))
        self._plan.record = Record(fields)
        return self._plan

    def _entered(self, schema: Mapping[str, Any]) -> Mapping[str, Any]:
        if schema["name"] in self._open:
            raise _Unusual  # it contains itself
        self._named[schema["name"]] = schema
        self._open.append(schema["name"])
        return schema

    def _resolved(self, schema: Any) -> tuple[str, Any]:
        """Return the name of a type and what else is said of it."""
        if isinstance(schema, str):
            if schema in self._named:
                return self._resolved(self._named[schema])
            return schema, {}
        if isinstance(schema["type"], dict) or schema["type"] in self._named:
            return self._resolved(schema["type"])
        return schema["type"], schema

    def _column(self, schema: Any, kind: pa.DataType, into: dict[str, Capture], name: str) -> Field:
        """Plan a value that is wanted."""
        if isinstance(schema, list):
            something, index = _one_or_null(schema)
            return Nullable(self._column(something, kind, into, name), index)
        type_, more = self._resolved(schema)
        into[name] = self._capture(type_, more)
        return into[name]

    def _capture(self, type_: str, more: Mapping[str, Any]) -> Capture:
        logical = f"{type_}-{more.get('logicalType')}"
        if logical in _TIMES:
            return Longs(_times(_TIMES[logical]))
        if logical in LOGICAL_READERS:
            raise _Unusual
        if type_ in ("int", "long"):
            return Longs()
        if type_ in ("float", "double"):
            return Numbers("<f4" if type_ == "float" else "<f8")
        if type_ == "string":
            return Texts(pa.string())
        if type_ == "enum":
            self._named[more["name"]] = more
            return Longs(_symbols(more["symbols"]))
        raise _Unusual

    def _items(self, schema: Any) -> Field:
        if isinstance(schema, list):
            something, index = _one_or_null(schema)
            return Nullable(self._items(something), index)
        type_, more = self._resolved(schema)
        if type_ != "array":
            raise _Unusual
        item, nullable = more["items"], isinstance(more["items"], list)
        item, index = _one_or_null(item) if nullable else (item, 0)
        type_, record = self._resolved(item)
        if type_ != "record":
            raise _Unusual
        fields: list[Field] = []
        for one in self._entered(record)["fields"]:
            if one["name"] in self._plan.wanted.inside:
                kind = child(self._kinds.field(self._plan.wanted.items).type.value_type, one["name"]).type
                fields.append(self._column(one["type"], kind, self._plan.inside, one["name"]))
            else:
                fields.append(self._skipped(one["type"]))
        self._open.pop()
        whole: Field = Record(fields)
        if nullable:
            whole = self._plan.maybe_item = Nullable(whole, index)
        self._plan.items = Array(whole)
        return self._plan.items

    def _skipped(self, schema: Any) -> Field:
        """Plan a value that nobody wants; what fastavro would refuse in it is still noticed."""
        if isinstance(schema, list):
            something, index = _one_or_null(schema)
            return Nullable(self._skipped(something), index)
        type_, more = self._resolved(schema)
        if type_ in _FIXED:
            return Skipped(_FIXED[type_])
        if type_ == "fixed" and f"fixed-{more.get('logicalType')}" not in LOGICAL_READERS:
            self._named[more["name"]] = more
            return Skipped(more["size"])
        if type_ == "array":
            return Array(self._skipped(more["items"]))
        if type_ == "record":
            fields = [self._skipped(one["type"]) for one in self._entered(more)["fields"]]
            self._open.pop()
            return Record(fields)
        if type_ == "bytes" and f"bytes-{more.get('logicalType')}" not in LOGICAL_READERS:
            capture: Capture = Texts(pa.binary())
        else:
            capture = self._capture(type_, more)
        if isinstance(capture, Numbers):
            return Skipped(8 if type_ == "double" else 4)
        self._plan.checked.append(capture)
        return capture


def _one_or_null(union: list[Any]) -> tuple[Any, int]:
    """Return what a union holds beside null, and its place."""
    if len(union) != 2 or "null" not in union:
        raise _Unusual
    index = 1 - union.index("null")
    return union[index], index


def _times(unit: int) -> Callable[[I64], pa.Array]:
    def convert(values: I64) -> pa.Array:
        if len(values) and (unit * int(values.min()) < _FIRST_TIME or unit * int(values.max()) > _LAST_TIME):
            raise Irregular("a time that Python does not know")
        return pa.array(values * unit).cast(pa.timestamp("us", tz="UTC"))

    return convert


def _symbols(symbols: Sequence[str]) -> Callable[[I64], pa.Array]:
    def convert(values: I64) -> pa.Array:
        if len(values) and not 0 <= int(values.min()) <= int(values.max()) < len(symbols):
            raise Irregular("an enumeration has no such symbol")
        return pa.array(symbols, pa.string()).take(pa.array(values))

    return convert
