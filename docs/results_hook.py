"""Brings the plots of benchmarks/accuracy/results into the site, where pages show them by their path in the project."""

from __future__ import annotations

from pathlib import Path
from typing import Any

RESULTS = Path(__file__).resolve().parents[1] / "benchmarks" / "accuracy" / "results"
IN_PROJECT, IN_SITE = "../benchmarks/accuracy/results/", "accuracy-results/"


def on_files(files: Any, config: Any) -> Any:
    """Add the plots to the files of the site."""
    from mkdocs.structure.files import File

    for plot in sorted(RESULTS.glob("*.svg")):
        files.append(File.generated(config, f"{IN_SITE}{plot.name}", abs_src_path=str(plot)))
    return files


def on_page_markdown(markdown: str, **_: Any) -> str:
    """Let the pages show them from there."""
    return markdown.replace(IN_PROJECT, IN_SITE)
