"""Populations: exact properties first, then shapes whose tolerance has a stated false-positive rate."""

import pickle

import numpy as np
import pytest
from ldp_beam.errors import ParameterError
from ldp_beam.mechanisms.populations import BLOCK_USERS, POPULATIONS, Pairs, Population, Truth
from scipy import stats

#: Each statistical test below may fail by chance at most this often (six of them: under 1e-9 together).
FALSE_POSITIVE = 1e-10


def population(name, **given):
    return Population(**{"name": name, "keys": 40, "seed": 7, **given})


def truth(who, users):
    total = Truth(keys=who.keys)
    for pairs in who.batches(users):
        total.add(pairs)
    return total


def same(one, other):
    return all(np.array_equal(a, b) for a, b in zip(one, other, strict=True))


@pytest.mark.parametrize("name", POPULATIONS)
def test_records_are_well_formed(name):
    pairs = population(name).batch(10, 500)
    assert pairs.offsets.dtype == np.int64
    assert pairs.keys.dtype == np.int32
    assert pairs.values.dtype == np.float64
    assert pairs.offsets[0] == 0
    assert pairs.offsets[-1] == len(pairs.keys) == len(pairs.values)
    assert len(pairs.offsets) == 501
    assert pairs.keys.min() >= 0
    assert pairs.keys.max() < 40
    assert np.abs(pairs.values).max() <= 1.0
    owner = np.repeat(np.arange(500), np.diff(pairs.offsets))
    rising = np.diff(pairs.keys) > 0
    assert rising[owner[1:] == owner[:-1]].all()


@pytest.mark.parametrize("name", POPULATIONS)
def test_any_split_gives_the_same_records(name):
    who = population(name)
    first, count = BLOCK_USERS - 30, 60
    whole = who.batch(first, count)
    parts = [who.batch(first, 7), who.batch(first + 7, 40), who.batch(first + 47, 13)]
    sizes = np.concatenate([np.diff(part.offsets) for part in parts])
    joined = Pairs(
        np.concatenate([[0], np.cumsum(sizes)]),
        np.concatenate([part.keys for part in parts]),
        np.concatenate([part.values for part in parts]),
    )
    assert same(whole, joined)


def test_batches_are_the_blocks_of_batch():
    who = population("gauss")
    blocks = list(who.batches(BLOCK_USERS + 5))
    assert [len(b.offsets) - 1 for b in blocks] == [BLOCK_USERS, 5]
    assert same(blocks[1], who.batch(BLOCK_USERS, 5))


def test_the_same_user_in_a_larger_population_and_after_pickling():
    who = population("power-law")
    few = next(who.batches(10))
    assert same(few, who.batch(0, 10))
    assert same(few, pickle.loads(pickle.dumps(who)).batch(0, 10))


def test_another_seed_gives_other_people_and_blocks_differ():
    one, other = population("uniform", seed=1), population("uniform", seed=2)
    assert not same(one.batch(0, 100), other.batch(0, 100))
    assert not same(one.batch(0, 100), one.batch(BLOCK_USERS, 100))


def test_no_users():
    pairs = population("gg").batch(3, 0)
    assert pairs.offsets.tolist() == [0]
    assert len(pairs.keys) == len(pairs.values) == 0
    assert list(population("gg").batches(0)) == []


@pytest.mark.parametrize("pairs", [1, 3, 12, 39, 40])
@pytest.mark.parametrize("name", ["gauss", "power-law", "linear", "uniform", "uu"])
def test_every_user_holds_the_asked_number_of_distinct_keys(name, pairs):
    drawn = population(name, pairs_per_user=pairs).batch(0, 200)
    keys = drawn.keys.reshape(200, pairs)
    assert all(len(set(row)) == pairs for row in keys.tolist())


@pytest.mark.parametrize(
    ("name", "weight"),
    [
        ("power-law", lambda k, d: 1 / k),
        ("linear", lambda k, d: d + 1 - k),
        ("gauss", lambda k, d: np.exp(-((k - d / 2) ** 2) / (2 * (d / 6) ** 2))),
        ("uniform", lambda k, d: np.ones(d)),
        ("gg", lambda k, d: stats.halfnorm.cdf(2 * k / d) - stats.halfnorm.cdf(2 * (k - 1) / d)),
    ],
)
def test_weights_are_the_stated_shapes(name, weight):
    expected = weight(np.arange(1.0, 41.0), 40)
    np.testing.assert_allclose(population(name).weights(), expected / expected.sum(), rtol=1e-12)


