"""Columns of one row a user as attributes: combinations, split budgets, one drawn column, in every format."""

import json

import fastavro
import numpy as np
import pyarrow as pa
import pyarrow.csv
import pyarrow.parquet as pq
import pytest

SEX, AGE = ("f", "m"), (10, 20, 30)


def definition(path, mode, mechanism="grr", *, epsilon="8", more="", table=None):
    attributes = table or f'mode = "{mode}"\ncolumns = ["sex", "age"]\nvalues = [{json.dumps(SEX)}, {json.dumps(AGE)}]'
    text = f'name = "census"\nmechanism = "{mechanism}"\nepsilon = {epsilon}\n{more}\n[attributes]\n{attributes}\n'
    path.write_text(text, encoding="utf-8")
    return path


def census(n):
    """Rows of user, sex and age; some lack one, some hold an age that is not declared."""
    rng = np.random.default_rng(4)
    sex = rng.choice(SEX, n, p=(0.6, 0.4)).tolist()
    age = rng.choice(AGE, n, p=(0.5, 0.3, 0.2)).tolist()
    for i in range(0, n, 50):
        age[i] = None
    for i in range(1, n, 50):
        age[i] = 99
    return pa.table(
        {
            "user_id": [f"u{i}" for i in range(n)],
            "sex": pa.array(sex).dictionary_encode(),
            "age": pa.array(age, pa.int64()),
            "unused": [1.5] * n,
        }
    )


def write(path, table):
    if path.suffix == ".parquet":
        pq.write_table(table, path, row_group_size=900)
    elif path.suffix == ".csv":
        pyarrow.csv.write_csv(table.set_column(1, "sex", table["sex"].cast(pa.string())), path)
    else:
        fields = [
            {"name": "user_id", "type": "string"},
            {"name": "sex", "type": "string"},
            {"name": "age", "type": ["null", "long"]},
            {"name": "unused", "type": "double"},
        ]
        with path.open("wb") as file:
            fastavro.writer(file, {"type": "record", "name": "row", "fields": fields}, table.to_pylist())
    return path


def shares(table, mode):
    """True shares of the keys among all rows, from the table itself."""
    rows = table.to_pylist()
    if mode == "composite":
        keys = {f"sex={s},age={a}": [(s, a) == (r["sex"], r["age"]) for r in rows] for s in SEX for a in AGE}
    else:
        keys = {f"sex={s}": [s == r["sex"] for r in rows] for s in SEX}
        keys |= {f"age={a}": [a == r["age"] for r in rows] for a in AGE}
    return {key: float(np.mean(held)) for key, held in keys.items()}


@pytest.mark.parametrize("mode", ["composite", "split", "sampled"])
def test_attributes_from_end_to_end(mode, run_json, tmp_path):
    """Shares within 7 standard errors, and the 4 % who lack a declared age spread evenly over the symbols."""
    table = census(4000)
    collection = definition(tmp_path / "c.toml", mode)
    records = write(tmp_path / "r.parquet", table)
    given = ("--collection", collection, "--input", records, "--seed", 2)
    manifest = run_json("collect", *given, "--output", tmp_path / "out")
    assert manifest["reports"] == {"counted": 4000, "malformed": 0}
    assert manifest["records"]["outside_the_domain"] == 80
    estimates = pq.read_table(tmp_path / "out" / "estimates.parquet")
    truth = shares(table, mode)
    assert estimates["key"].to_pylist() == list(truth)
    for row in estimates.to_pylist():
        size = {"composite": 6, "split": 3, "sampled": 3}[mode]
        lacking = 0.0 if row["key"].startswith("sex=") and mode != "composite" else 0.04
        expected = truth[row["key"]] + lacking / size
        assert abs(row["frequency_raw"] - expected) < 7 * row["frequency_se"], row
    found = run_json("evaluate", "--estimates", tmp_path / "out", "--records", records)
    assert {row["key"]: row["true_frequency"] for row in found["keys"]} == pytest.approx(truth)
    run_json("perturb", *given, "--output", tmp_path / "reports", "--format", "avro")
    inputs = ("--input", tmp_path / "reports" / "*.avro")
    run_json("aggregate", "--collection", collection, *inputs, "--output", tmp_path / "halves")
    assert pq.read_table(tmp_path / "halves" / "estimates.parquet").equals(estimates)


@pytest.mark.parametrize("mode", ["composite", "sampled"])
def test_every_format_gives_the_same_counts(mode, run_json, tmp_path):
    table, collection = census(600), definition(tmp_path / "c.toml", mode, "oue")
    counts = []
    for suffix in ("parquet", "csv", "avro"):
        records = write(tmp_path / f"r.{suffix}", table)
        given = ("--collection", collection, "--input", records, "--seed", 2)
        run_json("collect", *given, "--output", tmp_path / suffix)
        counts.append(pq.read_table(tmp_path / suffix / "counts.parquet"))
    assert counts[1].equals(counts[0])
    assert counts[2].equals(counts[0])


def test_combinations_may_be_sensitive(run_json, tmp_path):
    more = '[uldp]\nsensitive = ["sex=f,age=10"]\n'
    collection = definition(tmp_path / "c.toml", "composite", "urr", more=more)
    records = write(tmp_path / "r.parquet", census(500))
    manifest = run_json("collect", "--collection", collection, "--input", records, "--output", tmp_path / "out")
    assert manifest["mechanism"]["keys"] == 6


@pytest.mark.parametrize(
    ("fields", "text"),
    [
        ({"mechanism": "pckv-ue", "more": "padding = 1"}, "asks about attributes in no mode"),
        ({"table": 'mode = "all"\ncolumns = ["sex"]\nvalues = [["f", "m"]]'}, "'attributes.mode' is 'all'"),
        ({"table": 'mode = "split"\ncolumns = ["sex"]\nvalues = [["f"], ["m"]]'}, "a list of 1 lists"),
        ({"table": 'mode = "split"\ncolumns = ["sex"]\nvalues = [["f", "f"]]'}, "more than once"),
        ({"table": 'mode = "split"\ncolumns = ["sex"]\nvalues = [[]]'}, "at least one"),
        ({"table": 'mode = "split"\ncolumns = ["race"]\nvalues = [["a", "b"]]'}, "has no column 'race'"),
        ({"table": 'mode = "split"\ncolumns = ["unused"]\nvalues = [["a", "b"]]'}, "the type double"),
        ({"mechanism": "urr", "more": '[uldp]\nsensitive = ["sex=f"]\n'}, "knows no mode 'split'"),
        ({"more": "[keys]\ncount = 3\n"}, "both given"),
    ],
)
def test_wrong_definitions_and_columns_are_refused(fields, text, run, tmp_path):
    records = write(tmp_path / "r.parquet", census(10))
    collection = definition(tmp_path / "c.toml", "split", **fields)
    code, _, err = run("collect", "--collection", collection, "--input", records, "--output", tmp_path / "out")
    assert code == 2
    assert text in err
