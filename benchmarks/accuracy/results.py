"""Results as files: one JSON and one SVG a figure."""

from __future__ import annotations

import json
import math
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from .figures import Figure, Row

__all__ = ["RESULTS", "read_rows", "write_rows"]

RESULTS = Path(__file__).parent / "results"
_DIGITS = 6


def write_rows(figure: Figure, rows: Sequence[Row], seconds: float, folder: Path) -> Path:
    """Write the rows of a figure, one a line, with what its caption says and how long it took."""
    head = {
        "figure": figure.name,
        "title": figure.title,
        "source": figure.source,
        "data": figure.data,
        "command": figure.command,
        "seconds": round(seconds, 1),
    }
    lines = [f" {json.dumps(name)}: {json.dumps(value, ensure_ascii=False)}," for name, value in head.items()]
    body = ",\n".join(f"  {json.dumps(_plain(row), ensure_ascii=False, allow_nan=False)}" for row in rows)
    path = folder / f"{figure.name}.json"
    path.write_text("{\n" + "\n".join(lines) + '\n "rows": [\n' + body + "\n ]\n}\n", encoding="utf-8")
    return path


def read_rows(figure: Figure, folder: Path = RESULTS) -> list[Row]:
    """Return the rows that `write_rows` wrote.

    Raises:
        FileNotFoundError: The figure was never run.
    """
    rows: list[Row] = json.loads((folder / f"{figure.name}.json").read_text(encoding="utf-8"))["rows"]
    return rows


def _plain(row: Row) -> Row:
    return {name: _number(value) for name, value in row.items()}


def _number(value: Any) -> Any:
    """Numbers of NumPy as Python's, to six digits; what is no number as None."""
    value = value.item() if hasattr(value, "item") else value
    if not isinstance(value, float):
        return value
    return float(f"{value:.{_DIGITS}g}") if math.isfinite(value) else None
