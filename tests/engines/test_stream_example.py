"""The survey replayed by year, as `make example-gss_by_year_stream` does."""

import csv
import runpy
import sys

import pytest

pytestmark = pytest.mark.engine


@pytest.fixture
def replayed(tmp_path, monkeypatch, capsys, require_engine):
    require_engine("prism")
    monkeypatch.setattr(sys, "argv", ["replay", str(tmp_path)])
    runpy.run_module("examples.gss_by_year.replay", run_name="__main__")
    return tmp_path, capsys.readouterr().out


def test_every_survey_is_a_window_with_an_estimate(replayed):
    """Eight standard errors over fewer than 224 means: a false alarm is rarer than 1 in 10^12."""
    folder, printed = replayed
    with (folder / "over_time.csv").open(encoding="utf-8") as file:
        rows = list(csv.DictReader(file))
    years = {row["year"] for row in rows}
    assert len(rows) == 7 * len(years)
    assert len(years) == 32
    assert sum({row["year"]: int(row["people"]) for row in rows}.values()) == 64814
    assert len(list((folder / "live" / "windows").iterdir())) == len(years)
    known = [row for row in rows if row["mean"] and row["true_mean"] and row["true_mean"] != "nan"]
    within = [abs(float(row["mean"]) - float(row["true_mean"])) < 8 * float(row["mean_se"]) for row in known]
    assert all(within)
    assert "2018" in printed
    assert (folder / "over-time.html").stat().st_size > 100_000
