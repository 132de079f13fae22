"""How PCKV splits its budget: what the allocations cost, by closed form."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from ldp_beam.mechanisms import make_mechanism

from .figures import Claim, Figure, Panel, Row, Scale, of, series

__all__ = ["ALLOCATION"]

ALLOCATIONS = ("naive", "non-optimized", "optimized")
ALLOCATION_EPSILONS = (0.5, 1, 1.5, 2, 2.5, 3, 3.5, 4, 5, 6)


def allocation_rows(scale: Scale) -> Iterator[Row]:
    for name in ("pckv-ue", "pckv-grr"):
        for epsilon in scale.some(ALLOCATION_EPSILONS):
            for allocation in ALLOCATIONS:
                law = make_mechanism(name, epsilon=epsilon, keys=100, padding=1, allocation=allocation).parameters()
                yield {"mechanism": name, "epsilon": epsilon, "allocation": allocation, "g": law["g"], "h": law["h"]}


def allocation_panels(rows: Sequence[Row]) -> list[Panel]:
    return [
        Panel(
            title=f"{name.upper()}: {letter}, {meaning}",
            x="epsilon",
            y=letter,
            lines=[
                series(of(rows, mechanism=name, allocation=one), "epsilon", letter, label=one) for one in ALLOCATIONS
            ],
        )
        for name in ("pckv-ue", "pckv-grr")
        for letter, meaning in (("g", "an error whatever the mean"), ("h", "an error with its square"))
    ]


def allocation_claims(rows: Sequence[Row]) -> list[Claim]:
    return [claim for name in ("pckv-ue", "pckv-grr") for claim in _claims(name.upper(), of(rows, mechanism=name))]


def _claims(label: str, rows: Sequence[Row]) -> list[Claim]:
    best = {row["epsilon"]: row for row in of(rows, allocation="optimized")}
    others = {name: {row["epsilon"]: row for row in of(rows, allocation=name)} for name in ALLOCATIONS[:2]}
    g_ratio = [best[e]["g"] / min(others[name][e]["g"] for name in others) for e in best]
    h_ratio = [best[e]["h"] / others["non-optimized"][e]["h"] for e in best]
    total = max((best[e]["g"] + best[e]["h"]) / sum(others["non-optimized"][e][x] for x in "gh") for e in best)
    return [
        Claim(
            paper=f"{label}: the optimised allocation has a much smaller g than both others.",
            found=f"Its g is {min(g_ratio):.2f} to {max(g_ratio):.2f} times the smaller one of the others; the gain is "
            "largest for small epsilon.",
            agrees=max(g_ratio) < 1 and min(g_ratio) < 0.5,
        ),
        Claim(
            paper=f"{label}: its h is a little larger than that of the non-optimised one; g gains more.",
            found=f"Its h is {min(h_ratio):.2f} to {max(h_ratio):.2f} times as large; g + h (a mean of 1 or -1) is at "
            f"most {total:.2f} times that of the non-optimised one.",
            agrees=max(h_ratio) > 1 and total < 1,
        ),
    ]


ALLOCATION = Figure(
    name="pckv-allocation",
    title="What the allocations of the budget cost",
    source="PCKV, section 5.4, figure 4",
    data="closed forms, 100 keys, padding 1; a rare key's mean has the squared error (ell² / (n f²)) (g + h m²).",
    rows=allocation_rows,
    panels=allocation_panels,
    claims=allocation_claims,
)
