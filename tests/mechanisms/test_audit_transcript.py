"""The attack on all rounds together: faults of later rounds are reported, healthy mechanisms are not.

False alarms: bounds at 1 - 1e-11, eight of them. Power: each planted fault lies at least six standard errors beyond the
declared epsilon at the numbers of reports used here.
"""

from fractions import Fraction

import numpy as np
import pytest
from ldp_beam.mechanisms import make_mechanism
from ldp_beam.mechanisms.audit.attack import attack
from ldp_beam.mechanisms.audit.transcript import Transcript
from ldp_beam.mechanisms.privkv import drawn
from ldp_beam.mechanisms.privkv.privkvm import PrivKVM

SURE = 1 - 1e-11


@pytest.mark.parametrize(
    ("name", "epsilon", "more"),
    [
        ("privkvm", 2, {"rounds": 3}),
        ("privkvm", 2, {"rounds": 2, "initial": 1}),
        ("privkvm+", 4, {"max_rounds": 4}),
        ("privkvm-harmony", 2, {"rounds": 3}),
    ],
)
@pytest.mark.parametrize("keys", [3, 1000])
def test_healthy_rounds_are_not_accused_and_the_attack_sees_more_than_the_first(name, epsilon, more, keys):
    mechanism = make_mechanism(name, epsilon=epsilon, keys=keys, **more)
    found = attack(Transcript(mechanism), 40_000, confidence=SURE)
    assert not found.violation
    assert found.declared == epsilon
    assert found.epsilon_low > 0.6 * mechanism.exact_epsilon()
    assert found.epsilon_low > mechanism.round(1).exact_epsilon() * 0.95


def test_reports_of_all_rounds_are_those_of_the_real_clients():
    mechanism = make_mechanism("privkvm", epsilon=1, keys=5, rounds=7)
    transcript = Transcript(mechanism)
    assert len(transcript.layout()) == 14
    found = attack(transcript, 2_000, confidence=SURE)  # seven rounds: the signs of six are looked at together
    assert not found.violation


def test_a_budget_that_every_round_spends_anew_is_reported(monkeypatch):
    mechanism = make_mechanism("privkvm", epsilon=2, keys=4, rounds=3)
    monkeypatch.setattr(PrivKVM, "sign_budget", lambda self, number: Fraction(1))
    monkeypatch.setattr(PrivKVM, "charge", lambda self, number: self.epsilon)
    planted = make_mechanism("privkvm", epsilon="2.0", keys=4, rounds=3)
    object.__setattr__(planted, "rounds_max", 4)  # another value than any mechanism that was kept before
    assert attack(Transcript(planted), 60_000).violation
    assert not attack(planted.round(1), 60_000, confidence=SURE).violation  # the first round alone shows nothing
    assert mechanism.epsilon == 2


def test_later_answers_that_give_the_key_away_are_reported(monkeypatch):
    answer = drawn._answer

    def honest_later(law, held, value, signs, fates, fed):
        given = answer(law, held, value, signs, fates, fed)
        return np.where(held | (fed is None), given, 0).astype(np.int8)

    monkeypatch.setattr(drawn, "_answer", honest_later)
    assert attack(Transcript(make_mechanism("privkvm", epsilon=2, keys=4, rounds=2)), 20_000).violation


def test_a_drawn_key_that_depends_on_the_record_is_reported(monkeypatch):
    draw = drawn.mulhi

    def held_ones(words, bound):
        keys = draw(words, bound)
        return np.where(words & np.uint64(3) == 0, np.uint64(0), keys)  # more often the first one: still independent

    monkeypatch.setattr(drawn, "mulhi", held_ones)
    mechanism = make_mechanism("privkvm", epsilon=1, keys=4, rounds=2)
    assert not attack(Transcript(mechanism), 20_000, confidence=SURE).violation
    look_up = drawn._look_up

    def leaking(part, key, keys):
        if len(part.keys):
            key[:] = part.keys[part.offsets[:-1]]  # her first key
        return look_up(part, key, keys)

    monkeypatch.setattr(drawn, "_look_up", leaking)
    assert attack(Transcript(mechanism), 20_000).violation
