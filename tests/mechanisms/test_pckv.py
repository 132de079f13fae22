"""Parameters, names and limits of PCKV, and the registry."""

import dataclasses
import math
from decimal import Decimal

import numpy as np
import pytest
from ldp_beam.errors import NotAvailableError, ParameterError
from ldp_beam.mechanisms import (
    MECHANISMS,
    PCKV,
    PCKVGRR,
    PCKVUE,
    RESERVED,
    Reports,
    Secret,
    make_mechanism,
    make_records,
)

SMALLEST = {"keys": 2, "padding": 1, "sensitive": (0,), "tags": ("health",)}


@pytest.mark.parametrize("name", sorted(MECHANISMS))
@pytest.mark.parametrize("epsilon", [1e-17, 1e-9, 40, 709, 710, math.inf, math.nan, 0, -1, True, "many", None])
def test_useless_or_impossible_epsilon_is_refused(name, epsilon):
    entry = MECHANISMS[name]
    wanted = {*entry.required, "padding"} & set(entry.parameters) - {"epsilon"}
    needed = {parameter: SMALLEST[parameter] for parameter in wanted}
    make_mechanism(name, epsilon=1, **needed)  # nothing else is wrong with it
    with pytest.raises(ParameterError, match="epsilon is"):
        make_mechanism(name, epsilon=epsilon, **needed)


def test_epsilon_is_exact():
    assert PCKVUE(epsilon=0.1, keys=1, padding=1).epsilon == Decimal("0.1")
    assert PCKVUE(epsilon=0.1, keys=1, padding=1) == PCKVUE(epsilon="0.10", keys=1, padding=1)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"keys": 0}, "keys of pckv-ue is 0"),
        ({"keys": 2.0}, "whole number"),
        ({"keys": True}, "whole number"),
        ({"keys": 100_001}, "use pckv-grr"),
        ({"padding": 0}, "padding of pckv-ue is 0"),
        ({"padding": "3"}, "whole number"),
        ({"allocation": "optimised"}, "Did you mean 'optimized'"),
    ],
)
def test_wrong_parameters_are_refused(change, message):
    good = {"epsilon": 1, "keys": 4, "padding": 1}
    with pytest.raises(ParameterError, match=message):
        PCKVUE(**{**good, **change})


def test_limits_of_domains():
    assert PCKVUE(epsilon=1, keys=100_000, padding=1).layout()[0].width == 12_500
    assert PCKVGRR(epsilon=1, keys=1_000_000, padding=1).exact_epsilon() <= 1
    with pytest.raises(ParameterError, match="1,000,000"):
        PCKVGRR(epsilon=1, keys=1_000_001, padding=1)


def test_what_comes_later_is_refused_by_name():
    with pytest.raises(ParameterError, match="two questions"):
        PCKVUE(epsilon=1, keys=4, padding="auto")
    for name in RESERVED:
        with pytest.raises(NotAvailableError, match="not available yet"):
            make_mechanism(name, epsilon=1, keys=4)


@pytest.mark.parametrize(
    ("name", "parameters", "message"),
    [
        ("pckv-eu", {}, "Did you mean 'pckv-ue'"),
        ("pckv-ue", {"epsilon": 1, "keys": 3, "paddin": 1}, "Did you mean 'padding'"),
        ("pckv-ue", {"keys": 3, "padding": 1}, "needs 'epsilon'"),
        ("pckv-ue", {"epsilon": 1, "padding": 1}, "needs 'keys'"),
        ("pckv-grr", {"epsilon": 1, "keys": 3}, "needs 'padding'"),
    ],
)
def test_unknown_and_missing_names_are_refused(name, parameters, message):
    with pytest.raises(ParameterError, match=message):
        make_mechanism(name, **parameters)


def test_registry_describes_each_mechanism():
    for name, entry in MECHANISMS.items():
        assert entry.name == name
        assert {"epsilon", "keys"} <= set(entry.required) <= set(entry.parameters)
        assert entry.estimates
        assert entry.guarantee
        assert entry.source
        assert entry.report_size
    assert MECHANISMS["pckv-grr"].parameters == ("epsilon", "keys", "padding", "allocation")
    assert isinstance(make_mechanism("pckv-grr", epsilon=1, keys=4, padding=2), PCKV)


