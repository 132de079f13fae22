"""What all benchmarks share: their options, the record of the machine, their results, and timing in turn.

A benchmark is a module with `main(argv) -> int`. It takes `--smoke` (tiny sizes, to see that it still runs; no figure
of such a run means anything) and `--json FILE`, and writes one JSON object with the key "machine". Where results can be
drawn it also has `draw(results, path)`, which writes one SVG.

Times of small pieces of code are taken by pyperf, in fresh processes that take turns: other work on a machine comes
and goes, so only figures of one run are worth comparing, and ratios say more than rates.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from importlib.metadata import version
from pathlib import Path
from typing import Any

import pyperf

__all__ = [
    "figure",
    "machine",
    "options",
    "ratio",
    "run_measured",
    "save_figure",
    "time_in_turn",
    "versions_of",
    "write",
]

#: What is kept of pyperf's description of a machine: nothing that names it or a folder of it.
_KEPT = ("date", "cpu_model_name", "cpu_count", "platform", "python_version", "load_avg_1min")


def options(doc: str | None, **more: Any) -> argparse.ArgumentParser:
    """Return a parser with the options of every benchmark."""
    parser = argparse.ArgumentParser(description=doc, formatter_class=argparse.RawDescriptionHelpFormatter, **more)
    parser.add_argument("--smoke", action="store_true", help="tiny sizes: only see that it runs")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write the results to this file")
    return parser


def use_loops(which: str) -> str:
    """Let this process and those that it starts use compiled loops or NumPy, if the environment says nothing else.

    Args:
        which: "compiled" or "numpy".

    Returns:
        What is used.
    """
    return os.environ.setdefault("LDP_BEAM_LOOPS", which)


def machine() -> dict[str, Any]:
    """Describe what the benchmark runs on, and how busy that is."""
    found = pyperf.Run([1.0], collect_metadata=True).get_metadata()
    kept = {name: found[name] for name in _KEPT if name in found}
    kept["date"] = str(kept.get("date", ""))[:16]
    return kept


def versions_of(*packages: str) -> dict[str, str]:
    """Return the installed versions of packages."""
    return {name: version(name) for name in packages}


def write(path: Path | None, results: Mapping[str, Any]) -> None:
    """Write results with the machine's description; nothing where there is no path."""
    if path is None:
        return
    path.parent.mkdir(parents=True, exist_ok=True)
    text = json.dumps({"machine": machine(), **results}, indent=1, allow_nan=False)
    path.write_text(text + "\n", encoding="utf-8")


def run_measured(command: Sequence[str], **more: Any) -> tuple[float, float, float]:
    """Run a command to its end; return its seconds, its processor seconds and its peak memory in MB.

    Memory is the operating system's account of the one process, as is processor time, so a process that starts others
    shows its own memory alone.

    Raises:
        SystemExit: where the command fails.
    """
    start = time.perf_counter()
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL, **more)
    _, status, usage = os.wait4(process.pid, 0)
    seconds = time.perf_counter() - start
    process.returncode = os.waitstatus_to_exitcode(status)
    if process.returncode:
        raise SystemExit(f"{' '.join(command)} ended with exit code {process.returncode}")
    return seconds, usage.ru_utime + usage.ru_stime, usage.ru_maxrss / 1000


def time_in_turn(module: str, *, rounds: int, smoke: bool, values: int = 40) -> dict[str, list[float]]:
    """Time the cases of a pyperf script in several rounds, each case once a round in a process of its own.

    Args:
        module: module that makes a `pyperf.Runner` when it is run and times its cases.
        rounds: how often the cases take turns.
        smoke: run each case once only, without warming up.
        values: times to take in each process, each over ten milliseconds: short ones find moments without other work.

    Returns:
        Case -> seconds of one call, the quickest of each round: what else the machine does only adds to it.
    """
    with tempfile.TemporaryDirectory(prefix="ldp-beam-bench-") as folder:
        path = Path(folder) / "times.json"
        effort = ("--debug-single-value",) if smoke else ("-p", "1", "-n", str(values), "-w", "3", "--min-time", "0.01")
        for _ in range(rounds):
            command = [sys.executable, "-m", module, "--quiet", "--append", str(path), *effort]
            subprocess.run(command, check=True, stdout=subprocess.DEVNULL)
        suite = pyperf.BenchmarkSuite.load(str(path))
        found = {}
        for case in suite.get_benchmarks():
            runs = (run.values for run in case.get_runs())
            found[case.get_name()] = [min(times) for times in runs if times]
    return found


def ratio(above: Sequence[float], below: Sequence[float]) -> float:
    """Return the median of the ratios of two cases, round by round."""
    return statistics.median(a / b for a, b in zip(above, below, strict=True))


def figure(**size: Any) -> tuple[Any, Any]:
    """Return a figure and its axes, from matplotlib without a screen."""
    import matplotlib as mpl

    mpl.use("Agg")
    mpl.rcParams["svg.hashsalt"] = "ldp-beam"
    import matplotlib.pyplot as plt

    return plt.subplots(layout="constrained", **size)


def save_figure(shown: Any, path: Path) -> None:
    """Write a figure as SVG that depends on nothing but the figure."""
    import matplotlib.pyplot as plt

    path.parent.mkdir(parents=True, exist_ok=True)
    shown.savefig(path, format="svg", metadata={"Date": None})
    plt.close(shown)
