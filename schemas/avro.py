"""Avro schemas derived from Arrow schemas, so that each file layout has one source of truth."""

from __future__ import annotations

from typing import Any

import pyarrow as pa

__all__ = ["avro_schema"]

_PRIMITIVES: dict[pa.DataType, Any] = {
    pa.string(): "string",
    pa.bool_(): "boolean",
    pa.int8(): "int",
    pa.int16(): "int",
    pa.int32(): "int",
    pa.int64(): "long",
    pa.float32(): "float",
    pa.float64(): "double",
    pa.timestamp("us", tz="UTC"): {"type": "long", "logicalType": "timestamp-micros"},
}


def avro_schema(schema: pa.Schema, name: str) -> dict[str, Any]:
    """Return the Avro record schema `ldp_beam.<name>` with the fields of an Arrow schema.

    Args:
        schema: Arrow schema; nullable fields become unions with null, default null.
        name: record name, without namespace.

    Raises:
        TypeError: A field has an Arrow type that no file of ours uses.
    """
    return {"namespace": "ldp_beam", **_record([schema.field(i) for i in range(len(schema))], name)}


def _record(fields: list[pa.Field], name: str) -> dict[str, Any]:
    return {"type": "record", "name": name, "fields": [_field(f, f"{name}_{f.name}") for f in fields]}


def _field(field: pa.Field, name: str) -> dict[str, Any]:
    kind = _type(field.type, name)
    if not field.nullable:
        return {"name": field.name, "type": kind}
    return {"name": field.name, "type": ["null", kind], "default": None}


def _type(kind: pa.DataType, name: str) -> Any:
    if kind in _PRIMITIVES:
        return _PRIMITIVES[kind]
    if pa.types.is_fixed_size_binary(kind):
        return {"type": "fixed", "name": name, "size": kind.byte_width}
    if pa.types.is_struct(kind):
        return _record([kind.field(i) for i in range(kind.num_fields)], name)
    if pa.types.is_list(kind):
        item = kind.value_field
        inner = _type(item.type, f"{name}_item")
        return {"type": "array", "items": ["null", inner] if item.nullable else inner}
    raise TypeError(f"no Avro type is defined for the Arrow type {kind} of field {name}")
