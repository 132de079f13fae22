"""The survey by year and the question with sensitive answers, run as people run them."""

import csv
import subprocess
import sys
from pathlib import Path

import pytest

from examples.gss_party import prepare as gss_party

ROOT = Path(__file__).resolve().parents[2]


def test_every_year_is_estimated_near_its_truth(tmp_path):
    """Eight standard errors over fewer than 224 means: a false alarm is rarer than 1 in 10^12."""
    done = subprocess.run(
        [sys.executable, "-m", "examples.gss_by_year.over_time", str(tmp_path)],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=600,
    )
    assert done.returncode == 0, done.stderr
    with (tmp_path / "over_time.csv").open(newline="", encoding="utf-8") as stream:
        rows = list(csv.DictReader(stream))
    assert len({row["year"] for row in rows}) == 32
    people = {row["year"]: int(row["people"]) for row in rows}
    assert sum(people.values()) == 64814
    tested = 0
    for row in rows:
        # Where few were asked, the mean is a ratio of two noisy figures and has no normal error.
        if row["mean"] and row["true_mean"] not in ("", "nan") and float(row["mean_se"]) < 0.15:
            assert abs(float(row["mean"]) - float(row["true_mean"])) < 8 * float(row["mean_se"]), row
            tested += 1
    assert tested > 100
    assert '"windows":[{"label":"1972-01-01"}' in (tmp_path / "over-time.html").read_text(encoding="utf-8")
    assert "2018" in done.stdout


def test_shares_of_a_categorical_question(tmp_path, run_json):
    """Seven standard errors for nine shares: a false alarm is rarer than 1 in 10^10."""
    figures = {figure.key: figure.share for figure in gss_party.prepare(tmp_path)}
    assert sum(figures.values()) == pytest.approx(1)
    answer = run_json(
        *("collect", "--collection", ROOT / "examples" / "gss_party" / "collection.toml"),
        *("--input", tmp_path / "records.parquet", "--output", tmp_path / "result", "--format", "csv"),
    )
    assert answer["reports"]["counted"] == 64814
    with (tmp_path / "result" / "estimates.csv").open(newline="", encoding="utf-8") as stream:
        rows = {row["key"]: row for row in csv.DictReader(stream)}
    assert rows.keys() == figures.keys()
    for key, share in figures.items():
        assert abs(float(rows[key]["frequency_raw"]) - share) < 7 * float(rows[key]["frequency_se"])
    errors = {key: float(row["frequency_se"]) for key, row in rows.items()}
    assert errors["Independent"] < errors["Strong Democrat"]  # what is not sensitive is known better


def test_no_more_is_promised_than_holds_where_only_some_keys_are_sensitive(tmp_path, run):
    gss_party.prepare(tmp_path)
    given = ("--input", tmp_path / "records.parquet", "--output", tmp_path / "result")
    code, _, err = run("collect", "--collection", ROOT / "examples" / "gss_party" / "collection.toml", *given)
    assert code == 0
    assert "no promise for what is not listed" in err
    assert "everything its user holds" not in err
    page = tmp_path / "page.html"
    assert run("report", "--input", tmp_path / "result", "--output", page)[0] == 0
    text = page.read_text(encoding="utf-8").split("<script")[0]
    assert "no promise for what is not listed as sensitive" in text
    assert "likelier from" not in text
