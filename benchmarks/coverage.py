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
Z95 = 1.959963984540054
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
    """Share of repeats without the flag; and that hold the truth, of all and of those without; (keys,) each.

    "mean_centred" is the coverage that intervals of the mean would have if they were centred on the raw ratio.
    """
    random = population_generator(4, stream)
    claimed = np.zeros(mechanism.keys)
    held = {f"{name}_{which}": np.zeros(mechanism.keys) for name in FIGURES for which in ("coverage", "unflagged")}
    held["mean_centred"] = np.zeros(mechanism.keys)
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
        held["mean_centred"] += ~(np.abs(estimates.mean_raw - TRUE_MEAN) > Z95 * estimates.mean_se)
    of = {"coverage": repeats, "centred": repeats, "unflagged": np.maximum(claimed, 1)}
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


def kinds(found: Sequence[dict]) -> dict[str, tuple[list[dict], str]]:
    """Cells that are judged alike, and which coverage of theirs is shown."""
    judged = [row for row in found if row["claimed"] >= CLAIMED]
    strict = [row for row in judged if row["claimed"] >= NEARLY_ALWAYS and abs(row["mean"]) < 1.0]
    return {
        "hardly a flag, and the mean not 1": (strict, "coverage"),
        "most repeats without the flag": (judged, "coverage"),
        "the same, of repeats without the flag": (judged, "unflagged"),
        "the same, means with intervals centred on the raw ratio": (judged, "centred"),
    }


def summary(found: Sequence[dict]) -> list[dict]:
    """Smallest and largest coverage of each kind of cells, and of each mechanism, epsilon and number of users."""
    parts = [({"cells": label}, *some) for label, some in kinds(found).items()]
    for name in dict.fromkeys((row["mechanism"], row["epsilon"], row["users"]) for row in found):
        head = dict(zip(("mechanism", "epsilon", "users"), name, strict=True))
        own = [row for row in kinds(found)["most repeats without the flag"][0] if head.items() <= row.items()]
        parts.append((head, own, "coverage"))
    rows = []
    for head, cells, which in parts:
        shares = {
            figure: [row[f"{figure}_{which}"] for row in cells if f"{figure}_{which}" in row] for figure in FIGURES
        }
        ends = {figure: [round(min(x), 4), round(max(x), 4)] if x else None for figure, x in shares.items()}
        rows.append({**head, "number": len(cells), **ends})
    return rows


def main(argv: Sequence[str] | None = None) -> int:
    parser = harness.options(__doc__)
    parser.add_argument("--repeats", type=int, default=4000)
    options = parser.parse_args(argv)
    if options.smoke:
        options.repeats = 20
    found = list(rows(options.repeats))
    outside = {
        figure: [row for row in found if row["claimed"] >= CLAIMED and not passes(row, figure)] for figure in FIGURES
    }
    missed = sum(map(len, outside.values()))
    shown = summary(found)
    print(f"{len(found)} cells, {options.repeats} repeats, {missed} failed; smallest and largest coverage:")
    for row in [*shown, *(row for some in outside.values() for row in some)]:
        print("  ", json.dumps(row))
    harness.write(options.json, {"repeats": options.repeats, "all": len(found), "missed": missed, "summary": shown})
    return 0 if missed == 0 or options.smoke else 1


if __name__ == "__main__":
    sys.exit(main())
