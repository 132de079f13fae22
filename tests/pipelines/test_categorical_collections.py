"""Collections without values, and collections of means alone, from end to end in every format."""

import json

import fastavro
import numpy as np
import pyarrow as pa
import pyarrow.csv
import pyarrow.parquet as pq
import pytest
from ldp_beam.mechanisms import MECHANISMS

SYMBOLS = ("grr", "sue", "oue", "olh", "subset-selection", "shist", "hadamard")
SETS = ("psfo-grr", "psfo-oue")
KEYS = ("apple", "banana", "cherry", "damson")


def definition(path, mechanism, *, epsilon="4", keys=KEYS, more="", values=""):
    padding = "padding = 2\n" if mechanism in SETS else ""
    text = f'name = "fruit"\nmechanism = "{mechanism}"\nepsilon = {epsilon}\n{padding}{more}\n'
    path.write_text(f"{text}[keys]\nlist = {json.dumps(list(keys))}\n{values}", encoding="utf-8")
    return path


def baskets(n, *, sets=False):
    """[(user, [item, …])]: one item each, or for sets none to two."""
    chosen = np.random.default_rng(5).choice(len(KEYS), n, p=(0.4, 0.3, 0.2, 0.1))
    held = []
    for i, k in enumerate(chosen):
        items = [KEYS[k]]
        if sets:
            items = [] if i % 5 == 0 else [*items, KEYS[(k + 1) % 4]] if i % 2 else items
        held.append((f"user-{i}", items))
    return held


def write(path, held, layout, *, values=False):
    """Write records without values (or with a column of values that nobody asked for)."""
    if layout == "nested":
        item = pa.struct([("key", pa.string()), *([("value", pa.float64())] if values else [])])
        items = [[{"key": k, **({"value": 1.0} if values else {})} for k in keys] for _, keys in held]
        table = pa.table({"user_id": [u for u, _ in held], "items": pa.array(items, pa.list_(item))})
    else:
        rows = [(u, k) for u, keys in held for k in (keys or [None])]
        columns = {"user_id": [u for u, _ in rows], "key": pa.array([k for _, k in rows], pa.string())}
        table = pa.table(columns | ({"value": [1.0] * len(rows)} if values else {}))
    if path.suffix == ".parquet":
        pq.write_table(table, path)
    elif path.suffix == ".csv":
        pyarrow.csv.write_csv(table, path)
    else:
        _write_avro(path, table, layout)
    return path


def _write_avro(path, table, layout):
    item = {"type": "record", "name": "item", "fields": [{"name": "key", "type": "string"}]}
    kind = {"type": "array", "items": item} if layout == "nested" else ["null", "string"]
    name = "items" if layout == "nested" else "key"
    fields = [{"name": "user_id", "type": "string"}, {"name": name, "type": kind}]
    with path.open("wb") as file:
        fastavro.writer(file, {"type": "record", "name": "row", "fields": fields}, table.to_pylist())


def estimates(folder):
    return pq.read_table(folder / "estimates.parquet")


@pytest.mark.parametrize("mechanism", ["grr", "shist", "subset-selection", "psfo-oue"])
def test_both_halves_give_the_counts_of_collect(mechanism, run, run_json, tmp_path):
    collection = definition(tmp_path / "c.toml", mechanism)
    held = baskets(3000, sets=mechanism in SETS)
    records = write(tmp_path / "r.parquet", held, "nested")
    secret = tmp_path / "secret.hex"
    assert run("secret", "new", secret)[0] == 0
    given = ("--collection", collection, "--input", records, "--secret-file", secret, "--period", "p1")
    manifest = run_json("collect", *given, "--output", tmp_path / "whole")
    assert manifest["reports"] == {"counted": 3000, "malformed": 0}
    whole = estimates(tmp_path / "whole")
    assert whole["key"].to_pylist() == list(KEYS)
    assert "frequency" in whole.column_names
    assert "mean" not in whole.column_names
    for kind in ("parquet", "avro") if mechanism == "subset-selection" else ("parquet",):
        folder = tmp_path / kind
        run_json("perturb", *given, "--output", folder / "reports", "--format", kind)
        inputs = ("--input", folder / "reports" / f"*.{kind}")
        run_json("aggregate", "--collection", collection, *inputs, "--output", folder / "out")
        assert estimates(folder / "out").equals(whole)
    if mechanism == "shist":  # whose counts have cells of their own
        again = ("--input", tmp_path / "whole" / "counts.parquet")
        run_json("aggregate", "--collection", collection, *again, "--output", tmp_path / "counts")
        assert estimates(tmp_path / "counts").equals(whole)


