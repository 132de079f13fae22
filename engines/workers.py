"""A pool of Python workers outside the engine: what a cluster calls to get its SDK workers."""

from __future__ import annotations

import sys
from pathlib import Path

import grpc

from .processes import Process, free_port, wait_until

__all__ = ["WorkerPool"]

_START_SECONDS = 60.0


class WorkerPool:
    """A running `python -m ldp_beam.engines.worker_pool`; each worker is a process of its group.

    Args:
        folder: takes the log.
        python: the interpreter; None for that of this process.
    """

    def __init__(self, folder: Path, *, python: str | None = None) -> None:
        port = free_port()
        self.address = f"localhost:{port}"
        command = [python or sys.executable, "-m", "ldp_beam.engines.worker_pool", "--port", str(port)]
        self.process = Process("the pool of Python workers", command, log=folder / "workers.log", folder=folder)
        try:
            wait_until(self._answers, "The pool of Python workers", [self.process], seconds=_START_SECONDS)
        except BaseException:
            self.process.stop()
            raise

    def _answers(self) -> bool:
        with grpc.insecure_channel(self.address) as channel:
            try:
                grpc.channel_ready_future(channel).result(timeout=2)
            except grpc.FutureTimeoutError:
                return False
        return True

    def stop(self) -> None:
        """End the pool and its workers."""
        self.process.stop()
