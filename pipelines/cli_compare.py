"""`ldp-beam compare`: attached to the command line by `cli`."""

from __future__ import annotations

import json
from typing import Any

import click

from .compare import compare as run_compare
from .show import Screen

__all__ = ["compare"]


@click.command()
@click.option("--first", required=True, metavar="DIR", help="Result folder, for example of last year.")
@click.option("--second", required=True, metavar="DIR", help="Result folder, for example of this year.")
@click.option("--first-window", metavar="TIME", help="Of a result in windows: start of the window; the last final one.")
@click.option("--second-window", metavar="TIME", help="Likewise of the second; both may be windows of one result.")
@click.option(
    "--level", type=float, default=0.05, show_default=True, help="Chance of any false difference among all tests."
)
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object on standard output.")
@click.option("--traceback", "with_traceback", is_flag=True, help="On an error, show where it arose.")
def compare(**options: Any) -> None:
    r"""Which keys differ between two results, beyond chance.

    Tests the difference of every key's frequency and mean; p-values are adjusted for the number of tests.

    \b
    Example:
      ldp-beam compare --first result-2025 --second result-2026
    """
    windows = options["first_window"], options["second_window"]
    comparison = run_compare(options["first"], options["second"], level=options["level"], windows=windows)
    screen = Screen(quiet=options["as_json"])
    for warning in comparison.warnings:
        screen.warn(warning)
    if options["as_json"]:
        click.echo(json.dumps(comparison.as_json(), ensure_ascii=False, allow_nan=False))
    else:
        screen.comparison(comparison)