@pytest.mark.parametrize("mechanism", [*SYMBOLS, *SETS])
def test_evaluate_finds_the_errors_as_large_as_stated(mechanism, run, run_json, tmp_path):
    """Four keys: all within 7 standard errors of the truth (9 mechanisms: false alarm below 1e-10)."""
    collection = definition(tmp_path / "c.toml", mechanism)
    held = baskets(5000, sets=mechanism in SETS)
    records = write(tmp_path / "r.parquet", held, "pairs", values=True)
    run_json("collect", "--collection", collection, "--input", records, "--output", tmp_path / "out")
    found = run_json("evaluate", "--estimates", tmp_path / "out", "--records", records)
    rows = {row["key"]: row for row in estimates(tmp_path / "out").to_pylist()}
    assert found["figures"]["frequency_total_variation"] == pytest.approx(found["figures"]["frequency_l1"] / 2)
    assert found["figures"]["frequency_l2_squared"] == pytest.approx(4 * found["figures"]["frequency_mse"])
    for row in found["keys"]:
        share = np.mean([row["key"] in items for _, items in held])
        assert row["true_frequency"] == pytest.approx(share)
        assert abs(rows[row["key"]]["frequency_raw"] - share) < 7 * rows[row["key"]]["frequency_se"]
        assert "true_mean" not in row
    if mechanism == "grr":
        code, _, err = run("evaluate", "--estimates", tmp_path / "out", "--records", records)
        assert code == 0
        assert "frequency" in err


@pytest.mark.parametrize(
    ("layout", "suffix", "values"),
    [
        ("nested", "parquet", True),
        ("nested", "avro", False),
        ("pairs", "parquet", False),
        ("pairs", "avro", False),
        ("pairs", "csv", False),
        ("pairs", "csv", True),
    ],
)
def test_every_format_gives_the_same_counts(layout, suffix, values, run_json, tmp_path):
    held = baskets(400, sets=True)
    collection = definition(tmp_path / "c.toml", "psfo-grr")
    first = write(tmp_path / "first.parquet", held, "nested")
    other = write(tmp_path / f"other.{suffix}", held, layout, values=values)
    for name, path in (("first", first), ("other", other)):
        given = ("--collection", collection, "--input", path, "--seed", 3)
        run_json("collect", *given, "--output", tmp_path / name)
    assert pq.read_table(tmp_path / "first/counts.parquet").equals(pq.read_table(tmp_path / "other/counts.parquet"))


def test_people_with_no_or_several_items_send_one_report_each(run_json, tmp_path):
    collection = definition(tmp_path / "c.toml", "oue", epsilon="20")
    held = [(f"none-{i}", []) for i in range(4000)] + [(f"two-{i}", ["apple", "cherry"]) for i in range(4000)]
    records = write(tmp_path / "r.parquet", held, "nested")
    manifest = run_json("collect", "--collection", collection, "--input", records, "--output", tmp_path / "out")
    assert manifest["reports"]["counted"] == 8000
    found = estimates(tmp_path / "out")["frequency"].to_numpy()
    # half of all have no item and name any of the four; the others name one of their two
    assert np.abs(found - [0.375, 0.125, 0.375, 0.125]).max() < 7 * np.sqrt(0.25 / 8000 * 4)
    assert found.sum() == pytest.approx(1, abs=0.15)


@pytest.mark.parametrize("estimator", ["thresholded", "em"])
def test_estimators_are_chosen_in_the_definition(estimator, run_json, tmp_path):
    records = write(tmp_path / "r.parquet", baskets(2000), "nested")
    plain = definition(tmp_path / "plain.toml", "grr")
    other = definition(tmp_path / "other.toml", "grr", more=f'estimator = "{estimator}"')
    results = {}
    for name, collection in (("plain", plain), ("other", other)):
        given = ("--collection", collection, "--input", records, "--seed", 8)
        results[name] = run_json("collect", *given, "--output", tmp_path / name)
    # the estimator is the server's choice: reports of both are alike
    assert results["plain"]["fingerprint"] == results["other"]["fingerprint"]
    tables = {name: estimates(tmp_path / name) for name in results}
    assert tables["plain"]["frequency_raw"].equals(tables["other"]["frequency_raw"])
    if estimator == "em":
        assert sum(tables["other"]["frequency"].to_pylist()) == pytest.approx(1)


