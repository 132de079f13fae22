"""Streams on real engines: windows, panes, late data, and the agreement of engines, each in one small job."""

import functools
import json
import time
from pathlib import Path

import apache_beam as beam
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from apache_beam.io.restriction_trackers import OffsetRange, OffsetRestrictionTracker
from apache_beam.io.watermark_estimators import ManualWatermarkEstimator
from apache_beam.testing.test_stream import TestStream as PlayScript
from apache_beam.transforms.core import RestrictionProvider
from apache_beam.transforms.window import TimestampedValue
from apache_beam.utils.timestamp import Duration, Timestamp
from ldp_beam.errors import InputError
from ldp_beam.mechanisms import Secret
from ldp_beam.pipelines.ledger import Ledger
from ldp_beam.pipelines.running import Engine
from ldp_beam.pipelines.stream import StreamRun, stream
from ldp_beam.pipelines.stream_charging import LedgerCharge
from ldp_beam.pipelines.stream_metrics import UNAVAILABLE
from ldp_beam.schemas.event_windows import Windows
from ldp_beam.schemas.manifest import Randomness
from ldp_beam.schemas.reports import FileHeader
from ldp_beam.transforms.batches import ArrowBatchCoder
from ldp_beam.transforms.collection import Collection
from ldp_beam.transforms.count_windows import _CountPanes
from ldp_beam.transforms.memo import Memo
from ldp_beam.transforms.publish_panes import pane_folders
from ldp_beam.transforms.slice_records import Clients

pytestmark = pytest.mark.engine

PAIRS = pa.schema(
    [("user_id", pa.string()), ("key", pa.string()), ("value", pa.float64()), ("timestamp", pa.timestamp("us"))]
)
SECRET = Secret.from_seed(6)


@pytest.fixture
def collection(define):
    return Collection.load(define(mechanism="pckv-grr", epsilon=2))


class Script:
    """A source that plays batches and watermarks in order; a number is a watermark."""

    name = "a script"

    def __init__(self, *steps):
        self._steps = steps

    def read(self, pipeline, earlier):
        play = PlayScript(coder=ArrowBatchCoder()).advance_watermark_to(0)
        for step in self._steps:
            if isinstance(step, int):
                play = play.advance_watermark_to(step)
            else:
                time, batch = step
                play = play.add_elements([TimestampedValue(batch, time)])
        play = play.advance_watermark_to_infinity()
        return pipeline | play.with_output_types(pa.RecordBatch), None


class Given:
    """A bounded source, for engines that cannot play a script."""

    name = "batches"

    def __init__(self, *batches):
        self._batches = batches

    def read(self, pipeline, earlier):
        made = pipeline | beam.Create([TimestampedValue(batch, time) for time, batch in self._batches], reshuffle=False)
        stamped = made | "Stamp" >> beam.Map(lambda stamped: stamped)
        stamped.element_type = pa.RecordBatch
        return stamped, None


def records(*rows):
    """A batch of (user, key, time in seconds), at the time of its first row."""
    content = [
        {"user_id": user, "key": key, "value": 0.5, "timestamp": int(time * 1_000_000)} for user, key, time in rows
    ]
    return rows[0][2], pa.RecordBatch.from_pylist(content, schema=PAIRS)


def reports(collection, time, *keys):
    """A batch of reports of the slice at `time`."""
    columns = [pa.array(keys, pa.int32()), pa.array([1] * len(keys), pa.int8())]
    return time, pa.RecordBatch.from_arrays(columns, schema=collection.report_schema())


def run(collection, source, output, windows, engine="prism", clients=False, **more):
    sides = {}
    if clients:
        sides = {
            "clients": Clients(secret=SECRET, **more.pop("client", {})),
            "randomness": Randomness(source="seed", private=False, secret_id=SECRET.id),
        }
    job = StreamRun(
        collection=collection, source=source, windows=Windows(**windows), engine=Engine(name=engine), **sides, **more
    )
    return stream(job, output)


