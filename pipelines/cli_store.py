"""Options of `aggregate` on a counts store, and what they mean: attached to the command line by `cli`."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from datetime import UTC, date, datetime, timedelta
from typing import Any, TypeVar

import click

from ..errors import InputError
from ..schemas.counts_store import parse_day
from .aggregate_period import PERIODS, Limits, StoreRun, spans_text

__all__ = ["GAPS_EXIT_CODE", "beyond_gaps", "store_line", "store_options", "store_run"]

F = TypeVar("F", bound=Callable[..., Any])

_BACK = re.compile(r"(\d{1,5})d")
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
        click.option("--since", metavar="DATE", help="First day, or 30d. Default: the first with counts."),
        click.option("--until", metavar="DATE", help="Last day, or yesterday. Default: the last with counts."),
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
    """Return the day that a text names: a date, or one counted back from today (UTC)."""
    if text is None:
        return None
    back = _BACK.fullmatch({"today": "0d", "yesterday": "1d"}.get(text, text))
    if back is not None:
        return _today() - timedelta(days=int(back[1]))
    try:
        return parse_day(text, option)
    except InputError as error:
        raise InputError(f"{error} Or count back from today (UTC): today, yesterday, 30d.") from error


def _today() -> date:
    return datetime.now(UTC).date()


def beyond_gaps(run: StoreRun, manifest: Mapping[str, Any]) -> bool:
    """Whether the period of a result has more gaps than is allowed."""
    return run.limits.gaps is not None and len(manifest["counts_store"]["gaps"]) > run.limits.gaps


def store_line(manifest: Mapping[str, Any]) -> str:
    """Return what was done to the store, for people."""
    told = manifest["counts_store"]

    def days(name: str) -> str:
        some = [date.fromisoformat(text) for text in told[name]]
        return f"{len(some):,} ({spans_text(some)})" if some else "none"

    line = (
        f"Days from {told['since']} to {told['until']}: {told['days']:,} with counts. Counted now: {days('counted')}; "
        f"replaced: {days('replaced')}; as before: {len(told['unchanged']):,}."
    )
    if told["outside"]:
        line += f" Outside the period and left alone: {days('outside')}."
    return line if told["days"] == 1 else f"{line} The figure n counts reports, not people."
