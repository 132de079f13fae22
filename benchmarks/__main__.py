"""Runs benchmarks, one after another, each in a process of its own.

    python -m benchmarks                 all, to benchmarks/results/NAME.json, with plots in docs/images/benchmarks
    python -m benchmarks kernel collect  only these
    python -m benchmarks --list          what there is
    python -m benchmarks --plots         draw the plots of stored results again
    python -m benchmarks --smoke         tiny sizes, results thrown away: do they still run?

A benchmark's own options: `python -m benchmarks.NAME --help`.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path

from benchmarks.registry import BENCHMARKS, Benchmark, find

ROOT = Path(__file__).parents[1]
RESULTS = ROOT / "benchmarks" / "results"
PLOTS = ROOT / "docs" / "images" / "benchmarks"


def run(one: Benchmark, results: Path, *arguments: str) -> int:
    """Run one benchmark and return its exit code."""
    print(f"== {one.name}: {one.what}", flush=True)
    start = time.monotonic()
    command = [sys.executable, "-m", one.module, "--json", str(results / f"{one.name}.json"), *arguments]
    code = subprocess.run(command, cwd=ROOT).returncode
    print(f"== {one.name}: {'done' if code == 0 else f'exit code {code}'} after {time.monotonic() - start:.0f} s\n")
    return code


def plot(one: Benchmark, results: Path, plots: Path) -> bool:
    """Draw the plot of a benchmark's results; whether there was anything to draw."""
    path, module = results / f"{one.name}.json", one.load()
    if not path.exists() or not hasattr(module, "draw"):
        return False
    module.draw(json.loads(path.read_text(encoding="utf-8")), plots / f"{one.name}.svg")
    return True


def show_list() -> None:
    """Print what there is."""
    for one in BENCHMARKS:
        needs = f"; needs {one.needs}" if one.needs else ""
        print(f"{one.name:16} {one.what} (about {one.minutes:g} min{needs})")


def main(argv: Sequence[str] | None = None) -> int:
    """Run what was asked for; the exit code is 1 where any failed."""
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("names", nargs="*", metavar="NAME", help="which ones; otherwise all that need nothing more")
    parser.add_argument("--list", action="store_true", help="print what there is")
    parser.add_argument("--plots", action="store_true", help="only draw stored results")
    parser.add_argument("--smoke", action="store_true", help="tiny sizes, results thrown away")
    given = parser.parse_args(argv)
    if given.list:
        show_list()
        return 0
    chosen = [find(name) for name in given.names] or [one for one in BENCHMARKS if given.smoke or not one.needs]
    if given.plots:
        drawn = [one.name for one in chosen if plot(one, RESULTS, PLOTS)]
        print(f"drawn: {', '.join(drawn) or 'nothing'}")
        return 0
    if given.smoke:
        with tempfile.TemporaryDirectory(prefix="ldp-beam-bench-") as folder:
            failed = [run(one, Path(folder), "--smoke") for one in chosen]
        return int(any(failed))
    failed = [run(one, RESULTS, *one.arguments) for one in chosen]
    for one in chosen:
        plot(one, RESULTS, PLOTS)
    return int(any(failed))


if __name__ == "__main__":
    sys.exit(main())
