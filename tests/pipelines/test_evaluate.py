"""`evaluate`: the same figures from records and from a truth file, as table, JSON and plot."""

import json
import math

import numpy as np
import pytest

DEFINITION = """
name = "judged"
mechanism = "pckv-ue"
epsilon = 4
padding = 1
[keys]
count = 12
[values]
range = [0, 10]
"""


@pytest.fixture(scope="module")
def collected(tmp_path_factory):
    """A collection of simulated records of 12 keys, with their truth."""
    from click.testing import CliRunner
    from ldp_beam.pipelines.cli import cli

    folder = tmp_path_factory.mktemp("judged")
    (folder / "c.toml").write_text(DEFINITION)
    simulate = ["simulate", "--population", "gg", "--users", "4000", "--keys", "12", "--range", "0", "10"]
    simulate += ["--output", str(folder / "r.parquet"), "--truth", str(folder / "t.csv")]
    collect = ["collect", "--collection", str(folder / "c.toml"), "--input", str(folder / "r.parquet"), "--seed", "1"]
    collect += ["--output", str(folder / "o"), "--format", "csv"]
    for arguments in (simulate, collect):
        done = CliRunner().invoke(cli, arguments)
        assert done.exit_code == 0, done.output
    return folder


def judge(run_json, folder, *more):
    return run_json("evaluate", "--estimates", folder / "o", "--truth", folder / "t.csv", *more)


def test_records_and_truth_give_the_same_figures(collected, run_json):
    by_truth = judge(run_json, collected)
    by_records = run_json("evaluate", "--estimates", collected / "o", "--records", collected / "r.parquet")
    assert by_records["figures"] == pytest.approx(by_truth["figures"])
    assert by_records["undefined"] == {}


def test_the_figures_follow_from_the_rows(collected, run_json):
    found = judge(run_json, collected)
    figures, rows = found["figures"], found["keys"]
    f, m, true_f, true_m = (
        np.array([row[n] for row in rows]) for n in ("frequency", "mean", "true_frequency", "true_mean")
    )
    assert figures["frequency_mse"] == pytest.approx(np.mean((f - true_f) ** 2))
    assert figures["mean_log_mse"] == pytest.approx(math.log10(np.mean((m - true_m) ** 2)))
    assert figures["frequency_total_variation"] == pytest.approx(np.abs(f - true_f).sum() / 2)
    assert figures["frequency_relative_error"] == pytest.approx(np.median(np.abs(f - true_f) / true_f))
    # two keys are the tenth part of twelve, rounded up
    assert figures["frequency_relative_error_top"] == pytest.approx(np.mean((np.abs(f - true_f) / true_f)[:2]))
    assert figures["correlation_true"] == pytest.approx(np.corrcoef(true_f, true_m)[0, 1])
    assert figures["correlation_kept"] * figures["correlation_true"] == pytest.approx(np.corrcoef(f, m)[0, 1])
    held = [row["mean_low"] <= row["true_mean"] <= row["mean_high"] for row in rows]
    assert figures["mean_coverage"] == pytest.approx(np.mean(held))
    trusted = [hit for hit, row in zip(held, rows, strict=True) if "few-holders" not in row["flags"]]
    assert figures["mean_coverage_trusted"] == pytest.approx(np.mean(trusted))
    assert all("" not in row["flags"] for row in rows)


def test_the_most_frequent_keys_alone(collected, run_json):
    everything, top = judge(run_json, collected), judge(run_json, collected, "--top", 3)
    assert top["keys"] == everything["keys"][:3]
    estimated = sorted(everything["keys"], key=lambda row: -row["frequency"])[:3]
    found = {row["key"] for row in estimated} & {row["key"] for row in top["keys"]}
    assert top["figures"]["frequency_precision"] == len(found) / 3
    assert "frequency_precision" not in everything["figures"]
    more = judge(run_json, collected, "--top", 13)
    assert more["undefined"]["frequency_precision"] == "there are fewer than 13 keys"


def test_the_table_names_every_figure_and_why_one_is_missing(collected, run, tmp_path):
    keys = (collected / "t.csv").read_text().splitlines()[1:]
    nobody = ["key,frequency,mean", *(f"{line.split(',')[0]},0," for line in keys)]
    (tmp_path / "nobody.csv").write_text("\n".join(nobody) + "\n")
    code, _, err = run("evaluate", "--estimates", collected / "o", "--truth", collected / "t.csv")
    assert code == 0
    for text in ("relative error, median", "half of l1", "squared l2", "estimated divided by true", "logarithm"):
        assert text in err
    code, _, err = run("evaluate", "--estimates", collected / "o", "--truth", tmp_path / "nobody.csv")
    assert code == 0
    assert "keys that nobody holds" in err
    assert "the true frequency of every key is 0" in " ".join(err.split())
    assert "nan" not in err.lower()


@pytest.mark.parametrize("suffix", ["png", "svg", "pdf"])
def test_the_plot_is_written(collected, run_json, tmp_path, suffix):
    pytest.importorskip("matplotlib")
    file = tmp_path / f"plot.{suffix}"
    judge(run_json, collected, "--plot", file)
    head = file.read_bytes()[:400]
    assert {"png": b"PNG", "svg": b"<svg", "pdf": b"%PDF"}[suffix] in head


def test_a_plot_that_cannot_be_is_refused_before_any_work(collected, run, tmp_path):
    where = ("--estimates", tmp_path / "nothing", "--truth", collected / "t.csv")
    code, _, err = run("evaluate", *where, "--plot", tmp_path / "plot.gif")
    assert (code, ".svg" in err) == (2, True)
    pytest.importorskip("matplotlib")
    where = ("--estimates", collected / "o", "--truth", collected / "t.csv")
    code, _, err = run("evaluate", *where, "--plot", tmp_path / "no" / "plot.svg")
    assert (code, "cannot be written" in err) == (2, True)


def test_without_values_nothing_is_said_of_means(define, nested, people, run_json, tmp_path):
    found = run_json("collect", "--collection", define(), "--input", nested(people(50)), "--output", tmp_path / "o")
    assert found
    (tmp_path / "t.csv").write_text("key,frequency\napple,0.5\nbanana,0.25\ncherry,0\n")
    judged = run_json("evaluate", "--estimates", tmp_path / "o", "--truth", tmp_path / "t.csv")
    assert not [name for name in judged["figures"] if name.startswith(("mean", "correlation"))]
    json.dumps(judged, allow_nan=False)
