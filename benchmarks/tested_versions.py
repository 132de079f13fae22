"""Writes the tables of docs/engines.md: `python -m benchmarks.tested_versions [--check]`.

Versions are those that the engine tests of the last `make test` ran with (they leave build/tested-versions.json), and
figures those of benchmarks/results/engines.json. With `--check`, which CI calls after its tests, nothing is written,
and a table that names other engines or other runners than the tests ran with is an error. Python, Java and Go are
those of the machine: another one is said and is no error.
"""

from __future__ import annotations

import argparse
import json
import re
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[1]
PAGE = ROOT / "docs" / "engines.md"
FIGURES = ROOT / "benchmarks" / "results" / "engines.json"
LOOPS = {"compiled": "loops compiled by Numba", "numpy": "NumPy's loops"}
RECORD = ROOT / "build" / "tested-versions.json"
#: Engines of the table, and Kafka, the broker of streams.
ENGINES = ("direct", "prism", "flink", "spark", "kafka")


class NoRecordError(Exception):
    """The tests have left no record of every engine."""


def recorded(path: Path = RECORD) -> Mapping[str, Any]:
    """Return what the tests recorded, by engine.

    Raises:
        NoRecordError: Engine tests did not run here, or some engine is not among those whose tests passed.
    """
    if not path.is_file():
        raise NoRecordError(f"{path} is absent: run the engine tests (make test), which write it")
    record = json.loads(path.read_text(encoding="utf-8"))
    if record["failed"]:
        raise NoRecordError(f"tests of {', '.join(record['failed'])} failed: only what works stands in the table")
    absent = [engine for engine in ENGINES if engine not in record["engines"]]
    if absent:
        raise NoRecordError(f"no test of {', '.join(absent)} ran in the last session: run all engine tests (make test)")
    return {engine: record["engines"][engine] for engine in ENGINES}


def rows(engines: Mapping[str, Any]) -> dict[str, tuple[str, str]]:
    """Return for each engine its runner and what it ran with, as the table says them."""
    return {name: (_listed(found["runner"]), _listed(found["with"])) for name, found in engines.items()}


def _listed(versions: Mapping[str, str]) -> str:
    return ", ".join(f"{name} {version}" for name, version in versions.items())


def version_table(engines: Mapping[str, Any]) -> str:
    """Return the table of what the tests ran together."""
    lines = [f"| {name} | {runner} | {more} |" for name, (runner, more) in rows(engines).items()]
    return "\n".join(["| engine | runner | with |", "|---|---|---|", *lines])


def told(text: str) -> dict[str, tuple[str, str]]:
    """Return the rows of a page's table, as `rows` gives them."""
    table = re.search(r"<!-- versions -->\n(.*?)<!-- /versions -->", text, flags=re.DOTALL)
    lines = table[1].splitlines()[2:] if table else []
    cells = [[cell.strip() for cell in line.strip("|").split("|")] for line in lines]
    return {name: (runner, more) for name, runner, more in cells}


def differences(page: Mapping[str, tuple[str, str]], run: Mapping[str, tuple[str, str]]) -> tuple[list[str], list[str]]:
    """Return what the page says and the run denies: first of engines and runners, then of Python, Java and Go."""
    wrong = [f"{name}: the page tells of it, and it was not tested" for name in page if name not in run]
    wrong += [f"{name}: tested, and the page does not tell of it" for name in run if name not in page]
    other = []
    for name in page.keys() & run.keys():
        for place, into in enumerate((wrong, other)):
            if page[name][place] != run[name][place]:
                into.append(f"{name}: the page says {page[name][place]}, the tests ran with {run[name][place]}")
    return sorted(wrong), sorted(other)


def figure_table() -> str | None:
    """Return the table of measured times; None where nothing was measured."""
    if not FIGURES.exists():
        return None
    stored = json.loads(FIGURES.read_text())
    machine = stored["machine"]
    lines = [
        f"PCKV-UE, 100 keys, {stored['users']:,} people from Parquet, {machine['cores']} cores, at a load of the "
        f"machine of {machine['load']:.0f}, {LOOPS[machine['loops']]}; "
        "what a user costs is the slope to four times as many:",
        "",
        "| engine | seconds | relative to direct | processor s | overhead of a job, s | first job, s | ns a user |",
        "|---|---|---|---|---|---|---|",
    ]
    for name, found in stored["engines"].items():
        times = [f"{found[part]:.1f}" for part in ("processor_seconds", "overhead", "first_job")]
        times.append(f"{found['nanoseconds_per_user']:.0f}" if "nanoseconds_per_user" in found else "-")
        lines.append(f"| {name} | {found['seconds']:.1f} | {found['relative_to_direct']:.2f} | {' | '.join(times)} |")
    return "\n".join(lines)


def replaced(text: str, mark: str, table: str) -> str:
    """Return the text with a table between its marks."""
    return re.sub(
        rf"(<!-- {mark} -->\n).*?(<!-- /{mark} -->)", lambda m: f"{m[1]}{table}\n{m[2]}", text, flags=re.DOTALL
    )


def main(arguments: Sequence[str] | None = None) -> int:
    """Write or check."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--check", action="store_true")
    given = parser.parse_args(arguments)
    text = PAGE.read_text(encoding="utf-8")
    try:
        engines = recorded(RECORD)
    except NoRecordError as error:
        engines = None
        print(f"The table of versions cannot be {'checked' if given.check else 'written'}: {error}.", file=sys.stderr)
    if given.check:
        return 1 if engines is None else _check(text, engines)
    if engines is not None:
        text = replaced(text, "versions", version_table(engines))
    figures = figure_table()
    PAGE.write_text(text if figures is None else replaced(text, "figures", figures), encoding="utf-8")
    return int(engines is None)


def _check(text: str, engines: Mapping[str, Any]) -> int:
    wrong, other = differences(told(text), rows(engines))
    for line in other:
        print(f"Not an error: {line}.", file=sys.stderr)
    for line in wrong:
        print(f"docs/engines.md: {line}.", file=sys.stderr)
    if wrong:
        print("Run python -m benchmarks.tested_versions after the tests and commit the page.", file=sys.stderr)
    return int(bool(wrong))


if __name__ == "__main__":
    raise SystemExit(main())
