"""An engine, ready to take pipelines: started where nobody runs it yet, and stopped when the command ends.

Within an `engine_session` an engine is started at most once, so the rounds of a collection share it.
"""

from __future__ import annotations

import contextlib
import tempfile
import threading
import zipfile
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import grpc
from apache_beam.options.pipeline_options import PipelineOptions
from apache_beam.runners.portability.fn_api_runner import FnApiRunner
from apache_beam.runners.portability.portable_runner import PortableRunner

from ..engines import JobServerOptions, beams_runner, job_server, temporary_folder
from .beam_options import local_options
from .engine_target import Target, without
from .preflight import check_docker

if TYPE_CHECKING:
    from .running import Engine

__all__ = ["Runtime", "engine_session", "open_runtime", "own_runtime"]

#: How often an engine starts what failed again, and after how many milliseconds: a worker that died is not the end.
RETRIES, RETRY_DELAY = 3, 1000


@dataclass(frozen=True)
class Runtime:
    """A runner and its options.

    Attributes:
        target: where it runs.
        runner: Beam's runner.
        arguments: options for a `PipelineOptions`, which Beam changes when it runs.
        checked: whether its workers have been checked; a list so that it can be noted.
    """

    target: Target
    runner: Any
    arguments: tuple[str, ...]
    checked: list[bool] = field(default_factory=list)

    def options(self) -> PipelineOptions:
        """Return fresh options of a run."""
        return PipelineOptions(list(self.arguments))


class _Session:
    """The engines that are open, by what was asked for."""

    def __init__(self) -> None:
        self.stack = ExitStack()
        self.runtimes: dict[tuple[Engine, Target], Runtime] = {}


_sessions: list[_Session] = []


@contextlib.contextmanager
def engine_session() -> Iterator[None]:
    """Keep engines that are started within the block until its end; blocks may stand in one another."""
    if _sessions:
        yield
        return
    session = _Session()
    _sessions.append(session)
    try:
        with session.stack:
            yield
    finally:
        _sessions.remove(session)


@contextlib.contextmanager
def open_runtime(engine: Engine) -> Iterator[Runtime]:
    """Yield an engine that takes pipelines, starting what is needed.

    Raises:
        InputError: Options contradict each other, or a tool is missing.
        RunError: The engine does not start.
    """
    with engine_session():
        session, target = _sessions[0], engine.target()
        if (engine, target) not in session.runtimes:
            session.runtimes[engine, target] = session.stack.enter_context(_started(engine, target))
        yield session.runtimes[engine, target]


@contextlib.contextmanager
def own_runtime(engine: Engine) -> Iterator[Runtime]:
    """Yield an engine that nobody else uses and that ends with the block: what surely ends a job that has no end.

    Raises:
        InputError: Options contradict each other, or a tool is missing.
        RunError: The engine does not start.
    """
    with _started(engine, engine.target()) as runtime:
        yield runtime


@contextlib.contextmanager
def _started(engine: Engine, target: Target) -> Iterator[Runtime]:
    if target.engine == "direct":
        options = local_options(engine.workers, without(engine.beam_arguments, ("runner",)))
        yield Runtime(target, FnApiRunner(), tuple(options._flags))  # the flags as given; no public name exists
        return
    check_docker(target)
    if target.beam_runner:
        with _staging(), _hang_ups_are_no_errors(), beams_runner(target.beam_runner) as runner:
            yield Runtime(target, runner, tuple(_arguments(engine, target, "")))
        return
    with _staging() as folder, _hang_ups_are_no_errors(), _endpoint(engine, target) as endpoint:
        arguments = _arguments(engine, target, endpoint)
        if target.has_jars and "files_to_stage" not in engine.known():
            arguments.append(f"--files_to_stage={_empty_jar(folder)}")
        yield Runtime(target, PortableRunner(), tuple(arguments))


@contextlib.contextmanager
def _endpoint(engine: Engine, target: Target) -> Iterator[str]:
    if target.endpoint:
        yield target.endpoint
        return
    options = JobServerOptions(
        master=target.master,
        workers=engine.workers,
        jar=target.jar,
        binary=engine.known().get("prism_location"),
        java=tuple(engine.known().get("job_server_jvm_properties", ())),
        retries=int(engine.known().get("number_of_execution_retries", RETRIES)),
        retry_delay=int(engine.known().get("execution_retry_delay", RETRY_DELAY)),
    )
    with job_server(target.engine, options) as server:
        yield server.endpoint


def _arguments(engine: Engine, target: Target, endpoint: str) -> list[str]:
    """Return Beam's options: those given, and ours where nothing was given."""
    known = engine.known()
    arguments = without(engine.beam_arguments, ("runner", "environment_type"))
    if target.environment:
        arguments.append(f"--environment_type={target.environment}")
    if target.config and not known.get("environment_config"):
        arguments.append(f"--environment_config={target.config}")
    if endpoint:
        arguments = without(arguments, ("job_endpoint", "flink_master", "spark_master_url", "prism_location"))
        arguments.append(f"--job_endpoint={endpoint}")
    if target.engine == "flink":
        defaults = {"number_of_execution_retries": RETRIES, "execution_retry_delay": RETRY_DELAY}
        if target.master == "" or engine.workers > 1:
            defaults["parallelism"] = engine.workers
        arguments += [f"--{name}={value}" for name, value in defaults.items() if name not in known]
    return arguments


def _empty_jar(folder: str) -> Path:
    """Make a jar without content: to stage it keeps Spark from staging, at every job, all that it has already."""
    path = Path(folder, "nothing.jar")
    with zipfile.ZipFile(path, "w"):
        return path


@contextlib.contextmanager
def _hang_ups_are_no_errors() -> Iterator[None]:
    """Say nothing when an engine ends the workers in this process: their threads then meet a closed channel."""
    before = threading.excepthook

    def hook(arguments: threading.ExceptHookArgs) -> None:
        hung_up = isinstance(arguments.exc_value, grpc.RpcError)
        if not hung_up:
            before(arguments)

    threading.excepthook = hook
    try:
        yield
    finally:
        threading.excepthook = before


@contextlib.contextmanager
def _staging() -> Iterator[str]:
    """Let Beam stage into a folder that goes away; it would leave its own in the temporary folder."""
    before = tempfile.tempdir
    with temporary_folder("ldp-beam-staging-", ignore_errors=True) as folder:
        tempfile.tempdir = folder
        try:
            yield folder
        finally:
            tempfile.tempdir = before
