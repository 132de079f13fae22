"""Counts drawn at once follow the law of the counts of reports, proven against the law of the reports themselves.

The law of the simulation is not estimated: a stand-in for the generator walks through every number that could be
drawn, with its probability, so that the whole distribution of the counts comes out exactly.
"""

import itertools
from collections import Counter
from math import comb, factorial, prod

import numpy as np
import pytest
from ldp_beam.mechanisms import VALUE_ONE, Records, Secret, make_mechanism, population_generator
from ldp_beam.mechanisms.pckv.simulation import (
    Sampled,
    Shares,
    draw_counts,
    draw_sampled,
    draw_sampled_of,
    draw_sampled_shares,
    sampled_shares,
)
from ldp_beam.mechanisms.populations import Pairs

from tests.fixed_randomness import generator

NAMES = ("pckv-ue", "pckv-grr")
#: Users of two keys with values at the ends, by padding; one user of each set holds both keys, one none.
RECORDS = {
    1: [((0, 1), (1, -1)), ((0, -1),), ((1, 1),), ()],
    2: [((0, 1), (1, -1)), ((1, 1),), ()],
}


class Branches:
    """Stands for a generator: each draw takes one of its possible outcomes, `every` goes through all of them."""

    def __init__(self, path):
        self.path, self.sizes, self.weight = path, [], 1.0

    def choose(self, outcomes):
        outcomes = [(value, share) for value, share in outcomes if share > 0]
        place = len(self.sizes)
        value, share = outcomes[self.path[place] if place < len(self.path) else 0]
        self.sizes.append(len(outcomes))
        self.weight *= share
        return value

    def binomial(self, n, p):
        n, p = np.broadcast_arrays(n, p)
        drawn = [
            self.choose([(k, comb(int(m), k) * share**k * (1 - share) ** (int(m) - k)) for k in range(int(m) + 1)])
            for m, share in zip(n.ravel(), p.ravel(), strict=True)
        ]
        return np.array(drawn, dtype=np.int64).reshape(n.shape)

    def multinomial(self, n, shares):
        shares = np.asarray(shares)
        assert shares.sum() == pytest.approx(1.0, abs=1e-12)
        drawn = [self.choose(list(multinomial_law(int(m), shares))) for m in np.atleast_1d(n)]
        return np.array(drawn, dtype=np.int64).reshape(*np.shape(n), len(shares))

    def integers(self, low, high):
        return np.array([self.choose([(k, 1 / (top - low)) for k in range(low, top)]) for top in high])

    def random(self, size):
        return np.full(size, 0.5)  # below (1 + v) / 2 exactly where v is 1; values here are 1 or -1


def multinomial_law(n, shares):
    for first in itertools.combinations_with_replacement(range(len(shares)), n):
        cells = [first.count(j) for j in range(len(shares))]
        yield cells, factorial(n) / prod(map(factorial, cells)) * prod(s**c for s, c in zip(shares, cells, strict=True))


def every(experiment):
    """{outcome: probability} over all that a generator could give to an experiment, a function of it."""
    law, path = Counter(), []
    while True:
        branches = Branches(path)
        law[experiment(branches)] += branches.weight
        path = [*path, *[0] * (len(branches.sizes) - len(path))]
        while path and path[-1] + 1 == branches.sizes[len(path) - 1]:
            path.pop()
        if not path:
            return law
        path[-1] += 1


def support(mechanism, report):
    """The counts n1 and n2 of both keys that one report adds."""
    if mechanism.name == "pckv-ue":
        cells = report
    else:
        key, sign = report
        cells = [sign if k == key else 0 for k in range(2)]
    return tuple(int(c == 1) for c in cells) + tuple(int(c == -1) for c in cells)


def law_of_counts(mechanism, records, law_of):
    """{(n1, n1, n2, n2): probability} of the reports of some users, by convolution of their exact laws."""
    total = {(0, 0, 0, 0): 1.0}
    for record in records:
        one = Counter()
        for report, share in law_of(mechanism, record).items():
            one[support(mechanism, report)] += float(share)
        added = Counter()
        for counts, p in total.items():
            for more, q in one.items():
                added[tuple(x + y for x, y in zip(counts, more, strict=True))] += p * q
        total = added
    return total


def pairs_of(records):
    pairs = [pair for record in records for pair in record]
    return Pairs(
        offsets=np.cumsum([0, *map(len, records)]),
        keys=np.array([key for key, _ in pairs], dtype=np.int32),
        values=np.array([value for _, value in pairs], dtype=np.float64),
    )


def difference(law, other):
    return max(abs(law.get(counts, 0.0) - other.get(counts, 0.0)) for counts in {*law, *other})


@pytest.mark.parametrize("allocation", ["optimized", "naive"])
@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("padding", RECORDS)
def test_the_law_of_counts_is_that_of_reports(name, padding, allocation, law_of):
    """Given users, of whom one holds two keys, more than the padding of 1: every probability to 1e-12."""
    records = RECORDS[padding]
    mechanism = make_mechanism(name, epsilon="1.5", keys=2, padding=padding, allocation=allocation)
    pairs = pairs_of(records)

    def simulate(generator):
        cells = draw_counts(mechanism, draw_sampled_of(pairs, 2, padding, generator), generator).cells
        return (*cells["n1"].tolist(), *cells["n2"].tolist())

    law = every(simulate)
    assert sum(law.values()) == pytest.approx(1.0, abs=1e-12)
    assert difference(law, law_of_counts(mechanism, records, law_of)) < 1e-12
    other = make_mechanism(name, epsilon="1.51", keys=2, padding=padding, allocation=allocation)
    assert difference(law, law_of_counts(other, records, law_of)) > 1e-5


