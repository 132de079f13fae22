"""Rounds: what the state records, what is fed back, when rounds end, and what they estimate."""

import math
import pickle
from fractions import Fraction

import numpy as np
import pytest
from ldp_beam.errors import InputError, ParameterError
from ldp_beam.mechanisms import (
    VALUE_ONE,
    Counts,
    MultiRound,
    Probabilities,
    Records,
    Secret,
    State,
    frequency_variance,
    make_mechanism,
    mean_bias,
    mean_variance,
)
from ldp_beam.mechanisms.privkv.kvue import KVUE
from ldp_beam.mechanisms.privkv.privkv import PrivKV
from ldp_beam.mechanisms.privkv.privkvm import PrivKVM, PrivKVMHarmony, PrivKVMPlus
from ldp_beam.mechanisms.privkv.rounds import DrawnFeedback, budget_text
from ldp_beam.mechanisms.privkv.simulation import held_shares, other_shares
from scipy.stats import chi2


def estimates_of(mechanism, estimator, ask):
    """Estimates after all rounds, whose counts `ask` gives for a law and the means that are fed back."""
    if not isinstance(mechanism, MultiRound):
        return mechanism.estimate(ask(mechanism.law, np.zeros(mechanism.keys)), estimator)
    state = mechanism.initial()
    while not state.done:
        state = mechanism.advance(state, ask(mechanism.for_round(state).law, mechanism.fed_back(state)))
    return mechanism.estimate_state(state, estimator)


def counts(n1, n2, drawn, n=None):
    cells = {"n1": n1, "n2": n2, "n_drawn": drawn}
    cells = {name: np.atleast_1d(np.asarray(values, dtype=np.int64)) for name, values in cells.items()}
    return Counts(n=int(cells["n_drawn"].sum()) if n is None else n, cells=cells)


def users(n, seed=1):
    return Secret.from_seed(seed).users().integers(np.arange(n))


# -- feedback ---------------------------------------------------------------------------------------------------


