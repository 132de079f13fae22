"""Counts drawn at once follow the law of the counts of reports, proven against the law of the reports themselves.

False alarms: a test fails below a p-value of 1e-11; the tests together stay under 1e-9. Power: each must reject the
law of a mechanism with 20 % more or less epsilon.
"""

from collections import Counter
from fractions import Fraction

import numpy as np
import pytest
from ldp_beam.mechanisms import PCKVGRR, PCKVUE, VALUE_ONE, Records, Secret, make_mechanism, population_generator
from ldp_beam.mechanisms.pckv.simulation import Sampled, draw_counts, draw_sampled
from scipy.stats import chi2

FALSE_ALARM = 1e-11
DRAWS = 30_000

#: Who sampled what: two users key 0 (one with each sign), one key 1 (+1), one a dummy.
RECORDS = [((0, Fraction(1)),), ((0, Fraction(-1)),), ((1, Fraction(1)),), ()]
SAMPLED = Sampled(users=4, positive=np.array([1, 1]), negative=np.array([1, 0]))


def support(mechanism, report):
    """The counts n1 and n2 of both keys that one report adds."""
    if mechanism.name == "pckv-ue":
        cells = report
    else:
        key, sign = report
        cells = [sign if k == key else 0 for k in range(2)]
    return tuple(int(c == 1) for c in cells) + tuple(int(c == -1) for c in cells)


def law_of_counts(mechanism, law_of):
    """{(n1, n1, n2, n2): probability} of four reports, by convolution of the exact laws of the reports.

    With padding 1 a user samples her only pair, and so every record is what it samples.
    """
    total = {(0, 0, 0, 0): 1.0}
    for record in RECORDS:
        one = Counter()
        for report, share in law_of(mechanism, record).items():
            one[support(mechanism, report)] += float(share)
        added = Counter()
        for counts, p in total.items():
            for more, q in one.items():
                added[tuple(x + y for x, y in zip(counts, more, strict=True))] += p * q
        total = added
    return total


def p_value(numbers, law):
    assert set(numbers) <= set(law)
    statistic, cells, rest = 0.0, 0, [0, 0.0]
    for counts, share in law.items():
        expected, seen = share * DRAWS, numbers.get(counts, 0)
        if expected < 20:  # cells that are too rare for the chi-squared law are taken together
            rest = [rest[0] + seen, rest[1] + expected]
            continue
        statistic, cells = statistic + (seen - expected) ** 2 / expected, cells + 1
    if rest[1] >= 20:
        statistic, cells = statistic + (rest[0] - rest[1]) ** 2 / rest[1], cells + 1
    return chi2.sf(statistic, cells - 1)


@pytest.mark.parametrize("kind", [PCKVUE, PCKVGRR])
@pytest.mark.parametrize("epsilon", ["1.5"])
def test_counts_follow_the_law_of_the_reports(kind, epsilon, law_of):
    mechanism = kind(epsilon=epsilon, keys=2, padding=1)
    random = population_generator(int.from_bytes(Secret.new().id.encode()[:6]), 0)
    numbers = Counter()
    for _ in range(DRAWS):
        cells = draw_counts(mechanism, SAMPLED, random).cells
        numbers[(*cells["n1"].tolist(), *cells["n2"].tolist())] += 1
    assert p_value(numbers, law_of_counts(mechanism, law_of)) > FALSE_ALARM
    for factor in (0.8, 1.2):
        other = kind(epsilon=float(epsilon) * factor, keys=2, padding=1)
        assert p_value(numbers, law_of_counts(other, law_of)) < FALSE_ALARM


@pytest.mark.parametrize("name", ["pckv-ue", "pckv-grr"])
def test_first_two_moments_with_padding_are_those_of_reports(name):
    """Three keys, padding 3, values between the ends: means within 7, variances within 8 standard errors."""
    mechanism = make_mechanism(name, epsilon=1.5, keys=3, padding=3)
    frequency, mean, users, repeats = np.array([0.9, 0.5, 0.1]), np.array([0.5, -1.0, 0.0]), 2_000, 1_500
    random = population_generator(int.from_bytes(Secret.new().id.encode()[:6]), 1)
    at_once = np.array(
        [_row(draw_counts(mechanism, draw_sampled(frequency, mean, 3, users, random), random)) for _ in range(repeats)]
    )
    law = mechanism.parameters()
    share = law["b"] + (law["a"] - law["b"]) * frequency / 3
    drift = law["a"] * (2 * law["p"] - 1) * frequency * mean / 3
    expected = users * np.concatenate([(share + drift) / 2, (share - drift) / 2])
    spread = expected * (1 - expected / users)
    assert (np.abs(at_once.mean(axis=0) - expected) < 7 * np.sqrt(spread / repeats)).all()
    assert (np.abs(at_once.var(axis=0) / spread - 1) < 8 * np.sqrt(2 / repeats)).all()
    # the reports of as many users, once, within 7 standard errors of one collection of 30,000 users
    held = random.random((30_000, 3)) < frequency
    values = np.where(random.random(held.shape) < (1 + mean) / 2, VALUE_ONE, -VALUE_ONE)
    records = Records(
        users=Secret.new().users().integers(np.arange(30_000)),
        offsets=np.concatenate([[0], np.cumsum(held.sum(axis=1))]).astype(np.int64),
        keys=np.nonzero(held)[1].astype(np.int32),
        values=values[held].astype(np.int64),
    )
    counts = mechanism.count(mechanism.perturb(records, Secret.new().stream(fingerprint="simulation")))
    assert (np.abs(_row(counts) - 15 * expected) < 7 * np.sqrt(15 * spread)).all()


def _row(counts):
    return np.concatenate([counts.cells["n1"], counts.cells["n2"]])


@pytest.mark.parametrize("name", ["pckv-ue", "pckv-grr"])
def test_nobody_and_everybody(name):
    mechanism = make_mechanism(name, epsilon=1, keys=5, padding=2)
    random = population_generator(0, 0)
    none = np.zeros(5, dtype=np.int64)
    assert draw_counts(mechanism, Sampled(users=0, positive=none, negative=none), random).equals(mechanism.zero())
    sampled = draw_sampled(np.full(5, 0.4), np.ones(5), 2, 1000, random)
    assert sampled.positive.sum() == 1000  # the frequencies sum to the padding: nobody samples a dummy
    assert not sampled.negative.any()