def test_wrong_definitions_are_refused(run, tmp_path):
    records = write(tmp_path / "r.parquet", baskets(5), "nested")
    cases = [
        (definition(tmp_path / "a.toml", "grr", values="[values]\nrange = [0, 1]\n"), "'values' is unknown"),
        (definition(tmp_path / "b.toml", "rr"), "keys of rr is 4"),
        (definition(tmp_path / "c.toml", "grr", more='estimator = "composite-em"'), "'estimator' is 'composite-em'"),
        (definition(tmp_path / "d.toml", "oue", more='estimator = "em"'), "'estimator' is 'em'"),
        (definition(tmp_path / "e.toml", "grr", more="padding = 3"), "'padding' is unknown"),
        (definition(tmp_path / "f.toml", "olh", keys=["only"]), "keys of olh is 1"),
    ]
    for collection, text in cases:
        code, _, err = run("collect", "--collection", collection, "--input", records, "--output", tmp_path / "out")
        assert code == 2
        assert text in err
    short = tmp_path / "g.toml"
    short.write_text('name = "x"\nmechanism = "psfo-oue"\nepsilon = 1\n[keys]\ncount = 3\n', encoding="utf-8")
    code, _, err = run("collect", "--collection", short, "--input", records, "--output", tmp_path / "out")
    assert code == 2
    assert "'padding' is missing" in err


def test_two_answers_in_people_s_own_words(run_json, tmp_path):
    collection = definition(tmp_path / "c.toml", "rr", keys=["yes", "no"])
    held = [(f"u{i}", ["yes" if i % 4 else "no"]) for i in range(3000)]
    records = write(tmp_path / "r.csv", held, "pairs")
    run_json("collect", "--collection", collection, "--input", records, "--output", tmp_path / "out")
    rows = estimates(tmp_path / "out").to_pylist()
    assert abs(rows[0]["frequency"] - 0.75) < 7 * rows[0]["frequency_se"]
    assert rows[0]["frequency"] + rows[1]["frequency"] == pytest.approx(1)


def numbers(path, n):
    """Three numbers from everybody, of whom one in ten lacks the last."""
    rows = []
    for i in range(n):
        rows += [(f"u{i}", "height", 170 + i % 21 - 10), (f"u{i}", "weight", 50 + i % 41)]
        rows += [(f"u{i}", "age", 20 + i % 61)] if i % 10 else []
    table = pa.table({"user_id": [r[0] for r in rows], "key": [r[1] for r in rows], "value": [r[2] for r in rows]})
    pq.write_table(table, path)
    return path


@pytest.mark.parametrize("mechanism", ["harmony", "meanest"])
def test_means_alone_leave_the_frequencies_out(mechanism, run, run_json, tmp_path):
    """Three means within 7 standard errors; the one with missing values is drawn to the middle of the range."""
    keys, values = ["height", "weight", "age"], "[values]\nrange = [0, 200]\n"
    collection = definition(tmp_path / "c.toml", mechanism, keys=keys, values=values)
    records = numbers(tmp_path / "r.parquet", 6000)
    manifest = run_json("collect", "--collection", collection, "--input", records, "--output", tmp_path / "out")
    assert manifest["records"]["missing_values"] == 600
    table = estimates(tmp_path / "out")
    assert not [name for name in table.column_names if name.startswith("frequency")]
    rows = {row["key"]: row for row in table.to_pylist()}
    for key, true in (("height", 170), ("weight", 70), ("age", 0.9 * 50 + 0.1 * 100)):
        assert abs(rows[key]["mean_raw"] - true) < 7 * rows[key]["mean_se"] + 0.5
    found = run_json("evaluate", "--estimates", tmp_path / "out", "--records", records)
    assert "mean_mse" in found["figures"]
    assert "frequency_mse" not in found["figures"]
    for verb in (
        ("evaluate", "--estimates", tmp_path / "out", "--records", records),
        ("collect", "--collection", collection, "--input", records, "--output", tmp_path / "again"),
    ):
        code, _, err = run(*verb)
        assert code == 0
        assert "height" in err
    run_json("perturb", "--collection", collection, "--input", records, "--seed", 1, "--output", tmp_path / "reports")
    inputs = ("--input", tmp_path / "reports" / "*.parquet")
    run_json("aggregate", "--collection", collection, *inputs, "--output", tmp_path / "halves", "--format", "csv")
    header = (tmp_path / "halves" / "estimates.csv").read_text(encoding="utf-8").splitlines()[0]
    assert "mean" in header
    assert "frequency" not in header


@pytest.mark.parametrize(
    ("mechanism", "suffix"), [("grr", "parquet"), ("oue", "csv"), ("psfo-oue", "parquet"), ("harmony", "csv")]
)
def test_a_simulation_fits_its_collection(mechanism, suffix, run_json, tmp_path):
    records, collection, truth = (tmp_path / name for name in (f"r.{suffix}", "c.toml", "truth.csv"))
    run_json(
        *("simulate", "--population", "uniform", "--users", 500, "--keys", 5, "--layout", "pairs"),
        *("--output", records, "--collection-to", collection, "--mechanism", mechanism, "--truth", truth),
    )
    run_json("collect", "--collection", collection, "--input", records, "--output", tmp_path / "out")
    found = run_json("evaluate", "--estimates", tmp_path / "out", "--truth", truth)
    assert ("frequency_mse" in found["figures"]) == MECHANISMS[mechanism].mechanism.has_frequency
    assert ("mean_mse" in found["figures"]) == MECHANISMS[mechanism].mechanism.has_values


