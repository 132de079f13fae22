"""Exact laws and privacy losses of PrivKV, its rounds and KVUE on small domains. Nothing is drawn except at the end.

The laws below are written from the papers' steps, independently of `KeyLaw`; the kernel is compared with them by
likelihood-ratio tests with a false-alarm probability of 1e-12 each (fewer than 60 of them: 6e-11), and must reject the
laws of mechanisms with 20 % more or less epsilon.
"""

import itertools
import math
from decimal import Decimal
from fractions import Fraction

import numpy as np
import pytest
from ldp_beam.errors import NotAvailableError, ParameterError
from ldp_beam.mechanisms import VALUE_ONE, Records, Secret
from ldp_beam.mechanisms.privkv.kvue import KVUE
from ldp_beam.mechanisms.privkv.privkv import PrivKV
from ldp_beam.mechanisms.privkv.privkvm import PrivKVM, PrivKVMHarmony, PrivKVMMeanEst, PrivKVMPlus
from scipy.stats import chi2

N = 1 << 64
FALSE_ALARM = 1e-12
ANSWERS = (1, -1, 0)
#: No key, or its value.
HOLDINGS = (None, Fraction(1), Fraction(-1), Fraction(1, 2), Fraction(0))
EPSILONS = ("0.001", "0.1", "1", "2.7", "8", "20")


def mixed(law, value):
    """Exact law of a holder's answer, from the thresholds."""
    up = (1 + value) / 2
    same, kept = Fraction(law.same, N), Fraction(law.kept, N)
    return {1: up * same + (1 - up) * (kept - same), -1: up * (kept - same) + (1 - up) * same, 0: 1 - kept}


def absent(law, fed):
    """Exact law of the answer of somebody who does not hold the key; `fed` is the sign that was fed back."""
    plus = law.fake_plus if fed in (None, 1) else law.other - law.fake_plus
    return {1: Fraction(plus, N), -1: Fraction(law.other - plus, N), 0: 1 - Fraction(law.other, N)}


def answer(law, holding, fed=None):
    return absent(law, fed) if holding is None else mixed(law, holding)


def papers_law(e1, e2, holding, fake):
    """LPP and VPP as published, in floats; `fake` is the expected fake value."""
    p1, p2 = math.exp(e1) / (math.exp(e1) + 1), math.exp(e2) / (math.exp(e2) + 1)
    present, value = (p1, holding) if holding is not None else (1 - p1, fake)
    up = float((1 + value) / 2)
    return {1: present * (up * p2 + (1 - up) * (1 - p2)), -1: present * (up * (1 - p2) + (1 - up) * p2), 0: 1 - present}


def close(left, right):
    return all(float(left[y]) == pytest.approx(float(right[y]), rel=1e-9, abs=1e-15) for y in ANSWERS)


def loss(laws):
    for law in laws:
        assert sum(law.values()) == 1
    return max(math.log(max(law[y] for law in laws) / min(law[y] for law in laws)) for y in laws[0])


def secret_loss(e1, e2):
    """Loss where the client draws the fake sign."""
    return max(e2, e1 + math.log(2 / (1 + math.exp(-e2))))


@pytest.mark.parametrize("epsilon", [0.5, 2, 6])
@pytest.mark.parametrize("holding", HOLDINGS)
def test_privkv_is_the_published_law(epsilon, holding):
    half = epsilon / 2
    assert close(answer(PrivKV(epsilon=epsilon, keys=3).law, holding), papers_law(half, half, holding, 0))
    tight = math.log((math.exp(epsilon) + 1) / 2)
    optimized = PrivKV(epsilon=epsilon, keys=3, allocation="optimized").law
    assert close(answer(optimized, holding), papers_law(tight, epsilon, holding, 0))


@pytest.mark.parametrize("epsilon", [0.5, 2, 6])
@pytest.mark.parametrize("holding", HOLDINGS)
def test_kvue_is_randomised_response_over_three_answers(epsilon, holding):
    total = math.exp(epsilon)
    p, q = total / (total + 2), 1 / (total + 2)
    up = None if holding is None else float((1 + holding) / 2)
    shares = {0: 1.0} if up is None else {1: up, -1: 1 - up}
    expected = {y: sum(share * (p if y == own else q) for own, share in shares.items()) for y in ANSWERS}
    assert close(answer(KVUE(epsilon=epsilon, keys=3).law, holding), expected)