def told(output):
    """{start of a window: [(n, timing, is_final) of each pane]}."""
    found = {}
    for window in sorted(Path(output, "windows").iterdir()):
        panes = pane_folders(window)
        found[window.name[:16]] = [(one.window["n"], one.window["timing"], one.window["is_final"]) for one in panes]
    return found


def test_what_one_window_gets_while_it_is_slow_is_all_counted(collection, tmp_path, require_engine, monkeypatch):
    """An engine that divides a slow bundle between two elements of one key would run both halves at once."""
    require_engine("prism")
    process = _CountPanes.process

    @functools.wraps(process)
    def slow(*arguments, **more):
        time.sleep(0.5)
        return process(*arguments, **more)

    monkeypatch.setattr(_CountPanes, "process", slow)
    source = Given(*(reports(collection, second, 0, 1, 2) for second in range(10)))
    manifest = run(collection, source, tmp_path / "out", {"size": 10, "slide": 10})
    assert manifest["reports"] == {"counted_in_windows": 30, "repeated": 0, "rejected": {}}


def counts_of(pane):
    table = pq.read_table(pane.path / "counts.parquet")
    return np.array(table["count"].to_pylist())


def test_late_reports_restate_their_window_and_panes_are_not_added_up(collection, tmp_path, require_engine):
    """B25: key k at t = 1, 2; watermark 11; k at t = 3, which is late; then, after the window was closed, t = 4."""
    require_engine("prism")
    source = Script(
        reports(collection, 1, 0), reports(collection, 2, 0), 11, reports(collection, 3, 0), 75,
        reports(collection, 4, 0, 0),
    )  # fmt: skip
    manifest = run(collection, source, tmp_path / "out", {"size": 10, "slide": 10, "lateness": 60})
    (panes,) = told(tmp_path / "out").values()
    assert (panes[0], panes[-1]) == ((2, "on-time", False), (3, "final", True))
    assert {n for n, _, _ in panes} == {2, 3}  # never 5
    assert manifest["reports"] == {"counted_in_windows": 3, "repeated": 0, "rejected": {"too_late": 2}}
    kept = [pq.read_table(path) for path in sorted((tmp_path / "out" / "rejects").glob("too_late-*.parquet"))]
    assert [table.num_rows for table in kept] == [2]
    assert kept[0].schema.metadata[b"set_aside.time"] == b"4"
    first, *_, last = pane_folders(next((tmp_path / "out" / "windows").iterdir()))
    assert (counts_of(last) - counts_of(first)).min() == 0  # the reports of the first pane are in the last
    assert manifest["stream"]["metrics"]["late"] in (2, UNAVAILABLE)


def test_without_lateness_a_late_report_is_counted_and_kept(collection, tmp_path, require_engine):
    require_engine("prism")
    source = Script(reports(collection, 1, 0), reports(collection, 2, 0), 11, reports(collection, 3, 0))
    manifest = run(collection, source, tmp_path / "out", {"size": 10, "slide": 10})
    assert list(told(tmp_path / "out").values()) == [[(2, "final", True)]]
    assert manifest["reports"]["rejected"] == {"too_late": 1}


def test_every_window_is_one_complete_result_with_its_bounds(collection, tmp_path, require_engine):
    """B28: key a at t = 1, 5, 12 in windows of 10 s; and the same stream once more changes nothing."""
    require_engine("prism")
    source = Script(*(reports(collection, time, 0) for time in (1, 5, 12)))
    for _ in range(2):
        manifest = run(collection, source, tmp_path / "out", {"size": 10, "slide": 10})
        assert told(tmp_path / "out") == {
            "19700101T000000Z": [(2, "final", True)],
            "19700101T000010Z": [(1, "final", True)],
        }
        files = {file: file.read_bytes() for file in (tmp_path / "out" / "windows").rglob("*.*")}
        changed = [file.stat().st_mtime_ns for file in files]
    assert changed == [file.stat().st_mtime_ns for file in (tmp_path / "out" / "windows").rglob("*.*")]
    tables = [pq.read_table(tmp_path / "out" / file["name"]) for file in manifest["files"]]
    assert [str(table["window_start"][0].as_py()) for table in tables] == [
        "1970-01-01 00:00:00+00:00",
        "1970-01-01 00:00:10+00:00",
    ]
    assert [table.num_rows for table in tables] == [3, 3]


