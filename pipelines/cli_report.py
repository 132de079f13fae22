"""`ldp-beam report`: attached to the command line by `cli`."""

from __future__ import annotations

import json
from typing import Any

import click

from .report import report as run_report
from .show import Screen

__all__ = ["report"]


@click.command()
@click.option("--input", "folder", required=True, metavar="DIR", help="What collect or aggregate left behind.")
@click.option("--output", required=True, metavar="FILE.html", help="The page; must not exist.")
@click.option("--public", is_flag=True, help="Leave out the exact tallies of the raw data.")
@click.option("--overwrite", is_flag=True, help="Replace an existing page.")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object on standard output.")
@click.option("--traceback", "with_traceback", is_flag=True, help="On an error, show where it arose.")
def report(**options: Any) -> None:
    r"""One HTML page of a result: charts, a table to search, the guarantee in words.

    The page needs no network. It holds the charting library, so the extra `report` must be installed.

    \b
    Example:
      ldp-beam report --input result --output result.html
    """
    path = run_report(options["folder"], options["output"], public=options["public"], overwrite=options["overwrite"])
    size = path.stat().st_size
    if options["as_json"]:
        click.echo(json.dumps({"file": str(path), "bytes": size}))
    else:
        Screen().say(f"The page is {path} ({size / 1e6:.1f} MB); open it in a browser.")
