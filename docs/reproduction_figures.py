"""The figures of the pages, above all docs/reproduction.md, from the results of `python -m benchmarks.accuracy`.

python docs/reproduction_figures.py --write  puts plots, captions, claims and numbers into the pages

A figure stands between <!-- figure NAME --> and <!-- end -->; everything else on the page is written by hand.
"""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Sequence
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT))

from benchmarks.accuracy.figures import Claim, Figure, Row  # noqa: E402  # the folder of the project is no package
from benchmarks.accuracy.registry import ALL  # noqa: E402
from benchmarks.accuracy.results import RESULTS, read_rows  # noqa: E402

DOCS = Path(__file__).parent
#: Where the plots are, seen from a page; `results_hook` brings them into the site.
PLOTS = "../benchmarks/accuracy/results"
_BLOCK = re.compile(r"<!-- figure (?P<name>[a-z0-9-]+) -->\n.*?<!-- end -->\n", re.S)


def block(figure: Figure) -> str:
    """Return what the page says of a figure."""
    rows = read_rows(figure)
    seconds = json.loads((RESULTS / f"{figure.name}.json").read_text(encoding="utf-8"))["seconds"]
    parts = [
        f"![{figure.title}]({PLOTS}/{figure.name}.svg)",
        f"*{figure.title}. {figure.source}. Data: {figure.data} `{figure.command}` ({max(1, round(seconds))} s).*",
        _claims(figure.claims(rows)),
        _table(figure.table(rows)),
    ]
    return "\n\n".join(part for part in parts if part)


def _claims(claims: Sequence[Claim]) -> str:
    if not claims:
        return ""
    lines = ["| the paper | measured here | verdict |", "|---|---|---|"]
    return "\n".join([*lines, *(f"| {one.paper} | {one.found} | {_verdict(one)} |" for one in claims)])


def _verdict(claim: Claim) -> str:
    if claim.agrees:
        return f"agrees, with an exception: {claim.why}" if claim.why else "agrees"
    return f"**differs**: {claim.why}"


def _table(rows: Sequence[Row]) -> str:
    if not rows:
        return ""
    names = list(rows[0])
    lines = ["| " + " | ".join(names) + " |", "|" + "---|" * len(names)]
    return "\n".join([*lines, *("| " + " | ".join(_cell(row[name]) for name in names) + " |" for row in rows)])


def _cell(value: object) -> str:
    if value is None:
        return "-"
    return f"{value:.3g}" if isinstance(value, float) else str(value)


def page(text: str) -> str:
    """Return the page with the figures of today."""
    return _BLOCK.sub(
        lambda found: f"<!-- figure {found['name']} -->\n{block(ALL[found['name']])}\n<!-- end -->\n", text
    )


def named(text: str) -> list[str]:
    """Return the names of the figures on a page."""
    return [found["name"] for found in _BLOCK.finditer(text)]


def pages() -> list[Path]:
    """Return the pages that have figures."""
    return [path for path in sorted(DOCS.glob("*.md")) if named(path.read_text(encoding="utf-8"))]


if __name__ == "__main__":
    for one in pages():
        new = page(one.read_text(encoding="utf-8"))
        if "--write" in sys.argv[1:]:
            one.write_text(new, encoding="utf-8")
        else:
            print(new)
