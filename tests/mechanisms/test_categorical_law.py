"""Categorical mechanisms: the exact law of a report by enumeration, its loss, and reports that follow it.

The laws are written independently of the kernels, from the integer thresholds alone, as fractions. Draws are words
whose product with the bound has the outcome as high word, counted exactly.

False alarms: likelihood-ratio tests fail below 1e-11, and there are 36; shares of supports lie within 7.5 standard
errors, of which 40 are checked. Together below 1e-9. Secrets are fresh in every run. Power: each test must reject the
law of 20 % more or less epsilon.
"""

import itertools
import math
from fractions import Fraction

import numpy as np
import pytest
from ldp_beam.mechanisms import MECHANISMS, Counts, Records, Reports, Secret, make_mechanism
from ldp_beam.mechanisms.categorical.estimation import joint_em
from ldp_beam.mechanisms.categorical.hadamard import walsh_hadamard
from ldp_beam.mechanisms.categorical.local_hashing import bucket_bounds, hashed
from scipy.stats import chi2

N = 1 << 64
FALSE_ALARM = 1e-11
USERS = 150_000
KEYS = 4
SYMBOLS = ("rr", "grr", "sue", "oue", "subset-selection", "shist", "hadamard")
SETS = ("psfo-grr", "psfo-oue")
#: Unary reports attain their loss in domains of at least twice as many keys as the padding.
LAWS = (*((name, 1) for name in SYMBOLS), ("psfo-grr", 1), ("psfo-grr", 3), ("psfo-oue", 1), ("psfo-oue", 2))


def build(name, padding=1, epsilon="1", keys=KEYS):
    more = {"padding": padding} if name in SETS else {}
    return make_mechanism(name, epsilon=epsilon, keys=2 if name == "rr" else keys, **more)


