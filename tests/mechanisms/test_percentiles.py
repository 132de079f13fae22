"""Percentiles by bins: the histogram's arithmetic by hand, and estimates of known distributions."""

import itertools
import math

import numpy as np
import pytest
from ldp_beam.errors import ParameterError
from ldp_beam.mechanisms import VALUE_ONE, Records, Secret, make_mechanism, to_fixed
from ldp_beam.mechanisms.values.percentiles import ORACLES, _Histogram, bins_of


def build(**changes):
    given = {"epsilon": 6, "keys": 2, "bins": 10, "oracle": "psfo-oue", "padding": 2} | changes
    if not given["oracle"].startswith("psfo"):
        del given["padding"]
    return make_mechanism("percentiles", **given)


def test_bins_are_equally_wide_and_the_last_holds_the_end():
    values = to_fixed([-1, -0.61, -0.59, -0.19, 0, 0.21, 0.9999, 1], -1, 1)
    assert bins_of(values, 5).tolist() == [0, 0, 1, 2, 2, 3, 4, 4]
    assert bins_of(np.array([-VALUE_ONE, VALUE_ONE - 1, VALUE_ONE]), 1000).tolist() == [0, 999, 999]


def histogram(*shares, error=1e-6):
    share = np.array([shares], dtype=float)
    return _Histogram(share, np.full(share.shape, error), np.full(share.shape, error))


def test_percentiles_of_a_histogram_by_hand():
    even = histogram(0.1, 0.1, 0.1, 0.1)
    assert [even.percentile(q)[0] for q in (0.25, 0.5, 0.9)] == pytest.approx([-0.5, 0, 0.8])
    gap = histogram(0.2, -0.05, 0, 0.2)
    assert [gap.percentile(q)[0] for q in (0.25, 0.5, 0.75)] == pytest.approx([-0.75, -0.5, 0.75])
    assert histogram(0, 0, 0.3, 0).percentile(0.5)[0] == pytest.approx(0.25)
    assert np.isnan(histogram(-1, 0, -1, 0).percentile(0.5)[0])
    assert even.mean()[0][0] == pytest.approx(0)
    assert histogram(0, 0, 0, 0.2).mean()[0][0] == pytest.approx(0.75)


def test_bounds_are_edges_that_are_surely_beyond():
    even = histogram(0.1, 0.1, 0.1, 0.1)
    assert [bound[0] for bound in even.bounds(0.6)] == pytest.approx([0.0, 0.5])
    wide = histogram(0.1, 0.1, 0.1, 0.1, error=1.0)
    assert [bound[0] for bound in wide.bounds(0.5)] == pytest.approx([-1, 1])


def test_extremes_are_the_outermost_significant_bins():
    seen = histogram(0.001, 0.1, 0, 0.1, 0.001, error=0.01)
    assert [end[0] for end in seen.extremes()] == pytest.approx([-0.6, 0.6])
    assert np.isnan(histogram(0.01, 0, 0, error=0.1).extremes()[0][0])


def population(n, seed=0):
    """Two keys: everybody holds the first, with values between -0.75 and 0.25; half hold the second, 0.4 to 1."""
    rng = np.random.default_rng(seed)
    first, second = rng.uniform(-0.75, 0.25, n), 0.4 + 0.6 * np.sqrt(rng.random(n))
    held = rng.random(n) < 0.5
    sizes = 1 + held
    offsets = np.concatenate(([0], np.cumsum(sizes)))
    keys = np.zeros(offsets[-1], np.int32)
    values = np.zeros(offsets[-1])
    values[offsets[:-1]] = first
    keys[offsets[1:][held] - 1] = 1
    values[offsets[1:][held] - 1] = second[held]
    users = Secret.new().users().integers(np.arange(n))
    records = Records(users=users, offsets=offsets, keys=keys, values=to_fixed(values, -1, 1))
    return records, first, second[held]


