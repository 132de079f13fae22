"""Bytes that cross a shuffle, from the engine's own metrics.

    python -m benchmarks.shuffle [--users 2] [--smoke] [--json FILE]

`ldp-beam collect` on the local runner reads made-up people. For every grouping of the pipeline the runner reports how
many elements go in and their encoded size, which is what any engine has to move; where it combines before it groups,
what comes out of that. Three things cross: names of file slices, partial counts and summaries, and, where rows of one
user have to be brought together on a cluster, the rows. The pairs layout is measured that way, through `--merge-users`.
"""

from __future__ import annotations

import contextlib
import sys
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from unittest import mock

from apache_beam.metrics import monitoring_infos
from ldp_beam.mechanisms import Secret
from ldp_beam.pipelines import collect as collect_module
from ldp_beam.pipelines import running
from ldp_beam.pipelines.client import RecordSource
from ldp_beam.pipelines.collect import ClientRun, collect
from ldp_beam.schemas.manifest import Randomness
from ldp_beam.transforms.collection import Collection

from benchmarks import harness

DEFINITION = (
    'name = "s"\nmechanism = "{}"\nepsilon = 1\npadding = 1\n[keys]\ncount = {}\n[values]\nrange = [-1.0, 1.0]\n'
)
#: Mechanism, keys, whether rows are brought together by user.
CASES = (
    ("pckv-ue", 100, False),
    ("pckv-ue", 10_000, False),
    ("pckv-grr", 100, False),
    ("pckv-grr", 1_000_000, False),
    ("pckv-ue", 100, True),
)
_GROUPING = "beam:transform:group_by_key:v1"
_COMBINING = "beam:transform:combine_per_key:v1"


def main(argv: Sequence[str] | None = None) -> int:
    """Measure, print and write."""
    parser = harness.options(__doc__)
    parser.add_argument("--users", type=float, default=2, help="millions")
    given = parser.parse_args(argv)
    users, cases = round(given.users * 1e6), CASES
    if given.smoke:
        users, cases = 2000, (("pckv-ue", 100, False), ("pckv-ue", 100, True))
    found = []
    for mechanism, keys, pairs in cases:
        groupings = _shuffled(mechanism, keys, users, pairs)
        total = sum(size for size, _ in groupings.values())
        layout = "pairs" if pairs else "nested"
        print(f"{mechanism:9}{keys:>10,} keys {layout:7}{total / users:10.3f} bytes a user, {total / 1e6:8.2f} MB")
        for name, (size, elements) in sorted(groupings.items(), key=lambda item: -item[1][0]):
            print(f"    {name:40}{size:>14,.0f} bytes in {elements:,} elements")
        found.append(
            {
                "mechanism": mechanism,
                "keys": keys,
                "layout": layout,
                "bytes": round(total),
                "bytes_a_million_users": round(total / users * 1e6),
                "groupings": {n: {"bytes": round(size), "elements": k} for n, (size, k) in groupings.items()},
            }
        )
    harness.write(given.json, {"users": users, "cases": found})
    return 0


def _shuffled(mechanism: str, keys: int, users: int, pairs: bool) -> dict[str, tuple[float, int]]:
    """Run a job; return bytes and elements that go into each grouping, by its name."""
    with tempfile.TemporaryDirectory(prefix="ldp-beam-bench-") as folder, _watched() as seen:
        path = Path(folder) / "c.toml"
        path.write_text(DEFINITION.format(mechanism, keys), encoding="utf-8")
        people = [f"simulate:uniform,users={users},keys={keys}"]
        run = ClientRun(
            collection=Collection.load(path),
            source=RecordSource(patterns=people, merge_users=pairs),
            secret=Secret.from_seed(1),
            randomness=Randomness(source="seed", private=False, secret_id="", period=""),
        )
        collect(run, Path(folder) / "result")
    (pipeline, result) = seen[-1]
    return _groupings(pipeline, _sizes(result))


@contextmanager
def _watched() -> Iterator[list[tuple[Any, Any]]]:
    """Keep pipelines and results, and let rows cross the shuffle as they do on a cluster."""
    seen: list[tuple[Any, Any]] = []

    def run(pipeline: Any) -> None:
        result = pipeline.run()
        seen.append((pipeline.to_runner_api(), result))
        result.wait_until_finish()

    no_folder = contextlib.nullcontext(None)
    with (
        mock.patch.object(running, "_run", run),
        mock.patch.object(collect_module, "spill_folder", return_value=no_folder),
    ):
        yield seen


def _sizes(result: Any) -> dict[str, tuple[float, int]]:
    """Return the estimated bytes of every collection, and its elements, as the runner reports them."""
    means: dict[str, float] = {}
    counts: dict[str, int] = {}
    for info in result.monitoring_infos():
        name = info.labels.get("PCOLLECTION", "")
        if info.urn == monitoring_infos.SAMPLED_BYTE_SIZE_URN:
            means[name] = float(monitoring_infos.extract_metric_result_map_value(info).mean)
        elif info.urn == monitoring_infos.ELEMENT_COUNT_URN:
            counts[name] = counts.get(name, 0) + int(monitoring_infos.extract_metric_result_map_value(info))
    return {name: (mean * counts[name], counts[name]) for name, mean in means.items() if counts.get(name)}


def _groupings(proto: Any, sizes: dict[str, tuple[float, int]]) -> dict[str, tuple[float, int]]:
    """Return what goes into each grouping; of a lifted one what goes into its combination, which is no less."""
    found: dict[str, tuple[float, int]] = {}
    parts = proto.components.transforms
    combined = {child for part in parts.values() if part.spec.urn == _COMBINING for child in part.subtransforms}
    for name, part in parts.items():
        grouping = part.spec.urn == _GROUPING and name not in combined
        if grouping or part.spec.urn == _COMBINING:
            (before,) = part.inputs.values()
            if before in sizes:
                found[part.unique_name] = sizes[before]
    return found


if __name__ == "__main__":
    sys.exit(main())
