"""The audit's laws of PrivKV, its rounds and KVUE agree with what the mechanisms state, and notice planted faults."""

import math
from fractions import Fraction

import pytest
from ldp_beam.mechanisms import make_mechanism
from ldp_beam.mechanisms.audit.law import loss
from ldp_beam.mechanisms.audit.laws import law_of

CASES = [
    ("privkv", {}),
    ("privkv", {"allocation": "optimized"}),
    ("kvue", {}),
    ("privkvm", {"rounds": 1}),
    ("privkvm", {"rounds": 4}),
    ("privkvm", {"rounds": 3, "initial": 1}),
    ("privkvm", {"rounds": 3, "initial": "-0.5"}),
    ("privkvm-harmony", {"rounds": 2}),
    ("privkvm-meanest", {"rounds": 2}),
    ("privkvm+", {"max_rounds": 3}),
]


@pytest.mark.parametrize(("name", "parameters"), CASES, ids=str)
@pytest.mark.parametrize("epsilon", ["0.001", "1", "20"])
def test_the_audit_agrees_with_the_mechanism(name, parameters, epsilon):
    mechanism = make_mechanism(name, epsilon=epsilon, keys=7, **parameters)
    laws = law_of(mechanism)
    assert len(laws) == parameters.get("rounds", parameters.get("max_rounds", 1))
    ratio = math.prod((loss(law).ratio for law in laws), start=Fraction(1))
    assert math.log(ratio) == pytest.approx(mechanism.exact_epsilon(), rel=1e-12, abs=1e-15)


def test_the_naive_composition_is_the_published_sum():
    (law,) = law_of(make_mechanism("privkv", epsilon=2, keys=3))
    assert math.log(math.prod(law.steps.values())) == pytest.approx(2, abs=1e-12)
    laws = law_of(make_mechanism("privkvm", epsilon=2, keys=3, rounds=4))
    assert math.log(math.prod(step for law in laws for step in law.steps.values())) == pytest.approx(2, abs=1e-12)


def test_a_planted_fault_shows():
    mechanism = make_mechanism("privkvm", epsilon=1, keys=3, rounds=2)
    honest = mechanism.thresholds()
    worse = {**honest, "round_2_kept_with_sign": honest["round_2_kept_with_sign"] + (1 << 60)}

    class Planted(type(mechanism)):
        def thresholds(self):
            return worse

    planted = Planted(epsilon=1, keys=3, rounds=2)
    assert loss(law_of(planted)[1]).ratio > 1.1 * loss(law_of(mechanism)[1]).ratio
