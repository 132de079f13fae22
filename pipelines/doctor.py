"""`doctor`: what this machine can run. A tiny job goes to every engine; nothing is concluded from a version alone."""

from __future__ import annotations

import importlib.metadata
import tempfile
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import apache_beam as beam

from ..engines import TOOLS, docker_answers, is_resolved, pinned_versions, tool_version
from ..errors import LdpBeamError, RunError
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
    """

    engines: dict[str, dict[str, Any]]
    tools: dict[str, str | None]
    versions: dict[str, str]
    docker: bool

    def as_json(self) -> dict[str, Any]:
        """Return the object that `doctor --json` prints."""
        return {"engines": self.engines, "tools": self.tools, "versions": self.versions, "docker": self.docker}


def diagnose(
    engines: Sequence[str] = ENGINES, *, fetch: bool = True, say: Callable[[str], None] = lambda _: None
) -> Diagnosis:
    """Run a tiny job on each engine.

    Args:
        engines: their names.
        fetch: fetch engines that are not in the cache yet.
        say: is told what takes long.
    """
    found: dict[str, dict[str, Any]] = {}
    for name in engines:
        say(f"Trying {name} …")
        found[name] = _try(name, fetch)
    return Diagnosis(
        engines=found,
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
    with tempfile.TemporaryDirectory(prefix="ldp-beam-doctor-") as folder:
        path = Path(folder, "sum.txt")
        with engine_pipeline(engine) as p:
            numbers = p | beam.Create(list(range(_NUMBERS)))
            total = numbers | beam.CombineGlobally(sum)
            total | beam.Map(_write, str(path)).with_output_types(int)
        expected = sum(range(_NUMBERS))
        if not path.is_file() or path.read_text() != str(expected):
            raise RunError(f"{engine.name} finished a tiny job and its result is not there or wrong.")


def _write(total: int, path: str) -> int:
    Path(path).write_text(str(total))
    return total
