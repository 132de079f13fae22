"""Checks before a run on workers that are not this process: their versions, and whether we see what they write.

The checks are a small job of their own on the same engine, so that a worker that cannot run ours is refused
before it sees a record.
"""

from __future__ import annotations

import importlib.metadata
import platform
import socket
import uuid
from collections.abc import Iterator, Mapping
from pathlib import Path

import apache_beam as beam

from ..engines import docker_answers
from ..errors import InputError, RunError
from .engine_target import Target

__all__ = ["CheckWorkers", "check_docker", "marker_in", "worker_versions"]

#: Elements of the check, so that several workers get one.
_PROBES = 8
_ANSWER = ".worker-"


def worker_versions() -> dict[str, str]:
    """Return the versions that have to be the same on every machine of a run."""
    return {
        "Python": ".".join(platform.python_version_tuple()[:2]),
        "apache-beam": importlib.metadata.version("apache-beam"),
        "ldp-beam": importlib.metadata.version("ldp-beam"),
    }


def check_docker(target: Target) -> None:
    """Refuse workers in containers where Docker does not answer, before anything is submitted.

    Only an engine on this machine is asked for; a cluster has its own Docker.

    Raises:
        InputError: Docker is absent.
    """
    here = target.master == "" and (not target.endpoint or target.endpoint.startswith(("localhost:", "127.0.0.1:")))
    if target.environment != "DOCKER" or not here or docker_answers():
        return
    raise InputError(
        f"The workers of {target.engine} would run in Docker (Beam's default outside this process), and Docker does "
        "not answer on this machine. Give --environment_type LOOPBACK to run them in this process, or start "
        "a pool of workers (python -m ldp_beam.engines.worker_pool --port 50000) and give --environment_type "
        "EXTERNAL --environment_config localhost:50000."
    )


class CheckWorkers(beam.PTransform):
    """A pipeline's root that fails where a worker is not fit for our jobs.

    Args:
        expected: what `worker_versions` gives here.
        folder: where the run will write, with a marker that `marker_in` put there; None to leave it out.
        marker: the marker's name.
    """

    def __init__(self, expected: Mapping[str, str], folder: str | None = None, marker: str = "") -> None:
        super().__init__()
        self._check = _Check(dict(expected), folder, marker)

    def expand(self, begin: beam.pvalue.PBegin) -> beam.PCollection[str]:
        return (
            begin
            | "Probes" >> beam.Create(list(range(_PROBES)), reshuffle=False)
            | beam.Reshuffle()
            | "Check" >> beam.ParDo(self._check).with_output_types(str)
        )


class _Check(beam.DoFn):
    def __init__(self, expected: dict[str, str], folder: str | None, marker: str) -> None:
        self._expected, self._folder, self._marker = expected, folder, marker

    def process(self, element: int) -> Iterator[str]:
        host = socket.gethostname()
        found = worker_versions()
        wrong = [f"{name} {found[name]} (here {self._expected[name]})" for name in found if self._differs(name, found)]
        if wrong:
            raise InputError(
                f"The worker on {host} has other versions than this machine: {', '.join(wrong)}. Install the same "
                "on both; nothing was read."
            )
        if self._folder is not None:
            if not Path(self._folder, self._marker).is_file():
                raise InputError(
                    f"The worker on {host} does not see the output folder {Path(self._folder).parent} of this machine. "
                    "Give a folder on a file system that all machines share; nothing was read."
                )
            Path(self._folder, f"{_ANSWER}{uuid.uuid4().hex}").touch()
        yield host

    def _differs(self, name: str, found: Mapping[str, str]) -> bool:
        return found[name] != self._expected[name]


def marker_in(folder: Path) -> str:
    """Put a file into a folder that workers have to see, and return its name."""
    name = f".here-{uuid.uuid4().hex}"
    (folder / name).touch()
    return name


def clear_answers(folder: Path, marker: str) -> None:
    """Take away what the check left, and require that some worker's file is among it.

    Raises:
        RunError: Workers wrote, and nothing arrived here.
    """
    answers = list(folder.glob(f"{_ANSWER}*"))
    for path in (*answers, folder / marker):
        path.unlink(missing_ok=True)
    if not answers:
        raise RunError(
            f"The workers wrote into {folder.parent}, and nothing of it can be seen from this machine. Give an output "
            "folder on a file system that all machines share."
        )
