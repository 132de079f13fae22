"""Every figure of the papers still runs, at a size that means nothing; stored results, plots and the page agree."""

import csv
import gzip
import importlib.util
import json
import math
import sys
from pathlib import Path

import numpy as np
import pytest

from benchmarks.accuracy import __main__ as command
from benchmarks.accuracy.figures import Claim, Figure, MissingData, Panel, Scale, of, random_of, series
from benchmarks.accuracy.keyvalue import METHODS, measure
from benchmarks.accuracy.pckv import drawn
from benchmarks.accuracy.people import uu
from benchmarks.accuracy.plots import caption, draw
from benchmarks.accuracy.reference import PCKV_UU, PRIVKV_UU
from benchmarks.accuracy.registry import ALL, chosen
from benchmarks.accuracy.results import RESULTS, read_rows, write_rows

ROOT = Path(__file__).parents[2]
#: Figures that were run; each stands on a page.
STORED = [figure for figure in ALL.values() if (RESULTS / f"{figure.name}.json").is_file()]


def names(figures):
    return [figure.name for figure in figures]


@pytest.fixture(scope="module")
def data(tmp_path_factory):
    """The folder of --data; where the real files are absent, invented ones of the same columns."""
    shared = ROOT.parent / "shared" / "data"
    if shared.is_dir():
        return shared
    folder = tmp_path_factory.mktemp("data")
    random = np.random.Generator(np.random.PCG64(1))
    with gzip.open(folder / "ecommerce_clothing_kv.csv.gz", "wt", encoding="utf-8", newline="") as file:
        rows = csv.writer(file)
        rows.writerow(["row_id", "clothing_id", "rating"])
        for person in range(500):
            rows.writerow([person, int(random.geometric(0.05)), int(random.integers(1, 6))])
    return folder


@pytest.fixture(scope="module")
def page():
    spec = importlib.util.spec_from_file_location("reproduction_figures", ROOT / "docs" / "reproduction_figures.py")
    module = importlib.util.module_from_spec(spec)
    sys.modules["reproduction_figures"] = module
    spec.loader.exec_module(module)
    return module


@pytest.mark.parametrize("figure", ALL.values(), ids=lambda figure: figure.name)
def test_it_runs_and_is_drawn(figure, data, tmp_path):
    try:
        command.run(figure, Scale(data=data, tiny=True), tmp_path)
    except MissingData as missing:
        pytest.skip(str(missing))
    stored = json.loads((tmp_path / f"{figure.name}.json").read_text(encoding="utf-8"))
    assert stored["rows"]
    assert stored["command"].startswith(f"python -m benchmarks.accuracy {figure.name}")
    assert (tmp_path / f"{figure.name}.svg").read_text(encoding="utf-8").startswith("<?xml")


@pytest.mark.parametrize("figure", STORED, ids=lambda figure: figure.name)
def test_stored_results_are_those_of_the_figure(figure):
    """Every result of a paper's figure tells its data and command, and its plot is drawn from its rows."""
    stored = json.loads((RESULTS / f"{figure.name}.json").read_text(encoding="utf-8"))
    told = {name: stored[name] for name in ("figure", "title", "source", "data", "command")}
    assert told == {
        "figure": figure.name,
        "title": figure.title,
        "source": figure.source,
        "data": figure.data,
        "command": figure.command,
    }
    text = " ".join((RESULTS / f"{figure.name}.svg").read_text(encoding="utf-8").split())
    for word in caption(figure).replace("&", "&amp;").split():
        assert word in text, f"{figure.name}: the plot's caption is not that of today; run --plots"


@pytest.mark.parametrize("figure", STORED, ids=lambda figure: figure.name)
def test_claims_have_reasons_where_they_differ(figure):
    for claim in figure.claims(read_rows(figure)):
        assert claim.paper
        assert claim.found
        assert "nan" not in claim.found
        assert claim.agrees or claim.why, f"{figure.name}: {claim.paper}"


def test_every_stored_result_belongs_to_a_figure():
    assert {path.stem for path in RESULTS.iterdir()} <= set(ALL)
    assert [figure.name for figure in ALL.values() if figure not in STORED] == []


def test_the_pages_are_in_step_with_the_results(page):
    shown = []
    for path in page.pages():
        text = path.read_text(encoding="utf-8")
        assert page.page(text) == text, f"{path.name}: run python docs/reproduction_figures.py --write"
        shown += page.named(text)
    assert sorted(shown) == sorted(names(STORED))


def test_a_claim_that_differs_says_so_on_the_page(page):
    verdicts = [
        page._verdict(Claim(paper="p", found="f", agrees=True)),
        page._verdict(Claim(paper="p", found="f", agrees=True, why="but once")),
        page._verdict(Claim(paper="p", found="f", agrees=False, why="the reason")),
    ]
    assert verdicts == ["agrees", "agrees, with an exception: but once", "**differs**: the reason"]


# -- beside independent programs --------------------------------------------------------------------------


