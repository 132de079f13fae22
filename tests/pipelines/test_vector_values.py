"""Vectors behind keys: a key's coordinates travel as pairs of their own, and come back named."""

import numpy as np
import pyarrow as pa
import pyarrow.csv
import pyarrow.parquet as pq
import pytest
from ldp_beam.transforms.collection import Collection
from ldp_beam.transforms.vector_values import coordinate_pairs

XY = 'coordinates = ["x", "y"]'


@pytest.fixture
def shops(define):
    return define(keys='list = ["a", "b"]', values=XY, padding=1, epsilon="8", low=0, high=10)


def nested_file(path, people, kind=None):
    kind = kind or pa.list_(pa.float64())
    items = pa.list_(pa.struct([("key", pa.string()), ("value", kind)]))
    rows = [[{"key": key, "value": value} for key, value in held] for _, held in people]
    pq.write_table(pa.table({"user_id": [user for user, _ in people], "items": pa.array(rows, items)}), path)
    return path


def pairs_file(path, people):
    rows = [(user, key, value) for user, held in people for key, value in held or [(None, None)]]
    table = pa.table(
        {
            "user_id": [row[0] for row in rows],
            "key": pa.array([row[1] for row in rows], pa.string()),
            "value": pa.array([row[2] for row in rows], pa.list_(pa.float64())),
        }
    )
    pq.write_table(table, path)
    return path


PEOPLE = [
    *((f"a{i}", [("a", [2.0, 9.0])]) for i in range(900)),
    *((f"b{i}", [("b", [7.0, 1.0])]) for i in range(600)),
    *((f"n{i}", []) for i in range(20)),
]


def collect(run_json, collection, path, output, *more):
    return run_json(
        "collect",
        "--collection",
        collection,
        "--input",
        path,
        "--output",
        output,
        "--seed",
        "1",
        "--period",
        "p",
        *more,
    )


def test_coordinates_come_back_with_their_names_and_means(shops, run_json, tmp_path):
    manifest = collect(run_json, shops, nested_file(tmp_path / "r.parquet", PEOPLE), tmp_path / "o")
    table = pq.read_table(tmp_path / "o" / "estimates.parquet")
    assert table["key"].to_pylist() == ["a/x", "a/y", "b/x", "b/y"]
    assert table["coordinate"].to_pylist() == ["x", "y", "x", "y"]
    assert manifest["records"]["users"] == 1520
    figures = {name: table[name].to_numpy() for name in ("frequency", "frequency_se", "mean", "mean_se")}
    # With epsilon 8 the errors are small; seven standard errors are missed once in 10^12 runs.
    truth = np.array([900, 900, 600, 600]) / 1520
    assert (np.abs(figures["frequency"] - truth) < 7 * figures["frequency_se"]).all()
    assert (np.abs(figures["mean"] - [2.0, 9.0, 7.0, 1.0]) < 7 * figures["mean_se"]).all()
    assert figures["mean_se"].max() < 1


def test_both_layouts_and_types_of_lists_give_the_same_counts(shops, run_json, tmp_path):
    inputs = [
        nested_file(tmp_path / "n.parquet", PEOPLE),
        nested_file(tmp_path / "f.parquet", PEOPLE, pa.list_(pa.float32(), 2)),
        pairs_file(tmp_path / "p.parquet", PEOPLE),
    ]
    counts = []
    for number, path in enumerate(inputs):
        manifest = collect(run_json, shops, path, tmp_path / str(number))
        assert manifest["records"]["users"] == 1520
        counts.append((tmp_path / str(number) / "counts.parquet").read_bytes())
    assert counts[0] == counts[1] == counts[2]


def test_evaluate_reads_the_same_records(shops, run_json, tmp_path):
    path = nested_file(tmp_path / "r.parquet", PEOPLE)
    collect(run_json, shops, path, tmp_path / "o")
    found = run_json("evaluate", "--estimates", tmp_path / "o", "--records", path)
    assert found["figures"]["frequency_mse"] < 1e-2


