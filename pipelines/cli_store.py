"""Options of `aggregate` on a counts store, and what they mean: attached to the command line by `cli`."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from datetime import date
from typing import Any, TypeVar

import click

from ..errors import InputError
from ..schemas.counts_store import parse_day
from .aggregate_period import PERIODS, Limits, StoreRun

__all__ = ["GAPS_EXIT_CODE", "beyond_gaps", "store_options", "store_run"]

F = TypeVar("F", bound=Callable[..., Any])

#: The result is published, and its period has more gaps than `--max-gaps` allows.
GAPS_EXIT_CODE = 3

_STORE_ONLY = {"since": "--since", "until": "--until", "recount": "--recount", "max_gaps": "--max-gaps", "by": "--by"}

_WITHOUT_STORE = {
    "round_": "--round",
    "state": "--state",
    "detect_poisoning": "--detect-poisoning",
    "joint_em": "--joint-em",
}


def store_options(function: F) -> F:
    """Add the options of counts stores to a command."""
    options = (
        click.option(
            "--counts-store", metavar="DIR", help="Keep the counts of each day there; count only what is new."
        ),
        click.option("--since", metavar="DATE", help="First day of the period. Default: the first with counts."),
        click.option("--until", metavar="DATE", help="Last day of the period. Default: the last with counts."),
        click.option("--by", metavar="|".join(PERIODS), help="Estimates for the whole period, or over time."),
        click.option("--recount", is_flag=True, help="The given files are all that their days consist of."),
        click.option(
            "--max-gaps",
            type=click.IntRange(0),
            metavar="N",
            help=f"Exit with {GAPS_EXIT_CODE} where more days have no counts.",
        ),
    )
    for option in reversed(options):
        function = option(function)
    return function


def store_run(options: Mapping[str, Any]) -> StoreRun | None:
    """Return what is asked of a counts store; None where none is named.

    Raises:
        InputError: Options that do not fit together, or a date that is none.
    """
    if options["counts_store"] is None:
        given = [name for key, name in _STORE_ONLY.items() if options[key] not in (None, False)]
        if given:
            raise InputError(f"{given[0]} concerns the days of a counts store; give --counts-store DIR with it.")
        if not options["patterns"]:
            raise InputError("No input was given. Give --input with reports or counts, or --counts-store DIR.")
        return None
    of_reports = {"detect_poisoning": "--detect-poisoning", "joint_em": "--joint-em"}
    for key, name in {"round_": "--round", "state": "--state", **of_reports}.items():
        if options[key] not in (None, False):
            raise InputError(f"{name} and --counts-store exclude each other. Give one of them.")
    return StoreRun(
        folder=options["counts_store"],
        patterns=options["patterns"],
        since=_day(options["since"], "--since"),
        until=_day(options["until"], "--until"),
        by=options["by"] or "total",
        period=options["period"],
        recount=options["recount"],
        limits=Limits(rejects=options["max_rejects"], gaps=options["max_gaps"]),
    )


def _day(text: str | None, option: str) -> date | None:
    return None if text is None else parse_day(text, option)


def beyond_gaps(run: StoreRun, manifest: Mapping[str, Any]) -> bool:
    """Whether the period of a result has more gaps than is allowed."""
    return run.limits.gaps is not None and len(manifest["counts_store"]["gaps"]) > run.limits.gaps
