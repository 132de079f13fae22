"""Several attributes: exact budgets, rows of one size, draws that do not depend on the record, errors.

False alarms: likelihood-ratio tests fail below 1e-11; figures may lie 7 standard errors off.
"""

import itertools
import math
import pickle

import numpy as np
import pytest
from ldp_beam.errors import ParameterError
from ldp_beam.mechanisms import Records, Reports, Secret, make_mechanism
from ldp_beam.mechanisms.attributes import one_attribute
from ldp_beam.mechanisms.audit.audit import audit_exact
from scipy.stats import chi2

SIZES = (2, 3, 5)
NAMES = ("grr", "sue", "oue", "olh", "subset-selection", "shist", "hadamard")
BOTH = list(itertools.product(NAMES, ("split", "sampled")))


def build(name, mode, epsilon="2", sizes=SIZES, **more):
    return make_mechanism(name, epsilon=epsilon, keys=sum(sizes), attributes=(mode, sizes), **more)


def people(n, sizes=SIZES, seed=0):
    """One value of every attribute each, the first twice as likely as the others."""
    rng = np.random.default_rng(seed)
    held = []
    for first, size in zip(np.cumsum((0, *sizes)), sizes, strict=False):
        weights = np.array([2] + [1] * (size - 1))
        held.append(first + rng.choice(size, n, p=weights / weights.sum()))
    keys = np.stack(held, axis=1).astype(np.int32)
    users = Secret.new().users().integers(np.arange(n))
    records = Records(users=users, offsets=np.arange(n + 1) * len(sizes), keys=keys.ravel())
    return records, np.bincount(keys.ravel(), minlength=sum(sizes)) / max(n, 1)


@pytest.mark.parametrize(("name", "mode"), BOTH)
def test_the_whole_row_spends_epsilon(name, mode):
    for epsilon in ("0.3", "1", "7"):
        mechanism = build(name, mode, epsilon)
        assert float(epsilon) - 1e-8 < mechanism.exact_epsilon() <= float(mechanism.epsilon)
        each = float(epsilon) / (3 if mode == "split" else 1)
        assert all(float(inner.epsilon) == pytest.approx(each) for inner in mechanism.inner)


@pytest.mark.parametrize(("name", "mode"), BOTH)
def test_rows_counts_and_clones(name, mode):
    mechanism, stream = build(name, mode), Secret.from_seed(3).stream(fingerprint="a")
    records, _ = people(3_000)
    reports = mechanism.perturb(records, stream)
    assert [part.name for part in mechanism.layout()] == list(reports.arrays)
    assert all(reports.arrays[part.name].shape == part.shape(3_000) for part in mechanism.layout())
    assert all(reports.arrays[part.name].dtype == np.dtype(part.dtype) for part in mechanism.layout())
    assert mechanism.valid(reports).all()
    halves = [mechanism.perturb(part, stream) for part in records.chunks(1_100)]
    for key in reports.arrays:
        assert np.array_equal(np.concatenate([half.arrays[key] for half in halves]), reports.arrays[key])
    mine = mechanism.zero()
    total = mechanism.count(reports, mine)
    assert all(total.cells[cell] is mine.cells[cell] for cell in mine.cells)
    added = mechanism.zero()
    for half in halves:
        added = added + mechanism.count(half)
    assert added.equals(total)
    twin = pickle.loads(pickle.dumps(mechanism))
    assert twin == mechanism
    assert twin.count(twin.perturb(records, stream)).equals(total)
    nothing = mechanism.estimate(mechanism.zero())
    assert np.isnan(nothing.frequency).all()
    assert mechanism.perturb(people(0)[0], stream).n == 0


@pytest.mark.parametrize(("name", "mode"), BOTH)
def test_every_attribute_s_shares_are_found(name, mode):
    """Ten shares within 7 standard errors (14 cases: false alarm below 1e-9)."""
    mechanism = build(name, mode, epsilon="6")
    records, truth = people(20_000)
    counts = mechanism.count(mechanism.perturb(records, Secret.new().stream(fingerprint="f")))
    for estimator in mechanism.estimators:
        estimates = mechanism.estimate(counts, estimator)
        assert (np.abs(estimates.frequency_raw - truth) < 7 * estimates.frequency_se).all()
        if estimator == "norm-sub":
            sums = np.add.reduceat(estimates.frequency, [0, 2, 5])
            assert sums == pytest.approx(np.ones(3))
    told = estimates.support["reports"]
    assert told.sum() == 20_000 * 10 if mode == "split" else told[[0, 2, 5]].sum() == 20_000


