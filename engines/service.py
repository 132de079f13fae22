"""Engines that stay between runs: `ldp-beam engine start|stop|status`.

A file in the cache says what runs: the numbers of the processes and when each started, so that a number that
the system used again is never taken for ours.
"""

from __future__ import annotations

import json
import shutil
import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

from ..errors import InputError, did_you_mean
from .cluster import FlinkCluster, SparkCluster
from .job_servers import ENGINES, JobServerOptions, answers, launch_job_server
from .processes import Process, start_time, stop_group
from .resolve import cache_folder
from .workers import WorkerPool

__all__ = ["Service", "service_status", "start_service", "stop_service"]


@dataclass(frozen=True, kw_only=True)
class Service:
    """An engine that stays until it is stopped.

    Attributes:
        engine: "prism", "flink" or "spark".
        kind: "embedded" (all in one process) or "cluster".
        endpoint: where the job server listens.
        pool: where the pool of Python workers listens; "" where workers are threads of the run itself.
        folder: its files and logs.
        processes: (name, number, start time) of each process.
    """

    engine: str
    kind: str
    endpoint: str
    pool: str
    folder: str
    processes: tuple[tuple[str, int, str], ...]

    def alive(self) -> list[str]:
        """Return the names of the processes that still run."""
        return [name for name, pid, started in self.processes if start_time(pid) == started]

    def is_healthy(self) -> bool:
        """Return whether every process runs and the job server answers."""
        return len(self.alive()) == len(self.processes) and answers(self.endpoint)


def start_service(engine: str, *, cluster: bool = False, workers: int = 2, options: JobServerOptions) -> Service:
    """Start an engine that outlives this process.

    Args:
        engine: "prism", "flink" or "spark".
        cluster: several processes and a pool of Python workers, instead of all in one process.
        workers: tasks at a time; in a Flink cluster also the number of TaskManagers.
        options: how to start the job server.

    Raises:
        InputError: It runs already, or cannot be a cluster.
        RunError: It does not start.
    """
    _require_known(engine)
    running = service_status(engine)
    if running is not None and running.alive():
        raise InputError(f"{engine} runs already at {running.endpoint}. Stop it first: ldp-beam engine stop {engine}")
    if cluster and engine == "prism":
        raise InputError("Prism is one process and has no cluster. Leave --cluster out.")
    folder = _state_folder() / f"{engine}-{time.time_ns():x}"
    folder.mkdir(parents=True)
    started: list[Process] = []
    try:
        pool, master = "", ""
        if cluster:
            made = _cluster(engine, folder / "cluster", workers)
            started += made.processes
            workers_pool = WorkerPool(folder)
            started.append(workers_pool.process)
            pool, master = workers_pool.address, made.master
        options = JobServerOptions(
            master=master, workers=workers, jar=options.jar, binary=options.binary, java=options.java
        )
        server = launch_job_server(engine, options, folder)
        started.append(server.process)
        service = Service(
            engine=engine,
            kind="cluster" if cluster else "embedded",
            endpoint=server.endpoint,
            pool=pool,
            folder=str(folder),
            processes=tuple((p.name, p.pid, start_time(p.pid) or "") for p in started),
        )
        _state_file(engine).write_text(json.dumps(asdict(service)), encoding="utf-8")
        for process in started:
            process.detach()
    except BaseException:
        _stop([process.pid for process in started])
        shutil.rmtree(folder, ignore_errors=True)
        raise
    return service


def stop_service(engine: str) -> list[str]:
    """Stop an engine and everything that it started; return the names of what was running."""
    service = service_status(engine)
    if service is None:
        return []
    alive = set(service.alive())
    _stop([pid for name, pid, _ in service.processes if name in alive])
    shutil.rmtree(service.folder, ignore_errors=True)
    _state_file(engine).unlink(missing_ok=True)
    return [name for name, _, _ in service.processes if name in alive]


def service_status(engine: str) -> Service | None:
    """Return what was started and not stopped, alive or not; None where nothing was."""
    _require_known(engine)
    try:
        stored = json.loads(_state_file(engine).read_text(encoding="utf-8"))
        stored["processes"] = tuple((str(n), int(p), str(s)) for n, p, s in stored["processes"])
        return Service(**stored)
    except FileNotFoundError:
        return None
    except (ValueError, TypeError, KeyError):  # written by another version: nothing that we could stop safely
        return None


def _cluster(engine: str, folder: Path, workers: int) -> FlinkCluster | SparkCluster:
    folder.mkdir()
    if engine == "flink":
        return FlinkCluster(folder, task_managers=workers, slots=workers)
    return SparkCluster(folder, workers=1, cores=workers)


def _stop(pids: Sequence[int]) -> None:
    for pid in reversed(pids):
        stop_group(pid)


def _require_known(engine: str) -> None:
    if engine not in ENGINES:
        raise InputError(f"There is no engine {engine!r} to start. {did_you_mean(engine, ENGINES)}")


def _state_folder() -> Path:
    folder = cache_folder() / "running"
    folder.mkdir(parents=True, exist_ok=True)
    return folder


def _state_file(engine: str) -> Path:
    return _state_folder() / f"{engine}.json"