def test_people_of_one_window_are_those_of_that_time(collection, tmp_path, require_engine):
    """B27: four users at t = 0, 2, 4, 6 with one key; sessions of 5 s would make one window of them."""
    require_engine("prism")
    source = Script(records(*((f"user-{t}", "apple", t) for t in (0, 2, 4, 6))))
    run(collection, source, tmp_path / "out", {"size": 4, "slide": 4}, clients=True)
    assert [panes[-1][0] for panes in told(tmp_path / "out").values()] == [2, 2]


def test_a_repeated_delivery_is_known_by_its_id(define, tmp_path, require_engine):
    require_engine("prism")
    collection = Collection.load(define(mechanism="pckv-grr", more="report_ids = true"))

    def batch(time, *ids):
        columns = [pa.array([i % 3 for i in ids], pa.int32()), pa.array([1] * len(ids), pa.int8())]
        columns.append(pa.array([bytes([i]) * 16 for i in ids], pa.binary(16)))
        return time, pa.RecordBatch.from_arrays(columns, schema=collection.report_schema())

    source = Script(batch(1, 1, 2), batch(2, 2, 3), 11, batch(1, 1, 2), batch(3, 4))
    manifest = run(collection, source, tmp_path / "out", {"size": 10, "slide": 10, "lateness": 60})
    (panes,) = told(tmp_path / "out").values()
    assert (panes[0][0], panes[-1][0]) == (3, 4)
    assert manifest["reports"]["repeated"] == 3


def test_a_user_reports_once_a_slice_and_a_record_that_is_late_never(collection, tmp_path, require_engine):
    """Sliding windows: reports of a slice are counted in two windows and charged once; late records cost nothing."""
    require_engine("prism")
    ledger = tmp_path / "ledger.sqlite"
    charge = LedgerCharge(
        path=str(ledger), collection="fruit", fingerprint=collection.fingerprint, mechanism="pckv-grr",
        epsilon=collection.mechanism.epsilon, secret_id=SECRET.id,
    )  # fmt: skip
    source = Script(
        records(("ann", "apple", 1), ("bob", "apple", 2), ("ann", "banana", 9), ("cid", "apple", 12)), 11,
        records(("bob", "cherry", 3), ("dot", "apple", 4)),
    )  # fmt: skip
    manifest = run(
        collection, source, tmp_path / "out", {"size": 20, "slide": 10, "lateness": 60}, clients=True,
        client={"charge": charge},
    )  # fmt: skip
    assert [panes[-1] for panes in told(tmp_path / "out").values()] == [
        (2, "final", True), (3, "final", True), (1, "final", True),
    ]  # fmt: skip
    assert {key: manifest["records"][key] for key in ("rows_read", "users", "late_records")} == {
        "rows_read": 6, "users": 3, "late_records": 2,
    }  # fmt: skip
    entries = Ledger(ledger).entries()
    assert [(entry.state, entry.spend.period, entry.reports) for entry in entries] == [
        ("charged", "1970-01-01T00:00:00Z", 2),
        ("charged", "1970-01-01T00:00:10Z", 1),
    ]
    assert Ledger(ledger).spent() == 2 * collection.mechanism.epsilon
    middle = json.loads((tmp_path / "out" / manifest["files"][1]["name"]).with_name("manifest.json").read_text())
    assert middle["epsilon"]["spent_in_window_at_most"] == "4"
    assert middle["epsilon"]["slices"] == {"1970-01-01T00:00:00Z": 2, "1970-01-01T00:00:10Z": 1}


