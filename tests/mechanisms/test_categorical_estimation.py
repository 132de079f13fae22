"""Estimators for one symbol a user, against slow references and by hand. Nothing here is drawn in earnest."""

import numpy as np
import pytest
from ldp_beam.errors import ParameterError
from ldp_beam.mechanisms.categorical.estimation import (
    COMPOSITE_ESTIMATORS,
    SINGLE_ESTIMATORS,
    Supports,
    adjusted,
    base_cut,
    clip_and_renormalise,
    composite_em,
    estimate_shares,
    joint_em,
    most_likely,
    norm_sub,
    thresholded,
)
from scipy.optimize import minimize
from scipy.stats import norm


def random_supports(seed, d=6, n=1000, sensitive=None):
    """Counts as a GRR or (with `sensitive` symbols) a uRR may give them."""
    rng = np.random.default_rng(seed)
    gain = np.full(d, rng.uniform(0.1, 0.8))
    base = np.full(d, (1 - gain[0]) / d)
    if sensitive is not None:
        base = np.where(np.arange(d) < sensitive, (1 - gain[0]) / sensitive, 0.0)
    counts = rng.multinomial(n, base + gain * rng.dirichlet(np.full(d, 0.3)))
    return Supports(n=n, counts=counts, base=base, gain=gain)


def em(supports, iterations=200_000):
    """Textbook EM with the whole matrix."""
    d = len(supports.counts)
    channel = np.tile(supports.base, (d, 1)) + np.diag(supports.gain)
    assert np.allclose(channel.sum(axis=1), 1)
    share, w = np.full(d, 1 / d), supports.counts / supports.n
    for _ in range(iterations):
        joint = share[:, None] * channel
        new = (joint / np.maximum(joint.sum(axis=0), 1e-300)) @ w
        done = np.abs(new - share).max() < 1e-15
        share = new
        if done:
            break
    return share


@pytest.mark.parametrize("seed", range(8))
@pytest.mark.parametrize("sensitive", [None, 3])
def test_em_is_the_limit_of_the_iteration(seed, sensitive):
    supports = random_supports(seed, sensitive=sensitive)
    assert most_likely(supports) == pytest.approx(em(supports), abs=1e-5)


def test_em_is_the_unbiased_estimate_inside_the_simplex():
    supports = Supports.alike(1000, np.array([300, 400, 300]), 0.6, 0.2)
    assert most_likely(supports) == pytest.approx(supports.raw(), abs=1e-12)


@pytest.mark.parametrize("seed", range(6))
@pytest.mark.parametrize("zero_base", [False, True])
def test_composite_em_is_the_constrained_maximum(seed, zero_base):
    rng = np.random.default_rng(seed)
    d, n = 5, 2000
    base = rng.uniform(0.05, 0.3, d)
    if zero_base:
        base[:2] = 0.0
    gain = rng.uniform(0.1, 0.5, d)
    true = rng.dirichlet(np.full(d, 0.5))
    supports = Supports(n=n, counts=rng.binomial(n, base + gain * true), base=base, gain=gain)
    w = supports.counts / n

    def loss(x):
        r = np.clip(base + gain * x, 1e-12, 1 - 1e-12)
        return -np.sum(w * np.log(r) + (1 - w) * np.log(1 - r))

    found = composite_em(supports)
    assert found.sum() == pytest.approx(1)
    assert found.min() >= 0
    best = minimize(
        loss,
        np.full(d, 1 / d),
        bounds=[(0, 1)] * d,
        constraints={"type": "eq", "fun": lambda x: x.sum() - 1},
        method="SLSQP",
        options={"ftol": 1e-14, "maxiter": 1000},
    )
    assert loss(found) <= best.fun + 1e-9
    assert found == pytest.approx(best.x, abs=2e-3)


def test_joint_em_equals_em_where_reports_support_one_symbol():
    supports = random_supports(3)
    reports = np.repeat(np.arange(6), supports.counts)
    support = reports[:, None] == np.arange(6)
    own, other = supports.base[0] + supports.gain[0], supports.base[0]
    assert joint_em(support, own, other, tolerance=1e-13) == pytest.approx(most_likely(supports), abs=1e-5)
    doubled = joint_em(support, 2 * own, 2 * other, tolerance=1e-13)
    assert doubled == pytest.approx(most_likely(supports), abs=1e-5)


