"""The numerical allocation: exactly epsilon for every a, the same a on every machine, and smaller errors."""

import decimal
import itertools
import math
from fractions import Fraction

import numpy as np
import pytest
from ldp_beam.errors import ParameterError
from ldp_beam.mechanisms import PCKVGRR, PCKVUE, VALUE_ONE, Records, Secret, make_mechanism
from ldp_beam.mechanisms.pckv.budget import ue_law_of_share, ue_ratio
from ldp_beam.mechanisms.pckv.numerical import FREQUENCY_LIMIT, STEPS, Prior, best_share, other_share
from ldp_beam.mechanisms.pckv.theory import Probabilities, frequency_variance, mean_bias, mean_variance

D = decimal.Decimal


def numerical(epsilon, frequency, mean=0.5, users=10**6, weight=None, keys=4, padding=1):
    more = {} if weight is None else {"prior_mean_weight": weight}
    return PCKVUE(
        epsilon=epsilon,
        keys=keys,
        padding=padding,
        allocation="numerical",
        prior_frequency=frequency,
        prior_mean=mean,
        prior_users=users,
        **more,
    )


def errors(mechanism, frequency, mean=0.5, users=10**6):
    found = mechanism.predict(frequency=frequency, mean=mean, users=users)
    return found.frequency_se**2, found.mean_se**2 + found.mean_bias**2


@pytest.mark.parametrize("share", ["0.01", "0.25", "0.5", "0.75", "0.99", "0.999755859375"])
@pytest.mark.parametrize("epsilon", ["0.001", "0.5", "1", "4", "20"])
def test_every_share_spends_exactly_epsilon(epsilon, share):
    law = ue_law_of_share(D(epsilon), D(share))
    loss = math.log(ue_ratio(law.same, law.kept, law.other))
    assert loss <= float(epsilon) + 1e-14
    assert loss == pytest.approx(float(epsilon), abs=1e-9)
    e = math.exp(float(epsilon))
    a, p = float(share), e / (e + 1)
    assert float(law.b) == pytest.approx(2 * a * p / (2 * a * p + (1 - a) * e), rel=1e-9)
    assert float(law.p) == pytest.approx(p, rel=1e-9)


def records(keys, largest):
    for size in range(largest + 1):
        for held in itertools.combinations(range(keys), size):
            for values in itertools.product((Fraction(1), Fraction(-1), Fraction(1, 2)), repeat=size):
                yield tuple(zip(held, values, strict=True))


@pytest.mark.parametrize(("epsilon", "frequency", "padding"), [(1, 0.5, 1), (2, 0.1, 1), (1, 0.5, 2)])
def test_the_loss_by_enumeration_is_epsilon(epsilon, frequency, padding, law_of):
    mechanism = numerical(epsilon, frequency, keys=3 if padding == 1 else 4, padding=padding)
    assert mechanism.parameters()["a"] > 0.6
    laws = [law_of(mechanism, record) for record in records(mechanism.keys, 2 if padding == 1 else 1)]
    if padding == 2:  # the extreme pair of records: four keys, two and two
        laws += [law_of(mechanism, ((i, Fraction(1)), (i + 1, Fraction(1)))) for i in (0, 2)]
    loss = max(math.log(max(law[y] for law in laws) / min(law[y] for law in laws)) for y in laws[0])
    assert loss <= epsilon + 1e-14
    if padding == 1:
        assert loss == pytest.approx(epsilon, abs=1e-9)
    assert mechanism.exact_epsilon() <= epsilon
    assert mechanism.exact_epsilon() == pytest.approx(epsilon, abs=1e-9)


# epsilon, ratios of the squared errors of the mean that were asked for at frequency 0.5
@pytest.mark.parametrize(("epsilon", "target"), [(1, 0.85), (2, 0.83), (4, 0.72), (6, 0.60)])
def test_frequent_keys_gain_what_was_promised(epsilon, target):
    paper = errors(PCKVUE(epsilon=epsilon, keys=4, padding=1), 0.5)
    ours = errors(numerical(epsilon, 0.5), 0.5)
    assert ours[1] / paper[1] <= target
    assert ours[0] / paper[0] <= float(FREQUENCY_LIMIT)


@pytest.mark.parametrize("weight", [0, 0.5, 1])
@pytest.mark.parametrize(("frequency", "mean", "padding"), [(0.5, 0.5, 1), (0.01, -0.3, 1), (0.2, 0, 4)])
@pytest.mark.parametrize("epsilon", [0.1, 1, 4, 8])
def test_no_other_share_is_better(epsilon, frequency, mean, padding, weight):
    """Against a scan in floats of every multiple, with the closed forms of `pckv.theory`."""

    def both(law):
        variance = frequency_variance(law, padding, frequency, 10**6)
        bias = mean_bias(law, padding, frequency, mean, 10**6)
        return variance, mean_variance(law, padding, frequency, mean, 10**6) + bias**2

    def law_at(a):
        e = np.exp(epsilon)
        p = e / (e + 1)
        b = 2 * a * p / (2 * a * p + (1 - a) * e)
        return Probabilities(a=a, b=b, p=p, gap=a - b, trust=a * (2 * p - 1))

    f, m = both(law_at(np.arange(1, STEPS) / STEPS))
    f0, m0 = both(law_at(0.5))
    loss = np.where(f / f0 <= float(FREQUENCY_LIMIT), weight * m / m0 + (1 - weight) * f / f0, np.inf)
    prior = Prior(frequency=frequency, mean=mean, users=10**6, mean_weight=weight)
    found = best_share(D(str(epsilon)), padding, prior)
    at = int(found * STEPS)
    assert at == found * STEPS
    assert loss[at - 1] <= loss.min() * (1 + 1e-9)


