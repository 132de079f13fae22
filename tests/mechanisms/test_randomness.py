"""Secrets, digests, streams and integer draws, against slow references and for what must differ."""

import hashlib
import hmac
import pickle
import subprocess
import sys
import threading

import numpy as np
import pytest
from cryptography.hazmat.primitives.ciphers import Cipher, algorithms, modes
from hypothesis import given
from hypothesis import strategies as st
from ldp_beam.errors import InputError
from ldp_beam.mechanisms import Records, Secret, population_generator
from ldp_beam.mechanisms.randomness import mulhi

SECRET = Secret.from_seed(11)
USERS = SECRET.users()


def text_digests(texts, digests=USERS):
    raw = [t.encode() for t in texts]
    offsets = np.concatenate(([0], np.cumsum([len(r) for r in raw]))).astype(np.int64)
    return digests.text(offsets, np.frombuffer(b"".join(raw), np.uint8))


def aes(key, block):
    return Cipher(algorithms.AES(key), modes.ECB()).encryptor().update(block)


def slow_key(purpose, *label):
    """The derivation of a key from the seed 11, written down once more."""
    return derived(hashlib.sha256(b"ldp-beam randomness 2 seed 11").digest(), purpose, *label)


def derived(material, purpose, *label):
    text = b"ldp-beam randomness 2"
    for part in (purpose, *label):
        text += len(part.encode()).to_bytes(8, "little") + part.encode()
    return hmac.new(material, text, hashlib.sha256).digest()


def slow_digest(text):
    raw = text.encode()
    if len(raw) > 1024:
        return hmac.new(slow_key("long user id"), raw, hashlib.sha256).digest()[:16]
    key = slow_key("user")[:16]
    state = aes(key, len(raw).to_bytes(16, "little"))
    for start in range(0, len(raw), 16):
        block = raw[start : start + 16].ljust(16, b"\0")
        state = aes(key, bytes(x ^ y for x, y in zip(state, block, strict=True)))
    return state


# -- secrets ------------------------------------------------------------------------------------------------


def test_a_secret_survives_its_file_and_hides_itself():
    secret = Secret.new()
    assert Secret.from_hex(secret.hex() + "\n") == secret
    assert secret.private
    assert not Secret.from_seed(1).private
    assert secret.hex() not in repr(secret) + str(secret)
    assert len(secret.id) == 16
    assert secret.id not in secret.hex()
    assert pickle.loads(pickle.dumps(secret)) == secret
    assert Secret.new() != Secret.new()
    assert len({secret, Secret.from_hex(secret.hex())}) == 1
    assert Secret.from_seed(1) != 1


@pytest.mark.parametrize("text", ["", "abc", "g" * 64, "0" * 63, "0" * 66, "٣" * 64])
def test_a_bad_secret_is_refused_without_being_shown(text):
    with pytest.raises(InputError) as error:
        Secret.from_hex(text)
    assert "64 hexadecimal digits" in str(error.value)
    assert not text or text not in str(error.value)


def test_a_secret_of_another_size_is_refused():
    with pytest.raises(InputError, match="32 bytes"):
        Secret(b"short")


def test_keys_are_never_shown():
    stream = SECRET.stream(fingerprint="f")
    assert repr(stream) == "Stream(…)"
    assert repr(USERS) == "UserDigests(…)"


# -- user digests -------------------------------------------------------------------------------------------

TEXTS = st.one_of(st.text(max_size=80), st.text(alphabet="ab0\0", max_size=40))


@given(st.lists(TEXTS, max_size=12))
def test_text_digests_equal_the_slow_reference(texts):
    digests = text_digests(texts)
    assert digests.shape == (len(texts), 16)
    assert [row.tobytes() for row in digests] == [slow_digest(text) for text in texts]


def test_long_ids_and_their_neighbours():
    texts = ["a" * size for size in (0, 1, 15, 16, 17, 1023, 1024, 1025, 5000)] + ["", "b"]
    assert [row.tobytes() for row in text_digests(texts)] == [slow_digest(text) for text in texts]