@pytest.mark.parametrize("padding", [1, 2, 5])
def test_users_drawn_from_a_population_sample_with_its_shares(padding):
    """The shares are those of one user drawn uniformly from the records and sampling as `draw_sampled_of` does."""
    records = [((0, 1), (1, -1)), ((1, 1),), (), ((0, -1), (1, 1))]
    shares = sampled_shares(pairs_of(records), 2, padding)
    expected = np.zeros(4)
    for record in records:
        law = every(lambda g, r=record: sampled_row(draw_sampled_of(pairs_of([r]), 2, padding, g)))
        expected += sum(np.array(row) * share for row, share in law.items()) / len(records)
    assert np.allclose([*shares.positive, *shares.negative], expected, atol=1e-15)
    many = every(lambda g: sampled_row(draw_sampled_shares(shares, 2, g)))
    assert sum(np.array(row) * share for row, share in many.items()) == pytest.approx(2 * expected)


def test_values_between_the_ends_count_towards_both_signs():
    shares = sampled_shares(Pairs(np.array([0, 1]), np.array([0], dtype=np.int32), np.array([0.5])), 1, 2)
    assert (shares.positive[0], shares.negative[0]) == (0.375, 0.125)
    law = every(lambda g: sampled_row(draw_sampled(np.array([0.5]), np.array([0.5]), padding=2, users=1, generator=g)))
    assert law == pytest.approx({(1, 0): 0.1875, (0, 1): 0.0625, (0, 0): 0.75})


def sampled_row(sampled):
    return (*sampled.positive.tolist(), *sampled.negative.tolist())


@pytest.mark.parametrize("name", NAMES)
def test_first_two_moments_with_padding_are_those_of_reports(name):
    """Three keys, padding 3, values between the ends: means within 7, variances within 8 standard errors."""
    mechanism = make_mechanism(name, epsilon=1.5, keys=3, padding=3)
    frequency, mean, users, repeats = np.array([0.9, 0.5, 0.1]), np.array([0.5, -1.0, 0.0]), 2_000, 1_500
    random = generator()
    at_once = np.array(
        [_row(draw_counts(mechanism, draw_sampled(frequency, mean, 3, users, random), random)) for _ in range(repeats)]
    )
    law = mechanism.parameters()
    share = law["b"] + (law["a"] - law["b"]) * frequency / 3
    drift = law["a"] * (2 * law["p"] - 1) * frequency * mean / 3
    expected = users * np.concatenate([(share + drift) / 2, (share - drift) / 2])
    spread = expected * (1 - expected / users)
    assert (np.abs(at_once.mean(axis=0) - expected) < 7 * np.sqrt(spread / repeats)).all()
    assert (np.abs(at_once.var(axis=0) / spread - 1) < 8 * np.sqrt(2 / repeats)).all()
    # the reports of as many users, once, within 7 standard errors of one collection of 30,000 users
    held = random.random((30_000, 3)) < frequency
    values = np.where(random.random(held.shape) < (1 + mean) / 2, VALUE_ONE, -VALUE_ONE)
    records = Records(
        users=Secret.new().users().integers(np.arange(30_000)),
        offsets=np.concatenate([[0], np.cumsum(held.sum(axis=1))]).astype(np.int64),
        keys=np.nonzero(held)[1].astype(np.int32),
        values=values[held].astype(np.int64),
    )
    counts = mechanism.count(mechanism.perturb(records, Secret.new().stream(fingerprint="simulation")))
    assert (np.abs(_row(counts) - 15 * expected) < 7 * np.sqrt(15 * spread)).all()


def _row(counts):
    return np.concatenate([counts.cells["n1"], counts.cells["n2"]])


@pytest.mark.parametrize("name", NAMES)
def test_nobody_and_everybody(name):
    mechanism = make_mechanism(name, epsilon=1, keys=5, padding=2)
    random = population_generator(0, 0)
    none = np.zeros(5, dtype=np.int64)
    assert draw_counts(mechanism, Sampled(users=0, positive=none, negative=none), random).equals(mechanism.zero())
    sampled = draw_sampled(np.full(5, 0.4), np.ones(5), 2, 1000, random)
    assert sampled.positive.sum() == 1000  # the frequencies sum to the padding: nobody samples a dummy
    assert not sampled.negative.any()


@pytest.mark.parametrize("name", NAMES)
def test_a_hundred_million_users_take_no_longer_than_a_few(name):
    mechanism = make_mechanism(name, epsilon=1, keys=1000, padding=5)
    shares = Shares(positive=np.full(1000, 0.0005), negative=np.full(1000, 0.0001))
    random = population_generator(0, 1)
    counts = draw_counts(mechanism, draw_sampled_shares(shares, 10**8, random), random)
    assert counts.n == 10**8
    found = mechanism.estimate(counts)
    assert np.abs(found.frequency_raw - 0.003).max() < 8 * found.frequency_se.max()
