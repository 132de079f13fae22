"""How figures are drawn: one style for all, an SVG that is the same on each run, the caption below."""

from __future__ import annotations

import math
import textwrap
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from .figures import Figure, Line, Panel, Row

__all__ = ["caption", "draw"]

_ACROSS = 2
_SIZE = 5.4, 3.7
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
_LOOKS: dict[str, dict[str, Any]] = {
    "measured": {"linestyle": "-", "linewidth": 1.2, "markersize": 4},
    "theory": {"linestyle": "--", "linewidth": 1.0, "marker": ""},
    "bound": {"linestyle": ":", "linewidth": 1.2, "marker": ""},
}
#: Without these an SVG would differ from run to run, and its text would be drawn as outlines.
_STYLE = {
    "svg.fonttype": "none",
    "svg.hashsalt": "ldp-beam",
    "font.size": 9,
    "axes.titlesize": 10,
    "legend.fontsize": 7.5,
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
    text = "\n".join(textwrap.wrap(caption(figure), 92 * across))
    with mpl.rc_context(_STYLE):
        canvas = Canvas(
            figsize=(_SIZE[0] * across, _SIZE[1] * down + 0.3 + 0.16 * text.count("\n")), layout="constrained"
        )
        axes = canvas.subplots(down, across, squeeze=False).ravel()
        for one, panel in zip(axes, panels, strict=False):
            _panel(one, panel)
        for one in axes[len(panels) :]:
            one.set_visible(False)
        canvas.suptitle(figure.title, fontsize=11)
        canvas.supxlabel(text, fontsize=7.5, x=0.01, ha="left")
        canvas.savefig(path, format="svg", metadata={"Date": None, "Creator": None})
    path.write_text(
        "\n".join(line.rstrip() for line in path.read_text(encoding="utf-8").splitlines()) + "\n", encoding="utf-8"
    )


def _panel(axes: Any, panel: Panel) -> None:
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
    axes.set(xlabel=panel.x, ylabel=panel.y)
    axes.set_title(panel.title, loc="left")
    axes.grid(alpha=0.25)
    axes.spines[["top", "right"]].set_visible(False)
    if len(panel.lines) > 1:
        axes.legend(frameon=False)


def _curve(axes: Any, line: Line, number: int) -> None:
    y = np.array([math.nan if value is None else value for value in line.y], dtype=np.float64)
    look = {"color": _COLOURS[number % len(_COLOURS)], "marker": _MARKERS[number % len(_MARKERS)], **_LOOKS[line.look]}
    if line.spread is None:
        axes.plot(line.x, y, label=line.label, **look)
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
