"""What fails in mid-job is repaired without a trace, or ends the run with the cause, exit code 1 and no output."""

import contextlib
import errno
import os
import resource
import subprocess
import sys
from collections import Counter

import pyarrow.parquet as pq
import pytest
from ldp_beam.transforms import perturb as perturb_module
from ldp_beam.transforms import table_files

ENGINES = ["direct", "prism", "flink", "spark"]
RETRYING = ["flink", "spark"]


def arguments(inputs, output, *more):
    return [
        *("--collection", inputs / "collection.toml", "--input", inputs / "nested.parquet"),
        *("--output", output, "--seed", "41", *more),
    ]


@pytest.fixture(scope="module")
def reference(inputs, tmp_path_factory):
    from ldp_beam.pipelines.cli import main

    folder = tmp_path_factory.mktemp("reference") / "out"
    with pytest.raises(SystemExit) as end:
        main(["collect", *map(str, arguments(inputs, folder, "--json"))])
    assert end.value.code == 0
    return pq.read_table(folder / "counts.parquet")


def nothing_is_left(folder):
    """Neither the output nor a staging folder beside it."""
    return not folder.exists() and not list(folder.parent.glob(f".{folder.name}.*"))


# -- a step fails after perturbing (B36) -------------------------------------------------------------------


@pytest.fixture
def fails_once(monkeypatch):
    """Let the client's step fail once after it has perturbed; return what every attempt saw."""
    process, seen, failed = perturb_module._Perturb.process, [], []

    def failing(self, *given, **named):
        for batch in process(self, *given, **named):
            seen.append(batch)
            if not failed:
                failed.append(True)
                raise RuntimeError("planted: the worker stumbles")
            yield batch

    monkeypatch.setattr(perturb_module._Perturb, "process", failing)
    return seen


@pytest.mark.engine
@pytest.mark.parametrize("engine", RETRYING, indirect=True)
def test_a_retried_bundle_sends_the_same_reports(engine, fails_once, inputs, reference, run, tmp_path):
    code, _, err = run("collect", *arguments(inputs, tmp_path / "out", "--engine", engine, "--workers=2"))
    assert code == 0, err
    assert pq.read_table(tmp_path / "out" / "counts.parquet").equals(reference)
    first, *later = fails_once
    assert sum(batch.equals(first) for batch in later) == 1


@pytest.mark.engine
@pytest.mark.parametrize("engine", ["direct", "prism"], indirect=True)
def test_an_engine_without_retries_ends_with_the_cause(engine, fails_once, inputs, run, tmp_path):
    code, _, err = run("collect", *arguments(inputs, tmp_path / "out", "--engine", engine))
    assert code == 1
    assert "planted: the worker stumbles" in err
    assert nothing_is_left(tmp_path / "out")


# -- processes die -----------------------------------------------------------------------------------------


@pytest.fixture
def plan(worker_pool):
    """The folder that tells the workers of the pool what to do once, emptied afterwards."""
    worker_pool.plan.mkdir(exist_ok=True)
    yield worker_pool.plan
    for path in worker_pool.plan.iterdir():
        path.unlink()


def attempts(plan):
    """What the attempts saw: (rows, digest of the reports), one entry an attempt."""
    return [tuple(path.name.split("-")[1:3]) for path in plan.glob("seen-*")]


@pytest.mark.engine
@pytest.mark.parametrize("name", RETRYING)
def test_a_worker_killed_in_mid_job_changes_nothing(name, plan, inputs, reference, run, cluster_arguments, tmp_path):
    (plan / "fault").write_text("kill worker")
    code, _, err = run("collect", *arguments(inputs, tmp_path / "out", *cluster_arguments(name)))
    assert (plan / "done").is_file()
    assert code == 0, err
    assert pq.read_table(tmp_path / "out" / "counts.parquet").equals(reference)
    assert max(Counter(attempts(plan)).values()) >= 2  # the retry sent what the killed attempt had seen


