"""The populations GAUSS, PLAW and LNR, and one collection among them: estimates, errors, and the rounds behind them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import lru_cache
from typing import Literal

import numpy as np
import numpy.typing as npt
from ldp_beam.mechanisms import PCKV, Estimates, Mechanism, MultiRound, State
from ldp_beam.mechanisms.accuracy import pearson, relative_error, top_keys
from ldp_beam.mechanisms.pckv.simulation import draw_counts as draw_pckv
from ldp_beam.mechanisms.pckv.simulation import draw_sampled
from ldp_beam.mechanisms.population_law import draw_values, exact_frequency, exact_mean
from ldp_beam.mechanisms.populations import Population
from ldp_beam.mechanisms.privkv.drawn import DrawnKey
from ldp_beam.mechanisms.privkv.simulation import KeyPopulation, draw_counts, draw_state

__all__ = ["GAUSS", "HELD", "LNR", "PLAW", "SHAPES", "average", "collect", "errors", "kept", "people_of", "relative"]

F64 = npt.NDArray[np.float64]

GAUSS, PLAW, LNR = "GAUSS", "PLAW", "LNR"
SHAPES = {GAUSS: "gauss", PLAW: "power-law", LNR: "linear"}
#: Keys that every user holds; also the padding length of PCKV.
HELD = 10


@lru_cache(maxsize=64)
def _frequency(shape: str, keys: int) -> F64:
    return exact_frequency(Population(name=SHAPES[shape], keys=keys, seed=0))


def people_of(shape: str, keys: int, seed: int, means: Literal["uniform", "ranked"] = "uniform") -> KeyPopulation:
    """Return a population by its name in the paper; the seed decides the means of its keys."""
    people = Population(name=SHAPES[shape], keys=keys, seed=seed, means=means)
    return KeyPopulation(
        frequency=_frequency(shape, keys),
        mean=exact_mean(people),
        values=lambda which, random: draw_values(people, which, random),
    )


def collect(
    mechanism: Mechanism, estimator: str | None, people: KeyPopulation, users: int, random: np.random.Generator
) -> tuple[Estimates, State | None]:
    """Make one collection among users drawn from a population.

    Returns:
        The estimates, and the state after all rounds where the mechanism asks in rounds.
    """
    if isinstance(mechanism, MultiRound):
        state = draw_state(mechanism, people, users, random)
        return mechanism.estimate_state(state, estimator), state
    if isinstance(mechanism, PCKV):
        sampled = draw_sampled(people.frequency, people.mean, mechanism.padding, users, random)
        return mechanism.estimate(draw_pckv(mechanism, sampled, random), estimator), None
    assert isinstance(mechanism, DrawnKey)
    return mechanism.estimate(draw_counts(mechanism, people, users, random), estimator), None


def errors(found: Estimates, people: KeyPopulation) -> dict[str, float]:
    """Errors of one collection: of means, where one that does not exist counts as 0, and of frequencies."""
    assert found.mean is not None
    mean = np.nan_to_num(found.mean) - people.mean
    return {
        "mse_mean": float(np.mean(mean**2)),
        "l1_mean": float(np.mean(np.abs(mean))),
        **relative(found.frequency, people.frequency),
    }


def relative(found: F64, true: F64) -> dict[str, float]:
    """Errors of frequencies: mean square; median relative error over all keys, and over the most frequent tenth."""
    top = top_keys(true)
    estimate = np.nan_to_num(found)
    return {
        "mse_frequency": float(np.mean((estimate - true) ** 2)),
        "re_frequency": relative_error(estimate, true) or 0.0,
        "re_frequency_top": relative_error(estimate[top], true[top]) or 0.0,
    }


def kept(frequency: F64, mean: F64) -> float:
    """Pearson's correlation of frequencies and means over the keys; 0 where one of them does not vary."""
    return pearson(frequency, mean) or 0.0


def average(repeats: Sequence[Mapping[str, float]]) -> dict[str, float | None]:
    """Return the mean of every figure over repeats; of the squared error of means also its logarithm and error bar."""
    result: dict[str, float | None] = {name: float(np.mean([row[name] for row in repeats])) for name in repeats[0]}
    if "mse_mean" in repeats[0]:
        squares = [row["mse_mean"] for row in repeats]
        result["log_mse_mean"] = float(np.log10(np.mean(squares)))
        result["mse_mean_se"] = float(np.std(squares, ddof=1) / np.sqrt(len(squares))) if len(squares) > 1 else None
    return result
