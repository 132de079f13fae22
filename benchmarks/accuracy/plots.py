"""How figures are drawn: one style for all, an SVG that is the same on each run, the caption below."""

from __future__ import annotations

import math
import re
import textwrap
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from .figures import Figure, Line, Panel, Row

__all__ = ["caption", "draw"]

_ACROSS = 2
#: Inches of a panel: two of them are about as wide as a page of the site.
_SIZE = 4.3, 3.2
#: Characters of the caption that fit below a panel.
_CHARACTERS = 66
_COLOURS = (
    "#0072b2",
    "#d55e00",
    "#009e73",
    "#cc79a7",
    "#8c6d00",
    "#56b4e9",
    "#7f3b08",
    "#444444",
    "#b2182b",
    "#4d9221",
)
_MARKERS = "osD^vP*XdH"
#: Attributes that hold places and lengths, and digits of theirs that nobody sees.
_PLACES = re.compile(r'(?<=[ \n])(?:d|x|y|points|transform|width|height)="[^"]*"')
_DIGITS = re.compile(r"(\d\.\d\d)\d+")
_LOOKS: dict[str, dict[str, Any]] = {
    "measured": {"linestyle": "-", "linewidth": 1.2, "markersize": 4},
    "theory": {"linestyle": "--", "linewidth": 1.0, "marker": ""},
    "bound": {"linestyle": ":", "linewidth": 1.2, "marker": ""},
    "dashed": {"linestyle": "--", "linewidth": 1.0, "marker": ""},
}
#: Without these an SVG would differ from run to run, and its text would be drawn as outlines.
_STYLE = {
    "font.sans-serif": ["DejaVu Sans"],
    "svg.fonttype": "none",
    "svg.hashsalt": "ldp-beam",
    "font.size": 9,
    "axes.titlesize": 10,
    "legend.fontsize": 8,
}


def caption(figure: Figure) -> str:
    """Return the data and the command of a figure as one text."""
    return f"{figure.source}. Data: {figure.data} Command: {figure.command}"


def draw(figure: Figure, rows: Sequence[Row], path: Path) -> None:
    """Draw a figure into an SVG file."""
    import matplotlib as mpl
    from matplotlib.figure import Figure as Canvas

    panels = figure.panels(rows)
    across = min(_ACROSS, len(panels))
    down = math.ceil(len(panels) / across)
    shared = len(panels) > 1 and len({_labels(panel) for panel in panels}) == 1
    text = "\n".join(textwrap.wrap(caption(figure), _CHARACTERS * across))
    with mpl.rc_context(_STYLE):
        canvas = Canvas(figsize=(_SIZE[0] * across, _SIZE[1] * down + 0.3), layout="constrained")
        axes = canvas.subplots(down, across, squeeze=False).ravel()
        for one, panel in zip(axes, panels, strict=False):
            _panel(one, panel, legend=not shared)
        for one in axes[len(panels) :]:
            one.set_visible(False)
        canvas.suptitle(figure.title, fontsize=11)
        canvas.draw_without_rendering()
        canvas.set_layout_engine("none")
        below = 0.0
        if shared:  # what stands below the canvas makes it longer, by "tight"
            handles, labels = _entries(axes[0], panels)
            canvas.legend(
                handles, labels, loc="upper center", bbox_to_anchor=(0.5, 0.0), ncols=_columns(labels), frameon=False
            )
            below = -0.23 * math.ceil(len(labels) / _columns(labels)) / canvas.get_figheight()
        canvas.text(0.01, below - 0.05 / canvas.get_figheight(), text, fontsize=8, va="top")
        canvas.savefig(path, format="svg", bbox_inches="tight", metadata={"Date": None, "Creator": None})
    path.write_text(_smaller(path.read_text(encoding="utf-8")), encoding="utf-8")


def _columns(labels: Sequence[str]) -> int:
    """Columns of a legend that is as wide as two panels."""
    return max(1, min(len(labels), 120 // (max(map(len, labels)) + 8)))


def _smaller(svg: str) -> str:
    """Cut places off at a hundredth of a point, and drop the indentation."""
    rounded = _PLACES.sub(lambda found: _DIGITS.sub(r"\1", found[0]), svg)
    return "\n".join(line.strip() for line in rounded.splitlines() if line.strip()) + "\n"


def _labels(panel: Panel) -> tuple[str, ...]:
    """What the legend of a panel names; closed forms share a colour and have no name of their own."""
    return tuple(line.label for line in panel.lines if not _belongs(line))


def _belongs(line: Line) -> bool:
    return line.look == "theory" and line.colour is not None


def _entries(axes: Any, panels: Sequence[Panel]) -> tuple[list[Any], list[str]]:
    """Handles and names of a legend, with one entry for all dashed lines."""
    from matplotlib.lines import Line2D

    handles, labels = axes.get_legend_handles_labels()
    if any(_belongs(line) for panel in panels for line in panel.lines):
        handles, labels = (
            [*handles, Line2D([], [], color="0.4", linestyle="--", linewidth=1.0)],
            [*labels, "closed form"],
        )
    return handles, labels


def _panel(axes: Any, panel: Panel, *, legend: bool) -> None:
    colours: dict[str, int] = {}
    for line in panel.lines:
        colours.setdefault(line.colour or line.label, len(colours))
    if panel.lines and isinstance(next(iter(panel.lines[0].x), 0), str):
        _bars(axes, panel)
    else:
        for line in panel.lines:
            _curve(axes, line, colours[line.colour or line.label])
        axes.set_xscale("log" if panel.x_log else "linear")
    axes.set_yscale("log" if panel.y_log else "linear")
    axes.minorticks_off()  # most of a file would be the small ticks of logarithms
    axes.set(xlabel=panel.x, ylabel=panel.y)
    axes.set_title("\n".join(textwrap.wrap(panel.title, 54)), loc="left")
    axes.grid(alpha=0.25)
    axes.spines[["top", "right"]].set_visible(False)
    if legend and len(panel.lines) > 1:
        axes.legend(*_entries(axes, [panel]), frameon=False)


def _curve(axes: Any, line: Line, number: int) -> None:
    y = np.array([math.nan if value is None else value for value in line.y], dtype=np.float64)
    look = {"color": _COLOURS[number % len(_COLOURS)], "marker": _MARKERS[number % len(_MARKERS)], **_LOOKS[line.look]}
    if line.spread is None:
        axes.plot(line.x, y, label="_" if _belongs(line) else line.label, **look)
    else:
        spread = [math.nan if value is None else value for value in line.spread]
        axes.errorbar(line.x, y, yerr=spread, capsize=2, elinewidth=0.8, label=line.label, **look)


def _bars(axes: Any, panel: Panel) -> None:
    places = list(dict.fromkeys(str(x) for line in panel.lines for x in line.x))
    width = 0.8 / len(panel.lines)
    for number, line in enumerate(panel.lines):
        at = [places.index(str(x)) + (number + 0.5) * width - 0.4 for x in line.x]
        heights = [math.nan if value is None else value for value in line.y]
        axes.bar(at, heights, width, label=line.label, color=_COLOURS[number % len(_COLOURS)])
    axes.set_xticks(range(len(places)), places)
