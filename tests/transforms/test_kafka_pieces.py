"""What the transport of a stream consists of, without a broker: clock, ranges, notes of offsets, results."""

import json
import time
from datetime import UTC, datetime

import pyarrow as pa
import pytest
from apache_beam.io.restriction_trackers import OffsetRange
from apache_beam.utils.timestamp import Timestamp
from ldp_beam.errors import InputError
from ldp_beam.schemas.kafka_config import KafkaAddress, KafkaConfig
from ldp_beam.transforms import count_windows, kafka_client, kafka_offsets, slice_records
from ldp_beam.transforms.event_clock import EventClock, EventClockProvider, Pace, SharedClock
from ldp_beam.transforms.gate import milliseconds
from ldp_beam.transforms.kafka_offsets import _Keep, next_partitions
from ldp_beam.transforms.kafka_results import result_messages
from ldp_beam.transforms.kafka_source import PartitionTracker, ReadProgress
from ldp_beam.transforms.watch_folder import FolderTracker, Seen

ADDRESS = KafkaAddress("localhost:1", "t")

# -- how event time passes ------------------------------------------------------------------------------------


def clock():
    return EventClock(EventClockProvider().initial_estimator_state(None, None))


def after(seconds):
    """The watermark that says that everything before a second is there."""
    return Timestamp(int(seconds) + 1)


def test_a_clock_follows_what_arrives_and_never_goes_back():
    one, pace = clock(), Pace(slice_seconds=10, arrival_delay=None, disorder=5)
    assert one.current_watermark() is None  # holds everything back
    one.caught_up(pace)  # a replay does not follow the clock on the wall
    assert one.current_watermark() is None
    for latest, expected in ((100, 95), (90, 95), (None, 95), (120, 115)):
        one.arrived(latest, pace)
        assert one.current_watermark() == after(expected)