def test_rare_keys_of_mean_zero_keep_their_frequencies():
    mechanism = numerical(0.5, 0.001, mean=0)
    paper = errors(PCKVUE(epsilon=0.5, keys=4, padding=1), 0.001, 0)
    assert 1.2 < errors(mechanism, 0.001, 0)[0] / paper[0] <= float(FREQUENCY_LIMIT)


def test_the_limits_of_the_theory():
    """For the frequency of rare keys a = 1/2 is best; without values of a mean, a tends to (e^eps+1) / (2(e^eps-1))."""
    rare = Prior(frequency="1e-6", mean=0, users=10**12, mean_weight=0)
    assert best_share(D(1), 1, rare) == D("0.5")
    alone = Prior(frequency="1e-6", mean=0, users=10**12)
    expected = (math.exp(4) + 1) / (2 * (math.exp(4) - 1))
    assert float(best_share(D(4), 1, alone)) == pytest.approx(expected, abs=1e-3)


def test_the_machine_s_arithmetic_does_not_matter():
    prior = Prior(frequency="0.3", mean="0.2", users=12345)
    expected = best_share(D("1.5"), 2, prior), other_share(D("0.7"), D(3))
    best_share.cache_clear()
    with decimal.localcontext() as context:
        context.prec = 5
        context.rounding = decimal.ROUND_UP
        assert (best_share(D("1.5"), 2, prior), other_share(D("0.7"), D(3))) == expected


def test_the_grr_closed_form_is_within_a_thousandth():
    """Over the whole family that spends epsilon: for each epsilon_2 the epsilon_1 that the composition allows."""
    for epsilon, keys, padding, frequency in itertools.product((1, 2, 4), (10, 100), (1, 5), (0.1, 0.5)):
        e, d = math.exp(epsilon), keys + padding
        e2 = np.linspace(1.001, padding * (e - 1) + 1, 4000)
        half, extra = (e2 + 1) / 2, (padding - 1) * (e2 + 1) / 2
        e1 = (e * (half + extra) - extra) / e2  # while e^epsilon_1 is at least half
        e1 = e1[e1 >= half]
        e2 = e2[: len(e1)]
        a, p = e1 / (e1 + d - 1), e2 / (e2 + 1)
        b = (1 - a) / (d - 1)
        law = Probabilities(a=a, b=b, p=p, gap=a - b, trust=a * (2 * p - 1))
        best = mean_variance(law, padding, frequency, 0.5, 10**8).min()
        paper = PCKVGRR(epsilon=epsilon, keys=keys, padding=padding)
        assert errors(paper, frequency, users=10**8)[1] <= 1.001 * best


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"prior_frequency": 0}, "frequency is 0"),
        ({"prior_frequency": 1.5}, "frequency is 1.5"),
        ({"prior_frequency": "many"}, "frequency is 'many'"),
        ({"prior_mean": -1.1}, "mean is -1.1"),
        ({"prior_users": 0}, "users is 0"),
        ({"prior_users": True}, "users is True"),
        ({"prior_mean_weight": 2}, "mean_weight is 2"),
        ({"prior_frequency": None}, "frequency is missing"),
        ({"allocation": "optimized"}, "acts on allocation 'numerical' alone"),
    ],
)
def test_wrong_priors_are_refused(changes, message):
    given = {"prior_frequency": 0.5, "prior_mean": 0, "prior_users": 100, "allocation": "numerical", **changes}
    with pytest.raises(ParameterError, match=message):
        PCKVUE(epsilon=1, keys=4, padding=1, **given)


def test_grr_says_that_it_has_none():
    with pytest.raises(ParameterError, match=r"within 0\.1 %"):
        make_mechanism("pckv-grr", epsilon=1, keys=4, padding=1, allocation="numerical")
    with pytest.raises(ParameterError, match="no parameter 'prior_mean'"):
        make_mechanism("pckv-grr", epsilon=1, keys=4, padding=1, prior_mean=0)


def test_reports_follow_the_searched_probabilities():
    """Four keys, key 2 held with value 1: shares within 7 standard errors (5 figures, false alarm 1e-11)."""
    mechanism, n = numerical(2, 0.5), 100_000
    records = Records(
        users=Secret.new().users().integers(np.arange(n)),
        offsets=np.arange(n + 1),
        keys=np.full(n, 2, np.int32),
        values=np.full(n, VALUE_ONE),
    )
    counts = mechanism.count(mechanism.perturb(records, Secret.new().stream(fingerprint="numerical")))
    law = mechanism.parameters()
    assert abs(law["a"] - 0.5) > 50 / math.sqrt(n)  # far from the paper's, which the test would notice
    expected = np.where(np.arange(4) == 2, law["a"] * law["p"], law["b"] / 2)
    assert (np.abs(counts.cells["n1"] / n - expected) < 7 * np.sqrt(expected * (1 - expected) / n)).all()
    flipped = law["a"] * (1 - law["p"])
    assert abs(counts.cells["n2"][2] / n - flipped) < 7 * math.sqrt(flipped * (1 - flipped) / n)