@pytest.mark.parametrize("epsilon", EPSILONS)
def test_the_loss_by_enumeration(epsilon):
    half, declared = float(epsilon) / 2, float(epsilon)
    naive = PrivKV(epsilon=epsilon, keys=5)
    tight = PrivKV(epsilon=epsilon, keys=5, allocation="optimized")
    kvue = KVUE(epsilon=epsilon, keys=5)
    for mechanism, expected in ((naive, secret_loss(half, half)), (tight, declared), (kvue, declared)):
        found = loss([answer(mechanism.law, holding) for holding in HOLDINGS])
        assert found == pytest.approx(expected, abs=1e-9)
        assert found == pytest.approx(mechanism.exact_epsilon(), abs=1e-13)
        assert mechanism.exact_epsilon() <= mechanism.epsilon
    assert naive.exact_epsilon() < declared


def transcripts(mechanism, rounds, keys):
    """Law of all rounds together for every record over `keys` keys: drawn keys, signs fed back, answers.

    What is fed back is the server's choice and independent of the record, so each sign is taken as given.
    """
    holdings = (None, Fraction(1), Fraction(-1))
    table = [
        {(holding, fed): answer(mechanism.round(number).law, holding, fed) for holding in holdings for fed in feds}
        for number, feds in ((number, (1, -1) if number > 1 else (None,)) for number in range(1, rounds + 1))
    ]
    records = list(itertools.product(holdings, repeat=keys))
    steps = [(key, fed, y) for key in range(keys) for fed in (1, -1) for y in ANSWERS]
    starts = [(key, None, y) for key in range(keys) for y in ANSWERS]
    laws = []
    for record in records:
        law = {}
        for path in itertools.product(starts, *([steps] * (rounds - 1))):
            share = Fraction(1)
            for answers, (key, fed, y) in zip(table, path, strict=True):
                share *= answers[record[key], fed][y]
            law[path] = share
        laws.append(law)
    return laws


@pytest.mark.parametrize("keys", [1, 2])
@pytest.mark.parametrize(("rounds", "epsilon"), [(1, 1), (2, 1), (2, 4), (3, 2)])
def test_the_loss_of_all_rounds_by_enumeration(rounds, epsilon, keys):
    share = epsilon / (2 * rounds)
    cases = {0: epsilon / 2 + math.log(2 / (1 + math.exp(-share))) + (rounds - 1) * share, 1: epsilon}
    for initial, expected in cases.items():
        mechanism = PrivKVM(epsilon=epsilon, keys=keys, rounds=rounds, initial=initial)
        laws = transcripts(mechanism, rounds, keys)
        found = max(math.log(max(law[y] for law in laws) / min(law[y] for law in laws)) for y in laws[0])
        assert found == pytest.approx(expected, abs=1e-9)
        assert found == pytest.approx(mechanism.exact_epsilon(), abs=1e-12)
        assert mechanism.exact_epsilon() <= mechanism.epsilon


@pytest.mark.parametrize("epsilon", EPSILONS)
@pytest.mark.parametrize("initial", [0, "0.5", 1, -1])
def test_no_rounds_lose_more_than_declared(epsilon, initial):
    for rounds in (1, 6, 100):
        mechanism = PrivKVM(epsilon=epsilon, keys=5, rounds=rounds, initial=initial)
        assert mechanism.exact_epsilon() <= mechanism.epsilon
        if abs(float(initial)) == 1:
            assert float(epsilon) - mechanism.exact_epsilon() < 1e-9
        charged = Fraction(0)
        for number in range(1, rounds + 1):
            one = mechanism.round(number)
            assert one.exact_epsilon() <= one.epsilon
            charged += Fraction(one.epsilon)
            assert 0 <= charged - mechanism.spent(number) < Fraction(1, 10**23)
        assert charged == Fraction(mechanism.epsilon)
    plus = PrivKVMPlus(epsilon=epsilon, keys=5, initial=initial, max_rounds=6)
    assert plus.exact_epsilon() <= plus.epsilon
    assert plus.spent(6) == Fraction(Decimal(epsilon))


