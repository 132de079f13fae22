"""Clusters of several processes on this machine, from the same class paths as the job servers.

They are what tests, demonstrations and `ldp-beam engine start --cluster` use; a real cluster is somebody
else's, and takes jobs in the same way.
"""

from __future__ import annotations

import json
import urllib.error
import urllib.request
from collections.abc import Callable, Sequence
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from .java import java_command
from .processes import Process, free_port, wait_until
from .resolve import resolve

__all__ = ["FlinkCluster", "SparkCluster"]

_START_SECONDS = 180.0


class _Cluster:
    """Processes that start together and stop together; use as a context manager or call `stop`."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.processes: list[Process] = []

    def _start(self, name: str, command: Sequence[str], env: dict[str, str] | None = None) -> Process:
        log = self.folder / f"{name.replace(' ', '-')}.log"
        process = Process(name, command, log=log, env=env, folder=self.folder)
        self.processes.append(process)
        return process

    def _guarded(self, start: Callable[[], None]) -> None:
        try:
            start()
        except BaseException:
            self.stop()
            raise

    def stop(self) -> None:
        """End all processes, the last started first."""
        for process in reversed(self.processes):
            process.stop()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()


class FlinkCluster(_Cluster):
    """A standalone Flink: one JobManager and several TaskManagers.

    Args:
        folder: takes configuration, logs and temporary files.
        task_managers: number of TaskManagers.
        slots: tasks at a time in each; with as many as the job's parallelism one may die and the job go on.
    """

    def __init__(self, folder: Path, *, task_managers: int = 2, slots: int = 2) -> None:
        super().__init__(folder)
        self._jars = resolve("flink")
        self._rest = free_port()
        self.master = f"localhost:{self._rest}"
        self._wanted, self._started = task_managers, 0
        self._write_configuration(slots)
        self._guarded(self._start_all)

    def _write_configuration(self, slots: int) -> None:
        settings = {
            "jobmanager.rpc.address": "localhost",
            "jobmanager.rpc.port": free_port(),
            "rest.address": "localhost",
            "rest.port": self._rest,
            "io.tmp.dirs": self.folder,
            "taskmanager.host": "localhost",
            "taskmanager.numberOfTaskSlots": slots,
            "cluster.evenly-spread-out-slots": True,
            # The job's jars are those of the class path.
            "classloader.resolve-order": "parent-first",
            # A TaskManager that died is noticed after seconds, not after a minute.
            "heartbeat.interval": 1000,
            "heartbeat.timeout": 8000,
            "restart-strategy.type": "fixed-delay",
            "restart-strategy.fixed-delay.attempts": 3,
            "restart-strategy.fixed-delay.delay": "1 s",
            # Started without Flink's shell scripts, a TaskManager must be told every size.
            "taskmanager.cpu.cores": float(slots),
            "taskmanager.memory.framework.heap.size": "128m",
            "taskmanager.memory.framework.off-heap.size": "128m",
            "taskmanager.memory.jvm-metaspace.size": "256m",
            "taskmanager.memory.jvm-overhead.min": "192m",
            "taskmanager.memory.jvm-overhead.max": "192m",
            "taskmanager.memory.task.heap.size": "512m",
            "taskmanager.memory.task.off-heap.size": "0m",
            "taskmanager.memory.network.min": "128m",
            "taskmanager.memory.network.max": "128m",
            "taskmanager.memory.managed.size": "256m",
        }
        lines = [f"{name}: {str(value).lower() if value is True else value}" for name, value in settings.items()]
        conf = self.folder / "conf"
        conf.mkdir(parents=True)
        (conf / "flink-conf.yaml").write_text("\n".join(lines) + "\n", encoding="utf-8")

    def _start_all(self) -> None:
        self._java("jobmanager", "org.apache.flink.runtime.entrypoint.StandaloneSessionClusterEntrypoint")
        for _ in range(self._wanted):
            self._add_task_manager()
        self._wait()

    def _wait(self) -> None:
        wait_until(self._is_complete, "The Flink cluster", self.processes, seconds=_START_SECONDS)

    def replace_dead(self) -> None:
        """Start a TaskManager for each that has died, and wait until all are there.

        Raises:
            RunError: They do not start.
        """
        self.processes = [process for process in self.processes if process.is_alive()]
        while len(self.processes) <= self._wanted:
            self._add_task_manager()
        self._wait()

    def _add_task_manager(self) -> Process:
        self._started += 1
        number = self._started
        return self._java(f"taskmanager {number}", "org.apache.flink.runtime.taskexecutor.TaskManagerRunner")

    def _java(self, name: str, main: str) -> Process:
        arguments = ["--configDir", str(self.folder / "conf")]
        return self._start(name, java_command(self._jars, main, arguments, scratch=self.folder, options=["-Xmx1g"]))

    def _is_complete(self) -> bool:
        overview = get_json(f"http://{self.master}/overview")
        return overview is not None and overview.get("taskmanagers") == self._wanted


class SparkCluster(_Cluster):
    """A standalone Spark: one master and workers that start executors.

    Args:
        folder: takes logs and the executors' files.
        workers: number of workers.
        cores: tasks at a time in each.
    """

    def __init__(self, folder: Path, *, workers: int = 1, cores: int = 2) -> None:
        super().__init__(folder)
        self._jars = resolve("spark")
        self._port, self._ui = free_port(), free_port()
        self.master = f"spark://localhost:{self._port}"
        self._workers, self._cores = workers, cores
        self._home = self._make_home()
        self._guarded(self._start_all)

    def _make_home(self) -> Path:
        """Make what a worker takes for an installation of Spark; without it executors die without a word."""
        home = self.folder / "home"
        home.mkdir(parents=True)
        (home / "jars").symlink_to(self._jars)
        (home / "RELEASE").touch()
        return home

    def _start_all(self) -> None:
        arguments = ["--host", "localhost", "--port", str(self._port), "--webui-port", str(self._ui)]
        self._java("spark master", "org.apache.spark.deploy.master.Master", arguments)
        wait_until(lambda: self._alive() is not None, "The master of Spark", self.processes, seconds=_START_SECONDS)
        for number in range(self._workers):
            arguments = [
                *("--host", "localhost", "--webui-port", str(free_port())),
                *("--cores", str(self._cores), "--memory", "2g"),
                *("--work-dir", str(self.folder / "work"), self.master),
            ]
            self._java(f"spark worker {number}", "org.apache.spark.deploy.worker.Worker", arguments)
        wait_until(lambda: self._alive() == self._workers, "The Spark cluster", self.processes, seconds=_START_SECONDS)

    def _java(self, name: str, main: str, arguments: Sequence[str]) -> Process:
        env = {
            "SPARK_HOME": str(self._home),
            "SPARK_SCALA_VERSION": "2.12",
            "SPARK_LOCAL_DIRS": str(self.folder),
        }
        command = java_command(self._jars, main, arguments, scratch=self.folder, options=["-Xmx512m"])
        return self._start(name, command, env)

    def _alive(self) -> int | None:
        state = get_json(f"http://localhost:{self._ui}/json/")
        return None if state is None else int(state.get("aliveworkers", 0))


def get_json(url: str) -> dict[str, Any] | None:
    """Return the JSON object at a URL of this machine, or None while nothing answers."""
    opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))  # a proxy would not know our localhost
    try:
        with opener.open(url, timeout=5) as answer:
            return dict(json.load(answer))
    except (urllib.error.URLError, OSError, ValueError):
        return None
