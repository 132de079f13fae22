"""SIGKILL of the command line: nothing that it started stays behind, neither processes nor folders."""

import os
import subprocess
import sys
import time
from pathlib import Path

import pytest
from ldp_beam.engines.processes import Process, group_is_alive, swept

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
    if engine != "direct":  # no guard is there where no engine is started
        eventually(lambda: not list((tmp_path / "out").iterdir()))
        eventually(lambda: not [path for path in scratch.iterdir() if path.name.startswith("ldp-beam")])
