"""Kernel speed: users perturbed and counted a second, on one core.

Includes what a client does for each user: digest of the integer id, seed, packed report. Each figure is the
best of several runs over one batch of 65,536 users (other work on the machine only makes it slower).

    python benchmarks/kernel.py [--json FILE]
"""

from __future__ import annotations

import argparse
import json
import time
from pathlib import Path

import numpy as np
from ldp_beam.mechanisms import PCKV, VALUE_ONE, Records, Secret, make_mechanism, population_generator

USERS = 65_536
CASES = (
    ("pckv-ue", 100, 3.5e6),
    ("pckv-ue", 1_000, 0.5e6),
    ("pckv-grr", 100, 15e6),
    ("pckv-grr", 1_000_000, None),
)


def population(keys: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    random = population_generator(1, 0)
    ids = random.integers(10_000_000, 99_999_999, USERS)
    values = random.integers(-VALUE_ONE, VALUE_ONE + 1, USERS)
    return ids, random.integers(0, keys, USERS).astype(np.int32), values


def users_a_second(mechanism: PCKV, repeats: int, seconds: float) -> float:
    secret = Secret.new()
    stream, digests = secret.stream(fingerprint="benchmark"), secret.users()
    ids, keys, values = population(mechanism.keys)
    offsets = np.arange(USERS + 1)
    counts, best, end = mechanism.zero(), float("inf"), time.perf_counter() + seconds
    for _ in range(repeats):
        start = time.perf_counter()
        records = Records(users=digests.integers(ids), offsets=offsets, keys=keys, values=values)
        counts = mechanism.count(mechanism.perturb(records, stream), counts)
        best = min(best, time.perf_counter() - start)
        if time.perf_counter() > end:
            break
    return USERS / best


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--json", type=Path, help="write the figures to this file")
    parser.add_argument("--seconds", type=float, default=3.0, help="time for each case")
    options = parser.parse_args()
    rows = []
    for name, keys, target in CASES:
        mechanism = make_mechanism(name, epsilon=1, keys=keys, padding=1)
        rate = users_a_second(mechanism, 1_000, options.seconds)
        goal = f"target {target / 1e6:4.1f}" if target else ""
        print(f"{name:9} d = {keys:9,}  {rate / 1e6:7.2f} M users/s  {1e9 / rate:7.1f} ns a user  {goal}")
        rows.append({"mechanism": name, "keys": keys, "users_per_second": rate, "target": target})
    if options.json:
        options.json.write_text(json.dumps(rows, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