@pytest.mark.parametrize("initial", [0, 1, "-0.25"])
@pytest.mark.parametrize("holding", HOLDINGS)
def test_rounds_are_the_published_laws(initial, holding):
    mechanism = PrivKVM(epsilon=3, keys=4, rounds=5, initial=initial)
    assert close(answer(mechanism.round(1).law, holding), papers_law(1.5, 0.3, holding, float(initial)))
    for number in (2, 5):
        for fed in (1, -1):
            assert close(answer(mechanism.round(number).law, holding, fed), papers_law(0.0, 0.3, holding, fed))


@pytest.mark.parametrize("epsilon", [0.5, 2])
@pytest.mark.parametrize("value", [Fraction(1), Fraction(-1), Fraction(1, 2), Fraction(0)])
def test_meanest_and_harmony_have_the_same_law_for_one_value(epsilon, value):
    """A sign of MeanEst's B or -B, given an answer with a sign, beside two steps of Harmony."""
    grown = math.exp(epsilon / 2)
    plus = 0.5 + float(value) * (grown - 1) / (2 * (grown + 1))
    for kind in (PrivKVMHarmony, PrivKVMMeanEst):
        law = kind(epsilon=epsilon, keys=2, rounds=1).round(1).law
        signs = mixed(law, value)
        assert float(signs[1] / (signs[1] + signs[-1])) == pytest.approx(plus, rel=1e-12)
        assert 1 / law.trust == pytest.approx((grown + 1) / (grown - 1), rel=1e-12)  # B


def test_expected_means_of_the_rounds():
    """E m(c) = m (1 - (1 - alpha) (1 - f)^(c - 1)), from the exact laws of the rounds."""
    f, m, rounds = Fraction(3, 10), Fraction(-7, 10), 5
    mechanism = PrivKVM(epsilon=2, keys=1, rounds=rounds)
    law = mechanism.round(1).law
    alpha = law.a * float(f) / (law.a * float(f) + law.b * (1 - float(f)))
    mean = 0.0
    for number in range(1, rounds + 1):
        law = mechanism.round(number).law
        held = mixed(law, m)
        if number == 1:
            faked = absent(law, None)
        else:
            up = (1 + Fraction(mean)) / 2
            faked = {y: up * absent(law, 1)[y] + (1 - up) * absent(law, -1)[y] for y in ANSWERS}
        signs = {y: f * held[y] + (1 - f) * faked[y] for y in ANSWERS}
        mean = float((signs[1] - signs[-1]) / (signs[1] + signs[-1])) / law.trust
        expected = float(m) * (1 - (1 - alpha) * (1 - float(f)) ** (number - 1))
        assert mean == pytest.approx(expected, abs=1e-9)


def test_budgets_of_privkvm_plus():
    mechanism = PrivKVMPlus(epsilon=2, keys=3, max_rounds=4)
    signs = [mechanism.budgets(number)[1] for number in range(1, 5)]
    assert signs == [Fraction(1, 2), Fraction(1, 4), Fraction(1, 8), Fraction(1, 8)]
    assert [mechanism.budgets(number)[0] for number in (1, 2)] == [1, 0]
    decaying = PrivKVMPlus(epsilon=2, keys=3, t=3, decay="0.5", max_rounds=3)
    # t = 3, then 1 + 2 / 2 = 2, then everything
    assert [decaying.budgets(number)[1] for number in (1, 2, 3)] == [Fraction(1, 3)] * 3


@pytest.mark.parametrize(
    ("kind", "given"),
    [
        (PrivKV, {"keys": 0}),
        (PrivKV, {"keys": True}),
        (PrivKV, {"allocation": "best"}),
        (PrivKV, {"virtual_rounds": -1}),
        (KVUE, {"epsilon": 21}),
        (PrivKVM, {"rounds": 0}),
        (PrivKVM, {"rounds": 101}),
        (PrivKVM, {"initial": "1.1"}),
        (PrivKVM, {"initial": "nan"}),
        (PrivKVM, {"initial": "x"}),
        (PrivKVMPlus, {"t": 1}),
        (PrivKVMPlus, {"A0": -1}),
        (PrivKVMPlus, {"decay": 1}),
        (PrivKVMPlus, {"max_rounds": 2.5}),
    ],
)
def test_wrong_parameters_are_refused(kind, given):
    (name,) = given
    with pytest.raises(ParameterError, match=name):
        kind(**{"epsilon": 1, "keys": 3, **given})


