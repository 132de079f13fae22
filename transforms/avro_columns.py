"""From Avro records to Arrow columns, whatever unions the schema uses."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from decimal import Decimal
from typing import Any

import pyarrow as pa

__all__ = ["arrow_schema", "to_column"]

_PRIMITIVES = {
    "null": pa.null(),
    "boolean": pa.bool_(),
    "int": pa.int64(),
    "long": pa.int64(),
    "float": pa.float64(),
    "double": pa.float64(),
    "string": pa.string(),
    "bytes": pa.binary(),
}
_LOGICAL = {
    "date": pa.date32(),
    "timestamp-millis": pa.timestamp("us", tz="UTC"),
    "timestamp-micros": pa.timestamp("us", tz="UTC"),
    "local-timestamp-millis": pa.timestamp("us"),
    "local-timestamp-micros": pa.timestamp("us"),
    "time-millis": pa.time64("us"),
    "time-micros": pa.time64("us"),
}


def arrow_schema(schema: Any) -> pa.Schema:
    """Return the Arrow types of the fields of an Avro record schema.

    Null in a union only makes a field nullable; a union of numbers is a float as soon as one of them is;
    a union of text and numbers is text.

    Raises:
        ValueError: It is not the schema of a record.
    """
    if not isinstance(schema, dict) or schema.get("type") != "record":
        raise ValueError("its top-level schema is not a record")
    names: dict[str, pa.DataType] = {}
    return pa.schema([pa.field(f["name"], _type(f["type"], names)) for f in schema["fields"]])


def _type(schema: Any, names: dict[str, pa.DataType]) -> pa.DataType:
    if isinstance(schema, list):
        return _union([_type(branch, names) for branch in schema])
    if isinstance(schema, str):
        return _PRIMITIVES[schema] if schema in _PRIMITIVES else names[schema]
    logical = schema.get("logicalType")
    if logical == "decimal":
        return pa.decimal256(76, schema.get("scale", 0))
    if logical in _LOGICAL:
        return _LOGICAL[logical]
    return _complex(schema, names)


def _complex(schema: dict[str, Any], names: dict[str, pa.DataType]) -> pa.DataType:
    kind = schema["type"]
    if kind == "array":
        return pa.list_(_type(schema["items"], names))
    if kind == "map":
        return pa.map_(pa.string(), _type(schema["values"], names))
    if kind not in ("record", "enum", "fixed"):
        return _type(kind, names)
    name = schema["name"]
    # A record may contain itself; no column that is read does.
    names[name] = pa.null()
    if kind == "record":
        names[name] = pa.struct([pa.field(f["name"], _type(f["type"], names)) for f in schema["fields"]])
    else:
        names[name] = pa.string() if kind == "enum" else pa.binary(schema["size"])
    return names[name]


def _union(branches: Sequence[pa.DataType]) -> pa.DataType:
    kinds = [kind for kind in branches if not pa.types.is_null(kind)]
    if not kinds:
        return pa.null()
    if all(kind == kinds[0] for kind in kinds):
        return kinds[0]
    if all(map(_is_number, kinds)):
        return pa.float64()
    if all(_is_number(kind) or pa.types.is_string(kind) for kind in kinds):
        return pa.string()
    # Whatever it is, no column of records may have it; the check of the types says so.
    return pa.dense_union([pa.field(str(i), kind) for i, kind in enumerate(kinds)])


def _is_number(kind: pa.DataType) -> bool:
    return bool(pa.types.is_integer(kind) or pa.types.is_floating(kind) or pa.types.is_decimal(kind))


def to_column(values: Sequence[Any], kind: pa.DataType) -> pa.Array:
    """Return values as fastavro gives them as an Arrow array of the type that `arrow_schema` gave."""
    convert: Callable[[Any], Any]
    if pa.types.is_string(kind):
        convert = _text
    elif pa.types.is_floating(kind):
        convert = float
    else:
        return pa.array(values, kind)
    try:
        return pa.array(values, kind)
    except (pa.ArrowInvalid, pa.ArrowTypeError):
        return pa.array([None if value is None else convert(value) for value in values], kind)


def _text(value: Any) -> str:
    return format(value, "f") if isinstance(value, Decimal) else str(value)