def shares(bound):
    edges = [-(-(j << 64) // bound) for j in range(bound + 1)]
    return [Fraction(high - low, N) for low, high in itertools.pairwise(edges)]


def mixture(parts):
    law = {}
    for share, part in parts:
        for report, q in part.items():
            law[report] = law.get(report, 0) + share * q
    return law


def symbols(mechanism, record):
    """(share, drawn symbol) for one-item mechanisms; None is a dummy of an item set."""
    if mechanism.name in SETS:
        slots = shares(max(len(record), mechanism.padding))
        return [(share, record[i] if i < len(record) else None) for i, share in enumerate(slots)]
    options = record or tuple(range(mechanism.keys))
    return list(zip(shares(len(options)), options, strict=True))


def law(mechanism, record):
    of = {"rr": grr, "psfo-grr": grr, "sue": unary, "oue": unary, "psfo-oue": unary, "grr": grr}
    of |= {"subset-selection": subset, "shist": shist, "hadamard": hadamard}
    return mixture((share, of[mechanism.name](mechanism, x)) for share, x in symbols(mechanism, record))


def grr(mechanism, symbol):
    t = mechanism.thresholds()
    kept, others, d = Fraction(t["kept"], N), t["other_keys"], mechanism.keys
    own = others if symbol is None else symbol
    result = {(min(own, d),): kept}
    rest = [index for index in range(others + 1) if index != own]
    for index, share in zip(rest, shares(others), strict=True):
        y = (min(index, d),)
        result[y] = result.get(y, 0) + (1 - kept) * share
    return result


def unary(mechanism, symbol):
    t = {name: Fraction(value, N) for name, value in mechanism.thresholds().items()}
    result = {}
    for report in itertools.product((0, 1), repeat=mechanism.keys):
        q = Fraction(1)
        for i, cell in enumerate(report):
            one = t["own"] if i == symbol else t["other"]
            q *= one if cell else 1 - one
        result[report] = q
    return result


def floyd(others, size):
    """Law of the sets that Floyd's method draws, as a recursion over its draws."""
    laws = {frozenset(): Fraction(1)}
    for last in range(others - size, others):
        laws = mixture(
            (q * share, {chosen | {last if t in chosen else t}: 1})
            for chosen, q in laws.items()
            for t, share in enumerate(shares(last + 1))
        )
    return laws


def subset(mechanism, symbol):
    t, d = mechanism.thresholds(), mechanism.keys
    own, size = Fraction(t["own"], N), t["set_size"]
    rest = [index for index in range(d) if index != symbol]
    result = {}
    for share, drawn, more in ((own, floyd_within(d - 1, size), {symbol}), (1 - own, floyd(d - 1, size), set())):
        for chosen, q in drawn.items():
            members = {rest[i] for i in chosen} | more
            report = tuple(int(i in members) for i in range(d))
            result[report] = result.get(report, 0) + share * q
    return result


def floyd_within(others, size):
    """With the own symbol inside, the first of the draws is left out."""
    return floyd(others, size - 1)


def sign(row, column):
    return -1 if bin(row & column).count("1") % 2 else 1


def shist(mechanism, symbol):
    t = mechanism.thresholds()
    kept, w = Fraction(t["kept"], N), t["rows"]
    return {
        (row, sent): Fraction(1, w) * (kept if sent == sign(row, symbol) else 1 - kept)
        for row in range(w)
        for sent in (1, -1)
    }


def hadamard(mechanism, symbol):
    t = mechanism.thresholds()
    kept, w = Fraction(t["kept"], N), t["rows"]
    return {(row,): Fraction(2, w) * (kept if sign(row, symbol + 1) == 1 else 1 - kept) for row in range(w)}


def rows_of(mechanism, reports):
    """Reports as rows of small integers, as the laws name them."""
    if "bits" in reports.arrays:
        return np.unpackbits(reports.arrays["bits"], axis=1, count=mechanism.keys, bitorder="little").astype(int)
    return np.stack([reports.arrays[part.name].astype(int) for part in mechanism.layout()], axis=1)


def many(record, n=USERS):
    return Records(
        users=Secret.new().users().integers(np.arange(n)),
        offsets=np.arange(n + 1) * len(record),
        keys=np.tile(np.array(record, np.int32), n),
    )


def observed(mechanism, record):
    rows = rows_of(mechanism, mechanism.perturb(many(record), Secret.new().stream(fingerprint="law")))
    found, numbers = np.unique(rows, axis=0, return_counts=True)
    return {tuple(row.tolist()): int(number) for row, number in zip(found, numbers, strict=True)}


def p_value(numbers, expected):
    assert set(numbers) <= set(expected)
    n = sum(numbers.values())
    statistic = 2 * sum(c * np.log(c / (n * float(expected[y]))) for y, c in numbers.items())
    return chi2.sf(statistic, len(expected) - 1)


def every_record(mechanism):
    return [r for size in range(mechanism.keys + 1) for r in itertools.combinations(range(mechanism.keys), size)]


@pytest.mark.parametrize(("name", "padding"), LAWS)
@pytest.mark.parametrize("epsilon", ["0.001", "0.5", "1", "3", "20"])
def test_the_loss_over_all_records_and_reports_is_epsilon(name, padding, epsilon):
    mechanism = build(name, padding, epsilon)
    laws = [law(mechanism, record) for record in every_record(mechanism)]
    assert all(sum(one.values()) == 1 for one in laws)
    exact = max(math.log(max(one[y] for one in laws) / min(one[y] for one in laws)) for y in laws[0])
    assert exact <= float(epsilon) + 1e-14  # the logarithm of a fraction is rounded here
    assert exact == pytest.approx(float(epsilon), abs=1e-9)
    assert exact == pytest.approx(mechanism.exact_epsilon(), abs=1e-12)


@pytest.mark.parametrize("record", [(), (2,), (0, 1, 3)], ids=len)
@pytest.mark.parametrize(("name", "padding"), LAWS)
def test_reports_follow_the_exact_law(name, padding, record):
    mechanism = build(name, padding)
    record = tuple(k for k in record if k < mechanism.keys)
    numbers = observed(mechanism, record)
    assert p_value(numbers, law(mechanism, record)) > FALSE_ALARM
    if len(record) == 1:
        for epsilon in ("0.8", "1.2"):
            assert p_value(numbers, law(build(name, padding, epsilon), record)) < FALSE_ALARM


def test_larger_subsets_follow_the_law():
    mechanism = build("subset-selection", epsilon="0.5", keys=7)
    assert mechanism.thresholds()["set_size"] == 3
    numbers = observed(mechanism, (5,))
    assert p_value(numbers, law(mechanism, (5,))) > FALSE_ALARM
    assert p_value(numbers, law(mechanism, (4,))) < FALSE_ALARM


@pytest.mark.parametrize(("name", "padding"), LAWS)
def test_supports_are_those_the_estimators_assume(name, padding):
    """Summed over the law: a report supports a drawn symbol with p and any other with q."""
    mechanism = build(name, padding)
    p, q = (mechanism.parameters()[letter] for letter in "pq")
    for record in ((), (1,), (0, 1)):
        expected = law(mechanism, record)
        rows = np.array(list(expected))
        weights = np.array([float(x) for x in expected.values()])
        support = mechanism.supported(as_reports(mechanism, rows))
        drawn = np.zeros(mechanism.keys)
        for share, symbol in symbols(mechanism, record):
            if symbol is not None:
                drawn[symbol] += float(share)
        assert weights @ support == pytest.approx(q + (p - q) * drawn, abs=1e-12)


def as_reports(mechanism, rows):
    if mechanism.layout()[0].name == "bits":
        arrays = {"bits": np.packbits(rows.astype(bool), axis=1, bitorder="little")}
    else:
        arrays = {part.name: rows[:, i].astype(part.dtype) for i, part in enumerate(mechanism.layout())}
    return Reports(n=len(rows), arrays=arrays)


# -- local hashing: the bucket is a GRR answer for each seed -------------------------------------------------


@pytest.mark.parametrize("epsilon", ["0.001", "0.5", "1", "3", "20"])
def test_local_hashing_loses_epsilon_for_every_seed(epsilon):
    mechanism = build("olh", epsilon=epsilon)
    t = mechanism.thresholds()
    kept, g = Fraction(t["kept"], N), t["buckets"]
    assert g == round(math.exp(float(epsilon))) + 1
    moved = [(1 - kept) * share for share in (shares(g - 1) if g < 100 else [Fraction(N // (g - 1), N)])]
    exact = math.log(max(kept, *moved) / min(kept, *moved)) if g > 2 else math.log(kept / moved[0])
    assert exact <= float(epsilon) + 1e-14
    assert exact == pytest.approx(float(epsilon), abs=1e-9)
    assert exact == pytest.approx(mechanism.exact_epsilon(), abs=1e-12)


def test_local_hashing_buckets_follow_their_law():
    mechanism = build("olh", keys=50)
    p, q = (mechanism.parameters()[letter] for letter in "pq")
    assert q == pytest.approx(1 / 4, abs=1e-9)
    for record in ((7,), (3, 49)):
        counts = mechanism.count(mechanism.perturb(many(record, 300_000), Secret.new().stream(fingerprint="law")))
        found = counts.cells["supports"] / counts.n
        expected = np.full(50, q)
        expected[list(record)] += (p - q) / len(record)
        some = [*record, 0, 1, 2, 10, 11, 12, 20, 21, 22, 30, 31, 32, 40, 41, 42, 43, 44, 45]
        assert (np.abs(found - expected)[some] < 7.5 * np.sqrt(expected * (1 - expected) / counts.n)[some]).all()
        other = build("olh", keys=50, epsilon="1.1").parameters()["p"]
        assert abs(found[record[0]] - q - (other - q) / len(record)) > 7.5 * np.sqrt(0.25 / counts.n)


@pytest.mark.parametrize("buckets", [2, 3, 4, 1000, 485_165_196])
def test_buckets_are_the_inverse_of_the_hash(buckets):
    rng = np.random.default_rng(buckets)
    seeds = rng.integers(0, N, (5000, 2), dtype=np.uint64)
    bucket = hashed(seeds, np.full(5000, 77), buckets)
    assert bucket.max() < buckets
    first, width = bucket_bounds(bucket, buckets)
    place = seeds[:, 1] + seeds[:, 0] * np.uint64(77) - first
    assert (place < width).all()
    following, _ = bucket_bounds((bucket + np.uint64(1)) % np.uint64(buckets), buckets)
    assert (first + width == following).all()


def test_hashes_of_two_symbols_collide_as_often_as_independent_ones():
    """All of a small member of the family: 2^8 times 2^8 seeds, symbols of 4 bits, 4 bits out."""
    a, b = np.meshgrid(np.arange(256), np.arange(256))
    table = [((a * x + b) % 256) >> 4 for x in range(8)]
    for x, y in itertools.combinations(range(8), 2):
        pairs = np.bincount((table[x] * 16 + table[y]).ravel(), minlength=256)
        # 4 + 4 bits need a modulus of 2^7 at least: all pairs of values are equally frequent
        assert (pairs == 256).all()


# -- counts, estimates, validity -------------------------------------------------------------------------------


def test_the_transform_is_the_matrix():
    for w in (1, 2, 8, 64):
        matrix = np.array([[sign(row, column) for column in range(w)] for row in range(w)])
        values = np.arange(w) ** 2 - 3
        assert np.array_equal(walsh_hadamard(values), matrix @ values)


def population(n, keys, seed=0):
    held = np.minimum(np.random.default_rng(seed).geometric(0.35, n) - 1, keys - 1).astype(np.int32)
    users = Secret.new().users().integers(np.arange(n))
    return Records(users=users, offsets=np.arange(n + 1), keys=held), np.bincount(held, minlength=keys) / n


@pytest.mark.parametrize("name", [*SYMBOLS, "olh", *SETS])
def test_counts_are_the_sum_of_supports_and_estimates_find_the_truth(name):
    """Within 7 standard errors (at most 12 symbols each, 10 mechanisms: false alarm below 4e-10)."""
    mechanism = build(name, epsilon="2", keys=12)
    records, truth = population(20_000, mechanism.keys)
    reports = mechanism.perturb(records, Secret.new().stream(fingerprint="e"))
    counts = mechanism.count(reports)
    assert np.array_equal(mechanism.supported(reports).sum(axis=0), mechanism.supporters(counts))
    for estimator in mechanism.estimators:
        estimates = mechanism.estimate(counts, estimator)
        assert (np.abs(estimates.frequency_raw - truth) < 7 * estimates.frequency_se).all()
        assert estimates.mean is None
        assert (np.abs(estimates.frequency - truth) < 9 * estimates.frequency_se.max()).all()
    if name not in SETS:
        joint = joint_em(mechanism.supported(reports), *mechanism.likelihoods(), tolerance=1e-6)
        assert joint.sum() == pytest.approx(1)
        assert (np.abs(joint - truth) < 7 * estimates.frequency_se).all()


@pytest.mark.parametrize("name", [*SYMBOLS, "olh", *SETS])
def test_variance_over_many_counts_is_the_predicted_one(name):
    """300 runs of 2,000 users, drawn afresh: variances within 45 % (chi-squared: false alarm 4e-8 a symbol at most
    for 20 values would be too many, so only the sum over all symbols is compared, within 7 standard errors)."""
    mechanism = build(name, padding=2, keys=8)
    records, _ = population(300 * 2_000, mechanism.keys, seed=1)
    stream = Secret.new().stream(fingerprint="v")
    raw, predicted = [], []
    for part in records.chunks(2_000):
        estimates = mechanism.estimate(mechanism.count(mechanism.perturb(part, stream)))
        raw.append(estimates.frequency_raw)
        predicted.append(estimates.frequency_se**2)
    ratio = np.var(raw, axis=0, ddof=1).mean() / np.mean(predicted)
    # the sum of d dependent variances is at most as uncertain as one of them
    assert abs(ratio - 1) < 7 * np.sqrt(2 / 299)


def test_sampled_items_are_multiplied_by_the_padding():
    n = 60_000
    keys = np.tile(np.array([0, 2, 3], np.int32), n)
    users = Secret.new().users().integers(np.arange(n))
    records = Records(users=users, offsets=np.arange(n + 1) * 3, keys=keys)
    for name in SETS:
        mechanism = build(name, padding=5, epsilon="3", keys=6)
        estimates = mechanism.estimate(
            mechanism.count(mechanism.perturb(records, Secret.new().stream(fingerprint="s")))
        )
        truth = np.array([1, 0, 1, 1, 0, 0])
        assert (np.abs(estimates.frequency_raw - truth) < 7 * estimates.frequency_se).all()
        assert estimates.frequency_se.max() < 0.1
        assert build(name, padding=5, epsilon="3", keys=6) == mechanism
        assert build(name, padding=4, epsilon="3", keys=6) != mechanism


def test_padding_amplifies_privacy_with_grr_alone():
    amplified = build("psfo-grr", padding=10, epsilon="1").parameters()["amplified_epsilon"]
    assert amplified == pytest.approx(math.log(10 * (math.e - 1) + 1), abs=1e-9)
    for letter in "pq":
        assert build("psfo-oue", padding=10).parameters()[letter] == build("oue").parameters()[letter]


def test_published_parameters():
    e = math.e
    for name, p, q in (
        ("grr", e / (e + 3), 1 / (e + 3)),
        ("sue", e**0.5 / (e**0.5 + 1), 1 / (e**0.5 + 1)),
        ("oue", 0.5, 1 / (e + 1)),
        ("olh", e / (e + 3), 0.25),
        ("subset-selection", e / (e + 3), 1 / (e + 3)),
        ("shist", e / (e + 1), 0.5),
        ("hadamard", e / (e + 1), 0.5),
    ):
        parameters = build(name).parameters()
        assert (parameters["p"], parameters["q"]) == pytest.approx((p, q), abs=1e-9)
    # variance of optimised unary encoding and local hashing at f = 0: 4 e^eps / (n (e^eps - 1)^2)
    for name in ("oue", "olh"):
        variance = build(name).predict(frequency=0.0, mean=0.0, users=1000).frequency_se ** 2
        assert variance == pytest.approx(4 * e / (1000 * (e - 1) ** 2), rel=0.02 if name == "olh" else 1e-6)


@pytest.mark.parametrize(
    ("name", "array", "value"),
    [
        ("grr", "key", -1),
        ("grr", "key", KEYS),
        ("psfo-grr", "key", KEYS + 1),
        ("olh", "bucket", 4),
        ("olh", "bucket", -1),
        ("shist", "row", 4),
        ("shist", "sign", 0),
        ("hadamard", "row", 8),
        ("oue", "bits", 0x10),
        ("subset-selection", "bits", 0x03),
        ("subset-selection", "bits", 0),
    ],
)
def test_impossible_reports_are_invalid(name, array, value):
    mechanism = build(name)
    reports = mechanism.perturb(many((1,), 3), Secret.new().stream(fingerprint="i"))
    wrong = reports.arrays[array].copy()
    wrong[1] = value
    valid = mechanism.valid(Reports(n=3, arrays={**reports.arrays, array: wrong}))
    assert valid.tolist() == [True, False, True]


@pytest.mark.parametrize("name", [*SYMBOLS, "olh"])
def test_one_symbol_is_no_question(name):
    with pytest.raises(ValueError, match="keys of"):
        make_mechanism(name, epsilon=1, keys=1)


def test_estimators_and_counts_of_nobody():
    for name in (*SYMBOLS, "olh", *SETS):
        mechanism = build(name)
        assert mechanism.estimators == tuple(dict.fromkeys(mechanism.estimators))
        for estimator in mechanism.estimators:
            nothing = mechanism.estimate(mechanism.zero(), estimator)
            assert np.isnan(nothing.frequency).all()
            assert nothing.flags["no-reports"].all()
        with pytest.raises(ValueError, match="estimator is 'corrected'"):
            mechanism.estimate(mechanism.zero(), "corrected")
        assert isinstance(mechanism.zero(), Counts)
        assert MECHANISMS[name].use
