"""The main job on real ratings that may lie beside the checkout: 23,486 people, 1,206 keys, ratings 1 to 5.

The interval checks use 6.5 standard errors: by the normal tail 8e-11 a figure, so with the union bound below
1e-7 for all keys that are looked at, and a figure that is wrong by 30 % of the largest frequency fails.
"""

import math

import numpy as np
import pyarrow as pa
import pyarrow.csv as pacsv
import pyarrow.parquet as pq
import pytest

SIGMAS = 6.5
DEFINITION = """
name = "clothing-ratings"
mechanism = "{mechanism}"
epsilon = 4
padding = 1
[keys]
range = [0, 1205]
[values]
range = [1.0, 5.0]
"""


@pytest.fixture
def ratings(shared):
    path = shared / "data" / "ecommerce_clothing_kv.csv.gz"
    table = pacsv.read_csv(path)
    return path, table["clothing_id"].to_numpy(), table["rating"].to_numpy()


@pytest.mark.parametrize("mechanism", ["pckv-ue", "pckv-grr"])
def test_ratings_as_they_are(mechanism, ratings, run_json, tmp_path):
    path, keys, values = ratings
    definition = tmp_path / "c.toml"
    definition.write_text(DEFINITION.format(mechanism=mechanism))
    manifest = run_json(
        "collect", "--collection", definition, "--input", path, "--output", tmp_path / "o",
        "--user-column", "row_id", "--key-column", "clothing_id", "--value-column", "rating", "--workers", 2,
    )  # fmt: skip
    assert manifest["records"]["rows_read"] == manifest["reports"]["counted"] == len(keys) == 23_486
    estimates = pq.read_table(tmp_path / "o" / "estimates.parquet")
    assert estimates["key"].to_pylist() == [str(k) for k in range(1206)]
    true = np.bincount(keys, minlength=1206) / len(keys)
    raw, se = estimates["frequency_raw"].to_numpy(), estimates["frequency_se"].to_numpy()
    assert np.abs((raw - true) / se).max() < SIGMAS
    top = int(np.argmax(true))
    if mechanism == "pckv-ue":  # PCKV-GRR tells little of means with 1,206 keys and so few people
        row = estimates.slice(top, 1).to_pylist()[0]
        mean = values[keys == top].mean()
        assert abs(row["mean_raw"] - mean) < SIGMAS * row["mean_se"]
        assert 1 <= row["mean_low"] < row["mean_high"] <= 5


def test_every_format_and_layout_of_the_same_people_gives_the_same_counts(ratings, run_json, tmp_path):
    path, keys, values = ratings
    definition = tmp_path / "c.toml"
    definition.write_text(DEFINITION.format(mechanism="pckv-ue"))
    users = [str(i) for i in range(len(keys))]
    texts, floats = [str(k) for k in keys], values.astype(float)
    pq.write_table(pa.table({"user_id": users, "key": texts, "value": floats}), tmp_path / "pairs.parquet")
    items = [[{"key": k, "value": v}] for k, v in zip(texts, floats, strict=True)]
    pq.write_table(pa.table({"user_id": users, "items": items}), tmp_path / "nested.parquet")
    given = ("collect", "--collection", definition, "--seed", 1)
    run_json(
        *given, "--input", path, "--output", tmp_path / "csv",
        "--user-column", "row_id", "--key-column", "clothing_id", "--value-column", "rating",
    )  # fmt: skip
    for name in ("pairs", "nested"):
        run_json(*given, "--input", tmp_path / f"{name}.parquet", "--output", tmp_path / name)
    first, *others = (pq.read_table(tmp_path / name / "counts.parquet") for name in ("csv", "pairs", "nested"))
    assert all(other.equals(first) for other in others)


def test_evaluate_agrees_with_the_true_figures(ratings, run_json, tmp_path):
    path, keys, values = ratings
    definition = tmp_path / "c.toml"
    definition.write_text(DEFINITION.format(mechanism="pckv-ue"))
    columns = ("--user-column", "row_id", "--key-column", "clothing_id", "--value-column", "rating")
    run_json("collect", "--collection", definition, "--input", path, "--output", tmp_path / "o", *columns)
    judged = run_json("evaluate", "--estimates", tmp_path / "o", "--records", path, "--top", 20, *columns)
    assert len(judged["keys"]) == 20
    for row in judged["keys"]:
        held = keys == int(row["key"])
        assert math.isclose(row["true_frequency"], held.mean(), rel_tol=1e-12)
        assert math.isclose(row["true_mean"], values[held].mean(), rel_tol=1e-9)
