"""Each id once in a stream: what a shard of a window adds to it, in whatever order and however often reports come."""

from collections import Counter

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from ldp_beam.schemas.collection import Definition
from ldp_beam.schemas.event_windows import Windows
from ldp_beam.schemas.reports import REPORT_ID
from ldp_beam.transforms import count_once
from ldp_beam.transforms.batches import batch_to_reports
from ldp_beam.transforms.collection import Collection
from ldp_beam.transforms.count_distinct import distinct_reports, id_bytes
from ldp_beam.transforms.count_once import SHARDS, CountOnce, Rows, ShardReader, by_shard, shard_bounds, shard_rows
from ldp_beam.transforms.window_parts import add_parts
from ldp_beam.transforms.window_timers import WindowTimers


class Bag(list):
    """The state of a bag."""

    add = list.append
    read = list.copy


class Cell:
    """The state of a value."""

    value = None

    def read(self):
        return self.value

    def write(self, value):
        self.value = value

    def clear(self):
        self.value = None


class Timer:
    """A timer that notes whether it is set."""

    at = None

    def set(self, at):
        self.at = at

    def clear(self):
        self.at = None


class Steps:
    """Plays an engine to one key of `CountOnce`."""

    def __init__(self, collection, windows, early=None):
        self.step = CountOnce(collection, WindowTimers(windows, 4, early))
        self.states = {"seen": Bag(), "kept": Bag(), "state": Cell()}
        self.timers = {name: Timer() for name in ("on_time", "close", "soon")}
        self.told = Cell()

    def add(self, rows):
        self.step.process(((0, 3), rows), **self.states, **self.timers)

    def fire(self, name):
        timers = {"end": ("soon",), "tell": (), "close": ("on_time", "soon")}[name]
        given_ = {one: self.timers[one] for one in timers}
        return list(getattr(self.step, name)(key=(0, 3), **self.states, told=self.told, **given_))


def collection_of(mechanism="pckv-grr", keys=5):
    text = (
        f'name="x"\nmechanism="{mechanism}"\nepsilon=2\npadding=1\nreport_ids=true\n'
        f"[keys]\ncount={keys}\n[values]\nrange=[-1,1]\n"
    )
    return Collection.of(Definition.from_text(text))


COLLECTION = collection_of()
FIXED = Windows(size=10, slide=10)


def batch_of(reports):
    """A batch of (id, key) with a sign each, ids being small numbers that lie in all shards."""
    columns = [
        pa.array([key for _, key in reports], pa.int32()),
        pa.array([1] * len(reports), pa.int8()),
        pa.array([bytes([one * 37 % 256]) * 16 for one, _ in reports], pa.binary(16)),
    ]
    return pa.RecordBatch.from_arrays(columns, schema=COLLECTION.report_schema())


def rows_of(reports, time=0, **more):
    batch = batch_of(reports)
    columns = {name: _raw(batch.column(name)) for name in batch.schema.names}
    return Rows(time=time, n=len(reports), columns=columns, **more)


