"""Counts of PrivKV, its rounds and KVUE that are drawn at once follow the law of the counts of reports.

The laws are computed from the thresholds and a distribution of records, by enumeration. False alarms: every comparison
fails with a probability below 1e-11, and there are fewer than 60. Power: each law test must reject a mechanism with
half the epsilon or less, and rounds that are asked of other users each time.
"""

import itertools
from collections import Counter
from fractions import Fraction

import numpy as np
import pytest
from ldp_beam.mechanisms import VALUE_ONE, Counts, Records, Secret, make_mechanism, population_generator
from ldp_beam.mechanisms.privkv.rounds import DrawnFeedback, State
from ldp_beam.mechanisms.privkv.simulation import KeyPopulation, SameUsers, draw_counts, draw_state
from scipy.stats import chi2

N = 1 << 64
FALSE_ALARM = 1e-11
DRAWS = 20_000

#: Records of two keys that hang together, {key: value}, and how common they are.
RECORDS = {
    ((0, Fraction(1, 2)),): Fraction(3, 10),
    ((0, Fraction(-1)), (1, Fraction(1))): Fraction(3, 10),
    ((1, Fraction(-1, 2)),): Fraction(2, 10),
    (): Fraction(2, 10),
}


def values(keys, generator):
    """What a holder of each key has, by the table above."""
    first, second = generator.random(len(keys)) < 0.5, generator.random(len(keys)) < 0.6
    return np.where(keys == 0, np.where(first, 0.5, -1.0), np.where(second, 1.0, -0.5))


POPULATION = KeyPopulation(frequency=np.array([0.6, 0.5]), mean=np.array([-0.25, 0.4]), values=values)


def fresh(stream=0):
    """A generator that differs from run to run."""
    return population_generator(int.from_bytes(Secret.new().id.encode()[:6]), stream)


def answer(law, value, fed=0.0):
    """Chances of +1, -1 and 0; `value` is None for a key that is not held."""
    if value is None:
        plus, given = Fraction(law.fake_plus, N), Fraction(law.other, N)
        if law.fed:
            up = (1 + Fraction(fed)) / 2
            plus = up * plus + (1 - up) * (given - plus)
    else:
        up, same, given = (1 + value) / 2, Fraction(law.same, N), Fraction(law.kept, N)
        plus = up * same + (1 - up) * (given - same)
    return {1: float(plus), -1: float(given - plus), 0: float(1 - given)}


def p_value(numbers, law):
    assert set(numbers) <= set(law)
    draws = sum(numbers.values())
    statistic, cells, rest = 0.0, 0, [0, 0.0]
    for counts, share in law.items():
        expected, seen = share * draws, numbers.get(counts, 0)
        if expected < 20:  # too rare for the chi-squared law, so taken together
            rest = [rest[0] + seen, rest[1] + expected]
            continue
        statistic, cells = statistic + (seen - expected) ** 2 / expected, cells + 1
    if rest[1] >= 20:
        statistic, cells = statistic + (rest[0] - rest[1]) ** 2 / rest[1], cells + 1
    return chi2.sf(statistic, cells - 1)


def added(laws):
    """Law of a sum of independent vectors."""
    total = {(0,) * len(next(iter(laws[0]))): 1.0}
    for one in laws:
        longer = Counter()
        for (x, p), (y, q) in itertools.product(total.items(), one.items()):
            longer[tuple(a + b for a, b in zip(x, y, strict=True))] += p * q
        total = longer
    return total


# -- one round: all keys together ---------------------------------------------------------------------------


def law_of_counts(mechanism, users):
    """{(n1, n2 and n_drawn of key 0, of key 1): probability}."""
    one = Counter()
    for record, share in RECORDS.items():
        for key in range(2):
            for sign, chance in answer(mechanism.law, dict(record).get(key)).items():
                cells = [int(sign == 1), int(sign == -1), 1]
                one[tuple([0, 0, 0, *cells] if key else [*cells, 0, 0, 0])] += float(share) / 2 * chance
    return added([one] * users)


