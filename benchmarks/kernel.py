"""Kernel speed: users perturbed and counted a second on one core, and how near that is to what is possible.

A rate includes all that happens to a user outside files: digest of the integer id, seed, random bits by AES, packed
report, count; with the loops that Numba compiles, and with NumPy alone. Two things are set beside the kernels of
PCKV-UE (client: seed, random bits and packed report; both: the count besides): making the least random bits with
AES-128-CTR (160 bytes a user at 128 keys, nine bits a cell and one block, in buffers of the best size; our kernel draws
14 blocks, 224 bytes), and copying the reports once. Cases take turns in fresh processes, and the quickest time of each
round counts, by processor time; ratios are medians over rounds.

    python -m benchmarks.kernel [--rounds 5] [--smoke] [--json FILE]
"""

from __future__ import annotations

import itertools
import statistics
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from benchmarks import harness
from benchmarks.kernel_cases import AES_BUFFERS, AES_BYTES, LOOPS, MECHANISMS, label, parts_of, users_of

#: Bits of AES for each cell and bytes for each user that the limit speaks of.
BITS_A_CELL, BLOCK = 9, 16


def figures(times: Mapping[str, Sequence[float]]) -> dict[str, Any]:
    """Work out rates and ratios from seconds of a call, case by case and round by round."""
    sizes = {size: [seconds / AES_BYTES for seconds in times[f"aes-ctr {size}"]] for size in AES_BUFFERS}
    best = min(sizes, key=lambda size: statistics.median(sizes[size]))
    rows = []
    for (name, keys), loops in itertools.product(MECHANISMS, LOOPS):
        users = users_of(keys)
        parts = {part: [one / users for one in times[label(name, keys, part, loops)]] for part in parts_of(name)}
        a_user = parts["all"]
        row = {"mechanism": name, "keys": keys, "loops": loops, "nanoseconds_per_user": statistics.median(a_user) * 1e9}
        row["users_per_second"] = 1e9 / row["nanoseconds_per_user"]
        if name == "pckv-ue":
            drawn = BITS_A_CELL * keys / 8 + BLOCK
            aes = [drawn * seconds for seconds in sizes[best]]
            row["client_times_aes"], row["times_aes"] = (harness.ratio(parts[part], aes) for part in ("client", "both"))
            row["times_copy"] = harness.ratio(parts["both"], [seconds / users for seconds in times[f"copy {keys}"]])
        rows.append(row)
    speeds = {str(size): 1e-9 / statistics.median(seconds) for size, seconds in sizes.items()}
    return {"mechanisms": rows, "aes_gigabytes_per_second": speeds, "best_buffer": best}


def show(found: Mapping[str, Any]) -> None:
    """Print the table."""
    rates = f"{'M users/s':>11}{'ns a user':>11}"
    print(f"{'mechanism':10}{'keys':>10} {'loops':9}{rates}{'client/AES':>12}{'both/AES':>10}{'both/copy':>11}")
    for row in found["mechanisms"]:
        names = ("client_times_aes", "times_aes", "times_copy")
        client, aes, copy = (f"{row[name]:.2f}" if name in row else "" for name in names)
        million, nano = row["users_per_second"] / 1e6, row["nanoseconds_per_user"]
        name = f"{row['mechanism']:10}{row['keys']:10,} {row['loops']:9}"
        print(f"{name}{million:11.2f}{nano:11.1f}{client:>12}{aes:>10}{copy:>11}")
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
    harness.write(
        given.json, {**found, "versions": harness.versions_of("numpy", "cryptography", "numba"), "seconds": times}
    )
    return 0


def draw(results: Mapping[str, Any], path: Path) -> None:
    """Draw users per second, and what AES alone and one copy would allow."""
    rows = [row for row in results["mechanisms"] if row["loops"] == "compiled"]
    shown, axes = harness.figure(figsize=(7, 4))
    places = range(len(rows))
    axes.barh(
        places, [row["users_per_second"] for row in rows], color="#4c6ef5", label="kernel, compiled loops, one core"
    )
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
