"""Time and memory of one job as people and keys grow, on made-up people and two threads.

    python -m benchmarks.scale [--users 1 10 100] [--key-users 10] [--unary-users 1] [--smoke] [--json FILE]

Each job is `ldp-beam collect` in a process of its own that reads `simulate:uniform,…`: nothing but the collection lies
on the disk. First PCKV-UE with 100 keys and more and more users: the exponent of the time says whether it is linear,
with the time of a job of a thousand users taken off. Then more and more keys at one number of users: PCKV-GRR to a
million keys, PCKV-UE to ten thousand. Last, how long counts and estimates of a million keys take to write and to read.
Kernels are NumPy's, unless LDP_BEAM_LOOPS says otherwise.
"""

from __future__ import annotations

import math
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq

from benchmarks import harness

DEFINITION = (
    'name = "scale"\nmechanism = "{}"\nepsilon = 1\npadding = 1\n[keys]\ncount = {}\n[values]\nrange = [-1.0, 1.0]\n'
)
FEW = 1000
WORKERS = 2
UNARY, DIRECT = "pckv-ue", "pckv-grr"


def main(argv: Sequence[str] | None = None) -> int:
    """Measure, print and write."""
    parser = harness.options(__doc__)
    parser.add_argument("--users", type=float, nargs="+", default=[1, 10, 100], help="millions, ascending")
    parser.add_argument("--key-users", type=float, default=10, help="million users while keys of PCKV-GRR grow")
    parser.add_argument("--unary-users", type=float, default=1, help="million users while keys of PCKV-UE grow")
    given = parser.parse_args(argv)
    harness.use_loops("numpy")
    unary, direct = [100, 1000, 10_000], [100, 10_000, 1_000_000]
    if given.smoke:
        given.users, given.key_users, given.unary_users, unary, direct = [0.01, 0.1], 0.001, 0.001, [10], [20]
    with tempfile.TemporaryDirectory(prefix="ldp-beam-bench-") as name:
        folder = Path(name)
        results = {
            "workers": WORKERS,
            "few_users": FEW,
            "users": _by_users(folder, [_millions(one) for one in given.users]),
            "keys": {
                UNARY: _by_keys(folder, UNARY, unary, _millions(given.unary_users)),
                DIRECT: _by_keys(folder, DIRECT, direct, _millions(given.key_users)),
            },
            "files": _files(folder, direct[-1]),
        }
    harness.write(given.json, results)
    return 0


def _millions(number: float) -> int:
    return round(number * 1e6)


# -- jobs ---------------------------------------------------------------------------------------------------


def _by_users(folder: Path, users: list[int]) -> dict[str, Any]:
    few = _job(folder, UNARY, 100, FEW)
    jobs = [_job(folder, UNARY, 100, n) for n in users]
    net = [max(job["seconds"] - few["seconds"], 1e-9) for job in jobs]
    exponent = math.log(net[-1] / net[0]) / math.log(users[-1] / users[0])
    print(f"time grows with the users to the power of {exponent:.3f}")
    return {"few": few, "jobs": jobs, "exponent": round(exponent, 4)}


def _by_keys(folder: Path, mechanism: str, keys: list[int], users: int) -> list[dict[str, Any]]:
    return [{**_job(folder, mechanism, d, users), "start": _job(folder, mechanism, d, FEW)["seconds"]} for d in keys]


def _job(folder: Path, mechanism: str, keys: int, users: int) -> dict[str, Any]:
    collection = folder / f"{mechanism}-{keys}.toml"
    collection.write_text(DEFINITION.format(mechanism, keys), encoding="utf-8")
    command = [sys.executable, "-m", "ldp_beam.pipelines", "collect", "--collection", str(collection), "--json"]
    command += ["--input", f"simulate:uniform,users={users},keys={keys}", "--workers", str(WORKERS)]
    command += ["--output", str(folder / "result"), "--overwrite"]
    seconds, processor, memory = harness.run_measured(command)
    print(f"{mechanism:9}{keys:>10,} keys {users:>12,} users {seconds:8.1f} s {memory:6.0f} MB", flush=True)
    return {
        "mechanism": mechanism,
        "keys": keys,
        "users": users,
        "seconds": round(seconds, 2),
        "processor_seconds": round(processor, 2),
        "peak_mb": round(memory),
    }


