"""Frequencies, and counts and means on Beam: this package beside others, in one run.

1. GRR and OUE at 100 and 1,000 keys, epsilon 1: what clients and server do for users of one symbol each, up to the
   estimates, in users per second of processor time, one thread each. Each package is used the way its documentation
   tells for many users; ours includes the digest of every id, a pseudo-random function for each user and packed
   reports. Beside them stands plain NumPy with a generator that is not secret. Packages take turns, several rounds,
   each time in a fresh process that warms up first; the quickest batch of a round counts, ratios are medians over
   rounds.
2. Count and mean per key from one file of pairs: PipelineDP on Beam's local runner beside `ldp-beam collect`. A rate is
   the slope between two sizes, so that start-up does not count; whole times are there too. (PipelineDP adds noise at a
   trusted centre, `collect` at every client: the tasks are alike, the guarantees are not.)

Peers are installed from the package index, each into an environment of its own; where that fails the results say why.

    python -m benchmarks.peers [--rounds 5] [--only frequencies|beam] [--environments FOLDER] [--smoke] [--json FILE]
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from benchmarks import harness
from benchmarks.peers import beam_job
from benchmarks.peers.environments import PEERS, Environment, Missing, environment

FOLDER = Path(__file__).parent
ENVIRONMENTS = FOLDER.parent / "results" / "scratch" / "peers"
KEYS = (100, 1_000)
#: Ours by the case of the peers that it is compared with, and the times that it should be quicker than the best.
OURS = {"oue": ("oue", "pckv-ue"), "grr": ("grr", "pckv-grr")}
TARGETS = {("oue", 100): 15.0, ("oue", 1_000): 12.0, ("grr", 100): 8.0, ("grr", 1_000): 8.0}
REFERENCE, OWN = "plain numpy", "ldp-beam"
#: The same without the loops that Numba compiles.
OWN_PLAIN = "ldp-beam, NumPy"
#: Users of a batch, for 100 keys: about a tenth of a second each; more where a package takes whole arrays.
USERS = {
    "pure-ldp": {"grr": 20_000, "oue": 2_000},
    "multi-freq-ldpy": {"grr": 50_000, "oue": 20_000},
    "ldp-toolbox": {"grr": 50_000, "oue": 20_000},
    "opendp": {"grr": 1_000, "oue": 500},
    "trasgodp": {"grr": 65_536},
    REFERENCE: {"grr": 1_000_000, "oue": 100_000},
}
OWN_USERS = 262_144
BATCHES = 5
COLOURS = {OWN: "#4c6ef5", OWN_PLAIN: "#91a7ff", REFERENCE: "#adb5bd"}
ONE_THREAD = {f"{name}_NUM_THREADS": "1" for name in ("OMP", "OPENBLAS", "MKL", "NUMBA")}


class PeerFailedError(Exception):
    """A package is installed and does not run; says what it said last."""


def rate(python: Path, package: str, case: str, keys: int, smoke: bool) -> float:
    """Users per second of processor time, of the quickest batch of a fresh process."""
    users = OWN_USERS if package in (OWN, OWN_PLAIN) else USERS[package][case]
    if keys > 100 and case not in ("grr", "pckv-grr"):
        users = max(100, users // 8)
    users, batches = (500, 1) if smoke else (users, BATCHES)
    command = [str(python), str(FOLDER / "worker.py"), package, case, str(keys), str(users), str(batches)]
    ran = subprocess.run(command, capture_output=True, text=True, env={**os.environ, **ONE_THREAD})
    if ran.returncode:
        raise PeerFailedError((ran.stderr.strip().splitlines() or ["no message"])[-1])
    return users / max(min(json.loads(ran.stdout.splitlines()[-1])["seconds"]), 1e-9)


def frequencies(
    found: Mapping[str, Environment], rounds: int, smoke: bool, missing: dict[str, str]
) -> list[dict[str, Any]]:
    """Rates of every package on every task, round by round; a peer that fails joins those that are missing."""
    rows: list[dict[str, Any]] = []
    for keys in KEYS[:1] if smoke else KEYS:
        for case, ours in OURS.items():
            runs = [(p.package, case, found[p.package].python) for p in PEERS if case in p.cases and p.package in found]
            runs += [(REFERENCE, case, Path(sys.executable))]
            runs += [(name, own, Path(sys.executable)) for own in ours for name in (OWN, OWN_PLAIN)]
            part = [{"package": name, "case": own, "task": case, "keys": keys, "rates": []} for name, own, _ in runs]
            for _ in range(rounds):
                for row, (package, own, python) in zip(part, runs, strict=True):
                    try:
                        row["rates"].append(rate(python, package, own, keys, smoke))
                    except PeerFailedError as error:
                        if package in (OWN, OWN_PLAIN, REFERENCE):
                            raise
                        missing[package] = str(error)
            part = [row for row in part if len(row["rates"]) == rounds]
            _compare(part)
            rows += part
    return rows


def _compare(rows: list[dict[str, Any]]) -> None:
    """Add medians, and what ours is relative to the quickest peer, round by round."""
    for row in rows:
        row["users_per_second"] = statistics.median(row["rates"])
    peers = [row for row in rows if row["package"] not in (REFERENCE, OWN, OWN_PLAIN)]
    if not peers:
        return
    best = max(peers, key=lambda row: row["users_per_second"])
    for row in rows:
        row["times_best_peer"] = harness.ratio(row["rates"], best["rates"])
        if row["package"] in (OWN, OWN_PLAIN):
            row["target"] = TARGETS[row["task"], row["keys"]]
            row["best_peer"] = best["package"]


def show(results: Mapping[str, Any]) -> None:
    """Print the tables."""
    for row in results.get("frequencies", ()):
        target = f"target {row['target']:g}" if "target" in row else ""
        times = f"{row['times_best_peer']:.2f}" if "times_best_peer" in row else "-"
        rate_ = f"{row['users_per_second'] / 1e3:12,.1f}"
        print(
            f"{row['task']:4}{row['keys']:6,}  {row['package']:16}{row['case']:9}{rate_} k users/s{times:>8} {target}"
        )
    if "beam" in results:
        beam_job.show(results["beam"])
    for name, reason in results["missing"].items():
        print(f"{name} could not be installed or run: {reason}")


def main(argv: Sequence[str] | None = None) -> int:
    """Install the peers, measure, print, write."""
    parser = harness.options(__doc__)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--only", choices=("frequencies", "beam"), help="one part; of the other stored results stay")
    parser.add_argument("--environments", type=Path, default=ENVIRONMENTS, help="keeps the peers between runs")
    given = parser.parse_args(argv)
    all_of_them = {peer.package: environment(peer, given.environments) for peer in PEERS}
    found = {name: one for name, one in all_of_them.items() if isinstance(one, Environment)}
    missing = {name: one.reason for name, one in all_of_them.items() if isinstance(one, Missing)}
    results = {
        "versions": {name: one.versions for name, one in found.items()},
        "own_versions": harness.versions_of("numpy", "numba", "cryptography", "apache-beam"),
        "how": {peer.package: peer.how for peer in PEERS},
        "missing": missing,
        **_stored(given),
        **_measure(given, found, missing),
    }
    show(results)
    harness.write(given.json, results)
    return 0


def _stored(given: argparse.Namespace) -> dict[str, Any]:
    """Return the part that is not measured now, from the results that are there."""
    if given.only is None or given.json is None or not given.json.exists():
        return {}
    before = json.loads(given.json.read_text(encoding="utf-8"))
    other = "beam" if given.only == "frequencies" else "frequencies"
    return {name: before[name] for name in (other, f"{other}_machine") if name in before}


def _measure(given: argparse.Namespace, found: Mapping[str, Environment], missing: dict[str, str]) -> dict[str, Any]:
    parts: dict[str, Any] = {}
    if given.only != "beam":
        parts["frequencies"] = frequencies(found, 1 if given.smoke else given.rounds, given.smoke, missing)
        parts["frequencies_machine"] = harness.machine()  # the other part may be of another day
    if given.only != "frequencies" and "pipeline-dp" in found:
        parts["beam"] = beam_job.compare(found["pipeline-dp"].python, smoke=given.smoke)
        parts["beam_machine"] = harness.machine()
    return parts


def draw(results: Mapping[str, Any], path: Path) -> None:
    """Draw one panel for each task and number of keys, rates on a logarithmic axis."""
    rows = results.get("frequencies", [])
    tasks = [(case, keys) for case in ("oue", "grr") for keys in KEYS]
    shown, panels = harness.figure(ncols=2, nrows=2, figsize=(10, 6.5), sharex="row")
    for panel, (case, keys) in zip(panels.flat, tasks, strict=True):
        some = sorted(
            (row for row in rows if (row["task"], row["keys"]) == (case, keys)), key=lambda row: row["users_per_second"]
        )
        colours = [COLOURS.get(row["package"], "#868e96") for row in some]
        names = [f"{row['case'].upper()}, {row['package']}" if "target" in row else row["package"] for row in some]
        panel.barh(names, [row["users_per_second"] for row in some], color=colours)
        panel.set(xscale="log", title=f"{case.upper()}, {keys:,} keys", xlabel="users a second of processor time")
    harness.save_figure(shown, path)


if __name__ == "__main__":
    sys.exit(main())
