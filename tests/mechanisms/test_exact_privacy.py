"""The whole output distribution on small domains, built by brute force from the integer thresholds alone.

Nothing here is drawn: probabilities are fractions, every record and every report is enumerated. A slot or another
key is drawn by the words whose product with the bound has it as high word, counted exactly.
"""

import itertools
import math
from fractions import Fraction

import pytest
from ldp_beam.mechanisms import PCKVGRR, PCKVUE

N = 1 << 64
SIGNS = (1, -1)
#: Discretisation mixes the laws of +1 and -1, so the extreme records hold these; 1/2 checks that.
VALUES = (Fraction(1), Fraction(-1), Fraction(1, 2))


def shares(bound):
    """Exact probabilities of the outcomes 0 to bound - 1 of a multiply-high of one word."""
    edges = [-(-(j << 64) // bound) for j in range(bound + 1)]
    return [Fraction(high - low, N) for low, high in itertools.pairwise(edges)]


def records(keys, largest):
    """Every record of at most `largest` keys with values of `VALUES`."""
    for size in range(largest + 1):
        for held in itertools.combinations(range(keys), size):
            for values in itertools.product(VALUES, repeat=size):
                yield tuple(zip(held, values, strict=True))


def draws(record, padding):
    """Probability of every (key, sign of the value) that is sampled; key None is a dummy."""
    result = {}
    for slot, share in enumerate(shares(max(len(record), padding))):
        key, value = record[slot] if slot < len(record) else (None, Fraction(0))
        for sign in SIGNS:
            part = share * (1 + sign * value) / 2
            result[key, sign] = result.get((key, sign), 0) + part
    return result


def unary_law(mechanism, record):
    t = {name: Fraction(value, N) for name, value in mechanism.thresholds().items()}
    same, flipped, other = t["kept_with_sign"], t["kept"] - t["kept_with_sign"], t["other"]
    law = {}
    for report in itertools.product((1, -1, 0), repeat=mechanism.keys):
        law[report] = Fraction(0)
        for (key, sign), share in draws(record, mechanism.padding).items():
            for i, cell in enumerate(report):
                if i == key:
                    share *= {sign: same, -sign: flipped, 0: 1 - t["kept"]}[cell]
                else:
                    share *= other / 2 if cell else 1 - other
            law[report] += share
    return law


def grr_law(mechanism, record):
    thresholds = mechanism.thresholds()
    same, kept = (Fraction(thresholds[name], N) for name in ("kept_with_sign", "kept"))
    d, others = mechanism.keys, mechanism.keys + mechanism.padding - 1
    assert thresholds["other_keys"] == others
    law = {(key, sign): Fraction(0) for key in range(d + 1) for sign in SIGNS}
    for (key, sign), share in draws(record, mechanism.padding).items():
        own = others if key is None else key
        law[min(own, d), sign] += share * same
        law[min(own, d), -sign] += share * (kept - same)
        rest = [index for index in range(others + 1) if index != own]
        for index, part in zip(rest, shares(others), strict=True):
            for reported in SIGNS:
                law[min(index, d), reported] += share * (1 - kept) * part / 2
    return law


def loss(laws):
    """Largest log-ratio over all reports and pairs of records."""
    for law in laws:
        assert sum(law.values()) == 1
    reports = laws[0].keys()
    return max(math.log(max(law[y] for law in laws) / min(law[y] for law in laws)) for y in reports)


# epsilon, keys, padding, largest record, as in the table of golden values; and some more
UNARY = [(0.5, 3, 1, 2), (0.5, 3, 2, 3), (1, 3, 1, 2), (1, 3, 2, 3), (2, 3, 1, 2), (2, 3, 2, 3), (1, 4, 2, 2)]
GRR = [(e, 4, padding, padding + 1) for e in (0.5, 1, 2) for padding in (1, 2, 3)]


@pytest.mark.parametrize(
    ("epsilon", "keys", "padding", "largest"), [*UNARY, (20, 3, 1, 1), ("0.001", 2, 1, 1)]
)
def test_unary_loss_is_epsilon(epsilon, keys, padding, largest):
    mechanism = PCKVUE(epsilon=epsilon, keys=keys, padding=padding)
    exact = loss([unary_law(mechanism, record) for record in records(keys, largest)])
    assert exact == pytest.approx(float(epsilon), abs=1e-9)
    assert exact <= float(epsilon) + 1e-14  # the logarithm of a fraction is rounded here
    if keys >= 2 * padding:
        assert exact == pytest.approx(mechanism.exact_epsilon(), abs=1e-13)


@pytest.mark.parametrize(
    ("epsilon", "keys", "padding", "largest"),
    [*GRR, (20, 3, 1, 2), ("0.001", 3, 2, 2), (1, 2, 5, 2), (1, 1, 1, 1)],
)
def test_grr_loss_is_epsilon(epsilon, keys, padding, largest):
    mechanism = PCKVGRR(epsilon=epsilon, keys=keys, padding=padding)
    exact = loss([grr_law(mechanism, record) for record in records(keys, largest)])
    assert exact == pytest.approx(float(epsilon), abs=1e-9)
    assert exact == pytest.approx(mechanism.exact_epsilon(), abs=1e-13)
    assert exact <= float(epsilon) + 1e-14


@pytest.mark.parametrize("allocation", ["naive", "non-optimized"])
@pytest.mark.parametrize("epsilon", [0.5, 2])
@pytest.mark.parametrize(("kind", "law"), [(PCKVUE, unary_law), (PCKVGRR, grr_law)])
def test_other_allocations_have_the_loss_that_they_state(allocation, epsilon, kind, law):
    for padding in (1, 2):
        mechanism = kind(epsilon=epsilon, keys=4, padding=padding, allocation=allocation)
        exact = loss([law(mechanism, record) for record in records(4, padding)])
        assert exact == pytest.approx(mechanism.exact_epsilon(), abs=1e-13)
        assert exact <= epsilon + 1e-14


# Compositions of equal budgets: epsilon_1 = epsilon_2 = 1, so the naive allocation of epsilon = 2.
@pytest.mark.parametrize(
    ("padding", "composed"), [(1, 1.3799), (2, 0.9112), (5, 0.4668), (10, 0.2604), (100, 0.0293)]
)
def test_composition_of_equal_budgets(padding, composed):
    grr = PCKVGRR(epsilon=2, keys=100, padding=padding, allocation="naive")
    unary = PCKVUE(epsilon=2, keys=100, padding=padding, allocation="naive")
    assert grr.exact_epsilon() == pytest.approx(composed, abs=5e-5)
    assert unary.exact_epsilon() == pytest.approx(1.3799, abs=5e-5)


def test_small_unary_domains_lose_no_more_than_stated():
    mechanism = PCKVUE(epsilon=1, keys=2, padding=5)
    assert loss([unary_law(mechanism, record) for record in records(2, 2)]) < mechanism.exact_epsilon()


@pytest.mark.parametrize(("kind", "law"), [(PCKVUE, unary_law), (PCKVGRR, grr_law)])
def test_supports_are_those_the_estimators_assume(kind, law):
    """Each key's share of +1 and -1 reports is linear in the share and sum of values of its holders."""
    mechanism = kind(epsilon=1, keys=3, padding=2)
    p = mechanism.parameters()
    record = ((0, Fraction(1, 2)), (2, Fraction(-1)))
    for k, value in ((0, 0.5), (1, None), (2, -1.0)):
        shares_of_signs = []
        for sign in SIGNS:
            if kind is PCKVUE:
                share = sum(q for y, q in law(mechanism, record).items() if y[k] == sign)
            else:
                share = law(mechanism, record)[k, sign]
            shares_of_signs.append(float(share))
        held = 0.0 if value is None else 0.5
        expected = p["b"] + held * (p["a"] - p["b"])
        assert sum(shares_of_signs) == pytest.approx(expected, rel=1e-12)
        difference = held * p["a"] * (2 * p["p"] - 1) * (value or 0.0)
        assert shares_of_signs[0] - shares_of_signs[1] == pytest.approx(difference, abs=1e-12)