def test_allocations_of_other_mechanisms_are_refused_by_name():
    with pytest.raises(NotAvailableError, match="numerical"):
        PrivKV(epsilon=1, keys=2, allocation="numerical")


# -- the kernel follows the laws ------------------------------------------------------------------------------


class Fed:
    """The same sign for everybody, about every key."""

    def __init__(self, sign):
        self.sign = sign

    def plus(self, users, keys):
        return np.full(len(keys), self.sign == 1)


RECORDS = [{}, {2: Fraction(1)}, {0: Fraction(-1), 1: Fraction(1, 2), 3: Fraction(1)}]


def observed(mechanism, record, n=200_000):
    """Answers by (drawn key, answer), int64 (4, 3)."""
    held = sorted(record)
    records = Records(
        users=Secret.new().users().integers(np.arange(n)),
        offsets=np.arange(n + 1) * len(held),
        keys=np.tile(np.array(held, np.int32), n),
        values=np.tile(np.array([int(record[key] * VALUE_ONE) for key in held], np.int64), n),
    )
    reports = mechanism.perturb(records, Secret.new().stream(fingerprint="law"))
    assert mechanism.valid(reports).all()
    place = reports.arrays["key"] * 3 + (1 - reports.arrays["sign"])
    return np.bincount(place, minlength=12).reshape(4, 3)


def p_value(numbers, law, record, fed):
    expected = np.array([[float(answer(law, record.get(key), fed)[y]) / 4 for y in (1, 0, -1)] for key in range(4)])
    statistic = 2 * np.sum(numbers * np.log(np.maximum(numbers, 1) / (numbers.sum() * expected)))
    return chi2.sf(statistic, 11)


def rounds_of(epsilon):
    later = PrivKVM(epsilon=epsilon, keys=4, rounds=2)
    fixed = PrivKVM(epsilon=epsilon, keys=4, rounds=1, initial=1)
    return {
        "privkv": (PrivKV(epsilon=epsilon, keys=4), None),
        "kvue": (KVUE(epsilon=epsilon, keys=4), None),
        "first": (fixed.round(1), None),
        "fed +1": (later.round(2).answering(Fed(1)), 1),
        "fed -1": (later.round(2).answering(Fed(-1)), -1),
    }


@pytest.mark.parametrize("record", RECORDS, ids=len)
@pytest.mark.parametrize("which", rounds_of(2))
def test_reports_follow_the_exact_law(which, record):
    mechanism, fed = rounds_of("2")[which]
    numbers = observed(mechanism, record)
    assert p_value(numbers, mechanism.law, record, fed) > FALSE_ALARM
    for epsilon in ("1.6", "2.4"):
        assert p_value(numbers, rounds_of(epsilon)[which][0].law, record, fed) < FALSE_ALARM


def test_a_fed_round_needs_its_feedback():
    with pytest.raises(ValueError, match="fed back"):
        observed(PrivKVM(epsilon=1, keys=4, rounds=2).round(2), {}, n=5)


def test_the_drawn_key_does_not_depend_on_the_feedback_and_other_bits_do():
    mechanism = PrivKVM(epsilon=1, keys=4, rounds=2).round(2)
    n = 4000
    records = Records(
        users=Secret.from_seed(1).users().integers(np.arange(n)),
        offsets=np.zeros(n + 1, np.int64),
        keys=np.zeros(0, np.int32),
        values=np.zeros(0, np.int64),
    )
    stream = Secret.from_seed(2).stream(fingerprint="f", round=2)
    plus, minus = (mechanism.answering(Fed(sign)).perturb(records, stream).arrays for sign in (1, -1))
    assert np.array_equal(plus["key"], minus["key"])
    # whether a sign was sent is independent of the feedback but drawn again: a quarter of both pairs each
    both = np.bincount((plus["sign"] != 0) * 2 + (minus["sign"] != 0), minlength=4) / n
    assert np.all(np.abs(both - 0.25) < 7 * np.sqrt(0.25 * 0.75 / n))