def first_order_inclusion(weights, pairs):
    """Chance that each key is among the first `pairs` of successive draws, by enumeration."""
    d = len(weights)
    total = np.zeros(d)

    def draw(held, chance):
        if len(held) == pairs:
            total[list(held)] += chance
            return
        left = 1.0 - weights[list(held)].sum()
        for k in set(range(d)) - set(held):
            draw((*held, k), chance * weights[k] / left)

    draw((), 1.0)
    return total


@pytest.mark.parametrize(("keys", "pairs"), [(6, 3), (13, 3)], ids=["race", "rejection"])
def test_draws_without_replacement_have_the_exact_inclusion_chances(keys, pairs):
    """Both samplers against enumeration: a chi-squared-like sum of per-key z scores, by Bonferroni."""
    who = population("power-law", keys=keys, pairs_per_user=pairs)
    n = 2 * BLOCK_USERS
    chance = first_order_inclusion(who.weights(), pairs)
    z = (truth(who, n).holders - n * chance) / np.sqrt(n * chance * (1 - chance))
    bound = stats.norm.isf(FALSE_POSITIVE / 2 / keys)
    assert np.abs(z).max() < bound
    # Power: chances that are 5 % off at one key would be seen.
    off = n * 0.05 * chance / np.sqrt(n * chance * (1 - chance))
    assert off.max() > 2 * bound


def test_gg_leaves_users_beyond_the_domain_without_a_pair():
    n = 2 * BLOCK_USERS
    held = truth(population("gg"), n).holders.sum()
    inside = stats.halfnorm.cdf(2.0)
    z = (held - n * inside) / np.sqrt(n * inside * (1 - inside))
    assert abs(z) < stats.norm.isf(FALSE_POSITIVE / 2)


def test_uniform_keys_are_uniform():
    n = 2 * BLOCK_USERS
    holders = truth(population("uniform"), n).holders
    assert stats.chisquare(holders).pvalue > FALSE_POSITIVE


@pytest.mark.parametrize("name", ["uniform", "uu", "gg"])
def test_holders_of_a_key_share_one_value(name):
    who = population(name)
    pairs = who.batch(0, 2000)
    assert np.array_equal(pairs.values, who.key_means()[pairs.keys])
    assert len(np.unique(who.key_means())) == 40


def test_scattered_values_have_the_stated_spread():
    """Keys whose mean is far from the ends: the unclipped spread is 0.2."""
    who = population("linear")
    pairs = who.batch(0, BLOCK_USERS)
    means = who.key_means()[pairs.keys]
    residual = (pairs.values - means)[np.abs(means) < 0.1]
    variance = np.mean(residual**2) / 0.04
    assert abs(variance - 1) < stats.norm.isf(FALSE_POSITIVE / 2) * np.sqrt(2 / len(residual))


def test_ranked_means_follow_the_weights():
    who = population("power-law", means="ranked")
    means = who.key_means()
    assert means[0] == 1.0
    assert stats.spearmanr(means, who.weights()).statistic == pytest.approx(1.0)


def test_truth_adds_up_exactly():
    total = Truth(keys=3)
    total.add(Pairs(np.array([0, 2, 2, 3]), np.array([0, 1, 1], np.int32), np.array([0.5, -1.0, 0.0])))
    total.add(Pairs(np.array([0, 0]), np.empty(0, np.int32), np.empty(0)))
    assert total.users == 4
    assert total.frequency().tolist() == [0.25, 0.5, 0.0]
    assert total.mean()[:2].tolist() == [0.5, -0.5]
    assert np.isnan(total.mean()[2])
    assert np.isnan(Truth(keys=2).frequency()).all()


@pytest.mark.parametrize(
    ("given", "named"),
    [
        ({"name": "gaus"}, "gauss"),
        ({"keys": 0}, "keys"),
        ({"seed": -1}, "seed"),
        ({"keys": 9}, "10 distinct keys of 9"),
        ({"pairs_per_user": 41}, "41 distinct"),
        ({"pairs_per_user": -1}, "between 1 and"),
        ({"name": "gg", "pairs_per_user": 2}, "one pair per user"),
        ({"name": "uniform", "means": "ranked"}, "no key weights"),
        ({"means": "random"}, "ranked"),
    ],
)
def test_what_cannot_be_is_refused_by_name(given, named):
    with pytest.raises(ParameterError, match=named):
        population(**{"name": "gauss", **given})


def test_negative_users_are_refused():
    with pytest.raises(ParameterError, match="numbered from 0"):
        population("uniform").batch(-1, 5)