def test_digests_do_not_depend_on_the_batch():
    texts = [f"user-{i}" * (i % 5) for i in range(20_000)]
    whole = text_digests(texts)
    for i in (0, 1, 8191, 8192, 19_999):
        assert whole[i].tobytes() == slow_digest(texts[i])


def test_a_slice_of_a_longer_text_column():
    data = np.frombuffer(b"xxonetwothree", np.uint8)
    offsets = np.array([2, 5, 8, 13], np.int32)
    assert np.array_equal(USERS.text(offsets, data), text_digests(["one", "two", "three"]))


INTEGERS = st.one_of(
    st.integers(-(2**63), 2**63 - 1),
    st.integers(0, 10**17),
    st.integers(0, 19).map(lambda k: min(10**k, 2**63 - 1)),
    st.integers(0, 18).map(lambda k: 10**k - 1),
)


@given(st.lists(INTEGERS, max_size=20))
def test_integers_are_digested_as_their_texts(values):
    expected = text_digests([str(v) for v in values])
    assert np.array_equal(USERS.integers(np.array(values, np.int64)), expected)


@pytest.mark.parametrize("dtype", [np.int8, np.int16, np.uint16, np.int32, np.uint32, np.uint64, ">i8"])
def test_integers_of_every_type(dtype):
    values = np.array([0, 5, 99, 127], dtype)
    assert np.array_equal(USERS.integers(values), text_digests(["0", "5", "99", "127"]))


def test_integers_of_every_length():
    lengths = [10**k for k in range(19)] + [10**k - 1 for k in range(1, 19)] + [-1, -(2**63), 2**63 - 1]
    for values in (lengths, *([v] for v in lengths)):
        assert np.array_equal(USERS.integers(np.array(values, np.int64)), text_digests([str(v) for v in values]))
    top = np.array([2**64 - 1, 2**63], np.uint64)
    assert np.array_equal(USERS.integers(top), text_digests([str(2**64 - 1), str(2**63)]))


def test_many_ids_have_distinct_digests():
    digests = USERS.integers(np.arange(100_000))
    assert len(np.unique(digests.view(np.uint64)[:, 0])) == 100_000  # a false alarm has probability 3e-10


# -- streams ------------------------------------------------------------------------------------------------


def record(pairs, user=1, secret=SECRET):
    keys, values = zip(*pairs, strict=True) if pairs else ((), ())
    return Records(
        users=secret.users().integers(np.array([user])),
        offsets=np.array([0, len(pairs)]),
        keys=np.array(keys, np.int32),
        values=np.array(values, np.int64),
    )


def test_seeds_and_blocks_equal_the_slow_reference():
    stream = SECRET.stream(fingerprint="f", period="p", round=2)
    pairs = [(3, -5), (9, 1 << 40)]
    total = [0, 0]
    for key, value in pairs:
        block = key.to_bytes(8, "little") + (value % 2**64).to_bytes(8, "little")
        image = aes(slow_key("record", "f", "p", "2")[:16], block)
        for lane in (0, 1):
            total[lane] = (total[lane] + int.from_bytes(image[8 * lane : 8 * lane + 8], "little")) % 2**64
    user = slow_digest("1")
    seed = [total[lane] ^ int.from_bytes(user[8 * lane : 8 * lane + 8], "little") for lane in (0, 1)]
    seeds = stream.seeds(record(pairs))
    assert seeds.tolist() == [seed]
    words = b"".join(((s ^ 7) % 2**64).to_bytes(8, "little") for s in seed)
    key = slow_key("block", "f", "p", "2")[:16]
    assert stream.blocks(seeds, 6, 3)[1].tobytes() == aes(key, words)
    for plane in (1, 13):
        own = derived(key, "plane", str(plane))[:16]
        assert stream.blocks(seeds, 6, 3, plane=plane)[1].tobytes() == aes(own, words)


