"""The verb `stream` as people run it: over folders and made-up people, interrupted, and in other time zones."""

import json
import os
import signal
import subprocess
import sys
import time
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from pathlib import Path

import fastavro
import psutil
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from ldp_beam.transforms.publish_panes import pane_folders

pytestmark = pytest.mark.engine

START = [sys.executable, "-m", "ldp_beam.pipelines", "stream"]
BEFORE, AFTER = datetime(2026, 11, 29, 23, 59, 59, 999000), datetime(2026, 11, 30)


@pytest.fixture
def definition(define):
    return define(mechanism="pckv-grr", epsilon=2)


def given(definition, source, output, *more):
    return ["--collection", str(definition), "--source", str(source), "--allowed-lateness", "0s", "--output",
            str(output), *map(str, more)]  # fmt: skip


def windows_of(output):
    return {file["start"]: file["n"] for file in json.loads((Path(output) / "manifest.json").read_text())["files"]}


# -- B23 --------------------------------------------------------------------------------------------------------


def write_around_midnight(folder):
    """Files with one record before and one after midnight, in every way that a time may be written."""
    folder.mkdir()
    eastern = pa.timestamp("us", tz="America/New_York")
    columns = {
        "naive-ms": pa.array([BEFORE, AFTER], pa.timestamp("ms")),
        "naive-us": pa.array([BEFORE, AFTER], pa.timestamp("us")),
        "utc-us": pa.array([BEFORE.replace(tzinfo=UTC), AFTER.replace(tzinfo=UTC)], pa.timestamp("us", tz="UTC")),
        "eastern": pa.array([BEFORE.replace(tzinfo=UTC), AFTER.replace(tzinfo=UTC)], eastern),
    }
    for name, times in columns.items():
        users = pa.array([f"{name}-{i}" for i in range(2)])
        table = {"user_id": users, "key": pa.array(["apple"] * 2), "value": pa.array([0.5] * 2), "timestamp": times}
        pq.write_table(pa.table(table), folder / f"{name}.parquet")
    for unit, scale in (("millis", 1_000), ("micros", 1_000_000)):
        time_type = {"type": "long", "logicalType": f"timestamp-{unit}"}
        fields = [("user_id", "string"), ("key", "string"), ("value", "double"), ("timestamp", time_type)]
        schema = {"type": "record", "name": "r", "fields": [{"name": name, "type": kind} for name, kind in fields]}
        instants = [round(when.replace(tzinfo=UTC).timestamp() * scale) for when in (BEFORE, AFTER)]
        rows = [
            {"user_id": f"{unit}-{i}", "key": "apple", "value": 0.5, "timestamp": t} for i, t in enumerate(instants)
        ]
        with (folder / f"{unit}.avro").open("wb") as file:
            fastavro.writer(file, fastavro.parse_schema(schema), rows)
    return folder


