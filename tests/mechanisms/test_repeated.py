"""Several answers of a user in one report: budget, independence, errors.

False alarms: likelihood-ratio tests fail below 1e-11; figures may lie 7 standard errors off.
"""

import pickle
from decimal import Decimal

import numpy as np
import pytest
from ldp_beam.errors import ParameterError
from ldp_beam.mechanisms import MECHANISMS, VALUE_ONE, Records, Reports, Secret, make_mechanism
from ldp_beam.mechanisms.audit.audit import audit_exact
from ldp_beam.mechanisms.privkv.rounds import MultiRound
from ldp_beam.mechanisms.repeated import each_epsilon
from scipy.stats import chi2

PADDED = {"pckv-ue", "pckv-grr", "psfo-grr", "psfo-oue", "percentiles"}
NAMES = ("pckv-ue", "pckv-grr", "grr", "oue", "olh", "shist", "psfo-grr", "harmony", "meanest", "privkv", "percentiles")


def build(name, epsilon="2", keys=6, reports=3):
    more = {"padding": 2} if name in PADDED else {}
    return make_mechanism(name, epsilon=epsilon, keys=keys, reports=reports, **more)


def people(n, keys=6, values=True, seed=0):
    rng = np.random.default_rng(seed)
    held = rng.choice(keys, n, p=np.arange(keys, 0, -1) / (keys * (keys + 1) / 2)).astype(np.int32)
    sign = np.where(rng.random(n) < 0.7, VALUE_ONE, -VALUE_ONE)
    users = Secret.new().users().integers(np.arange(n))
    return Records(users=users, offsets=np.arange(n + 1), keys=held, values=sign if values else None)


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("epsilon", ["0.3", "1", "7"])
@pytest.mark.parametrize("reports", [1, 3, 10])
def test_all_answers_together_spend_epsilon(name, epsilon, reports):
    mechanism = build(name, epsilon, reports=reports)
    assert mechanism.epsilon == Decimal(epsilon)
    assert mechanism.exact_epsilon() <= mechanism.epsilon
    if name != "privkv":  # whose published split spends less than it declares
        assert mechanism.exact_epsilon() > float(epsilon) - 1e-8
    assert mechanism.thresholds()["reports"] == reports
    assert mechanism.name == name


@pytest.mark.parametrize("name", NAMES)
def test_reports_hold_every_answer_and_are_a_function_of_the_record(name):
    mechanism, stream = build(name), Secret.from_seed(1).stream(fingerprint="r")
    records = people(2_000, values=mechanism.has_values)
    reports = mechanism.perturb(records, stream)
    assert [part.name for part in mechanism.layout()] == list(reports.arrays)
    assert len(reports.arrays) == 3 * len(mechanism.inner.layout())
    for part in mechanism.layout():
        assert reports.arrays[part.name].shape == part.shape(2_000)
    assert mechanism.valid(reports).all()
    halves = [mechanism.perturb(part, stream) for part in records.chunks(700)]
    for key in reports.arrays:
        assert np.array_equal(np.concatenate([half.arrays[key] for half in halves]), reports.arrays[key])
    mine = mechanism.zero()
    total = mechanism.count(reports, mine)
    assert total.n == 2_000
    assert all(total.cells[cell] is mine.cells[cell] for cell in mine.cells)
    twin = pickle.loads(pickle.dumps(mechanism))
    assert twin == mechanism
    assert twin.name == name
    assert twin.count(twin.perturb(records, stream)).equals(mechanism.count(reports))


def test_answers_are_independent_given_the_record():
    mechanism = build("grr", keys=3, reports=2)
    n = 200_000
    users = Secret.new().users().integers(np.arange(n))
    records = Records(users=users, offsets=np.arange(n + 1), keys=np.full(n, 1, np.int32))
    reports = mechanism.perturb(records, Secret.new().stream(fingerprint="i"))
    joint = np.bincount(reports.arrays["key_1"] * 3 + reports.arrays["key_2"], minlength=9)
    q = np.array([mechanism.parameters()[letter] for letter in "qpq"])
    expected = n * np.outer(q, q).ravel()
    assert chi2.sf(2 * np.sum(joint * np.log(joint / expected)), 8) > 1e-11
    # power: answers that were copies of each other would never differ
    assert chi2.sf(2 * np.sum(joint * np.log(joint / (n * np.repeat(q, 3) / 3))), 8) < 1e-11