def test_csv_and_json_results_without_values(run_json, tmp_path):
    collection = definition(tmp_path / "c.toml", "grr")
    records = write(tmp_path / "r.parquet", baskets(300), "nested")
    for kind in ("csv", "avro"):
        out = tmp_path / kind
        given = ("--collection", collection, "--input", records, "--output", out, "--format", kind)
        run_json("collect", *given)
        found = run_json("evaluate", "--estimates", out, "--records", records)
        assert found["figures"]["keys"] == 4


def test_percentiles_stand_beside_each_key(run, run_json, tmp_path):
    more = "bins = 10\npadding = 3\npercentiles = [50, 97.5]"
    values = "[values]\nrange = [0, 200]\n"
    collection = definition(
        tmp_path / "c.toml", "percentiles", epsilon="8", keys=["height", "weight", "age"], more=more, values=values
    )
    records = numbers(tmp_path / "r.parquet", 6000)
    given = ("--collection", collection, "--input", records)
    run_json("collect", *given, "--output", tmp_path / "out", "--seed", 4)
    rows = {row["key"]: row for row in estimates(tmp_path / "out").to_pylist()}
    for key, median in (("height", 170), ("weight", 70), ("age", 50)):
        assert rows[key]["p50_low"] <= rows[key]["p50"] <= rows[key]["p50_high"]
        assert rows[key]["p50_low"] - 20 <= median <= rows[key]["p50_high"] + 20
    assert rows["height"]["minimum"] == 160
    assert rows["height"]["maximum"] == 200  # bins of 20: 180 lies in the last
    assert rows["weight"]["p97.5"] <= 100
    assert {"p50", "p97.5", "p97.5_low", "maximum"} <= rows["age"].keys()
    run_json("perturb", *given, "--output", tmp_path / "reports", "--seed", 4)
    inputs = ("--input", tmp_path / "reports" / "*.parquet")
    run_json("aggregate", "--collection", collection, *inputs, "--output", tmp_path / "halves")
    assert estimates(tmp_path / "halves").equals(estimates(tmp_path / "out"))
    found = run_json("evaluate", "--estimates", tmp_path / "out", "--records", records)
    assert found["figures"]["mean_mse"] < 100
    wrong = definition(tmp_path / "w.toml", "percentiles", more="bins = 1\npadding = 3", values=values)
    code, _, err = run("collect", "--collection", wrong, "--input", records, "--output", tmp_path / "no")
    assert code == 2
    assert "'bins' is 1" in err


def test_several_reports_of_each_user(run, run_json, tmp_path):
    """Four shares within 7 standard errors."""
    collection = definition(tmp_path / "c.toml", "psfo-grr", epsilon="12", more="reports = 3")
    held = baskets(3000, sets=True)
    records = write(tmp_path / "r.parquet", held, "nested")
    given = ("--collection", collection, "--input", records, "--seed", 6)
    manifest = run_json("collect", *given, "--output", tmp_path / "out")
    assert manifest["reports"]["counted"] == 3000
    assert manifest["epsilon"]["spent_per_user"] == "12"
    assert 12 - 1e-8 < manifest["epsilon"]["exact"] <= 12
    for row in estimates(tmp_path / "out").to_pylist():
        share = np.mean([row["key"] in items for _, items in held])
        assert row["n"] == 3000
        assert abs(row["frequency_raw"] - share) < 7 * row["frequency_se"]
    run_json("perturb", *given, "--output", tmp_path / "reports", "--format", "avro")
    inputs = ("--input", tmp_path / "reports" / "*.avro")
    run_json("aggregate", "--collection", collection, *inputs, "--output", tmp_path / "halves")
    assert estimates(tmp_path / "halves").equals(estimates(tmp_path / "out"))
    found = run_json("evaluate", "--estimates", tmp_path / "out", "--records", records)
    assert found["figures"]["frequency_coverage"] is not None
    single = definition(tmp_path / "s.toml", "psfo-grr", epsilon="12")
    other = run_json("collect", "--collection", single, "--input", records, "--output", tmp_path / "single")
    assert other["fingerprint"] != manifest["fingerprint"]
    wrong = definition(tmp_path / "w.toml", "grr", more="reports = 0")
    code, _, err = run("collect", "--collection", wrong, "--input", records, "--output", tmp_path / "no")
    assert code == 2
    assert "'reports' is 0" in err
