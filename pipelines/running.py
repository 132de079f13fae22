"""Running a pipeline: engine, errors that come back from workers, versions, the clock."""

from __future__ import annotations

import importlib.metadata
import platform
import re
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any

import apache_beam as beam

from .. import errors
from ..errors import LdpBeamError, RunError
from .beam_options import local_options, runner_for

__all__ = ["Clock", "Engine", "engine_pipeline", "versions"]

_STAGE = re.compile(r"\s*\[while running '.*", re.DOTALL)
_OURS = re.compile(r"ldp_beam\.errors\.(\w+): (.*?)(?: \[while running| \[\'|\n\n|\Z)", re.DOTALL)


@dataclass(frozen=True, kw_only=True)
class Engine:
    """Where a run takes place.

    Attributes:
        name: "direct" (in this process).
        workers: threads of the local runner.
        beam_arguments: further options that pass through to Beam.
    """

    name: str = "direct"
    workers: int = 1
    beam_arguments: tuple[str, ...] = ()

    def as_json(self) -> dict[str, Any]:
        """Return the fields for the manifest."""
        return {"name": self.name, "workers": self.workers, "beam_arguments": list(self.beam_arguments)}


@contextmanager
def engine_pipeline(engine: Engine) -> Iterator[beam.Pipeline]:
    """Yield a pipeline that runs, and is waited for, when the block ends.

    Raises:
        LdpBeamError: Our own error, found again in what the engine reports.
        RunError: Anything else that made the run fail.
    """
    pipeline = beam.Pipeline(
        runner=runner_for(engine.name), options=local_options(engine.workers, engine.beam_arguments)
    )
    yield pipeline
    try:
        pipeline.run().wait_until_finish()
    except Exception as error:
        raise _translated(error) from error


def _translated(error: BaseException) -> LdpBeamError:
    """Find our own error in what an engine raised: as a cause, or as text that came back from a worker."""
    cause: BaseException | None = error
    while cause is not None:
        if isinstance(cause, LdpBeamError):
            return type(cause)(_STAGE.sub("", str(cause)))
        cause = cause.__cause__ or cause.__context__
    found = _OURS.findall(str(error))
    if found:
        name, message = found[-1]
        kind = getattr(errors, name, RunError)
        if isinstance(kind, type) and issubclass(kind, LdpBeamError):
            return kind(message.strip())
    last = str(error).strip().splitlines()[-1] if str(error).strip() else type(error).__name__
    return RunError(f"The run failed: {last}. Nothing was published. --traceback shows where.")


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
