"""The privacy loss on small domains, over every record and every report. Nothing here is drawn."""

import itertools
import math
from fractions import Fraction

import pytest
from ldp_beam.mechanisms import PCKVGRR, PCKVUE

SIGNS = (1, -1)
#: Discretisation mixes the laws of +1 and -1, so the extreme records hold these; 1/2 checks that.
VALUES = (Fraction(1), Fraction(-1), Fraction(1, 2))


def records(keys, largest):
    """Every record of at most `largest` keys with values of `VALUES`."""
    for size in range(largest + 1):
        for held in itertools.combinations(range(keys), size):
            for values in itertools.product(VALUES, repeat=size):
                yield tuple(zip(held, values, strict=True))


def loss(laws):
    """Largest log-ratio over all reports and pairs of records."""
    for law in laws:
        assert sum(law.values()) == 1
    reports = laws[0].keys()
    return max(math.log(max(law[y] for law in laws) / min(law[y] for law in laws)) for y in reports)


# epsilon, keys, padding, largest record, as in the table of golden values; and some more
UNARY = [(0.5, 3, 1, 2), (0.5, 3, 2, 3), (1, 3, 1, 2), (1, 3, 2, 3), (2, 3, 1, 2), (2, 3, 2, 3), (1, 4, 2, 2)]
GRR = [(e, 4, padding, padding + 1) for e in (0.5, 1, 2) for padding in (1, 2, 3)]


@pytest.mark.parametrize(("epsilon", "keys", "padding", "largest"), [*UNARY, (20, 3, 1, 1), ("0.001", 2, 1, 1)])
def test_unary_loss_is_epsilon(epsilon, keys, padding, largest, law_of):
    mechanism = PCKVUE(epsilon=epsilon, keys=keys, padding=padding)
    exact = loss([law_of(mechanism, record) for record in records(keys, largest)])
    assert exact == pytest.approx(float(epsilon), abs=1e-9)
    assert exact <= float(epsilon) + 1e-14  # the logarithm of a fraction is rounded here
    if keys >= 2 * padding:
        assert exact == pytest.approx(mechanism.exact_epsilon(), abs=1e-13)


@pytest.mark.parametrize(
    ("epsilon", "keys", "padding", "largest"),
    [*GRR, (20, 3, 1, 2), ("0.001", 3, 2, 2), (1, 2, 5, 2), (1, 1, 1, 1)],
)
def test_grr_loss_is_epsilon(epsilon, keys, padding, largest, law_of):
    mechanism = PCKVGRR(epsilon=epsilon, keys=keys, padding=padding)
    exact = loss([law_of(mechanism, record) for record in records(keys, largest)])
    assert exact == pytest.approx(float(epsilon), abs=1e-9)
    assert exact == pytest.approx(mechanism.exact_epsilon(), abs=1e-13)
    assert exact <= float(epsilon) + 1e-14


@pytest.mark.parametrize("allocation", ["naive", "non-optimized"])
@pytest.mark.parametrize("epsilon", [0.5, 2])
@pytest.mark.parametrize("kind", [PCKVUE, PCKVGRR])
def test_other_allocations_have_the_loss_that_they_state(allocation, epsilon, kind, law_of):
    for padding in (1, 2):
        mechanism = kind(epsilon=epsilon, keys=4, padding=padding, allocation=allocation)
        exact = loss([law_of(mechanism, record) for record in records(4, padding)])
        assert exact == pytest.approx(mechanism.exact_epsilon(), abs=1e-13)
        assert exact <= epsilon + 1e-14


# Compositions of equal budgets: epsilon_1 = epsilon_2 = 1, so the naive allocation of epsilon = 2.
@pytest.mark.parametrize(("padding", "composed"), [(1, 1.3799), (2, 0.9112), (5, 0.4668), (10, 0.2604), (100, 0.0293)])
def test_composition_of_equal_budgets(padding, composed):
    grr = PCKVGRR(epsilon=2, keys=100, padding=padding, allocation="naive")
    unary = PCKVUE(epsilon=2, keys=100, padding=padding, allocation="naive")
    assert grr.exact_epsilon() == pytest.approx(composed, abs=5e-5)
    assert unary.exact_epsilon() == pytest.approx(1.3799, abs=5e-5)


def test_small_unary_domains_lose_no_more_than_stated(law_of):
    mechanism = PCKVUE(epsilon=1, keys=2, padding=5)
    assert loss([law_of(mechanism, record) for record in records(2, 2)]) < mechanism.exact_epsilon()


@pytest.mark.parametrize("kind", [PCKVUE, PCKVGRR])
def test_supports_are_those_the_estimators_assume(kind, law_of):
    """Each key's share of +1 and -1 reports is linear in the share and sum of values of its holders."""
    mechanism = kind(epsilon=1, keys=3, padding=2)
    p = mechanism.parameters()
    record = ((0, Fraction(1, 2)), (2, Fraction(-1)))
    for k, value in ((0, 0.5), (1, None), (2, -1.0)):
        shares_of_signs = []
        for sign in SIGNS:
            if kind is PCKVUE:
                share = sum(q for y, q in law_of(mechanism, record).items() if y[k] == sign)
            else:
                share = law_of(mechanism, record)[k, sign]
            shares_of_signs.append(float(share))
        held = 0.0 if value is None else 0.5
        expected = p["b"] + held * (p["a"] - p["b"])
        assert sum(shares_of_signs) == pytest.approx(expected, rel=1e-12)
        difference = held * p["a"] * (2 * p["p"] - 1) * (value or 0.0)
        assert shares_of_signs[0] - shares_of_signs[1] == pytest.approx(difference, abs=1e-12)
