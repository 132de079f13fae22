"""Padding "auto": who is asked what, what the length question's reports may say, which padding is chosen."""

import pickle

import numpy as np
import pytest
from ldp_beam.errors import ParameterError
from ldp_beam.mechanisms import AutoPadding, Counts, Records, Secret, make_mechanism
from ldp_beam.mechanisms.audit.law import loss
from ldp_beam.mechanisms.audit.laws import law_of
from ldp_beam.mechanisms.audit.two_questions import audit_two_questions
from ldp_beam.mechanisms.padding.choice import choose, power_law, predicted_errors, squared_error
from ldp_beam.mechanisms.padding.lengths import Lengths, length_oracle, length_symbols, lengths_of, of_sizes
from ldp_beam.mechanisms.probability import log_up

SECRET = Secret.from_seed(5)
PADDED = {
    "pckv-ue": {},
    "pckv-grr": {},
    "psfo-oue": {},
    "psfo-grr": {},
    "percentiles": {"bins": 4},
}


def auto(name="pckv-ue", epsilon=1, keys=100, cap=64, **more):
    return make_mechanism(name, epsilon=epsilon, keys=keys, padding="auto", cap=cap, **PADDED[name], **more)


def people(sizes, values=True):
    """One user for each size, who holds the first keys."""
    sizes = np.asarray(sizes)
    keys = np.concatenate([np.arange(size) for size in sizes] or [np.empty(0)]).astype(np.int32)
    return Records(
        users=SECRET.users().integers(np.arange(len(sizes))),
        offsets=np.concatenate([[0], np.cumsum(sizes)]).astype(np.int64),
        keys=keys,
        values=np.zeros(len(keys), np.int64) if values else None,
    )


# -- groups ---------------------------------------------------------------------------------------------------


def test_everybody_answers_one_question_and_it_never_depends_on_the_record():
    asked = auto(share="0.25")
    length, main = (asked.group(SECRET, "fruit", length=which) for which in (True, False))
    few, many = people(np.full(40_000, 1)), people(np.full(40_000, 7))
    sizes, rest = length.of(many), main.of(many)
    assert sizes.n + rest.n == 40_000
    both = np.concatenate([sizes.users, rest.users])
    assert len(np.unique(both, axis=0)) == 40_000
    np.testing.assert_array_equal(length.of(few).users, sizes.users)
    # a share of 0.25 of 40,000: beyond six standard deviations once in 10^9
    assert abs(sizes.n - 10_000) < 6.1 * np.sqrt(40_000 * 0.25 * 0.75)


def test_groups_are_those_of_the_secret_and_the_name():
    users, asked = people(np.zeros(2_000, int)).users, auto(share="0.5")
    first = asked.group(SECRET, "fruit", length=True).asks_length(users)
    np.testing.assert_array_equal(
        pickle.loads(pickle.dumps(asked.group(SECRET, "fruit", length=False))).asks_length(users), first
    )
    for secret, name in ((SECRET, "nuts"), (Secret.from_seed(6), "fruit")):
        other = asked.group(secret, name, length=True).asks_length(users)
        assert abs((other == first).sum() - 1_000) < 6.1 * np.sqrt(2_000) / 2


def test_the_main_group_keeps_its_records_whole():
    asked, everybody = auto(share="0.5"), people(np.arange(200) % 9)
    kept = asked.group(SECRET, "x", length=False).of(everybody)
    mine = ~asked.group(SECRET, "x", length=True).asks_length(everybody.users)
    np.testing.assert_array_equal(kept.sizes, everybody.sizes[mine])
    np.testing.assert_array_equal(kept.keys, np.concatenate([np.arange(s) for s in kept.sizes]))


# -- the law of the length question ---------------------------------------------------------------------------


@pytest.mark.parametrize("epsilon", [0.5, 1, 4])
def test_a_report_tells_of_the_size_up_to_the_cap_and_of_nothing_else(epsilon):
    """Every set size from 0 to d: the report is the oracle's for one symbol, bit by bit, whatever keys and values."""
    cap, keys = 6, 12
    oracle, stream = length_oracle(auto(epsilon=epsilon).epsilon, cap), SECRET.stream(fingerprint="length")
    records = people(np.repeat(np.arange(keys + 1), 50))
    told = of_sizes(records, cap)
    np.testing.assert_array_equal(told.keys, np.minimum(records.sizes, cap))
    assert told.values is None
    assert (told.sizes == 1).all()
    shifted = Records(users=records.users, offsets=records.offsets, keys=records.keys + 5, values=records.values)
    reports, others = (oracle.perturb(of_sizes(one, cap), stream) for one in (records, shifted))
    for name, array in reports.arrays.items():
        np.testing.assert_array_equal(array, others.arrays[name])


