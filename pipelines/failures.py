"""What made a run fail, in a paragraph: found again in what an engine reports."""

from __future__ import annotations

import logging
import re
from contextlib import AbstractContextManager
from types import TracebackType

from .. import errors
from ..errors import LdpBeamError, RunError

__all__ = ["WorkerErrors", "translated"]

#: Where a worker says, with its traceback, that a bundle failed.
_WORKER_LOGGER = "apache_beam.runners.worker.sdk_worker"
#: What Prism tells of a job where a bundle failed, if it sees that nothing goes on before it sees the failure.
_STANDSTILL = "nothing in progress"

_STAGE = re.compile(r"\s*\[while running '.*", re.DOTALL)
_OURS = re.compile(
    r"ldp_beam\.errors\.(\w+): (.*?)(?:\s*\[while running| \[\'|\n\n|\n\s*at |\\n|\nDuring handling|\Z)", re.DOTALL
)
#: Texts of engines, workers and systems, and what they mean to somebody who does not know the engine.
_KNOWN = (
    (
        r"No space left on device|Disk quota exceeded|File too large",
        "a disk is full ({match}): free some space where the output, the temporary folder or the engine's folders are",
    ),
    (
        r"ModuleNotFoundError: No module named '([\w.]+)'",
        "a worker lacks the module {group}: install the same version of ldp-beam on every worker, or stage its wheel "
        "with --extra_package",
    ),
    (
        r"(?:AttributeError|ImportError|UnpicklingError|TypeError): [^\n]*(?:pickle|unpickl|Can't get attribute|"
        r"cannot import name|code expected at most|code\(\) argument)[^\n]*",
        "a worker cannot load this job ({match}): its Python, apache-beam and ldp-beam must be those of this machine",
    ),
    (
        r'Cannot run program "docker"[^\n]*|docker: command not found|Cannot connect to the Docker daemon[^\n]*',
        "workers were to run in Docker, which the engine's machines lack ({match}): give --environment_type "
        "EXTERNAL with a pool of workers, or PROCESS",
    ),
    (
        r"java\.lang\.OutOfMemoryError: [^\n]*",
        "the engine ran out of memory ({match}): start it with more, or lower --workers",
    ),
    (
        r"SDK harness[^\n]*(?:closed|disconnected|terminated)[^\n]*|Worker process[^\n]*died[^\n]*"
        r"|Multiplexer hanging up|SDK Harness disconnected|SDKHarness[^\n]*"
        r"|sdk worker[^\n]*(?:exited|terminated|failed)[^\n]*|Channel closed before[^\n]*",
        "a Python worker ended in the middle of the job ({match}): it may have been killed for want of memory",
    ),
    (
        r"Connection refused[^\n]*|failed to connect to all addresses[^\n]*|Could not (?:complete|retrieve)[^\n]*",
        "a part of the engine does not answer ({match})",
    ),
)


class WorkerErrors(AbstractContextManager["WorkerErrors"]):
    """Within the block, the last error of the workers that run inside this process is kept.

    Prism tells one cause of a failed job, which need not be that error.
    """

    def __init__(self) -> None:
        self.last = ""
        self._logger = logging.getLogger(_WORKER_LOGGER)

    def __enter__(self) -> WorkerErrors:
        self._before = self._logger.level, self._logger.propagate
        self._handler = _Keeps(self)
        if not self._logger.isEnabledFor(logging.ERROR):
            self._logger.setLevel(logging.ERROR)
            self._logger.propagate = False
        self._logger.addHandler(self._handler)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._logger.removeHandler(self._handler)
        level, self._logger.propagate = self._before
        self._logger.setLevel(level)


class _Keeps(logging.Handler):
    def __init__(self, kept: WorkerErrors) -> None:
        super().__init__(logging.ERROR)
        self._kept = kept

    def emit(self, record: logging.LogRecord) -> None:
        self._kept.last = record.getMessage()


def translated(error: BaseException, workers: WorkerErrors | None = None) -> LdpBeamError:
    """Find our own error in what an engine raised: as a cause, or as text that came back from a worker.

    Args:
        error: what the engine raised.
        workers: what workers inside this process raised, for an engine that does not say it.
    """
    cause: BaseException | None = error
    while cause is not None:
        if isinstance(cause, LdpBeamError):
            return type(cause)(_STAGE.sub("", str(cause)))
        cause = cause.__cause__ or cause.__context__
    text = str(error)
    if workers is not None and workers.last and _STANDSTILL in text:
        text = workers.last
    found = _OURS.findall(text)
    if found:
        name, message = found[-1]
        kind = getattr(errors, name, RunError)
        if isinstance(kind, type) and issubclass(kind, LdpBeamError):
            return kind(" ".join(message.split()))
    return RunError(f"The run failed: {_meaning(text) or _last_line(text, error)}. Nothing was published.")


def _meaning(text: str) -> str | None:
    for pattern, meaning in _KNOWN:
        match = re.search(pattern, text)
        if match:
            said = match.group(0).strip().rstrip(".")[:200]
            return meaning.format(match=said, group=match.group(1) if match.groups() else "")
    return None


def _last_line(text: str, error: BaseException) -> str:
    lines = [line.strip() for line in text.splitlines() if line.strip() and not line.strip().startswith("at ")]
    last = lines[-1] if lines else type(error).__name__
    return f"{last.rstrip('.')[:400]} (--traceback shows where)"