def test_a_partition_that_was_read_to_its_end_follows_the_clock_by_whole_slices():
    one, pace = clock(), Pace(slice_seconds=3600, arrival_delay=5)
    one.caught_up(pace)
    assert one.current_watermark() == after((time.time() - 5) // 3600 * 3600)
    one.arrived(time.time() - 7200, pace)
    assert one.current_watermark() >= after((time.time() - 5) // 3600 * 3600)


@pytest.mark.parametrize(
    "delay",
    [
        slice_records._GATE_DELAY, slice_records._PERTURB_DELAY,
        count_windows._GATE_DELAY, count_windows._ONCE_DELAY, count_windows._PANE_DELAY,
    ],
)  # fmt: skip
def test_no_step_of_a_window_waits_for_the_slice_after_the_next(delay):
    """The first slice beyond a window's end says that it is over; a time within a slice says it of nothing."""
    one, pace = clock(), Pace(slice_seconds=10, arrival_delay=None)
    one.arrived(119.995, pace)
    assert one.current_watermark() < milliseconds(120, delay)
    one.arrived(120, pace)
    assert one.current_watermark() >= milliseconds(120, delay)


@pytest.mark.parametrize(("now", "complete"), [(3604, 0), (3605, 3600), (7204.9, 3600), (7205, 7200)])
def test_a_slice_is_complete_when_it_is_over_and_its_delay_is_too(now, complete):
    assert Pace(slice_seconds=3600, arrival_delay=5).complete_until(now) == complete


def test_records_have_times_of_their_own():
    pace = Pace(slice_seconds=0, arrival_delay=2)
    assert pace.complete_until(100.5) == 98.5
    assert pace.slice_of(98.5) == 98


def test_a_clock_survives_a_checkpoint():
    one = clock()
    one.arrived(50, Pace(slice_seconds=10))
    state = EventClockProvider().estimator_state_coder()
    again = EventClock(state.decode(state.encode(one.get_estimator_state())))
    assert again.current_watermark() == after(50)
    assert abs(again.quiet_seconds() - one.quiet_seconds()) < 0.1


def test_partitions_of_one_process_are_as_far_as_the_last_of_them():
    shared, pace = SharedClock([0, 1]), Pace(slice_seconds=10, arrival_delay=None)
    one, two = clock(), clock()
    one.share(shared, 0)
    one.arrived(100, pace)
    assert one.current_watermark() is None  # of the other nothing is known yet
    two.share(shared, 1)
    two.arrived(50, pace)
    assert one.current_watermark() is None  # its turn is not over: what it put out may be on its way
    two.share(shared, 1)
    assert one.current_watermark() == after(50)
    two.arrived(200, pace)
    two.share(shared, 1)
    assert (one.current_watermark(), two.current_watermark()) == (after(100), None)
    one.share(shared, 0)
    assert two.current_watermark() == after(100)
    shared.end(0)
    assert two.current_watermark() == after(100)  # for a while


# -- what may be interrupted, and is never divided -------------------------------------------------------------


def test_a_partition_can_be_interrupted_but_not_divided():
    tracker = PartitionTracker(OffsetRange(5, (1 << 63) - 1))
    assert not tracker.is_bounded()
    assert tracker.try_claim(5)
    assert tracker.try_claim(8)  # offsets have gaps
    assert tracker.try_split(0.5) is None
    assert tracker.try_split(0) == (OffsetRange(5, 9), OffsetRange(9, (1 << 63) - 1))
    assert not tracker.try_claim(9)
    tracker.check_done()
    assert tracker.current_progress().fraction_completed == tracker.current_progress().fraction_completed  # no NaN


def test_a_partition_ends_where_it_was_told_to():
    tracker = PartitionTracker(OffsetRange(0, 3))
    assert tracker.is_bounded()
    assert tracker.try_claim(2)
    assert not tracker.try_claim(3)
    tracker.check_done()


def test_a_folder_remembers_what_was_read():
    tracker = FolderTracker(Seen(frozenset({"a"})))
    assert tracker.try_claim("b")
    assert tracker.try_split(0.5) is None
    done, rest = tracker.try_split(0)
    assert done.over
    assert rest == Seen(frozenset({"a", "b"}))
    assert not tracker.try_claim("c")
    tracker.check_done()
    fresh = FolderTracker(rest)
    with pytest.raises(ValueError, match="before its end"):
        fresh.check_done()
    assert not fresh.try_claim(None)
    fresh.check_done()


# -- notes of offsets --------------------------------------------------------------------------------------------


@pytest.fixture
def broker(monkeypatch):
    """A broker of one partition that holds the offsets from `low` on."""
    limits = {"low": 0}

    class Consumer:
        def close(self):
            """Nothing is open."""

    monkeypatch.setattr(kafka_offsets, "make_consumer", lambda *_: Consumer())
    monkeypatch.setattr(kafka_offsets, "topic_partitions", lambda *_: [0])
    monkeypatch.setattr(kafka_offsets, "partition_limits", lambda *_: (limits["low"], 1000))
    return limits


def begin(folder, done=()):
    (partition,) = next_partitions(ADDRESS, KafkaConfig(), str(folder), done=done)
    return partition.start


def keep(folder, *turns):
    notes = _Keep(str(folder), 10)
    notes.setup()
    for first, position in turns:
        notes.process(ReadProgress(0, tuple(first), position))


def test_the_next_run_begins_where_a_window_is_not_final(broker, tmp_path):
    assert begin(tmp_path) == 0
    keep(tmp_path, ([(0.0, 0), (10.0, 4)], 6), ([(10.0, 6), (20.0, 7)], 9), ([(5.0, 9)], 10))
    assert begin(tmp_path) == 0
    assert begin(tmp_path, done=[0]) == 4
    assert begin(tmp_path, done=[0, 10]) == 7
    assert begin(tmp_path, done=[0, 10, 20]) == 10  # everything is published: go on behind what was read
    keep(tmp_path, ([(20.0, 3)], 4))  # a bundle that runs again never raises a first offset, nor lowers a position
    assert begin(tmp_path, done=[0, 10, 20]) == 10


def test_deleted_messages_that_nobody_needs_are_no_matter(broker, tmp_path):
    begin(tmp_path)
    keep(tmp_path, ([(0.0, 0), (10.0, 4)], 6))
    broker["low"] = 4
    assert begin(tmp_path, done=[0]) == 4


@pytest.mark.parametrize(
    ("low", "done", "part"), [(5, [0], "1970-01-01T00:00:10Z"), (7, [0, 10], "what comes next"), (1, [], "00:00:00Z")]
)
def test_deleted_messages_that_a_window_needs_stop_the_run(broker, tmp_path, low, done, part):
    begin(tmp_path)
    keep(tmp_path, ([(0.0, 0), (10.0, 4)], 6))
    broker["low"] = low
    with pytest.raises(InputError, match="has deleted the messages from offset") as refused:
        begin(tmp_path, done=done)
    assert part in str(refused.value)


def test_messages_that_were_deleted_before_anything_was_read_stop_the_run(broker, tmp_path):
    begin(tmp_path)
    broker["low"] = 3
    with pytest.raises(InputError, match="from offset 0 to 2"):
        begin(tmp_path)


# -- results ---------------------------------------------------------------------------------------------------


def estimates(keys, pane=1, is_final=True):
    moment = [datetime(2026, 11, 30, hour, tzinfo=UTC) for hour in (13, 14)]
    columns = {
        "key": [str(k) for k in range(keys)],
        "frequency": [None, *[0.5] * (keys - 1)],
        "window_start": pa.array([moment[0]] * keys, pa.timestamp("us", tz="UTC")),
        "window_end": pa.array([moment[1]] * keys, pa.timestamp("us", tz="UTC")),
        "pane": pa.array([pane] * keys, pa.int32()),
        "is_final": [is_final] * keys,
    }
    made = pa.RecordBatch.from_pydict(columns)
    return made.replace_schema_metadata({"ldp_beam.collection": "fruit", "ldp_beam.fingerprint": "f" * 64})


def test_a_result_is_one_object_with_its_window_as_the_key():
    ((key, value, headers),) = result_messages(estimates(3), "json")
    assert key == b"2026-11-30T13:00:00Z/2026-11-30T14:00:00Z"
    told = json.loads(value)
    assert (told["pane"], told["is_final"], told["collection"]) == (1, True, "fruit")
    assert told["estimates"] == [{"key": "0", "frequency": None}] + [{"key": k, "frequency": 0.5} for k in ("1", "2")]
    assert dict(headers)["is_final"] == b"true"
    assert dict(headers)["window_start"] == b"2026-11-30T13:00:00Z"


@pytest.mark.parametrize(("format_", "parts"), [("json", 3), ("arrow", 2)])
def test_a_large_domain_takes_several_messages_with_keys_of_their_own(format_, parts):
    made = list(result_messages(estimates(2500), format_))
    assert [key.partition(b"#")[2] for key, _, _ in made] == [b"", b"2", b"3"][:parts]
    assert all(len(value) < 1_000_000 for _, value, _ in made)
    assert made == list(result_messages(estimates(2500), format_))  # sent again, it is the same
    if format_ == "arrow":
        rows = [pa.ipc.open_stream(value).read_all() for _, value, _ in made]
        assert pa.concat_tables(rows).column("key").to_pylist() == [str(k) for k in range(2500)]


def test_nothing_is_said_of_no_key():
    assert list(result_messages(estimates(1).slice(1), "json")) == []


# -- the package ------------------------------------------------------------------------------------------------


def test_the_package_is_named_where_it_is_absent(monkeypatch):
    real = kafka_client.importlib.import_module

    def absent(name, *rest):
        if name == "confluent_kafka":
            raise ImportError(name)
        return real(name, *rest)

    monkeypatch.setattr(kafka_client.importlib, "import_module", absent)
    with pytest.raises(InputError, match=r"pip install 'ldp-beam\[kafka\]'"):
        kafka_client.require_kafka()


@pytest.mark.parametrize("make", [kafka_client.make_consumer, kafka_client.make_producer])
def test_a_setting_that_librdkafka_does_not_know_is_refused_without_secrets(make):
    pytest.importorskip("confluent_kafka")
    config = KafkaConfig({"sasl.password": "geheim", "ssl.trust": "x"})
    with pytest.raises(InputError, match="No such configuration property") as refused:
        make(ADDRESS, config)
    assert "ssl.trust" in str(refused.value)
    assert "geheim" not in str(refused.value)


def test_a_value_that_librdkafka_repeats_is_not_passed_on():
    pytest.importorskip("confluent_kafka")
    with pytest.raises(InputError) as refused:
        kafka_client.make_consumer(ADDRESS, KafkaConfig({"security.protocol": "geheimnis"}))
    assert "security.protocol" in str(refused.value)
    assert "geheimnis" not in str(refused.value)


@pytest.mark.parametrize(
    ("settings", "said"),
    [
        ({"security.protocol": "SSL", "ssl.ca.location": "/absent/ca.pem"}, "ssl.ca.location failed"),
        ({"security.protocol": "SASL_SSL", "sasl.mechanisms": "PLAIN"}, "sasl.username and sasl.password must be set"),
    ],
)
def test_settings_of_tls_and_sasl_reach_librdkafka(settings, said):
    pytest.importorskip("confluent_kafka")
    with pytest.raises(InputError) as refused:
        kafka_client.make_producer(ADDRESS, KafkaConfig(settings))
    assert said in str(refused.value)
