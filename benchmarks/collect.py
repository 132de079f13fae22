"""Speed and memory of the whole job `ldp-beam collect` on one worker, beside the same loop without Beam.

    python -m benchmarks.collect [--small 2] [--large 8] [--repeats 3] [--case NAME] [--smoke] [--json FILE]

Simulated people (one pair each, d = 100, text ids) are written once as nested Parquet, as pairs Parquet in any order
and, fewer of them, as nested Avro (deflate). Every case then runs in a process of its own, small and large input in
turn, and a rate is the slope between the two sizes, so that start-up does not count. Peak memory is the operating
system's account of the finished process. Machines are noisy: the ratio to the loop without Beam, which runs in the
same rounds, says more than a rate. Kernels are NumPy's, unless LDP_BEAM_LOOPS says otherwise.
"""

from __future__ import annotations

import argparse
import multiprocessing
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from benchmarks import harness

CASES = (
    "collect pckv-ue",
    "loop pckv-ue",
    "collect pckv-grr",
    "loop pckv-grr",
    "collect pckv-ue pairs",
    "collect pckv-ue avro",
)
#: Writing Avro record by record takes a minute for ten million people.
AVRO_SHARE = 4
DEFINITION = (
    'name = "b"\nmechanism = "{}"\nepsilon = 1\npadding = 1\n[keys]\ncount = 100\n[values]\nrange = [-1.0, 1.0]\n'
)


def main(argv: Sequence[str] | None = None) -> int:
    """Run all cases and print the table."""
    parser = harness.options(__doc__)
    parser.add_argument("--small", type=float, default=2, help="million users of the small input")
    parser.add_argument("--large", type=float, default=8, help="million users of the large input")
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--case", action="append", choices=CASES, help="only this one; may be given several times")
    parser.add_argument("--loop", nargs=2, help=argparse.SUPPRESS)
    given = parser.parse_args(argv)
    harness.use_loops("numpy")
    if given.loop:
        _loop(*given.loop)
        return 0
    if given.smoke:
        given.small, given.large, given.repeats = 0.001, 0.02, 1
    sizes = (round(given.small * 1e6), round(given.large * 1e6))
    with tempfile.TemporaryDirectory(prefix="ldp-beam-bench-") as folder:
        result = _measure(Path(folder), sizes, given.repeats, tuple(given.case or CASES))
    _print(result)
    harness.write(given.json, result)
    return 0


def _measure(folder: Path, sizes: tuple[int, int], repeats: int, chosen: tuple[str, ...]) -> dict[str, object]:
    for mechanism in ("pckv-ue", "pckv-grr"):
        (folder / f"{mechanism}.toml").write_text(DEFINITION.format(mechanism))
    for users in sizes:
        _write_inputs(folder, users, chosen)
    runs: dict[str, dict[int, list[tuple[float, float]]]] = {
        case: {_users(case, n): [] for n in sizes} for case in chosen
    }
    for _ in range(repeats):
        for case in chosen:
            for users in runs[case]:
                runs[case][users].append(_run(folder, case, users))
    return {"users": sizes, "repeats": repeats, "cases": {case: _figures(runs[case]) for case in chosen}}


def _users(case: str, users: int) -> int:
    return users // AVRO_SHARE if case.endswith("avro") else users


def _write_inputs(folder: Path, users: int, chosen: tuple[str, ...]) -> None:
    common = ["simulate", "--population", "uniform", "--keys", "100", "--json"]
    command = [*common, "--users", str(users)]
    _ldp_beam(*command, "--output", str(folder / f"nested-{users}.parquet"))
    if any(case.endswith("avro") for case in chosen):
        fewer = _users("avro", users)
        _ldp_beam(*common, "--users", str(fewer), "--output", str(folder / f"nested-{fewer}.avro"))
    if not any(case.endswith("pairs") for case in chosen):
        return
    _ldp_beam(*command, "--layout", "pairs", "--output", str(folder / "sorted.parquet"), "--overwrite")
    # A process inherits its parent's peak memory until it starts its own program: keep this one small.
    shuffle = multiprocessing.get_context("spawn").Process(target=_shuffle, args=(folder, users))
    shuffle.start()
    shuffle.join()
    (folder / "sorted.parquet").unlink()


