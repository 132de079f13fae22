"""Arrow types of Avro schemas, and columns of what fastavro returns."""

from __future__ import annotations

from decimal import Decimal
from typing import Any

import pyarrow as pa
import pytest
from ldp_beam.transforms.avro_columns import arrow_schema, to_column


def arrow_type(kind: Any) -> pa.DataType:
    return arrow_schema({"type": "record", "name": "r", "fields": [{"name": "x", "type": kind}]}).field("x").type


@pytest.mark.parametrize(
    ("avro", "arrow"),
    [
        ("string", pa.string()),
        ("int", pa.int64()),
        (["null", "long"], pa.int64()),
        (["double", "null"], pa.float64()),
        (["null", "float", "double"], pa.float64()),
        (["null", "int", "double"], pa.float64()),
        (["null", "string", "long"], pa.string()),
        (["null"], pa.null()),
        ("boolean", pa.bool_()),
        ({"type": "string", "avro.java.string": "String"}, pa.string()),
        ({"type": {"type": "string"}}, pa.string()),
        ({"type": "enum", "name": "e", "symbols": ["A"]}, pa.string()),
        ({"type": "fixed", "name": "f", "size": 3}, pa.binary(3)),
        ({"type": "bytes", "logicalType": "decimal", "precision": 9, "scale": 2}, pa.decimal256(76, 2)),
        ({"type": "long", "logicalType": "timestamp-millis"}, pa.timestamp("us", tz="UTC")),
        ({"type": "long", "logicalType": "local-timestamp-micros"}, pa.timestamp("us")),
        ({"type": "array", "items": ["null", "int"]}, pa.list_(pa.int64())),
        ({"type": "map", "values": "int"}, pa.map_(pa.string(), pa.int64())),
    ],
)
def test_types(avro: Any, arrow: pa.DataType) -> None:
    assert arrow_type(avro) == arrow


def test_a_union_that_no_column_may_have_stays_a_union() -> None:
    assert pa.types.is_union(arrow_type(["boolean", "string"]))


def test_named_types_are_found_again_and_may_contain_themselves() -> None:
    node = {"type": "record", "name": "n.node", "fields": [{"name": "next", "type": ["null", "n.node"]}]}
    schema = arrow_schema(
        {"type": "record", "name": "n.r", "fields": [{"name": "a", "type": node}, {"name": "b", "type": "n.node"}]}
    )
    assert schema.field("a").type == schema.field("b").type


def test_only_records_have_columns() -> None:
    with pytest.raises(ValueError, match="not a record"):
        arrow_schema("string")


@pytest.mark.parametrize(
    ("values", "kind", "expected"),
    [
        ([1, 2.5, None], pa.float64(), [1.0, 2.5, None]),
        ([2**60 + 1, 0.5], pa.float64(), [float(2**60), 0.5]),
        ([1, "1", None, -(2**62)], pa.string(), ["1", "1", None, str(-(2**62))]),
        ([Decimal("1E+2"), "x"], pa.string(), ["100", "x"]),
        ([2**62 + 1, None], pa.int64(), [2**62 + 1, None]),
        ([None, None], pa.null(), [None, None]),
    ],
)
def test_columns(values: list[Any], kind: pa.DataType, expected: list[Any]) -> None:
    column = to_column(values, kind)
    assert column.type == kind
    assert column.to_pylist() == expected
