"""What has gone wrong for others doing this job, tried on the whole command line. Names are those of the cases."""

import gzip
import json
import math

import fastavro
import pyarrow as pa
import pyarrow.csv as pacsv
import pyarrow.parquet as pq
import pytest

VALUES = ["nan", "inf", "-inf", "1.0000001", "-2", None, "0.5", "0.5"]  # of which the last two are valid


def estimates_of(folder):
    return pq.read_table(folder / "estimates.parquet").to_pylist()


def nothing_left(*folders):
    return not any(folder.exists() for folder in folders) and not any(
        ".partial" in path.name for folder in folders for path in folder.parent.iterdir()
    )


def pairs_as(format_, rows, path):
    """Write rows of (user, key, value as text or None) in a format, values typed as its users have them."""
    users, keys, values = ([row[i] for row in rows] for i in range(3))
    if format_ == "csv":
        lines = ["user_id,key,value"] + [",".join("" if cell is None else cell for cell in row) for row in rows]
        path.write_text("\n".join(lines) + "\n", encoding="utf-8")
    elif format_ == "parquet":
        floats = pa.array([None if v is None else float(v) for v in values], pa.float64())
        pq.write_table(pa.table({"user_id": users, "key": keys, "value": floats}), path)
    else:
        schema = {
            "type": "record",
            "name": "Pair",
            "fields": [
                {"name": "user_id", "type": ["null", "string"]},
                {"name": "key", "type": ["null", "string"]},
                {"name": "value", "type": ["null", "double", "string"]},
            ],
        }
        mixed = [v if i == 6 or v is None else float(v) for i, v in enumerate(values)]
        with path.open("wb") as file:
            rows = [
                dict(zip(("user_id", "key", "value"), row, strict=True)) for row in zip(users, keys, mixed, strict=True)
            ]
            fastavro.writer(file, schema, rows)
    return path


# -- parameters -------------------------------------------------------------------------------------------


@pytest.mark.parametrize("epsilon", ["1e-17", "1e-9", "40", "709", "710", "inf", "nan", "0", "-1", "true", '"1"'])
def test_b06_impossible_epsilon_is_refused_before_anything_is_read(epsilon, define, run, tmp_path):
    collection = define(epsilon=epsilon)
    code, _, err = run("collect", "--collection", collection, "--input", "/absent.parquet", "--output", tmp_path / "o")
    assert code == 2
    assert "epsilon" in err
    assert nothing_left(tmp_path / "o")


@pytest.mark.parametrize("mechanism", ["pckv-ue", "pckv-grr"])
@pytest.mark.parametrize("epsilon", ["0.001", "20"])
def test_b06_the_ends_of_the_allowed_range_work(mechanism, epsilon, define, nested, people, run_json, tmp_path):
    collection = define(mechanism=mechanism, epsilon=epsilon)
    manifest = run_json(
        "collect", "--collection", collection, "--input", nested(people(50)), "--output", tmp_path / "o"
    )
    assert manifest["epsilon"]["exact"] <= float(epsilon)


@pytest.mark.parametrize("value", [1.0, -1.0])
@pytest.mark.parametrize("epsilon", ["8", "0.01"])
@pytest.mark.parametrize("mechanism", ["pckv-ue", "pckv-grr"])
def test_b07_one_key_and_one_value_in_a_large_domain(mechanism, epsilon, value, define, nested, run_json, tmp_path):
    everybody = [(f"u{i}", [("7", value)]) for i in range(1000)]
    collection = define(mechanism=mechanism, epsilon=epsilon, keys="count = 20_000", padding=1)
    run_json("collect", "--collection", collection, "--input", nested(everybody), "--output", tmp_path / "o")
    rows = estimates_of(tmp_path / "o")
    assert len(rows) == 20_000
    figures = [v for row in rows for v in row.values() if isinstance(v, float)]
    assert all(math.isfinite(v) for v in figures)
    if epsilon == "8":
        assert rows[7]["frequency"] > 0.5
        assert rows[7]["mean"] * value > 0.5