def test_a_stream_ends_where_the_lifetime_budget_does(collection, tmp_path, require_engine):
    require_engine("prism")
    ledger = tmp_path / "ledger.sqlite"
    Ledger(ledger, create=True).set_budget("3")
    charge = LedgerCharge(
        path=str(ledger), collection="fruit", fingerprint=collection.fingerprint, mechanism="pckv-grr",
        epsilon=collection.mechanism.epsilon, secret_id=SECRET.id,
    )  # fmt: skip
    source = Script(records(("ann", "apple", 1)), 15, records(("ann", "apple", 16)), 30)
    with pytest.raises(InputError, match="refuses this run: 2 of the lifetime budget 3"):
        run(collection, source, tmp_path / "out", {"size": 10, "slide": 10}, clients=True, client={"charge": charge})
    assert [panes[-1][0] for panes in told(tmp_path / "out").values()] == [1]
    assert json.loads((tmp_path / "out" / "manifest.json").read_text())["stream"]["state"] == "failed"


def test_a_memoised_user_repeats_her_report_and_spends_nothing_more(collection, tmp_path, require_engine):
    require_engine("prism")
    ledger, memo = tmp_path / "ledger.sqlite", Memo(path=str(tmp_path / "memo.sqlite"), cap=2)
    memo.open(fingerprint=collection.fingerprint, secret_id=SECRET.id)
    charge = LedgerCharge(
        path=str(ledger), collection="fruit", fingerprint=collection.fingerprint, mechanism="pckv-grr",
        epsilon=collection.mechanism.epsilon, secret_id=SECRET.id, memo=memo,
    )  # fmt: skip
    people = [f"user-{i}" for i in range(30)]

    def of(slice_, key):
        return records(*((user, key, slice_ + 1) for user in people))

    source = Script(of(0, "apple"), 11, of(10, "apple"), 21, of(20, "banana"), 31)
    run(
        collection, source, tmp_path / "out", {"size": 10, "slide": 10}, clients=True,
        client={"charge": charge, "memo": memo},
    )  # fmt: skip
    panes = [pane_folders(window)[-1] for window in sorted((tmp_path / "out" / "windows").iterdir())]
    digests = [pane.window["counts_digest"] for pane in panes]
    assert digests[0] == digests[1] != digests[2]
    assert [entry.state for entry in Ledger(ledger).entries()] == ["charged", "repeated", "charged"]
    header = FileHeader.read(pq.read_schema(panes[0].path / "counts.parquet").metadata, "x")
    assert header.memoised


def test_rows_read_rejected_and_reports_sent_are_told_exactly(collection, tmp_path, require_engine):
    """B34: of 10 rows 3 name no user."""
    require_engine("prism")
    rows = [(None if t in (2, 5, 8) else f"user-{t}", "apple", t) for t in range(10)]
    manifest = run(collection, Given(records(*rows)), tmp_path / "out", {"size": 10, "slide": 10}, clients=True)
    read = manifest["records"]
    assert (read["rows_read"], read["rejected"], read["users"]) == (10, {"rows_without_user": 3}, 7)
    assert manifest["files"][0]["n"] == 7
    metrics = manifest["stream"]["metrics"]
    for name, value in {"rows_read": 10, "rows_rejected": 3, "reports_sent": 7, "reports_counted": 7}.items():
        assert metrics[name] in (value, UNAVAILABLE)


# -- the same on every engine ---------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def on_engines():
    """Results by engine, so that the last of the engines is compared with the first."""
    return {}