# -- files of many keys -------------------------------------------------------------------------------------


def _files(folder: Path, keys: int) -> dict[str, Any]:
    """Write and read counts and estimates of so many keys, each several times, and keep the quickest."""
    from ldp_beam.mechanisms import Secret
    from ldp_beam.pipelines.aggregate_counts import read_counts
    from ldp_beam.schemas.counts import counts_schema
    from ldp_beam.transforms.collection import Collection
    from ldp_beam.transforms.estimate import estimate_counts
    from ldp_beam.transforms.inputs import Columns, inspect_records, slices
    from ldp_beam.transforms.prepare import Preparer
    from ldp_beam.transforms.publish import write_counts
    from ldp_beam.transforms.record_files import read_slice
    from ldp_beam.transforms.table_files import write_table

    path = folder / "files.toml"
    path.write_text(DEFINITION.format(DIRECT, keys), encoding="utf-8")
    collection, secret = Collection.load(path), Secret.from_seed(1)
    preparer = Preparer(collection.definition, secret.users())
    counts = collection.mechanism.zero()
    for part in slices(inspect_records([f"simulate:uniform,users={2 * keys},keys={keys}"], has_values=True)):
        for raw in read_slice(part, Columns()):
            people, _, _ = preparer.prepare_nested(raw)
            reports = collection.mechanism.perturb(people, secret.stream(fingerprint=collection.fingerprint))
            counts = collection.mechanism.count(reports, into=counts)
    schema = counts_schema(collection.header("counts", private=False))
    stored, table = str(folder / "counts.parquet"), estimate_counts(collection, counts)
    times = {
        "write_counts": _quickest(lambda: write_counts(stored, schema, [((0, "main"), counts)])),
        "read_counts": _quickest(lambda: read_counts([stored], collection)),
        "estimate": _quickest(lambda: estimate_counts(collection, counts)),
    }
    for format_ in ("parquet", "csv"):
        to = str(folder / f"estimates.{format_}")
        times[f"write_estimates_{format_}"] = _quickest(lambda to=to, f=format_: write_table(to, table, f, name="x"))
    times["read_estimates_parquet"] = _quickest(lambda: pq.read_table(folder / "estimates.parquet"))
    for name, seconds in times.items():
        print(f"{name:25}{seconds:8.2f} s")
    return {"keys": keys, "seconds": {name: round(seconds, 3) for name, seconds in times.items()}}


def _quickest(call: Callable[[], object]) -> float:
    times = []
    for _ in range(3):
        start = time.perf_counter()
        call()
        times.append(time.perf_counter() - start)
    return min(times)


# -- plot ---------------------------------------------------------------------------------------------------


def draw(results: dict[str, Any], path: Path) -> None:
    """Draw time and memory over users, and time over keys."""
    shown, (left, middle, right) = harness.figure(ncols=3, figsize=(11, 3.4))
    jobs = results["users"]["jobs"]
    users = [job["users"] for job in jobs]
    left.loglog(users, [job["seconds"] for job in jobs], "o-")
    left.set(title=f"PCKV-UE, 100 keys, {results['workers']} threads", xlabel="users", ylabel="seconds")
    middle.semilogx(users, [job["peak_mb"] for job in jobs], "o-")
    middle.set(title="the same jobs", xlabel="users", ylabel="peak memory, MB", ylim=(0, None))
    for name, held in results["keys"].items():
        each = [max(job["seconds"] - job["start"], 1e-9) / job["users"] * 1e6 for job in held]
        right.loglog([job["keys"] for job in held], each, "o-", label=name)
    right.set(title="more keys", xlabel="keys", ylabel="seconds for a million users")
    right.legend()
    harness.save_figure(shown, path)


if __name__ == "__main__":
    sys.exit(main())
