"""Counts of categorical and utility-optimised mechanisms that are drawn at once follow the law of the reports' counts.

The law of the counts of three users is the convolution of the laws of their reports, written from the thresholds and
independently of the simulation. False alarms: fewer than 40 comparisons, each below 1e-11. Power: each must reject a
mechanism with half or twice the epsilon.
"""

import itertools
from collections import Counter
from fractions import Fraction

import numpy as np
import pytest
from ldp_beam.errors import ParameterError
from ldp_beam.mechanisms import Records, Secret, make_mechanism, population_generator
from ldp_beam.mechanisms.categorical.simulation import draw_counts as draw_categorical
from ldp_beam.mechanisms.uldp.simulation import draw_counts as draw_uldp
from scipy.stats import chi2

N = 1 << 64
FALSE_ALARM = 1e-11
DRAWS = 12_000
#: Users of each of three symbols; of PUM the last one is a tag.
USERS = np.array([1, 2, 1])
CATEGORICAL = ("grr", "sue", "oue", "shist")
ULDP = ("urr", "urap", "pum over urr", "pum over urap")


def build(name, epsilon):
    if name in CATEGORICAL:
        return make_mechanism(name, epsilon=epsilon, keys=3)
    if name in ("urr", "urap"):
        return make_mechanism(name, epsilon=epsilon, keys=3, sensitive=[0, 2])
    base = name.split()[-1]
    return make_mechanism("pum", epsilon=epsilon, keys=2, tags=["home"], sensitive=[0], base=base)


def bits(chances):
    """Law of independent bits."""
    law = {}
    for report in itertools.product((0, 1), repeat=len(chances)):
        law[report] = np.prod([c if bit else 1 - c for bit, c in zip(report, chances, strict=True)])
    return law


def report_law(mechanism, x):
    """{supported symbols: probability} of a report about symbol x; for shist {(n1 of each row, n2 of each row)}."""
    t = {name: float(Fraction(value, N)) for name, value in mechanism.thresholds().items()}
    unit = np.eye(3, dtype=int)
    if mechanism.name == "grr":
        return {tuple(map(int, unit[y])): t["kept"] if y == x else (1 - t["kept"]) / 2 for y in range(3)}
    if mechanism.name in ("sue", "oue"):
        return bits([t["own"] if y == x else t["other"] for y in range(3)])
    if mechanism.name == "shist":
        law = {}
        for row, sign in itertools.product(range(4), (1, -1)):
            agrees = (-1) ** bin(row & x).count("1") == sign
            cell = row if sign == 1 else 4 + row
            law[tuple(int(i == cell) for i in range(8))] = (t["kept"] if agrees else 1 - t["kept"]) / 4
        return law
    if "sent" in t:  # uRR; symbols 0 and 2 are sensitive
        law = Counter({tuple(map(int, unit[x])): t["sent"]})
        for y in (0, 2):
            law[tuple(map(int, unit[y]))] += (1 - t["sent"]) / 2
        return dict(law)
    chances = [t["own_sensitive"] if y == x else t["other_sensitive"] for y in range(3)]
    chances[1] = t["own_other"] if x == 1 else 0.0
    return {report: share for report, share in bits(chances).items() if share}


def law_of_counts(mechanism):
    total = None
    for x, users in enumerate(USERS):
        for _ in range(users):
            one = report_law(mechanism, x)
            if total is None:
                total = one
                continue
            longer = Counter()
            for (a, p), (b, q) in itertools.product(total.items(), one.items()):
                longer[tuple(u + v for u, v in zip(a, b, strict=True))] += p * q
            total = longer
    assert sum(total.values()) == pytest.approx(1)
    return total


def drawn(mechanism):
    random = population_generator(int.from_bytes(Secret.new().id.encode()[:6]), 0)
    draw, numbers = draw_categorical if mechanism.name in CATEGORICAL else draw_uldp, Counter()
    for _ in range(DRAWS):
        counts = draw(mechanism, USERS, random)
        assert counts.n == 4
        cells = counts.cells
        names = ("n1", "n2") if mechanism.name == "shist" else ("supports",)
        numbers[tuple(int(x) for name in names for x in cells[name])] += 1
    return numbers


def p_value(numbers, law):
    if not set(numbers) <= set(law):
        return 0.0
    statistic, cells, rest = 0.0, 0, [0, 0.0]
    for counts, share in law.items():
        expected, seen = share * DRAWS, numbers.get(counts, 0)
        if expected < 20:  # too rare for the chi-squared law, so taken together
            rest = [rest[0] + seen, rest[1] + expected]
            continue
        statistic, cells = statistic + (seen - expected) ** 2 / expected, cells + 1
    if rest[1] >= 20:
        statistic, cells = statistic + (rest[0] - rest[1]) ** 2 / rest[1], cells + 1
    return chi2.sf(statistic, cells - 1)


@pytest.mark.parametrize("name", [*CATEGORICAL, *ULDP])
def test_counts_follow_the_law_of_the_reports(name):
    numbers = drawn(build(name, 3))
    assert p_value(numbers, law_of_counts(build(name, 3))) > FALSE_ALARM
    for epsilon in (1.5, 6):
        assert p_value(numbers, law_of_counts(build(name, epsilon))) < FALSE_ALARM


@pytest.mark.parametrize("name", [*CATEGORICAL, "urr", "urap"])
def test_reports_have_the_counts_to_expect(name):
    """The real client and server once, 60,000 users: counts within 8 standard errors of the law's."""
    mechanism, scale = build(name, 2), 15_000
    secret = Secret.new()
    n = int(USERS.sum()) * scale
    records = Records(
        users=secret.users().integers(np.arange(n)),
        offsets=np.arange(n + 1),
        keys=np.repeat(np.arange(3, dtype=np.int32), USERS * scale),
    )
    cells = mechanism.count(mechanism.perturb(records, secret.stream(fingerprint="symbols"))).cells
    found = np.concatenate([cells[one] for one in (("n1", "n2") if name == "shist" else ("supports",))])
    expected, variance = 0.0, 0.0
    for x, users in enumerate(USERS):
        reports, shares = zip(*report_law(mechanism, x).items(), strict=True)
        mean = np.array(shares) @ np.array(reports)
        expected, variance = expected + scale * users * mean, variance + scale * users * mean * (1 - mean)
    assert (np.abs(found - expected) <= 8 * np.sqrt(variance)).all()


def test_other_mechanisms_are_refused_by_name():
    with pytest.raises(ParameterError, match="olh"):
        draw_categorical(make_mechanism("olh", epsilon=1, keys=3), USERS, population_generator(0, 0))


@pytest.mark.parametrize("name", [*CATEGORICAL, *ULDP])
def test_nobody(name):
    mechanism = build(name, 1)
    draw = draw_categorical if mechanism.name in CATEGORICAL else draw_uldp
    assert draw(mechanism, np.zeros(3, dtype=np.int64), population_generator(0, 0)).equals(mechanism.zero())
