"""The main job from end to end, on the local runner: conservation, determinism, halves that agree."""

import json

import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest


def counts_of(folder):
    return pq.read_table(folder / "counts.parquet")


def test_collect_leaves_estimates_counts_and_manifest(define, nested, people, run_json, tmp_path):
    out = tmp_path / "out"
    manifest = run_json("collect", "--collection", define(), "--input", nested(people(300)), "--output", out)
    assert sorted(p.name for p in out.iterdir()) == ["counts.parquet", "estimates.parquet", "manifest.json"]
    assert manifest == json.loads((out / "manifest.json").read_text())
    assert manifest["reports"] == {"counted": 300, "malformed": 0}
    assert manifest["records"]["rows_read"] == manifest["records"]["users"] == 300
    assert manifest["randomness"]["private"] is True
    assert manifest["randomness"]["source"] == "fresh secret"
    assert manifest["epsilon"]["declared"] == manifest["epsilon"]["spent_per_user"] == "2"
    assert manifest["epsilon"]["exact"] <= 2
    estimates = pq.read_table(out / "estimates.parquet")
    assert estimates["key"].to_pylist() == ["apple", "banana", "cherry"]
    assert estimates.schema.metadata[b"ldp_beam.fingerprint"].decode() == manifest["fingerprint"]


@pytest.mark.parametrize("mechanism", ["pckv-ue", "pckv-grr"])
@pytest.mark.parametrize("report_format", ["parquet", "avro"])
def test_perturb_then_aggregate_gives_the_counts_of_collect(
    mechanism, report_format, define, nested, people, run, run_json, tmp_path
):
    collection, records = define(mechanism=mechanism), nested(people(500))
    secret = tmp_path / "secret.hex"
    assert run("secret", "new", secret)[0] == 0
    given = ("--collection", collection, "--input", records, "--secret-file", secret, "--period", "p1")
    run_json("collect", *given, "--output", tmp_path / "whole")
    run_json("perturb", *given, "--output", tmp_path / "reports", "--format", report_format)
    reports = tmp_path / "reports" / f"*.{report_format}"
    manifest = run_json("aggregate", "--collection", collection, "--input", reports, "--output", tmp_path / "halves")
    assert manifest["epsilon"]["spent_per_user"] == "0"
    assert counts_of(tmp_path / "halves").equals(counts_of(tmp_path / "whole"))
    whole, halves = (pq.read_table(tmp_path / d / "estimates.parquet") for d in ("whole", "halves"))
    assert halves.equals(whole)


@pytest.mark.parametrize("mechanism", ["pckv-ue", "pckv-grr"])
def test_counts_do_not_depend_on_workers_row_groups_or_files(mechanism, define, nested, people, run_json, tmp_path):
    everybody = people(1000)
    collection = define(mechanism=mechanism)
    one = nested(everybody, "one.parquet")
    groups = nested(everybody, "groups.parquet", row_group_size=100)
    nested(everybody[:333][::-1], "many/a.parquet")
    nested(everybody[333:], "many/b.parquet", row_group_size=50)
    runs = {
        "one": ("--input", one),
        "threads": ("--input", groups, "--workers", 3),
        "processes": ("--input", groups, "--workers", 2, "--direct_running_mode=multi_processing"),
        "files": ("--input", tmp_path / "many" / "*.parquet", "--workers", 2),
        "folder": ("--input", tmp_path / "many"),
        "several": ("--input", tmp_path / "many" / "b.parquet", tmp_path / "many" / "a.parquet"),
    }
    for name, given in runs.items():
        run_json("collect", "--collection", collection, "--seed", 5, *given, "--output", tmp_path / "out" / name)
    first = counts_of(tmp_path / "out" / "one")
    for name in runs:
        assert counts_of(tmp_path / "out" / name).equals(first), name


def test_two_runs_without_a_seed_differ(define, nested, people, run_json, tmp_path):
    collection, records = define(), nested(people(1000))
    for name in ("a", "b"):
        run_json("collect", "--collection", collection, "--input", records, "--output", tmp_path / name)
    assert not counts_of(tmp_path / "a").equals(counts_of(tmp_path / "b"))


def test_periods_are_independent_and_repeat_themselves(define, nested, people, run, run_json, tmp_path):
    collection, records, secret = define(), nested(people(1000)), tmp_path / "s"
    run("secret", "new", secret)
    for name, period in (("a", "p1"), ("b", "p1"), ("c", "p2")):
        run_json(
            "collect", "--collection", collection, "--input", records, "--output", tmp_path / name,
            "--secret-file", secret, "--period", period,
        )  # fmt: skip
    assert counts_of(tmp_path / "a").equals(counts_of(tmp_path / "b"))
    assert not counts_of(tmp_path / "a").equals(counts_of(tmp_path / "c"))


def test_identical_people_send_different_reports_from_every_worker(define, nested, run_json, tmp_path):
    """B01: a generator made once for several workers would repeat its draws; one worker hides it."""
    everybody = [(f"u{i}", [("k", 1.0)]) for i in range(400)]
    records = nested(everybody, row_group_size=25)
    keys = "list = [" + ", ".join(f'"{k}"' for k in ["k", *(f"x{i}" for i in range(63))]) + "]"
    collection = define(keys=keys, epsilon="1", padding=1)
    for mode in ("in_memory", "multi_threading", "multi_processing"):
        out = tmp_path / mode
        run_json(
            "perturb", "--collection", collection, "--input", records, "--output", out,
            "--workers", 4, f"--direct_running_mode={mode}",
        )  # fmt: skip
        reports = pq.read_table(list(out.glob("*.parquet")))
        assert reports.num_rows == 400
        distinct = {(row["plus"], row["minus"]) for row in reports.to_pylist()}
        assert len(distinct) == 400  # 64 cells of which each is set with probability 0.35: no two agree


