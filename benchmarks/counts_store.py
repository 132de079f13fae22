"""How long a counts store takes: a year of days with 100,000 keys, estimated anew, and one night more.

    python -m benchmarks.counts_store [FOLDER] [--days N] [--keys N] [--smoke] [--json FILE]

The store is filled with counts such as PCKV-UE gives of a million reports a day: each cell is a binomial draw, since
what a cell holds does not bear on how long it takes. Every figure is that of the whole command in a process of its own,
start-up included; the quickest of three runs counts.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
from collections.abc import Sequence
from datetime import date, timedelta
from pathlib import Path
from typing import Any

import numpy as np
from ldp_beam.mechanisms import Counts
from ldp_beam.pipelines.aggregate_store import CountsStore, CountsStoreDay
from ldp_beam.schemas.counts_store import StoredDay
from ldp_beam.transforms.collection import Collection

from benchmarks import harness

REPORTS = 1_000_000
FIRST = date(2026, 1, 1)
RUNS = 3
DEFINITION = """
name      = "year"
mechanism = "pckv-ue"
epsilon   = 1
padding   = 1
[keys]
count = {keys}
[values]
range = [-1, 1]
"""


def fill(folder: Path, days: int, keys: int) -> tuple[Path, Path]:
    """Write a definition and a store; return their paths."""
    definition, store_folder = folder / "collection.toml", folder / "store"
    definition.write_text(DEFINITION.format(keys=keys), encoding="utf-8")
    collection = Collection.load(definition)
    store, rng = CountsStore(store_folder, collection), np.random.default_rng(1)
    for number in range(days):
        cells = {name: rng.binomial(REPORTS, 0.14, size=keys) for name in collection.mechanism.zero().cells}
        source = StoredDay(files=(f"{number:032x}",), reports=REPORTS)
        day = CountsStoreDay(day=FIRST + timedelta(days=number), counts=Counts(n=REPORTS, cells=cells), source=source)
        store.put(day, private=True, replaces=None)
    return definition, store_folder


def measured(folder: Path, definition: Path, store: Path, *arguments: str, runs: int) -> dict[str, Any]:
    """Run `aggregate` on the store; return the seconds and memory of the quickest run."""
    command = [
        *(sys.executable, "-m", "ldp_beam.pipelines", "aggregate", "--collection", str(definition)),
        *("--counts-store", str(store), "--output", str(folder / "result"), "--overwrite", "--json", *arguments),
    ]
    seconds, processor, memory = min(harness.run_measured(command) for _ in range(runs))
    return {"seconds": round(seconds, 2), "processor_seconds": round(processor, 2), "peak_mb": round(memory)}


def run(folder: Path, days: int, keys: int, runs: int) -> dict[str, Any]:
    """Measure all cases."""
    definition, store = fill(folder, days, keys)
    size = sum(path.stat().st_size for path in store.rglob("*.parquet"))
    last = FIRST + timedelta(days=days - 1)
    cases = {
        "the whole year": (),
        "one day": ("--since", last.isoformat()),
        "every month": ("--by", "month"),
    }
    found = {name: measured(folder, definition, store, *more, runs=runs) for name, more in cases.items()}
    for name, figures in found.items():
        print(f"{name:16} {figures['seconds']:6.2f} s  {figures['peak_mb']:6,} MB")
    return {"days": days, "keys": keys, "store_mb": round(size / 1e6, 1), "cases": found}


def main(argv: Sequence[str] | None = None) -> int:
    """Fill a store, measure, write the results."""
    parser: argparse.ArgumentParser = harness.options(__doc__)
    parser.add_argument(
        "folder", nargs="?", type=Path, help="an existing folder for the store; default: a temporary one"
    )
    parser.add_argument("--days", type=int, default=365)
    parser.add_argument("--keys", type=int, default=100_000)
    given = parser.parse_args(argv)
    days, keys, runs = (3, 50, 1) if given.smoke else (given.days, given.keys, RUNS)
    with tempfile.TemporaryDirectory(prefix="ldp-beam-bench-") as temporary:
        results = run(given.folder or Path(temporary), days, keys, runs)
    harness.write(given.json, results)
    return 0


if __name__ == "__main__":
    sys.exit(main())
