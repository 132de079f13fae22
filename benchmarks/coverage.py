"""How often the 95 % intervals hold the truth, over a grid of mechanisms, budgets, users, frequencies and means.

The users are a random sample of a population, drawn anew in each repeat; counts are drawn from their exact law
(`ldp_beam.mechanisms.pckv.simulation`). A key whose approximation is not to be trusted is flagged "few-holders". A cell
of the grid where that flag is raised in fewer than one repeat of a hundred passes if between 93 and 97 % of the repeats
hold the truth. Two kinds of cells may exceed 97 % and must only not fall below 93 %: those where the flag is raised
more often (but in fewer than half of the repeats), since a mean's interval is the whole range while its key may have
no holder; and means of exactly 1 or -1, where clipping to the range makes intervals one-sided. Coverage among repeats
without the flag alone is printed beside it.

    python -m benchmarks.coverage [--repeats 4000] [--smoke] [--json FILE]
"""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator, Sequence

import numpy as np
from ldp_beam.mechanisms import PCKV, make_mechanism, population_generator
from ldp_beam.mechanisms.pckv.simulation import draw_counts, draw_sampled

from benchmarks import harness

PADDING = 5
FREQUENCIES = (0.5, 0.3, 0.1, 0.05, 0.02, 0.01)
MEANS = (-0.9, 0.0, 0.5, 1.0)
EPSILONS = (0.5, 1, 2, 4, 6)
USERS = (100_000, 1_000_000)
LOW, HIGH = 0.93, 0.97
FIGURES = ("frequency", "mean")
#: A cell is judged where at least this share of the repeats is without the flag, from both sides where nearly all are.
CLAIMED, NEARLY_ALWAYS = 0.5, 0.99

#: Every frequency with every mean; together they stay below the padding.
TRUE_FREQUENCY = np.repeat(FREQUENCIES, len(MEANS))
TRUE_MEAN = np.tile(MEANS, len(FREQUENCIES))


def mechanisms(epsilon: float, users: int) -> Iterator[tuple[str, PCKV]]:
    """Every mechanism of the grid, by its label."""
    common = {"epsilon": epsilon, "keys": len(TRUE_FREQUENCY), "padding": PADDING}
    prior = {"prior_frequency": 0.1, "prior_mean": 0.5, "prior_users": users}
    yield "pckv-ue", make_mechanism("pckv-ue", **common)
    yield "pckv-ue numerical", make_mechanism("pckv-ue", allocation="numerical", **common, **prior)
    yield "pckv-grr", make_mechanism("pckv-grr", **common)


def coverage(mechanism: PCKV, users: int, repeats: int, stream: int) -> dict[str, np.ndarray]:
    """Share of repeats without the flag; and that hold the truth, of all and of those without; (keys,) each."""
    random = population_generator(4, stream)
    claimed = np.zeros(mechanism.keys)
    held = {f"{name}_{which}": np.zeros(mechanism.keys) for name in FIGURES for which in ("coverage", "unflagged")}
    for _ in range(repeats):
        sampled = draw_sampled(TRUE_FREQUENCY, TRUE_MEAN, mechanism.padding, users, random)
        estimates = mechanism.estimate(draw_counts(mechanism, sampled, random))
        trusted = ~estimates.flags["few-holders"]
        claimed += trusted
        for name, truth in (("frequency", TRUE_FREQUENCY), ("mean", TRUE_MEAN)):
            low, high = getattr(estimates, f"{name}_low"), getattr(estimates, f"{name}_high")
            inside = (low <= truth) & (truth <= high)
            held[f"{name}_coverage"] += inside
            held[f"{name}_unflagged"] += trusted & inside
    of = {"coverage": repeats, "unflagged": np.maximum(claimed, 1)}
    shares = {name: number / of[name.split("_")[1]] for name, number in held.items()}
    return {"claimed": claimed / repeats, **shares}


def passes(row: dict, figure: str) -> bool:
    """Whether a cell's coverage is where it should be."""
    share = row[f"{figure}_coverage"]
    one_sided = row["claimed"] < NEARLY_ALWAYS or (figure == "mean" and abs(row["mean"]) == 1.0)
    return bool(share >= LOW and (one_sided or share <= HIGH))


def rows(repeats: int) -> Iterator[dict]:
    """One row for each cell of the grid."""
    stream = 0
    for epsilon in EPSILONS:
        for users in USERS:
            for label, mechanism in mechanisms(epsilon, users):
                found = coverage(mechanism, users, repeats, stream)
                stream += 1
                for key in range(mechanism.keys):
                    yield {
                        "mechanism": label,
                        "epsilon": epsilon,
                        "users": users,
                        "frequency": float(TRUE_FREQUENCY[key]),
                        "mean": float(TRUE_MEAN[key]),
                        **{name: float(share[key]) for name, share in found.items()},
                    }


def main(argv: Sequence[str] | None = None) -> int:
    parser = harness.options(__doc__)
    parser.add_argument("--repeats", type=int, default=4000)
    options = parser.parse_args(argv)
    if options.smoke:
        options.repeats = 20
    found = list(rows(options.repeats))
    judged = [row for row in found if row["claimed"] >= CLAIMED]
    print(f"{len(found)} cells, {len(judged)} of them without the flag in most of {options.repeats} repeats")
    missed = 0
    for figure in FIGURES:
        name = f"{figure}_coverage"
        values = np.array([row[name] for row in judged])
        outside = [row for row in judged if not passes(row, figure)]
        strict = np.array([row[name] for row in judged if row["claimed"] >= NEARLY_ALWAYS and abs(row["mean"]) < 1.0])
        missed += len(outside)
        claims = np.array([row[f"{figure}_unflagged"] for row in judged])
        print(
            f"{figure}: {strict.min():.4f} to {strict.max():.4f} in {len(strict)} cells with hardly a flag, "
            f"{values.min():.4f} to {values.max():.4f} in all {len(values)}; among repeats without the flag "
            f"{claims.min():.4f} to {claims.max():.4f}; failed: {len(outside)}"
        )
        for row in outside:
            print("  ", json.dumps(row))
    harness.write(options.json, {"repeats": options.repeats, "missed": missed, "cells": found})
    return 0 if missed == 0 or options.smoke else 1


if __name__ == "__main__":
    sys.exit(main())