def test_joint_em_takes_certain_reports_for_certain():
    certain = np.array([0, 10, 30])
    assert joint_em(np.zeros((0, 3), bool), 1.0, 0.5, certain=certain) == pytest.approx([0, 0.25, 0.75])
    assert np.isnan(joint_em(np.zeros((0, 3), bool), 1.0, 0.5)).all()


def test_norm_sub_is_the_nearest_distribution():
    assert norm_sub(np.array([0.6, 0.5, -0.1])) == pytest.approx([0.55, 0.45, 0.0])
    assert norm_sub(np.array([-3.0])) == pytest.approx([1.0])
    rng = np.random.default_rng(0)
    for _ in range(50):
        raw = rng.normal(0, 1, 7)
        share = norm_sub(raw)
        assert share.sum() == pytest.approx(1)
        others = rng.dirichlet(np.ones(7), 200)
        assert np.sum((share - raw) ** 2) <= np.sum((others - raw) ** 2, axis=1).min()


def test_adjustments_by_hand():
    raw, threshold = np.array([0.5, 0.02, -0.1, 0.2]), np.full(4, 0.05)
    assert thresholded(raw, threshold) == pytest.approx([0.5, 0.15, 0.15, 0.2])
    assert thresholded(np.array([0.9, 0.4, 0.0]), threshold[:3]) == pytest.approx([0.9, 0.4, 0.0])
    assert thresholded(np.array([0.5, 0.4]), threshold[:2]) == pytest.approx([0.5, 0.4])
    assert base_cut(raw, threshold) == pytest.approx([0.5, 0, 0, 0.2])
    assert clip_and_renormalise(raw) == pytest.approx(np.array([0.5, 0.02, 0, 0.2]) / 0.72)
    assert clip_and_renormalise(np.array([-1.0, 0.0])) == pytest.approx([0.5, 0.5])


def test_significance_threshold_and_errors():
    supports = Supports.alike(10_000, np.array([2600, 3000, 2400, 2000]), 0.7, 0.1)
    at_zero = np.sqrt(0.1 * 0.9 / 10_000) / 0.6
    assert supports.error(0.0) == pytest.approx(np.full(4, at_zero))
    assert supports.significance() == pytest.approx(np.full(4, norm.isf(0.05 / 4) * at_zero))
    assert supports.raw()[0] == pytest.approx((0.26 - 0.1) / 0.6)
    assert supports.error(0.5) == pytest.approx(np.full(4, np.sqrt(0.4 * 0.6 / 10_000) / 0.6))


@pytest.mark.parametrize("estimator", sorted({*SINGLE_ESTIMATORS, *COMPOSITE_ESTIMATORS}))
def test_every_estimator_on_ordinary_and_extreme_counts(estimator):
    for counts in ([500, 300, 200, 0], [1000, 0, 0, 0], [0, 0, 0, 1]):
        n = sum(counts)
        supports = Supports.alike(n, np.array(counts), 0.5, 1 / 6)
        share = adjusted(supports, estimator)
        assert np.isfinite(share).all()
        if estimator not in ("empirical", "thresholded", "base-cut"):
            assert share.min() >= 0
            assert share.sum() == pytest.approx(1)
        estimates = estimate_shares(supports, estimator, {"c": supports.counts})
        assert (estimates.frequency_low <= estimates.frequency_high).all()
        assert estimates.frequency_raw == pytest.approx(supports.raw())
    nobody = Supports.alike(0, np.zeros(4, np.int64), 0.5, 1 / 6)
    assert np.isnan(estimate_shares(nobody, estimator, {}).frequency).all()


def test_unknown_estimators_are_refused():
    with pytest.raises(ParameterError, match="Did you mean 'norm-sub'"):
        adjusted(random_supports(0), "norm_sub")


def test_flags_tell_what_was_moved():
    supports = Supports.alike(1000, np.array([900, 150, 90]), 0.8, 0.1)  # unbiased: 1.14, 0.07, -0.01
    estimates = estimate_shares(supports, "clip", {})
    assert estimates.flags["few-holders"].tolist() == [False, False, True]
    assert estimates.flags["clipped"].tolist() == [True, False, True]
    assert estimate_shares(supports, "base-cut", {}).flags["clipped"].tolist() == [False, False, True]
    assert not estimate_shares(supports, "empirical", {}).flags["clipped"].any()
