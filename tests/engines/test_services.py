"""Engines that are started, asked, stopped; and what is left behind when something interrupts them: nothing."""

import os
import signal
import subprocess
import sys
import time

import pytest
from ldp_beam.engines import JobServerOptions, job_server, service_status, start_service, stop_service
from ldp_beam.engines.processes import Process, group_is_alive, start_time, stop_group, wait_until
from ldp_beam.errors import InputError, RunError

SLEEPER = "import subprocess, sys, time; subprocess.Popen(['sleep', '600']); print('up', flush=True); time.sleep(600)"


def eventually(true, seconds=20):
    deadline = time.monotonic() + seconds
    while not true():
        assert time.monotonic() < deadline
        time.sleep(0.05)


def test_stopping_a_process_stops_what_it_started(tmp_path):
    process = Process("a sleeper", [sys.executable, "-c", SLEEPER], log=tmp_path / "log")
    eventually(lambda: "up" in (tmp_path / "log").read_text())
    process.stop()
    assert not process.is_alive()
    assert not group_is_alive(process.pid)


def test_a_process_that_ignores_the_request_is_ended(tmp_path):
    code = (
        "import signal, time; signal.signal(signal.SIGTERM, signal.SIG_IGN); print('up', flush=True); time.sleep(600)"
    )
    process = Process("a stubborn one", [sys.executable, "-c", code], log=tmp_path / "log")
    eventually(lambda: "up" in (tmp_path / "log").read_text())
    stop_group(process.pid, wait=process._popen.wait, grace=0.5)
    assert not process.is_alive()


def test_waiting_ends_when_the_process_has_ended_and_says_why(tmp_path):
    process = Process("a failure", [sys.executable, "-c", "raise SystemExit('Error: no luck')"], log=tmp_path / "log")
    with pytest.raises(RunError, match=r"a failure ended .*no luck"):
        wait_until(lambda: False, "It", [process], seconds=60)
    process.stop()


def test_waiting_has_a_deadline(tmp_path):
    process = Process("a sleeper", ["sleep", "600"], log=tmp_path / "log")
    try:
        with pytest.raises(RunError, match=r"did not answer within 0\.3 seconds"):
            wait_until(lambda: False, "It", [process], seconds=0.3)
    finally:
        process.stop()


def test_a_program_that_is_not_there_is_named(tmp_path):
    with pytest.raises(RunError, match="no-such-program"):
        Process("nothing", ["no-such-program"], log=tmp_path / "log")


def test_a_number_that_the_system_uses_again_is_not_taken_for_ours():
    assert start_time(os.getpid()) == start_time(os.getpid())
    done = subprocess.Popen(["true"])
    done.wait()
    assert start_time(done.pid) is None


def test_unknown_engines_are_refused_by_name():
    with pytest.raises(InputError, match="Did you mean 'flink'"):
        start_service("flnk", options=JobServerOptions())
    with pytest.raises(InputError, match="no engine 'redis'"):
        service_status("redis")


@pytest.mark.engine
def test_a_job_server_jar_that_is_not_there_is_refused(tmp_path, require_engine):
    require_engine("flink")
    with (
        pytest.raises(InputError, match="--job-server-jar"),
        job_server("flink", JobServerOptions(jar=str(tmp_path / "absent.jar"))),
    ):
        pass


@pytest.fixture
def own_state(tmp_path, monkeypatch):
    """A folder of its own for what runs, so that an engine of the user's is left alone."""
    monkeypatch.setattr("ldp_beam.engines.service._state_folder", lambda: tmp_path)
    return tmp_path


