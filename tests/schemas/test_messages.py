"""Messages of reports: both forms give back what went in, and whatever else arrives has a reason and nothing more."""

import contextlib
import random

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from ldp_beam.errors import InputError
from ldp_beam.schemas import messages
from ldp_beam.schemas.event_time import parse_time, time_text
from ldp_beam.schemas.messages import (
    RefusedMessage,
    arrow_message,
    decode_message,
    packed_headers,
    packed_message,
    read_arrow,
)
from ldp_beam.schemas.reports import FileHeader, report_schema

SCHEMA = report_schema(
    [("key", "int32", 0), ("sign", "int8", 0), ("plus", "uint8", 5), ("hash", "uint64", 0)], ids=True
)
FINGERPRINT = "0123456789abcdef" * 4
START = 1_796_040_000  # 2026-11-30T12:00:00Z
HEADER = FileHeader(
    kind="reports",
    collection="fruit",
    mechanism="pckv-grr",
    fingerprint=FINGERPRINT,
    period="2026-11",
    window_start=time_text(START),
    window_seconds=3600,
)
RULES = {"expected": SCHEMA, "fingerprint": FINGERPRINT}


def batch(n, seed=0, schema=SCHEMA):
    rng = np.random.default_rng(seed)
    columns = []
    for field in schema:
        if pa.types.is_fixed_size_binary(field.type):
            columns.append(pa.array([rng.bytes(field.type.byte_width) for _ in range(n)], field.type))
        else:
            limits = np.iinfo(field.type.to_pandas_dtype())
            columns.append(pa.array(rng.integers(limits.min, limits.max, n, field.type.to_pandas_dtype()), field.type))
    return pa.RecordBatch.from_arrays(columns, schema=schema)


def stream_of(batches, schema=None, **options):
    sink = pa.BufferOutputStream()
    schema = schema or SCHEMA.with_metadata(dict(HEADER.metadata()))
    with pa.ipc.new_stream(sink, schema, options=pa.ipc.IpcWriteOptions(**options)) as writer:
        for one in batches:
            writer.write_batch(pa.RecordBatch.from_arrays(one.columns, schema=schema))
    return bytes(sink.getvalue())


def reason(value, headers=(), **rules):
    with pytest.raises(RefusedMessage) as refused:
        decode_message(value, headers, **{**RULES, **rules})
    assert str(refused.value)
    return refused.value.reason


@given(n=st.integers(1, 50), start=st.integers(0, 20), seed=st.integers(0, 9))
def test_both_forms_give_back_what_went_in(n, start, seed):
    whole = batch(n + start, seed)
    part = whole.slice(start)  # a slice sends itself and nothing of its parent
    for value, headers in ((arrow_message(part, HEADER), ()), (packed_message(part), packed_headers(HEADER))):
        found = decode_message(value, headers, slice_seconds=3600, now=START + 3600, **RULES)
        assert found.batch.equals(part)
        assert (found.header, found.nulls, found.header.event_time()) == (HEADER, 0, START)


def test_a_single_report_costs_its_own_bytes():
    assert len(packed_message(batch(1))) == 4 + 1 + 5 + 8 + 16
    assert len(arrow_message(batch(1), HEADER)) > 1000


def test_headers_of_other_programs_are_passed_over():
    headers = [("traceparent", b"\xff"), ("empty", None)]
    assert decode_message(arrow_message(batch(3), HEADER), headers, **RULES).batch.num_rows == 3
    assert decode_message(packed_message(batch(3)), [*headers, *packed_headers(HEADER)], **RULES).batch.num_rows == 3


def test_columns_may_stand_in_another_order():
    mixed = batch(4).select(["hash", "report_id", "plus", "sign", "key"])
    assert decode_message(arrow_message(mixed, HEADER), (), **RULES).batch.equals(batch(4))


def test_reports_with_a_null_are_left_out_and_counted():
    nullable = pa.schema([pa.field(f.name, f.type) for f in SCHEMA])
    whole = batch(3)
    columns = [pa.array([1, None, 3], pa.int32()), *whole.columns[1:]]
    found = decode_message(arrow_message(pa.RecordBatch.from_arrays(columns, schema=nullable), HEADER), (), **RULES)
    assert (found.batch.num_rows, found.nulls) == (2, 1)
    assert found.batch.column("key").to_pylist() == [1, 3]


