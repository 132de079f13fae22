"""The exact frequencies and means of the populations agree with the populations themselves."""

import itertools

import numpy as np
import pytest
from ldp_beam.mechanisms.population_law import draw_values, exact_frequency, exact_mean
from ldp_beam.mechanisms.populations import POPULATIONS, Population, Truth


@pytest.mark.parametrize("name", POPULATIONS)
def test_people_of_the_population_have_them(name):
    """65,536 users with a seed that never changes: all within 5 standard errors."""
    people, truth = Population(name=name, keys=40, seed=11), Truth(keys=40)
    for pairs in people.batches(65_536):
        truth.add(pairs)
    expected = exact_frequency(people)
    spread = np.sqrt(expected * (1 - expected) / truth.users)
    assert (np.abs(truth.frequency() - expected) <= 5 * spread).all()
    held = truth.holders > 0
    assert (np.abs(truth.mean() - exact_mean(people))[held] <= 5 * 0.2 / np.sqrt(truth.holders[held]) + 1e-12).all()


@pytest.mark.parametrize("pairs", [1, 2, 3, 4, 5])
def test_frequencies_by_enumeration(pairs):
    """Keys drawn one after another without replacement: all orders of five keys."""
    people = Population(name="power-law", keys=5, seed=0, pairs_per_user=pairs)
    weights, expected = people.weights(), np.zeros(5)
    for order in itertools.permutations(range(5), pairs):
        left, chance = 1.0, 1.0
        for key in order:
            chance *= weights[key] / left
            left -= weights[key]
        expected[list(order)] += chance
    assert exact_frequency(people) == pytest.approx(expected, abs=1e-9)


@pytest.mark.parametrize("name", ["gauss", "power-law", "linear"])
@pytest.mark.parametrize("keys", [50, 1000])
def test_frequencies_add_up_to_the_keys_of_a_user(name, keys):
    assert exact_frequency(Population(name=name, keys=keys, seed=0)).sum() == pytest.approx(10, abs=1e-5)


def test_values_of_holders_have_those_means():
    people = Population(name="linear", keys=20, seed=3)
    keys = np.repeat(np.arange(20), 40_000)
    found = draw_values(people, keys, np.random.default_rng(1)).reshape(20, -1)
    assert np.abs(found).max() <= 1
    assert (np.abs(found.mean(axis=1) - exact_mean(people)) < 5 * 0.2 / np.sqrt(40_000)).all()
    alike = Population(name="gg", keys=20, seed=3)
    assert np.array_equal(draw_values(alike, np.arange(20), np.random.default_rng(1)), exact_mean(alike))