@pytest.mark.parametrize("mechanism", ["pckv-ue", "pckv-grr"])
@pytest.mark.parametrize("estimator", ["corrected", "baseline"])
def test_b11_few_users_and_little_budget(mechanism, estimator, define, nested, run_json, tmp_path):
    collection = define(
        mechanism=mechanism, epsilon="0.2", keys="count = 50", padding=1, more=f'estimator = "{estimator}"'
    )
    everybody = [(f"u{i}", [(str(i), 0.5)]) for i in range(20)]
    run_json(
        "collect", "--collection", collection, "--input", nested(everybody), "--output", tmp_path / "o", "--seed", 4
    )
    rows = estimates_of(tmp_path / "o")
    assert any(row["frequency_raw"] < 0 for row in rows)
    for row in rows:
        assert all(math.isfinite(v) for v in row.values() if isinstance(v, float))
        assert 0 <= row["frequency_low"] <= row["frequency_high"] <= 1
        assert -1 <= row["mean_low"] <= row["mean_high"] <= 1
        assert "few-holders" in row["flags"]
        if row["frequency_raw"] <= 0:
            assert row["mean_raw"] is None
        if estimator == "corrected":
            assert -1 <= row["mean"] <= 1


@pytest.mark.parametrize("missing", ["name", "mechanism", "epsilon", "padding", "[keys]", "[values]"])
def test_b12_a_missing_privacy_parameter_is_an_error(missing, define, nested, people, run, tmp_path):
    path = define()
    blocks = path.read_text(encoding="utf-8")
    if missing.startswith("["):
        start = blocks.index(missing)
        end = blocks.find("[", start + 1)
        blocks = blocks[:start] + (blocks[blocks.index("\n[", start) :] if end > 0 and missing == "[keys]" else "")
    else:
        blocks = "\n".join(line for line in blocks.splitlines() if not line.startswith(missing))
    path.write_text(blocks, encoding="utf-8")
    code, _, err = run("collect", "--collection", path, "--input", nested(people(20)), "--output", tmp_path / "o")
    assert code == 2
    assert missing.strip("[]") in err
    assert nothing_left(tmp_path / "o")


def test_b12_an_empty_domain_file_is_an_error(define, nested, people, run, tmp_path):
    (tmp_path / "keys.csv").write_text("key\n")
    collection = define(keys='file = "keys.csv"')
    code, _, err = run("collect", "--collection", collection, "--input", nested(people(20)), "--output", tmp_path / "o")
    assert code == 2
    assert "keys.csv" in err


def test_b12_no_run_gives_the_true_figures(define, nested, people, run_json, tmp_path):
    records = nested(people(1000))
    run_json("collect", "--collection", define(epsilon="20"), "--input", records, "--output", tmp_path / "o")
    judged = run_json("evaluate", "--estimates", tmp_path / "o", "--records", records)
    assert any(row["frequency"] != row["true_frequency"] for row in judged["keys"])


# -- keys, values, users ----------------------------------------------------------------------------------


@pytest.mark.parametrize("format_", ["csv", "parquet", "avro"])
def test_b10_invalid_values_are_dropped_and_their_users_still_report(format_, define, run_json, tmp_path):
    rows = [(f"u{i}", "a", value) for i, value in enumerate(VALUES)]
    records = pairs_as(format_, rows, tmp_path / f"records.{format_}")
    collection = define(keys='list = ["a", "b"]')
    manifest = run_json("collect", "--collection", collection, "--input", records, "--output", tmp_path / "o")
    assert manifest["reports"]["counted"] == 8
    assert manifest["records"]["rejected"] == {"not_a_number": 3, "outside_the_range": 2, "null_value": 1}
    assert manifest["records"]["pairs_kept"] == 2
    assert not any(isinstance(v, float) and math.isnan(v) for row in estimates_of(tmp_path / "o") for v in row.values())


@pytest.mark.parametrize("format_", ["csv", "parquet", "avro"])
def test_b10_clip_is_the_other_rule(format_, define, run_json, tmp_path):
    rows = [(f"u{i}", "a", value) for i, value in enumerate(VALUES)]
    records = pairs_as(format_, rows, tmp_path / f"records.{format_}")
    collection = define(keys='list = ["a", "b"]', values='outside = "clip"')
    manifest = run_json("collect", "--collection", collection, "--input", records, "--output", tmp_path / "o")
    assert manifest["records"]["rejected"] == {"not_a_number": 3, "null_value": 1}
    assert manifest["records"]["clipped_values"] == 2