@pytest.mark.parametrize(
    ("change", "rules", "expected"),
    [
        ({"fingerprint": "f" * 64}, {}, messages.ANOTHER_COLLECTION),
        ({"kind": "counts"}, {}, messages.ANOTHER_COLLECTION),
        ({"round": 2}, {}, messages.ANOTHER_COLLECTION),
        ({}, {"round_": 1}, messages.ANOTHER_COLLECTION),
        ({"window_start": "", "window_seconds": 0}, {}, messages.ANOTHER_SLICE),
        ({}, {"slice_seconds": 5400}, messages.ANOTHER_SLICE),
        ({"window_start": time_text(START + 1)}, {"slice_seconds": 3600}, messages.ANOTHER_SLICE),
        ({}, {"now": START + 3599}, messages.FROM_THE_FUTURE),
        ({"window_start": "9999-12-31T23:00:00Z"}, {"now": START}, messages.FROM_THE_FUTURE),
    ],
)
def test_a_header_that_does_not_belong_here(change, rules, expected):
    header = FileHeader(**{**HEADER.__dict__, **change})
    assert reason(arrow_message(batch(2), header), **rules) == expected
    assert reason(packed_message(batch(2)), packed_headers(header), **rules) == expected


def test_finer_slices_that_lie_in_one_window_are_taken():
    assert decode_message(arrow_message(batch(2), HEADER), (), slice_seconds=7200, **RULES).batch.num_rows == 2


@pytest.mark.parametrize(
    ("value", "headers", "expected"),
    [
        (None, (), messages.NO_REPORTS),
        (b"", (), messages.NO_REPORTS),
        (arrow_message(batch(0), HEADER), (), messages.NO_REPORTS),
        (b"hello", (), messages.UNREADABLE),
        (b"\0" * 100, (), messages.UNREADABLE),
        (b"\xff" * 100, (), messages.UNREADABLE),
        (stream_of([]), (), messages.UNREADABLE),
        (stream_of([batch(2), batch(2)]), (), messages.UNREADABLE),
        (stream_of([batch(2)])[:-60], (), messages.UNREADABLE),
        (stream_of([batch(2000)], compression="zstd"), (), messages.UNREADABLE),
        (stream_of([batch(2000)], compression="lz4"), (), messages.UNREADABLE),
        (stream_of([batch(2)], SCHEMA), (), messages.NO_HEADER),
        (packed_message(batch(2)), [("ldp_beam.kind", b"reports")], messages.NO_HEADER),
        (packed_message(batch(2)), [("ldp_beam.kind", b"\xff\xfe")], messages.NO_HEADER),
        (packed_message(batch(2)) + b"x", packed_headers(HEADER), messages.WRONG_COLUMNS),
        (arrow_message(batch(2).select(["key", "sign"]), HEADER), (), messages.WRONG_COLUMNS),
        (arrow_message(batch(2).append_column("age", pa.array([1, 2])), HEADER), (), messages.WRONG_COLUMNS),
        (arrow_message(batch(2).append_column("key", pa.array([1, 2])), HEADER), (), messages.WRONG_COLUMNS),
    ],
)
def test_what_is_no_message_of_ours(value, headers, expected):
    assert reason(value, headers) == expected


@pytest.mark.parametrize("seconds", ["-5", "x", "0", "1" * 5000])
def test_a_damaged_window_is_no_header(seconds):
    headers = [(n, seconds.encode() if n == "ldp_beam.window_seconds" else v) for n, v in packed_headers(HEADER)]
    assert reason(packed_message(batch(1)), headers) == messages.NO_HEADER


def test_a_message_that_is_too_large_is_not_opened(monkeypatch):
    monkeypatch.setattr(messages, "MAX_MESSAGE_BYTES", 1000)
    assert reason(b"\0" * 1001) == messages.TOO_LARGE
    with pytest.raises(RefusedMessage):
        read_arrow(b"\0" * 1001)


@settings(max_examples=300)
@given(seed=st.integers(0, 1 << 32), flips=st.integers(1, 6), cut=st.booleans())
def test_damaged_bytes_give_reports_or_a_reason_and_nothing_else(seed, flips, cut):
    rng = random.Random(seed)
    value = bytearray(arrow_message(batch(5), HEADER))
    for _ in range(flips):
        value[rng.randrange(len(value))] = rng.randrange(256)
    damaged = bytes(value[: rng.randrange(len(value))] if cut else value)
    with contextlib.suppress(RefusedMessage):
        found = decode_message(damaged, (), **RULES)
        assert found.batch.schema.types == SCHEMA.types
        found.batch.validate(full=True)


@pytest.mark.parametrize(
    ("text", "seconds"),
    [
        ("1970-01-01T00:00:00Z", 0),
        ("2026-11-30T12:00:00Z", START),
        ("2026-11-30T12:00:00", START),
        ("2026-11-30T13:00:00+01:00", START),
        ("2026-11-30", START - 12 * 3600),
        ("0001-01-01T00:00:00Z", -62_135_596_800),
    ],
)
def test_times_are_utc(text, seconds):
    assert parse_time(text) == seconds
    assert parse_time(time_text(seconds)) == seconds


@pytest.mark.parametrize("text", ["", "noon", "2026-13-01", "2026-11-30T12:00:00.5Z"])
def test_what_is_no_time(text):
    with pytest.raises(InputError):
        parse_time(text)
    with pytest.raises(InputError):
        time_text(10**15)
