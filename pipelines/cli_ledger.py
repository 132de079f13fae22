"""The verb `ledger` of the command line, and the options of other verbs that have to do with it."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

import click
from rich import box
from rich.console import Console
from rich.table import Table

from ..errors import InputError, NotAvailableError
from ..schemas.manifest import Randomness
from ..transforms.collection import Collection
from ..transforms.memo import Memo
from .ledger import EVERYBODY, Ledger

__all__ = ["ledger", "ledger_arguments", "ledger_options"]

F = TypeVar("F", bound=Callable[..., Any])


def ledger_options(function: F) -> F:
    """Add the options of a run that spends epsilon."""
    for option in (
        click.option("--memoise-states", type=click.IntRange(1), metavar="N", help="States a user ever reports on."),
        click.option("--memoise", metavar="FILE", help="Memoised collection: an unchanged record repeats its report."),
        click.option("--population", metavar="TEXT", help=f"Whom the ledger charges.  [default: {EVERYBODY}]"),
        click.option("--ledger", metavar="FILE", help="Charge the run to this ledger."),
    ):
        function = option(function)
    return function


def ledger_arguments(options: dict[str, Any], collection: Collection, randomness: Randomness) -> dict[str, Any]:
    """Return the arguments of a `ClientRun` that the options of `ledger_options` give.

    Raises:
        InputError: Options that do not fit together.
    """
    if options["population"] is not None and options["ledger"] is None:
        raise InputError("--population names whom a ledger charges; give --ledger FILE as well.")
    return {
        "ledger": options["ledger"],
        "population": options["population"] or EVERYBODY,
        "memo": _memo(options, collection, randomness),
    }


def _memo(options: dict[str, Any], collection: Collection, randomness: Randomness) -> Memo | None:
    path, states = options["memoise"], options["memoise_states"]
    if path is None and states is None:
        return None
    if path is None or states is None:
        raise InputError(
            "--memoise FILE and --memoise-states N belong together: the file keeps what each user has reported on, and "
            "N is the cap, so that no user ever spends more than N times epsilon."
        )
    if randomness.source != "secret file":
        raise InputError("--memoise needs --secret-file: only the same secret repeats a report in a later period.")
    if options["engine"] != "direct":
        raise NotAvailableError.of(f"--memoise with --engine {options['engine']}", instead="Use --engine direct.")
    if hasattr(collection.mechanism, "for_round"):
        raise NotAvailableError.of(f"--memoise with {collection.mechanism.name}, which has rounds,")
    memo = Memo(path=str(Path(path).absolute()), cap=states)
    memo.open(fingerprint=collection.fingerprint, secret_id=randomness.secret_id or "")
    return memo


@click.group()
def ledger() -> None:
    """What has been spent on whom, and lifetime budgets."""


def _file(path: str | None, option: str | None) -> str:
    if (path is None) == (option is None):
        raise InputError("Name the ledger once: ledger show FILE, or --ledger FILE.")
    return str(path or option)


_json = click.option("--json", "as_json", is_flag=True, help="Print one JSON object on standard output.")
_traceback = click.option("--traceback", "with_traceback", is_flag=True, help="On an error, show where it arose.")


@ledger.command("show")
@click.argument("path", metavar="FILE", required=False)
@click.option("--ledger", "option", metavar="FILE", help="The ledger, instead of the argument.")
@_json
@_traceback
def ledger_show(**options: Any) -> None:
    r"""Show every population's total and budget, and every entry.

    \b
    Example:
      ldp-beam ledger show ledger.sqlite
    """
    said = Ledger(_file(options["path"], options["option"])).as_json()
    if options["as_json"]:
        click.echo(json.dumps(said, ensure_ascii=False, allow_nan=False))
        return
    console = Console(stderr=True, highlight=False)
    console.print(_table("Spent on each member of a population", said["populations"]))
    console.print(_table("Entries", [{name: row[name] for name in _SHOWN} for row in said["entries"]]))


_SHOWN = ("entry", "state", "population", "collection", "period", "charged", "reports", "started")


def _table(title: str, rows: list[dict[str, Any]]) -> Table:
    table = Table(title=title, title_justify="left", box=box.SIMPLE_HEAD, padding=(0, 1, 0, 0), pad_edge=False)
    for name in rows[0] if rows else ["nothing yet"]:
        table.add_column(name, overflow="fold")
    for row in rows:
        table.add_row(*("-" if value is None else str(value) for value in row.values()))
    return table


@ledger.command("set-budget")
@click.argument("path", metavar="FILE", required=False)
@click.argument("amount", metavar="EPSILON", required=False)
@click.option("--ledger", "option", metavar="FILE", help="The ledger, instead of the argument.")
@click.option("--epsilon", metavar="EPSILON", help="The budget, instead of the argument.")
@click.option("--population", default=EVERYBODY, show_default=True, metavar="TEXT", help="Whose budget it is.")
@_json
@_traceback
def ledger_set_budget(**options: Any) -> None:
    r"""Declare how much may be spent on each member of a population, ever. Makes the ledger where there is none.

    \b
    Example:
      ldp-beam ledger set-budget ledger.sqlite 4
    """
    path, amount = options["path"], options["amount"]
    if options["option"] is not None and amount is None:
        path, amount = None, path  # the one argument is the budget
    if (amount is None) == (options["epsilon"] is None):
        raise InputError("Name the budget once: ledger set-budget FILE EPSILON, or --epsilon EPSILON.")
    kept = Ledger(_file(path, options["option"]), create=True)
    kept.set_budget(amount or options["epsilon"], options["population"])
    (said,) = [one for one in kept.as_json()["populations"] if one["population"] == options["population"]]
    if options["as_json"]:
        click.echo(json.dumps(said, ensure_ascii=False))
    else:
        click.echo(f"{said['population']}: {said['spent']} of {said['budget']} spent.", err=True)