def drawn(mechanism):
    random, numbers = fresh(), Counter()
    for _ in range(DRAWS):
        cells = draw_counts(mechanism, POPULATION, 3, random).cells
        numbers[tuple(int(cells[name][key]) for key in range(2) for name in ("n1", "n2", "n_drawn"))] += 1
    return numbers


@pytest.mark.parametrize("name", ["privkv", "kvue"])
def test_counts_of_one_round_follow_the_law_of_the_reports(name):
    numbers = drawn(make_mechanism(name, epsilon=2, keys=2))
    assert p_value(numbers, law_of_counts(make_mechanism(name, epsilon=2, keys=2), 3)) > FALSE_ALARM
    for epsilon in (1.0, 4.0):
        assert p_value(numbers, law_of_counts(make_mechanism(name, epsilon=epsilon, keys=2), 3)) < FALSE_ALARM


def test_a_later_round_alone_is_refused():
    with pytest.raises(ValueError, match="all rounds"):
        draw_counts(make_mechanism("privkvm", epsilon=1, keys=2, rounds=2).round(2), POPULATION, 3, fresh())


# -- rounds: one key at a time ------------------------------------------------------------------------------

#: What the users hold of a key.
HELD = {Fraction(1, 2): 0.3, Fraction(-1): 0.3, None: 0.4}
#: Two keys that are both like that, so that a draw gives two independent samples.
ALIKE = KeyPopulation(
    frequency=np.full(2, 0.6),
    mean=np.full(2, -0.25),
    values=lambda keys, generator: values(np.zeros_like(keys), generator),
)


def round_law(law, held, fed):
    """Law of n1, n2 and n_drawn of key 0 among users who hold `held`."""
    laws = []
    for value in held:
        signs = answer(law, value, fed)
        laws.append({(0, 0, 0): 0.5, (1, 0, 1): signs[1] / 2, (0, 1, 1): signs[-1] / 2, (0, 0, 1): signs[0] / 2})
    return added(laws)


def counts_of(cells):
    """Counts of both keys that are `cells` for key 0."""
    n1, n2, n_drawn = (np.array([x, 0]) for x in cells)
    return Counts(n=3, cells={"n1": n1, "n2": n2, "n_drawn": n_drawn})


def law_of_two_rounds(mechanism, users):
    """{(n1, n2, n_drawn) of round 1 and of round 2: probability}, key 0; the users are the same in both."""
    total, fed = Counter(), {}
    for held in itertools.combinations_with_replacement(HELD, users):
        orders = len(set(itertools.permutations(held)))
        share = orders * np.prod([HELD[value] for value in held])
        for first, chance in round_law(mechanism.round(1).law, held, 0.0).items():
            if first not in fed:
                fed[first] = mechanism.fed_back(mechanism.advance(State(), counts_of(first)))[0]
            for second, other in round_law(mechanism.round(2).law, held, fed[first]).items():
                total[first + second] += float(share * chance * other)
    assert sum(total.values()) == pytest.approx(1)
    return total


@pytest.mark.parametrize("name", ["privkvm", "privkvm-harmony"])
def test_two_rounds_follow_the_law_of_the_same_users_reports(name):
    random, numbers = fresh(), Counter()
    mechanism = make_mechanism(name, epsilon=8, keys=2, rounds=2)
    for _ in range(5_000):
        state = draw_state(mechanism, ALIKE, 2, random)
        for key in range(2):
            numbers[tuple(int(c.cells[x][key]) for c in state.counts for x in ("n1", "n2", "n_drawn"))] += 1
    assert p_value(numbers, law_of_two_rounds(mechanism, 2)) > FALSE_ALARM
    for epsilon in (2, 3):
        other = make_mechanism(name, epsilon=epsilon, keys=2, rounds=2)
        assert p_value(numbers, law_of_two_rounds(other, 2)) < FALSE_ALARM


