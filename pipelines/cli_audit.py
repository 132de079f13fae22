"""The verb `audit` of the command line."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import click

from ..errors import InputError, RunError
from ..mechanisms import Mechanism, make_mechanism
from ..transforms.collection import Collection
from .audit import audit as run_audit
from .show import Screen

__all__ = ["audit"]


@click.command()
@click.option("--collection", "definition", metavar="FILE.toml", help="Audit the mechanism of this definition.")
@click.option("--mechanism", metavar="NAME", help="Or a mechanism by name; see `ldp-beam mechanisms`.")
@click.option("--epsilon", metavar="E", help="Its privacy budget.")
@click.option("--keys", type=click.IntRange(1), metavar="D", help="Its number of keys.")
@click.option("--padding", type=click.IntRange(1), metavar="L", help="Its padding length.")
@click.option("--allocation", metavar="NAME", help="Its split of the budget.")
@click.option("--parameter", "more", multiple=True, metavar="NAME=VALUE", help="Any other parameter; several.")
@click.option("--reports", type=click.IntRange(1), metavar="N", help="Attack the client with N reports a record.")
@click.option("--confidence", type=float, metavar="SHARE", help="Of the attack's bound.  [default: 0.99999]")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object on standard output.")
@click.option("--traceback", "with_traceback", is_flag=True, help="On an error, show where it arose.")
def audit(**options: Any) -> None:
    r"""What epsilon a mechanism really has: exact, and attacked. Exit code 1 where it is above the declared one.

    \b
    Example:
      ldp-beam audit --mechanism pckv-grr --epsilon 1 --keys 10000 --padding 10
      ldp-beam audit --collection gss.toml --reports 200000
    """
    mechanism, report_ids = _audited(options)
    found = run_audit(mechanism, reports=options["reports"], confidence=options["confidence"], report_ids=report_ids)
    if options["as_json"]:
        click.echo(json.dumps(found, ensure_ascii=False, allow_nan=False))
    else:
        _show(found, Screen())
    if found["violations"]:
        raise RunError(f"The audit found a violation: {'; '.join(found['violations'])}.")


def _audited(options: dict[str, Any]) -> tuple[Mechanism, bool]:
    by_name = {name: options[name] for name in ("mechanism", "epsilon", "keys", "padding", "allocation")}
    given = {name: value for name, value in by_name.items() if value is not None}
    if options["definition"] is not None:
        if given or options["more"]:
            raise InputError("--collection says everything; leave out --mechanism and the parameters.")
        collection = Collection.load(Path(options["definition"]))
        return collection.mechanism, collection.definition.report_ids
    if "mechanism" not in given:
        raise InputError("Give --collection FILE.toml, or --mechanism NAME with its parameters.")
    more = dict(_parameter(text) for text in options["more"])
    return make_mechanism(given.pop("mechanism"), **given, **more), False


def _parameter(text: str) -> tuple[str, Any]:
    name, equals, value = text.partition("=")
    if not name or not equals:
        raise InputError(f"--parameter {text}: it must have the form NAME=VALUE, for example rounds=6.")
    return name, int(value) if value.lstrip("-").isdigit() else value


def _show(found: dict[str, Any], screen: Screen) -> None:
    screen.say(f"{found['mechanism']}: declared epsilon {found['declared_epsilon']:g}")
    screen.say(f"  exact: {found['exact_epsilon']!r} ({found['method']}, over every pair of records and every report)")
    if found["enumerated_epsilon"] is not None:
        screen.say(f"  from the client's code, word by word: {found['enumerated_epsilon']!r}")
    if found["naive_composition_epsilon"] is not None:
        steps = " + ".join(f"{name} {value:.4g}" for name, value in found["steps"].items())
        screen.say(f"  naive composition would have charged: {found['naive_composition_epsilon']:.6g} ({steps})")
    for size, value in found["epsilon_by_set_size"].items():
        screen.say(f"  records of {size} keys against any other: {value:.6g}")
    attacked = found["statistical"]
    if attacked is not None:
        screen.say(
            f"  attack with {attacked['reports_per_record']:,} reports a record: epsilon is at least "
            f"{attacked['epsilon_lower_bound']:.6g} (confidence {attacked['confidence']}); told apart: "
            f"{attacked['records'][0]} from {attacked['records'][1]}, {attacked['event']}"
        )
