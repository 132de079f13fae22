"""Pictures that a verb writes with `--plot FILE`: the name is checked before any work, matplotlib is an extra."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from ..errors import InputError

__all__ = ["check_plot_file", "new_canvas", "save_plot"]

_SUFFIXES = (".png", ".svg", ".pdf")


def check_plot_file(path: str | Path) -> Path:
    """Return the file that a plot goes to.

    Raises:
        InputError: its name ends in something else than .png, .svg or .pdf.
    """
    file = Path(path)
    if file.suffix.lower() not in _SUFFIXES:
        raise InputError(f"--plot {path}: the name must end in .png, .svg or .pdf.")
    return file


def new_canvas(width: float, height: float) -> Any:
    """Return an empty matplotlib figure.

    Args:
        width: inches.
        height: inches.

    Raises:
        InputError: matplotlib is not installed.
    """
    try:
        from matplotlib.figure import Figure
    except ImportError as error:
        raise InputError("--plot needs matplotlib; install it with: pip install 'ldp-beam[plot]'.") from error
    return Figure(figsize=(width, height), layout="constrained")


def save_plot(canvas: Any, file: Path) -> None:
    """Write a figure into its file.

    Raises:
        InputError: the file cannot be written.
    """
    try:
        canvas.savefig(file, dpi=150)
    except OSError as error:
        raise InputError(f"--plot {file}: the file cannot be written: {error.strerror}.") from error