@pytest.mark.parametrize("engine", ["prism", "flink"], indirect=True)
def test_gaps_rows_without_a_user_and_what_engines_agree_on(collection, tmp_path, engine, on_engines):
    """B30: t = 1 to 10, windows of 5 s every 10 s: 5 to 9 are in none. B34: rows without a user. B23: near a bound."""
    rows = [(None if t in (2, 7, 9) else f"user-{t}", "apple", t) for t in range(1, 11)]
    rows += [("before", "apple", 4.999), ("at", "apple", 5.0), ("before-too", "apple", 9.999999)]
    manifest = run(
        collection, Given(records(*rows)), tmp_path / "out", {"size": 5, "slide": 10}, engine=engine, clients=True
    )
    assert told(tmp_path / "out") == {
        "19700101T000000Z": [(4, "final", True)],  # 1, 3, 4, 4.999
        "19700101T000010Z": [(1, "final", True)],  # 10
    }
    read = manifest["records"]
    assert (read["rows_read"], read["rows_without_user"], read["users"]) == (13, 3, 5)
    asides = json.loads((tmp_path / "out" / "clients" / "in_no_window.json").read_text())
    assert asides["rows"] == 5  # 5, 5.0, 6, 8, 9.999999: nobody asked them, and nobody pays
    metrics = manifest["stream"]["metrics"]
    for name, value in {"rows_read": 13, "rows_rejected": 3, "reports_sent": 5, "reports_read": 5}.items():
        assert metrics[name] in (value, UNAVAILABLE)
    on_engines[engine] = [file["counts_digest"] for file in manifest["files"]]
    assert len(set(map(tuple, on_engines.values()))) == 1


class Turns(OffsetRestrictionTracker):
    def try_split(self, fraction_of_remainder):
        return super().try_split(0) if fraction_of_remainder == 0 else None


class AllSteps(RestrictionProvider):
    def initial_restriction(self, element):
        return OffsetRange(0, len(element))

    def create_tracker(self, restriction):
        return Turns(restriction)

    def restriction_size(self, element, restriction):
        return max(1.0, float(restriction.size()))


STEPS = beam.DoFn.RestrictionParam(AllSteps())
WATERMARK = beam.DoFn.WatermarkEstimatorParam(ManualWatermarkEstimator.default_provider())


class PlayOne(beam.DoFn):
    """Plays one step of a script at a time, with a pause in which the engine can take notice."""

    @beam.DoFn.unbounded_per_element()
    def process(self, element, tracker=STEPS, watermark=WATERMARK):
        number = tracker.current_restriction().start
        if number >= len(element) or not tracker.try_claim(number):
            return
        step = element[number]
        if isinstance(step, int):
            watermark.set_watermark(Timestamp(step))
        else:
            time, batch = step
            yield TimestampedValue(batch, Timestamp(time))
        if number + 1 < len(element):
            tracker.defer_remainder(Duration(2))


class Played(Script):
    """The same for engines that know no `TestStream`: an unbounded source."""

    def read(self, pipeline, earlier):
        made = pipeline | beam.Create([(0, *self._steps)], reshuffle=False)
        return made | "Play" >> beam.ParDo(PlayOne()).with_output_types(pa.RecordBatch), None


@pytest.mark.parametrize("engine", ["prism", "flink"], indirect=True)
def test_late_reports_on_every_engine(collection, tmp_path, engine):
    """B25 with an unbounded source: what is late restates its window, what is too late is counted and kept."""
    source = Played(
        reports(collection, 1, 0), reports(collection, 2, 0), 11, reports(collection, 3, 0), 75,
        reports(collection, 4, 0, 0), reports(collection, 76, 1),
    )  # fmt: skip
    manifest = run(collection, source, tmp_path / "out", {"size": 10, "slide": 10, "lateness": 60}, engine=engine)
    first, last = told(tmp_path / "out").values()
    assert (first[0], first[-1]) == ((2, "on-time", False), (3, "final", True))
    assert {n for n, _, _ in first} == {2, 3}
    assert last[-1] == (1, "final", True)
    assert manifest["stream"]["state"] == "ended"
    assert manifest["reports"]["rejected"] == {"too_late": 2}
    assert manifest["stream"]["metrics"]["late"] in (2, UNAVAILABLE)
