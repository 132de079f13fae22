"""Report, counts and estimates files: one source for Arrow and Avro, headers that refuse what is foreign."""

import io

import fastavro
import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st
from ldp_beam.errors import InputError
from ldp_beam.schemas.avro import avro_schema
from ldp_beam.schemas.counts import counts_from_table, counts_schema, counts_table
from ldp_beam.schemas.estimates import estimates_schema, estimates_table
from ldp_beam.schemas.reports import FileHeader, report_schema

HEADER = FileHeader(kind="reports", collection="c", mechanism="pckv-ue", fingerprint="ab" * 32, period="2026-11")


def test_header_survives_metadata():
    assert FileHeader.read(report_schema([("key", "int32", 0)], HEADER).metadata, "f") == HEADER


def test_header_says_when_the_randomness_was_no_secret():
    header = FileHeader(kind="reports", collection="c", mechanism="m", fingerprint="00", private=False)
    assert header.metadata()["ldp_beam.randomness"] == "seed: not private"
    assert not FileHeader.read(header.metadata(), "f").private


@pytest.mark.parametrize("metadata", [None, {}, {b"ldp_beam.kind": b"reports"}, {b"pandas": b"{}"}])
def test_file_without_header_is_refused(metadata):
    with pytest.raises(InputError, match=r"f\.parquet holds no header"):
        FileHeader.read(metadata, "f.parquet")


def test_file_of_another_layout_version_is_refused():
    metadata = HEADER.metadata() | {"ldp_beam.format": "99"}
    with pytest.raises(InputError, match="layout version 99"):
        FileHeader.read(metadata, "f")


def test_file_of_another_definition_or_kind_is_refused():
    HEADER.require(kind="reports", fingerprint="ab" * 32, path="f")
    with pytest.raises(InputError, match="another collection definition"):
        HEADER.require(kind="reports", fingerprint="cd" * 32, path="f")
    with pytest.raises(InputError, match="holds reports, not counts"):
        HEADER.require(kind="counts", fingerprint="ab" * 32, path="f")


def test_report_schema_has_one_fixed_size():
    schema = report_schema([("plus", "uint8", 13), ("minus", "uint8", 13)])
    assert [f.type for f in schema] == [pa.binary(13), pa.binary(13)]
    assert not any(f.nullable for f in schema)
    with pytest.raises(TypeError):
        report_schema([("x", "float64", 0)])


@pytest.mark.parametrize(
    "schema",
    [
        report_schema([("plus", "uint8", 2), ("minus", "uint8", 2)]),
        report_schema([("key", "int32", 0), ("sign", "int8", 0)]),
        counts_schema(),
        estimates_schema(has_values=True, support=("n1", "n2")),
        estimates_schema(has_values=False, support=("n1",)),
    ],
)
def test_avro_schema_of_every_layout_is_valid_and_has_the_same_fields(schema):
    parsed = fastavro.parse_schema(avro_schema(schema, "t"))
    assert [f["name"] for f in parsed["fields"]] == schema.names


def test_avro_refuses_a_type_that_no_file_of_ours_uses():
    with pytest.raises(TypeError, match="duration"):
        avro_schema(pa.schema([("x", pa.duration("s"))]), "t")


arrays = st.integers(0, 2**62)


@given(st.lists(st.tuples(arrays, arrays), min_size=1, max_size=20), st.integers(0, 2**40))
def test_counts_survive_their_table(pairs, n):
    cells = {"n1": np.array([a for a, _ in pairs]), "n2": np.array([b for _, b in pairs])}
    table = counts_table(0, "main", n, cells, counts_schema())
    back = counts_from_table(table, {"n1": len(pairs), "n2": len(pairs)})
    assert list(back) == [(0, "main")]
    count, arrays_back = back[0, "main"]
    assert count == n
    assert all(np.array_equal(arrays_back[k], v) for k, v in cells.items())


def test_counts_tables_add_up():
    cells = {"n1": np.array([1, 2]), "n2": np.array([3, 4])}
    table = counts_table(0, "main", 5, cells, counts_schema())
    n, total = counts_from_table(pa.concat_tables([table, table]), {"n1": 2, "n2": 2})[0, "main"]
    assert n == 10
    assert total["n1"].tolist() == [2, 4]
    assert total["n2"].tolist() == [6, 8]


@pytest.mark.parametrize(
    ("row", "message"),
    [
        ({"statistic": "n3", "cell": 0, "count": 1}, "not counted"),
        ({"statistic": "n1", "cell": 2, "count": 1}, "0 to 1"),
        ({"statistic": "n1", "cell": -1, "count": 1}, "0 to 1"),
        ({"statistic": "n1", "cell": None, "count": 1}, "no cell"),
        ({"statistic": "n1", "cell": 0, "count": -1}, "negative"),
    ],
)
def test_impossible_counts_are_refused(row, message):
    good = counts_table(0, "main", 5, {"n1": np.array([1, 2]), "n2": np.array([3, 4])}, counts_schema())
    bad = pa.Table.from_pylist([{"round": 0, "group": "main", **row}], schema=counts_schema())
    with pytest.raises(ValueError, match=message):
        counts_from_table(pa.concat_tables([good, bad]), {"n1": 2, "n2": 2})


def test_counts_without_n_are_refused():
    row = {"round": 0, "group": "main", "statistic": "n1", "cell": 0, "count": 1}
    with pytest.raises(ValueError, match="no row for n"):
        counts_from_table(pa.Table.from_pylist([row], schema=counts_schema()), {"n1": 2, "n2": 2})


def test_estimates_write_nan_as_null_and_flags_as_lists():
    schema = estimates_schema(has_values=True, support=("n1", "n2"))
    floats = {name: np.array([0.5, np.nan]) for name in schema.names if schema.field(name).type == pa.float64()}
    flags = {"no-reports": np.array([False, True]), "clipped": np.array([False, True])}
    ints = {"n1": np.array([1, 0]), "n2": np.array([2, 0])}
    batch = estimates_table(pa.array(["a", "b"]), floats, ints, 7, flags, schema)
    rows = batch.to_pylist()
    assert rows[0]["mean"] == 0.5
    assert rows[1]["mean"] is None
    assert rows[0]["flags"] == []
    assert rows[1]["flags"] == ["clipped", "no-reports"]
    assert [row["n"] for row in rows] == [7, 7]
    parsed = fastavro.parse_schema(avro_schema(schema, "estimates"))
    file = io.BytesIO()
    fastavro.writer(file, parsed, rows)
    file.seek(0)
    assert list(fastavro.reader(file)) == rows


def test_estimates_without_flags():
    schema = estimates_schema(has_values=False, support=("n1",))
    floats = {name: np.array([0.5]) for name in schema.names if schema.field(name).type == pa.float64()}
    rows = estimates_table(pa.array(["a"]), floats, {"n1": np.array([1])}, 7, {}, schema).to_pylist()
    assert rows[0]["flags"] == []
    assert "mean" not in rows[0]