@pytest.mark.parametrize("format_", ["csv", "parquet", "avro"])
def test_b10_strict_mode_names_file_row_and_column(format_, define, run, tmp_path):
    rows = [("u0", "a", "0.5"), ("u1", "a", "0.5"), ("u2", "a", "7")]
    records = pairs_as(format_, rows, tmp_path / f"records.{format_}")
    collection = define(keys='list = ["a", "b"]')
    code, _, err = run(
        "collect", "--collection", collection, "--input", records, "--output", tmp_path / "o", "--strict"
    )
    assert code == 2
    for part in (f"records.{format_}", "row 3", "'value'", "outside the declared range"):
        assert part in err
    assert nothing_left(tmp_path / "o")


def test_rejects_are_kept_only_where_asked_and_a_limit_stops_the_run(define, run, run_json, tmp_path):
    rows = [(f"u{i}", "a", value) for i, value in enumerate(VALUES)]
    given = (
        "collect",
        "--collection",
        define(keys='list = ["a"]'),
        "--input",
        pairs_as("csv", rows, tmp_path / "r.csv"),
    )
    run_json(*given, "--output", tmp_path / "o", "--rejects", tmp_path / "rejects")
    kept = pq.read_table(next((tmp_path / "rejects").iterdir())).to_pylist()
    assert [(row["row"], row["reason"]) for row in kept][:2] == [(1, "not_a_number"), (2, "not_a_number")]
    assert kept[0]["user_id"] == "u0"
    code, _, err = run(*given, "--output", tmp_path / "o2", "--max-rejects", "0.5")
    assert code == 1
    assert "--max-rejects 0.5" in err
    assert nothing_left(tmp_path / "o2")
    run_json(*given, "--output", tmp_path / "o3", "--max-rejects", "0.75")
    assert run(*given, "--output", tmp_path / "o4", "--max-rejects", "2")[0] == 2


def test_b15_every_declared_key_and_no_other(define, nested, run, run_json, tmp_path):
    everybody = [("u1", [("a", 0.5)]), ("u2", [("b", 0.1), ("zebra-crossing", 0.2)])]
    collection = define(keys='list = ["a", "b", "c", "zz"]')
    records = nested(everybody)
    code, out, err = run("collect", "--collection", collection, "--input", records, "--output", tmp_path / "o")
    assert code == 0
    assert [row["key"] for row in estimates_of(tmp_path / "o")] == ["a", "b", "c", "zz"]
    assert "zebra-crossing" not in out + err
    assert not any(b"zebra-crossing" in path.read_bytes() for path in (tmp_path / "o").iterdir())
    manifest = json.loads((tmp_path / "o" / "manifest.json").read_text())
    assert manifest["records"]["outside_the_domain"] == 1
    assert manifest["records"]["rejected"] == {}


@pytest.mark.parametrize(
    ("column", "same"),
    [
        (pa.array([1, 2], pa.int32()), True),
        (pa.array([1, 2], pa.int64()), True),
        (pa.array(["1", "2"]), True),
        (pa.array(["1", "2"], pa.large_string()), True),
        (pa.array(["1", "2"]).dictionary_encode(), True),
        (pa.array([True, False]), False),
        (pa.array([1.0, 2.0]), False),
    ],
)
def test_b16_a_key_is_one_text_or_the_file_is_refused(column, same, define, run, tmp_path):
    records = tmp_path / "typed.parquet"
    pq.write_table(pa.table({"user_id": ["u", "v"], "key": column, "value": [0.1, 0.2]}), records)
    code, _, err = run(
        "collect", "--collection", define(keys='list = ["1", "2"]'), "--input", records, "--output", tmp_path / "o"
    )
    if same:
        assert code == 0
        manifest = json.loads((tmp_path / "o" / "manifest.json").read_text())
        assert manifest["records"]["pairs_kept"] == 2
    else:
        assert code == 2
        assert "typed.parquet" in err
        assert "'key'" in err


def test_b16_composed_and_decomposed_text_is_one_key(define, nested, run_json, tmp_path):
    everybody = [("u1", [("caf\u00e9", 0.5)]), ("u2", [("cafe\u0301", 0.5)])]
    collection = define(keys='list = ["café"]')
    manifest = run_json("collect", "--collection", collection, "--input", nested(everybody), "--output", tmp_path / "o")
    assert manifest["records"]["pairs_kept"] == 2


