"""Writes the tables of the documentation from stored results: `python -m benchmarks.pages [--check]`.

With `--check` nothing is written, and a table that is out of date is an error. A table stands between two marks of its
name; one without results stays as it is.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence

from benchmarks import accuracy_tables, scaling_tables, stream_tables
from benchmarks.registry import BENCHMARKS
from benchmarks.stored_tables import DOCS, Results, Tables, filled, table, where


def benchmarks_table() -> str:
    """The list of benchmarks."""
    rows = [(f"`{one.name}`", one.what, f"{one.minutes:g}", one.needs or "-") for one in BENCHMARKS]
    return table(("benchmark", "what it measures", "minutes", "needs besides"), rows)


def kernel_tables(results: Results) -> str:
    """Rates of kernels, and multiples of AES and of a copy."""
    rows = []
    for row in results["mechanisms"]:
        multiples = [
            f"{row[name]:.1f}" if name in row else "-" for name in ("client_times_aes", "times_aes", "times_copy")
        ]
        million = f"{row['users_per_second'] / 1e6:.2f}"
        rows.append(
            (
                row["mechanism"],
                f"{row['keys']:,}",
                row["loops"],
                million,
                f"{row['nanoseconds_per_user']:.0f}",
                *multiples,
            )
        )
    head = (
        "mechanism",
        "keys",
        "loops",
        "million users a second",
        "ns a user",
        "client: times AES",
        "both: times AES",
        "times copy",
    )
    return f"{where(results)}\n\n{table(head, rows)}"


def frequency_table(results: Results) -> str:
    """Rates of all packages, and ours relative to the best peer."""
    rows = []
    for row in results["frequencies"]:
        versions = results["versions"].get(row["package"], {})
        name = f"{row['package']} {versions.get(row['package'], '')}".strip()
        times = (
            f"{row['times_best_peer']:.2f}" if row.get("times_best_peer", 9) < 0.95 else f"{row['times_best_peer']:.1f}"
        )
        target = f"{row['target']:g}" if "target" in row else "-"
        thousand = f"{row['users_per_second'] / 1e3:,.1f}"
        rows.append((row["task"].upper(), f"{row['keys']:,}", name, row["case"], thousand, times, target))
    head = ("task", "keys", "package", "mechanism", "thousand users per CPU second", "times the best peer", "target")
    taken = where({"machine": results["frequencies_machine"]})
    return f"{taken}\n\n{table(head, rows)}"


def beam_table(results: Results) -> str:
    """What PipelineDP and `collect` take for files of several sizes."""
    beam = results["beam"]
    rows = []
    for who, job in beam["jobs"].items():
        name = f"PipelineDP {results['versions']['pipeline-dp']['pipeline-dp']}" if who == "pipeline-dp" else who
        for size, seconds in job["seconds"].items():
            rows.append((name, f"{int(size):,}", f"{seconds:.1f}", f"{job['processor_seconds'][size]:.1f}"))
    whole = beam["times_whole_job"]
    text = (
        f"Rows a second beyond start-up (slopes): {beam['jobs']['pipeline-dp']['rows_per_second']:,.0f} and "
        f"{beam['jobs']['ldp-beam collect']['rows_per_second']:,.0f}, {beam['times']:.0f} times as many (by processor "
        f"time {beam['times_processor']:.0f}; target {beam['target']:g}). A whole job of {whole['rows']:,} rows, "
        f"start-up included, is {whole['times']:.1f} times as quick."
    )
    taken = where({"machine": results["beam_machine"]})
    return f"{taken}\n\n{table(('job', 'rows', 'seconds', 'processor seconds'), rows)}\n\n{text}"


TABLES: Tables = {
    "list": ((), benchmarks_table),
    "kernel": (("kernel",), kernel_tables),
    "frequencies": (("peers",), frequency_table),
    "beam": (("peers",), beam_table),
}
#: Tables of each page.
PAGES: dict[str, Tables] = {
    "benchmarks.md": TABLES,
    "accuracy.md": accuracy_tables.TABLES,
    "scaling.md": scaling_tables.TABLES,
    "streaming.md": stream_tables.STREAMING,
    "scheduling.md": stream_tables.SCHEDULING,
}


def main(argv: Sequence[str] | None = None) -> int:
    """Write or check all pages."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--check", action="store_true")
    given = parser.parse_args(argv)
    stale = 0
    for name, tables in PAGES.items():
        page = DOCS / name
        before = page.read_text(encoding="utf-8")
        after = filled(before, tables)
        if given.check and after != before:
            print(f"docs/{name}: run python -m benchmarks.pages", file=sys.stderr)
            stale = 1
        elif not given.check:
            page.write_text(after, encoding="utf-8")
    return stale


if __name__ == "__main__":
    sys.exit(main())
