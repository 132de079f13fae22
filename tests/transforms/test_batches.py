"""Arrow batches between transforms: nothing is lost, nothing more than needed is sent."""

import numpy as np
import pyarrow as pa
import pytest
from apache_beam import coders
from hypothesis import given
from hypothesis import strategies as st
from ldp_beam.mechanisms import Field, Records, Reports
from ldp_beam.schemas.reports import report_schema
from ldp_beam.transforms.batches import ArrowBatchCoder, batch_to_reports, layout_tuples, reports_to_batch
from ldp_beam.transforms.record_batches import batch_to_records, records_to_batch

UNARY = (Field(name="plus", dtype="uint8", width=3), Field(name="minus", dtype="uint8", width=3))
DIRECT = (Field(name="key", dtype="int32"), Field(name="sign", dtype="int8"))


def unary_reports(n, rng):
    wide = rng.integers(0, 256, (n, 16), dtype=np.uint8)
    return Reports(n=n, arrays={"plus": wide[:, :3], "minus": np.ascontiguousarray(wide[:, 8:11])})


@pytest.mark.parametrize("n", [0, 1, 1000])
def test_reports_survive_batches_even_as_views_of_wider_rows(n):
    rng = np.random.default_rng(n)
    direct = Reports(
        n=n,
        arrays={"key": rng.integers(0, 9, n, dtype=np.int32), "sign": rng.choice([-1, 1], n).astype(np.int8)},
    )
    for layout, reports in ((UNARY, unary_reports(n, rng)), (DIRECT, direct)):
        schema = report_schema(layout_tuples(layout))
        back = batch_to_reports(reports_to_batch(reports, schema), layout)
        assert back.n == n
        for name, array in reports.arrays.items():
            assert np.array_equal(back.arrays[name], array)


def test_a_slice_of_a_batch_is_the_slice_of_its_reports():
    reports = unary_reports(100, np.random.default_rng(0))
    batch = reports_to_batch(reports, report_schema(layout_tuples(UNARY))).slice(30, 20)
    assert np.array_equal(batch_to_reports(batch, UNARY).arrays["plus"], reports.arrays["plus"][30:50])


def test_the_coder_sends_a_slice_alone_and_keeps_metadata():
    batch = pa.RecordBatch.from_arrays(
        [pa.array(range(100_000))], schema=pa.schema([("x", pa.int64())], metadata={"a": "b"})
    )
    coder = ArrowBatchCoder()
    encoded = coder.encode(batch.slice(10, 5))
    assert len(encoded) < 2000
    back = coder.decode(encoded)
    assert back.column(0).to_pylist() == [10, 11, 12, 13, 14]
    assert back.schema.metadata == {b"a": b"b"}


def test_a_size_is_estimated_without_encoding(monkeypatch):
    batch = pa.RecordBatch.from_arrays([pa.array(range(100_000))], names=["x"])
    coder = ArrowBatchCoder()
    whole, part = len(coder.encode(batch)), len(coder.encode(batch.slice(10, 50_000)))
    monkeypatch.delattr(ArrowBatchCoder, "encode")
    assert coder.estimate_size(batch) == pytest.approx(whole, rel=0.01)
    assert coder.estimate_size(batch.slice(10, 50_000)) == pytest.approx(part, rel=0.01)


def test_beam_finds_the_coder():
    assert isinstance(coders.registry.get_coder(pa.RecordBatch), ArrowBatchCoder)


sizes = st.lists(st.integers(0, 5), max_size=30)


def canonical(sizes, has_values):
    rng = np.random.default_rng(len(sizes))
    offsets = np.concatenate([[0], np.cumsum(sizes)]).astype(np.int64)
    keys = np.concatenate([[], *(np.sort(rng.choice(50, k, replace=False)) for k in sizes)]).astype(np.int32)
    return Records(
        users=rng.integers(0, 256, (len(sizes), 16), dtype=np.uint8),
        offsets=offsets,
        keys=keys,
        values=rng.integers(-(2**40), 2**40, len(keys)) if has_values else None,
    )


@given(sizes, st.booleans(), st.data())
def test_records_survive_batches_whole_and_sliced(sizes, has_values, data):
    records = canonical(sizes, has_values)
    batch = records_to_batch(records)
    start = data.draw(st.integers(0, records.n))
    stop = data.draw(st.integers(start, records.n))
    for found, expected in (
        (batch_to_records(batch), records),
        (batch_to_records(batch.slice(start, stop - start)), records.slice(start, stop)),
    ):
        for name in ("users", "offsets", "keys", "values"):
            a, b = getattr(found, name), getattr(expected, name)
            assert (a is None and b is None) or (a.dtype == b.dtype and np.array_equal(a, b))