def moments(laws, fed, users):
    """Exact means and covariances of n1 of a key over rounds of these laws; `fed` is fed back in each."""
    one = []
    for value, share in HELD.items():
        plus = [answer(law, value, fed)[1] / 2 for law in laws]
        one.append((share, np.array(plus)))
    mean = sum(share * plus for share, plus in one)
    covariance = sum(share * np.outer(plus, plus) for share, plus in one)
    covariance[np.diag_indices(len(laws))] = mean
    return users * mean, users * (covariance - np.outer(mean, mean))


def agrees(samples, mean, covariance, repeats):
    """Whether means and covariances are within 8 standard errors."""
    spread = np.sqrt(np.diag(covariance))
    assert (np.abs(samples.mean(axis=0) - mean) < 8 * spread / np.sqrt(repeats)).all()
    error = np.sqrt((np.outer(spread, spread) ** 2 + covariance**2) / repeats)
    return (np.abs(np.cov(samples.T) - covariance) < 8 * error).all()


def test_rounds_hang_together_as_those_of_the_same_users_do():
    mechanism, users, repeats = make_mechanism("privkvm", epsilon=12, keys=2, rounds=2), 40, 8_000
    laws = [mechanism.round(number).law for number in (1, 1, 2)]
    random, samples = fresh(), []
    for _ in range(repeats // 2):
        panel = SameUsers(ALIKE, users, 3, random)
        rounds = (panel.answer(r, law, np.full(2, 0.25)) for r, law in enumerate(laws, start=1))
        samples += np.array([counts.cells["n1"] for counts in rounds]).T.tolist()
    mean, covariance = moments(laws, 0.25, users)
    assert agrees(np.array(samples), mean, covariance, repeats)
    # other users in every round would be told apart
    assert not agrees(np.array(samples), mean, np.diag(np.diag(covariance)), repeats)


def test_reports_of_the_same_users_have_those_moments():
    """The real client and server, 500 collections of 300 users in two rounds."""
    mechanism, users, repeats = make_mechanism("privkvm", epsilon=20, keys=2, rounds=2), 300, 500
    random, samples = fresh(), []
    for _ in range(repeats):
        secret = Secret.new()
        held = random.random(users) < 0.6
        drawn_values = values(np.zeros(int(held.sum()), dtype=np.int64), random)
        records = Records(
            users=secret.users().integers(np.arange(users)),
            offsets=np.concatenate([[0], np.cumsum(held)]).astype(np.int64),
            keys=np.zeros(int(held.sum()), dtype=np.int32),
            values=(drawn_values * VALUE_ONE).astype(np.int64),
        )
        row = []
        for number in (1, 2):
            feedback = DrawnFeedback(Secret.new().stream(fingerprint="fed"), np.full(2, 0.25))
            one = mechanism.round(number).answering(feedback if number > 1 else None)
            reports = one.perturb(records, secret.stream(fingerprint="rounds", round=number))
            row.append(one.count(reports).cells["n1"][0])
        samples.append(row)
    assert agrees(np.array(samples), *moments([mechanism.round(number).law for number in (1, 2)], 0.25, users), repeats)


# -- edges --------------------------------------------------------------------------------------------------


def test_every_user_is_asked_in_every_round_and_few_may_be():
    for keys, users, rounds in ((1, 100, 3), (5, 0, 3), (4, 10_000, 1), (1000, 1000, 10)):
        population = KeyPopulation(frequency=np.full(keys, 0.5), mean=np.zeros(keys))
        state = draw_state(make_mechanism("privkvm", epsilon=1, keys=keys, rounds=rounds), population, users, fresh())
        assert state.done
        assert len(state.counts) == rounds
        for counts in state.counts:
            assert counts.n == users
            drawn_users = counts.cells["n_drawn"]
            assert abs(int(drawn_users.sum()) - users) <= 8 * np.sqrt(users)
            assert (counts.cells["n1"] + counts.cells["n2"] <= drawn_users).all()


def test_privkvm_plus_may_end_early():
    population = KeyPopulation(frequency=np.full(3, 0.9), mean=np.full(3, 0.5))
    state = draw_state(make_mechanism("privkvm+", epsilon=8, keys=3, A0=2, max_rounds=6), population, 10_000, fresh())
    assert state.done
    assert len(state.counts) == 2
