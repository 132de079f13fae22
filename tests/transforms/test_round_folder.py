"""The folder between rounds: signs found by digest, answers noted, states written whole, damage refused."""

import pickle

import numpy as np
import pyarrow.parquet as pq
import pytest
from ldp_beam.errors import InputError
from ldp_beam.mechanisms import Counts, Secret
from ldp_beam.mechanisms.privkv.rounds import DrawnFeedback
from ldp_beam.schemas.collection import Definition
from ldp_beam.transforms.collection import Collection
from ldp_beam.transforms.round_folder import FeedbackFile, RoundFolder, read_answers

TEXT = """
name = "n"
mechanism = "privkvm"
epsilon = {epsilon}
[privkv]
rounds = 3
[keys]
count = 11
[values]
range = [0, 1]
"""


def collection(epsilon=2):
    return Collection.of(Definition.from_text(TEXT.format(epsilon=epsilon)))


@pytest.fixture
def folder(tmp_path):
    return RoundFolder(tmp_path / "state", collection())


def users(n, seed=1):
    return Secret.from_seed(seed).users().integers(np.arange(n))


def feedback(keys=11):
    return DrawnFeedback(Secret.from_seed(9).stream(fingerprint="f", round=2), np.linspace(-0.9, 0.9, keys))


def test_signs_from_the_file_are_those_that_were_drawn(folder):
    some = users(3000)
    folder.add_answers(1, some[::2])
    folder.add_answers(1, some[1::2])
    everybody = folder.answered(1)
    assert len(everybody) == 3000
    assert sorted(map(bytes, some)) == list(map(bytes, everybody))
    folder.put_feedback(2, everybody, feedback(), 11)
    keys = np.arange(3000) % 11
    file = pickle.loads(pickle.dumps(FeedbackFile(folder.feedback_path(2))))
    assert np.array_equal(file.plus(some, keys), feedback().plus(some, keys))
    again = pickle.loads(pickle.dumps(file))  # a file that was read is pickled as a path all the same
    assert len(pickle.dumps(file)) < 1000
    assert np.array_equal(again.plus(some[:5], keys[:5]), file.plus(some[:5], keys[:5]))


def test_digests_that_share_a_half_are_told_apart(folder):
    alike = users(6)
    alike[:, :8] = alike[0, :8]
    sorted_users = np.frombuffer(b"".join(sorted(map(bytes, alike))), np.uint8).reshape(-1, 16)
    folder.put_feedback(2, sorted_users, feedback(), 11)
    file, keys = FeedbackFile(folder.feedback_path(2)), np.arange(6)
    assert np.array_equal(file.plus(alike, keys), feedback().plus(alike, keys))
    unknown = alike.copy()
    unknown[2, 15] ^= 1
    with pytest.raises(InputError, match="At least 1 users have no signs"):
        file.plus(unknown, keys)


def test_unknown_users_have_no_signs(folder):
    folder.put_feedback(2, users(0), feedback(), 11)
    with pytest.raises(InputError, match="did not answer the first round"):
        FeedbackFile(folder.feedback_path(2)).plus(users(4), np.zeros(4, np.int64))
    with pytest.raises(InputError, match="cannot be read"):
        FeedbackFile(folder.path / "none.parquet").plus(users(1), np.zeros(1, np.int64))


def test_a_state_opens_the_next_round(folder, tmp_path):
    protocol = collection().mechanism
    assert folder.status.round == 1
    assert folder.load_state(protocol).round == 1
    cells = {name: np.arange(11) + 5 for name in ("n1", "n2", "n_drawn")}
    cells["n_drawn"] = cells["n1"] * 3
    state = protocol.advance(protocol.initial(), Counts(n=9, cells=cells))
    folder.put_state(state)
    # until the status says so, the round is still open
    assert RoundFolder(folder.path, collection()).status.round == 1
    folder.close_round(state, period="p", private=False)
    again = RoundFolder(folder.path, collection())
    assert (again.status.round, again.status.period, again.status.private) == (2, "p", False)
    loaded = again.load_state(protocol)
    assert loaded.counts[0].equals(state.counts[0])
    again.require_open(2, protocol)
    for number, message in (
        (0, "has rounds 1 to 3"),
        (1, "is closed"),
        (3, "is not open yet"),
        (4, "has rounds 1 to 3"),
    ):
        with pytest.raises(InputError, match=message):
            again.require_open(number, protocol)
    assert not list(folder.path.glob(".*partial"))
    (folder.path / "state-after-round-1.npz").unlink()
    with pytest.raises(InputError, match="cannot go on without it"):
        again.load_state(protocol)


def test_foreign_and_damaged_folders_are_refused(folder, tmp_path):
    protocol = collection().mechanism
    folder.close_round(protocol.initial(), period="p", private=True)
    with pytest.raises(InputError, match="another collection definition"):
        RoundFolder(folder.path, collection(epsilon=3))
    (folder.path / "status.json").write_text("{}")
    with pytest.raises(InputError, match="not readable"):
        RoundFolder(folder.path, collection())
    (tmp_path / "file").write_text("x")
    with pytest.raises(InputError, match="is not a folder"):
        RoundFolder(tmp_path / "file", collection())
    with pytest.raises(InputError, match="object stores"):
        RoundFolder("gs://bucket/state", collection())


def test_answers_hold_digests_and_nothing_else(folder):
    folder.add_answers(1, users(3))
    (file,) = folder.path.glob("answers-round-1-*.parquet")
    assert pq.read_table(file).column_names == ["user"]
    assert np.array_equal(read_answers([str(file)]), folder.answered(1))
    assert len(folder.answered(2)) == 0
