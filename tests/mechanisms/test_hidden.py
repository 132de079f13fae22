"""Frequencies that a padding hides a part of: when they are not drawn towards a prior, and what is done then.

Populations are drawn from fixed seeds, so nothing here can fail by chance.
"""

import numpy as np
import pytest
from ldp_beam.mechanisms import make_mechanism, population_generator
from ldp_beam.mechanisms.pckv import empirical_bayes
from ldp_beam.mechanisms.pckv.hidden import expected_hidden, guarded
from ldp_beam.mechanisms.pckv.simulation import Shares, draw_counts, draw_sampled, draw_sampled_shares

USERS, KEYS = 1_000_000, 1_000


def people():
    """Frequencies, and what a padding shows of them: 500 people who hold 7 to 500 keys each, after a power law."""
    random = population_generator(4, 0)
    lengths = np.minimum((60 * (random.random(500) ** -0.5 - 0.9)).astype(int) + 1, KEYS // 2)
    places = np.log(np.arange(1, KEYS + 1))
    held = np.zeros((500, KEYS))
    for person, length in enumerate(lengths):
        held[person, np.argsort(places - random.gumbel(size=KEYS))[:length]] = 1.0
    return held.mean(axis=0), lambda padding: (held / np.maximum(lengths, padding)[:, None]).mean(axis=0)


def posterior(mechanism, counts):
    """The frequencies without any regard to what is hidden."""
    found = mechanism.estimate(counts)
    known = empirical_bayes._Frequencies.of(mechanism.probabilities, mechanism.padding, found.frequency_raw, found.n)
    return known.frequency


@pytest.mark.parametrize(
    ("name", "epsilon", "padding"),
    [("pckv-ue", 2, 10), ("pckv-grr", 1.5, 10), ("pckv-ue", 2, 40), ("pckv-ue", 4, 40), ("pckv-grr", 1.5, 40)],
)
def test_lists_that_are_cut_off_are_no_reason_to_lose(name, epsilon, padding):
    frequency, seen = people()
    mechanism = make_mechanism(name, epsilon=epsilon, keys=KEYS, padding=padding)
    random = population_generator(5, 0)
    sampled = draw_sampled_shares(Shares(positive=seen(padding) / 2, negative=seen(padding) / 2), USERS, random)
    counts = draw_counts(mechanism, sampled, random)
    corrected, ours = (mechanism.estimate(counts, one).frequency for one in ("corrected", "empirical-bayes"))
    most = 1.02 * ((corrected - frequency) ** 2).sum()
    assert ((ours - frequency) ** 2).sum() <= most
    assert ((posterior(mechanism, counts) - frequency) ** 2).sum() > most


def drawn(name, epsilon, padding, keys=100, held=5.0):
    """Counts of people who hold five keys each, after a power law."""
    weights = 1 / np.arange(1, keys + 1)
    frequency = np.minimum(1.0, held * weights / weights.sum())
    mechanism = make_mechanism(name, epsilon=epsilon, keys=keys, padding=padding)
    random = population_generator(6, 0)
    sampled = draw_sampled(frequency, np.zeros(keys), padding, USERS, random)
    return frequency, mechanism, draw_counts(mechanism, sampled, random)


@pytest.mark.parametrize("name", ["pckv-ue", "pckv-grr"])
@pytest.mark.parametrize("epsilon", [0.1, 1, 4])
@pytest.mark.parametrize(("padding", "keys", "held"), [(1, 100, 1.0), (50, 50, 5.0)])
def test_where_nothing_can_be_hidden_posterior_means_stay(name, epsilon, padding, keys, held):
    """One pair each, though the share is 1; and no more keys than the padding."""
    _, mechanism, counts = drawn(name, epsilon, padding, keys, held)
    assert np.array_equal(mechanism.estimate(counts, "empirical-bayes").frequency, posterior(mechanism, counts))


@pytest.mark.parametrize(("name", "epsilon", "padding"), [("pckv-ue", 0.1, 20), ("pckv-ue", 0.5, 20)])
def test_where_little_can_be_hidden_posterior_means_stay(name, epsilon, padding):
    _, mechanism, counts = drawn(name, epsilon, padding)
    assert np.array_equal(mechanism.estimate(counts, "empirical-bayes").frequency, posterior(mechanism, counts))


@pytest.mark.parametrize(
    ("name", "epsilon", "most"), [("pckv-ue", 0.5, 0.9), ("pckv-grr", 0.5, 0.9), ("pckv-ue", 8, 1.02)]
)
def test_lists_as_long_as_the_padding_still_gain(name, epsilon, most):
    """Here the share is 1 and nothing is hidden, which the counts cannot tell."""
    frequency, mechanism, counts = drawn(name, epsilon, 5)
    plain, ours = (mechanism.estimate(counts, one).frequency for one in ("corrected", "empirical-bayes"))
    assert not np.array_equal(ours, posterior(mechanism, counts))
    assert ((ours - frequency) ** 2).sum() <= most * ((plain - frequency) ** 2).sum()


@pytest.mark.parametrize("hidden", [0.0, 0.5, 5.0])
@pytest.mark.parametrize("function", [np.ones_like, np.sqrt, np.array])
def test_the_projection_is_nearer_to_whatever_goes_with_what_is_seen(function, hidden):
    """Whatever the noise happened to be, and however much is hidden."""
    random = population_generator(7, 0)
    posterior_means = np.sort(random.uniform(0.001, 0.02, 200))[::-1]
    truth = posterior_means + hidden * function(posterior_means) / 50
    noise = np.full(200, 1e-4)
    for _ in range(20):
        raw = posterior_means + 0.01 * random.standard_normal(200)
        corrected = np.clip(raw, 1e-6, 1.0)
        found = guarded(
            5, raw=raw, noise=noise, corrected=corrected, posterior=posterior_means, slope=np.ones(200), least=1e-6
        )
        assert not np.array_equal(found, posterior_means)
        assert ((found - truth) ** 2).sum() < ((corrected - truth) ** 2).sum()


def test_equal_posterior_means_have_a_projection():
    raw = np.linspace(-0.1, 0.3, 50)
    corrected = np.clip(raw, 1e-6, 1.0)
    noise, same = np.full(50, 0.01), np.full(50, 0.1)
    found = guarded(2, raw=raw, noise=noise, corrected=corrected, posterior=same, slope=np.ones(50), least=1e-6)
    assert found == pytest.approx(corrected.mean())


# -- how much is hidden -----------------------------------------------------------------------------------------


@pytest.mark.parametrize("mean", [2.0, 10.0, 40.0])
def test_hidden_keys_follow_from_the_share(mean):
    """Both by integration of the law that lengths are taken to have, 1 - F(x) = (1 + x / mean)^-2."""
    padding = 10
    x = np.concatenate([np.linspace(0, padding, 100_001), np.geomspace(padding, 1e9, 100_001)])
    beyond = (1 + x / mean) ** -2.0
    pieces = np.diff(x) * (beyond[1:] + beyond[:-1]) / 2
    share, hidden = pieces[:100_000].sum() / padding, pieces[100_000:].sum()
    assert expected_hidden(padding, 10**6, share, 1e-3) == pytest.approx(hidden, rel=2e-3)


def test_a_share_that_nobody_knows_is_averaged_over():
    """Over all shares alike, with d keys: the integral of padding s^2 / (1 - s), and of d - padding near 1."""
    padding, keys = 10, 1_000
    ends = keys / padding - 1  # s^2 / (1 - s) at the share s of the bound
    bound = (np.sqrt(ends**2 + 4 * ends) - ends) / 2
    whole = padding * (-np.log(1 - bound) - bound - bound**2 / 2) + (1 - bound) * (keys - padding)
    assert expected_hidden(padding, keys, 0.5, 1e3) == pytest.approx(whole, rel=1e-3)
    assert expected_hidden(padding, keys, -40.0, 1e3) == pytest.approx(whole, rel=1e-2)


def test_hidden_keys_grow_with_the_share_up_to_all_keys():
    found = [expected_hidden(10, 300, share, 0.01) for share in (-0.5, 0.1, 0.5, 0.9, 1.0, 1.5)]
    assert found == sorted(found)
    assert found[0] < 0.01
    assert found[-1] == pytest.approx(290)
