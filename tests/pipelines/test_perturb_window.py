"""`perturb` for a slice of time: its header, its bits, its price; and what is refused before anything is spent."""

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from ldp_beam.pipelines.ledger import Ledger
from ldp_beam.schemas.reports import FileHeader
from ldp_beam.transforms import kafka_client
from ldp_beam.transforms.collection import Collection
from ldp_beam.transforms.report_messages import ReportFiles

START = "2026-11-30T13:00:00Z"


@pytest.fixture
def given(define, nested, people):
    collection, records = define(mechanism="pckv-grr"), nested(people(200))
    return ("perturb", "--collection", collection, "--input", records, "--seed", "4")


def reports(folder):
    tables = [pq.read_table(path) for path in sorted(folder.glob("reports*.parquet"))]
    return pa.concat_tables(tables), FileHeader.read(tables[0].schema.metadata, "it")


def test_reports_of_a_slice_say_so_and_a_stream_takes_them(given, run_json, tmp_path):
    run_json(*given, "--window-start", "2026-11-30T14:00:00+01:00", "--window", "1h", "--output", tmp_path / "out")
    _, header = reports(tmp_path / "out")
    assert (header.window_start, header.window_seconds) == (START, 3600)
    (path,) = (tmp_path / "out").glob("reports*.parquet")
    decode = ReportFiles(Collection.load(given[2]), 3600)
    ((time, batch),) = decode.read(str(path), 2e9)
    assert (time, batch.num_rows) == (header.event_time(), 200)


def test_another_slice_gives_fresh_reports_and_the_same_slice_the_same(given, run_json, tmp_path):
    made = {}
    for name, start in (("a", START), ("again", START), ("b", "2026-11-30T14:00:00Z"), ("none", None)):
        window = () if start is None else ("--window-start", start, "--window", "1h")
        run_json(*given, *window, "--output", tmp_path / name)
        made[name] = reports(tmp_path / name)[0].replace_schema_metadata()
    assert made["a"].equals(made["again"])
    assert not made["a"].equals(made["b"])
    assert not made["a"].equals(made["none"])


def test_each_slice_is_charged_once(given, run, run_json, tmp_path):
    ledger = tmp_path / "ledger.sqlite"
    for name, start in (("a", START), ("again", START), ("b", "2026-11-30T14:00:00Z")):
        window = ("--window-start", start, "--window", "1h", "--ledger", ledger)
        run_json(*given, *window, "--output", tmp_path / name)
    assert sorted(entry.spend.period for entry in Ledger(ledger).entries() if entry.state == "charged") == [
        START, "2026-11-30T14:00:00Z",
    ]  # fmt: skip
    assert Ledger(ledger).spent() == 4


@pytest.mark.parametrize(
    ("more", "part"),
    [
        (("--window", "1h"), "belong together"),
        (("--window-start", START), "belong together"),
        (("--window-start", "2026-11-30T13:00:01Z", "--window", "1h"), "such as 2026-11-30T13:00:00Z"),
        (("--window-start", "noon", "--window", "1h"), "is no time"),
        (("--window-start", START, "--window", "soon"), "--window soon"),
    ],
)
def test_what_is_no_slice(given, run, tmp_path, more, part):
    code, _, err = run(*given, *more, "--output", tmp_path / "out")
    assert (code, part in err) == (2, True), err
    assert not (tmp_path / "out").exists()


def test_what_a_topic_needs_is_asked_for_before_anything_is_spent(given, run, tmp_path):
    pytest.importorskip("confluent_kafka")
    window = ("--window-start", START, "--window", "1h")
    config = tmp_path / "k.properties"
    config.write_text("no.such.setting=1")
    for more, part in (
        (("--output", "kafka://localhost:1/t"), "--window-start"),
        ((*window, "--output", "kafka://localhost:1"), "kafka://HOST:PORT/TOPIC"),
        ((*window, "--output", "kafka://localhost:1/t", "--format", "avro"), "leave them out"),
        ((*window, "--output", "kafka://localhost:1/t", "--kafka-config", config), "no.such.setting"),
    ):
        code, _, err = run(*given, *more, "--ledger", tmp_path / "ledger.sqlite")
        assert (code, part in err) == (2, True), err
    assert not (tmp_path / "ledger.sqlite").exists()


def test_without_a_broker_nothing_is_spent(given, run, tmp_path, monkeypatch):
    pytest.importorskip("confluent_kafka")
    monkeypatch.setattr(kafka_client, "_CONTACT_SECONDS", 0.1)
    ledger, window = tmp_path / "ledger.sqlite", ("--window-start", START, "--window", "1h")
    code, _, err = run(*given, *window, "--output", "kafka://localhost:1/t", "--ledger", ledger)
    assert (code, "No broker of kafka://localhost:1/t answers" in " ".join(err.split())) == (1, True), err
    assert not ledger.exists()


def test_sending_that_fails_says_what_is_spent(given, run, tmp_path, monkeypatch):
    pytest.importorskip("confluent_kafka")
    monkeypatch.setitem(kafka_client._PRODUCER, "delivery.timeout.ms", 300)
    monkeypatch.setitem(kafka_client._PRODUCER, "linger.ms", 0)
    monkeypatch.setattr(kafka_client.Sender, "require_contact", lambda sender: None)  # the broker goes away after it
    ledger, window = tmp_path / "ledger.sqlite", ("--window-start", START, "--window", "1h")
    code, _, err = run(*given, *window, "--output", "kafka://localhost:1/t", "--ledger", ledger)
    assert code == 1
    assert "not all of them sent" in err
    assert "report_ids" in err
    assert Ledger(ledger).spent() == 2


@pytest.mark.parametrize(
    ("more", "part"),
    [
        ((), "Give either"),
        (("--output", "x.parquet", "--to", "kafka://h/t"), "Give either"),
        (("--to", "kafka://h/t", "--layout", "pairs"), "--layout pairs"),
        (("--to", "h/t"), "kafka://HOST:PORT/TOPIC"),
        (("--to", "kafka://h/t", "--span", "x"), "--span x"),
    ],
)
def test_people_go_to_a_file_or_to_a_topic(run, more, part):
    pytest.importorskip("confluent_kafka")
    code, _, err = run("simulate", "--population", "gauss", "--users", "10", *more)
    assert (code, part in err) == (2, True), err
