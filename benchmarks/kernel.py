"""Kernel speed: users perturbed and counted a second on one core, and how near that is to what is possible.

Each figure includes all that happens to a user outside files: digest of the integer id, seed, random bits by AES,
packed report, count. Beside it stand two things that no such kernel can be quicker than: making its random bits with
AES-128-CTR (160 bytes a user at 128 keys, nine bits a cell and one block; in buffers of the best size), and copying
its reports once. Cases take turns in fresh processes, and the quickest time of each round counts; ratios are medians
over rounds.

    python -m benchmarks.kernel [--rounds 5] [--smoke] [--json FILE]
"""

from __future__ import annotations

import statistics
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from benchmarks import harness
from benchmarks.kernel_cases import AES_BUFFERS, AES_BYTES, MECHANISMS, label, users_of

#: Bits of AES for each cell and bytes for each user that the limit speaks of.
BITS_A_CELL, BLOCK = 9, 16
TARGET_KEYS, TARGET = 128, 5.0


def figures(times: Mapping[str, Sequence[float]]) -> dict[str, Any]:
    """Work out rates and ratios from seconds of a call, case by case and round by round."""
    sizes = {size: [seconds / AES_BYTES for seconds in times[f"aes-ctr {size}"]] for size in AES_BUFFERS}
    best = min(sizes, key=lambda size: statistics.median(sizes[size]))
    rows = []
    for name, keys in MECHANISMS:
        users = users_of(keys)
        a_user = [seconds / users for seconds in times[label(name, keys)]]
        row = {"mechanism": name, "keys": keys, "nanoseconds_per_user": statistics.median(a_user) * 1e9}
        row["users_per_second"] = 1e9 / row["nanoseconds_per_user"]
        if name == "pckv-ue":
            drawn = BITS_A_CELL * keys / 8 + BLOCK
            row["times_aes"] = harness.ratio(a_user, [drawn * seconds for seconds in sizes[best]])
            row["times_copy"] = harness.ratio(a_user, [seconds / users for seconds in times[f"copy {keys}"]])
        rows.append(row)
    speeds = {str(size): 1e-9 / statistics.median(seconds) for size, seconds in sizes.items()}
    return {"mechanisms": rows, "aes_gigabytes_per_second": speeds, "best_buffer": best}


def show(found: Mapping[str, Any]) -> None:
    """Print the table."""
    print(f"{'mechanism':10}{'keys':>10}{'M users/s':>11}{'ns a user':>11}{'times AES':>11}{'times copy':>12}")
    for row in found["mechanisms"]:
        aes, copy = (f"{row[part]:.1f}" if part in row else "" for part in ("times_aes", "times_copy"))
        million, nano = row["users_per_second"] / 1e6, row["nanoseconds_per_user"]
        print(f"{row['mechanism']:10}{row['keys']:10,}{million:11.2f}{nano:11.1f}{aes:>11}{copy:>12}")
    best = str(found["best_buffer"])
    print(
        f"AES-128-CTR: {found['aes_gigabytes_per_second'][best]:.2f} GB/s in buffers of {int(best) >> 10} KB, the best"
    )


def main(argv: Sequence[str] | None = None) -> int:
    parser = harness.options(__doc__)
    parser.add_argument("--rounds", type=int, default=5)
    given = parser.parse_args(argv)
    times = harness.time_in_turn(
        "benchmarks.kernel_cases", rounds=1 if given.smoke else given.rounds, smoke=given.smoke
    )
    found = figures(times)
    show(found)
    harness.write(given.json, {**found, "versions": harness.versions_of("numpy", "cryptography"), "seconds": times})
    return 0


def draw(results: Mapping[str, Any], path: Path) -> None:
    """Draw users per second, and what AES alone and one copy would allow."""
    rows = results["mechanisms"]
    shown, axes = harness.figure(figsize=(7, 4))
    places = range(len(rows))
    axes.barh(places, [row["users_per_second"] for row in rows], color="#4c6ef5", label="kernel, one core")
    for part, mark, colour in (("times_aes", "|", "#e8590c"), ("times_copy", "x", "#868e96")):
        some = [(i, row) for i, row in enumerate(rows) if part in row]
        limit = [row["users_per_second"] * row[part] for _, row in some]
        name = "AES-CTR alone" if part == "times_aes" else "one copy of the reports"
        axes.scatter(limit, [i for i, _ in some], marker=mark, s=90, color=colour, label=name, zorder=3)
    axes.set(xscale="log", xlabel="users a second", yticks=list(places))
    axes.set_yticklabels([f"{row['mechanism']}, {row['keys']:,} keys" for row in rows])
    axes.invert_yaxis()
    axes.legend(fontsize="small")
    harness.save_figure(shown, path)


if __name__ == "__main__":
    sys.exit(main())