@pytest.mark.parametrize("oracle", ["psfo-oue", "psfo-grr"])
def test_known_distributions_are_found(oracle):
    """Figures within half a bin and 7 standard errors, or within the stated bounds widened likewise."""
    mechanism, n = build(oracle=oracle, percentiles=[10, 50, 90]), 60_000
    records, first, second = population(n)
    reports = mechanism.perturb(records, Secret.new().stream(fingerprint="p"))
    assert mechanism.valid(reports).all()
    estimates = mechanism.estimate(mechanism.count(reports))
    assert (np.abs(estimates.frequency - [1, len(second) / n]) < 7 * estimates.frequency_se).all()
    for key, values in enumerate((first, second)):
        assert abs(estimates.mean[key] - values.mean()) < 7 * estimates.mean_se[key] + 0.1
        for percentile in (10, 50, 90):
            figure = {end: estimates.further[f"p{percentile}{end}"][key] for end in ("", "_low", "_high")}
            true = np.percentile(values, percentile)
            assert figure["_low"] <= figure[""] <= figure["_high"]
            assert figure["_low"] - 0.2 <= true <= figure["_high"] + 0.2
            assert abs(figure[""] - true) < 0.15
            assert figure["_high"] - figure["_low"] <= 0.8
    assert estimates.further["minimum"] == pytest.approx([-0.8, 0.4], abs=0.41)
    assert estimates.further["maximum"] == pytest.approx([0.4, 1.0], abs=0.41)
    units = estimates.in_units(0, 100)
    assert units.further["p50"] == pytest.approx(50 * (estimates.further["p50"] + 1))
    assert units.further["maximum"][1] == pytest.approx(50 * (estimates.further["maximum"][1] + 1))


def test_a_key_s_significant_bins_are_false_in_one_collection_of_twenty():
    """400 keys that nobody holds: 5 % have an extreme, within 7 standard errors of that."""
    mechanism = build(keys=400, epsilon=1, padding=1)
    n = 20_000
    empty = Records(
        users=Secret.new().users().integers(np.arange(n)),
        offsets=np.zeros(n + 1, np.int64),
        keys=np.zeros(0, np.int32),
        values=np.zeros(0, np.int64),
    )
    estimates = mechanism.estimate(mechanism.count(mechanism.perturb(empty, Secret.new().stream(fingerprint="x"))))
    found = np.isfinite(estimates.further["minimum"]).mean()
    assert abs(found - 0.05) < 7 * math.sqrt(0.05 * 0.95 / 400)


def test_intervals_hold_the_median():
    """Bounds of 200 small collections: at least 95 % less 7 standard errors hold the true median."""
    mechanism = build(epsilon=3, keys=1, padding=1, percentiles=[50])
    n, hits = 200 * 500, []
    values = to_fixed(np.random.default_rng(1).uniform(-0.5, 0.9, n), -1, 1)
    users = Secret.new().users().integers(np.arange(n))
    records = Records(users=users, offsets=np.arange(n + 1), keys=np.zeros(n, np.int32), values=values)
    stream = Secret.new().stream(fingerprint="m")
    for part in records.chunks(500):
        further = mechanism.estimate(mechanism.count(mechanism.perturb(part, stream))).further
        hits.append(further["p50_low"][0] <= 0.2 <= further["p50_high"][0])
    assert np.mean(hits) > 0.95 - 7 * math.sqrt(0.05 * 0.95 / 200)


def test_the_guarantee_is_the_oracle_s():
    for oracle, epsilon in itertools.product(ORACLES, ("0.1", "3")):
        mechanism = build(oracle=oracle, epsilon=epsilon)
        assert float(epsilon) - 1e-9 < mechanism.exact_epsilon() <= float(epsilon)
        assert mechanism.thresholds()["bins"] == 10


@pytest.mark.parametrize(
    ("changes", "text"),
    [
        ({"bins": 1}, "bins of percentiles"),
        ({"percentiles": [0]}, "between 0 and 100"),
        ({"percentiles": [50, 50]}, "each once"),
        ({"percentiles": []}, "between 0 and 100"),
        ({"oracle": "pckv-ue"}, "oracle of percentiles"),
        ({"padding": None}, "needs a padding"),
        ({"keys": 0}, "keys of percentiles"),
    ],
)
def test_wrong_parameters_are_refused(changes, text):
    with pytest.raises(ParameterError, match=text):
        build(**changes)