@pytest.mark.engine
def test_a_task_manager_killed_in_mid_job_changes_nothing(
    plan, inputs, reference, run, cluster_arguments, flink_cluster, tmp_path
):
    arguments_ = cluster_arguments("flink")
    victim = flink_cluster.processes[-1]
    (plan / "fault").write_text(f"kill {victim.pid}")
    code, _, err = run("collect", *arguments(inputs, tmp_path / "out", *arguments_))
    assert not victim.is_alive()
    flink_cluster.replace_dead()
    assert code == 0, err
    assert pq.read_table(tmp_path / "out" / "counts.parquet").equals(reference)


# -- bad files and full disks ------------------------------------------------------------------------------


@pytest.fixture
def poisoned(inputs, tmp_path):
    """A copy of the input whose footer is whole and whose data are not."""
    data = bytearray((inputs / "nested.parquet").read_bytes())
    middle = len(data) // 2
    data[middle : middle + 4000] = b"\xff" * 4000
    path = tmp_path / "poisoned.parquet"
    path.write_bytes(data)
    return path


@pytest.mark.engine
@pytest.mark.parametrize("engine", ENGINES, indirect=True)
def test_a_damaged_file_is_named(engine, poisoned, inputs, run, tmp_path):
    code, _, err = run(
        *("collect", "--collection", inputs / "collection.toml", "--input", poisoned),
        *("--output", tmp_path / "out", "--seed", "1", "--engine", engine),
    )
    assert code == 1
    assert "poisoned.parquet is damaged" in err
    assert nothing_is_left(tmp_path / "out")


@pytest.mark.engine
@pytest.mark.parametrize("engine", ENGINES, indirect=True)
def test_a_full_disk_is_named(engine, inputs, run, tmp_path, monkeypatch):
    def full(self, batch):
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), "estimates")

    monkeypatch.setattr(table_files._Parquet, "write", full)
    code, _, err = run("collect", *arguments(inputs, tmp_path / "out", "--engine", engine))
    assert code == 1
    assert "No space left on device" in err
    assert "disk is full" in err
    assert nothing_is_left(tmp_path / "out")


@pytest.mark.parametrize("verb", ["perturb", "collect"])
def test_a_disk_that_really_takes_no_more_ends_the_run(verb, inputs, tmp_path):
    """The system refuses files beyond a size, as it does on a full disk, and not a stand-in of ours."""
    limit = {"perturb": 8_000, "collect": 2_000}[verb]
    command = [sys.executable, "-m", "ldp_beam.pipelines", verb, *map(str, arguments(inputs, tmp_path / "out"))]
    done = subprocess.run(
        command,
        capture_output=True,
        text=True,
        check=False,
        preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_FSIZE, (limit, limit)),
    )
    assert done.returncode == 1, done.stderr
    assert "disk is full" in " ".join(done.stderr.split())
    assert nothing_is_left(tmp_path / "out")


@pytest.fixture
def small_disk(tmp_path):
    """A file system of 12 kB, where this user may mount one."""
    folder = tmp_path / "disk"
    folder.mkdir()
    mount = ["mount", "-t", "tmpfs", "-o", "size=12k", "tmpfs", str(folder)]
    with contextlib.suppress(OSError):
        if subprocess.run(mount, capture_output=True, check=False).returncode == 0:
            yield folder
            subprocess.run(["umount", str(folder)], check=False)
            return
    pytest.skip("this user may not mount a file system")


@pytest.mark.engine
@pytest.mark.parametrize("engine", ENGINES, indirect=True)
def test_a_small_disk_ends_the_run_on_every_engine(engine, small_disk, inputs, run):
    code, _, err = run("perturb", *arguments(inputs, small_disk / "out", "--engine", engine))
    assert code == 1
    assert "disk is full" in err
    assert nothing_is_left(small_disk / "out")
