"""The figures of an evaluation as a table for people: one row a figure, frequencies and means side by side."""

from __future__ import annotations

from collections.abc import Callable, Iterator

from rich import box
from rich.table import Table

from .evaluate import Evaluation

__all__ = ["figures_table", "other_figures", "undefined_figures"]

#: Figures by the end of their names, in the order of the table, and what people read.
_ROWS = {
    "keys": "keys compared",
    "without_holders": "keys that nobody holds",
    "without_estimate": "keys without an estimate",
    "mse": "mean squared error",
    "log_mse": "its logarithm to base 10",
    "relative_error": "relative error, median",
    "relative_error_top": "relative error, median of the top 10 % of the keys",
    "l1": "l1 distance",
    "l2_squared": "squared l2 distance",
    "total_variation": "half of l1 (total variation)",
    "coverage": "intervals that hold the truth",
    "coverage_trusted": "the same, of keys that are not flagged",
    "precision": "most frequent keys that were found",
}
_COLUMNS = ("frequency", "mean")
#: Figures of both together.
_OTHERS = {
    "n": "reports",
    "correlation_true": "correlation of frequency and mean over the keys, true",
    "correlation_estimated": "the same, estimated",
    "correlation_kept": "estimated divided by true",
}


def figures_table(evaluation: Evaluation, text_of: Callable[[float | int | None], str]) -> Table:
    """Return the table.

    Args:
        evaluation: what to show.
        text_of: writes a number.
    """
    figures = evaluation.figures
    columns = [name for name in _COLUMNS if f"{name}_keys" in figures]
    table = Table(title="How far the estimates are from the truth", title_justify="left", box=box.SIMPLE_HEAD)
    table.add_column("")
    for name in columns:
        table.add_column(name, justify="right", no_wrap=True)
    for end, label in _ROWS.items():
        names = [f"{name}_{end}" for name in columns]
        if any(name in figures for name in names):
            table.add_row(label, *(text_of(figures[name]) if name in figures else "" for name in names))
    return table


def other_figures(evaluation: Evaluation) -> Iterator[tuple[str, float | int | None]]:
    """Yield the figures that belong to neither column, with names for people."""
    shown = {"keys", *(f"{name}_{end}" for name in _COLUMNS for end in _ROWS)}
    for name, figure in evaluation.figures.items():
        if name not in shown:
            yield _OTHERS.get(name, name.replace("_", " ")), figure


def undefined_figures(evaluation: Evaluation) -> Iterator[str]:
    """Yield one sentence for each reason why figures do not exist."""
    reasons: dict[str, list[str]] = {}
    for name, reason in evaluation.why_undefined.items():
        reasons.setdefault(reason, []).append(name.replace("_", " "))
    for reason, names in reasons.items():
        yield f"No {', '.join(names)}: {reason}."
