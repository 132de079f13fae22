"""Simulated clients, step by step: which slice a row belongs to, and that a user's report is always the same one."""

from datetime import UTC, datetime
from types import SimpleNamespace

import numpy as np
import pyarrow as pa
import pytest
from ldp_beam.errors import InputError
from ldp_beam.mechanisms import Secret
from ldp_beam.schemas.event_windows import Windows
from ldp_beam.schemas.reports import FileHeader
from ldp_beam.schemas.tally import REJECTED_ROWS, ROWS_READ, UNREADABLE_TIMES, USERS
from ldp_beam.transforms.collection import Collection
from ldp_beam.transforms.gate import GATE_KEY
from ldp_beam.transforms.slice_records import (
    Clients,
    ReportSlices,
    _PerturbSlices,
    _Prepare,
    _RecordsGate,
    slice_period,
)

SLICES = Windows(size=10, slide=10)
CLIENTS = Clients(secret=Secret.from_seed(3), period="spring")


@pytest.fixture
def collection(define):
    return Collection.load(define(mechanism="pckv-grr"))


def pairs(rows):
    """A batch of (user, key, time in microseconds)."""
    schema = pa.schema(
        [
            ("user_id", pa.string()),
            ("key", pa.string()),
            ("value", pa.float64()),
            ("timestamp", pa.timestamp("us")),
        ]
    )
    content = [{"user_id": user, "key": key, "value": 0.5, "timestamp": time} for user, key, time in rows]
    return pa.RecordBatch.from_pylist(content, schema=schema)


def prepared(collection, batch, at=0, slices=SLICES):
    """({start of a slice: packed rows}, what is set aside, the tally)."""
    passed, aside, tally = {}, [], None
    for one in _Prepare(collection, CLIENTS, slices).process(batch, timestamp=SimpleNamespace(micros=at)):
        if isinstance(one, tuple):
            key, (start, rows) = one
            assert key == GATE_KEY
            passed[start] = rows
        elif one.tag == "tally":
            tally = one.value
        else:
            aside.append((one.value.reason, one.value.rows))
    return passed, aside, tally


def test_every_row_goes_to_the_slice_of_its_own_time(collection):
    batch = pairs([("a", "apple", 9_999_999), ("b", "apple", 10_000_000), ("c", "apple", -1), ("a", "banana", 0)])
    passed, aside, tally = prepared(collection, batch)
    assert {start: rows.num_rows for start, rows in passed.items()} == {0: 2, 10: 1, -10: 1}
    assert (aside, tally[ROWS_READ]) == ([], 4)


@pytest.mark.parametrize("unit", ["s", "ms", "us", "ns"])
@pytest.mark.parametrize("zone", [None, "UTC", "America/New_York"])
def test_units_and_zones_of_times(collection, unit, zone):
    """B23: naive times are UTC."""
    when = datetime(2026, 11, 30, 0, 0, 5, tzinfo=UTC)
    times = pa.array([when if zone else when.replace(tzinfo=None)], pa.timestamp(unit, tz=zone))
    batch = pa.RecordBatch.from_pydict({"user_id": ["a"], "key": ["apple"], "value": [0.5], "timestamp": times})
    assert list(prepared(collection, batch)[0]) == [int(when.timestamp()) - 5]


def test_rows_without_a_time_are_counted_and_go_nowhere(collection):
    passed, aside, tally = prepared(collection, pairs([("a", "apple", None), ("b", "apple", 3)]))
    assert (list(passed), aside) == ([0], [(UNREADABLE_TIMES, 1)])
    assert (tally[ROWS_READ], tally[REJECTED_ROWS]) == (2, 1)


def test_without_a_column_of_times_the_batch_has_one_time(collection):
    batch = pairs([("a", "apple", 3), ("b", "apple", 4)]).drop_columns(["timestamp"])
    assert list(prepared(collection, batch, at=25_000_000)[0]) == [20]


def test_nested_records_and_a_column_that_is_missing(collection):
    item = pa.struct([("key", pa.string()), ("value", pa.float64())])
    items = pa.array([[{"key": "apple", "value": 0.5}, {"key": "cherry", "value": 1.0}], []], pa.list_(item))
    batch = pa.RecordBatch.from_pydict({"user_id": ["a", "b"], "items": items})
    passed, _, _ = prepared(collection, batch)
    assert passed[0].num_rows == 3
    with pytest.raises(InputError, match="no column 'key'"):
        prepared(collection, pa.RecordBatch.from_pydict({"user_id": ["a"]}))


def test_nobody_is_asked_between_windows(collection):
    windows = Windows(size=5, slide=20)
    step = ReportSlices(collection, CLIENTS, windows, tally_to="x")
    assert step._gate._windows == Windows(size=5, slide=20)
    assert ReportSlices(collection, CLIENTS, Windows(size=20, slide=5), tally_to="x")._gate._windows == Windows(
        size=5, slide=5
    )


class Bag(list):
    add = list.append

    def read(self):
        return list(self)


def perturbed(collection, batches, shards=1, clients=CLIENTS):
    """All reports of one slice as rows, however the records came in."""
    gate, step = _RecordsGate(SLICES, shards), _PerturbSlices(collection, clients, SLICES)
    bags, timer = {}, SimpleNamespace(set=lambda time: None)
    for batch in batches:
        for start, rows in prepared(collection, batch)[0].items():
            for key, packed in gate.take(start, rows, (start,), 1):
                step.process((key, packed), bags.setdefault(key, Bag()), timer)
    reports, users = [], 0
    for key, bag in bags.items():
        for one in step.perturb(key, bag):
            if hasattr(one, "tag"):
                users += one.value.value[USERS]
            else:
                assert one.timestamp.micros == key[0] * 1_000_000
                header = FileHeader.read(one.value.schema.metadata, "x")
                assert (header.window_seconds, header.private, header.period) == (10, False, "spring")
                reports += one.value.to_pylist()
        assert bag == []  # the records are forgotten
    assert users == len(reports)
    return sorted(map(str, reports))


def test_the_report_of_a_user_and_slice_is_always_the_same(collection):
    rng = np.random.default_rng(5)
    fruit, when = rng.choice(["apple", "banana", "cherry"], 150).tolist(), rng.integers(10_000_000, size=150).tolist()
    rows = [(f"user-{i % 60}", fruit[i], when[i]) for i in range(150)]
    at_once = perturbed(collection, [pairs(rows)])
    assert len(at_once) == 60
    shuffled = [rows[i] for i in rng.permutation(len(rows))]
    parts = [pairs(shuffled[i::7]) for i in range(7)]
    assert perturbed(collection, parts, shards=4) == at_once
    again = perturbed(collection, [pairs(rows)], clients=Clients(secret=Secret.from_seed(4), period="spring"))
    assert again != at_once


def test_another_slice_is_another_period():
    assert slice_period("spring", 60) == "spring 1970-01-01T00:01:00Z"
    assert slice_period("", 60) == "1970-01-01T00:01:00Z"
    assert slice_period("spring", 60) != slice_period("spring", 120)


def test_the_secret_is_not_shown():
    assert "secret" not in repr(CLIENTS).lower()
