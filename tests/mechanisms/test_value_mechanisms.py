"""Harmony and MeanEst: exact laws by enumeration, unbiased estimates, reports that follow the law.

False alarms: each of 26 likelihood-ratio tests fails below 1e-11, and each of 40 means may lie 7.5 standard errors off.
"""

import itertools
import math
from fractions import Fraction

import numpy as np
import pytest
from ldp_beam.mechanisms import VALUE_ONE, Records, Reports, Secret, make_mechanism
from ldp_beam.mechanisms.values.meanest import half_size, meanest_ratio
from scipy.stats import chi2

N = 1 << 64
FALSE_ALARM = 1e-11
DIMENSIONS = range(1, 7)


def signs_of(d):
    return list(itertools.product((1, -1), repeat=d))


def meanest_law(mechanism, vector):
    """P(t) for values `vector`; V is drawn coordinate by coordinate, t uniform on either side of V."""
    d = mechanism.keys
    toward = Fraction(mechanism.thresholds()["toward"], N)
    law = {t: Fraction(0) for t in signs_of(d)}
    for own in signs_of(d):
        share = math.prod((1 + s * v) / 2 for s, v in zip(own, vector, strict=True))
        if not share:
            continue
        inner = {t: sum(a * b for a, b in zip(t, own, strict=True)) for t in law}
        near = [t for t in law if inner[t] > 0]
        far = [t for t in law if inner[t] <= 0]
        assert len(near) == half_size(d)
        for part, p in ((near, toward), (far, 1 - toward)):
            for t in part:
                law[t] += share * p / len(part)
    return law


def harmony_law(mechanism, vector):
    kept = Fraction(mechanism.thresholds()["kept"], N)
    d = mechanism.keys
    law = {}
    for j, v in enumerate(vector):
        plus = (1 + v) / 2 * kept + (1 - v) / 2 * (1 - kept)
        law[j, 1], law[j, -1] = plus / d, (1 - plus) / d
    return law


def law(mechanism, vector):
    return (meanest_law if mechanism.name == "meanest" else harmony_law)(mechanism, vector)


@pytest.mark.parametrize("name", ["harmony", "meanest"])
@pytest.mark.parametrize("d", DIMENSIONS)
@pytest.mark.parametrize("epsilon", ["0.001", "1", "2.7", "20"])
def test_the_loss_is_exactly_epsilon(name, d, epsilon):
    mechanism = make_mechanism(name, epsilon=epsilon, keys=d)
    vectors = [*signs_of(d)[:8], *signs_of(d)[-8:], (Fraction(1, 2),) * d, (Fraction(0),) * d]
    laws = [law(mechanism, tuple(map(Fraction, vector))) for vector in vectors]
    assert all(sum(one.values()) == 1 for one in laws)
    exact = max(math.log(max(one[t] for one in laws) / min(one[t] for one in laws)) for t in laws[0])
    assert exact <= float(epsilon) + 1e-14
    assert exact == pytest.approx(float(epsilon), abs=1e-9)
    assert exact == pytest.approx(mechanism.exact_epsilon(), abs=1e-12)


@pytest.mark.parametrize("d", DIMENSIONS)
@pytest.mark.parametrize("epsilon", ["0.1", "1", "4"])
def test_meanest_is_unbiased_without_rounding(d, epsilon):
    mechanism = make_mechanism("meanest", epsilon=epsilon, keys=d)
    values = [Fraction(1, 3), Fraction(-1), Fraction(0), Fraction(7, 8), Fraction(-1, 5), Fraction(1)]
    vector = tuple(values[:d])
    expected = meanest_law(mechanism, vector)
    means = [sum(q * t[j] for t, q in expected.items()) / mechanism.gain for j in range(d)]
    assert tuple(means) == vector