@pytest.mark.parametrize("zone", ["UTC", "America/New_York"])
def test_a_time_is_utc_whatever_the_zone_of_the_machine(definition, tmp_path, require_engine, zone):
    """B23: events just before and at midnight, naive and with a zone, millis and micros, Parquet and Avro."""
    require_engine("prism")
    folder = write_around_midnight(tmp_path / "in")
    more = ("--records", "--seed", "1", "--window", "1h", "--drain")
    done = subprocess.run(
        [*START, *given(definition, folder, tmp_path / "out", *more)], env={**os.environ, "TZ": zone},
        capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert windows_of(tmp_path / "out") == {"2026-11-29T23:00:00Z": 6, "2026-11-30T00:00:00Z": 6}


# -- reports in a watched folder --------------------------------------------------------------------------------


@pytest.fixture
def incoming(definition, nested, people, run, tmp_path):
    """Reports of three slices of an hour, and a file that is none."""
    folder = tmp_path / "incoming"
    folder.mkdir()
    records = nested(people(40))
    for hour in (10, 11, 12):
        code, _, err = run("perturb", "--collection", definition, "--input", records, "--output", tmp_path / str(hour),
                           "--seed", hour, "--window-start", f"2026-11-29T{hour}:00", "--window", "1h")  # fmt: skip
        assert code == 0, err
        (file,) = (tmp_path / str(hour)).glob("*.parquet")
        file.rename(folder / f"{hour}.parquet")
    (folder / "noise.parquet").write_bytes(b"no Parquet")
    return folder


@pytest.fixture(scope="module")
def digests():
    """Digests of the counts by engine, so that the second of the engines is compared with the first."""
    return {}


@pytest.mark.parametrize("engine", ["prism", "flink"], indirect=True)
def test_a_folder_of_reports_gives_the_same_windows_on_every_engine(
    definition, incoming, run_json, tmp_path, engine, digests
):
    more = ("--window", "2h", "--slide", "1h", "--drain", "--engine", engine)
    manifest = run_json("stream", *given(definition, incoming, tmp_path / "out", *more))
    assert windows_of(tmp_path / "out") == {
        "2026-11-29T09:00:00Z": 40, "2026-11-29T10:00:00Z": 80, "2026-11-29T11:00:00Z": 80, "2026-11-29T12:00:00Z": 40,
    }  # fmt: skip
    assert manifest["reports"]["rejected"] == {"unreadable": 1}
    assert manifest["epsilon"]["spent_per_user"] == "0"  # the server spends nothing
    assert "not private" in json.dumps(manifest["warnings"])  # the reports said that they come from a seed
    digests[engine] = [file["counts_digest"] for file in manifest["files"]]
    assert len(set(map(tuple, digests.values()))) == 1


def test_an_open_window_is_published_early_and_again_when_more_has_come(
    definition, nested, people, run, tmp_path, require_engine
):
    """The window is a year long: all that is published of it is early."""
    require_engine("prism")
    incoming = tmp_path / "incoming"
    incoming.mkdir()
    sent = []

    def send(n):
        start = (datetime.now(UTC) - timedelta(seconds=2)).replace(microsecond=0)
        code, _, err = run("perturb", "--collection", definition, "--input", nested(people(n)), "--seed", len(sent),
                           "--output", tmp_path / f"sent-{len(sent)}", "--window-start", start.isoformat(),
                           "--window", "1s")  # fmt: skip
        assert code == 0, err
        (file,) = (tmp_path / f"sent-{len(sent)}").glob("*.parquet")
        sent.append(file.rename(incoming / f"{len(sent)}.parquet"))

    def told():
        (window,) = (tmp_path / "out" / "windows").iterdir()
        return [(pane.window["n"], pane.window["timing"], pane.window["is_final"]) for pane in pane_folders(window)]

    more = ("--window", "52w", "--early", "1s", "--json")
    with started(given(definition, incoming, tmp_path / "out", *more)) as process:
        send(20)
        wait_for(lambda: list((tmp_path / "out" / "windows").glob("*/pane-000")), process)
        assert told() == [(20, "early", False)]
        send(30)
        wait_for(lambda: list((tmp_path / "out" / "windows").glob("*/pane-001")), process)
        assert told()[1] == (50, "early", False)
        process.send_signal(signal.SIGTERM)
        assert process.wait(60) == 0


# -- without an end ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("engine", "number"),
    [("prism", signal.SIGINT), ("prism", signal.SIGTERM), ("flink", signal.SIGTERM)],
    indirect=["engine"],
)
def test_a_stream_without_an_end_is_stopped_cleanly(definition, tmp_path, engine, number):
    """Windows appear while it runs; a signal ends job and job server, and leaves what was published."""
    source = "simulate:gauss,users=1000000,keys=3,pairs-per-user=2,rate=200"
    arguments = given(definition, source, tmp_path / "out", "--records", "--seed", "1", "--window", "2s", "--json",
                      "--engine", engine)  # fmt: skip
    with started(arguments) as process:
        wait_for(lambda: list((tmp_path / "out" / "windows").glob("*/pane-*")), process)
        children = psutil.Process(process.pid).children(recursive=True)
        assert children  # the job server at least
        process.send_signal(number)
        out, err = process.communicate(timeout=60)
    assert process.returncode == 0, err
    assert "Traceback" not in err  # Beam's worker complains of the bundle that it was ended in
    manifest = json.loads(out)
    assert manifest["stream"]["state"] == "stopped"
    assert manifest["stream"]["windows"] >= 1
    assert psutil.wait_procs(children, timeout=30)[1] == []  # nothing that it started is left


@contextmanager
def started(arguments):
    """Run the verb in a process group of its own, and leave nothing of it behind."""
    process = subprocess.Popen(
        [*START, *arguments], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, start_new_session=True,
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.default_int_handler),
    )  # fmt: skip
    try:
        yield process
    finally:
        if process.poll() is None:
            process.terminate()  # it stops what it started
        process.communicate(timeout=60)


def wait_for(holds, process=None, seconds=60):
    deadline = time.monotonic() + seconds
    while not holds():
        assert process is None or process.poll() is None, process.stderr.read()
        assert time.monotonic() < deadline
        time.sleep(0.1)