@pytest.mark.parametrize("cap", [1, 2, 64])
@pytest.mark.parametrize("epsilon", ["0.1", "1", "4"])
def test_the_oracle_spends_epsilon_exactly_and_is_the_best_of_three(cap, epsilon):
    oracle = length_oracle(auto(epsilon=epsilon).epsilon, cap)
    (law,) = law_of(oracle)
    exact = log_up(loss(law).ratio)
    assert float(epsilon) - 1e-9 < exact <= float(epsilon)
    for name in ("grr", "oue", "subset-selection"):
        other = make_mechanism(name, epsilon=epsilon, keys=cap + 1).predict(frequency=1 / (cap + 1), users=1, mean=0)
        assert oracle.predict(frequency=1 / (cap + 1), users=1).frequency_se <= other.frequency_se * (1 + 1e-12)


@pytest.mark.parametrize("name", sorted(PADDED))
@pytest.mark.parametrize("epsilon", ["0.5", "4"])
def test_the_exact_audit_covers_both_questions_and_every_size(name, epsilon):
    asked = auto(name, epsilon=epsilon, cap=8, fallback=3)
    both, length, main, _ = audit_two_questions(asked)
    assert both.violations == []
    assert both.exact == max(length.exact, main.exact) == pytest.approx(float(epsilon), abs=1e-9)
    assert both.exact <= asked.exact_epsilon() <= float(epsilon) + 1e-14
    assert {0, 1, 7, 8, 9, 100} <= set(both.sizes)
    assert all(value <= float(epsilon) for value in both.sizes.values())
    assert both.naive == pytest.approx(2 * float(epsilon), abs=1e-6)


def test_the_audit_finds_a_length_question_that_spends_too_much():
    asked = auto(epsilon=1, cap=8)
    object.__setattr__(asked, "length", make_mechanism("grr", epsilon="1.1", keys=9))
    both, _, _, _ = audit_two_questions(asked)
    assert any("above the declared" in found for found in both.violations)


# -- the lengths ----------------------------------------------------------------------------------------------


def answers(oracle, shares, n, seed=0):
    """Counts of the length question from the real client code."""
    sizes = np.random.default_rng(seed).choice(len(shares), n, p=shares)
    told = of_sizes(people(np.minimum(sizes, 3), values=False), len(shares) - 1)
    told = Records(users=told.users, offsets=told.offsets, keys=sizes.astype(np.int32))
    return oracle.count(oracle.perturb(told, SECRET.stream(fingerprint=f"answers {seed}")))


def test_isolated_noise_vanishes_and_a_broad_distribution_stays():
    oracle = length_oracle(auto().epsilon, 64)
    seven = np.zeros(65)
    seven[[0, 7]] = 0.4, 0.6
    found = lengths_of(oracle, answers(oracle, seven, 60_000), 64)
    assert found.enough
    np.testing.assert_allclose(found.share[[0, 7]], [0.4, 0.6], atol=0.05)
    assert found.mean == pytest.approx(4.2, abs=0.5)
    broad = np.full(65, 1 / 64)
    broad[0] = 0
    spread = lengths_of(oracle, answers(oracle, broad, 60_000), 64)
    assert spread.mean == pytest.approx(32.5, abs=4)
    assert found.kept(7) == pytest.approx(1, abs=0.05)
    assert found.kept(1) == pytest.approx(0.6 / 4.2, abs=0.03)


def test_a_large_cap_takes_lengths_of_about_one_size_together():
    starts = length_symbols(1_000)
    np.testing.assert_array_equal(starts[:65], np.arange(65))
    assert starts[-1] == 1_000
    assert len(starts) < 100
    assert (np.diff(starts)[64:] <= starts[64:-1] * 0.1 + 1).all()
    np.testing.assert_array_equal(length_symbols(5), np.arange(6))
    records = Records(
        users=SECRET.users().integers(np.arange(4)),
        offsets=np.cumsum([0, 0, 66, 999, 1_500]),
        keys=np.concatenate([np.arange(size) for size in (0, 66, 999, 1_500)]).astype(np.int32),
    )
    symbols = of_sizes(records, 1_000).keys
    assert starts[symbols].tolist() == [0, 64, starts[-2], 1_000]
    large = auto(keys=3_000, cap=1_000)
    assert (large.paddings[:63], max(large.paddings)) == (list(range(1, 64)), 1_000)


def test_nobody_holds_more_keys_than_there_are():
    assert make_mechanism("pckv-ue", epsilon=1, keys=7, padding="auto").cap == 7
    assert make_mechanism("pckv-ue", epsilon=1, keys=7, padding="auto").length.keys == 8
    assert make_mechanism("pckv-ue", epsilon=1, keys=5_000, padding="auto").cap == 1_000


def test_a_cap_that_many_reach_is_named():
    shares = np.zeros(65)
    shares[[3, 64]] = 0.5, 0.5
    for rule in ("error", "percentile"):
        choice = choose(auto().main, known(shares), keys=20, users=10**6, rule=rule, fallback=1)
        assert "50% hold 64 or more; a larger cap" in choice.reason


def test_too_few_answers_say_so_and_give_the_fallback():
    asked = auto(fallback=3)
    few = asked.choose(answers(asked.length, np.full(65, 1 / 65), 300))
    none = asked.choose(Counts(n=0, cells=asked.length.zero().cells))
    for choice in (few, none):
        assert (choice.padding, choice.trusted) == (3, False)
        assert "too few" in choice.reason
    assert "about 1" in few.reason
    assert none.as_json()["lengths"] is None
    assert few.lengths.answers_needed > 3_000


