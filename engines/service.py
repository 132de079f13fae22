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
from .broker import KAFKA, KafkaBroker, kafka_answers
from .cluster import FlinkCluster, SparkCluster
from .job_servers import ENGINES, JobServerOptions, answers, launch_job_server
from .processes import Process, start_time, stop_group
from .resolve import cache_folder
from .workers import WorkerPool

__all__ = ["SERVICES", "Service", "service_status", "start_kafka", "start_service", "stop_service"]

#: What can be started and stay: the engines that jobs run on, and the broker that streams come from.
SERVICES = (*ENGINES, KAFKA)


@dataclass(frozen=True, kw_only=True)
class Service:
    """An engine that stays until it is stopped.

    Attributes:
        engine: "prism", "flink", "spark" or "kafka".
        kind: "embedded" (all in one process), "cluster", or "broker" (kafka).
        endpoint: where the job server, or the broker, listens.
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
        """Return whether every process runs and the job server, or the broker, answers."""
        asks = kafka_answers if self.engine == KAFKA else answers
        return len(self.alive()) == len(self.processes) and asks(self.endpoint)


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
    _require_stopped(engine)
    if cluster and engine == "prism":
        raise InputError("Prism is one process and has no cluster. Leave --cluster out.")
    folder = _new_folder(engine)
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
        return _noted(engine, "cluster" if cluster else "embedded", server.endpoint, pool, folder, started)
    except BaseException:
        _stop([process.pid for process in started])
        shutil.rmtree(folder, ignore_errors=True)
        raise


def start_kafka(*, port: int | None = None) -> Service:
    """Start a broker that outlives this process; its messages live until it is stopped.

    Args:
        port: where it listens; None for 9092, or a free one where that is taken.

    Raises:
        InputError: It runs already, or the port is taken.
        RunError: It does not start.
    """
    _require_stopped(KAFKA)
    folder = _new_folder(KAFKA)
    try:
        broker = KafkaBroker(folder, port=port, guarded=False)
        try:
            return _noted(KAFKA, "broker", broker.address, "", folder, [broker.process])
        except BaseException:
            broker.stop()
            raise
    except BaseException:
        shutil.rmtree(folder, ignore_errors=True)
        raise


def _require_stopped(engine: str) -> None:
    running = service_status(engine)
    if running is not None and running.alive():
        raise InputError(f"{engine} runs already at {running.endpoint}. Stop it first: ldp-beam engine stop {engine}")


def _new_folder(engine: str) -> Path:
    folder = _state_folder() / f"{engine}-{time.time_ns():x}"
    folder.mkdir(parents=True)
    return folder


def _noted(engine: str, kind: str, endpoint: str, pool: str, folder: Path, started: Sequence[Process]) -> Service:
    """Write down what runs, and let it outlive this process."""
    service = Service(
        engine=engine,
        kind=kind,
        endpoint=endpoint,
        pool=pool,
        folder=str(folder),
        processes=tuple((p.name, p.pid, start_time(p.pid) or "") for p in started),
    )
    _state_file(engine).write_text(json.dumps(asdict(service)), encoding="utf-8")
    for process in started:
        process.detach()
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
    if engine not in SERVICES:
        raise InputError(f"There is no engine {engine!r} to start. {did_you_mean(engine, SERVICES)}")


def _state_folder() -> Path:
    folder = cache_folder() / "running"
    folder.mkdir(parents=True, exist_ok=True)
    return folder


def _state_file(engine: str) -> Path:
    return _state_folder() / f"{engine}.json"
