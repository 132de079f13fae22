"""SIGKILL of the command line: nothing that it started stays behind, neither processes nor folders."""

import os
import subprocess
import sys
import time
from pathlib import Path

import pytest
from ldp_beam.engines.processes import Process, group_is_alive, stop_group, swept

FAULTS = Path(__file__).parent / "faults"
#: How long an engine may take to end by itself, and some more for a busy machine.
SECONDS = 30


def eventually(true, seconds=SECONDS):
    deadline = time.monotonic() + seconds
    while not true():
        assert time.monotonic() < deadline
        time.sleep(0.05)


OURS = """
import pathlib, sys, time
from ldp_beam.engines.processes import Process, swept
folder, command = pathlib.Path(sys.argv[1]), sys.argv[2:]
(folder / "made").mkdir()
(folder / "kept").mkdir()
with swept(folder / "made"):
    process = Process("an engine", command, log=folder / "log", guarded=True)
    with swept(folder / "kept"):
        pass
    print(process.pid, flush=True)
    time.sleep(600)
"""


def test_what_runs_under_a_guard_ends_with_us_and_its_folders_go(tmp_path):
    """The engine, and what it started in turn, end; a folder that was taken back stays."""
    command = [sys.executable, "-c", OURS, str(tmp_path), "sh", "-c", "sleep 600 & echo up; wait"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as ours:
        group = int(ours.stdout.readline())
        eventually(lambda: "up" in (tmp_path / "log").read_text())
        assert group_is_alive(group)
        ours.kill()
    eventually(lambda: not group_is_alive(group))
    eventually(lambda: not (tmp_path / "made").exists())
    assert (tmp_path / "kept").is_dir()


def test_a_guard_ends_with_its_engine_and_tells_how(tmp_path):
    for command, code in ((["sh", "-c", "exit 3"], 3), (["sh", "-c", "kill -9 $$"], 128 + 9)):
        process = Process("an engine", command, log=tmp_path / "log", guarded=True)
        with swept(tmp_path / "folder"):
            assert process._popen.wait(SECONDS) == code
        process.stop()
    (tmp_path / "not-a-program").write_text("")
    (tmp_path / "not-a-program").chmod(0o755)
    process = Process("an engine", [str(tmp_path / "not-a-program")], log=tmp_path / "log", guarded=True)
    assert process._popen.wait(SECONDS) == 127
    assert "could not be started" in process.last_words()
    process.stop()


def test_without_an_engine_folders_and_files_go_too(tmp_path):
    """Whoever is killed: also where workers that end by themselves write into a folder that is gone already."""
    code = f"""
import subprocess, time
from pathlib import Path
from ldp_beam.engines import swept, temporary_folder
Path("part").touch()
Path("kept").touch()
with temporary_folder(".ldp-beam-", beside=Path()) as folder, swept("part"), swept("made"):
    with swept("kept"):
        pass
    subprocess.Popen(["sh", "-c", "while ! mkdir made; do sleep 0.02; done; sleep 0.5; mkdir -p made"])
    print(folder, flush=True)
    time.sleep({10 * SECONDS})
"""
    with subprocess.Popen([sys.executable, "-c", code], cwd=tmp_path, stdout=subprocess.PIPE, text=True) as ours:
        assert (tmp_path / ours.stdout.readline().strip()).is_dir()
        ours.kill()
    eventually(lambda: [path.name for path in tmp_path.iterdir()] == ["kept"])


BROKER = """
import sys, time
from pathlib import Path
from ldp_beam.engines import broker
broker.resolve, broker.kafka_answers = Path, lambda address: True
broker.java_command = lambda *given, **more: ["sleep", "600"]
running = broker.KafkaBroker(Path(sys.argv[1]), port=broker.free_port(), guarded=bool(int(sys.argv[2])))
print(running.process.pid, flush=True)
time.sleep(600)
"""


@pytest.mark.parametrize("guarded", [True, False])
def test_a_broker_ends_with_the_program_that_started_it_for_itself(guarded, tmp_path):
    """And stays where it is a service; here with a sleeper in the place of Kafka."""
    command = [sys.executable, "-c", BROKER, str(tmp_path), str(int(guarded))]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as ours:
        group = int(ours.stdout.readline())
        ours.kill()
    if guarded:
        eventually(lambda: not group_is_alive(group))
    else:
        assert group_is_alive(group)
        stop_group(group)


#: A job server of Beam, for what starts one: its port answers, and it is a process like Java's.
SERVER = """#!/bin/sh
while [ "$1" != --job-port ]; do shift; done
exec {python} -c '
import grpc, sys
from concurrent.futures import ThreadPoolExecutor
server = grpc.server(ThreadPoolExecutor(1))
server.add_insecure_port("localhost:" + sys.argv[1])
server.start()
server.wait_for_termination()
' "$2"
"""
BEAMS = """
import sys, time
from apache_beam.options.pipeline_options import PipelineOptions
from apache_beam.utils.subprocess_server import SubprocessServer
from ldp_beam.pipelines.running import Engine
from ldp_beam.pipelines.runtime import open_runtime
given = ("--runner=FlinkRunner", f"--flink_job_server_jar={sys.argv[1]}", f"--job_server_java_launcher={sys.argv[2]}")
engine = Engine(beam_arguments=given)
with open_runtime(engine) as runtime:
    for _ in range(2):
        runtime.runner.default_job_server(runtime.options()).start()
    (entry,) = SubprocessServer._cache._cache.values()
    print(entry.obj[0].pid, flush=True)
    time.sleep(int(sys.argv[3]))
"""


@pytest.mark.parametrize("killed", [True, False])
def test_a_job_server_that_beam_starts_is_one_for_all_pipelines_and_ends_with_us(killed, tmp_path):
    launcher, jar, scratch = tmp_path / "java", tmp_path / "server.jar", tmp_path / "tmp"
    launcher.write_text(SERVER.format(python=sys.executable))
    launcher.chmod(0o755)
    jar.touch()
    scratch.mkdir()
    command = [sys.executable, "-c", BEAMS, jar.as_uri(), launcher, str(10 * SECONDS if killed else 0)]
    environment = {**os.environ, "TMPDIR": str(scratch), "HOME": str(tmp_path)}  # Beam keeps jars there
    with subprocess.Popen(command, env=environment, stdout=subprocess.PIPE, text=True) as ours:
        group = int(ours.stdout.readline())
        if killed:
            ours.kill()
    assert ours.returncode == (-9 if killed else 0)
    eventually(lambda: not group_is_alive(group))
    eventually(lambda: not list(scratch.iterdir()))


def children(pid):
    """Numbers of the processes that a process started, and theirs."""
    listed = subprocess.run(["ps", "-axo", "pid=,ppid="], capture_output=True, text=True, check=True).stdout
    pairs = [tuple(map(int, line.split())) for line in listed.splitlines()]
    found = {pid}
    while more := {child for child, parent in pairs if parent in found} - found:
        found |= more
    return found - {pid}


def is_running(pid):
    """Whether a process runs; one that is dead and not waited for does not."""
    told = subprocess.run(["ps", "-o", "stat=", "-p", str(pid)], capture_output=True, text=True, check=False).stdout
    return bool(told.strip()) and not told.startswith("Z")


@pytest.mark.engine
@pytest.mark.parametrize(
    ("engine", "more"),
    [("prism", ()), ("direct", ("--workers", "2", "--direct_running_mode=multi_processing"))],
    indirect=["engine"],
)
def test_a_killed_run_leaves_no_process_and_no_folder(engine, more, inputs, tmp_path):
    """Killed in mid-job, by one of its workers, after the first reports were made."""
    plan, scratch = tmp_path / "plan", tmp_path / "tmp"
    for folder in (plan, scratch, tmp_path / "out"):
        folder.mkdir()
    environment = {"PYTHONPATH": str(FAULTS), "LDP_BEAM_TEST_FAULT": str(plan), "TMPDIR": str(scratch)}
    command = [
        *(sys.executable, "-m", "ldp_beam.pipelines", "collect", "--collection", inputs / "collection.toml"),
        *("--input", inputs / "pairs.parquet", "--output", tmp_path / "out" / "result", "--seed", "41"),
        *("--engine", engine, *more),
    ]
    started = set()
    with subprocess.Popen(list(map(str, command)), env={**os.environ, **environment}) as run:
        (plan / "fault").write_text(f"kill {run.pid}")
        while run.poll() is None:
            started |= children(run.pid)
            time.sleep(0.1)
    assert run.returncode == -9
    assert started
    eventually(lambda: not any(map(is_running, started)))
    eventually(lambda: not list((tmp_path / "out").iterdir()))
    eventually(lambda: not [path for path in scratch.iterdir() if path.name.startswith("ldp-beam")])
