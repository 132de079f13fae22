"""Running a pipeline on an engine; versions, the clock."""

from __future__ import annotations

import importlib.metadata
import platform
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from typing import Any

import apache_beam as beam

from ..engines import service_status
from .beam_options import parsed_options, without_secrets
from .engine_target import Target, target_of
from .failures import WorkerErrors, translated
from .preflight import CheckWorkers, clear_answers, marker_in, worker_versions
from .runtime import Runtime, engine_session, open_runtime
from .stream_metrics import read_metrics

__all__ = ["Clock", "Engine", "check_workers", "engine_pipeline", "engine_session", "versions"]

_CANCEL_SECONDS = 10.0


@dataclass(frozen=True, kw_only=True)
class Engine:
    """Where a run takes place.

    Attributes:
        name: "direct" (in this process), "prism", "flink" or "spark".
        workers: threads of the local runner; tasks at a time of an engine on this machine.
        beam_arguments: further options that pass through to Beam; `--runner` among them may name the engine too.
        job_server_jar: a ready-made job server of Flink or Spark, or None for ours.
    """

    name: str = "direct"
    workers: int = 1
    beam_arguments: tuple[str, ...] = ()
    job_server_jar: str | None = None

    def known(self) -> dict[str, Any]:
        """Return the values that the arguments give to Beam's options."""
        return parsed_options(self.beam_arguments) if self.beam_arguments else {}

    def target(self) -> Target:
        """Return what this means; an engine that `ldp-beam engine start` left running included.

        Raises:
            InputError: The engine is unknown, or options contradict each other.
        """
        target = target_of(self.name, self.known(), jar=self.job_server_jar)
        service = service_status(target.engine) if target.service else None
        if service is None or not service.is_healthy():
            return target
        environment = "EXTERNAL" if service.pool else target.environment
        return replace(target, endpoint=service.endpoint, environment=environment, config=service.pool)

    @property
    def shares_disk(self) -> bool:
        """Whether every worker surely sees this machine's files, temporary ones too."""
        return (self.name == "direct" and not self.beam_arguments) or self.target().shares_disk

    def as_json(self) -> dict[str, Any]:
        """Return the fields for the manifest."""
        name = self.target().engine
        return {"name": name, "workers": self.workers, "beam_arguments": without_secrets(self.beam_arguments)}


@contextmanager
def engine_pipeline(
    engine: Engine, *, writes_to: Sequence[str] = (), metrics: dict[str, int | str] | None = None
) -> Iterator[beam.Pipeline]:
    """Yield a pipeline that runs, and is waited for, when the block ends.

    Args:
        engine: where to run.
        writes_to: the folders that workers write into, or prefixes in stores; checked where they may be on other
            machines.
        metrics: is filled with what the engine's counters say at the end, see `read_metrics`.

    Raises:
        LdpBeamError: Our own error, found again in what the engine reports.
        RunError: Anything else that made the run fail.
    """
    with open_runtime(engine) as runtime:
        check_workers(runtime, writes_to)
        pipeline = beam.Pipeline(runner=runtime.runner, options=runtime.options())
        yield pipeline
        result = _run(pipeline)
        if metrics is not None:
            metrics.update(read_metrics(result))


def check_workers(runtime: Runtime, folders: Sequence[str]) -> None:
    """Run the checks of `preflight` where workers may be on other machines.

    Raises:
        LdpBeamError: A worker is not fit for our jobs, or does not see one of the folders.
    """
    if runtime.target.shares_disk or (runtime.checked and not folders):
        return
    pipeline = beam.Pipeline(runner=runtime.runner, options=runtime.options())
    markers = {folder: marker_in(folder) for folder in folders}
    pipeline | "CheckWorkers" >> CheckWorkers(worker_versions(), markers)
    _run(pipeline)
    for folder, marker in markers.items():
        clear_answers(folder, marker)
    runtime.checked.append(True)


def _cancel(result: Any) -> None:
    """Ask the engine to end a job; it may be gone already, and the interrupt is what matters."""

    def ask() -> None:
        with suppress(Exception):
            result.cancel()

    asking = threading.Thread(target=ask, daemon=True)
    asking.start()
    asking.join(_CANCEL_SECONDS)


def _run(pipeline: beam.Pipeline) -> Any:
    result = None
    with WorkerErrors() as workers:
        try:
            result = pipeline.run()
            result.wait_until_finish()
            return result
        except KeyboardInterrupt:
            if result is not None:
                _cancel(result)
            raise
        except Exception as error:
            raise translated(error, workers) from error


@dataclass
class Clock:
    """Start and duration of a run."""

    started: str = field(default_factory=lambda: datetime.now(UTC).isoformat(timespec="seconds"))
    _start: float = field(default_factory=time.monotonic)

    def seconds(self) -> float:
        """Return the seconds since the start."""
        return time.monotonic() - self._start


def versions() -> dict[str, str]:
    """Return the versions of everything that takes part in a result."""
    packages = ("ldp-beam", "apache-beam", "numpy", "pyarrow", "fastavro", "cryptography")
    found = {name: importlib.metadata.version(name) for name in packages}
    return {**found, "python": platform.python_version()}
