"""The verb `plan` of the command line."""

from __future__ import annotations

import json
from typing import Any

import click
from rich import box
from rich.console import Console
from rich.table import Table

from ..mechanisms.probability import parse_epsilon
from .plan import Candidate, Plan, Question, make_plan
from .plan_plot import plot_plan

__all__ = ["plan"]


@click.command()
@click.option(
    "--mechanism", metavar="NAME", help="Plan for this one.  [default: the recommended one for key-value data]"
)
@click.option("--epsilon", required=True, metavar="E", help="Privacy budget of one report.")
@click.option("--users", type=click.IntRange(1), required=True, metavar="N", help="Number of users.")
@click.option("--keys", type=click.IntRange(1), required=True, metavar="D", help="Number of keys.")
@click.option("--padding", type=click.IntRange(1), default=1, show_default=True, metavar="L", help="Padding length.")
@click.option(
    "--frequency", type=float, default=0.1, show_default=True, metavar="f", help="Share of users with a typical key."
)
@click.option(
    "--mean", type=float, default=0.5, show_default=True, metavar="m", help="Its mean, on the scale from -1 to 1."
)
@click.option("--allocation", metavar="NAME", help="Split of the budget.  [default: the mechanism's own]")
@click.option(
    "--minimise",
    type=click.Choice(["mean", "frequency"]),
    default="mean",
    show_default=True,
    help="Whose error decides which mechanism is recommended.",
)
@click.option("--wanted-frequency-se", type=float, metavar="S", help="How many users give this standard error?")
@click.option("--wanted-mean-se", type=float, metavar="S", help="The same for the mean.")
@click.option("--plot", "picture", metavar="F.png", help="Draw error against users and epsilon; needs matplotlib.")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object on standard output.")
@click.option("--traceback", "with_traceback", is_flag=True, help="On an error, show where it arose.")
def plan(**options: Any) -> None:
    r"""Before collecting: predicted errors, users needed, report size, and the best mechanism.

    \b
    Example:
      ldp-beam plan --epsilon 1 --users 1000000 --keys 100 --frequency 0.01 --mean 0.2
      ldp-beam plan --mechanism pckv-ue --epsilon 1 --users 100000 --keys 50 --padding 3 --wanted-mean-se 0.02
    """
    question = Question(
        epsilon=parse_epsilon(options["epsilon"]),
        **{name: options[name] for name in ("users", "keys", "padding", "frequency", "mean", "allocation", "minimise")},
    )
    wanted = {name: options[f"wanted_{name}"] for name in ("frequency_se", "mean_se")}
    made = make_plan(
        question, options["mechanism"], {name: error for name, error in wanted.items() if error is not None}
    )
    if options["picture"] is not None:
        plot_plan(made, options["picture"])
    if options["as_json"]:
        click.echo(json.dumps(made.as_json(), ensure_ascii=False, allow_nan=False))
    else:
        _show(made, Console(stderr=True, highlight=False))


def _show(made: Plan, console: Console) -> None:
    chosen, question = made.chosen, made.question
    console.print(f"{_name(chosen)} with epsilon {question.epsilon}: {_size(chosen)} a report", markup=False)
    listed = ", ".join(f"{name} {value:.6g}" for name, value in chosen.parameters.items())
    console.print(f"  {listed}", markup=False)
    for name, users in made.users_needed.items():
        console.print(f"  {name.replace('_se', '')} with the wanted standard error: {users:,} users", markup=False)
    console.print(_table(made))
    best = made.recommended
    console.print(f"Recommended: {_name(best)}, the smallest predicted error of the {question.minimise}.", markup=False)
    for warning in made.warnings():
        console.print(f"Warning: {warning}", style="yellow", markup=False)


def _table(made: Plan) -> Table:
    question = made.question
    table = Table(
        title=f"Predicted for a key of frequency {question.frequency:g} and mean {question.mean:g}, "
        f"{question.users:,} users",
        title_justify="left",
        box=box.SIMPLE_HEAD,
        padding=(0, 1, 0, 0),
        pad_edge=False,
    )
    table.add_column("mechanism", overflow="fold")
    for column in ("frequency s.e.", "mean s.e.", "frequency MSE", "mean MSE", "report"):
        table.add_column(column, justify="right", no_wrap=True)
    for one in made.others:
        names = ("frequency_se", "mean_se", "frequency_mse", "mean_mse")
        table.add_row(_name(one), *(_figure(one.predicted[name]) for name in names), _size(one))
    return table


def _name(one: Candidate) -> str:
    return one.mechanism if one.allocation is None else f"{one.mechanism} ({one.allocation})"


def _size(one: Candidate) -> str:
    return f"{one.report_bytes:,} bytes"


def _figure(value: float | None) -> str:
    return "-" if value is None else f"{value:.3g}"