def test_answers_draw_their_pairs_anew():
    mechanism = build("psfo-grr", epsilon="20", keys=6, reports=2)
    n = 20_000
    users = Secret.new().users().integers(np.arange(n))
    records = Records(users=users, offsets=np.arange(n + 1) * 2, keys=np.tile(np.array([1, 4], np.int32), n))
    reports = mechanism.perturb(records, Secret.new().stream(fingerprint="i"))
    same = (reports.arrays["key_1"] == reports.arrays["key_2"]).mean()
    assert abs(same - 0.5) < 0.05


@pytest.mark.parametrize("name", ["grr", "oue", "psfo-grr", "pckv-ue", "harmony"])
def test_errors_are_those_of_redrawn_people(name):
    """300 collections: the mean of the variances as predicted within 7 standard errors (means: no larger)."""
    mechanism = build(name, epsilon="8", keys=6, reports=4)
    records = people(300 * 1_000, values=mechanism.has_values, seed=2)
    stream = Secret.new().stream(fingerprint="v")
    figures = []
    for part in records.chunks(1_000):
        estimates = mechanism.estimate(mechanism.count(mechanism.perturb(part, stream)))
        raw, error = (
            (estimates.frequency_raw, estimates.frequency_se)
            if mechanism.has_frequency
            else (estimates.mean_raw, estimates.mean_se)
        )
        figures.append(np.stack([raw, error**2]))
    raw, squared = np.stack(figures, axis=1)
    ratio = np.var(raw, axis=0, ddof=1).mean() / squared.mean()
    assert ratio - 1 < 7 * np.sqrt(2 / 299)
    if mechanism.has_frequency:
        assert ratio - 1 > -7 * np.sqrt(2 / 299)
        predicted = mechanism.predict(frequency=2 / 7, mean=0.0, users=1_000).frequency_se
        assert predicted**2 == pytest.approx(squared[:, 1 if name == "grr" else 0].mean(), rel=0.3)


def test_a_row_with_one_impossible_answer_is_not_counted():
    mechanism = build("grr")
    reports = mechanism.perturb(people(3, values=False), Secret.new().stream(fingerprint="w"))
    wrong = reports.arrays["key_2"].copy()
    wrong[1] = 6
    assert mechanism.valid(Reports(n=3, arrays={**reports.arrays, "key_2": wrong})).tolist() == [True, False, True]
    rest = {name: array for name, array in reports.arrays.items() if name != "key_3"}
    assert not mechanism.valid(Reports(n=3, arrays=rest)).any()


def test_wrong_numbers_are_refused():
    for reports, text in ((0, "reports of this collection is 0"), (101, "is 101"), (1.5, "is 1.5")):
        with pytest.raises(ParameterError, match=text):
            build("grr", reports=reports)
    with pytest.raises(ParameterError, match=r"leaves less than 0\.001"):
        build("grr", epsilon="0.01", reports=20)
    with pytest.raises(ParameterError, match="needs 'epsilon'"):
        make_mechanism("grr", keys=3, reports=2)
    rounds = [name for name, entry in MECHANISMS.items() if issubclass(entry.mechanism, MultiRound)]
    for name in rounds:
        with pytest.raises(ParameterError, match="asks in rounds"):
            make_mechanism(name, epsilon=1, keys=3, reports=2)
    assert each_epsilon(Decimal(1), 3) * 3 < 1


def test_the_audit_adds_the_answers_up():
    for name in ("grr", "oue", "pckv-ue"):
        mechanism = build(name, epsilon="3", reports=4)
        audit = audit_exact(mechanism)
        assert not audit.violations
        assert audit.rounds == 4
        assert audit.exact == pytest.approx(mechanism.exact_epsilon(), abs=1e-9)