def test_mechanisms_are_values():
    one = PCKVGRR(epsilon=1, keys=4, padding=2)
    assert one == PCKVGRR(epsilon="1", keys=4, padding=2)
    assert one != PCKVUE(epsilon=1, keys=4, padding=2)
    assert hash(one) == hash(PCKVGRR(epsilon=1, keys=4, padding=2))
    assert dataclasses.replace(one, padding=3).padding == 3
    assert "_law" not in repr(one)
    with pytest.raises(dataclasses.FrozenInstanceError):
        one.keys = 5


def test_thresholds_stand_for_the_parameters():
    for mechanism in (PCKVUE(epsilon=1, keys=4, padding=2), PCKVGRR(epsilon=1, keys=4, padding=2)):
        thresholds, p = mechanism.thresholds(), mechanism.parameters()
        assert thresholds["kept"] / 2**64 == pytest.approx(p["a"])
        assert thresholds["kept_with_sign"] / thresholds["kept"] == pytest.approx(p["p"])
        assert all(isinstance(t, int) for t in thresholds.values())


def test_dummies_of_grr_are_one_key():
    mechanism = PCKVGRR(epsilon=1, keys=3, padding=50)
    secret = Secret.from_seed(1)
    reports = mechanism.perturb(make_records(secret.users(), range(5000), [{}] * 5000), secret.stream(fingerprint="d"))
    assert set(np.unique(reports.arrays["key"])) == {0, 1, 2, 3}
    counts = mechanism.count(reports)
    assert counts.n == 5000
    assert counts.cells["n1"].sum() + counts.cells["n2"].sum() < 1000


def test_malformed_grr_reports_are_found():
    mechanism = PCKVGRR(epsilon=1, keys=3, padding=1)
    reports = Reports(
        n=7,
        arrays={
            "key": np.array([0, 3, 4, -1, 0, 0, 2], np.int32),
            "sign": np.array([1, -1, 1, 1, 0, 2, -1], np.int8),
        },
    )
    assert mechanism.valid(reports).tolist() == [True, True, False, False, False, False, True]


@pytest.mark.parametrize("keys", [3, 5000])
def test_grr_counts_equal_slow_counts(keys):
    mechanism, random = PCKVGRR(epsilon=1, keys=keys, padding=1), np.random.default_rng(1)
    key = random.integers(0, keys + 1, 2000).astype(np.int32)
    sign = random.choice(np.array([1, -1], np.int8), 2000)
    counts = mechanism.count(Reports(n=2000, arrays={"key": key, "sign": sign}))
    for name, which in (("n1", 1), ("n2", -1)):
        expected = [((key == k) & (sign == which)).sum() for k in range(keys)]
        assert counts.cells[name].tolist() == expected


def test_reports_are_the_same_in_every_version_and_on_every_machine():
    """Figures of one run: whoever changes them changes the scheme, and with it every memoised report."""
    secret = Secret.from_seed(2026)
    records = make_records(secret.users(), range(4), [{0: 1.0}, {1: -0.5, 3: 0.25}, {}, {9: -1.0}])
    stream = secret.stream(fingerprint="fixed", period="p", round=1)
    unary = PCKVUE(epsilon=1, keys=10, padding=2).perturb(records, stream)
    grr = PCKVGRR(epsilon=1, keys=10, padding=2).perturb(records, stream)
    assert secret.id == "2df319f0d91043f7"
    assert unary.arrays["plus"].tolist() == [[34, 0], [0, 1], [42, 1], [155, 0]]
    assert unary.arrays["minus"].tolist() == [[21, 2], [167, 0], [0, 0], [0, 3]]
    assert grr.arrays["key"].tolist() == [7, 5, 6, 10]
    assert grr.arrays["sign"].tolist() == [1, 1, -1, 1]
