"""Streams whose workers are not this process, and streams on a cluster: what must hold before, and how they end."""

from __future__ import annotations

import contextlib
import hashlib
import shutil
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Final

from ..engines import cancel_flink_jobs
from ..errors import InputError, NotAvailableError
from ..transforms.slice_records import Clients
from .engine_target import Target, without
from .running import check_workers
from .runtime import Runtime
from .stream_folder import CHECK_FOLDER

__all__ = ["check_placement", "fit_workers", "job_name", "on_cluster"]

#: Options that make a job a stream.
_OF_STREAMS: Final = ("streaming", "checkpointing_interval", "finish_bundle_before_checkpointing")


def check_placement(target: Target, clients: Clients | None) -> None:
    """Refuse workers outside this process where they would give other results.

    Raises:
        NotAvailableError: The engine is not Flink.
        InputError: The clients keep files that only this machine can lock.
    """
    if target.shares_disk:
        return
    if target.engine != "flink":
        raise NotAvailableError.of(
            f"stream --engine {target.engine} with --environment_type {target.environment}",
            instead="Leave --environment_type out, or give --engine flink. Prism takes the watermark of one partition "
            "for that of all; what makes up for it works among the workers of one process only.",
        )
    kept = None if clients is None else "--ledger" if clients.charge else "--memoise" if clients.memo else None
    if kept is not None:
        raise InputError(
            f"{kept} with --environment_type {target.environment}: each slice is charged by the worker that makes its "
            "reports, and the file can be locked safely on this machine only. Leave --environment_type out, so that "
            "workers run in this process."
        )


def fit_workers(runtime: Runtime, output: Path) -> None:
    """Let workers on other machines show that they run our jobs and see the output folder.

    Raises:
        LdpBeamError: They do not.
    """
    if runtime.target.shares_disk:
        return
    place = output / CHECK_FOLDER
    place.mkdir(exist_ok=True)
    # Flink keeps the sources of a job with checkpoints up for ever, so this one has none.
    bounded = replace(runtime, arguments=tuple(without(runtime.arguments, _OF_STREAMS)))
    try:
        check_workers(bounded, [str(place)])
    finally:
        shutil.rmtree(place, ignore_errors=True)


def job_name(given: str | None, output: Path) -> str:
    """Return the name of a stream's job: the same whenever it writes into the same folder, and nobody else's."""
    return f"{given or 'ldp-beam-stream'}-{hashlib.sha256(str(output).encode()).hexdigest()[:12]}"


@contextlib.contextmanager
def on_cluster(target: Target, name: str) -> Iterator[None]:
    """End what an earlier run that was killed left on the cluster, and at the end of the block what this one leaves.

    Raises:
        RunError: The cluster does not answer, or a job does not end.
    """
    if target.engine != "flink" or not target.master:
        yield
        return
    cancel_flink_jobs(target.master, name)
    try:
        yield
    finally:
        cancel_flink_jobs(target.master, name)
