"""Job servers: one process that takes pipelines over Beam's job API and runs them on an engine.

Without a cluster to talk to, Flink's and Spark's job servers hold the whole engine inside, and Prism is both.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import grpc
from apache_beam.portability.api import beam_job_api_pb2, beam_job_api_pb2_grpc

from ..errors import InputError, RunError, did_you_mean
from .java import OPENED, java_command
from .processes import Process, free_port, temporary_folder, terminated_as_interrupt, wait_until
from .resolve import resolve

__all__ = ["ENGINES", "JobServer", "JobServerOptions", "answers", "job_server", "launch_job_server", "scratch_folder"]

#: Engines that run in a process of their own.
ENGINES = ("prism", "flink", "spark")

_START_SECONDS = 180.0
#: A port that was free may be taken before the engine listens on it.
_ATTEMPTS = 3


@dataclass(frozen=True, kw_only=True)
class JobServerOptions:
    """What a job server is started with.

    Attributes:
        master: the cluster ("host:port" for Flink, "spark://host:port"), or "" for an engine inside.
        workers: tasks at a time of an engine inside.
        jar: a ready-made job-server jar (flink, spark), or None to use the class path of our own pom.
        binary: a ready-made Prism, or None to use ours.
        java: further options of Java, such as "-Xmx4g".
        retries: how often Flink starts a job again, and a local Spark a task, before the run fails.
        retry_delay: milliseconds before Flink does so.
    """

    master: str = ""
    workers: int = 1
    jar: str | None = None
    binary: str | None = None
    java: tuple[str, ...] = ()
    retries: int = 3
    retry_delay: int = 1000


@dataclass(frozen=True)
class JobServer:
    """A running job server."""

    engine: str
    endpoint: str
    process: Process


@contextlib.contextmanager
def job_server(engine: str, options: JobServerOptions | None = None) -> Iterator[JobServer]:
    """Run a job server for the time of a `with` block, and nothing of it beyond.

    Args:
        engine: "prism", "flink" or "spark".
        options: how to start it.

    Raises:
        InputError: The engine is unknown, or a tool that it needs is missing.
        RunError: It cannot be fetched, or does not start.
    """
    with scratch_folder() as folder, terminated_as_interrupt():
        server = launch_job_server(engine, options or JobServerOptions(), folder, guarded=True)
        try:
            yield server
        finally:
            server.process.stop()


@contextlib.contextmanager
def scratch_folder() -> Iterator[Path]:
    """Yield a folder for what an engine stages, logs and spills, and delete it afterwards."""
    # A process that was ended by force may still write for a moment.
    with temporary_folder("ldp-beam-engine-", ignore_errors=True) as folder:
        yield Path(folder)


def launch_job_server(engine: str, options: JobServerOptions, folder: Path, *, guarded: bool = False) -> JobServer:
    """Start a job server that stays until its process is stopped, or where guarded until ours ends.

    Args:
        engine: "prism", "flink" or "spark".
        options: how to start it.
        folder: takes its files.
        guarded: see `Process`.

    Raises:
        InputError: The engine is unknown, or a tool that it needs is missing.
        RunError: It cannot be fetched, or does not start.
    """
    if engine not in ENGINES:
        raise InputError(f"Unknown engine {engine!r}. {did_you_mean(engine, ENGINES)}")
    failed: RunError | None = None
    for _ in range(_ATTEMPTS):
        port = free_port()
        process = Process(
            f"the job server of {engine}",
            _COMMANDS[engine](options, port, folder),
            log=folder / f"{engine}-job-server.log",
            env={"SPARK_LOCAL_DIRS": str(folder)},
            folder=folder,
            guarded=guarded,
        )
        endpoint = f"localhost:{port}"
        try:
            wait_until(lambda at=endpoint: answers(at), engine.capitalize(), [process], seconds=_START_SECONDS)  # type: ignore[misc]  # a default binds the loop's value
        except RunError as error:
            process.stop()
            failed = error
            if "in use" not in str(error).lower() and "bind" not in str(error).lower():
                break
        except BaseException:
            process.stop()
            raise
        else:
            return JobServer(engine, endpoint, process)
    raise failed or RunError(f"{engine} did not start.")


def answers(endpoint: str, *, seconds: float = 2.0) -> bool:
    """Return whether a job service answers at host:port."""
    with grpc.insecure_channel(endpoint) as channel:
        service = beam_job_api_pb2_grpc.JobServiceStub(channel)
        try:
            service.GetJobs(beam_job_api_pb2.GetJobsRequest(), timeout=seconds)
        except grpc.RpcError as error:
            # A service that does not know the question has answered.
            return bool(error.code() == grpc.StatusCode.UNIMPLEMENTED)
    return True


# -- commands ---------------------------------------------------------------------------------------------


def _java_server(
    engine: str, main: str, options: JobServerOptions, port: int, folder: Path, *, master: list[str], java: list[str]
) -> list[str]:
    source: Path | str = options.jar or resolve(engine)
    if options.jar and not Path(options.jar).is_file():
        raise InputError(f"--job-server-jar {options.jar} does not exist. Leave it out to use the class path of ours.")
    arguments = [
        *("--job-host", "localhost", "--job-port", str(port)),
        *("--artifact-port", "0", "--expansion-port", "0"),
        *("--artifacts-dir", str(folder / "artifacts"), *master),
    ]
    return java_command(
        source, None if options.jar else main, arguments, scratch=folder, options=[*java, *options.java]
    )


def _flink(options: JobServerOptions, port: int, folder: Path) -> list[str]:
    conf = folder / "conf"
    conf.mkdir(exist_ok=True)
    settings = {
        "restart-strategy.type": "fixed-delay" if options.retries > 0 else "none",
        "restart-strategy.fixed-delay.attempts": max(options.retries, 1),
        "restart-strategy.fixed-delay.delay": f"{options.retry_delay} ms",
    }
    if not options.master:
        # By default checkpoints stay in memory, 5 MB a task at most: open windows with ids or many keys hold more.
        settings |= {
            "state.checkpoint-storage": "filesystem",
            "state.checkpoints.dir": (folder / "checkpoints").as_uri(),
        }
    (conf / "flink-conf.yaml").write_text("".join(f"{name}: {value}\n" for name, value in settings.items()))
    master = ["--flink-master", options.master or "[local]", "--flink-conf-dir", str(conf)]
    main = "org.apache.beam.runners.flink.FlinkJobServerDriver"
    return _java_server("flink", main, options, port, folder, master=master, java=[])


def _spark(options: JobServerOptions, port: int, folder: Path) -> list[str]:
    # A local Spark gives up at the first failure of a task unless told how many a task may have.
    master = ["--spark-master-url", options.master or f"local[{options.workers},{options.retries + 1}]"]
    java = [
        "-Dspark.ui.enabled=false",
        f"-Dspark.executor.extraJavaOptions={' '.join(OPENED)}",
        f"-Dspark.task.maxFailures={options.retries + 1}",
    ]
    main = "org.apache.beam.runners.spark.SparkJobServerDriver"
    return _java_server("spark", main, options, port, folder, master=master, java=java)


def _prism(options: JobServerOptions, port: int, folder: Path) -> list[str]:
    del folder
    binary = options.binary or str(resolve("prism") / "prism")
    return [binary, f"--job_port={port}", "--serve_http=false", "--log_kind=text", "--log_level=warn"]


_COMMANDS = {"flink": _flink, "spark": _spark, "prism": _prism}