def test_seeds_of_batches_with_empty_users_are_those_of_single_users():
    stream = SECRET.stream(fingerprint="f")
    people = [[], [(1, 2)], [], [(0, 0), (4, -4), (5, 5)], [], [(7, 1)], []]
    keys = [k for pairs in people for k, _ in pairs]
    batch = Records(
        users=USERS.integers(np.arange(7)),
        offsets=np.concatenate(([0], np.cumsum([len(p) for p in people]))).astype(np.int64),
        keys=np.array(keys, np.int32),
        values=np.array([v for pairs in people for _, v in pairs], np.int64),
    )
    for i, pairs in enumerate(people):
        assert np.array_equal(stream.seeds(batch)[i], stream.seeds(record(pairs, user=i))[0])


def test_every_part_of_the_label_changes_the_seed_or_the_bits():
    base = {"fingerprint": "f", "period": "p", "round": 1}
    variants = [
        base,
        {**base, "fingerprint": "g"},
        {**base, "period": "q"},
        {**base, "round": 2},
        {"fingerprint": "fp", "period": "", "round": 1},  # the same letters, parted elsewhere
    ]
    records = [record([(1, 1)]), record([(1, 2)]), record([(2, 1)]), record([]), record([(1, 1)], user=2)]
    seen = set()
    for secret in (SECRET, Secret.from_seed(12)):
        for label in variants:
            stream = secret.stream(**label)
            for one in records:
                seen.add(stream.blocks(stream.seeds(one), 0, 1).tobytes())
    assert len(seen) == 2 * len(variants) * len(records)


def test_records_without_values_have_seeds_of_their_own():
    stream = SECRET.stream(fingerprint="f")
    users, offsets, keys = USERS.integers(np.array([1])), np.array([0, 1]), np.array([3], np.int32)
    seed = stream.seeds(Records(users=users, offsets=offsets, keys=keys))
    assert not np.array_equal(seed, stream.seeds(record([(3, 0)])))


def test_blocks_can_be_written_to_a_given_array():
    stream = SECRET.stream(fingerprint="f")
    seeds = stream.seeds(record([(1, 1)]))
    out = np.empty((4, 1, 2), np.uint64)
    assert stream.blocks(seeds, 0, 4, out) is out
    assert np.array_equal(out, stream.blocks(seeds, 0, 4))


def test_threads_share_a_stream():
    stream = SECRET.stream(fingerprint="f")
    seeds = stream.seeds(record([(1, 1)]))
    expected, results = stream.blocks(seeds, 0, 64), []
    threads = [threading.Thread(target=lambda: results.append(stream.blocks(seeds, 0, 64))) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert all(np.array_equal(result, expected) for result in results)
    assert len(results) == 4


# -- integers below a bound ---------------------------------------------------------------------------------

WORD = st.one_of(st.integers(0, 2**64 - 1), st.sampled_from([0, 1, 2**32 - 1, 2**32, 2**64 - 1]))


@given(st.lists(st.tuples(WORD, WORD.map(lambda b: max(1, b))), min_size=1, max_size=20))
def test_mulhi_is_the_exact_high_word(pairs):
    words = np.array([w for w, _ in pairs], np.uint64)
    bounds = np.array([b for _, b in pairs], np.uint64)
    assert mulhi(words, bounds).tolist() == [w * b >> 64 for w, b in pairs]
    assert mulhi(words, pairs[0][1]).tolist() == [w * pairs[0][1] >> 64 for w, _ in pairs]


def test_mulhi_leaves_its_words_alone():
    words = np.arange(5, dtype=np.uint64) << np.uint64(60)
    mulhi(words, 10)
    assert words.tolist() == [i << 60 for i in range(5)]


# -- the rest -----------------------------------------------------------------------------------------------


def test_populations_repeat_and_differ():
    first = population_generator(1, 2).integers(0, 2**63, 4)
    assert np.array_equal(first, population_generator(1, 2).integers(0, 2**63, 4))
    assert not np.array_equal(first, population_generator(1, 3).integers(0, 2**63, 4))
    assert not np.array_equal(first, population_generator(2, 1).integers(0, 2**63, 4))


def test_the_package_is_light():
    code = (
        "import sys, ldp_beam.mechanisms;"
        "heavy = {'apache_beam', 'pyarrow', 'fastavro', 'scipy', 'click', 'rich'} & set(sys.modules);"
        "assert not heavy, heavy"
    )
    subprocess.run([sys.executable, "-c", code], check=True)
