"""Writes the tables of docs/engines.md: `python -m benchmarks.tested_versions [--check]`.

Versions come from the pinned files that CI runs with, figures from benchmarks/results/engines.json. With `--check`
nothing is written, and a table of versions that is out of date is an error.
"""

from __future__ import annotations

import argparse
import json
import re
import sys
from pathlib import Path

from ldp_beam.engines import TOOLS, pinned_versions, tool_version
from ldp_beam.pipelines.running import versions

ROOT = Path(__file__).parents[1]
PAGE = ROOT / "docs" / "engines.md"
FIGURES = ROOT / "benchmarks" / "results" / "engines.json"


def version_table() -> str:
    """Return the table of what the tests run together."""
    ours = versions()
    rows = [f"| direct | apache-beam {ours['apache-beam']} | Python {'.'.join(ours['python'].split('.')[:2])} |"]
    for engine, tool in (("prism", "go"), ("flink", "java"), ("spark", "java")):
        parts = [f"{name} {version}" for name, version in pinned_versions(engine).items() if "slf4j" not in name]
        found = (tool_version(tool) or "absent").split(".")[0 if tool == "java" else slice(0, 2)]
        version = found if isinstance(found, str) else ".".join(found)
        rows.append(f"| {engine} | {', '.join(parts)} | {TOOLS[tool].name.capitalize()} {version} |")
    return "\n".join(["| engine | runner | with |", "|---|---|---|", *rows])


def figure_table() -> str | None:
    """Return the table of measured times; None where nothing was measured."""
    if not FIGURES.exists():
        return None
    stored = json.loads(FIGURES.read_text())
    machine = stored["machine"]
    lines = [
        f"PCKV-UE, 100 keys, {stored['users']:,} people from Parquet, {machine['cores']} cores, with other "
        f"work on the machine (load {machine['load']:.0f}); processor seconds hardly depend on it:",
        "",
        "| engine | seconds | relative to direct | processor seconds | overhead of a job, s | first job, s |",
        "|---|---|---|---|---|---|",
    ]
    for name, found in stored["engines"].items():
        times = [f"{found[part]:.1f}" for part in ("processor_seconds", "overhead", "first_job")]
        lines.append(f"| {name} | {found['seconds']:.1f} | {found['relative_to_direct']:.2f} | {' | '.join(times)} |")
    return "\n".join(lines)


def replaced(text: str, mark: str, table: str) -> str:
    """Return the text with a table between its marks."""
    return re.sub(
        rf"(<!-- {mark} -->\n).*?(<!-- /{mark} -->)", lambda m: f"{m[1]}{table}\n{m[2]}", text, flags=re.DOTALL
    )


def main() -> int:
    """Write or check."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--check", action="store_true")
    given = parser.parse_args()
    before = PAGE.read_text(encoding="utf-8")
    after = replaced(before, "versions", version_table())
    if given.check:
        if after != before:
            print("docs/engines.md: run python -m benchmarks.tested_versions", file=sys.stderr)
        return int(after != before)
    figures = figure_table()
    PAGE.write_text(after if figures is None else replaced(after, "figures", figures), encoding="utf-8")
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
