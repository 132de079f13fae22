"""PipelineDP beside `ldp-beam collect`: count and mean per key from the same files of pairs."""

from __future__ import annotations

import statistics
import subprocess
import sys
import tempfile
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from benchmarks import harness

__all__ = ["compare", "show"]

KEYS = 100
#: Rows of the files: two sizes for a slope, and larger ones for `collect`, whose start-up would hide the smaller.
SIZES, LARGE = (20_000, 100_000), (100_000, 1_000_000, 4_000_000)
REPEATS = 1
TARGET = 100.0
DEFINITION = (
    'name = "b"\nmechanism = "pckv-ue"\nepsilon = 1\npadding = 1\n[keys]\ncount = 100\n[values]\nrange = [-1.0, 1.0]\n'
)


def compare(python: Path, *, smoke: bool) -> dict[str, Any]:
    """Run both on files of pairs, in turn, and return seconds and slopes."""
    theirs, ours = ((500,), (500,)) if smoke else (SIZES, LARGE)
    with tempfile.TemporaryDirectory(prefix="ldp-beam-bench-") as name:
        folder = Path(name)
        (folder / "collection.toml").write_text(DEFINITION, encoding="utf-8")
        for rows in {*theirs, *ours}:
            _write(folder, rows)
        found: dict[str, dict[int, list[tuple[float, float]]]] = {
            "pipeline-dp": {rows: [] for rows in theirs},
            "ldp-beam collect": {rows: [] for rows in ours},
        }
        commands: dict[str, Callable[[int], list[str]]] = {
            "pipeline-dp": lambda rows: _pipeline_dp(python, folder, rows),
            "ldp-beam collect": lambda rows: _collect(folder, rows),
        }
        for _ in range(1 if smoke else REPEATS):
            for who, runs in found.items():
                for rows in runs:
                    seconds, processor, _ = harness.run_measured(commands[who](rows), stderr=subprocess.DEVNULL)
                    runs[rows].append((seconds, processor))
    return {"keys": KEYS, **_figures(found)}


def _write(folder: Path, rows: int) -> None:
    command = ["simulate", "--population", "uniform", "--users", str(rows), "--keys", str(KEYS), "--layout", "pairs"]
    output = ["--output", str(folder / f"pairs-{rows}.parquet"), "--json"]
    program = [sys.executable, "-m", "ldp_beam.pipelines"]
    subprocess.run([*program, *command, *output], check=True, stdout=subprocess.DEVNULL)


def _pipeline_dp(python: Path, folder: Path, rows: int) -> list[str]:
    worker = Path(__file__).with_name("pipeline_dp_worker.py")
    return [str(python), str(worker), str(folder / f"pairs-{rows}.parquet"), str(KEYS), str(folder / "their-result")]


def _collect(folder: Path, rows: int) -> list[str]:
    files = ["--input", str(folder / f"pairs-{rows}.parquet"), "--output", str(folder / "result"), "--overwrite"]
    program = [sys.executable, "-m", "ldp_beam.pipelines", "collect"]
    return [*program, "--collection", str(folder / "collection.toml"), *files, "--json"]


def _figures(found: Mapping[str, Mapping[int, list[tuple[float, float]]]]) -> dict[str, Any]:
    jobs: dict[str, dict[str, Any]] = {}
    for who, runs in found.items():
        seconds = {rows: statistics.median(wall for wall, _ in times) for rows, times in runs.items()}
        processor = {rows: statistics.median(used for _, used in times) for rows, times in runs.items()}
        few, many = min(runs), max(runs)
        jobs[who] = {"seconds": _texts(seconds), "processor_seconds": _texts(processor)}
        if few < many:
            jobs[who]["rows_per_second"] = (many - few) / (seconds[many] - seconds[few])
            jobs[who]["rows_per_processor_second"] = (many - few) / (processor[many] - processor[few])
    rates = [jobs[who].get("rows_per_second") for who in ("ldp-beam collect", "pipeline-dp")]
    if None in rates:
        return {"jobs": jobs}
    same = max(set(found["pipeline-dp"]) & set(found["ldp-beam collect"]))
    whole = jobs["pipeline-dp"]["seconds"][str(same)] / jobs["ldp-beam collect"]["seconds"][str(same)]
    used = [jobs[who]["rows_per_processor_second"] for who in ("ldp-beam collect", "pipeline-dp")]
    return {
        "jobs": jobs,
        "times": rates[0] / rates[1],
        "times_processor": used[0] / used[1],
        "times_whole_job": {"rows": same, "times": whole},
        "target": TARGET,
    }


def _texts(seconds: Mapping[int, float]) -> dict[str, float]:
    return {str(rows): round(value, 3) for rows, value in seconds.items()}


def show(found: Mapping[str, Any]) -> None:
    """Print what both took."""
    for who, job in found["jobs"].items():
        times = ", ".join(f"{int(rows):,} rows {seconds:.1f} s" for rows, seconds in job["seconds"].items())
        rate = f"; {job['rows_per_second']:,.0f} rows/s" if "rows_per_second" in job else ""
        print(f"{who}: {times}{rate}")
    if "times" in found:
        whole = found["times_whole_job"]
        print(
            f"collect does {found['times']:.0f} times PipelineDP's rows a second (slopes; target {found['target']:g}); "
            f"a whole job of {whole['rows']:,} rows, start-up included, is {whole['times']:.1f} times as quick"
        )
