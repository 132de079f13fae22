"""What docs/accuracy.md says of stored results: tables, and the sentences that hold figures."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from benchmarks.stored_tables import Results, Tables, table

__all__ = ["TABLES"]

Row = dict[str, Any]

#: Names of populations on the page, in its order.
POPULATIONS = {
    ("gg", 1_000_000): "GG",
    ("ratings", 23_486): "ratings",
    ("ratings", 1_000_000): "ratings, a million drawn",
    ("MovieLens, padding 50", 1_000_000): "MovieLens, padding 50",
    ("MovieLens, padding 10", 1_000_000): "MovieLens, padding 10",
    ("MovieLens, padding 200", 1_000_000): "MovieLens, padding 200",
    ("rising", 1_000_000): "means rise with rarity",
    ("falling", 1_000_000): "means fall with rarity",
    ("uu", 1_000_000): "UU",
}
SHORT = {"pckv-ue": "UE", "pckv-grr": "GRR"}
#: What was aimed at: no ratio larger than this.
LIMIT = 1.02


def allocation_table(results: Results) -> str:
    """The numerical allocation beside the paper's."""
    rows = [
        (
            f"{row['frequency']:g}",
            f"{row['epsilon']:g}",
            f"{row['a']:.3f}",
            *(f"{row[f'{name}_closed']:.3f} / {row[f'{name}_simulated']:.3f}" for name in ("frequency", "mean")),
        )
        for row in results["allocation"]
    ]
    return table(("frequency", "epsilon", "a", "frequency", "mean"), rows)


def empirical_bayes_table(results: Results) -> str:
    """Empirical Bayes beside the corrected estimator: one table a mechanism, and the largest ratios."""
    found: list[Row] = results["empirical_bayes"]
    epsilons = sorted({row["epsilon"] for row in found})
    parts = []
    for mechanism, short in SHORT.items():
        rows: list[tuple[str, ...]] = []
        for (population, users), label in POPULATIONS.items():
            same = {"mechanism": mechanism, "population": population, "users": users}
            own = sorted((row for row in found if same.items() <= row.items()), key=lambda row: row["epsilon"])
            if len(own) == len(epsilons):
                rows.append((label, *(f"{row['frequency_ratio']:.3f} / {row['mean_ratio']:.3f}" for row in own)))
            if len(own) == len(epsilons) and "seen_ratio" in own[0]:
                rows.append((f"{label}, what is seen", *(f"{row['seen_ratio']:.3f} / -" for row in own)))
        parts.append(table((f"PCKV-{short}", *(f"epsilon {epsilon:g}" for epsilon in epsilons)), rows))
    whole = [row for row in found if "seen_ratio" not in row]
    cut = [row for row in found if "seen_ratio" in row]
    parts.append(f"Where nobody holds more keys than the padding, {_verdict(whole, ('frequency', 'mean'))}")
    if cut:
        parts.append(f"Where the padding cuts lists off, {_verdict(cut, ('frequency', 'mean', 'seen'))}")
    return "\n\n".join(parts)


def _verdict(rows: Sequence[Row], names: Sequence[str]) -> str:
    """The largest ratios, and whether the aim is reached."""
    what = {"frequency": "frequencies", "mean": "means", "seen": "frequencies that are seen"}
    texts, most = [], 0.0
    for name in names:
        row = max(rows, key=lambda row: row[f"{name}_ratio"])
        ratio = row[f"{name}_ratio"]
        most = most if name == "seen" else max(most, ratio)
        label = POPULATIONS.get((row["population"], row["users"]), row["population"])
        texts.append(f"of {what[name]} {ratio:.3f} ({label}, {SHORT[row['mechanism']]}, epsilon {row['epsilon']:g})")
    reached = "is reached" if most <= LIMIT else "is **not** reached"
    return f"the largest ratios are {', '.join(texts)}; the aim, {LIMIT} at most, {reached}."