def _shuffle(folder: Path, users: int) -> None:
    rows = pq.read_table(folder / "sorted.parquet")
    order = np.random.default_rng(0).permutation(len(rows))
    pq.write_table(rows.take(pa.array(order)), folder / f"pairs-{users}.parquet", row_group_size=1 << 17)


def _ldp_beam(*arguments: str) -> None:
    subprocess.run([sys.executable, "-m", "ldp_beam.pipelines", *arguments], check=True, stdout=subprocess.DEVNULL)


def _run(folder: Path, case: str, users: int) -> tuple[float, float]:
    """Run a case in a process of its own; return seconds and peak memory in MB."""
    kind, mechanism, *layout = case.split()
    definition = str(folder / f"{mechanism}.toml")
    name = {"pairs": f"pairs-{users}.parquet", "avro": f"nested-{users}.avro"}
    records = str(folder / name.get("".join(layout), f"nested-{users}.parquet"))
    command = [sys.executable, "-m", "benchmarks.collect", "--loop", definition, records]
    if kind == "collect":
        output = str(folder / "out")
        options = ["--input", records, "--output", output, "--overwrite", "--json"]
        command = [sys.executable, "-m", "ldp_beam.pipelines", "collect", "--collection", definition, *options]
    seconds, _, memory = harness.run_measured(command)
    return seconds, memory


def _figures(runs: dict[int, list[tuple[float, float]]]) -> dict[str, float]:
    sizes = sorted(runs)
    small, large = (statistics.median(seconds for seconds, _ in runs[n]) for n in sizes)
    return {
        "seconds_small": round(small, 2),
        "seconds_large": round(large, 2),
        "million_users_a_second": round((sizes[1] - sizes[0]) / (large - small) / 1e6, 3),
        "peak_mb_small": round(max(memory for _, memory in runs[sizes[0]])),
        "peak_mb_large": round(max(memory for _, memory in runs[sizes[1]])),
    }


def _loop(definition: str, records: str) -> None:
    """The same work without Beam: read, validate, perturb, count, estimate, one batch after another."""
    from ldp_beam.mechanisms import Secret
    from ldp_beam.schemas.records import Columns
    from ldp_beam.transforms.collection import Collection
    from ldp_beam.transforms.estimate import estimate_counts
    from ldp_beam.transforms.inputs import inspect_records, slices
    from ldp_beam.transforms.prepare import Preparer
    from ldp_beam.transforms.record_files import read_slice

    collection, secret = Collection.load(definition), Secret.new()
    mechanism = collection.mechanism
    stream = secret.stream(fingerprint=collection.fingerprint)
    preparer = Preparer(collection.definition, secret.users())
    counts = mechanism.zero()
    for part in slices(inspect_records([records], Columns(), has_values=True)):
        for raw in read_slice(part, Columns()):
            people, _, _ = preparer.prepare_nested(raw)
            counts = mechanism.count(mechanism.perturb(people, stream), into=counts)
    estimate_counts(collection, counts)


def _print(result: dict[str, object]) -> None:
    small, large = result["users"]  # type: ignore[misc]
    print(f"slopes between {small:,} and {large:,} users (Avro a quarter), median of {result['repeats']} runs each")
    print(f"{'case':24}{'M users/s':>10}{'seconds':>16}{'peak MB':>12}")
    cases: dict[str, dict[str, float]] = result["cases"]  # type: ignore[assignment]
    for case, f in cases.items():
        seconds = f"{f['seconds_small']:.1f} … {f['seconds_large']:.1f}"
        memory = f"{f['peak_mb_small']:.0f} … {f['peak_mb_large']:.0f}"
        print(f"{case:24}{f['million_users_a_second']:10.2f}{seconds:>16}{memory:>12}")
    for mechanism in ("pckv-ue", "pckv-grr"):
        if not {f"loop {mechanism}", f"collect {mechanism}"} <= cases.keys():
            continue
        loop, job = (cases[f"{kind} {mechanism}"]["million_users_a_second"] for kind in ("loop", "collect"))
        print(f"{mechanism}: collect takes {loop / job:.2f} times the loop without Beam, a user")


if __name__ == "__main__":
    sys.exit(main())