@pytest.mark.parametrize("format_", ["parquet", "avro", "csv", "json"])
def test_b18_an_undefined_mean_is_written_as_null(format_, define, nested, run_json, tmp_path):
    from ldp_beam.pipelines.evaluate import read_estimates

    run_json(
        "collect", "--collection", define(more='estimator = "baseline"'), "--input", nested([]),
        "--output", tmp_path / "o", "--format", format_,
    )  # fmt: skip
    assert read_estimates(tmp_path / "o")["mean"].to_pylist() == [None, None, None]


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda d: d / "absent*.parquet", "matches no file"),
        (lambda d: ((d / "empty.parquet").write_bytes(b"") and None) or d / "empty.parquet", "0 bytes"),
        (
            lambda d: (d / "done").mkdir(exist_ok=True) or (d / "done" / "_SUCCESS").touch() or d / "done",
            "no data file",
        ),
        (lambda d: (d / "x.xlsx").write_bytes(b"x") and d / "x.xlsx", "extension"),
    ],
)
def test_b20_no_input_is_an_error(make, message, define, nested, people, run, tmp_path):
    good = nested(people(10))
    for inputs in ([make(tmp_path)], [good, make(tmp_path)]):
        code, _, err = run("collect", "--collection", define(), "--input", *inputs, "--output", tmp_path / "o")
        assert code == 2
        assert message in err
        assert nothing_left(tmp_path / "o")


def test_b21_ids_and_keys_of_a_csv_file_are_text(define, run_json, tmp_path):
    keys = ["007", "true", "2024-01-01", "1e3", "NA"]
    rows = [f"{user},{key},0.5" for user in ("001", "01", "1") for key in keys]
    for name, opener in (("r.csv", open), ("r.csv.gz", gzip.open)):
        with opener(tmp_path / name, "wt", encoding="utf-8") as file:
            file.write("user_id,key,value\n" + "\n".join(rows) + "\n")
    collection = define(keys="list = " + json.dumps(keys), padding=5)
    for name in ("r.csv", "r.csv.gz"):
        out = tmp_path / f"o-{name}"
        manifest = run_json("collect", "--collection", collection, "--input", tmp_path / name, "--output", out)
        assert manifest["records"]["users"] == 3
        assert manifest["records"]["pairs_kept"] == 15
        assert [row["key"] for row in estimates_of(out)] == keys


@pytest.mark.parametrize(
    "union", [["null", "double"], ["double", "null"], ["null", "float", "double"], ["null", "int", "double"]]
)
@pytest.mark.parametrize("codec", ["null", "deflate"])
def test_b24_unions_of_simple_types_stay_simple(union, codec, define, nested, run_json, tmp_path):
    everybody = [(f"u{i}", [("apple", [0.5, -0.25, 1.0, 0.0][i % 4])]) for i in range(40)]
    item = {
        "type": "record",
        "name": "I",
        "fields": [{"name": "key", "type": "string"}, {"name": "value", "type": union}],
    }
    schema = {
        "type": "record",
        "name": "R",
        "fields": [{"name": "user_id", "type": "string"}, {"name": "items", "type": {"type": "array", "items": item}}],
    }
    avro = tmp_path / "records.avro"
    with avro.open("wb") as file:
        rows = [{"user_id": u, "items": [{"key": k, "value": v} for k, v in held]} for u, held in everybody]
        fastavro.writer(file, schema, rows, codec=codec)
    given = ("collect", "--collection", define(), "--seed", 1)
    run_json(*given, "--input", avro, "--output", tmp_path / "a")
    run_json(*given, "--input", nested(everybody), "--output", tmp_path / "p")
    assert estimates_of(tmp_path / "a") == estimates_of(tmp_path / "p")


# -- short ones -------------------------------------------------------------------------------------------


def test_a_byte_order_mark_does_not_stick_to_the_first_column(define, run_json, tmp_path):
    (tmp_path / "r.csv").write_bytes("\ufeffuser_id,key,value\nu,apple,0.5\n".encode())
    manifest = run_json("collect", "--collection", define(), "--input", tmp_path / "r.csv", "--output", tmp_path / "o")
    assert manifest["records"]["pairs_kept"] == 1