def together_table(results: Results) -> str:
    """Numerical allocation and empirical Bayes, with an oracle beside them."""
    aims = {1: 0.65, 2: 0.75}
    rows = [
        (
            row["population"].upper(),
            f"{row['epsilon']:g}",
            f"{row['mean_ratio']:.3f}",
            f"{aims[row['epsilon']]:g}",
            f"{row['oracle_ratio']:.3f}",
        )
        for row in results["together"]
    ]
    made = table(("population", "epsilon", "ours", "aim, at most", "oracle"), rows)
    return f"{made}\n\nOver {min(row['repeats'] for row in results['together'])} repeats."


def repeats_text(results: Results) -> str:
    """How the figures were taken."""
    shrunk: list[Row] = results["empirical_bayes"]
    every = {
        label: min(row["repeats"] for row in shrunk if (row["population"], row["users"]) == key)
        for key, label in POPULATIONS.items()
        if any((row["population"], row["users"]) == key for row in shrunk)
    }
    listed = "; ".join(f"{label}: {repeats}" for label, repeats in every.items())
    return f"Users are drawn anew in each repeat. Repeats of empirical Bayes: {listed} (real data have many keys)."


def padding_table(results: Results) -> str:
    """`padding = "auto"` beside the best fixed padding."""
    found: list[Row] = results["rows"]
    rows = []
    for rule, cap in dict.fromkeys((row["rule"], row["cap"]) for row in found if row["rule"] != "fixed"):
        ratios = [row["error"] / row["best_error"] for row in found if (row["rule"], row.get("cap")) == (rule, cap)]
        held = sum(ratio <= 1.25 for ratio in ratios)
        rows.append((rule, f"{cap:,}", f"{min(ratios):.3f} to {max(ratios):.3f}", f"{held} of {len(ratios)}"))
    return table(("rule", "cap", "ratio to the best fixed padding", "settings within 1.25"), rows)


def plan_table(results: Results) -> str:
    """What plan recommends beside the best."""
    found: list[Row] = results["rows"]
    rows = []
    for figure in ("mean", "frequency"):
        own = [row for row in found if row["figure"] == figure]
        best = sum((row["pick"], row["pick_padding"]) == (row["best"], row["best_padding"]) for row in own)
        ratios = [row["ratio"] for row in own]
        within = sum(ratio <= 1.1 for ratio in ratios)
        predicted = [row["predicted_ratio"] for row in own]
        rows.append(
            (
                f"{'means' if figure == 'mean' else 'frequencies'}",
                f"{best} of {len(own)}",
                f"{within}",
                f"{max(ratios):.3f}",
                f"{min(predicted):.2f} to {max(predicted):.2f}",
            )
        )
    head = ("error that decides", "the best itself was recommended", "within 10 %", "at worst", "predicted / simulated")
    return table(head, rows)


def coverage_table(results: Results) -> str:
    """How often intervals hold the truth."""
    rows = [
        (row["cells"], row["number"], *(_ends(row[name]) for name in ("frequency", "mean")))
        for row in results["summary"]
        if "cells" in row
    ]
    made = table(("cells", "number", "frequencies", "means"), rows)
    failed = f"{results['missed']} of them fail" if results["missed"] else "none of them fails"
    return f"{made}\n\nOf {results['repeats']:,} repeats in each of {results['all']} cells; {failed}."


def _ends(both: tuple[float, float] | None) -> str:
    return "-" if both is None else f"{both[0]:.1%} to {both[1]:.1%}"


#: Mark in the page -> names of the results, and what to make of them.
TABLES: Tables = {
    "repeats": (("accuracy_beyond",), repeats_text),
    "allocation": (("accuracy_beyond",), allocation_table),
    "empirical-bayes": (("accuracy_beyond",), empirical_bayes_table),
    "together": (("accuracy_beyond",), together_table),
    "padding": (("../accuracy/results/beyond-padding",), padding_table),
    "plan": (("../accuracy/results/beyond-plan",), plan_table),
    "coverage": (("coverage",), coverage_table),
}
