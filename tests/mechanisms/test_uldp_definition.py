"""Both conditions of ULDP for whole records, by brute force, and reports against that exact law.

The laws are written here from the thresholds alone. False alarms: the likelihood-ratio tests fail below a p-value of
1e-11, and there are fewer than 40 of them, so together they stay under 1e-9; secrets are fresh in every run. Power:
each test must reject the law of a mechanism with 20 % less or more epsilon.
"""

import itertools
import math
from fractions import Fraction

import numpy as np
import pytest
from ldp_beam.errors import ParameterError
from ldp_beam.mechanisms import Records, Reports, Secret
from ldp_beam.mechanisms.uldp.definition import SymbolSets, draw_symbols, uldp_ratio
from ldp_beam.mechanisms.uldp.pum import PUM
from ldp_beam.mechanisms.uldp.urap import URAP
from ldp_beam.mechanisms.uldp.urr import URR
from scipy.stats import chi2

N = 1 << 64
FALSE_ALARM = 1e-11
USERS = 200_000
KINDS = [URR, URAP]


def shares(bound):
    """Exact probabilities of the outcomes of a multiply-high of one word with `bound`."""
    edges = [-(-(j << 64) // bound) for j in range(bound + 1)]
    return [Fraction(high - low, N) for low, high in itertools.pairwise(edges)]


def told(symbols, sensitive):
    """Probability of each symbol that a record of these symbols tells of (-1: sensitive, not to be told)."""
    own = [x for x in symbols if x in sensitive or x < 0] or list(symbols)
    law = {}
    for x, share in zip(own, shares(len(own)) if own else [], strict=True):
        for y, part in zip(sensitive, shares(len(sensitive)), strict=True) if x < 0 else [(x, Fraction(1))]:
            law[y] = law.get(y, 0) + share * part
    return law or dict(zip(sensitive, shares(len(sensitive)), strict=True))


def symbol_law(thresholds, size, sensitive, x):
    """Exact law of the report of symbol x: the symbol sent, or (sensitive bits, other bit)."""
    if "sent" in thresholds:
        sent = Fraction(thresholds["sent"], N)
        law = {y: Fraction(0) for y in range(size)}
        for y, share in zip(sensitive, shares(len(sensitive)), strict=True):
            law[y] += (1 - sent) * share
        law[x] += sent
        return law
    own, other, shown = (Fraction(thresholds[name], N) for name in ("own_sensitive", "other_sensitive", "own_other"))
    law = {}
    for bits in itertools.product((0, 1), repeat=len(sensitive)):
        for y in (-1, *(y for y in range(size) if y not in sensitive)):
            chance = Fraction(1)
            for key, bit in zip(sensitive, bits, strict=True):
                one = own if key == x else other
                chance *= one if bit else 1 - one
            if x in sensitive:
                chance *= y == -1
            else:
                chance *= shown if y == x else (1 - shown if y == -1 else 0)
            law[bits, y] = chance
    return law


def record_law(mechanism, symbols, sensitive, size):
    law = {}
    for x, share in told(symbols, sensitive).items():
        for y, chance in symbol_law(mechanism.thresholds(), size, sensitive, x).items():
            law[y] = law.get(y, 0) + share * chance
    return law


def protected(y, sensitive):
    return y[1] == -1 if isinstance(y, tuple) else y in sensitive


def holdings(size, largest):
    return [held for k in range(largest + 1) for held in itertools.combinations(range(size), k)]


CASES = [(kind, epsilon, sensitive) for kind in KINDS for epsilon in ("0.5", "2") for sensitive in ((1,), (0, 2))]
CASES += [(kind, "1", (0, 1, 2, 3)) for kind in KINDS] + [(kind, "20", (0, 2)) for kind in KINDS]


@pytest.mark.parametrize(("kind", "epsilon", "sensitive"), CASES)
def test_both_conditions_hold_for_all_records(kind, epsilon, sensitive):
    mechanism = kind(epsilon=epsilon, keys=4, sensitive=sensitive)
    laws = {held: record_law(mechanism, held, sensitive, 4) for held in holdings(4, 3)}
    ratio = Fraction(1)
    for y in laws[()]:
        chances = {held: law[y] for held, law in laws.items()}
        if protected(y, sensitive):
            assert min(chances.values()) > 0
            ratio = max(ratio, max(chances.values()) / min(chances.values()))
            continue
        shown = y[1] if isinstance(y, tuple) else y
        for held, chance in chances.items():
            assert (chance > 0) == (shown in held and not set(held) & set(sensitive))
    assert all(sum(law.values()) == 1 for law in laws.values())
    assert math.log(ratio) == pytest.approx(mechanism.exact_epsilon(), abs=1e-12)
    assert math.log(ratio) <= float(epsilon) + 1e-14
    assert math.log(ratio) == pytest.approx(float(epsilon), abs=1e-9)


@pytest.mark.parametrize(("kind", "epsilon", "sensitive"), CASES)
def test_the_definition_itself_holds_for_single_symbols(kind, epsilon, sensitive):
    """Every output that is not protected has exactly one cause, which is not sensitive."""
    mechanism = kind(epsilon=epsilon, keys=4, sensitive=sensitive)
    laws = [{y: p for y, p in symbol_law(mechanism.thresholds(), 4, sensitive, x).items() if p > 0} for x in range(4)]
    outputs = {y for law in laws for y in law}
    ratio = uldp_ratio(laws, list(sensitive), [y for y in outputs if protected(y, sensitive)])
    assert math.log(ratio) == pytest.approx(mechanism.exact_epsilon(), abs=1e-12)


def test_a_broken_channel_is_found():
    half, third = Fraction(1, 2), Fraction(1, 3)
    with pytest.raises(ValueError, match="no bound"):
        uldp_ratio([{"s": Fraction(1)}, {"o": Fraction(1)}], [0], ["s"])
    with pytest.raises(ValueError, match=r"stems from the inputs \[0, 1\]"):
        uldp_ratio([{"s": half, "o": half}, {"s": third, "o": 2 * third}], [], ["s"])
    with pytest.raises(ValueError, match=r"stems from the inputs \[0\]"):
        uldp_ratio([{"s": half, "o": half}, {"s": Fraction(1)}], [0], ["s"])
    assert uldp_ratio([{"s": Fraction(1)}, {"s": third, "o": 2 * third}], [0], ["s"]) == 3


@pytest.mark.parametrize("kind", KINDS)
def test_drawing_among_all_keys_would_break_the_guarantee(kind):
    """Why a record with a sensitive key tells of sensitive keys alone."""
    mechanism = kind(epsilon="0.1", keys=3, sensitive=(0,))
    laws = [symbol_law(mechanism.thresholds(), 3, (0,), x) for x in range(3)]
    mixed = {y: (laws[0][y] + laws[1][y]) / 2 for y in laws[0]}
    shown = [y for y in mixed if not protected(y, (0,)) and laws[1][y] > 0]
    assert all(laws[1][y] / mixed[y] == 2 for y in shown)  # ln 2, far above epsilon
    right = record_law(mechanism, (0, 1), (0,), 3)
    assert all(right[y] == 0 for y in shown)


@pytest.mark.parametrize("base", ["urr", "urap"])
@pytest.mark.parametrize("common", [(), (3,)])
def test_the_personalised_mechanism_hides_which_key_is_sensitive(base, common):
    """Over all records of up to two of four keys, each with no tag, a tag, or a tag that is not named."""
    mechanism = PUM(epsilon="1", keys=4, tags=["home", "work"], sensitive=common, base=base)
    sensitive = (*common, 4, 5)
    ratio, laws = Fraction(1), {}
    for held in holdings(4, 2):
        for tags in itertools.product((0, 1, 2, -1), repeat=len(held)):
            symbols = tuple(-1 if t < 0 else 3 + t if t else x for x, t in zip(held, tags, strict=True))
            laws[held, tags] = record_law(mechanism, symbols, sensitive, 6)
    for y in laws[(), ()]:
        chances = {record: law[y] for record, law in laws.items()}
        if protected(y, sensitive):
            ratio = max(ratio, max(chances.values()) / min(chances.values()))
            continue
        shown = y[1] if isinstance(y, tuple) else y
        for (held, tags), chance in chances.items():
            reveals = shown in held and not any(tags) and not set(held) & set(common)
            assert (chance > 0) == reveals
    assert math.log(ratio) == pytest.approx(1, abs=1e-9)
    assert math.log(ratio) <= mechanism.exact_epsilon() + 1e-14 <= 1 + 1e-14


# -- reports against the law -------------------------------------------------------------------------------


def many(held, tags=None, n=USERS):
    size = len(held)
    return Records(
        users=Secret.new().users().integers(np.arange(n)),
        offsets=np.arange(n + 1) * size,
        keys=np.tile(np.array(held, np.int32), n),
        tags=None if tags is None else np.tile(np.array(tags, np.int16), n),
    )


def observed(mechanism, records):
    reports = mechanism.perturb(records, Secret.new().stream(fingerprint="law"))
    assert mechanism.valid(reports).all()
    if "symbol" in reports.arrays:
        return dict(enumerate(np.bincount(reports.arrays["symbol"], minlength=8).tolist()))
    u = mechanism.thresholds()["sensitive"]
    bits = np.unpackbits(reports.arrays["bits"], axis=1, bitorder="little")[:, :u]
    rows, numbers = np.unique(np.column_stack([bits, reports.arrays["other"]]), axis=0, return_counts=True)
    return {(tuple(row[:-1].tolist()), int(row[-1])): int(c) for row, c in zip(rows, numbers, strict=True)}


def p_value(numbers, law):
    numbers = {y: c for y, c in numbers.items() if c}
    assert all(law.get(y, 0) > 0 for y in numbers)
    n = sum(numbers.values())
    statistic = 2 * sum(c * np.log(c / (n * float(law[y]))) for y, c in numbers.items())
    return chi2.sf(statistic, sum(p > 0 for p in law.values()) - 1)


@pytest.mark.parametrize("held", [(), (0,), (1,), (1, 3), (0, 1, 2), (0, 3)], ids=str)
@pytest.mark.parametrize("kind", KINDS)
def test_reports_follow_the_exact_law(kind, held):
    sensitive = (0, 2, 4)
    mechanism = kind(epsilon="1", keys=5, sensitive=sensitive)
    numbers = observed(mechanism, many(held))
    assert p_value(numbers, record_law(mechanism, held, sensitive, 5)) > FALSE_ALARM
    for epsilon in ("0.8", "1.2") if len(held) == 1 else ():
        other = kind(epsilon=epsilon, keys=5, sensitive=sensitive)
        assert p_value(numbers, record_law(other, held, sensitive, 5)) < FALSE_ALARM


@pytest.mark.parametrize(
    ("held", "tags", "symbols"),
    [((1,), (0,), (1,)), ((1,), (2,), (4,)), ((1,), (-1,), (-1,)), ((0, 1, 2), (0, 1, -1), (0, 3, -1)), ((), (), ())],
)
@pytest.mark.parametrize("base", ["urr", "urap"])
def test_personalised_reports_follow_the_exact_law(base, held, tags, symbols):
    mechanism = PUM(epsilon="1", keys=3, tags=["home", "work"], sensitive=[2], base=base)
    numbers = observed(mechanism, many(held, tags))
    assert p_value(numbers, record_law(mechanism, symbols, (2, 3, 4), 5)) > FALSE_ALARM


def test_many_sensitive_keys_have_the_stated_bit_rates():
    """300 sensitive of 400 keys, so several words a row: rates within 7 standard errors (600 rates, 2e-9 / 1.3)."""
    mechanism = URAP(epsilon=1, keys=400, sensitive=range(100, 400))
    letters = mechanism.parameters()
    for key, own in ((250, letters["theta"]), (7, 1 - letters["d2"])):
        counts = mechanism.count(mechanism.perturb(many((key,), n=50_000), Secret.new().stream(fingerprint="x"))).cells[
            "supports"
        ]
        expected = np.where(np.arange(400) >= 100, letters["d1"], 0.0)
        expected[key] = own
        spread = np.sqrt(expected * (1 - expected) / 50_000)
        assert (np.abs(counts / 50_000 - expected) <= 7.3 * spread).all()


def test_draws_use_all_items_evenly():
    """Shares of 1/3 each within 7 standard errors (false alarm below 1e-11)."""
    records = many((0, 1, 2), n=90_000)
    words = np.random.default_rng(5).integers(0, N, (90_000, 2), dtype=np.uint64)
    for sensitive, expected in (((3,), (1 / 3, 1 / 3, 1 / 3)), ((0, 2), (1 / 2, 0, 1 / 2))):
        drawn = draw_symbols(records, records.keys, SymbolSets.of(4, sensitive), words)
        share = np.bincount(drawn, minlength=3)[:3] / 90_000
        assert np.abs(share - expected).max() < 7 * np.sqrt(0.25 / 90_000)


# -- wrong input --------------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize(
    ("sensitive", "message"),
    [
        ([], "without any privacy"),
        ([4], "from 0 to 3"),
        ([-1], "from 0 to 3"),
        ([1, 1], "twice"),
        ([True], "index"),
        ("01", "list of key indices"),
        (3, "list of key indices"),
    ],
)
def test_wrong_sensitive_keys_are_refused(kind, sensitive, message):
    with pytest.raises(ParameterError, match=message):
        kind(epsilon=1, keys=4, sensitive=sensitive)


@pytest.mark.parametrize("theta", [0, 1, "x", float("nan"), True, -0.5])
def test_wrong_theta_is_refused(theta):
    with pytest.raises(ParameterError, match="theta"):
        URAP(epsilon=1, keys=4, sensitive=[1], theta=theta)


def test_order_of_sensitive_keys_does_not_matter():
    assert URR(epsilon=1, keys=9, sensitive=[5, 2]) == URR(epsilon=1, keys=9, sensitive=(2, 5))
    assert URR(epsilon=1, keys=9, sensitive=[5, 2]) != URR(epsilon=1, keys=9, sensitive=[2, 6])


def test_too_many_sensitive_keys_for_bits():
    with pytest.raises(ParameterError, match="use urr"):
        URAP(epsilon=1, keys=200_000, sensitive=range(150_000))


def test_reports_that_no_client_can_have_made_are_invalid():
    urr = URR(epsilon=1, keys=5, sensitive=[1])
    assert urr.valid(Reports(n=4, arrays={"symbol": np.array([-1, 0, 4, 5], np.int32)})).tolist() == [0, 1, 1, 0]
    urap = URAP(epsilon=1, keys=5, sensitive=[1, 3, 4])
    bits = np.array([[7], [8], [0], [0], [0], [0]], np.uint8)
    other = np.array([-1, -1, 0, 1, 5, -2], np.int32)  # a padding bit; a sensitive key; none such; none such
    assert urap.valid(Reports(n=6, arrays={"bits": bits, "other": other})).tolist() == [1, 0, 1, 0, 0, 0]
