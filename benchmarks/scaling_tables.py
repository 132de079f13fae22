"""What the tables of docs/scaling.md say of stored results."""

from __future__ import annotations

from benchmarks.stored_tables import Results, Tables, table, where

__all__ = ["TABLES"]

BILLION = 10**9


def users_table(results: Results) -> str:
    """Time and memory as users grow."""
    rows = [
        (
            f"{job['users']:,}",
            f"{job['seconds']:.1f}",
            f"{job['processor_seconds']:.1f}",
            f"{job['users'] / job['seconds'] / 1e6:.2f}",
            job["peak_mb"],
        )
        for job in (results["users"]["few"], *results["users"]["jobs"])
    ]
    head = ("users", "seconds", "processor seconds", "million users a second", "peak memory, MB")
    exponent = f"Without the start of a job, time grows with users to the power of {results['users']['exponent']:.2f}."
    return f"{where(results)} {results['workers']} threads.\n\n{table(head, rows)}\n\n{exponent}"


def keys_table(results: Results) -> str:
    """Time and memory as keys grow."""
    rows = []
    for mechanism, jobs in results["keys"].items():
        for job in jobs:
            each = (job["seconds"] - job["start"]) / job["users"] * 1e6
            rows.append(
                (
                    mechanism,
                    f"{job['keys']:,}",
                    f"{job['users']:,}",
                    f"{job['seconds']:.1f}",
                    f"{each:.2f}",
                    job["peak_mb"],
                )
            )
    head = ("mechanism", "keys", "users", "seconds", "seconds for a million more users", "peak memory, MB")
    return table(head, rows)


def files_table(results: Results) -> str:
    """How long files of many keys take."""
    found = results["files"]
    rows = [(name.replace("_", " "), f"{seconds:.2f}") for name, seconds in found["seconds"].items()]
    return table((f"{found['keys']:,} keys", "seconds"), rows)


def share_table(results: Results) -> str:
    """Where the time of a user goes."""
    rows = [(step, f"{share:.0%}") for step, share in results["shares"].items()]
    return f"{where(results)} {results['users']:,} users.\n\n{table(('step', 'share of the time'), rows)}"


def shuffle_table(results: Results) -> str:
    """Bytes that cross a shuffle."""
    rows = []
    for case in results["cases"]:
        parts = sorted(case["groupings"].items(), key=lambda item: -item[1]["bytes"])
        most = f"{parts[0][0].split('/')[0]}: {parts[0][1]['bytes'] / case['bytes']:.0%}"
        million = f"{case['bytes_a_million_users'] / 1e6:.2f}"
        rows.append((case["mechanism"], f"{case['keys']:,}", case["layout"], million, most))
    head = ("mechanism", "keys", "layout", "MB for each million users", "most of it")
    return f"{results['users']:,} users in slices of about a million.\n\n{table(head, rows)}"


def billion_table(scale: Results, shuffle: Results) -> str:
    """What a billion users a day take, from the largest job that was measured."""
    few, largest = scale["users"]["few"], scale["users"]["jobs"][-1]
    each = (largest["processor_seconds"] - few["processor_seconds"]) / (largest["users"] - few["users"])
    hours = each * BILLION / 3600
    pairs = next(case for case in shuffle["cases"] if case["layout"] == "pairs")
    rows = [
        ("processor time, 100 keys, nested", f"{hours:.2f} core-hours ({each * 1e9:.0f} ns a user)"),
        ("cores, to be ready in an hour", f"{max(1, round(hours + 0.5))}"),
        ("shuffled, pairs", f"{pairs['bytes_a_million_users'] * 1e3 / 1e9:.0f} GB"),
        ("result, any number of users", "16 bytes a key of counts"),
    ]
    return table(("a billion users", "measured on less, scaled"), rows)


#: Mark in the page -> names of the results, and what to make of them.
TABLES: Tables = {
    "users": (("scale",), users_table),
    "keys": (("scale",), keys_table),
    "files": (("scale",), files_table),
    "share": (("share",), share_table),
    "shuffle": (("shuffle",), shuffle_table),
    "billion": (("scale", "shuffle"), billion_table),
}