@pytest.mark.parametrize("d", DIMENSIONS)
def test_meanest_constants_are_those_of_the_source(d):
    e = math.e
    c = 2 ** (d - 1) - (math.comb(d, d // 2) / 2 if d % 2 == 0 else 0)
    binomial = math.comb(d - 1, (d - 1) // 2) if d % 2 else math.comb(d - 1, d // 2)
    parameters = make_mechanism("meanest", epsilon=1, keys=d).parameters()
    assert parameters["scale"] == pytest.approx((2**d + c * (e - 1)) / (binomial * (e - 1)), rel=1e-9)
    assert parameters["p"] == pytest.approx(e * c / ((e - 1) * c + 2**d), rel=1e-9)


def test_the_often_quoted_probability_would_exceed_epsilon_for_even_dimensions():
    quoted = int(math.e / (math.e + 1) * N)
    assert float(meanest_ratio(quoted, 2)) > math.e * 2.9
    assert float(meanest_ratio(quoted, 3)) == pytest.approx(math.e)


def many(vector, n):
    d = len(vector)
    return Records(
        users=Secret.new().users().integers(np.arange(n)),
        offsets=np.arange(n + 1) * d,
        keys=np.tile(np.arange(d, dtype=np.int32), n),
        values=np.tile(np.array([int(v * VALUE_ONE) for v in vector], np.int64), n),
    )


def observed(mechanism, vector, n=100_000):
    reports = mechanism.perturb(many(vector, n), Secret.new().stream(fingerprint="law"))
    assert mechanism.valid(reports).all()
    if mechanism.name == "harmony":
        rows = np.stack([reports.arrays["key"], reports.arrays["sign"].astype(np.int32)], axis=1)
    else:
        bits = np.unpackbits(reports.arrays["plus"], axis=1, count=mechanism.keys, bitorder="little")
        rows = 2 * bits.astype(int) - 1
    found, numbers = np.unique(rows, axis=0, return_counts=True)
    return {tuple(row.tolist()): int(number) for row, number in zip(found, numbers, strict=True)}


def p_value(numbers, expected):
    n = sum(numbers.values())
    statistic = 2 * sum(c * np.log(c / (n * float(expected[y]))) for y, c in numbers.items())
    return chi2.sf(statistic, len(expected) - 1)


@pytest.mark.parametrize("name", ["harmony", "meanest"])
@pytest.mark.parametrize("d", DIMENSIONS)
def test_reports_follow_the_exact_law(name, d):
    mechanism = make_mechanism(name, epsilon="2", keys=d)
    vector = tuple([Fraction(1), Fraction(-1, 2), Fraction(0), Fraction(-1), Fraction(3, 4), Fraction(1)][:d])
    numbers = observed(mechanism, vector)
    assert p_value(numbers, law(mechanism, vector)) > FALSE_ALARM
    other = make_mechanism(name, epsilon="2.8", keys=d)
    assert p_value(numbers, law(other, vector)) < FALSE_ALARM
    assert p_value(numbers, law(mechanism, (Fraction(1, 2), *vector[1:]))) < FALSE_ALARM


@pytest.mark.parametrize("name", ["harmony", "meanest"])
@pytest.mark.parametrize("d", [1, 2, 5, 64, 67])
def test_estimates_find_the_means_and_state_their_errors(name, d):
    rng = np.random.default_rng(d)
    mechanism, n = make_mechanism(name, epsilon="1", keys=d), 300 * 500
    true = np.linspace(-0.9, 0.8, d) if d > 1 else np.array([0.3])
    values = np.where(rng.random((n, d)) < (1 + true) / 2, 1, -1)  # values of 1 and -1 have the stated variance
    records = many([0] * d, n)
    records = Records(
        users=records.users, offsets=records.offsets, keys=records.keys, values=(values * VALUE_ONE).ravel()
    )
    reports = mechanism.perturb(records, Secret.new().stream(fingerprint="e"))
    for estimator in mechanism.estimators:
        estimates = mechanism.estimate(mechanism.count(reports), estimator)
        assert (np.abs(estimates.mean_raw - true) < 7.5 * estimates.mean_se).all()
        raw = []
        for i in range(300):
            part = Reports(n=500, arrays={k: v[500 * i : 500 * i + 500] for k, v in reports.arrays.items()})
            raw.append(mechanism.estimate(mechanism.count(part), "baseline").mean_raw)
    predicted = estimates.mean_se**2 * 300  # of the baseline, which came last
    assert abs(np.var(raw, axis=0, ddof=1).mean() / predicted.mean() - 1) < 7 * np.sqrt(2 / 299)
    assert mechanism.predict(frequency=1.0, mean=float(true[0]), users=n).mean_se == pytest.approx(
        mechanism.estimate(mechanism.count(reports)).mean_se[0], rel=0.3
    )


@pytest.mark.parametrize("name", ["harmony", "meanest"])
def test_a_missing_coordinate_counts_as_the_middle(name):
    mechanism, n = make_mechanism(name, epsilon="4", keys=3), 60_000
    offsets = np.arange(n + 1)
    users = Secret.new().users().integers(np.arange(n))
    held = Records(
        users=users, offsets=offsets, keys=np.full(n, 1, np.int32), values=np.full(n, VALUE_ONE, dtype=np.int64)
    )
    estimates = mechanism.estimate(mechanism.count(mechanism.perturb(held, Secret.new().stream(fingerprint="m"))))
    assert (np.abs(estimates.mean_raw - [0, 1, 0]) < 7.5 * estimates.mean_se).all()
    assert np.isnan(estimates.frequency).all()


def test_impossible_reports_are_invalid():
    for name, array, value in (("harmony", "key", 3), ("harmony", "sign", 0), ("meanest", "plus", 8)):
        mechanism = make_mechanism(name, epsilon=1, keys=3)
        reports = mechanism.perturb(many([0, 0, 0], 3), Secret.new().stream(fingerprint="i"))
        wrong = reports.arrays[array].copy()
        wrong[1] = value
        assert mechanism.valid(Reports(n=3, arrays={**reports.arrays, array: wrong})).tolist() == [True, False, True]


def test_coordinates_without_reports_have_no_mean():
    mechanism = make_mechanism("harmony", epsilon=1, keys=1000)
    counts = mechanism.count(mechanism.perturb(many([0] * 1000, 20), Secret.new().stream(fingerprint="n")))
    estimates = mechanism.estimate(counts)
    silent = (counts.cells["n1"] + counts.cells["n2"]) == 0
    assert np.array_equal(np.isnan(estimates.mean), silent)
    assert estimates.flags["few-holders"].all()
