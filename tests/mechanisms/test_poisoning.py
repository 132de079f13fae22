"""The detector of poisoning: its rate of false alarms, its power, and what it cannot see.

False alarms: with the detector's own rate set to 1/20, 240 honest crowds of eight kinds give no more alarms than
that except with probability 1e-9 (binomial); the bounds behind it are not tight, so there are far fewer.
"""

import numpy as np
import pytest
from ldp_beam.mechanisms import VALUE_ONE, Records, Reports, Secret, make_mechanism
from ldp_beam.mechanisms.audit.poisoning import PAIR_KEYS_MAX, UnaryNull, suspicious, unary_null
from scipy.stats import binom

NAMES = ("pckv-ue", "sue", "oue", "psfo-oue")


def make(name, keys=40, epsilon=1):
    given = {"padding": 2} if name in ("pckv-ue", "psfo-oue") else {}
    return make_mechanism(name, epsilon=epsilon, keys=keys, **given)


def crowd(mechanism, n, seed=0, alike=False):
    """Honest reports of people who hold one key each, all the same key if `alike`."""
    rng = np.random.default_rng(seed)
    keys = (
        np.zeros(n, np.int32) if alike else (rng.integers(0, mechanism.keys, n) ** 2 // mechanism.keys).astype(np.int32)
    )
    records = Records(
        users=Secret.new().users().integers(np.arange(n)),
        offsets=np.arange(n + 1),
        keys=keys,
        values=np.full(n, VALUE_ONE) if mechanism.has_values else None,
    )
    return mechanism.perturb(records, Secret.new().stream(fingerprint="crowd"))


def with_cells(mechanism, n, cells, noise=None):
    """Reports that set these cells, and others with a probability where noise is given."""
    bits = np.zeros((n, mechanism.keys), np.uint8)
    if noise is not None:
        bits |= np.random.default_rng(1).random(bits.shape) < noise
    bits[:, list(cells)] = 1
    plane = np.packbits(bits, axis=1, bitorder="little")
    names = [part.name for part in mechanism.layout()]
    return Reports(n=n, arrays={name: plane if i == 0 else np.zeros_like(plane) for i, name in enumerate(names)})


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("alike", [False, True])
def test_honest_crowds_raise_no_more_alarms_than_stated(name, alike):
    mechanism = make(name)
    null = unary_null(mechanism)
    alarms = sum(
        bool(suspicious(null, null.count(crowd(mechanism, 1_000, seed, alike)), false_alarm=0.05)) for seed in range(30)
    )
    # four mechanisms and two crowds, 30 runs each
    assert alarms <= binom.isf(1e-9 / 8, 30, 0.05)
    assert not suspicious(null, null.count(crowd(mechanism, 50_000, alike=alike)))


@pytest.mark.parametrize("name", NAMES)
def test_fakes_that_set_their_targets_alone_are_noticed(name):
    mechanism = make(name)
    null = unary_null(mechanism)
    fakes = with_cells(mechanism, 1_000, [3, 5, 8])
    findings = suspicious(null, null.count(crowd(mechanism, 50_000)) + null.count(fakes))
    assert findings
    assert any("cells set" in finding.what for finding in findings)
    assert max(finding.fakes for finding in findings) > 500


@pytest.mark.parametrize("name", NAMES)
def test_fakes_that_hide_in_noise_are_noticed_by_their_pairs(name):
    """As many cells as an honest report has on average, but the targets always together."""
    mechanism = make(name)
    null = unary_null(mechanism)
    fakes = with_cells(mechanism, 3_000, [3, 5, 8], noise=null.b * 0.93)
    findings = suspicious(null, null.count(crowd(mechanism, 30_000)) + null.count(fakes))
    (pairs,) = [finding for finding in findings if finding.keys]
    assert pairs.keys == (3, 5, 8)
    assert 1_500 < pairs.fakes < 6_000


def test_fakes_with_one_target_and_honest_noise_are_people_who_hold_it():
    """What no server can notice, and the documentation says so."""
    mechanism = make("oue")
    null = unary_null(mechanism)
    fakes = crowd(mechanism, 3_000, alike=True)
    assert not suspicious(null, null.count(crowd(mechanism, 30_000)) + null.count(fakes))


def test_statistics_add_up_in_any_batches():
    mechanism = make("pckv-ue", keys=13)
    null, reports = unary_null(mechanism), crowd(make("pckv-ue", keys=13), 1_000)
    whole = null.count(reports)
    parts = [null.count(reports.select((np.arange(1_000) % 3) == i)) for i in range(3)]
    assert (parts[0] + parts[1] + parts[2]).equals(whole)
    assert whole.cells["set_cells"].sum() == 1_000
    cells = np.unpackbits(reports.arrays["plus"] | reports.arrays["minus"], axis=1, count=13, bitorder="little").astype(
        int
    )
    assert (whole.cells["together"].reshape(13, 13) == cells.T @ cells).all()
    assert (null.zero() + whole).equals(whole)
    assert suspicious(null, null.zero()) == []


def test_what_it_applies_to():
    for name in ("pckv-grr", "grr", "shist", "subset-selection"):
        given = {"padding": 1} if name == "pckv-grr" else {}
        assert unary_null(make_mechanism(name, epsilon=1, keys=20, **given)) is None
    large = unary_null(make("oue", keys=PAIR_KEYS_MAX + 1))
    assert isinstance(large, UnaryNull)
    assert not large.pairs
    assert "together" not in large.zero().cells