def test_kept_reports_name_nobody_and_say_nothing_by_their_order(define, nested, people, run_json, tmp_path):
    records = nested(people(200))
    run_json(
        "collect", "--collection", define(mechanism="pckv-grr"), "--input", records,
        "--output", tmp_path / "o", "--keep-reports", tmp_path / "r",
    )  # fmt: skip
    (file,) = (tmp_path / "r").iterdir()
    table = pq.read_table(file)
    assert table.column_names == ["key", "sign"]
    order = pc.sort_indices(table, [("key", "ascending"), ("sign", "ascending")])
    assert table.equals(table.take(order))
    assert b"user-1" not in file.read_bytes()


@pytest.mark.parametrize("format_", ["parquet", "avro", "csv", "json"])
def test_every_format_holds_the_same_estimates(format_, define, nested, people, run_json, tmp_path):
    from ldp_beam.pipelines.evaluate import read_estimates

    given = ("--collection", define(), "--input", nested(people(300)), "--seed", 3)
    run_json("collect", *given, "--output", tmp_path / "p")
    run_json("collect", *given, "--output", tmp_path / format_, "--format", format_)
    expected = pq.read_table(tmp_path / "p" / "estimates.parquet").to_pylist()
    found = read_estimates(tmp_path / format_).to_pylist()
    assert [row["key"] for row in found] == [row["key"] for row in expected]
    for a, b in zip(found, expected, strict=True):
        assert a.keys() == b.keys()
        assert {k: v for k, v in a.items() if k != "flags"} == {k: v for k, v in b.items() if k != "flags"}
        assert [f for f in a["flags"] if f] == b["flags"]


def test_nobody_at_all_gives_every_declared_key(define, nested, run_json, tmp_path):
    """B15: an input of no users is not a missing input."""
    out = tmp_path / "o"
    manifest = run_json("collect", "--collection", define(), "--input", nested([]), "--output", out)
    rows = pq.read_table(out / "estimates.parquet").to_pylist()
    assert [row["key"] for row in rows] == ["apple", "banana", "cherry"]
    assert all(row["n"] == 0 and row["mean"] is None and row["flags"] == ["no-reports"] for row in rows)
    assert manifest["reports"]["counted"] == 0


def test_stored_counts_add_up(define, nested, people, run_json, tmp_path):
    collection, everybody = define(), people(600)
    parts = {"a": everybody[:250], "b": everybody[250:]}
    given = ("--collection", collection, "--seed", 1)
    run_json("collect", *given, "--input", nested(everybody, "all.parquet"), "--output", tmp_path / "all")
    for name, part in parts.items():
        run_json("collect", *given, "--input", nested(part, f"{name}.parquet"), "--output", tmp_path / name)
    manifest = run_json(
        "aggregate", "--collection", collection, "--output", tmp_path / "sum",
        "--input", tmp_path / "a" / "counts.parquet", tmp_path / "b" / "counts.parquet",
    )  # fmt: skip
    assert manifest["reports"]["counted"] == 600
    assert not manifest["randomness"]["private"]
    assert counts_of(tmp_path / "sum").equals(counts_of(tmp_path / "all"))


def test_reports_of_another_definition_are_refused(define, nested, people, run, run_json, tmp_path):
    run_json("perturb", "--collection", define(), "--input", nested(people(50)), "--output", tmp_path / "r")
    other = define("other.toml", epsilon="2.5")
    code, _, err = run(
        "aggregate",
        "--collection",
        other,
        "--input",
        tmp_path / "r" / "*.parquet",
        "--output",
        tmp_path / "o",
    )
    assert code == 2
    assert "another collection definition" in err
    assert not (tmp_path / "o").exists()


def test_estimator_is_not_part_of_the_fingerprint(define, nested, people, run_json, tmp_path):
    run_json("perturb", "--collection", define(), "--input", nested(people(50)), "--output", tmp_path / "r")
    baseline = define("baseline.toml", more='estimator = "baseline"')
    run_json(
        "aggregate",
        "--collection",
        baseline,
        "--input",
        tmp_path / "r" / "*.parquet",
        "--output",
        tmp_path / "o",
    )


def test_a_million_keys_by_blocks(define, nested, run_json, tmp_path):
    """Counts of large domains cross the shuffle as key blocks; every key has its estimate."""
    everybody = [(f"u{i}", [(str(i * 7919 % 1_000_000), 0.5)]) for i in range(2000)]
    collection = define(mechanism="pckv-grr", keys="count = 1_000_000", padding=1, epsilon="4")
    manifest = run_json("collect", "--collection", collection, "--input", nested(everybody), "--output", tmp_path / "o")
    assert manifest["reports"]["counted"] == 2000
    estimates = pq.read_table(tmp_path / "o" / "estimates.parquet")
    assert estimates.num_rows == 1_000_000
    assert estimates["key"][999_999].as_py() == "999999"
    assert pc.sum(pc.add(estimates["n1"], estimates["n2"])).as_py() <= 2000
