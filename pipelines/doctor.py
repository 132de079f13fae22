"""`doctor`: what this machine can run. A tiny job goes to every engine; nothing is concluded from a version alone."""

from __future__ import annotations

import importlib.metadata
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import apache_beam as beam

from ..engines import (
    KAFKA,
    TOOLS,
    KafkaBroker,
    docker_answers,
    free_port,
    is_resolved,
    pinned_versions,
    temporary_folder,
    tool_version,
)
from ..errors import LdpBeamError, RunError
from ..schemas.kafka_config import KafkaAddress
from ..transforms.kafka_client import read_all, require_kafka, send
from .engine_target import ENGINES
from .running import Clock, Engine, engine_pipeline, versions

__all__ = ["Diagnosis", "diagnose"]

_NUMBERS = 1000


@dataclass(frozen=True, kw_only=True)
class Diagnosis:
    """What was found.

    Attributes:
        engines: by name: ok, version, seconds of the tiny job (its start included), and the problem if any.
        tools: version of each program, None where it is absent.
        versions: of Python and of our packages.
        docker: whether Docker answers; only `--environment_type DOCKER` needs it.
        kafka: like an engine; the broker for streams. None where it was not asked for.
    """

    engines: dict[str, dict[str, Any]]
    tools: dict[str, str | None]
    versions: dict[str, str]
    docker: bool
    kafka: dict[str, Any] | None = None

    def as_json(self) -> dict[str, Any]:
        """Return the object that `doctor --json` prints."""
        found = {"engines": self.engines, "tools": self.tools, "versions": self.versions, "docker": self.docker}
        return found if self.kafka is None else {**found, "kafka": self.kafka}


def diagnose(
    engines: Sequence[str] = (*ENGINES, KAFKA),
    *,
    fetch: bool = True,
    say: Callable[[str], None] = lambda _: None,
) -> Diagnosis:
    """Run a tiny job on each engine, and send a message through a broker.

    Args:
        engines: their names; "kafka" is the broker.
        fetch: fetch engines that are not in the cache yet.
        say: is told what takes long.
    """
    found: dict[str, dict[str, Any]] = {}
    for name in engines:
        say(f"Trying {name} …")
        found[name] = _try(name, fetch)
    kafka = found.pop(KAFKA, None)
    return Diagnosis(
        engines=found,
        kafka=kafka,
        tools={name: tool_version(name) for name in TOOLS},
        versions=versions(),
        docker=docker_answers(),
    )


def _try(name: str, fetch: bool) -> dict[str, Any]:
    clock, version = Clock(), _version(name)
    problem = None
    if name != "direct" and not fetch and not is_resolved(name):
        problem = f"{name} is not in the cache yet; its first use fetches it."
    else:
        try:
            if name == KAFKA:
                _one_message()
            else:
                _tiny_job(Engine(name=name))
        except LdpBeamError as error:
            problem = str(error)
    result = {"ok": problem is None, "version": version, "seconds": round(clock.seconds(), 2)}
    return result if problem is None else {**result, "problem": problem}


def _version(name: str) -> str:
    if name == "direct":
        return importlib.metadata.version("apache-beam")
    return ", ".join(f"{part} {version}" for part, version in pinned_versions(name).items() if "slf4j" not in part)


def _tiny_job(engine: Engine) -> None:
    """Add numbers on an engine, across a shuffle, and look at what it wrote.

    Raises:
        LdpBeamError: It cannot be done.
    """
    with temporary_folder("ldp-beam-doctor-") as folder:
        path = Path(folder, "sum.txt")
        with engine_pipeline(engine) as p:
            numbers = p | beam.Create(list(range(_NUMBERS)))
            total = numbers | beam.CombineGlobally(sum)
            total | beam.Map(_write, str(path)).with_output_types(int)
        expected = sum(range(_NUMBERS))
        if not path.is_file() or path.read_text() != str(expected):
            raise RunError(f"{engine.name} finished a tiny job and its result is not there or wrong.")


def _one_message() -> None:
    """Start a broker, send a message, and read it.

    Raises:
        LdpBeamError: It cannot be done.
    """
    require_kafka()
    with (
        temporary_folder("ldp-beam-doctor-", ignore_errors=True) as folder,
        KafkaBroker(Path(folder), port=free_port()) as broker,
    ):
        address = KafkaAddress(broker.address, "doctor")
        send(address, [b"up"])
        if read_all(address) != [b"up"]:
            raise RunError("A broker of Kafka took a message and did not give it back.")


def _write(total: int, path: str) -> int:
    Path(path).write_text(str(total))
    return total
