"""Streams whose workers are processes of their own, on a cluster of several: what is killed changes nothing."""

import contextlib
import itertools
import json
import os
import signal
import time
import urllib.request

import psutil
import pytest

from tests.engines.stream_topics import START, WINDOW, Clients, arguments, content, counted, eventually, running

pytestmark = pytest.mark.engine

IN_SLICE = 40  # messages
SECONDS = 400  # for an event that is waited for: it guards against waiting for ever, nothing depends on it


@pytest.fixture
def definition(define):
    return define(mechanism="pckv-grr", epsilon=2)


class Flink:
    """The cluster, asked over HTTP."""

    def __init__(self, master):
        self._master = master

    def get(self, path):
        opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
        with opener.open(f"http://{self._master}{path}", timeout=10) as answer:
            return json.load(answer)

    def jobs(self):
        """Numbers of the streams that run."""
        found = self.get("/jobs/overview")["jobs"]
        streams = [job for job in found if job["name"].startswith("ldp-beam-stream-")]
        return [job["jid"] for job in streams if job["state"] in ("RUNNING", "RESTARTING", "CREATED", "CANCELLING")]

    def checkpoints(self):
        """How many checkpoints of the one stream are complete, and how often it was restored from one."""
        jobs = self.jobs()
        counts = self.get(f"/jobs/{jobs[0]}/checkpoints")["counts"] if len(jobs) == 1 else {}
        return counts.get("completed", 0), counts.get("restored", 0)


def workers(pool):
    """The processes at work: of one that was killed its number stays until the engine lets the pool look for it."""
    found = []
    for one in psutil.Process(pool.process.pid).children():
        with contextlib.suppress(psutil.NoSuchProcess):
            found += [one] if one.status() != psutil.STATUS_ZOMBIE else []
    return found


class Feeder:
    """Sends messages, slice after slice, to both partitions without a pause: a drained topic ends where it is idle.

    Where reports carry ids it delivers every third message twice.
    """

    def __init__(self, clients):
        self._clients, self._numbers = clients, itertools.count()
        self._repeat, self.repeated = clients.collection.definition.report_ids, 0

    def one(self):
        """Send a message; return whether it is in the middle of its slice."""
        number = next(self._numbers)
        start, times = START + WINDOW * (number // IN_SLICE), 1 + (number % 3 == 0) * self._repeat
        self._clients.report(start, 20 + number % 7, partition=number % 2, times=times)
        self.repeated += (times - 1) * (20 + number % 7)
        self._clients.sender.flush()
        time.sleep(0.05)
        return number % IN_SLICE == IN_SLICE // 2

    def until(self, happened, process):
        """Send until something has happened, which is looked for in the middle of each slice."""
        deadline = time.monotonic() + SECONDS
        while not (self.one() and happened()):
            assert process.poll() is None, process.communicate()[1]
            assert time.monotonic() < deadline


def test_workers_that_are_killed_after_a_checkpoint_change_nothing(
    flink_cluster, worker_pool, cluster_arguments, define, topic, run_json, tmp_path
):
    """The job goes on from its checkpoint with new processes; all windows are those of an undisturbed run.

    With ids: then the reports of open windows are in the checkpoint, too.
    """
    definition = define(mechanism="pckv-grr", epsilon=2, more="report_ids = true")
    flink, clients, output = Flink(flink_cluster.master), Clients(definition, topic), tmp_path / "disturbed"
    feeder, before = Feeder(clients), {}
    given = arguments(
        definition, topic, output, "--drain", "--engine", "flink", *cluster_arguments("flink"), lateness="0s"
    )
    with running(tmp_path / "scratch", *given, "--checkpointing_interval=500") as process:
        feeder.until(lambda: len(counted(output)) >= 2, process)
        seen = flink.checkpoints()[0]
        feeder.until(lambda: flink.checkpoints()[0] > seen + 1, process)
        before, victims = counted(output), workers(worker_pool)
        assert flink.checkpoints()[1] == 0
        for victim in victims:
            os.kill(victim.pid, signal.SIGKILL)
        feeder.until(lambda: flink.checkpoints()[1] >= 1, process)
        feeder.until(lambda: len(counted(output)) >= len(before) + 2, process)
        sent = clients.done()
        out, err = process.communicate(timeout=SECONDS)
    assert process.returncode == 0, err
    assert victims
    assert not {worker.pid for worker in workers(worker_pool)} & {victim.pid for victim in victims}
    assert counted(output) == sent
    manifest = json.loads(out)
    assert (manifest["stream"]["state"], manifest["stream"]["conflicts"]) == ("ended", 0)
    assert (manifest["reports"]["rejected"], manifest["reports"]["repeated"]) == ({}, feeder.repeated)
    assert flink.jobs() == []
    run_json(*arguments(definition, topic, tmp_path / "undisturbed", "--drain", "--engine", "prism", lateness="0s"))
    assert counted(tmp_path / "undisturbed") == sent
    assert content(output) == content(tmp_path / "undisturbed")


def test_what_a_killed_program_left_on_the_cluster_is_ended_and_gone_on_with(
    flink_cluster, cluster_arguments, definition, topic, tmp_path
):
    """SIGKILL leaves the job; the same command ends it and goes on; SIGTERM leaves nothing."""
    flink, clients, output = Flink(flink_cluster.master), Clients(definition, topic), tmp_path / "live"
    for number in range(4):
        clients.report(START + WINDOW * number, 100 + number, partition=number % 2)
    clients.done()
    given = arguments(definition, topic, output, "--engine", "flink", *cluster_arguments("flink"), lateness="0s")
    with running(tmp_path / "killed", *given) as process:
        eventually(lambda: counted(output) == clients.sent, process)
        process.kill()
    (left,) = flink.jobs()
    with running(tmp_path / "again", *given) as process:
        eventually(lambda: left not in flink.jobs(), process)
        for number in range(4, 8):
            clients.report(START + WINDOW * number, 50, partition=number % 2)
        sent = clients.done()
        eventually(lambda: counted(output) == sent, process)
        assert len(flink.jobs()) == 1
        process.send_signal(signal.SIGTERM)
        out, err = process.communicate(timeout=60)
    assert process.returncode == 0, err
    assert json.loads(out)["stream"]["state"] == "stopped"
    assert flink.jobs() == []
