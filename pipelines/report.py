"""`report`: one HTML page of a result that needs no network, no server and no other file."""

from __future__ import annotations

import html
import importlib.metadata
import importlib.util
import uuid
from pathlib import Path
from string import Template
from typing import Final

from ..errors import InputError, RunError
from . import report_text as words
from .report_data import Result, read_result

__all__ = ["render", "report"]

_ASSETS: Final = Path(__file__).parent / "report_assets"


def report(folder: str | Path, output: str | Path, *, public: bool = False, overwrite: bool = False) -> Path:
    """Write a page about a result.

    Args:
        folder: what `collect` or `aggregate` left behind.
        output: the HTML file.
        public: leave out the exact tallies of the raw data, which only the holder of the records may see.
        overwrite: replace an existing file.

    Returns:
        The path of the page.

    Raises:
        InputError: There is no complete result, the file exists, or the charting library is not installed.
        RunError: The file cannot be written.
    """
    path = Path(output)
    if path.suffix.lower() not in {".html", ".htm"}:
        raise InputError(f"--output {path}: a report is one HTML file; give a name that ends in .html.")
    if path.is_dir() or (path.exists() and not overwrite):
        raise InputError(f"--output {path} exists. Give another name, or --overwrite to replace it.")
    page = render(read_result(Path(folder)), public=public)
    part = path.with_name(f".{path.name}.{uuid.uuid4().hex[:12]}.partial")
    try:
        part.write_text(page, encoding="utf-8")
        part.replace(path)
    except OSError as error:
        part.unlink(missing_ok=True)
        raise RunError(f"{path}: the page cannot be written: {error.strerror}.") from error
    return path


def render(result: Result, *, public: bool = False) -> str:
    """Return the page as text."""
    name = html.escape(str(result.manifest["collection"].get("name", "estimates")))
    return Template(_asset("page.html")).substitute(
        title=f"{name} – estimates",
        heading=name,
        lead=words.lead(result),
        style=_asset("page.css"),
        warnings=words.warnings(result),
        cards=words.cards(result),
        collected=words.collected(result),
        promise=words.promise(result),
        bars_note=_bars_note(result),
        certainty=words.certainty(result),
        left_out=words.left_out(result, public=public),
        manifest=words.manifest(result, public=public),
        version=html.escape(importlib.metadata.version("ldp-beam")),
        data=result.as_json(),
        plotly=_plotly(),
        script=_asset("page.js"),
    )


def _bars_note(result: Result) -> str:
    pale = " Grey bars carry a flag." if result.flag_names else ""
    what = (
        "Estimated share of people who hold the key"
        if result.has_frequency
        else "Estimated mean among those who hold the key"
    )
    return f"{what}; the lines are 95 % intervals.{pale}"


def _asset(name: str) -> str:
    return (_ASSETS / name).read_text(encoding="utf-8")


def _plotly() -> str:
    """Return plotly.js as its package ships it; the package itself is not imported, which would take a second.

    Raises:
        InputError: It is not installed.
    """
    spec = importlib.util.find_spec("plotly")
    origin = None if spec is None or spec.origin is None else Path(spec.origin).parent
    path = None if origin is None else origin / "package_data" / "plotly.min.js"
    if path is None or not path.is_file():
        raise InputError(
            "The report page needs the charting library plotly, which is not installed here. Install it with the "
            "extra: python -m pip install 'ldp-beam[report]'"
        )
    return path.read_text(encoding="utf-8").replace("</script", "<\\/script")
