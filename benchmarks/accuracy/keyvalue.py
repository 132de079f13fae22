"""The key-value methods that the figures compare: one collection of each, its counts drawn from their law."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from ldp_beam.mechanisms import (
    PCKV,
    Estimates,
    MultiRound,
    frequency_variance,
    make_mechanism,
    mean_bias,
    mean_variance,
)
from ldp_beam.mechanisms.pckv import simulation as pckv_simulation
from ldp_beam.mechanisms.privkv import simulation as privkv_simulation

from .figures import Row, random_of
from .people import People

__all__ = ["EARLIER_METHODS", "METHODS", "PCKV_METHODS", "Method", "measure", "squared_errors", "theory"]


@dataclass(frozen=True, kw_only=True)
class Method:
    """One way to collect key-value data.

    Attributes:
        label: name in the legends.
        mechanism: its name in a collection definition.
        more: further parameters.
        estimator: estimator, where it is not the default.
    """

    label: str
    mechanism: str
    more: Mapping[str, Any] = field(default_factory=dict)
    estimator: str | None = None

    def make(self, epsilon: float, keys: int, padding: int = 1) -> Any:
        """Make the mechanism."""
        given = {"padding": padding} if self.mechanism.startswith("pckv") else {}
        return make_mechanism(self.mechanism, epsilon=epsilon, keys=keys, **given, **self.more)

    def collect(self, mechanism: Any, people: People, random: np.random.Generator) -> Estimates:
        """Collect once."""
        if isinstance(mechanism, PCKV):
            sampled = people.sample(mechanism.padding, random)
            return mechanism.estimate(pckv_simulation.draw_counts(mechanism, sampled, random), self.estimator)
        population = privkv_simulation.KeyPopulation(
            frequency=people.frequency, mean=np.nan_to_num(people.mean), values=people.values
        )
        if isinstance(mechanism, MultiRound):
            state = privkv_simulation.draw_state(mechanism, population, people.users, random)
            return mechanism.estimate_state(state, self.estimator)
        counts = privkv_simulation.draw_counts(mechanism, population, people.users, random)
        estimates: Estimates = mechanism.estimate(counts, self.estimator)
        return estimates


PCKV_METHODS = (Method(label="PCKV-UE", mechanism="pckv-ue"), Method(label="PCKV-GRR", mechanism="pckv-grr"))
EARLIER_METHODS = (
    Method(label="PrivKVM, 1 round", mechanism="privkvm", more={"rounds": 1}),
    Method(label="PrivKVM, 6 rounds", mechanism="privkvm", more={"rounds": 6}),
    Method(
        label="PrivKVM, 5 of 6 rounds virtual",
        mechanism="privkv",
        more={"virtual_rounds": 5},
        estimator="virtual-same-key",
    ),
    Method(label="KVUE", mechanism="kvue"),
)
METHODS = (*PCKV_METHODS, *EARLIER_METHODS)


def squared_errors(estimates: Estimates, people: People, some: Any) -> tuple[float, float]:
    """Mean squared errors of frequencies and means over some keys; a mean that was not estimated counts as 0."""
    assert estimates.mean is not None
    frequency = np.nan_to_num(estimates.frequency[some]) - people.frequency[some]
    mean = (np.nan_to_num(estimates.mean) - people.mean)[some]
    return float(np.mean(frequency**2)), float(np.nanmean(mean**2))


def measure(
    name: str,
    methods: Iterable[Method],
    epsilons: Iterable[float],
    people_of: Callable[[np.random.Generator], People],
    repeats: int,
    *,
    padding: int = 1,
    some: Any = slice(None),
) -> Iterator[Row]:
    """Yield one row a method and budget: mean squared errors over repeats, with the spread of one repeat.

    Args:
        name: name of the experiment; it seeds the draws.
        methods: what is compared.
        epsilons: budgets.
        people_of: draws the users of a repeat.
        repeats: how often.
        padding: padding length, of PCKV.
        some: the keys over which errors are averaged.
    """
    everybody = [people_of(random_of(f"{name}: people", repeat)) for repeat in range(repeats)]
    for method in methods:
        for epsilon in epsilons:
            mechanism = method.make(epsilon, everybody[0].keys, padding)
            errors = np.array(
                [
                    squared_errors(
                        method.collect(mechanism, people, random_of(f"{name}: {method.label}", i)), people, some
                    )
                    for i, people in enumerate(everybody)
                ]
            )
            expected = [theory(mechanism, people, some) for people in everybody[:20]]
            closed = np.mean(expected, axis=0).tolist() if expected[0] else [None, None]
            yield {
                "method": method.label,
                "padding": padding,
                "epsilon": epsilon,
                "mse_frequency": errors[:, 0].mean(),
                "mse_mean": errors[:, 1].mean(),
                "sd_frequency": errors[:, 0].std(ddof=1) if repeats > 1 else None,
                "sd_mean": errors[:, 1].std(ddof=1) if repeats > 1 else None,
                "theory_frequency": closed[0],
                "theory_mean": closed[1],
                "repeats": repeats,
            }


def theory(mechanism: Any, people: People, some: Any = slice(None)) -> tuple[float, float] | tuple[()]:
    """Squared errors of the raw figures by PCKV's closed forms, averaged over keys; empty for the other methods.

    Where the people are drawn from a population whose records may be longer than the padding, what that does to the
    expected figures is part of the error.
    """
    if not isinstance(mechanism, PCKV):
        return ()
    law, ell, n = mechanism.probabilities, mechanism.padding, people.users
    f, m = people.frequency[some], people.mean[some]
    if people.shares is None:
        expected_f, expected_m = f, m
    else:
        shares = people.shares(ell)
        plus, minus = ell * shares.positive[some], ell * shares.negative[some]
        expected_f = plus + minus
        expected_m = np.divide(plus - minus, expected_f, out=np.zeros_like(m), where=expected_f > 0)
    frequency = frequency_variance(law, ell, expected_f, n, fixed=people.shares is None) + (expected_f - f) ** 2
    held = f > 0
    given = (law, ell, expected_f[held], expected_m[held], n)
    mean = mean_variance(*given) + (mean_bias(*given) + expected_m[held] - m[held]) ** 2
    return float(np.mean(frequency)), float(np.mean(mean))