def test_an_existing_result_is_not_overwritten_unless_asked(define, nested, people, run, run_json, tmp_path):
    given = ("collect", "--collection", define(), "--input", nested(people(30)), "--output", tmp_path / "o")
    run_json(*given)
    before = (tmp_path / "o" / "manifest.json").read_bytes()
    code, _, err = run(*given)
    assert (code, "--overwrite" in err) == (2, True)
    assert (tmp_path / "o" / "manifest.json").read_bytes() == before
    run_json(*given, "--overwrite")


def test_rows_of_one_user_in_nested_input_stop_the_run_or_are_merged(define, nested, people, run, run_json, tmp_path):
    everybody = people(200)
    doubled = nested(everybody + everybody[:50])
    given = ("collect", "--collection", define(), "--input", doubled, "--seed", 1)
    code, _, err = run(*given, "--output", tmp_path / "o")
    assert code == 1
    assert "--merge-users" in err
    assert nothing_left(tmp_path / "o")
    manifest = run_json(*given, "--output", tmp_path / "o", "--merge-users")
    assert manifest["records"]["users"] == 200
    assert manifest["records"]["rows_read"] == 250


def test_the_two_layouts_give_the_same_counts(define, nested, people, run_json, tmp_path):
    everybody = people(500)
    rows = [(u, k, str(v)) for u, held in everybody for k, v in held] + [(u, None, None) for u, h in everybody if not h]
    users, keys, values = zip(*rows[::-1], strict=True)
    floats = pa.array([None if v is None else float(v) for v in values])
    pq.write_table(
        pa.table({"user_id": users, "key": keys, "value": floats}), tmp_path / "pairs.parquet", row_group_size=70
    )
    pacsv.write_csv(pa.table({"user_id": users, "key": keys, "value": floats}), tmp_path / "pairs.csv")
    given = ("collect", "--collection", define(), "--seed", 9)
    run_json(*given, "--input", nested(everybody), "--output", tmp_path / "n")
    for name in ("pairs.parquet", "pairs.csv"):
        run_json(*given, "--input", tmp_path / name, "--output", tmp_path / f"o-{name}", "--workers", 2)
        assert estimates_of(tmp_path / f"o-{name}") == estimates_of(tmp_path / "n")


def test_latest_needs_a_time_and_takes_the_last_pair(define, run, run_json, tmp_path):
    collection = define(values='duplicates = "latest"', epsilon="20", padding=1)
    (tmp_path / "no-time.csv").write_text("user_id,key,value\nu,apple,0.5\n")
    code, _, err = run(
        "collect", "--collection", collection, "--input", tmp_path / "no-time.csv", "--output", tmp_path / "o"
    )
    assert (code, "--time-column" in err) == (2, True)
    rows = [f"u{i},apple,{v},2024-01-0{day}" for i in range(2000) for day, v in ((2, "1"), (1, "-1"))]
    (tmp_path / "r.csv").write_text("user_id,key,value,timestamp\n" + "\n".join(rows) + "\n")
    manifest = run_json(
        "collect", "--collection", collection, "--input", tmp_path / "r.csv", "--output", tmp_path / "o"
    )
    assert manifest["records"]["duplicate_pairs"] == 2000
    # At epsilon = 20 a sign is flipped once in 10^8 reports.
    assert estimates_of(tmp_path / "o")[0]["mean"] > 0.99


def test_a_damaged_file_fails_the_run_and_leaves_nothing(define, nested, people, run, tmp_path):
    records = nested(people(5000), row_group_size=500)
    content = bytearray(records.read_bytes())
    middle = len(content) // 2
    content[middle : middle + 2000] = bytes(2000)
    records.write_bytes(content)
    code, _, err = run("collect", "--collection", define(), "--input", records, "--output", tmp_path / "o")
    assert code == 1
    assert "records.parquet" in err
    assert nothing_left(tmp_path / "o")


def test_later_features_are_refused_by_name(define, nested, people, run, tmp_path):
    given = ("collect", "--collection", define(), "--input", nested(people(10)), "--output", tmp_path / "o")
    for mistake in (["--runner", "DataflowRunner"],):
        code, _, err = run(*given, *mistake)
        assert code == 2
        assert mistake[-1] in err
        assert "not available yet" in err
