"""Estimators: unbiased, with the stated errors, and finite whatever the counts."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from ldp_beam.errors import ParameterError
from ldp_beam.mechanisms import (
    PCKVGRR,
    PCKVUE,
    VALUE_ONE,
    Counts,
    Records,
    Secret,
    frequency_variance,
    make_mechanism,
    make_records,
    mean_variance,
)
from scipy.stats import chi2

from tests.fixed_randomness import generator

KINDS = ["pckv-ue", "pckv-grr"]


def counts_of(n, n1, n2):
    return Counts(n=n, cells={"n1": np.asarray(n1, np.int64), "n2": np.asarray(n2, np.int64)})


# -- errors as stated, users being a fresh sample in each repeat
# -----------------------------------------------

KEYS, PADDING, PEOPLE, REPEATS = 12, 3, 20_000, 150
FREQUENCY = np.linspace(0.05, 0.4, KEYS)  # at most three keys a user: see draw
MEAN = np.linspace(-0.8, 0.8, KEYS)


def draw(random, users):
    """Users of four groups: those of group g may hold the keys g, g + 4 and g + 8, so three at most."""
    group = random.integers(0, 4, PEOPLE)
    held = np.zeros((PEOPLE, KEYS), bool)
    for k in range(KEYS):
        held[:, k] = (group == k % 4) & (random.random(PEOPLE) < 2 * FREQUENCY[k])
    _, keys = np.nonzero(held)
    values = np.where(random.random(len(keys)) < (1 + MEAN[keys]) / 2, 1.0, -1.0)
    return Records(
        users=users,
        offsets=np.concatenate(([0], np.cumsum(held.sum(axis=1)))).astype(np.int64),
        keys=keys.astype(np.int32),
        values=(values * VALUE_ONE).astype(np.int64),
    )


@pytest.fixture(scope="module", params=KINDS)
def repeats(request):
    """Mechanism, and baseline estimates of many collections: raw frequencies, means, intervals."""
    mechanism = make_mechanism(request.param, epsilon=3, keys=KEYS, padding=PADDING)
    random, secret = generator(), Secret.new()
    users = secret.users().integers(np.arange(PEOPLE))
    results = []
    for repeat in range(REPEATS):
        stream = secret.stream(fingerprint="repeats", round=repeat)
        counts = mechanism.count(mechanism.perturb(draw(random, users), stream))
        results.append(mechanism.estimate(counts, "baseline"))
    return mechanism, results


def test_frequencies_are_unbiased(repeats):
    """24 means within 7 standard errors (false alarm 6e-11 together); 30 % off is found."""
    mechanism, results = repeats
    truth = FREQUENCY / 2
    error = np.sqrt(frequency_variance(mechanism.probabilities, PADDING, truth, PEOPLE) / REPEATS)
    mean = np.mean([result.frequency_raw for result in results], axis=0)
    assert (np.abs(mean - truth) < 7 * error).all()
    assert (np.abs(mean - 1.3 * truth) > 7 * error).any()


def test_variances_are_as_stated(repeats):
    """Chi-squared of 150 repeats, 48 tests at 1e-11 each; a third of the variance off is found."""
    mechanism, results = repeats
    truth, law = FREQUENCY / 2, mechanism.probabilities
    stated = frequency_variance(law, PADDING, truth, PEOPLE)
    raw = np.array([result.frequency_raw for result in results])
    statistic = ((raw - truth) ** 2).sum(axis=0) / stated
    low, high = chi2.ppf([0.5e-11, 1 - 0.5e-11], REPEATS)
    assert ((statistic > low) & (statistic < high)).all()
    # together the 12 keys have a power that none has alone
    low, high = chi2.ppf([0.5e-11, 1 - 0.5e-11], REPEATS * KEYS)
    assert low < statistic.sum() < high
    assert not low < 1.4 * statistic.sum() < high
    assert not low < statistic.sum() / 1.4 < high


def test_variances_of_means_are_as_stated(repeats):
    """First-order formulas, so only for the keys with many holders, and with room: 6 standard errors or more.

    A variance that is doubled or halved is found.
    """
    mechanism, results = repeats
    often = np.arange(KEYS) >= 8
    stated = mean_variance(mechanism.probabilities, PADDING, FREQUENCY / 2, MEAN, PEOPLE)
    means = np.array([result.mean_raw for result in results])
    ratio = np.mean(((means - MEAN) ** 2)[:, often], axis=0) / stated[often]
    assert 0.65 < ratio.mean() < 1.45


def test_intervals_cover(repeats):
    """Coverage of 95 % over 1,800 intervals: 91.4 to 98.6 % is 7 standard errors; 80 % would be found."""
    _, results = repeats
    truth = FREQUENCY / 2
    inside = [(r.frequency_low <= truth) & (truth <= r.frequency_high) for r in results]
    assert 0.914 < np.mean(inside) < 0.986
    inside = [(r.mean_low <= MEAN) & (r.mean_high >= MEAN) for r in results]
    assert 0.914 < np.mean(inside) < 0.99


def test_fixed_and_sampled_variances_differ_by_the_sampling_of_users():
    law = PCKVUE(epsilon=2, keys=10, padding=4).probabilities
    f = np.array([0.0, 0.2, 1.0])
    sampled, fixed = (frequency_variance(law, 4, f, 1000, fixed=flag) for flag in (False, True))
    assert sampled - fixed == pytest.approx(f * (1 - f) / 1000, abs=1e-15)


# -- whatever the counts ------------------------------------------------------------------------------------

MECHANISMS = st.builds(
    make_mechanism,
    st.sampled_from(KINDS),
    epsilon=st.sampled_from(["0.001", "0.2", 1, 8, 20]),
    keys=st.just(3),
    padding=st.sampled_from([1, 2, 1000]),
)


@given(MECHANISMS, st.data())
def test_figures_are_finite_or_null(mechanism, data):
    n = data.draw(st.sampled_from([1, 2, 20, 10**6, 10**12]) | st.integers(1, 1000))
    n1 = [data.draw(st.integers(0, n)) for _ in range(3)]
    n2 = [data.draw(st.integers(0, n - one)) for one in n1]
    for name in mechanism.estimators:
        e = mechanism.estimate(counts_of(n, n1, n2), name)
        for column in (e.frequency, e.frequency_se, e.frequency_low, e.frequency_high, e.frequency_raw):
            assert np.isfinite(column).all()
        for column in (e.mean_low, e.mean_high):
            assert np.isfinite(column).all()
        assert ((e.frequency_low >= 0) & (e.frequency_low <= e.frequency_high) & (e.frequency_high <= 1)).all()
        assert ((e.mean_low >= -1) & (e.mean_low <= e.mean_high) & (e.mean_high <= 1)).all()
        exists = e.frequency_raw > 0
        assert np.array_equal(np.isnan(e.mean_raw), ~exists)
        assert np.array_equal(np.isnan(e.mean_se), ~exists)
        assert (e.mean_low[~exists] == -1).all()
        assert (e.mean_high[~exists] == 1).all()
        assert (e.frequency_se > 0).all()
    corrected = mechanism.estimate(counts_of(n, n1, n2))
    assert (np.abs(corrected.mean) <= 1).all()
    assert ((corrected.frequency >= 1 / n) & (corrected.frequency <= 1)).all()


def test_no_reports_give_no_figures():
    e = PCKVUE(epsilon=1, keys=2, padding=1).estimate(counts_of(0, [0, 0], [0, 0]))
    for column in (e.frequency, e.frequency_se, e.frequency_low, e.frequency_high, e.frequency_raw):
        assert np.isnan(column).all()
    for column in (e.mean, e.mean_se, e.mean_low, e.mean_high, e.mean_raw):
        assert np.isnan(column).all()
    assert e.flags["no-reports"].all()


def test_baseline_has_no_mean_without_holders():
    e = PCKVUE(epsilon=1, keys=2, padding=1).estimate(counts_of(1000, [500, 10], [100, 10]), "baseline")
    assert np.isnan(e.mean).tolist() == [False, True]
    assert e.frequency[1] < 0
    assert np.array_equal(e.frequency, e.frequency_raw)
    assert not e.flags["clipped"].any()
    assert e.flags["few-holders"].tolist() == [False, False] or e.flags["few-holders"][1]


def test_flags_tell_clipping_and_few_holders():
    mechanism = PCKVUE(epsilon=2, keys=4, padding=1)
    b = mechanism.parameters()["b"]
    none, some = int(10_000 * b / 2), int(10_000 * (b + 0.1) / 2)
    e = mechanism.estimate(counts_of(10_000, [some, none, 0, 6000], [some, none, 0, 100]))
    assert e.flags["few-holders"].tolist() == [False, True, True, False]
    assert e.flags["clipped"].tolist() == [False, True, True, True]
    assert not e.flags["no-reports"].any()
    assert e.support["n1"].tolist() == [some, none, 0, 6000]


def test_an_unknown_estimator_is_refused():
    mechanism = PCKVUE(epsilon=1, keys=2, padding=1)
    with pytest.raises(ParameterError, match="Did you mean 'baseline'"):
        mechanism.estimate(mechanism.zero(), "basline")


def test_estimates_in_raw_units():
    e = PCKVUE(epsilon=2, keys=1, padding=1).estimate(counts_of(1000, [500], [100]))
    raw = e.in_units(1.0, 5.0)
    assert raw.mean[0] == pytest.approx(3 + 2 * e.mean[0])
    assert raw.mean_se[0] == pytest.approx(2 * e.mean_se[0])
    assert raw.frequency is e.frequency


# -- faults that others have had
# --------------------------------------------------------------------------------


@pytest.mark.parametrize("value", [1.0, -1.0])
@pytest.mark.parametrize("epsilon", [8, "0.01"])
@pytest.mark.parametrize(("kind", "keys"), [(PCKVUE, 20_000), (PCKVGRR, 100_000)])
def test_one_key_of_a_huge_domain(value, epsilon, kind, keys):
    """1,000 users, one key, one value: finite figures in every row, unused keys near 0."""
    mechanism, secret = kind(epsilon=epsilon, keys=keys, padding=1), Secret.new()
    records = make_records(secret.users(), range(1000), [{7: value}] * 1000)
    counts = mechanism.count(mechanism.perturb(records, secret.stream(fingerprint="one key")))
    e = mechanism.estimate(counts)
    for column in (e.frequency, e.frequency_se, e.frequency_raw, e.mean, e.mean_low, e.mean_high):
        assert np.isfinite(column).all()
    errors = np.abs(np.delete(e.frequency_raw, 7)) / e.frequency_se.max()
    assert np.median(errors) < 3
    if epsilon == 8 and kind is PCKVUE:
        assert e.frequency[7] > 0.8
        assert e.mean[7] * value > 0.8


@pytest.mark.parametrize("kind", [PCKVUE, PCKVGRR])
def test_few_users_and_little_epsilon(kind):
    """20 users, 50 keys, epsilon 0.2: raw frequencies stay negative, such means are null, nothing fails."""
    mechanism, secret = kind(epsilon="0.2", keys=50, padding=1), Secret.new()
    records = make_records(secret.users(), range(20), [{i % 50: 1.0} for i in range(20)])
    counts = mechanism.count(mechanism.perturb(records, secret.stream(fingerprint="few")))
    e = mechanism.estimate(counts, "baseline")
    below = e.frequency_raw <= 0
    assert below.any()
    assert np.isnan(e.mean[below]).all()
    corrected = mechanism.estimate(counts)
    assert (np.abs(corrected.mean) <= 1).all()
    assert corrected.flags["clipped"][below].all()
