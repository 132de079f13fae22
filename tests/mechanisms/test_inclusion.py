"""Who holds which key: the chances agree with all orders of few keys, with the exact populations, and with people."""

import itertools

import numpy as np
import pytest
from ldp_beam.mechanisms.expectation import Holdings
from ldp_beam.mechanisms.inclusion import inclusion
from ldp_beam.mechanisms.population_law import exact_frequency
from ldp_beam.mechanisms.populations import Population


@pytest.mark.parametrize("exponent", [0.0, 1.0, 3.0])
def test_chances_by_enumeration(exponent):
    """All orders of five keys, of which two are alike and share a class."""
    weights = np.array([1.0, 2.0, 2.0, 3.0, 4.0]) ** -exponent
    expected = np.zeros((6, 5))
    for pairs in range(1, 6):
        for order in itertools.permutations(range(5), pairs):
            left, chance = float(weights.sum()), 1.0
            for key in order:
                chance *= weights[key] / left
                left -= weights[key]
            expected[pairs, list(order)] += chance
    found = inclusion(weights[[0, 1, 3, 4]], np.array([1.0, 2.0, 1.0, 1.0]), 5)
    assert found == pytest.approx(expected[:, [0, 1, 3, 4]], abs=2e-9)


def test_chances_are_those_of_the_populations():
    people = Population(name="power-law", keys=60, seed=0, pairs_per_user=7)
    assert inclusion(people.weights(), np.ones(60), 7)[7] == pytest.approx(exact_frequency(people), abs=2e-9)


@pytest.mark.parametrize("exponent", [0.0, 1.0, 10.0])
def test_long_lists_add_up_and_grow(exponent):
    """Beyond the lengths that are exact as well; no chance exceeds 1, and more keys never make one smaller."""
    number = np.array([1.0, 4.0, 15.0, 80.0])
    found = inclusion(np.array([1.0, 3.0, 12.0, 60.0]) ** -exponent, number, 100)
    assert found @ number == pytest.approx(np.arange(101), abs=1e-6)
    assert found.max() <= 1.0
    # where the approximation begins there may be a small step
    assert np.diff(found, axis=0).min() > -0.004
    assert inclusion(np.ones(2), np.ones(2), 0).tolist() == [[0.0, 0.0]]


def test_a_padding_hides_more_of_rare_keys_than_of_frequent_ones():
    """People with one key and with eight, drawn with a fixed seed; within 5 standard errors."""
    random, people, keys = np.random.default_rng(7), 200_000, 12
    holdings = Holdings.of(np.array([0, 0.5, 0, 0, 0, 0, 0, 0, 0.5]), keys)
    clocks = random.standard_exponential((people, keys)) * np.arange(1.0, keys + 1.0)
    sizes = np.where(np.arange(people) % 2, 1, 8)
    held = clocks.argsort(axis=1).argsort(axis=1) < sizes[:, None]
    shown = held * np.minimum(1.0, 2 / sizes)[:, None]
    number = holdings.number.astype(int)
    assert number.sum() == keys
    for found, truth in ((holdings.frequency, held), (holdings.seen(2), shown)):
        expected = np.repeat(found, number)
        alike = number.repeat(number) == 1  # a larger class has the mean of its keys' weights
        doubt = truth.std(axis=0) / np.sqrt(people)
        assert (np.abs(truth.mean(axis=0) - expected)[alike] <= 5 * doubt[alike]).all()
    kept = holdings.seen(2) / holdings.frequency
    assert (np.diff(kept) < 0).all()
    assert kept[0] > kept[-1] + 0.1