# -- the choice -----------------------------------------------------------------------------------------------


def known(shares, answered=10**6):
    share, sizes = np.asarray(shares, dtype=float), np.arange(len(shares), dtype=float)
    return Lengths(sizes=sizes, share=share / share.sum(), raw=share, answers=answered, error=1e-4)


def test_power_laws_add_up_and_stay_below_one():
    for total, exponent in ((1.0, 1.0), (6.5, 1.0), (40.0, 0.5), (99.9, 1.0)):
        frequency = power_law(100, total, exponent)
        assert frequency.sum() == pytest.approx(total, rel=1e-9)
        assert frequency.max() <= 1
    np.testing.assert_array_equal(power_law(3, 5.0), np.ones(3))


def test_the_error_of_a_clipped_estimate_is_that_of_a_simulation():
    rng, truth, expected, deviation = np.random.default_rng(0), 0.1, 0.08, 0.1
    draws = rng.normal(expected, deviation, 10**6)
    for clipped, figures in ((True, np.maximum(draws, 0)), (False, draws)):
        errors = (figures - truth) ** 2
        found = squared_error(np.array([expected]), np.array([deviation]), np.array([truth]), clipped=clipped)
        assert abs(found[0] - errors.mean()) < 6.1 * errors.std() / 1000


@pytest.mark.parametrize("name", ["pckv-ue", "pckv-grr", "psfo-oue", "psfo-grr"])
def test_everybody_with_one_length_gets_that_length(name):
    shares = np.zeros(65)
    shares[5] = 1
    asked = auto(name, epsilon=4)
    choice = choose(asked.main, known(shares), keys=20, users=10**6, rule="error", fallback=1)
    assert choice.padding == 5
    assert len(choice.errors) == 64
    assert choose(asked.main, known(shares), keys=20, users=10**6, rule="percentile", fallback=1).padding == 5


def test_much_noise_asks_for_a_smaller_padding_and_the_percentile_does_not_care():
    shares, asked = np.ones(65), auto(epsilon="0.5", keys=500)
    picks = [
        choose(asked.main, known(shares), keys=500, users=users, rule="error", fallback=1).padding
        for users in (10**4, 10**6, 10**9)
    ]
    assert picks == sorted(picks)
    assert picks[0] < 5
    assert picks[-1] > 50
    assert choose(asked.main, known(shares), keys=500, users=10**4, rule="percentile", fallback=1).padding == 58


def test_the_predicted_error_is_that_of_the_closed_form_without_truncation():
    asked = auto("psfo-oue", epsilon=2, keys=50)
    shares = np.zeros(65)
    shares[3] = 1
    frequency = power_law(50, 3.0)
    found = predicted_errors(asked.main, known(shares), frequency, 10**5, clipped=False)
    wanted = sum(asked.main(4).predict(frequency=f, mean=0, users=10**5).frequency_se ** 2 for f in frequency)
    assert found[4] == pytest.approx(wanted, rel=1e-6)


def test_earlier_frequencies_replace_the_power_law():
    shares = np.zeros(65)
    shares[[1, 40]] = 0.5, 0.5
    given = {"keys": 200, "users": 10**5, "rule": "error", "fallback": 1}
    asked = auto(epsilon=1, keys=200)
    even = choose(asked.main, known(shares), frequency=np.full(200, 0.1), **given)
    one = choose(asked.main, known(shares), frequency=np.eye(200)[0], **given)
    assert even.padding != one.padding


# -- the contract ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", sorted(PADDED))
def test_the_two_questions_keep_the_contract(name):
    asked = auto(name)
    assert isinstance(asked, AutoPadding)
    again = pickle.loads(pickle.dumps(asked))
    assert again.thresholds() == asked.thresholds()
    assert (
        again.main(3).thresholds() == make_mechanism(name, epsilon=1, keys=100, padding=3, **PADDED[name]).thresholds()
    )
    assert all(isinstance(value, int) for value in asked.thresholds().values())
    assert asked.exact_epsilon() <= 1
    assert asked.estimators == asked.main(1).estimators
    stream = SECRET.stream(fingerprint="x")
    for refused in (
        asked.layout,
        asked.zero,
        lambda: asked.perturb(people([1]), stream),
        lambda: asked.estimate(Counts(n=0)),
        lambda: asked.count(None),
        lambda: asked.valid(None),
    ):
        with pytest.raises(ParameterError, match="two questions"):
            refused()


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"share": 0}, "share"),
        ({"share": 1}, "share"),
        ({"share": "half"}, "share"),
        ({"cap": 0}, "cap"),
        ({"cap": 1_001}, "cap"),
        ({"rule": "median"}, "rule"),
        ({"fallback": 0}, "fallback"),
        ({"exponent": -1}, "exponent"),
        ({"frequencies": [0.1]}, "100 numbers"),
        ({"reports": 2}, "whole number"),
    ],
)
def test_wrong_parameters_are_refused(given, message):
    with pytest.raises(ParameterError, match=message):
        auto(**given)
