"""The demo, run as a person runs it."""

import csv
import json
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
RUNS = ("pckv-grr", "pckv-ue")


@pytest.fixture(scope="module")
def demo(tmp_path_factory):
    """The folder of one run of the demo, and what it printed."""
    folder = tmp_path_factory.mktemp("demo")
    done = subprocess.run(
        [sys.executable, "-m", "examples.demo", str(folder)],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=300,
    )
    assert done.returncode == 0, done.stderr
    return folder, done.stdout


def rows(path):
    with path.open(newline="", encoding="utf-8") as stream:
        return {row["key"]: row for row in csv.DictReader(stream)}


def test_it_explains_itself(demo):
    folder, printed = demo
    text = " ".join(printed.split())
    for expected in (
        "64,814 people",
        "30% of them answered none",
        "epsilon = 2",
        "no true answer ever reaches it",
    ):
        assert expected in text
    assert text.count("if she became pregnant by rape") == len(RUNS)
    assert "PCKV-GRR" in text
    assert "PCKV-UE" in text
    assert str(folder / "records.parquet") in printed


@pytest.mark.parametrize("name", RUNS)
def test_the_estimates_lie_near_the_truth(demo, name):
    """Seven standard errors: 28 figures of normal estimates fail by chance less than once in 10^10 runs."""
    folder, _ = demo
    (estimates,) = (folder / name).glob("estimates*.csv")
    truth = rows(folder / "truth.csv")
    given = rows(estimates)
    assert given.keys() == truth.keys()
    for key, row in given.items():
        for figure in ("frequency", "mean"):
            error = float(row[f"{figure}_raw"]) - float(truth[key][figure])
            assert abs(error) < 7 * float(row[f"{figure}_se"])


@pytest.mark.parametrize(("name", "share", "mean"), [("pckv-grr", 0.013, 0.02), ("pckv-ue", 0.037, 0.053)])
def test_the_standard_errors_are_as_predicted(demo, name, share, mean):
    folder, _ = demo
    (estimates,) = (folder / name).glob("estimates*.csv")
    given = rows(estimates).values()
    assert sum(float(row["frequency_se"]) for row in given) / len(given) == pytest.approx(share, rel=0.1)
    assert sum(float(row["mean_se"]) for row in given) / len(given) == pytest.approx(mean, rel=0.15)


@pytest.mark.parametrize("name", RUNS)
def test_everybody_reported_with_secret_randomness(demo, name):
    folder, _ = demo
    (estimates,) = (folder / name).glob("estimates*.csv")
    assert {row["n"] for row in rows(estimates).values()} == {"64814"}
    assert (folder / name / "manifest.json").is_file()
    figures = json.loads((folder / f"{name}-evaluation.json").read_text())["figures"]
    assert figures["n"] == 64814
    assert figures["frequency_keys"] == figures["mean_keys"] == 7