@pytest.mark.engine
def test_an_engine_is_started_and_stopped(own_state, run, run_json, require_engine):
    require_engine("prism")
    started = run_json("engine", "start", "prism")
    try:
        assert started["running"]
        assert started["healthy"]
        code, _, err = run("engine", "start", "prism")
        assert code == 2
        assert "runs already" in err
        assert run_json("engine", "status")["engines"]["prism"]["endpoint"] == started["endpoint"]
    finally:
        stopped = run_json("engine", "stop", "prism")
    assert stopped["stopped"] == ["the job server of prism"]
    assert not group_is_alive(started["processes"][0]["pid"])
    assert run_json("engine", "status")["engines"]["prism"] == {"running": False}
    assert run_json("engine", "stop", "prism")["stopped"] == []
    assert list(own_state.iterdir()) == []


@pytest.mark.engine
def test_a_cluster_that_was_started_takes_the_runs_of_its_engine(own_state, run_json, require_engine, inputs, tmp_path):
    require_engine("flink")
    given = ("collect", "--collection", inputs / "collection.toml", "--input", inputs / "pairs.parquet", "--seed", "4")
    here = run_json(*given, "--output", tmp_path / "here")
    started = run_json("engine", "start", "flink", "--cluster")
    try:
        assert [p["name"] for p in started["processes"]] == [
            *("jobmanager", "taskmanager 1", "taskmanager 2"),
            *("the pool of Python workers", "the job server of flink"),
        ]
        there = run_json(*given, "--output", tmp_path / "there", "--engine", "flink")
    finally:
        stopped = run_json("engine", "stop", "flink")
    assert len(stopped["stopped"]) == 5
    assert not any(group_is_alive(process["pid"]) for process in started["processes"])
    assert there["records"] == here["records"]
    assert (tmp_path / "here/counts.parquet").read_bytes() == (tmp_path / "there/counts.parquet").read_bytes()


def test_a_service_that_died_is_known_to_be_dead(own_state):
    (own_state / "prism.json").write_text(
        '{"engine": "prism", "kind": "embedded", "endpoint": "localhost:1", "pool": "", '
        '"folder": "/nonexistent/ldp-beam", "processes": [["a server", 1, "never"]]}'
    )
    service = service_status("prism")
    assert service is not None
    assert service.alive() == []
    assert stop_service("prism") == []
    assert service_status("prism") is None


@pytest.mark.engine
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_an_interrupted_run_stops_its_engine_and_leaves_nothing(number, inputs, tmp_path, require_engine):
    require_engine("prism")
    scratch = tmp_path / "scratch"
    scratch.mkdir()
    code = (
        "import time, sys\n"
        "from ldp_beam.transforms import perturb\n"
        "def slow(self, element):\n    print('working', flush=True); time.sleep(600)\n"
        "perturb._Perturb.process = slow\n"
        "from ldp_beam.pipelines.cli import main\n"
        "main(sys.argv[1:])\n"
    )
    command = [
        *(sys.executable, "-c", code, "collect", "--engine", "prism", "--collection", inputs / "collection.toml"),
        *("--input", inputs / "nested.parquet", "--output", tmp_path / "out", "--seed", "1"),
    ]
    process = subprocess.Popen(
        list(map(str, command)),
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env={**os.environ, "TMPDIR": str(scratch)},
        # A shell lets what it starts in the background ignore interrupts, and that would be inherited here.
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),
    )
    assert process.stdout is not None
    assert process.stdout.readline() == "working\n"
    process.send_signal(number)
    _, err = process.communicate(timeout=60)
    assert process.returncode == 130
    assert "Interrupted; nothing was published" in err
    assert [path.name for path in tmp_path.iterdir()] == ["scratch"]
    assert list(scratch.iterdir()) == []
    left = subprocess.run(["pgrep", "-f", str(scratch)], capture_output=True, text=True, check=False).stdout.split()
    assert left == []


@pytest.mark.engine
def test_doctor_runs_a_tiny_job_on_every_engine(run_json, require_engine):
    for name in ("prism", "flink", "spark"):
        require_engine(name)
    found = run_json("doctor")
    assert set(found["engines"]) == {"direct", "prism", "flink", "spark"}
    for engine in found["engines"].values():
        assert engine["ok"], engine
        assert engine["version"]
        assert engine["seconds"] > 0
