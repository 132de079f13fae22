"""What people see on a terminal: tables, warnings, and where the files lie. Everything goes to standard error."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
from rich import box
from rich.console import Console
from rich.table import Table

from ..mechanisms import MECHANISMS
from .compare import Comparison
from .evaluate import Evaluation, read_estimates
from .figures_table import figures_table, other_figures, undefined_figures
from .output_store import local_copy
from .progress import RunProgress

__all__ = ["Screen"]

_ROWS = 20


class Screen:
    """Prints for people; silent where standard error is no terminal and nothing was asked for.

    Args:
        quiet: print nothing but errors and warnings.
    """

    def __init__(self, *, quiet: bool = False) -> None:
        self._console = Console(stderr=True, highlight=False, soft_wrap=False)
        self._quiet = quiet

    def say(self, text: str) -> None:
        """Print a line."""
        if not self._quiet:
            self._console.print(text, markup=False)

    def warn(self, text: str) -> None:
        """Print a warning, even when quiet."""
        self._console.print(f"Warning: {text}", style="yellow", markup=False)

    def error(self, text: str) -> None:
        """Print an error of one paragraph."""
        self._console.print(f"Error: {text}", style="red", markup=False, soft_wrap=True)

    def progress(self) -> RunProgress:
        """Return what watches a run."""
        return RunProgress(self._console, quiet=self._quiet)

    def result(self, output: str, manifest: dict[str, Any]) -> None:
        """Print the most frequent keys of a result, and what a reader must know of it."""
        if self._quiet:
            return
        estimates, title = _last_window(read_estimates(local_copy(output)))
        if "frequency" in estimates.column_names:
            shown = estimates.take(pc.sort_indices(estimates, [("frequency", "descending", "at_end")])[:_ROWS])
        else:
            shown = estimates.slice(0, _ROWS)
        self._console.print(_estimates_table(shown, title))
        if estimates.num_rows > _ROWS:
            which = "most frequent" if "frequency" in estimates.column_names else "first"
            self.say(f"The {_ROWS} {which} of {estimates.num_rows:,} keys; all are in the files.")
        if "minimum" in estimates.column_names:
            self.say("Percentiles and extremes stand in the file of estimates; `ldp-beam report` draws them.")
        if isinstance(choice := manifest["mechanism"].get("padding"), dict):
            self.say(f"Padding {choice['padding']}: {choice['reason']}")
        self.say(_guarantee(manifest))
        self._rejects(manifest)
        self.say(f"Files: {', '.join(f['name'] for f in manifest['files'])}, manifest.json in {output}")

    def reports(self, output: str, manifest: dict[str, Any]) -> None:
        """Print what `perturb` wrote."""
        rows = sum(f["rows"] for f in manifest["files"] if f["kind"] == "reports")
        self.say(f"{rows:,} reports in {output}. {_guarantee(manifest)}")
        self._rejects(manifest)

    def _rejects(self, manifest: dict[str, Any]) -> None:
        records = manifest.get("records") or {}
        reasons = dict(records.get("rejected") or {})
        if records.get("outside_the_domain"):
            reasons["outside_the_domain"] = records["outside_the_domain"]
        if reasons:
            listed = ", ".join(f"{name.replace('_', ' ')}: {count:,}" for name, count in reasons.items())
            self.say(f"Left out of the input: {listed}.")
        malformed = (manifest.get("reports") or {}).get("malformed")
        if malformed:
            self.say(f"Set aside: {malformed:,} malformed reports.")

    def evaluation(self, evaluation: Evaluation) -> None:
        """Print the truth beside the estimates, and the errors."""
        if self._quiet:
            return
        self._console.print(_evaluation_table(evaluation))
        self._console.print(figures_table(evaluation, _figure))
        for name, value in other_figures(evaluation):
            self.say(f"{name}: {_figure(value)}")
        for sentence in undefined_figures(evaluation):
            self.say(sentence)

    def comparison(self, comparison: Comparison) -> None:
        """Print which keys differ between two results."""
        if self._quiet:
            return
        table = _table("Differences between the two results, the surest first")
        table.add_column("key", overflow="fold", min_width=5)
        table.add_column("figure")
        for column in ("first", "second", "difference", "95 % interval", "p adj."):
            table.add_column(column, justify="right", no_wrap=True)
        for row in comparison.rows[:_ROWS]:
            mark = "*" if row["differs"] else " "
            cells = [row["key"], row["figure"], *(_figure(row[name]) for name in ("first", "second", "difference"))]
            p = row["p_adjusted"]
            shown = "<0.001" if p < 0.001 else f"{p:.3f}"
            table.add_row(*cells, _interval(dict(row), "difference"), f"{shown}{mark}")
        self._console.print(table)
        if comparison.tests > _ROWS:
            self.say(f"The first {_ROWS} of {comparison.tests:,} tests; --json gives all.")
        differing = sum(bool(row["differs"]) for row in comparison.rows)
        self.say(
            f"{differing:,} of {comparison.tests:,} figures differ (*), at a chance of {comparison.level:g} for any "
            "false one among them all."
        )
        if comparison.left_out:
            self.say(f"{comparison.left_out:,} were not tested: no figure, or a mean over few holders.")


def _guarantee(manifest: dict[str, Any]) -> str:
    epsilon = manifest["epsilon"]["declared"]
    if not manifest["randomness"]["private"]:
        return f"NOT PRIVATE: the randomness came from a seed (epsilon {epsilon} is only what a secret would give)."
    n = (manifest.get("reports") or {}).get("counted")
    people = f"{n:,} {'report' if n == 1 else 'reports'}. " if n is not None else ""
    if "round" in manifest["epsilon"] or "rounds" in manifest["epsilon"]:
        return people + _rounds(manifest["epsilon"])
    entry = MECHANISMS.get(manifest["mechanism"]["name"])
    if entry is not None and "ULDP" in entry.guarantee:
        return (
            f"{people}Each report is {epsilon}-locally differentially private for whoever holds a sensitive key; "
            "there is no promise for what is not listed as sensitive."
        )
    return f"{people}Each report is {epsilon}-locally differentially private for everything its user holds."


def _rounds(epsilon: dict[str, Any]) -> str:
    """What a collection in rounds guarantees, and what of it is spent."""
    declared = epsilon["declared"]
    all_rounds = f"All rounds together are {declared}-locally differentially private for everything a user holds"
    if "round" in epsilon:
        return f"{all_rounds}; round {epsilon['round']} adds {float(epsilon['spent_per_user']):g}."
    asked = len(epsilon["rounds"])
    if not epsilon["ended"]:
        return f"{all_rounds}; round {asked} is closed and round {asked + 1} open."
    left = float(epsilon["unspent"])
    return f"{all_rounds}; they ended after round {asked}" + (f", with {left:g} unspent." if left else ".")


def _last_window(estimates: pa.Table) -> tuple[pa.Table, str]:
    """Return the estimates of the last window, where there are windows, and a title that says which it is."""
    title = "Estimates with 95 % intervals"
    if "window_start" not in estimates.column_names:
        return estimates, title
    starts = estimates["window_start"]
    last = pc.max(starts)
    which = f"{str(last.as_py())[:19]}, the last of {len(pc.unique(starts)):,} windows"
    return estimates.filter(pc.equal(starts, last)), f"{title}, {which}"


def _estimates_table(rows: pa.Table, title: str) -> Table:
    table = _table(title)
    table.add_column("key", overflow="fold", min_width=5)
    names = [name for name in ("frequency", "mean") if name in rows.column_names]
    for name in names:
        table.add_column(name, justify="right")
        table.add_column("interval", justify="right", no_wrap=True)
    table.add_column("flags")
    for row in rows.to_pylist():
        cells = [row["key"]]
        for name in names:
            cells += [_figure(row[name]), _interval(row, name)]
        table.add_row(*cells, ", ".join(row["flags"]))
    return table


def _table(title: str) -> Table:
    return Table(title=title, title_justify="left", box=box.SIMPLE_HEAD, padding=(0, 1, 0, 0), pad_edge=False)


def _evaluation_table(evaluation: Evaluation) -> Table:
    rows = evaluation.table
    table = _table("The true figure, the estimate, and its 95 % interval")
    table.add_column("key", overflow="fold", min_width=5)
    names = [name for name in ("frequency", "mean") if f"true_{name}" in rows.column_names]
    for name in names:
        for column in (name, "estimate", "interval"):
            table.add_column(column, justify="right", no_wrap=True)
    for row in rows.slice(0, _ROWS).to_pylist():
        cells = [row["key"]]
        for name in names:
            cells += [_figure(row[f"true_{name}"]), _figure(row[name]), _interval(row, name)]
        table.add_row(*cells)
    if rows.num_rows > _ROWS:
        table.caption = f"The first {_ROWS} of {rows.num_rows:,} compared keys; --json gives all."
    return table


def _interval(row: dict[str, Any], name: str) -> str:
    low, high = row[f"{name}_low"], row[f"{name}_high"]
    return "" if low is None or high is None else f"{_figure(low)} … {_figure(high)}"


def _figure(value: float | int | None) -> str:
    if value is None:
        return "-"
    if isinstance(value, int):
        return f"{value:,}"
    if 0 < abs(value) < 5e-4:
        return f"{value:.1e}"
    return f"{value:.3f}" if abs(value) < 1000 else f"{value:.6g}"
