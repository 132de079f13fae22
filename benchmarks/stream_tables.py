"""What docs/streaming.md and docs/scheduling.md say of stored results."""

from __future__ import annotations

from collections.abc import Iterator

from benchmarks.stored_tables import Results, Tables, table, where

__all__ = ["SCHEDULING", "STREAMING"]

ENGINES = ("prism", "flink")


def _measured(results: Results) -> Iterator[tuple[str, str, Results]]:
    for case, found in results["cases"].items():
        for engine in ENGINES:
            if engine in found:
                yield case, engine, {"machine": results["machine"], **found, **found[engine]}


def streams_table(results: Results) -> str:
    """Rate and delay of each collection on each engine, and what was not measured."""
    rows = []
    for case, engine, found in _measured(results):
        delay = found["delay"]
        longest = f"{delay['largest']:.1f} s, at {delay['load']:,} a second" if delay["largest"] is not None else "–"
        rate = f"{found['sustained']['reports_per_second']:,}"
        rows.append((case, engine.capitalize(), rate, longest, f"{found['machine']['load_avg_1min']:.0f}"))
    head = ("collection", "engine", "reports a second, sustained", "longest delay", "load average of the 2 cores")
    done = {(case, engine) for case, engine, _ in _measured(results)}
    left = [f"{case} on {e.capitalize()}" for case in results["cases"] for e in ENGINES if (case, e) not in done]
    missing = f"\n\nNot measured yet: {'; '.join(left)}." if left else ""
    return f"{table(head, rows)}{missing}"


def steps_table(results: Results) -> str:
    """Seconds of a core for a million reports: the work itself, the part of the one gate, and our process on Prism."""
    rows = []
    for case, found in results["cases"].items():
        alone, gate = (1e6 / found["one core without an engine"][name] for name in ("reports_per_second", "gate"))
        prism = found.get("prism", {}).get("sustained")
        process = f"{1e6 / prism['reports_per_processor_second']:.2f}" if prism else "–"
        rows.append((case, f"{alone:.2f}", f"{gate:.2f}", process))
    head = ("collection", "decoded, checked and counted alone, s", "the gate alone, s", "our process on Prism, s")
    return table(head, rows)


def store_table(results: Results) -> str:
    """What estimates from a store of counts take."""
    rows = [
        (name, f"{one['processor_seconds']:.1f}", f"{one['seconds']:.1f}", one["peak_mb"])
        for name, one in results["cases"].items()
    ]
    head = ("estimated", "processor seconds, start-up included", "seconds", "peak memory, MB")
    size = f"{results['days']} days of {results['keys']:,} keys, {results['store_mb']:.0f} MB."
    return f"{where(results)} {size}\n\n{table(head, rows)}"


STREAMING: Tables = {"streams": (("streaming",), streams_table), "steps": (("streaming",), steps_table)}
SCHEDULING: Tables = {"store": (("counts_store",), store_table)}
