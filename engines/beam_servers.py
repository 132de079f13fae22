"""Runners of Beam that start a job server by themselves, such as that of another Flink: it ends with us, as ours do.

Beam starts one for each pipeline and stops them when Python ends, in files that are gone by then, or not at all where
our process is killed.
"""

from __future__ import annotations

import contextlib
import os
import subprocess
import weakref
from collections.abc import Iterator, Sequence
from types import SimpleNamespace
from typing import Any

from apache_beam.options.pipeline_options import PipelineOptions
from apache_beam.runners.portability.job_server import StopOnExitJobServer
from apache_beam.runners.runner import create_runner
from apache_beam.utils import subprocess_server

from .processes import guard_command, terminated_as_interrupt

__all__ = ["beams_runner"]


@contextlib.contextmanager
def beams_runner(name: str) -> Iterator[Any]:
    """Yield a runner of Beam, by name; all its pipelines share one job server, which runs for the time of the block.

    Args:
        name: "FlinkRunner" or "SparkRunner".
    """
    runner = create_runner(name)
    make = runner.default_job_server
    servers: list[StopOnExitJobServer] = []

    def one(options: PipelineOptions) -> Any:
        if servers:
            return servers[0]
        made = make(options)
        if isinstance(made, StopOnExitJobServer):  # others, for uber jars, are no process and belong to one pipeline
            servers.append(made)
        return made

    runner.default_job_server = one
    with terminated_as_interrupt(), _guarded_servers():
        try:
            yield runner
        finally:
            for server in servers:
                server.stop()


class _Guarded(subprocess.Popen[bytes]):
    """A process that runs under a guard, in a group of its own; a signal goes to all of the group."""

    def __init__(self, command: Sequence[str], **more: Any) -> None:
        read, write = os.pipe()
        weakref.finalize(self, os.close, write)
        try:
            super().__init__(guard_command(command), stdin=read, start_new_session=True, **more)
        finally:
            os.close(read)

    def send_signal(self, sig: int) -> None:
        if self.poll() is None:
            os.killpg(self.pid, sig)


@contextlib.contextmanager
def _guarded_servers() -> Iterator[None]:
    """Let whatever Beam starts within the block run under a guard."""
    before = subprocess_server.subprocess
    subprocess_server.subprocess = SimpleNamespace(**{**vars(subprocess), "Popen": _Guarded})
    try:
        yield
    finally:
        subprocess_server.subprocess = before
