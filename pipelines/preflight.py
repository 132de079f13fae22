"""Checks before a run on workers that are not this process: their versions, and whether both sides see what is written.

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
from apache_beam.io.filesystem import CompressionTypes
from apache_beam.io.filesystems import FileSystems

from ..engines import docker_answers
from ..errors import InputError, RunError
from ..transforms.paths import is_local, store_hint
from ..transforms.store_clients import share_clients
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
        markers: folders where the run will write, or prefixes in a store, each with the name of the marker that
            `marker_in` put there.
    """

    def __init__(self, expected: Mapping[str, str], markers: Mapping[str, str]) -> None:
        super().__init__()
        self._check = _Check(dict(expected), dict(markers))

    def expand(self, begin: beam.pvalue.PBegin) -> beam.PCollection[str]:
        return (
            begin
            | "Probes" >> beam.Create(list(range(_PROBES)), reshuffle=False)
            | beam.Reshuffle()
            | "Check" >> beam.ParDo(self._check).with_output_types(str)
        )


class _Check(beam.DoFn):
    def __init__(self, expected: dict[str, str], markers: dict[str, str]) -> None:
        self._expected, self._markers = expected, markers
        self._seen: set[str] = set()

    def process(self, element: int) -> Iterator[str]:
        host = socket.gethostname()
        found = worker_versions()
        wrong = [f"{name} {found[name]} (here {self._expected[name]})" for name in found if self._differs(name, found)]
        if wrong:
            raise InputError(
                f"The worker on {host} has other versions than this machine: {', '.join(wrong)}. Install the same "
                "on both; nothing was read."
            )
        for folder in self._markers.keys() - self._seen:
            check = _check_folder if is_local(folder) else _check_store
            check(host, folder, self._markers[folder])
            self._seen.add(folder)  # a worker's copy of this object looks once
        yield host

    def _differs(self, name: str, found: Mapping[str, str]) -> bool:
        return found[name] != self._expected[name]


def _check_folder(host: str, folder: str, marker: str) -> None:
    if not Path(folder, marker).is_file():
        raise InputError(
            f"The worker on {host} does not see the output folder {_shown(folder)} of this machine. Give a folder on a "
            "file system that all machines share, or a prefix in an object store; nothing was read."
        )
    try:
        Path(folder, _answer()).touch()
    except OSError as error:
        raise InputError(
            f"The worker on {host} cannot write to the output folder {_shown(folder)}: {error.strerror or error}. Give "
            "a folder that workers may write to; nothing was read."
        ) from error


def _check_store(host: str, folder: str, marker: str) -> None:
    share_clients(folder)
    try:
        seen = FileSystems.exists(f"{folder}/{marker}")
        _write(f"{folder}/{_answer()}")
    except Exception as error:  # what clients of stores raise is of any type
        raise InputError(
            f"The worker on {host} cannot write to {folder} ({type(error).__name__}: {error}). Workers send their part "
            f"of the result there themselves and need the credentials of the store.{store_hint(folder)} Nothing was "
            "read."
        ) from error
    if not seen:
        raise InputError(
            f"The worker on {host} does not find in {folder} what this machine put there: it talks to another store. "
            "Give workers the endpoint and the credentials that this machine has; nothing was read."
        )


def _answer() -> str:
    return f"{_ANSWER}{uuid.uuid4().hex}"


def _write(path: str) -> None:
    with FileSystems.create(path, compression_type=CompressionTypes.UNCOMPRESSED) as file:
        file.write(b"ldp-beam")


def _shown(folder: str) -> Path:
    """What a person calls a folder: a staging folder lies beside the wanted one."""
    path = Path(folder)
    return path.parent if path.name.startswith(".") else path


def marker_in(folder: str) -> str:
    """Put a file into a folder that workers have to see, or under a prefix in a store, and return its name."""
    name = f".here-{uuid.uuid4().hex}"
    if is_local(folder):
        Path(folder, name).touch()
    else:
        _write(f"{folder}/{name}")
    return name


def clear_answers(folder: str, marker: str) -> None:
    """Take away what the check left, and require that some worker's file is among it.

    Raises:
        RunError: Workers wrote, and nothing arrived here.
    """
    if is_local(folder):
        answers = [str(path) for path in Path(folder).glob(f"{_ANSWER}*")]
    else:
        (match,) = FileSystems.match([f"{folder}/{_ANSWER}*"])
        answers = [entry.path for entry in match.metadata_list]
    FileSystems.delete([*answers, f"{folder}/{marker}"])
    if not answers:
        raise RunError(
            f"The workers wrote into {_shown(folder) if is_local(folder) else folder}, and nothing of it can be seen "
            "from this machine. Give an output folder on a file system that all machines share."
        )
