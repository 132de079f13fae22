"""The posterior means of empirical Bayes against plain integration, and what they are for many keys."""

import numpy as np
import pytest
from ldp_beam.mechanisms.pckv import mean_priors
from ldp_beam.mechanisms.pckv.mean_priors import Signs, places, posterior_means

GRID = np.linspace(-1, 1, 20_001)


def signs(surplus, reports, trust, weight, place=None):
    trust, weight = np.atleast_2d(trust), np.atleast_2d(weight)
    ranks = np.zeros((2, *trust.shape)) if place is None else np.array([place, place])
    return Signs(
        surplus=np.array([surplus]), reports=np.array([float(reports)]), trust=trust, weight=weight, places=ranks
    )


def integrated(one, centre, width):
    """Likelihood, posterior mean and mean square by sums over a fine grid: binomial counts, a centre a node."""
    positive = one.reports[0] * (1 + one.surplus[0]) / 2
    total = np.zeros(3)
    for trust, weight, middle in zip(one.trust[0], one.weight[0], centre, strict=True):
        chance = (1 + trust * GRID) / 2
        logs = positive * np.log(chance) + (one.reports[0] - positive) * np.log(1 - chance)
        prior = np.exp(-0.5 * ((GRID - middle) / width) ** 2)
        mass = np.exp(logs - 0.5 * one.reports[0] * log_top(one)) * prior / prior.sum() * weight
        total += [(mass * GRID**power).sum() for power in range(3)]
    return total[0], total[1] / total[0], total[2] / total[0]


def log_top(one):
    """Keeps binomial likelihoods within the range of floats; the same for all priors."""
    share = (1 + one.surplus[0]) / 2
    return 2 * (share * np.log(share) + (1 - share) * np.log(1 - share))


@pytest.mark.parametrize("surplus", [-0.002, 0.01, 0.05])
@pytest.mark.parametrize("reports", [2_000, 200_000])
def test_moments_are_those_of_plain_integration(surplus, reports):
    """With a frequency that is one of three, levels and lines; likelihoods only up to a factor of the key."""
    one = signs(surplus, reports, [0.01, 0.04, 0.08], [0.2, 0.5, 0.3], place=[[-0.4, 0.1, 0.5]])
    logs, first, second = mean_priors._moments(one, mean_priors._PRIORS)
    tried = [i for i, prior in enumerate(mean_priors._PRIORS) if prior.width > 0][::37]
    expected = []
    for i in tried:
        prior = mean_priors._PRIORS[i]
        # centres are those of the table nearest to the line
        centre = np.clip(prior.centre + prior.slope * np.array([-0.4, 0.1, 0.5]), -1, 1)
        expected.append(integrated(one, np.rint((centre + 1) * 20) / 20 - 1, prior.width))
    likelihood, mean, square = np.array(expected).T
    # what is less likely by e^8 weighs nothing, and may lie beyond the nodes
    likely = np.log(likelihood) > np.log(likelihood).max() - 8
    assert {mean_priors._PRIORS[i].slope != 0 for i in np.array(tried)[likely]} == {False, True}
    assert np.abs(first[tried, 0] - mean)[likely].max() < 4e-3
    assert np.abs(second[tried, 0] - square)[likely].max() < 4e-3
    assert np.ptp((logs[tried, 0] - np.log(likelihood))[likely]) < 0.03


def test_means_at_the_ends_are_told_apart():
    one = signs(0.04, 100_000, [0.04], [1.0])
    ends = [i for i, prior in enumerate(mean_priors._PRIORS) if prior.width == 0]
    _, first, second = mean_priors._moments(one, mean_priors._PRIORS)
    assert first[ends, 0] == pytest.approx(1.0)
    assert second[ends, 0] == pytest.approx(1.0)


def drawn(keys, slope, seed=5):
    """Keys whose means are a line in the rank, each with an estimate of its own noise."""
    random = np.random.default_rng(seed)
    rank = np.linspace(-1, 1, keys)
    mean = slope * rank
    trust, reports = np.full((keys, 1), 0.05), np.full(keys, 10_000.0)
    surplus = trust[:, 0] * mean + random.standard_normal(keys) / 100
    known = Signs(
        surplus=surplus,
        reports=reports,
        trust=trust,
        weight=np.ones((keys, 1)),
        places=np.array([rank[:, None], rank[:, None]]),
    )

    def some(part, group):
        return Signs(
            surplus=known.surplus[part],
            reports=known.reports[part],
            trust=known.trust[part],
            weight=known.weight[part],
            places=known.places[:, part],
        )

    return mean, surplus / trust[:, 0], some


@pytest.mark.parametrize("slope", [-0.8, 0.0, 0.8])
def test_a_line_is_found(slope):
    """Noise of 0.2 each: the line is known much better than any key."""
    mean, raw, some = drawn(200, slope)
    found, square = posterior_means(some, [np.arange(100), np.arange(100, 200)])
    assert ((found - mean) ** 2).mean() < 0.2 * ((raw - mean) ** 2).mean()
    assert (square >= found**2 - 1e-12).all()


def test_many_keys_are_fitted_to_some_of_them(monkeypatch):
    """What every third key tells of the prior is nearly what all tell."""
    monkeypatch.setattr(mean_priors, "FIT_KEYS", 200)
    for keys in (150, 600):
        mean, raw, some = drawn(keys, 0.5)
        found, _ = posterior_means(some, [np.arange(0, keys, 2), np.arange(1, keys, 2)])
        assert ((found - mean) ** 2).mean() < 0.15 * ((raw - mean) ** 2).mean()


def test_priors_of_groups_are_used_where_groups_differ():
    """Two groups, one with means near 0.8 and one near -0.8: each is drawn to its own centre."""
    random = np.random.default_rng(1)
    mean = np.repeat([0.8, -0.8], 40)
    surplus = 0.05 * mean + random.standard_normal(80) / 100

    def some(part, group):
        return Signs(
            surplus=surplus[part],
            reports=np.full(len(part), 10_000.0),
            trust=np.full((len(part), 1), 0.05),
            weight=np.ones((len(part), 1)),
            places=np.zeros((2, len(part), 1)),
        )

    apart, _ = posterior_means(some, [np.arange(40), np.arange(40, 80)])
    mixed, _ = posterior_means(some, [np.arange(80)])
    raw = surplus / 0.05
    assert ((apart - mean) ** 2).mean() < 0.3 * ((raw - mean) ** 2).mean()
    assert ((apart - mean) ** 2).mean() < 0.5 * ((mixed - mean) ** 2).mean()


def test_ranks():
    frequency = np.array([0.3, 0.1, 0.2])
    found = places(frequency, np.array([[0.1, 0.2], [0.15, 0.9]]))
    assert found == pytest.approx(np.array([[-1.0, 0.0], [-0.5, 1.0]]))
