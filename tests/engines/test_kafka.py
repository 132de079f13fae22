"""Streams over a real broker: nothing lost, nothing twice, whatever arrives and whoever stops in between."""

import json
import signal
import time

import numpy as np
import pyarrow as pa
import pytest
from ldp_beam.engines import free_port, kafka_answers
from ldp_beam.engines.processes import group_is_alive
from ldp_beam.schemas.event_time import time_text
from ldp_beam.schemas.kafka_config import KafkaAddress
from ldp_beam.schemas.messages import arrow_message
from ldp_beam.transforms.kafka_client import read_all

from tests.engines.stream_topics import START, WINDOW, Clients, arguments, content, counted, eventually, running

pytestmark = pytest.mark.engine


@pytest.fixture
def definition(define):
    return define(mechanism="pckv-grr", epsilon=2)


# -- a stream that ends ------------------------------------------------------------------------------------------


@pytest.mark.parametrize("engine", ["prism", "flink"], indirect=True)
def test_every_report_is_counted_once_and_what_is_none_is_told_and_kept(engine, definition, topic, run_json, tmp_path):
    clients = Clients(definition, topic)
    rng = np.random.default_rng(5)
    for number in rng.permutation(120).tolist():  # far out of order
        clients.report(START + WINDOW * (number % 6), 50 + number, partition=number % 2, packed=number % 3 == 0)
    for value in (b"garbage", b"", b"\xff" * 50):
        clients.sender.send(value, partition=1)
    wrong = clients.collection.header("reports", window_start=time_text(START + 3), window_seconds=WINDOW)
    some = pa.RecordBatch.from_arrays([[0], [1]], schema=clients.collection.report_schema())
    clients.sender.send(arrow_message(some, wrong), partition=0)
    sent = clients.done()
    manifest = run_json(*arguments(definition, topic, tmp_path / "out", "--drain", "--engine", engine))
    assert counted(tmp_path / "out") == sent
    assert manifest["reports"]["rejected"] == {"another_slice": 1, "no_reports": 1, "unreadable": 2}
    kept = [path.read_bytes() for path in (tmp_path / "out" / "rejects").glob("unreadable-*.bin")]
    assert sorted(kept) == [b"garbage", b"\xff" * 50]


def test_without_lateness_what_comes_out_of_order_is_set_aside_and_nothing_is_lost(
    require_engine, definition, topic, run_json, tmp_path
):
    require_engine("prism")
    clients = Clients(definition, topic)
    for number in (0, 3, 1, 5, 2, 4):
        clients.report(START + WINDOW * number, 100, partition=number % 2)
        clients.sender.flush()
    manifest = run_json(*arguments(definition, topic, tmp_path / "out", "--drain", lateness="0s"))
    late = manifest["reports"]["rejected"].get("too_late", 0)
    assert sum(counted(tmp_path / "out").values()) + late == 600


def test_deliveries_that_are_repeated_are_known_by_their_ids(require_engine, define, topic, run_json, tmp_path):
    require_engine("prism")
    definition = define(mechanism="pckv-grr", more="report_ids = true")
    clients = Clients(definition, topic)
    for number in range(12):
        clients.report(START + WINDOW * (number % 3), 40, partition=number % 2, times=1 + number % 3)
    sent = clients.done()
    manifest = run_json(*arguments(definition, topic, tmp_path / "out", "--drain"))
    assert counted(tmp_path / "out") == sent
    assert manifest["reports"]["repeated"] == 40 * 12


def test_results_go_to_a_topic_too(require_engine, definition, topic, run_json, tmp_path):
    require_engine("prism")
    clients = Clients(definition, topic)
    for number in range(3):
        clients.report(START + WINDOW * number, 60)
    clients.done()
    results = KafkaAddress(topic.servers, topic.topic + "-results")
    for _ in range(2):  # read again, the same is told again
        run_json(*arguments(definition, topic, tmp_path / "out", "--drain", "--output", results))
    told = [json.loads(value) for value in read_all(results)]
    final = {one["window_start"]: one for one in told if one["is_final"]}
    assert sorted(final) == [time_text(START + WINDOW * number) for number in range(3)]
    assert all(len(one["estimates"]) == 3 for one in told)
    assert {row["n"] for one in final.values() for row in one["estimates"]} == {60}


def test_from_made_up_people_to_results_on_one_machine(require_engine, topic, run_json, tmp_path):
    """`simulate --to`, `stream --records`; and `perturb --output kafka://…`, `stream`: the same window, the same n."""
    require_engine("prism")
    definition = tmp_path / "made.toml"
    made = run_json(
        *("simulate", "--population", "gauss", "--users", "2000", "--keys", "5", "--pairs-per-user", "2"),
        *("--to", topic, "--start", "2026-11-30T12:00:00Z", "--span", "2h", "--collection-to", definition),
    )
    assert made["users"] == 2000
    live = arguments(definition, topic, tmp_path / "live", "--drain", "--records", "--seed", "3", window="1h")
    manifest = run_json(*live)
    assert (sum(counted(tmp_path / "live").values()), manifest["records"]["users"]) == (2000, 2000)
    people = ("simulate", "--population", "gauss", "--users", "2000", "--keys", "5", "--pairs-per-user", "2")
    run_json(*people, "--output", tmp_path / "records.parquet")
    reports = KafkaAddress(topic.servers, topic.topic + "-reports")
    sent = run_json(
        *("perturb", "--collection", definition, "--input", tmp_path / "records.parquet", "--seed", "3"),
        *("--window-start", "2026-11-30T12:00:00Z", "--window", "1h", "--output", reports),
    )
    assert sent["sent"] == {"topic": str(reports), "reports": 2000, "messages": 1}
    run_json(*arguments(definition, reports, tmp_path / "server", "--drain", window="1h"))
    assert counted(tmp_path / "server") == {"2026-11-30T12:00:00Z": 2000}