def _raw(column):
    return bytes(column.buffers()[1])[: len(column) * (column.type.bit_width // 8)]


def counted(parts):
    """What parts add up to: (reports, cells, slices, repeated)."""
    whole = add_parts(parts)
    cells = {} if whole.counts is None else {name: one.tolist() for name, one in whole.counts.cells.items()}
    return (0 if whole.counts is None else whole.counts.n), cells, whole.slices, whole.repeated


def expected(pieces):
    """The same from the definition: of each id the report whose columns, then slice, come first."""
    best = {}
    for time, reports in pieces:
        for one, key in reports:
            best[one] = min(best.get(one, (key, time)), (key, time))
    mechanism = COLLECTION.mechanism
    batch = batch_of([(one, key) for one, (key, _) in best.items()])
    counts = mechanism.count(batch_to_reports(batch, mechanism.layout()))
    slices = Counter(time for _, time in best.values())
    total = sum(len(reports) for _, reports in pieces)
    return len(best), {name: one.tolist() for name, one in counts.cells.items()}, dict(slices), total - len(best)


REPORTS = st.lists(st.tuples(st.integers(0, 6), st.integers(0, 4)), min_size=1, max_size=6)
PIECES = st.lists(st.tuples(st.sampled_from([0, 5]), REPORTS), min_size=1, max_size=8)


@given(PIECES, st.lists(st.sampled_from(["tell", "end", None]), min_size=8, max_size=8), st.booleans(), st.booleans())
@settings(max_examples=150, deadline=None)
def test_what_is_told_adds_up_to_each_id_once(pieces, fires, small, when_told):
    """Whenever a shard is told of, and however its state was put together before."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(count_once, "_PIECES", 2 if small else 64)
        patch.setattr(count_once, "_SMALL_COUNTS", 0 if when_told else 1 << 15)
        steps, told = Steps(COLLECTION, Windows(size=10, slide=10, lateness=60), early=1), []
        for i, ((time, reports), fire) in enumerate(zip(pieces, fires, strict=False)):
            steps.add(rows_of(reports, time, met=i))
            if fire:
                told += [part for _, part in steps.fire(fire)]
                assert counted(told) == expected(pieces[: i + 1])
        told += [part for _, part in steps.fire("close")]
    assert counted(told) == expected(pieces)
    assert add_parts(told).met == len(pieces) - 1
    assert (steps.states["seen"], steps.states["kept"], steps.states["state"].read()) == ([], [], None)
    assert steps.told.read() is None


def test_one_seeded_or_memoised_piece_makes_the_whole_so():
    steps = Steps(COLLECTION, FIXED)
    steps.add(rows_of([(1, 1)], private=False))
    steps.add(rows_of([(2, 1)], memoised=True))
    ((start, part),) = steps.fire("close")
    assert (start, part.private, part.memoised) == (0, False, True)


def test_reports_are_read_back_only_where_an_id_comes_again():
    class Unread(Bag):
        def read(self):
            raise AssertionError("reports were read")

    reader, seen, kept = ShardReader(COLLECTION.mechanism, COLLECTION.report_schema()), Bag(), Unread()
    for one in range(3):
        seen.add(reader.seen(rows_of([(one, 1)])))
    assert reader.total(seen, kept).counts.n == 3
    seen.add(reader.seen(rows_of([(2, 1)])))
    with pytest.raises(AssertionError, match="were read"):
        reader.total(seen, kept)


def test_deliveries_that_come_again_and_again_do_not_fill_the_state():
    steps = Steps(COLLECTION, FIXED)
    for _ in range(1000):
        steps.add(rows_of([(one, one % 5) for one in range(7)]))
    assert sum(rows.n for rows in steps.states["kept"]) <= 7 * (3 * count_once._PIECES)
    ((_, part),) = steps.fire("close")
    assert (part.counts.n, part.repeated) == (7, 7 * 999)


def test_large_pieces_without_repetitions_stay_as_they_are(monkeypatch):
    monkeypatch.setattr(count_once, "_PIECES", 2)
    monkeypatch.setattr(count_once, "_LARGE_PIECE", 2)
    steps, pieces = Steps(COLLECTION, FIXED), [rows_of([(2 * i, 1), (2 * i + 1, 1)]) for i in range(10)]
    for piece in pieces:
        steps.add(piece)
    assert steps.states["kept"] == pieces
    assert steps.states["state"].read().looked == 6  # at 2 pieces and at 6, and next at 14


def test_timers_are_set_once_and_late_reports_wait():
    steps = Steps(COLLECTION, Windows(size=10, slide=10, lateness=60))
    steps.add(rows_of([(1, 1)]))
    assert (steps.timers["on_time"].at.micros, steps.timers["close"].at.micros) == (10_004_000, 70_004_000)
    assert steps.timers["soon"].at is None
    assert [part.counts.n for _, part in steps.fire("end")] == [1]
    steps.add(rows_of([(2, 1)]))
    assert steps.timers["soon"].at is not None
    assert [part.counts.n for _, part in steps.fire("tell")] == [1]
    assert steps.fire("tell") == steps.fire("close") == []  # nothing new


@given(st.lists(REPORTS, min_size=1, max_size=4))
def test_shards_hold_every_report_in_its_place(batches):
    sorted_ = [by_shard(batch_of(reports)) for reports in batches]
    pieces = list(shard_rows(sorted_, map(shard_bounds, sorted_), Rows(time=7, n=0, columns={}, met=2)))
    found = []
    for shard, rows in pieces:
        batch = rows.batch(COLLECTION.report_schema())
        assert set(id_bytes(batch)[:, 0] // (256 // SHARDS)) == {shard}
        assert (rows.time, rows.met, rows.n) == (7, 2, batch.num_rows)
        found += batch.to_pylist()
    given_ = [row for reports in batches for row in batch_of(reports).to_pylist()]
    order = lambda row: (row[REPORT_ID], row["key"])  # noqa: E731
    assert sorted(found, key=order) == sorted(given_, key=order)


def test_what_a_batch_says_of_itself_stays_with_it():
    batch = batch_of([(1, 1), (0, 2)]).replace_schema_metadata({"a": "b"})
    assert by_shard(batch).schema.metadata == {b"a": b"b"}
    part = batch.slice(1)
    assert by_shard(part).to_pylist() == part.to_pylist()


@pytest.mark.parametrize("mechanism", ["pckv-grr", "pckv-ue"])
def test_ids_that_begin_alike_are_different_ids(mechanism):
    collection = collection_of(mechanism)
    schema, start = collection.report_schema(), b"12345678"
    plain = {field.name: bytes(field.type.bit_width // 8) for field in schema}
    columns = {name: one * 3 for name, one in plain.items()}
    columns[REPORT_ID] = start + b"aaaaaaaa" + start + b"bbbbbbbb" + start + b"aaaaaaaa"
    if "sign" in columns:
        columns["sign"] = b"\x01" * 3
    reader, seen, kept = ShardReader(collection.mechanism, schema), Bag(), Bag()
    rows = Rows(time=0, n=3, columns=columns)
    seen.add(reader.seen(rows))
    kept.add(rows)
    total = reader.total(seen, kept)
    assert (total.counts.n, total.repeated) == (2, 1)


def test_distinct_reports_agree_with_what_a_dictionary_finds():
    random = np.random.default_rng(5)
    reports = [
        (int(one), int(key)) for one, key in zip(random.integers(0, 40, 500), random.integers(0, 3, 500), strict=True)
    ]
    kept, left_out = distinct_reports(COLLECTION.mechanism, batch_of(reports))
    best = {}
    for one, key in reports:
        best[one] = min(best.get(one, key), key)
    wanted = sorted((bytes([one * 37 % 256]) * 16, key) for one, key in best.items())
    assert [(row[REPORT_ID], row["key"]) for row in kept.to_pylist()] == wanted
    assert left_out == 500 - len(best)
