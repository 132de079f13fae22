"""Where the time of the main job goes, step by step, and what of it is Beam's own.

    python -m benchmarks.share [--users 8] [--smoke] [--json FILE]

`ldp-beam collect` with PCKV-UE and 100 keys reads a nested Parquet file on one thread while py-spy looks at its stack
a few hundred times a second. A look counts for the step of ours that was running, or for Beam where none was; starting
up and writing the result are left out. py-spy stops the job while it looks, so shares are right and times are not.
"""

from __future__ import annotations

import collections
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from benchmarks import harness

#: The steps, and what of a stack tells that one runs: the deepest frame in one of these modules decides.
STEPS = {
    "read": ("transforms/record_files", "transforms/raw_columns", "transforms/avro"),
    "look up keys": ("schemas/keys", "schemas/text_index"),
    "digest user ids": ("UserDigests",),
    "check pairs and values": (
        "transforms/prepare",
        "transforms/pair_rules",
        "transforms/faults",
        "mechanisms/records",
    ),
    "count distinct users": ("transforms/distinct",),
    "digest records": ("Stream.seeds",),
    "sample and perturb": ("perturb", "mechanisms/pckv/sampling"),
    "count": ("count (", "valid (", "column_sums", "transforms/count"),
    "hand batches on": ("transforms/batches", "transforms/record_batches", "schemas/tally"),
}
BEAM = "Beam's own"
#: What is running while elements are processed.
_PROCESSING = "process_bundle ("
DEFINITION = (
    'name = "b"\nmechanism = "pckv-ue"\nepsilon = 1\npadding = 1\n[keys]\ncount = 100\n[values]\nrange = [-1.0, 1.0]\n'
)


def main(argv: Sequence[str] | None = None) -> int:
    """Measure, print and write."""
    parser = harness.options(__doc__)
    parser.add_argument("--users", type=float, default=8, help="millions")
    parser.add_argument("--rate", type=int, default=400, help="looks a second")
    given = parser.parse_args(argv)
    users = 200_000 if given.smoke else round(given.users * 1e6)
    with tempfile.TemporaryDirectory(prefix="ldp-beam-bench-") as name:
        found = steps(list(_looks(Path(name), users, given.rate)))
    total = sum(found.values())
    shares = {step: round(found[step] / total, 4) for step in (*STEPS, BEAM)}
    for step, share in shares.items():
        print(f"{step:25}{share:7.1%}")
    harness.write(given.json, {"users": users, "looks": total, "shares": shares})
    return 0


def _looks(folder: Path, users: int, rate: int) -> Iterator[tuple[list[str], int]]:
    """Run the job under py-spy; yield each stack that was seen, and how often."""
    program = [sys.executable, "-m", "ldp_beam.pipelines"]
    records, stacks, collection = folder / "people.parquet", folder / "stacks.txt", folder / "c.toml"
    collection.write_text(DEFINITION, encoding="utf-8")
    people = ["simulate", "--population", "uniform", "--users", str(users), "--output", str(records), "--json"]
    subprocess.run([*program, *people], check=True, stdout=subprocess.DEVNULL)
    job = ["collect", "--collection", str(collection), "--input", str(records), "--output", str(folder / "r"), "--json"]
    spy = [str(Path(sys.executable).with_name("py-spy")), "record", "--rate", str(rate), "--format", "raw"]
    done = subprocess.run(
        [*spy, "--output", str(stacks), "--", *program, *job], capture_output=True, text=True, check=False
    )
    if done.returncode:
        raise SystemExit(f"py-spy ended with exit code {done.returncode}: {done.stderr}")
    for line in stacks.read_text(encoding="utf-8").splitlines():
        stack, _, times = line.rpartition(" ")
        yield stack.split(";"), int(times)


def steps(looks: Sequence[tuple[list[str], int]]) -> collections.Counter[str]:
    """Count looks by step; only those at which elements were processed."""
    found: collections.Counter[str] = collections.Counter()
    for stack, times in looks:
        if any(_PROCESSING in frame for frame in stack):
            found[_step(stack)] += times
    return found


def _step(stack: list[str]) -> str:
    for frame in reversed(stack):
        for step, marks in STEPS.items():
            if any(mark in frame for mark in marks):
                return step
    return BEAM


def draw(results: dict[str, Any], path: Path) -> None:
    """Draw the shares as one bar each."""
    shown, axes = harness.figure(figsize=(7, 3.4))
    shares = results["shares"]
    axes.barh(list(shares)[::-1], [100 * share for share in shares.values()][::-1])
    axes.set(xlabel="% of the time in which elements are processed")
    harness.save_figure(shown, path)


if __name__ == "__main__":
    sys.exit(main())
