"""How long the main job takes on every engine.

    python -m benchmarks.engines [FOLDER] [--users N] [--slopes] [--smoke] [--json FILE]

PCKV-UE, 100 keys, people read from one nested Parquet file. Each engine is started once and does a small job first,
whose time is the overhead of a job; then it does the large one; the quickest of several runs counts. For direct with
one and two threads or processes the slope between N and 4 N users is what a user costs, start-up left out. Kernels
are the compiled ones, unless LDP_BEAM_LOOPS says otherwise.
Results go to benchmarks/results/engines.json unless `--json` names another file; the smoke run tries direct alone.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import platform
import sys
import tempfile
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import psutil
from ldp_beam.mechanisms import Secret
from ldp_beam.mechanisms.populations import Population
from ldp_beam.pipelines.client import RecordSource
from ldp_beam.pipelines.collect import ClientRun, collect
from ldp_beam.pipelines.running import Engine, engine_session, versions
from ldp_beam.pipelines.simulate import simulate
from ldp_beam.schemas.manifest import Randomness
from ldp_beam.transforms.collection import Collection

from benchmarks import harness

RESULTS = Path(__file__).parent / "results" / "engines.json"
SMALL = 1000
PROCESSES = "--direct_running_mode=multi_processing"
ENGINES = {
    "direct": Engine(),
    "direct, 2 threads": Engine(workers=2),
    "direct, 2 processes": Engine(workers=2, beam_arguments=(PROCESSES,)),
    "prism": Engine(name="prism", workers=2),
    "flink": Engine(name="flink", workers=2),
    "spark": Engine(name="spark", workers=2),
}


@dataclass(frozen=True)
class Input:
    """People in a file, and their number."""

    path: Path
    users: int


def people(folder: Path, users: int) -> Input:
    path = folder / f"people-{users}.parquet"
    if not path.exists():
        population = Population(name="gauss", keys=100, pairs_per_user=1, seed=1)
        simulate(population, users, path, collection=None if users == SMALL else folder / f"collection-{users}.toml")
    return Input(path, users)


def processor_seconds() -> float:
    """Return the processor time of this process and of everything that it started; load of others hardly changes it."""
    me = psutil.Process()
    times = me.cpu_times()
    total = times.user + times.system + times.children_user + times.children_system
    for child in me.children(recursive=True):
        with contextlib.suppress(psutil.NoSuchProcess):
            total += sum(child.cpu_times()[:4])
    return float(total)


def seconds(engine: Engine, collection: Collection, given: Input) -> float:
    with tempfile.TemporaryDirectory() as output:
        run = ClientRun(
            collection=collection,
            source=RecordSource(patterns=[str(given.path)]),
            secret=Secret.from_seed(1),
            randomness=Randomness(source="seed", private=False, secret_id="", period=""),
            engine=engine,
        )
        start = time.perf_counter()
        collect(run, Path(output) / "result")
        return time.perf_counter() - start


def measure(
    name: str, collection: Collection, small: Input, large: Input, larger: Input | None, repeats: int
) -> dict[str, Any]:
    engine = ENGINES[name]
    with engine_session():
        first = seconds(engine, collection, small)  # starts the engine
        overhead = min(seconds(engine, collection, small) for _ in range(repeats))
        before = processor_seconds()
        best = min(seconds(engine, collection, large) for _ in range(repeats))
        used = (processor_seconds() - before) / repeats
        found = {"first_job": first, "overhead": overhead, "seconds": best, "processor_seconds": used}
        if larger is not None and name.startswith("direct"):
            more = seconds(engine, collection, larger)
            found["nanoseconds_per_user"] = (more - best) / (larger.users - large.users) * 1e9
    return found


def main(argv: Sequence[str] | None = None) -> int:
    """Measure and write the results."""
    parser = harness.options(__doc__)
    parser.add_argument("folder", nargs="?", default=tempfile.gettempdir(), help="keeps the people between runs")
    parser.add_argument("--users", type=int, default=8_000_000)
    parser.add_argument("--repeats", type=int, default=2, help="the quickest of so many runs counts")
    parser.add_argument("--slopes", action="store_true", help="also measure direct at four times as many users")
    parser.add_argument("--engines", nargs="+", default=list(ENGINES), help="their names")
    given = parser.parse_args(argv)
    harness.use_loops("compiled")
    if given.smoke:
        given.users, given.repeats, given.engines = 2_000, 1, ["direct"]
        with tempfile.TemporaryDirectory() as scratch:
            measure_all(given, Path(scratch))
    else:
        folder = Path(given.folder)
        folder.mkdir(parents=True, exist_ok=True)
        measure_all(given, folder)
    return 0


def measure_all(given: argparse.Namespace, folder: Path) -> None:
    """Measure every engine that was asked for, and write after each."""
    path = given.json or (None if given.smoke else RESULTS)
    small, large = people(folder, SMALL), people(folder, given.users)
    larger = people(folder, 4 * given.users) if given.slopes else None
    collection = Collection.load(folder / f"collection-{given.users}.toml")
    found: dict[str, dict[str, Any]] = {}
    for name in given.engines:
        found[name] = measure(name, collection, small, large, larger, given.repeats)
        direct = found.get("direct", found[name])
        found[name]["relative_to_direct"] = found[name]["seconds"] / direct["seconds"]
        print(name, {key: round(value, 2) for key, value in found[name].items()}, flush=True)
        if path is not None:
            write(path, given.users, found)


def write(path: Path, users: int, found: dict[str, dict[str, Any]]) -> None:
    """Keep what has been measured so far."""
    path.parent.mkdir(parents=True, exist_ok=True)
    loops = harness.use_loops("compiled")
    machine = {
        "loops": loops,
        "cores": os.cpu_count(),
        "machine": platform.machine(),
        "load": os.getloadavg()[0],
        **versions(),
    }
    path.write_text(json.dumps({"users": users, "machine": machine, "engines": found}, indent=1) + "\n")


if __name__ == "__main__":
    sys.exit(main())