def test_one_sign_is_the_bit_of_all_signs():
    for keys in (1, 2, 7, 8, 9, 130):
        means = np.linspace(-1, 1, keys)
        feedback = DrawnFeedback(Secret.from_seed(3).stream(fingerprint="f", round=2), means)
        some = users(500)
        bits = np.unpackbits(feedback.bits(some), axis=1, bitorder="little")
        assert bits.shape == (500, 8 * -(-keys // 8))
        assert not bits[:, keys:].any()
        drawn = np.arange(500) % keys
        assert np.array_equal(feedback.plus(some, drawn), bits[np.arange(500), drawn] == 1)
        clone = pickle.loads(pickle.dumps(feedback))
        assert np.array_equal(clone.bits(some[:7]), feedback.bits(some)[:7])


def test_signs_have_the_share_of_the_mean():
    """Shares within 7 standard errors: 6 of them, false alarm 2e-11; a share 2 % off would be refused."""
    means, n = np.array([-1.0, -0.6, 0.0, 0.25, 0.9, 1.0]), 200_000
    bits = np.unpackbits(
        DrawnFeedback(Secret.new().stream(fingerprint="f", round=2), means).bits(users(n)), axis=1, bitorder="little"
    )[:, :6]
    shares, expected = bits.mean(axis=0), (1 + means) / 2
    error = np.sqrt(expected * (1 - expected) / n)
    assert np.all(np.abs(shares - expected) <= 7 * error)
    assert np.all(7 * error < 0.02)


def test_signs_of_rounds_keys_and_users_are_independent():
    """Agreements of two fair signs are binomial with 1/2: within 7 standard errors, 3 of them."""
    n = 100_000
    second, third = (
        np.unpackbits(
            DrawnFeedback(Secret.new().stream(fingerprint="f", round=number), np.zeros(2)).bits(users(n)),
            axis=1,
            bitorder="little",
        )[:, :2]
        for number in (2, 3)
    )
    for left, right in (
        (second[:, 0], second[:, 1]),
        (second[:, 0], third[:, 0]),
        (second[1:, 0], second[:-1, 0]),
    ):
        assert abs(np.mean(left == right) - 0.5) < 7 * 0.5 / np.sqrt(n - 1)


# -- the state --------------------------------------------------------------------------------------------------


def test_the_state_survives_its_file():
    mechanism = PrivKVM(epsilon=2, keys=3, rounds=3)
    state = mechanism.advance(mechanism.initial(), counts([5, 0, 2], [1, 0, 9], [20, 4, 30]))
    state = mechanism.advance(state, counts([3, 1, 2], [4, 1, 2], [19, 5, 30]))
    again = State.from_bytes(state.to_bytes("abc"), "abc")
    assert again.round == 3
    assert not again.done
    assert all(one.equals(other) for one, other in zip(again.counts, state.counts, strict=True))
    assert all(np.array_equal(one, other, equal_nan=True) for one, other in zip(again.means, state.means, strict=True))
    empty = State.from_bytes(mechanism.initial().to_bytes("abc"), "abc")
    assert empty.round == 1


@pytest.mark.parametrize("data", [b"", b"no zip", b"PK\x03\x04broken"])
def test_a_damaged_state_is_refused(data):
    with pytest.raises(InputError, match="damaged"):
        State.from_bytes(data, "abc")


def test_a_state_of_another_collection_is_refused():
    with pytest.raises(InputError, match="another collection definition"):
        State.from_bytes(State().to_bytes("abc"), "abd")


def test_means_are_recorded_as_published():
    """First round clipped; later, outside [-1, 1] or without a sign, the mean of the round before stays."""
    mechanism = PrivKVM(epsilon=2, keys=4, rounds=3)
    first = mechanism.advance(mechanism.initial(), counts([9, 0, 6, 0], [1, 0, 4, 8], [50] * 4))
    trust = mechanism.round(1).law.trust
    assert trust < 0.2
    assert first.means[0][[0, 3]].tolist() == [1.0, -1.0]
    assert np.isnan(first.means[0][1])
    assert first.means[0][2] == pytest.approx(min(0.2 / trust, 1.0))
    assert mechanism.fed_back(first)[1] == 0.0
    second = mechanism.advance(first, counts([500, 0, 9, 501], [490, 0, 0, 499], [2000] * 4))
    last = mechanism.round(2).law.trust
    expected = [10 / 990 / last, np.nan, first.means[0][2], 2 / 1000 / last]
    assert second.means[1] == pytest.approx(np.array(expected), nan_ok=True)
    flags = mechanism.estimate_state(second).flags
    assert flags["earlier-round"].tolist() == [False, False, True, False]
    harmony = PrivKVMHarmony(epsilon=2, keys=4, rounds=3)
    clipped = harmony.advance(first, counts([500, 0, 9, 501], [490, 0, 0, 499], [2000] * 4))
    assert clipped.means[1][2] == 1.0
    assert not harmony.estimate_state(clipped).flags["earlier-round"].any()


def test_no_round_is_open_after_the_last():
    mechanism = PrivKVM(epsilon=1, keys=1, rounds=1)
    state = mechanism.advance(mechanism.initial(), counts(2, 1, 9))
    assert state.done
    with pytest.raises(ParameterError, match="no round is open"):
        mechanism.advance(state, counts(2, 1, 9))
    with pytest.raises(ParameterError, match="has no round 2"):
        mechanism.round(2)


def test_rounds_neither_perturb_nor_estimate_by_themselves():
    mechanism = make_mechanism("privkvm", epsilon=1, keys=2, rounds=2)
    with pytest.raises(ParameterError, match="asks in rounds"):
        mechanism.perturb(None, None)
    with pytest.raises(ParameterError, match="asks in rounds"):
        mechanism.estimate(mechanism.zero())
    with pytest.raises(ParameterError, match="alone estimates nothing"):
        mechanism.round(2).estimate(mechanism.zero())


def test_privkvm_plus_ends_when_a_round_no_longer_pays():
    mechanism = PrivKVMPlus(epsilon=2, keys=2, A0="0.1", max_rounds=5)
    state = mechanism.advance(mechanism.initial(), counts([500, 500], [500, 500], [2000, 2000]))
    assert not state.done  # never after the first round
    trust = mechanism.round(2).law.trust
    for shift, ends in ((0.25, False), (0.15, True)):
        moved = round(shift * trust * 10_000)  # one of two keys moves: half of it on average
        after = mechanism.advance(state, counts([5000 + moved // 2, 5000], [5000 - moved // 2, 5000], [40_000] * 2))
        assert after.done == ends
    assert after.done
    assert mechanism.unspent(after) == 2 - 1 - Fraction(1, 2) - Fraction(1, 4)
    assert mechanism.spent(2) + mechanism.unspent(after) == 2
    assert mechanism.exact_after(2) < mechanism.exact_epsilon() <= 2
    never = PrivKVMPlus(epsilon=2, keys=2, A0=0, max_rounds=2)
    state = never.advance(never.initial(), counts([500, 500], [500, 500], [2000, 2000]))
    state = never.advance(state, counts([9, 9], [1, 1], [40, 40]))
    assert state.done
    assert never.unspent(state) == 0


def test_budgets_as_text_are_rounded_up():
    assert budget_text(Fraction(0)) == "0"
    assert budget_text(Fraction(20)) == "20"
    assert budget_text(Fraction(5, 4)) == "1.25"
    assert Fraction(1, 3) < Fraction(budget_text(Fraction(1, 3))) < Fraction(1, 3) + Fraction(1, 10**23)
    mechanism = PrivKVM(epsilon=1, keys=1, rounds=7)
    assert sum(Fraction(mechanism.charge(number)) for number in range(1, 8)) == 1


# -- estimates --------------------------------------------------------------------------------------------------


def test_virtual_rounds_are_rounds_of_the_expectation():
    mechanism = PrivKV(epsilon=2, keys=1, virtual_rounds=4)
    found = counts(320, 200, 1000)
    law = mechanism.law
    f = ((520 / 1000) - law.b) / law.gap
    real = (320 - 200) / 520 / law.trust
    theta = law.b * (1 - f) / (law.a * f + law.b * (1 - f))
    same, half = real, real
    for _ in range(4):
        same = real + theta * same
        half = f * real / (1 - theta) + (1 - f) * half
    assert mechanism.estimate(found, "virtual-same-key").mean[0] == pytest.approx(min(same, 1.0))
    assert mechanism.estimate(found, "virtual-half").mean[0] == pytest.approx(min(half, 1.0))
    none = PrivKV(epsilon=2, keys=1, virtual_rounds=0)
    for estimator in ("virtual-same-key", "virtual-half"):
        assert none.estimate(found, estimator).mean[0] == pytest.approx(real)
        many = PrivKV(epsilon=2, keys=1, virtual_rounds=100).estimate(found, estimator).mean[0]
        assert many == pytest.approx(min(real / (1 - theta), 1.0), rel=1e-6)


def test_kvue_as_published():
    mechanism = KVUE(epsilon=2, keys=3)
    p = math.exp(2) / (math.exp(2) + 2)
    found = counts([500, 0, 0], [100, 3, 0], [1000, 50, 0])
    estimates = mechanism.estimate(found)
    holders = [(2 * c - (1 - p) * 1000) / (3 * p - 1) for c in (500, 100)]
    holders[1] = max(holders[1], 0)
    assert estimates.frequency[0] == pytest.approx(sum(holders) / 1000)
    assert estimates.mean[0] == pytest.approx((holders[0] - holders[1]) / sum(holders))
    assert estimates.frequency[1] == 0
    assert estimates.mean[1] == 0
    assert np.isnan(estimates.mean[2])
    assert np.isnan(estimates.frequency[2])


def test_figures_without_drawers_or_signs_are_missing_and_flagged():
    for mechanism in (PrivKV(epsilon=1, keys=3), KVUE(epsilon=1, keys=3)):
        for estimator in mechanism.estimators:
            estimates = mechanism.estimate(counts([0, 0, 40], [0, 0, 20], [0, 9, 90]), estimator)
            assert estimates.flags["no-reports"].tolist() == [True, False, False]
            assert estimates.flags["no-signs"].tolist() == [False, True, False]
            assert np.isnan(estimates.mean).tolist() == [True, True, estimator == "baseline" and False]
            assert np.isnan(estimates.frequency).tolist() == [True, False, False]
            assert not np.isinf(estimates.mean_se).any()
            low, high = estimates.mean_low, estimates.mean_high
            assert np.all(low <= high)


REPLICATES = 20_000


@pytest.mark.parametrize("f", [0.3, 0.8])
@pytest.mark.parametrize(
    ("mechanism", "users"),
    [
        (PrivKV(epsilon=4, keys=REPLICATES), 4_000),
        (PrivKV(epsilon=2, keys=REPLICATES, allocation="optimized"), 4_000),
        (KVUE(epsilon=3, keys=REPLICATES), 4_000),
        (PrivKVM(epsilon=6, keys=REPLICATES, rounds=3), 40_000),
        (PrivKVM(epsilon=6, keys=REPLICATES, rounds=2, initial=1), 40_000),
    ],
    ids=["privkv", "optimized", "kvue", "privkvm", "initial 1"],
)
def test_raw_figures_are_unbiased_and_their_errors_right(mechanism, users, f):
    """Each key is a replicate in which `users` users drew it: 20,000 replicates of one population.

    Standard errors are within 7 % of the deviation of the replicates, whose own relative error is 1/200; intervals
    cover in 93.5 to 96.5 % (95 % have a standard error of 0.15 %: 10 of them); biases of the means stay below a tenth
    of their standard error. False alarms are beyond 7 standard errors in each case.
    """
    m, random = -0.4, np.random.default_rng(17)

    def ask(law, fed):
        holders = random.binomial(users, f, mechanism.keys)
        answers = random.multinomial(holders, held_shares(law, np.full(mechanism.keys, m)))
        answers = answers + random.multinomial(users - holders, other_shares(law, fed))
        return counts(answers[:, 0], answers[:, 1], np.full(mechanism.keys, users))

    estimates = estimates_of(mechanism, "baseline", ask)
    for figure, truth in (("frequency", f), ("mean", m)):
        raw, error = getattr(estimates, f"{figure}_raw"), getattr(estimates, f"{figure}_se")
        assert abs(raw.mean() - truth) < 0.1 * raw.std()
        assert error.mean() == pytest.approx(raw.std(), rel=0.07)
        inside = (getattr(estimates, f"{figure}_low") <= truth) & (truth <= getattr(estimates, f"{figure}_high"))
        assert abs(inside.mean() - 0.95) < 0.015


@pytest.mark.parametrize("mechanism", [PrivKV(epsilon=2, keys=10), KVUE(epsilon=2, keys=10)], ids=["privkv", "kvue"])
def test_predictions_of_one_round_are_those_of_pckv(mechanism):
    """A drawn key is a PCKV key with padding 1, among as many users as draw it."""
    law = mechanism.law
    letters = Probabilities(a=law.a, b=law.b, p=law.p, gap=law.gap, trust=law.a * law.trust)
    predicted = mechanism.predict(frequency=0.2, mean=-0.6, users=50_000)
    assert predicted.frequency_se == pytest.approx(math.sqrt(frequency_variance(letters, 1, 0.2, 5_000)))
    assert predicted.mean_se == pytest.approx(math.sqrt(mean_variance(letters, 1, 0.2, -0.6, 5_000)))
    assert predicted.mean_bias == pytest.approx(float(mean_bias(letters, 1, 0.2, -0.6, 5_000)))


@pytest.mark.parametrize("initial", [0, 1])
def test_predictions_of_rounds(initial):
    """Beside 20,000 replicates: errors within 5 % (10 standard errors), the bias within 7 of its standard errors."""
    users, f, m = 20_000, 0.4, 0.5
    mechanism = PrivKVM(epsilon=5, keys=REPLICATES, rounds=3, initial=initial)
    random = np.random.default_rng(3)

    def ask(law, fed):
        holders = random.binomial(users, f, mechanism.keys)
        answers = random.multinomial(holders, held_shares(law, np.full(mechanism.keys, m)))
        answers = answers + random.multinomial(users - holders, other_shares(law, fed))
        return counts(answers[:, 0], answers[:, 1], np.full(mechanism.keys, users))

    raw = estimates_of(mechanism, "baseline", ask).mean_raw
    predicted = mechanism.predict(frequency=f, mean=m, users=users * mechanism.keys)
    assert predicted.mean_se == pytest.approx(raw.std(), rel=0.05)
    assert raw.mean() - m == pytest.approx(predicted.mean_bias, abs=7 * raw.std() / np.sqrt(REPLICATES))


# -- accuracy ---------------------------------------------------------------------------------------------------


def test_the_simulation_has_the_law_of_the_reports():
    """Real reports of 200,000 users in two rounds against the simulation's shares; false alarm 4e-12."""
    n, values = 200_000, np.array([0.5, -1.0, 0.0, 1.0])
    mechanism = PrivKVM(epsilon=3, keys=4, rounds=2)
    held = np.arange(n) % 5
    holds = held < 4
    records = Records(
        users=users(n, seed=5),
        offsets=np.concatenate(([0], np.cumsum(holds))),
        keys=held[holds].astype(np.int32),
        values=(values[held[holds]] * VALUE_ONE).astype(np.int64),
    )
    state, secret = mechanism.initial(), Secret.new()
    for number in (1, 2):
        fed = mechanism.fed_back(state)
        one = mechanism.for_round(state)
        feedback = DrawnFeedback(secret.stream(fingerprint="server", round=number), fed)
        stream = secret.stream(fingerprint="rounds", round=number)
        found = one.count(one.answering(feedback if number > 1 else None).perturb(records, stream))
        f = np.bincount(held, minlength=5)[:4] / n
        shares = f[:, None] * held_shares(one.law, values)
        shares += (1 - f[:, None]) * other_shares(one.law, fed)
        given = found.cells["n_drawn"]
        seen = np.stack([found.cells["n1"], found.cells["n2"], given - found.cells["n1"] - found.cells["n2"]], axis=1)
        statistic = np.sum((seen - given[:, None] * shares) ** 2 / (given[:, None] * shares))
        assert chi2.sf(statistic, 8) > 2e-12
        state = mechanism.advance(state, found)
