"""Counts add up in any order and grouping, by blocks or whole; malformed reports are never counted."""

import apache_beam as beam
import numpy as np
import pyarrow as pa
import pytest
from apache_beam.runners.portability.fn_api_runner import FnApiRunner
from apache_beam.testing.util import assert_that
from hypothesis import given
from hypothesis import strategies as st
from ldp_beam.mechanisms import Counts
from ldp_beam.schemas.reports import report_schema
from ldp_beam.transforms import count as module
from ldp_beam.transforms.batches import layout_tuples, reports_to_batch
from ldp_beam.transforms.collection import Collection
from ldp_beam.transforms.count import AddCounts, CountReports, add_counts, join_blocks, split_blocks
from ldp_beam.transforms.estimate import GatherCounts

ints = st.integers(0, 2**50)


def counts_of(numbers):
    return Counts(n=numbers[0], cells={"n1": np.array(numbers[1:3]), "n2": np.array(numbers[3:5])})


some_counts = st.lists(st.lists(ints, min_size=5, max_size=5).map(counts_of), min_size=1, max_size=8)


@given(some_counts, st.randoms(use_true_random=False))
def test_any_order_and_any_merge_tree_gives_the_same_integers(parts, random):
    expected = add_counts(parts)
    shuffled = random.sample(parts, len(parts))
    combine = AddCounts()
    accumulators = [combine.create_accumulator() for _ in range(3)]
    for part in shuffled:
        i = random.randrange(3)
        accumulators[i] = combine.add_input(accumulators[i], part)
    random.shuffle(accumulators)
    left = combine.merge_accumulators(accumulators[:2])
    total = combine.extract_output(combine.merge_accumulators([left, accumulators[2]]))
    assert total.equals(expected)


@given(some_counts)
def test_adding_changes_no_input(parts):
    before = [(part.n, {k: v.copy() for k, v in part.cells.items()}) for part in parts]
    add_counts(parts)
    for part, (n, cells) in zip(parts, before, strict=True):
        assert part.equals(Counts(n=n, cells=cells))


def test_sums_beyond_32_bits_do_not_overflow():
    big = Counts(n=2**40, cells={"n1": np.array([2**40])})
    total = add_counts([big] * 1000)
    assert total.n == 1000 * 2**40
    assert total.cells["n1"][0] == 1000 * 2**40


def test_counts_of_different_statistics_are_not_added():
    with pytest.raises(ValueError, match="cannot be added"):
        add_counts([Counts(n=1, cells={"n1": np.array([1])}), Counts(n=1, cells={"n2": np.array([1])})])


@pytest.mark.parametrize("size", [1, 10, 11, 25])
def test_blocks_join_to_the_whole(size, monkeypatch):
    monkeypatch.setattr(module, "BLOCK_CELLS", 10)
    counts = Counts(n=7, cells={"n1": np.arange(size), "n2": np.arange(size) + 5})
    blocks = list(split_blocks(counts))
    assert len(blocks) == -(-size // 10)
    assert join_blocks(reversed(blocks)).equals(counts)


def test_a_lost_block_is_noticed():
    whole = Counts(n=7, cells={"n1": np.arange(5)})
    with pytest.raises(ValueError, match="disagree"):
        join_blocks([(0, whole), (1, Counts(n=6, cells={"n1": np.arange(5)}))])


def test_malformed_reports_are_set_aside_and_tallied(define):
    collection = Collection.load(define())
    mechanism = collection.mechanism
    plus = np.array([[1], [2], [1], [8]], dtype=np.uint8)  # the last sets a padding bit
    minus = np.array([[2], [0], [1], [0]], dtype=np.uint8)  # the third is in both planes
    schema = report_schema(layout_tuples(mechanism.layout()))
    batch = pa.RecordBatch.from_arrays([_binary(plus), _binary(minus)], schema=schema)

    def check(found):
        ((_, counts),) = found
        assert counts.n == 2
        assert counts.cells["n1"].tolist() == [1, 1, 0]
        assert counts.cells["n2"].tolist() == [0, 1, 0]

    def check_tally(found):
        assert sum(dict(s.tally).get("reports_malformed", 0) for s in found) == 2

    with beam.Pipeline(runner=FnApiRunner()) as p:
        batches = p | beam.Create([0]) | beam.Map(lambda _: batch).with_output_types(pa.RecordBatch)
        counts, summaries = batches | CountReports(collection)
        assert_that(counts, check)
        assert_that(summaries, check_tally, label="tally")


def _binary(rows):
    return pa.Array.from_buffers(pa.binary(rows.shape[1]), len(rows), [None, pa.py_buffer(rows)])


def test_gathering_nothing_gives_zeros_for_the_main_group(define):
    collection = Collection.load(define())

    def check(found):
        ((key, counts),) = found
        assert tuple(key) == (0, "main")
        assert counts.equals(collection.mechanism.zero())

    with beam.Pipeline(runner=FnApiRunner()) as p:
        none = p | beam.Create([]).with_output_types(module.BLOCK_COUNTS)
        assert_that(none | GatherCounts(collection), check)


def test_reports_to_batch_and_count_agree_with_the_mechanism(define):
    collection = Collection.load(define(mechanism="pckv-grr"))
    mechanism = collection.mechanism
    from ldp_beam.mechanisms import Secret, make_records

    secret = Secret.from_seed(1)
    records = make_records(secret.users(), range(300), [{i % 3: 0.5} for i in range(300)])
    reports = mechanism.perturb(records, secret.stream(fingerprint="x"))
    batch = reports_to_batch(reports, report_schema(layout_tuples(mechanism.layout())))

    def check(found):
        ((_, counts),) = found
        assert counts.equals(mechanism.count(reports))

    with beam.Pipeline(runner=FnApiRunner()) as p:
        slices = p | beam.Create([(0, 100), (100, 50), (150, 150)])
        batches = slices | beam.MapTuple(lambda i, n: batch.slice(i, n)).with_output_types(pa.RecordBatch)
        counts, _ = batches | CountReports(collection)
        assert_that(counts, check)