@pytest.fixture(scope="module")
def at_uu():
    """All methods at the setting UU, 50 repeats with fixed seeds."""
    people = drawn(uu, 100, 1_000_000)
    return list(measure("uu", METHODS, (1, 2, 4, 6), people, 50))


@pytest.mark.parametrize("method", PRIVKV_UU)
def test_means_of_the_earlier_methods(at_uu, method):
    """Within 10 % of the reference; the seeds are fixed, so there is no false alarm.

    One repeat's relative deviation is at most 15 %, so the mean's is 2.1 %: an estimator whose errors are 20 % larger
    would pass with a probability below 1e-4.
    """
    for epsilon, reference in PRIVKV_UU[method].items():
        (row,) = of(at_uu, method=method, epsilon=epsilon)
        assert row["mse_mean"] == pytest.approx(reference, rel=0.1)


@pytest.mark.parametrize(("mechanism", "epsilon"), PCKV_UU)
def test_errors_of_pckv(at_uu, mechanism, epsilon):
    """Within 3.5 standard errors of the reference, fixed seeds; errors 30 % larger would not be."""
    (row,) = of(at_uu, method=mechanism.upper(), epsilon=epsilon)
    f, f_sd, m, m_sd = PCKV_UU[mechanism, epsilon]
    for measured, mean, deviation in ((row["mse_frequency"], f, f_sd), (row["mse_mean"], m, m_sd)):
        error = deviation * math.sqrt(1 / 400 + 1 / 50)
        assert abs(measured - mean) < 3.5 * error
        assert abs(1.3 * measured - mean) > 3.5 * error


# -- the harness ------------------------------------------------------------------------------------------


def test_figures_are_chosen_by_name_and_by_family():
    assert names(chosen([])) == list(ALL)
    assert names(chosen(["pckv-uu"])) == ["pckv-uu"]
    assert set(names(chosen(["pckv"]))) == {name for name in ALL if name.startswith("pckv-")}
    with pytest.raises(KeyError, match="pckw"):
        chosen(["pckw"])


def test_the_command_lists_runs_and_names_what_is_missing(capsys, tmp_path, monkeypatch):
    monkeypatch.setattr(sys, "argv", ["accuracy", "--list"])
    assert command.main() == 0
    assert all(name in capsys.readouterr().out for name in ["pckv-uu"])
    monkeypatch.setattr(sys, "argv", ["accuracy", "pckv-ratings", "pckv-uu", "--tiny", "--output", str(tmp_path)])
    assert command.main() == 0
    printed = capsys.readouterr().out
    assert "left out: needs ecommerce_clothing_kv.csv.gz" in printed
    assert [path.name for path in sorted(tmp_path.iterdir())] == ["pckv-uu.json", "pckv-uu.svg"]
    monkeypatch.setattr(sys, "argv", ["accuracy", "pckw"])
    with pytest.raises(SystemExit):
        command.main()
    assert "no figure or family 'pckw'" in capsys.readouterr().err


def test_numbers_that_are_none_are_stored_as_null(tmp_path):
    figure = Figure(name="x-y", title="t", source="s", data="d.", rows=lambda _: (), panels=lambda _: ())
    row = {"a": np.float64(1 / 3), "b": math.nan, "c": np.int64(3), "d": "text", "e": None, "f": True}
    write_rows(figure, [row], 1.0, tmp_path)
    assert read_rows(figure, tmp_path) == [{"a": 0.333333, "b": None, "c": 3, "d": "text", "e": None, "f": True}]


def test_the_same_name_and_repeat_give_the_same_numbers():
    assert random_of("a", 1).integers(1 << 60) == random_of("a", 1).integers(1 << 60)
    assert len({int(random_of(name, i).integers(1 << 60)) for name in "ab" for i in range(3)}) == 6


def test_a_plot_is_the_same_each_time(tmp_path):
    figure = ALL["pckv-uu"]
    for name in ("one.svg", "two.svg"):
        draw(figure, read_rows(figure), tmp_path / name)
    assert (tmp_path / "one.svg").read_bytes() == (tmp_path / "two.svg").read_bytes()


def test_lines_are_ordered_and_bars_are_drawn(tmp_path):
    rows = [{"kind": "b", "x": 2, "y": 5.0}, {"kind": "b", "x": 1, "y": None}, {"kind": "c", "x": 1, "y": 1.0}]
    line = series(of(rows, kind="b"), "x", "y", label="b")
    assert (list(line.x), list(line.y)) == ([1, 2], [None, 5.0])
    bars = Panel(title="t", x="x", y="y", lines=[series(rows, "kind", "y", label="l")], y_log=False)
    figure = Figure(name="x-y", title="t", source="s", data="d.", rows=lambda _: (), panels=lambda _: [bars])
    draw(figure, rows, tmp_path / "x.svg")
    assert "python -m benchmarks.accuracy x-y" in " ".join((tmp_path / "x.svg").read_text(encoding="utf-8").split())
