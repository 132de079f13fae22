"""From what a user asked for to where a run takes place: which engine, which cluster, which workers.

`--engine flink` and Beam's own `--runner FlinkRunner` meet here. Nothing is started and nothing is loaded:
the result says what has to be.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from ..errors import InputError, NotAvailableError, did_you_mean

__all__ = ["ENGINES", "RUNNERS", "Target", "target_of", "without"]

#: Engines by name.
ENGINES = ("direct", "prism", "flink", "spark")

#: Beam's runners by name in lower case, and the engine that each stands for.
RUNNERS = {
    "direct": "direct",
    "directrunner": "direct",
    "fnapirunner": "direct",
    "prismrunner": "prism",
    "flinkrunner": "flink",
    "sparkrunner": "spark",
    "portablerunner": "portable",
}
_ENVIRONMENTS = ("LOOPBACK", "EXTERNAL", "PROCESS", "DOCKER")
#: The version of Flink in our class path; for another one Beam fetches its own job server.
_FLINK_VERSION = "1.19"
#: Where Beam's Flink and Spark runners run inside their job server.
_INSIDE = ("", "[local]", "[auto]")


@dataclass(frozen=True, kw_only=True)
class Target:
    """Where a run takes place.

    Attributes:
        engine: "direct", "prism", "flink", "spark", or "portable" (somebody's job server).
        endpoint: the job server that the user named, or "" to start or find one.
        master: the cluster, or "" for an engine inside its job server.
        environment: what runs the Python workers: "LOOPBACK" (this process), "EXTERNAL", "PROCESS", "DOCKER"; ""
            where the engine decides (direct).
        config: configuration of the environment.
        beam_runner: name of Beam's runner class that is to do all by itself, or "".
        jar: a ready-made job server, or None.
        service: whether an engine that `ldp-beam engine start` left running may be used.
        has_jars: whether every process of the engine was started with Beam's jars, and need not be sent them.
    """

    engine: str
    endpoint: str = ""
    master: str = ""
    environment: str = ""
    config: str = ""
    beam_runner: str = ""
    jar: str | None = None
    service: bool = False
    has_jars: bool = False

    @property
    def shares_disk(self) -> bool:
        """Whether every worker surely sees this machine's files."""
        return self.environment in ("", "LOOPBACK")


def target_of(name: str, known: Mapping[str, Any], *, jar: str | None = None) -> Target:
    """Decide where a run takes place.

    Args:
        name: the --engine.
        known: Beam's options as parsed.
        jar: the --job-server-jar.

    Raises:
        InputError: The engine is unknown, or options contradict each other.
        NotAvailableError: A runner that this version does not support.
    """
    engine = _engine(name, known.get("runner"))
    environment = _environment(known)
    config = known.get("environment_config") or ""
    endpoint = known.get("job_endpoint") or ""
    if jar is not None and (engine not in ("flink", "spark") or endpoint):
        raise InputError(
            "--job-server-jar is the program that runs Flink or Spark: give it with --engine flink or spark."
        )
    if engine == "direct":
        return Target(engine="direct")
    if engine == "portable" and not endpoint:
        raise InputError("--runner PortableRunner needs --job_endpoint HOST:PORT of a job server that runs.")
    master, jar = _master(engine, known), jar or _ready_made(engine, known)
    if environment == "" and (engine == "prism" or (engine != "portable" and not endpoint and master == "")):
        environment = "LOOPBACK"
    target = Target(
        engine=engine,
        endpoint=endpoint,
        master=master,
        environment=environment or "DOCKER",
        config=config,
        beam_runner=_beams_own(engine, known),
        jar=jar,
        has_jars=engine == "spark" and not (endpoint or master),
        service=name == engine and not (endpoint or master or jar or known.get("environment_type")),
    )
    _check_environment(target, known.get("environment_options") or [])
    return target


def _engine(name: str, runner: str | None) -> str:
    if name not in ENGINES:
        raise InputError(f"Unknown engine {name!r}. {did_you_mean(name, ENGINES)}")
    if runner is None:
        return name
    engine = RUNNERS.get(runner.lower().rpartition(".")[2])
    if engine is None:
        raise NotAvailableError.of(
            f"--runner {runner}", instead="Known are " + ", ".join(n for n in _RUNNER_NAMES) + "."
        )
    if name not in ("direct", engine):
        raise InputError(f"--engine {name} and --runner {runner} name two different engines. Give one of them.")
    return engine


_RUNNER_NAMES = ("FnApiRunner", "PrismRunner", "FlinkRunner", "SparkRunner", "PortableRunner")


def _environment(known: Mapping[str, Any]) -> str:
    given = known.get("environment_type") or ""
    if "." in given or given.startswith("beam:env:"):
        return str(given)
    if given and given.upper() not in _ENVIRONMENTS:
        raise InputError(f"--environment_type {given}: {did_you_mean(given.upper(), _ENVIRONMENTS)}")
    return given.upper()


def _master(engine: str, known: Mapping[str, Any]) -> str:
    if engine == "flink":
        master = known.get("flink_master") or ""
        return "" if master in _INSIDE else master.removeprefix("http://")
    if engine == "spark":
        master = known.get("spark_master_url") or ""
        return "" if master.startswith("local") else master
    return ""


def _ready_made(engine: str, known: Mapping[str, Any]) -> str | None:
    return known.get(f"{engine}_job_server_jar")


def _beams_own(engine: str, known: Mapping[str, Any]) -> str:
    """Name Beam's runner where an option asks for a job server that only Beam itself can make or fetch."""
    jar = str(known.get(f"{engine}_job_server_jar") or "")
    other = known.get("flink_version") not in (None, _FLINK_VERSION)
    if engine == "flink" and (known.get("flink_submit_uber_jar") or "://" in jar or (other and not jar)):
        return "FlinkRunner"
    if engine == "spark" and (known.get("spark_submit_uber_jar") or "://" in jar):
        return "SparkRunner"
    return ""


def _check_environment(target: Target, options: Sequence[str]) -> None:
    if target.environment == "EXTERNAL" and not (target.config or options):
        raise InputError(
            "--environment_type EXTERNAL needs --environment_config HOST:PORT of a pool of workers. Start one where "
            "the engine runs: python -m ldp_beam.engines.worker_pool --port PORT"
        )
    if target.environment == "PROCESS" and not options:
        try:
            command = json.loads(target.config)["command"]
        except (ValueError, TypeError, KeyError):
            command = ""
        if not command:
            raise InputError(
                '--environment_type PROCESS needs --environment_config \'{"command": "…"}\' with the program that '
                "starts a worker, on every machine of the cluster. Ours is called ldp-beam-worker."
            )


def without(arguments: Sequence[str], names: Sequence[str]) -> list[str]:
    """Return `arguments` without some options and their values."""
    kept: list[str] = []
    dropping = False
    for argument in arguments:
        if argument.startswith("--"):
            name, equals, _ = argument[2:].partition("=")
            dropping = name in names and not equals
            if name in names:
                continue
        elif dropping:
            continue
        kept.append(argument)
    return kept
