"""Markdown tables of stored results, for the pages that show them."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from benchmarks.tested_versions import replaced

__all__ = ["DOCS", "RESULTS", "Results", "Tables", "filled", "table", "where"]

ROOT = Path(__file__).parents[1]
DOCS = ROOT / "docs"
RESULTS = ROOT / "benchmarks" / "results"

Results = Mapping[str, Any]
#: Mark in a page -> names of the results, and what to make of them.
Tables = Mapping[str, tuple[tuple[str, ...], Callable[..., str]]]


def table(head: Sequence[str], rows: Sequence[Sequence[object]]) -> str:
    """Return a Markdown table."""
    lines = [f"| {' | '.join(head)} |", "|" + "---|" * len(head)]
    return "\n".join([*lines, *(f"| {' | '.join(str(cell) for cell in row)} |" for row in rows)])


def where(results: Results) -> str:
    """Say when and on what results were taken."""
    machine = results["machine"]
    return (
        f"{machine['date'][:10]}, {machine['cpu_count']} cores of {machine['cpu_model_name']}, Python "
        f"{machine['python_version'].split()[0]}, load {machine['load_avg_1min']:.0f} at the end."
    )


def filled(page: str, tables: Tables) -> str:
    """Return a page with tables that agree with the stored results; one without results stays as it is."""
    for mark, (names, make) in tables.items():
        paths = [RESULTS / f"{name}.json" for name in names]
        if all(path.exists() for path in paths):
            page = replaced(page, mark, make(*(json.loads(path.read_text(encoding="utf-8")) for path in paths)))
    return page
