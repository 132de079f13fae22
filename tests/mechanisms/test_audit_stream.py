"""The random bits themselves: uniform, and shared by no two users, records, rounds, periods, collections or secrets.

False alarms: every test fails below a p-value of 1e-12; there are about 40 of them, together below 1e-10. Secrets are
fresh in every run. Power: the same tests must fail on a stream whose bits are set in 50.5 % of all cases, and on one
that repeats itself.
"""

import itertools

import numpy as np
import pytest
from ldp_beam.mechanisms import Records, Secret
from scipy.stats import chi2, norm

FALSE_ALARM = 1e-12
USERS, BLOCKS = 20_000, 8
WORDS = USERS * BLOCKS * 2


def records(n=USERS, value=0):
    return Records(
        users=Secret.from_seed(1).users().integers(np.arange(n)),
        offsets=np.arange(n + 1),
        keys=np.zeros(n, np.int32),
        values=np.full(n, value, np.int64),
    )


def words_of(secret, value=0, users=None, plane=0, **label):
    stream = secret.stream(**({"fingerprint": "f"} | label))
    return stream.blocks(stream.seeds(users or records(value=value)), 0, BLOCKS, plane=plane).reshape(-1)


# -- p-values -------------------------------------------------------------------------------------------------------


def p_ones(words):
    """Share of set bits, over all bits."""
    ones = int(np.bitwise_count(words).sum())
    bits = 64 * len(words)
    return 2 * norm.sf(abs(ones - bits / 2) / np.sqrt(bits / 4))


def p_positions(words):
    """Share of set bits at each of the 64 places, chi-square."""
    counts = np.array([int(((words >> np.uint64(place)) & np.uint64(1)).sum()) for place in range(64)])
    return chi2.sf(((counts - len(words) / 2) ** 2 / (len(words) / 4)).sum(), 64)


def p_bytes(words):
    """All 256 bytes equally often, chi-square."""
    counts = np.bincount(words.view(np.uint8), minlength=256)
    return chi2.sf(((counts - counts.mean()) ** 2 / counts.mean()).sum(), 255)


def p_pairs(words):
    """Two neighbouring bytes are independent: chi-square of the upper halves."""
    nibbles = words.view(np.uint8) >> 4
    counts = np.bincount(nibbles[:-1].astype(int) * 16 + nibbles[1:], minlength=256)
    return chi2.sf(((counts - counts.mean()) ** 2 / counts.mean()).sum(), 255)


def p_lags(words):
    """Words at a distance are independent: set bits of their XOR."""
    return min(p_ones(words[lag:] ^ words[:-lag]) for lag in (1, 2, 2 * USERS)) * 3


def p_tops(words):
    """Uniform in [0, 1): chi-square over 1,000 intervals, which is how thresholds look at a word."""
    counts = np.bincount((words >> np.uint64(44)).astype(np.int64) * 1000 >> 20, minlength=1000)
    return chi2.sf(((counts - counts.mean()) ** 2 / counts.mean()).sum(), 999)


TESTS = [p_ones, p_positions, p_bytes, p_pairs, p_lags, p_tops]


@pytest.mark.parametrize("test", TESTS)
def test_bits_are_uniform(test):
    assert test(words_of(Secret.new())) > FALSE_ALARM


@pytest.mark.parametrize("test", TESTS)
def test_bits_of_planes_are_uniform(test):
    assert test(words_of(Secret.new(), plane=5)) > FALSE_ALARM


@pytest.mark.parametrize("test", [p_ones, p_positions, p_bytes, p_pairs, p_tops])
def test_the_tests_find_a_bias(test):
    words = words_of(Secret.new())
    other = words_of(Secret.new())
    third, fourth, fifth, sixth, seventh = (words_of(Secret.new()) for _ in range(5))
    rare = other & third & fourth & fifth & sixth & seventh  # one bit in 64
    assert test(words | rare) < FALSE_ALARM


def test_the_tests_find_repetition():
    words = words_of(Secret.new())
    words[1::2] = words[::2]
    assert p_lags(words) < FALSE_ALARM


# -- nothing is shared ------------------------------------------------------------------------------------------------


SECRET = Secret.new()
STREAMS = {
    "this": {},
    "another secret": {"secret": Secret.new()},
    "another collection": {"fingerprint": "g"},
    "another period": {"period": "2"},
    "another round": {"round": 1},
    "another value": {"value": 1},
    "period and fingerprint joined otherwise": {"fingerprint": "f2", "period": ""},
    "the same text in another field": {"fingerprint": "f", "period": "1"},
    "the first plane": {"plane": 1},
    "another plane": {"plane": 2},
}


def stream_words(name):
    given = dict(STREAMS[name])
    return words_of(given.pop("secret", SECRET), **given)


@pytest.mark.parametrize(("one", "other"), list(itertools.combinations(STREAMS, 2)), ids=str)
def test_two_labels_share_no_bits(one, other):
    """Bit by bit independent, and not one word in common."""
    a, b = stream_words(one), stream_words(other)
    assert p_ones(a ^ b) > FALSE_ALARM
    # of 2^64 words, two sets of 320,000 share one with probability 6e-9; two shared ones are below 2e-17
    assert len(np.intersect1d(a, b)) <= 1


def test_users_share_no_words():
    words = words_of(SECRET)
    assert len(np.unique(words)) >= WORDS - 1
    assert not np.array_equal(words_of(SECRET), words_of(Secret.new()))


def test_numbers_of_own_blocks_and_ties_never_meet():
    """A user's blocks are numbered 0, 1, …; ties have the top bit; planes have keys of their own."""
    from ldp_beam.mechanisms.unary import _TIE

    assert not {int(_TIE) | cell for cell in range(100_000)} & set(range(1 << 20))


def test_periods_and_fingerprints_are_not_simply_joined():
    """("ab", "c") and ("a", "bc") are different labels."""
    one = SECRET.stream(fingerprint="ab", period="c")
    other = SECRET.stream(fingerprint="a", period="bc")
    batch = records(10)
    assert not np.array_equal(one.seeds(batch), other.seeds(batch))