# -- a stream that goes on -----------------------------------------------------------------------------------------


def test_a_silent_partition_and_a_broker_that_starts_again_hold_nothing_up(
    require_engine, definition, topic, broker, tmp_path
):
    require_engine("prism")
    clients, output = Clients(definition, topic, window=2), tmp_path / "out"
    begin = int(time.time()) // 2 * 2 - 20
    clients.report(begin, 10, partition=1)  # and never again
    clients.report(begin, 10, partition=0)
    clients.done()
    given = arguments(definition, topic, output, "--arrival-delay", "1s", window="2s", lateness="10m")
    with running(tmp_path / "scratch", *given) as process:
        eventually(lambda: counted(output) == clients.sent, process)
        for number in range(1, 4):
            clients.report(begin + 2 * number, 100 + number)
        clients.done()
        eventually(lambda: counted(output) == clients.sent, process)
        broker.stop()
        assert not kafka_answers(broker.address)
        clients.report(begin + 8, 200)  # waits for the broker
        broker.start()
        for number in range(5, 7):
            clients.report(begin + 2 * number, 100 + number, packed=True)
        clients.done()
        eventually(lambda: counted(output) == clients.sent, process)
        process.send_signal(signal.SIGINT)
        out, err = process.communicate(timeout=60)
    assert process.returncode == 0, err
    manifest = json.loads(out)
    assert manifest["stream"]["state"] == "stopped"
    assert manifest["reports"] == {"counted_in_windows": sum(clients.sent.values()), "repeated": 0, "rejected": {}}


def test_a_window_does_not_wait_for_the_next_one(require_engine, definition, topic, tmp_path):
    """Slices of a day: all that will come of the last one is there, and today's are sent when the day is over."""
    require_engine("prism")
    clients, day = Clients(definition, topic, window=86_400), 86_400
    midnight = int(time.time()) // day * day
    for partition in range(2):
        clients.report(midnight - day, 10, partition=partition)
    clients.done()
    given = arguments(
        definition, topic, tmp_path / "out", "--arrival-delay", "0s", "--disorder", "0s", window="1d", lateness="0s"
    )
    with running(tmp_path / "scratch", *given) as process:
        eventually(lambda: counted(tmp_path / "out") == clients.sent, process, seconds=120)


@pytest.mark.parametrize("engine", ["flink"], indirect=True)
def test_a_job_that_is_killed_and_submitted_again_counts_everything_once(engine, definition, topic, run_json, tmp_path):
    clients, output = Clients(definition, topic), tmp_path / "out"
    for number in range(4):
        clients.report(START + WINDOW * number, 100 + number, partition=number % 2)
        clients.report(START + WINDOW * number, 10, partition=(number + 1) % 2)
    clients.done()
    given = arguments(definition, topic, output, "--engine", engine, lateness="0s")
    with running(tmp_path / "scratch", *given) as process:
        eventually(lambda: len(counted(output)) >= 3, process)
        before = content(output)
        process.kill()
    for number in range(4, 8):
        clients.report(START + WINDOW * number, 50, partition=number % 2)
    sent = dict(clients.done())
    clients.report(START, 7)  # its window is final
    clients.done()
    manifest = run_json(*given, "--drain")
    assert counted(output) == sent
    assert manifest["reports"]["rejected"] == {"too_late": 7}
    assert manifest["stream"]["conflicts"] == 0
    after = content(output)
    assert {name: after[name] for name in before} == before


# -- the broker as a service ---------------------------------------------------------------------------------------


def test_a_broker_is_started_examined_and_stopped(require_engine, run, run_json, tmp_path, monkeypatch):
    require_engine("kafka")
    monkeypatch.setattr("ldp_beam.engines.service._state_folder", lambda: tmp_path)
    port = free_port()
    started = run_json("engine", "start", "kafka", "--port", port)
    try:
        assert (started["kind"], started["endpoint"], started["healthy"]) == ("broker", f"localhost:{port}", True)
        assert run_json("engine", "status")["engines"]["kafka"]["running"]
        code, _, err = run("engine", "start", "kafka")
        assert (code, "runs already" in err) == (2, True)
    finally:
        stopped = run_json("engine", "stop", "kafka")
    assert stopped["stopped"] == ["the broker of Kafka"]
    assert not group_is_alive(started["processes"][0]["pid"])
    assert not kafka_answers(f"localhost:{port}")
    assert run_json("engine", "status")["engines"]["kafka"] == {"running": False}
    assert list(tmp_path.glob("kafka*")) == []


def test_doctor_sends_a_message_through_a_broker(require_engine, run_json):
    require_engine("kafka")
    found = run_json("doctor", "--engine", "kafka")
    assert found["kafka"]["ok"], found["kafka"]
    assert "kafka" in found["kafka"]["version"]
