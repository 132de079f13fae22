"""Schemas of raw and canonical records."""

from __future__ import annotations

import pyarrow as pa
from ldp_beam.schemas.records import Columns, canonical_schema, nested_schema, pairs_schema

STAMP = pa.timestamp("us", tz="UTC")


def test_nested() -> None:
    item = pa.struct([("key", pa.string()), ("value", pa.float64())])
    assert nested_schema() == pa.schema([("user_id", pa.string()), ("items", pa.list_(item))])
    assert nested_schema(with_time=True).field("timestamp").type == STAMP


def test_pairs_without_values_and_with_other_names() -> None:
    names = Columns(user="who", key="what", time="when")
    schema = pairs_schema(has_values=False, with_time=True, columns=names)
    assert schema == pa.schema([("who", pa.string()), ("what", pa.string()), ("when", STAMP)])
    assert nested_schema(has_values=False, columns=names).field("items").type.value_type.num_fields == 1


def test_canonical_holds_a_digest_and_no_id() -> None:
    schema = canonical_schema(has_values=True)
    assert schema.names == ["user_digest", "items"]
    assert schema.field("user_digest").type == pa.binary(16)
    item = schema.field("items").type.value_type
    assert [(field.name, field.type) for field in item] == [("key", pa.int32()), ("value", pa.int64())]
    assert canonical_schema(has_values=False).field("items").type.value_type.num_fields == 1
