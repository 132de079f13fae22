"""Every benchmark still runs, at sizes that mean nothing; no time is asserted."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

from benchmarks import harness
from benchmarks.__main__ import PLOTS, RESULTS, main, plot
from benchmarks.registry import BENCHMARKS, find

ROOT = Path(__file__).parents[2]
#: Modules that are no benchmarks but part of one, or of the harness, or write pages.
OTHERS = {
    *("__main__", "harness", "registry", "kernel_cases", "pages", "tested_versions"),
    *("stored_tables", "accuracy_tables", "scaling_tables", "stream_tables"),
}


#: Those that start the command line again and again: forks of one process that has imported it do.
MANY_COMMANDS = {"collect", "counts_store", "scale"}


@pytest.mark.parametrize("one", BENCHMARKS, ids=lambda one: one.name)
def test_it_runs_writes_its_results_and_draws_them(one, warm_python, tmp_path):
    path = tmp_path / f"{one.name}.json"
    python = warm_python.python if one.name in MANY_COMMANDS else sys.executable
    command = [python, "-W", "error", "-m", one.module, "--smoke", "--json", str(path)]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=1500)
    assert done.returncode == 0, done.stdout + done.stderr
    results = json.loads(path.read_text(encoding="utf-8"))
    assert "machine" in results
    assert "/tmp" not in path.read_text(encoding="utf-8")
    if hasattr(one.load(), "draw"):
        assert plot(one, tmp_path, tmp_path)
        assert (tmp_path / f"{one.name}.svg").read_text(encoding="utf-8").startswith("<?xml")


def test_every_module_is_listed():
    modules = {path.stem for path in (ROOT / "benchmarks").glob("*.py")}
    assert modules - OTHERS <= {one.name for one in BENCHMARKS}
    assert len({one.name for one in BENCHMARKS}) == len(BENCHMARKS)


def test_every_stored_result_belongs_to_a_benchmark_and_names_the_machine():
    names = {one.name for one in BENCHMARKS}
    for path in RESULTS.glob("*.json"):
        assert path.stem in names
        assert "machine" in json.loads(path.read_text(encoding="utf-8")), path.name


def test_every_plot_belongs_to_a_result():
    for path in PLOTS.glob("*.svg"):
        assert (RESULTS / f"{path.stem}.json").is_file(), path.name


def test_the_list_is_printed_and_an_unknown_name_is_refused(capsys):
    assert main(["--list"]) == 0
    printed = capsys.readouterr().out
    assert all(one.name in printed for one in BENCHMARKS)
    with pytest.raises(SystemExit, match="no benchmark 'kernels'; there are: kernel"):
        find("kernels")


def test_a_failing_command_ends_the_benchmark():
    with pytest.raises(SystemExit, match="exit code 3"):
        harness.run_measured([sys.executable, "-c", "raise SystemExit(3)"])


def test_ratios_are_taken_round_by_round():
    assert harness.ratio([2.0, 40.0, 6.0], [1.0, 20.0, 1.0]) == 2.0