def test_the_drawn_attribute_does_not_depend_on_the_record():
    mechanism, n = build("grr", "sampled"), 90_000
    for keys in ([0, 2, 5], [1, 4, 9], [7]):
        users = Secret.new().users().integers(np.arange(n))
        records = Records(users=users, offsets=np.arange(n + 1) * len(keys), keys=np.tile(np.array(keys, np.int32), n))
        drawn = mechanism.perturb(records, Secret.new().stream(fingerprint="d")).arrays["attribute"]
        counted = np.bincount(drawn, minlength=4)[1:]
        assert chi2.sf(2 * np.sum(counted * np.log(counted / (n / 3))), 2) > 1e-11


def test_answers_to_different_attributes_are_independent_given_the_record():
    mechanism, n = build("grr", "split", sizes=(2, 3)), 200_000
    users = Secret.new().users().integers(np.arange(n))
    records = Records(users=users, offsets=np.arange(n + 1) * 2, keys=np.tile(np.array([0, 3], np.int32), n))
    reports = mechanism.perturb(records, Secret.new().stream(fingerprint="i"))
    joint = np.bincount(reports.arrays["key_1"] * 3 + reports.arrays["key_2"], minlength=6)
    p = mechanism.parameters()
    expected = n * np.outer([p["p_1"], p["q_1"]], [p["q_2"], p["p_2"], p["q_2"]]).ravel()
    assert chi2.sf(2 * np.sum(joint * np.log(joint / expected)), 5) > 1e-11


def test_the_loss_of_a_row_by_enumeration():
    """Two attributes, GRR: every record of one value each, every row."""
    for mode in ("split", "sampled"):
        mechanism = build("grr", mode, epsilon="1", sizes=(2, 3))
        p = mechanism.parameters()

        def answer(number, y, x, p=p):
            return p[f"p_{number}"] if y == x else p[f"q_{number}"]

        laws = []
        for first, second in itertools.product(range(2), range(3)):
            if mode == "split":
                law = {
                    (a, b): answer(1, a, first) * answer(2, b, second) for a, b in itertools.product(range(2), range(3))
                }
            else:
                law = {(1, a): answer(1, a, first) / 2 for a in range(2)}
                law |= {(2, b): answer(2, b, second) / 2 for b in range(3)}
            assert sum(law.values()) == pytest.approx(1)
            laws.append(law)
        loss = max(math.log(max(law[y] for law in laws) / min(law[y] for law in laws)) for y in laws[0])
        assert loss == pytest.approx(1, abs=1e-8)
        assert loss == pytest.approx(mechanism.exact_epsilon(), abs=1e-9)


def test_rows_that_no_client_sends_are_invalid():
    mechanism = build("grr", "sampled")
    reports = mechanism.perturb(people(2_000)[0], Secret.new().stream(fingerprint="w"))
    drawn = reports.arrays["attribute"]
    for change in (
        {"attribute": np.where(np.arange(2_000) == 0, 4, drawn).astype(np.int32)},
        {"attribute": np.where(np.arange(2_000) == 0, 0, drawn).astype(np.int32)},
        {f"key_{drawn[0] % 3 + 1}": np.where(np.arange(2_000) == 0, 1, 0).astype(np.int32)},
    ):
        valid = mechanism.valid(Reports(n=2_000, arrays={**reports.arrays, **change}))
        assert not valid[0]
    assert not mechanism.valid(Reports(n=2_000, arrays={"attribute": drawn})).any()


def test_records_are_cut_by_attribute():
    records, _ = people(50)
    parts = [one_attribute(records, first, size) for first, size in ((0, 2), (2, 3), (5, 5))]
    whole = np.stack([part.keys + first for part, first in zip(parts, (0, 2, 5), strict=True)], axis=1)
    assert np.array_equal(whole.ravel(), records.keys)
    assert all((part.sizes == 1).all() for part in parts)


def test_several_reports_of_several_attributes():
    mechanism = build("oue", "sampled", epsilon="8", reports=2)
    records, truth = people(20_000)
    estimates = mechanism.estimate(mechanism.count(mechanism.perturb(records, Secret.new().stream(fingerprint="r"))))
    assert (np.abs(estimates.frequency_raw - truth) < 7 * estimates.frequency_se).all()


def test_wrong_attributes_are_refused():
    with pytest.raises(ParameterError, match="mode of the attributes"):
        build("grr", "both")
    with pytest.raises(ParameterError, match="does not ask about several"):
        make_mechanism("psfo-oue", epsilon=1, keys=4, padding=2, attributes=("split", (2, 2)))
    with pytest.raises(ParameterError, match="as many as they have"):
        make_mechanism("grr", epsilon=1, keys=5, attributes=("split", (2, 2)))
    with pytest.raises(ParameterError, match="keys of grr is 1"):
        build("grr", "split", sizes=(1, 2))


@pytest.mark.parametrize(("name", "mode"), BOTH)
def test_the_audit_agrees(name, mode):
    mechanism = build(name, mode)
    audit = audit_exact(mechanism)
    assert not audit.violations
    assert audit.exact == pytest.approx(mechanism.exact_epsilon(), abs=1e-8)
