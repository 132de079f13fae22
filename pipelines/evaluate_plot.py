"""The picture of an evaluation: every estimate with its interval against the truth."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from .evaluate import Evaluation
from .plot_file import check_plot_file, new_canvas, save_plot

__all__ = ["plot_evaluation"]

F64 = npt.NDArray[np.float64]

_TRUSTED, _FLAGGED = "#0072b2", "#b0b0b0"
#: More intervals than that would hide each other.
_INTERVALS = 300


def plot_evaluation(evaluation: Evaluation, path: str | Path) -> None:
    """Draw the estimates of frequencies and of means against the true figures, flagged ones in grey.

    Args:
        evaluation: what to draw.
        path: a file ending in .png, .svg or .pdf.

    Raises:
        InputError: matplotlib is not installed, or the file cannot be written.
    """
    file = check_plot_file(path)
    names = [name for name in ("frequency", "mean") if f"true_{name}" in evaluation.table.column_names]
    canvas = new_canvas(5.2 * max(1, len(names)), 4.6)
    panels = canvas.subplots(1, max(1, len(names)), squeeze=False)[0]
    for axes, name in zip(panels, names, strict=False):
        _panel(axes, evaluation, name)
    keys, users = evaluation.figures.get("keys"), evaluation.figures.get("n")
    canvas.suptitle(f"{keys:,} keys, {users:,} reports; grey: too few holders for a sure interval", fontsize=10)
    save_plot(canvas, file)


def _panel(axes: Any, evaluation: Evaluation, name: str) -> None:
    table = evaluation.table
    truth, estimate, low, high = (
        table[column].to_numpy(zero_copy_only=False).astype(np.float64)
        for column in (f"true_{name}", name, f"{name}_low", f"{name}_high")
    )
    flagged = np.array(["few-holders" in flags for flags in table["flags"].to_pylist()], dtype=np.bool_)
    for chosen, colour in ((flagged, _FLAGGED), (~flagged, _TRUSTED)):
        shown = np.flatnonzero(chosen)
        bars = shown[:_INTERVALS]  # the most frequent keys come first
        axes.vlines(truth[bars], low[bars], high[bars], color=colour, linewidth=0.8, alpha=0.6)
        axes.plot(truth[shown], estimate[shown], ".", color=colour, markersize=5)
    _diagonal(axes, np.concatenate([truth, estimate]))
    axes.set(xlabel=f"true {name}", ylabel=f"estimated {name}, 95 % interval")
    axes.set_title(_heading(evaluation, name), loc="left", fontsize=9)
    axes.grid(alpha=0.25)
    axes.spines[["top", "right"]].set_visible(False)


def _diagonal(axes: Any, figures: F64) -> None:
    known = figures[np.isfinite(figures)]
    if len(known):
        ends = [known.min(), known.max()]
        axes.plot(ends, ends, color="0.3", linewidth=0.8, linestyle="--", zorder=0)


def _heading(evaluation: Evaluation, name: str) -> str:
    mse, coverage = (evaluation.figures.get(f"{name}_{figure}") for figure in ("mse", "coverage"))
    parts = [] if mse is None else [f"mean squared error {mse:.2g}"]
    parts += [] if coverage is None else [f"{coverage:.0%} of the intervals hold the truth"]
    return ", ".join(parts)
