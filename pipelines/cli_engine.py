"""`ldp-beam engine` and `ldp-beam doctor`: attached to the command line by `cli`."""

from __future__ import annotations

import json
from typing import Any

import click

from ..engines import (
    KAFKA,
    SERVICES,
    JobServerOptions,
    Service,
    service_status,
    start_kafka,
    start_service,
    stop_service,
)
from ..errors import InputError, did_you_mean
from .doctor import Diagnosis, diagnose
from .engine_target import ENGINES as ALL_ENGINES
from .show import Screen

__all__ = ["doctor", "engine"]

_json = click.option("--json", "as_json", is_flag=True, help="Print one JSON object on standard output.")
_traceback = click.option("--traceback", "with_traceback", is_flag=True, help="On an error, show where it arose.")
_NAMES = "|".join(SERVICES)


@click.group(cls=click.Group)
def engine() -> None:
    """Engines that stay between runs, so that no run waits for a start: prism, flink, spark; and a broker: kafka."""


@engine.command("start")
@click.argument("name", metavar=_NAMES)
@click.option("--cluster", is_flag=True, help="Several processes and a pool of Python workers (flink, spark).")
@click.option("--workers", type=click.IntRange(1), default=2, show_default=True, help="Tasks at a time.")
@click.option("--job-server-jar", metavar="FILE", help="A ready-made job server instead of ours.")
@click.option("--port", type=click.IntRange(1, 65535), help="Where Kafka listens; by default 9092, if it is free.")
@_json
@_traceback
def start(**options: Any) -> None:
    r"""Start an engine that runs until it is stopped; `--engine NAME` then uses it.

    The first start fetches the engine, which takes minutes. Kafka is a broker for streams; its messages live until it
    is stopped.

    \b
    Example:
      ldp-beam engine start flink
      ldp-beam collect --engine flink --collection c.toml --input 'records/*.parquet' --output result
      ldp-beam engine stop flink
    """
    if options["name"] == KAFKA:
        if options["cluster"] or options["job_server_jar"]:
            raise InputError("Kafka is one broker and runs no jobs: leave --cluster and --job-server-jar out.")
        service = start_kafka(port=options["port"])
    elif options["port"]:
        raise InputError(f"--port is for Kafka; {options['name']} finds a free one.")
    else:
        service = start_service(
            options["name"],
            cluster=options["cluster"],
            workers=options["workers"],
            options=JobServerOptions(jar=options["job_server_jar"]),
        )
    if options["as_json"]:
        click.echo(json.dumps(_described(service)))
    else:
        Screen().say(f"{service.engine} ({service.kind}) runs at {service.endpoint}; its logs are in {service.folder}.")


@engine.command("stop")
@click.argument("name", metavar=_NAMES)
@_json
@_traceback
def stop(**options: Any) -> None:
    r"""Stop an engine and everything that it started.

    \b
    Example:
      ldp-beam engine stop flink
    """
    stopped = stop_service(options["name"])
    if options["as_json"]:
        click.echo(json.dumps({"engine": options["name"], "stopped": stopped}))
    else:
        Screen().say(f"Stopped {', '.join(stopped)}." if stopped else f"{options['name']} was not running.")


@engine.command("status")
@_json
@_traceback
def status(**options: Any) -> None:
    r"""Which engines run.

    \b
    Example:
      ldp-beam engine status --json
    """
    found = {name: service_status(name) for name in SERVICES}
    if options["as_json"]:
        click.echo(json.dumps({"engines": {n: _described(s) if s else {"running": False} for n, s in found.items()}}))
        return
    for name, service in found.items():
        if service is None:
            click.echo(f"{name}: not running")
            continue
        alive = ", ".join(service.alive()) or "nothing"
        health = "answers" if service.is_healthy() else f"does not answer; still there: {alive}"
        click.echo(f"{name}: {service.kind} at {service.endpoint}, {health}")


def _described(service: Service) -> dict[str, Any]:
    return {
        "engine": service.engine,
        "kind": service.kind,
        "endpoint": service.endpoint,
        "pool": service.pool or None,
        "running": bool(service.alive()),
        "healthy": service.is_healthy(),
        "processes": [{"name": name, "pid": pid} for name, pid, _ in service.processes],
        "folder": service.folder,
    }


@click.command()
@click.option("--engine", "engines", multiple=True, metavar="NAME", help="Only this engine; several.")
@click.option("--no-fetch", is_flag=True, help="Leave out engines that would have to be fetched first.")
@_json
@_traceback
def doctor(**options: Any) -> None:
    r"""Check this machine: Python, Java, Maven, Go, and a tiny job on every engine, a message through Kafka.

    \b
    Example:
      ldp-beam doctor --json
    """
    known = (*ALL_ENGINES, KAFKA)
    for name in options["engines"]:
        if name not in known:
            raise InputError(f"Unknown engine {name!r}. {did_you_mean(name, known)}")
    screen = Screen(quiet=options["as_json"])
    diagnosis = diagnose(options["engines"] or known, fetch=not options["no_fetch"], say=screen.say)
    if options["as_json"]:
        click.echo(json.dumps(diagnosis.as_json()))
    else:
        _show(diagnosis)
    if not all(found["ok"] for name, found in diagnosis.engines.items() if name == "direct"):
        raise SystemExit(1)


def _show(diagnosis: Diagnosis) -> None:
    for name, version in {**diagnosis.versions, **diagnosis.tools}.items():
        click.echo(f"{name:14} {version or 'absent'}")
    click.echo(f"{'docker':14} {'answers' if diagnosis.docker else 'does not answer (needed for containers only)'}")
    broker = {} if diagnosis.kafka is None else {KAFKA: diagnosis.kafka}
    for name, found in {**diagnosis.engines, **broker}.items():
        told = f"works, {found['seconds']:.1f} s" if found["ok"] else found["problem"]
        click.echo(f"{name:14} {told} ({found['version']})")
