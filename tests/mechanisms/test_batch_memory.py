"""What a batch remembers of itself, and the memory that kernels work in."""

import pickle
import platform
import resource

import numpy as np
import pytest
from ldp_beam.mechanisms import Records, Secret, make_mechanism
from ldp_beam.mechanisms.workspace import scratch


def batch(sizes):
    offsets = np.concatenate(([0], np.cumsum(sizes))).astype(np.int64)
    keys = np.concatenate([np.arange(size, dtype=np.int32) for size in sizes])
    users = Secret.from_seed(1).users().integers(np.arange(len(sizes)))
    return Records(users=users, offsets=offsets, keys=keys)


@pytest.mark.parametrize(
    ("sizes", "expected"), [([1, 1, 1], True), ([1, 2, 0], False), ([2, 1], False), ([0, 1], False)]
)
def test_one_pair_each_is_recognised(sizes, expected):
    assert batch(sizes).one_each is expected


def test_a_part_may_have_one_pair_each_where_the_batch_has_not():
    records = batch([2, 1, 1, 0])
    assert not records.one_each
    assert records.slice(1, 3).one_each
    assert not records.slice(0, 2).one_each
    assert batch([1, 1, 1]).slice(1, 3).one_each


def test_what_a_batch_found_out_about_itself_is_not_sent_along():
    records = batch([1, 1])
    before = pickle.dumps(records)
    assert records.one_each
    assert records.slice(0, 1).one_each
    assert pickle.dumps(records) == before
    assert pickle.loads(before).one_each


def test_a_work_array_is_the_same_memory_again():
    first = scratch("test_batch_memory", (4, 2))
    assert np.shares_memory(first, scratch("test_batch_memory", (2, 2)))
    assert scratch("test_batch_memory", (8, 2)).shape == (8, 2)


@pytest.mark.skipif(platform.libc_ver()[0] != "glibc", reason="only the GNU C library gives freed arrays back at once")
def test_reports_reuse_freed_memory():
    """Without it each batch faults for every page of its reports: 512 of them here, and those of other arrays."""
    mechanism = make_mechanism("pckv-ue", epsilon=1, keys=100, padding=1)
    users = 65_536
    secret = Secret.from_seed(2)
    records = Records(
        users=secret.users().integers(np.arange(users)),
        offsets=np.arange(users + 1),
        keys=np.zeros(users, np.int32),
        values=np.zeros(users, np.int64),
    )
    stream = secret.stream(fingerprint="memory")
    for _ in range(3):
        mechanism.perturb(records, stream)
    before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
    for _ in range(10):
        mechanism.perturb(records, stream)
    assert resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before < 10 * 256
