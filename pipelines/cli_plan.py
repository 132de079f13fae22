"""The verb `plan` of the command line."""

from __future__ import annotations

import json
from typing import Any

import click
from rich import box
from rich.console import Console
from rich.table import Table

from ..errors import InputError
from ..mechanisms.probability import parse_epsilon
from .plan import Candidate, Plan, Question, make_plan
from .plan_holdings import DomainPlan, DomainQuestion, lengths_from_text, make_domain_plan
from .plan_plot import plot_domain_plan, plot_plan

__all__ = ["plan"]


@click.command()
@click.option(
    "--mechanism", metavar="NAME", help="Plan for this one.  [default: the recommended one for key-value data]"
)
@click.option("--epsilon", required=True, metavar="E", help="Privacy budget of one report.")
@click.option("--users", type=click.IntRange(1), required=True, metavar="N", help="Number of users.")
@click.option("--keys", type=click.IntRange(1), required=True, metavar="D", help="Number of keys.")
@click.option("--padding", type=click.IntRange(1), metavar="L", help="Padding length.  [default: 1]")
@click.option("--frequency", type=float, metavar="f", help="Share of users with a typical key.  [default: 0.1]")
@click.option("--mean", type=float, metavar="m", help="Its mean, on the scale from -1 to 1.  [default: 0.5]")
@click.option(
    "--pairs-per-user",
    metavar="N|N:SHARE,…",
    help="How many keys people hold: plan for all keys together, and the padding with it.",
)
@click.option("--exponent", type=float, metavar="A", help="Of the power law by which people draw keys.  [default: 1]")
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
      ldp-beam plan --epsilon 1 --users 1000000 --keys 200 --pairs-per-user 1:0.5,3:0.3,8:0.2 --minimise frequency
    """
    if options["pairs_per_user"] is not None:
        _plan_domain(options)
        return
    if options["exponent"] is not None:
        raise InputError("--exponent belongs to --pairs-per-user, which plans for all keys together.")
    named = ("users", "keys", "padding", "frequency", "mean", "allocation", "minimise")
    question = Question(
        epsilon=parse_epsilon(options["epsilon"]),
        **{name: options[name] for name in named if options[name] is not None},
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


def _plan_domain(options: dict[str, Any]) -> None:
    """Plan for a whole domain."""
    for name in ("padding", "frequency", "allocation", "wanted_frequency_se", "wanted_mean_se"):
        if options[name] is not None:
            raise InputError(
                f"--{name.replace('_', '-')} and --pairs-per-user exclude each other: the latter plans for all keys "
                "together, with the padding and the allocation that err least."
            )
    question = DomainQuestion(
        epsilon=parse_epsilon(options["epsilon"]),
        users=options["users"],
        keys=options["keys"],
        lengths=lengths_from_text(options["pairs_per_user"]),
        exponent=1.0 if options["exponent"] is None else options["exponent"],
        mean=options["mean"],
        minimise=options["minimise"],
    )
    made = make_domain_plan(question, options["mechanism"])
    if options["picture"] is not None:
        plot_domain_plan(made, options["picture"])
    if options["as_json"]:
        click.echo(json.dumps(made.as_json(), ensure_ascii=False, allow_nan=False))
    else:
        _show_domain(made, Console(stderr=True, highlight=False))


def _show_domain(made: DomainPlan, console: Console) -> None:
    question, best = made.question, made.recommended
    what = "of the means, average over the keys" if question.minimise == "mean" else "of all frequencies together"
    table = Table(
        title=f"Expected squared error {what}; {question.users:,} users, {question.keys:,} keys, "
        f"{question.pairs:.3g} pairs a user",
        title_justify="left",
        box=box.SIMPLE_HEAD,
        padding=(0, 1, 0, 0),
        pad_edge=False,
    )
    columns = made.by_padding()
    padded = {label: errors for label, errors in columns.items() if None not in errors}
    table.add_column("padding", justify="right")
    for label in padded:
        table.add_column(label, justify="right", no_wrap=True)
    for padding in sorted({padding for errors in padded.values() for padding in errors if padding is not None}):
        table.add_row(f"{padding}", *(_figure(errors.get(padding)) for errors in padded.values()))
    console.print(table)
    for label, errors in columns.items():
        if None in errors:
            console.print(f"{label}, which has no padding: {_figure(errors[None])}", markup=False)
    chosen = "" if best.padding is None else f" with padding {best.padding}"
    console.print(
        f"Recommended: {best.label}{chosen}, the smallest expected error of the {question.minimise}; "
        f"{best.report_bytes:,} bytes a report.",
        markup=False,
    )


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