def test_the_padding_counts_keys_and_the_definition_tells_coordinates_apart(define):
    one = Collection.load(define("a.toml", values=XY, padding=2))
    assert one.mechanism.padding == 4
    assert len(one.definition.keys) == 6
    named = Collection.load(define("b.toml", values='coordinates = ["x", "z"]', padding=2))
    assert one.fingerprint != named.fingerprint


def test_a_vector_of_another_length_is_an_invalid_value(shops, run_json, tmp_path):
    people = [("u", [("a", [1.0])]), ("v", [("a", None)]), ("w", [("a", [1.0, 2.0]), ("b", [1.0, None])])]
    manifest = collect(run_json, shops, nested_file(tmp_path / "r.parquet", people), tmp_path / "o")
    records = manifest["records"]
    assert (records["users"], records["pairs_read"], records["pairs_kept"]) == (3, 8, 3)
    assert (records["not_a_number"], records["null_value"]) == (2, 3)


def test_numbers_where_vectors_are_declared_are_refused(shops, nested, people, run, tmp_path):
    code, _, err = run(
        "collect", "--collection", shops, "--input", nested(people(5)), "--output", tmp_path / "o", "--seed", "1",
        "--period", "p",
    )  # fmt: skip
    assert code == 2
    assert "lists of 2 numbers" in err


def test_vectors_where_numbers_are_declared_are_refused(define, run, tmp_path):
    path = nested_file(tmp_path / "r.parquet", PEOPLE)
    code, _, err = run(
        "collect", "--collection", define(), "--input", path, "--output", tmp_path / "o", "--seed", "1", "--period", "p"
    )
    assert code == 2
    assert "numbers" in err


def test_csv_cannot_hold_vectors_and_says_so(shops, run, tmp_path):
    pyarrow.csv.write_csv(pa.table({"user_id": ["u"], "key": ["a"], "value": ["1;2"]}), tmp_path / "r.csv")
    code, _, err = run(
        "collect", "--collection", shops, "--input", tmp_path / "r.csv", "--output", tmp_path / "o", "--seed", "1",
        "--period", "p",
    )  # fmt: skip
    assert code == 2
    assert "lists of 2 numbers" in err


@pytest.mark.parametrize("given", ['["x", "x"]', '"x"', "[1, 2]", '["x", ""]'])
def test_wrong_names_of_coordinates_are_refused(given, define, run):
    code, _, err = run("audit", "--collection", define(values=f"coordinates = {given}"))
    assert code == 2
    assert "values.coordinates" in err


def test_pairs_keep_their_order_and_null_rows_declare_nothing():
    keys = pa.array(["a", None, "b"]).dictionary_encode()
    vectors = pa.array([[1, 2], None, [3, 4]])
    offsets, texts, values = coordinate_pairs(keys, vectors, None, ("x", "y"))
    assert offsets.tolist() == [0, 2, 2, 4]
    assert texts.to_pylist() == ["a/x", "a/y", "b/x", "b/y"]
    assert values.to_pylist() == [1.0, 2.0, 3.0, 4.0]


def test_attributes_are_named_beside_their_values(define, run_json, tmp_path):
    path = tmp_path / "c.toml"
    path.write_text(
        'name = "census"\nmechanism = "oue"\nepsilon = 2\n[attributes]\nmode = "sampled"\n'
        'columns = ["sex", "vote"]\nvalues = [["f", "m"], ["yes", "no", "none"]]\n'
    )
    rows = pa.table({"user_id": ["u", "v"], "sex": ["f", "m"], "vote": ["yes", "none"]})
    pq.write_table(rows, tmp_path / "r.parquet")
    collect(run_json, path, tmp_path / "r.parquet", tmp_path / "o")
    table = pq.read_table(tmp_path / "o" / "estimates.parquet")
    assert table["attribute"].to_pylist() == ["sex", "sex", "vote", "vote", "vote"]
    assert table["key"].to_pylist()[0] == "sex=f"
