"""What Murakami and Kawamoto say of their figures, held against what was measured."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from math import log

import numpy as np

from .figures import Claim, Row, of
from .verdicts import judged

__all__ = [
    "bound_table",
    "epsilon_table",
    "of_attributes",
    "of_em",
    "of_epsilon",
    "of_limit",
    "of_number",
    "of_personal",
]

PLAIN, UTILITY = ("RR", "RAPPOR"), ("uRR", "uRAP")


def best(rows: Sequence[Row], kinds: Sequence[str], figure: str, **wanted: object) -> float:
    """The smallest figure of some mechanisms, whatever the estimator."""
    return min(row[figure] for kind in kinds for row in of(rows, mechanism=kind, **wanted))


def near_log(rows: Sequence[Row], symbols: int) -> float:
    """The measured epsilon that is ln d."""
    return min({row["epsilon"] for row in rows}, key=lambda epsilon: abs(epsilon - log(symbols)))


def size(population: str) -> int:
    """The number of symbols that the name of a population tells."""
    return int(population.split(" of ")[1].split()[0])


def share(population: str) -> float:
    """The share of sensitive symbols that it tells."""
    return int(population.split(" of ")[0].split()[-1]) / size(population)


# -- against epsilon ----------------------------------------------------------------------------------------


def of_epsilon(rows: Sequence[Row]) -> list[Claim]:
    names = list(dict.fromkeys(row["population"] for row in rows))
    gains: dict[str, list[float]] = {}
    squares: dict[str, list[float]] = {}
    for name in names:
        budgets = sorted({row["epsilon"] for row in of(rows, population=name)})
        for found, figure in ((gains, "tv"), (squares, "mse")):
            found[name] = [
                best(rows, PLAIN, figure, population=name, epsilon=e)
                / best(rows, UTILITY, figure, population=name, epsilon=e)
                for e in budgets
            ]
    few, *_, many = sorted(names, key=share)
    nearly = {}
    for name in names:
        some = of(rows, population=name)
        epsilon = near_log(some, size(name))
        nearly[name] = best(some, ("uRR",), "tv", epsilon=epsilon) / some[0]["no_privacy_tv"]
    closed = [
        row["mse"] / row["theory_mse"] for row in rows if row["estimator"] == "empirical" and row.get("theory_mse")
    ]
    ratios = "; ".join(f"{name}: {min(found):.1f} to {max(found):.1f}" for name, found in gains.items())
    same = float(np.mean([(a > 1.05) == (b > 1.05) for n in names for a, b in zip(gains[n], squares[n], strict=True)]))
    return [
        judged(
            paper="uRR and uRAP are better than RR and RAPPOR by one or two orders of magnitude, most clearly where "
            "few values are sensitive.",
            found=f"The smallest total variation of the latter, each with its best estimator, divided by that of the "
            f"former, over epsilon: {ratios}.",
            agrees=max(gains[few]) > 10 and max(gains[few]) > max(gains[many]),
            why="Total variation is at most 1, so where all are near 1 there is no order of magnitude to gain; and the "
            "more is sensitive, the nearer both come to RR and RAPPOR.",
        ),
        judged(
            paper="At epsilon = ln d uRR nearly matches what one gets without privacy.",
            found="Its total variation divided by that without privacy: "
            + "; ".join(f"{name}: {ratio:.2f}" for name, ratio in nearly.items())
            + ".",
            agrees=nearly[few] < 1.2,
        ),
        judged(
            paper="The MSE shows the same tendency as the total variation.",
            found=f"In {same:.0%} of the cases both say alike whether the utility-optimised ones win by more than 5 %; "
            f"at best by a factor of {max(max(found) for found in squares.values()):.0f} in MSE.",
            agrees=same > 0.8,
            why="A squared error is governed by the most frequent symbols, the total variation by all of them.",
        ),
        judged(
            paper="The losses of the empirical estimates have closed forms.",
            found=f"The measured MSE is {min(closed):.2f} to {max(closed):.2f} times the closed form.",
            agrees=min(closed) > 0.8 and max(closed) < 1.2,
            why="The rest is the spread over the repeats.",
        ),
    ]


def epsilon_table(rows: Sequence[Row]) -> list[Row]:
    """Total variation at the smallest epsilon, at 1 and at ln d, each mechanism with EM."""
    table = []
    for name in dict.fromkeys(row["population"] for row in rows):
        some = of(rows, population=name, estimator="EM")
        budgets = sorted({row["epsilon"] for row in some})
        chosen = sorted({budgets[0], min(budgets, key=lambda e: abs(e - 1.0)), near_log(some, size(name))})
        for epsilon in chosen:
            figures = {row["mechanism"]: round(row["tv"], 4) for row in of(some, epsilon=epsilon)}
            table.append(
                {
                    "population": name,
                    "epsilon": round(epsilon, 2),
                    **figures,
                    "no privacy": round(some[0]["no_privacy_tv"], 4),
                }
            )
    return table


# -- numbers of values and attributes -------------------------------------------------------------------------


def of_number(rows: Sequence[Row]) -> list[Claim]:
    low, high = min(row["epsilon"] for row in rows), max(row["epsilon"] for row in rows)

    def curve(kind: str, epsilon: float) -> dict[int, float]:
        return {row["sensitive"]: row["tv"] for row in of(rows, mechanism=kind, epsilon=epsilon)}

    small = {kind: curve(kind, low) for kind in (*PLAIN, *UTILITY)}
    large = {kind: curve(kind, high) for kind in (*PLAIN, *UTILITY)}
    numbers = sorted(small["uRR"])
    wins = sum(small["uRAP"][n] <= 1.02 * min(found[n] for found in small.values()) for n in numbers)
    last = sum(large["uRR"][n] <= 1.02 * min(found[n] for found in large.values()) for n in numbers)
    nothing = rows[0]["no_privacy_tv"]
    response = {n: large["uRR"][n] / nothing for n in numbers}
    bits = {n: large["uRAP"][n] / nothing for n in numbers}
    few = [n for n in numbers if n <= 100]
    return [
        judged(
            paper="At epsilon = 0.1 uRAP is the best of all.",
            found=f"Its total variation is the smallest, or within 2 % of it, for {wins} of {len(numbers)} numbers of "
            "sensitive cells.",
            agrees=wins == len(numbers),
            why="Where nearly all is sensitive all mechanisms tell nothing at this epsilon, and what is left is which "
            "distribution an estimator gives from noise alone.",
        ),
        judged(
            paper="At epsilon = ln d uRR is the best of all.",
            found=f"It is for {last} of {len(numbers)} numbers of sensitive cells.",
            agrees=last == len(numbers),
        ),
        judged(
            paper="At epsilon = ln d uRR stays near to no privacy up to 100 sensitive values, uRAP up to 20, and "
            "uRAP then gets worse rapidly.",
            found="Total variation relative to no privacy, uRR: "
            + ", ".join(f"{response[n]:.2f} ({n})" for n in numbers)
            + "; uRAP: "
            + ", ".join(f"{bits[n]:.2f} ({n})" for n in numbers)
            + ".",
            agrees=max(response[n] for n in few) < 1.25
            and max(bits[n] for n in numbers if n <= 20) < 1.5
            and bits[numbers[-1]] > 2 * bits[numbers[0]],
        ),
    ]


def of_attributes(rows: Sequence[Row]) -> list[Claim]:
    last = max(row["attributes"] for row in rows)
    low = min(row["epsilon"] for row in rows)
    end = {row["mechanism"]: row["tv"] for row in of(rows, attributes=last, epsilon=low)}
    steps, rising = 0, 0
    for epsilon in {row["epsilon"] for row in rows}:
        for kind in (*PLAIN, *UTILITY):
            some = sorted(of(rows, mechanism=kind, epsilon=epsilon), key=lambda row: row["attributes"])
            steps += len(some) - 1
            rising += sum(b["tv"] > a["tv"] for a, b in itertools.pairwise(some))
    others = [row for row in of(rows, attributes=last, mechanism="uRAP") if row["epsilon"] > low]
    text = ", ".join(f"{row['tv']:.3f} at epsilon {row['epsilon']:g}" for row in others)
    return [
        judged(
            paper="The total variation rises with the number of attributes.",
            found=f"It does in {rising} of {steps} steps from one number to the next.",
            agrees=rising >= 0.8 * steps,
            why="Where it is near to its largest value already it cannot rise.",
        ),
        judged(
            paper="With nine attributes at epsilon = 0.1 uRAP stays well below 1, while RR, RAPPOR and uRR are near 1.",
            found=", ".join(f"{kind} {value:.2f}" for kind, value in end.items()) + ".",
            agrees=end["uRAP"] < 0.6 and min(end[kind] for kind in ("RR", "RAPPOR", "uRR")) > 0.7,
            why="How near to 1 the others come depends on the population and the estimator: EM gives a distribution "
            "even from noise, and it overlaps with the true one.",
        ),
        judged(
            paper="At epsilon = 1 and 6 uRAP stands the growing number of attributes well.",
            found=f"Its total variation with nine attributes is {text}.",
            agrees=all(row["tv"] < 0.5 for row in others),
        ),
    ]


# -- personalised -------------------------------------------------------------------------------------------


def of_personal(rows: Sequence[Row]) -> list[Claim]:
    known = [row for row in rows if row.get("background")]
    cases: dict[tuple[float, str, float], dict[str, float]] = {}
    for row in known:
        cases.setdefault((row["at_home"], row["base"], row["epsilon"]), {})[row["background"]] = row["tv"]
    above = [case for (_, _, epsilon), case in cases.items() if epsilon > 1]
    between = sum(case["true"] <= case["estimated"] <= case["none"] for case in above)
    apart = {
        share: max(max(c.values()) / min(c.values()) for (s, _, e), c in cases.items() if s == share and e < 1)
        for share in sorted({share for share, _, _ in cases})
    }
    ratio = " and ".join(f"{value:.2f} ({share:.0%} each)" for share, value in apart.items())
    rare = min(apart)
    within = sum(row["within"] == 1.0 for row in known)
    return [
        judged(
            paper="Estimated background knowledge lies between none and the true one.",
            found=f"So it does in {between} of {len(above)} cases of epsilon above 1.",
            agrees=between == len(above),
            why="Dropping the tags is not worse where homes and workplaces happen to be spread like other places.",
        ),
        judged(
            paper="Below epsilon = 1 all three do almost the same.",
            found="The largest total variation of the three, divided by the smallest, is at most "
            f"{ratio} by the share of check-ins at home and at work.",
            agrees=apart[rare] < 1.4,
            exception="uRR and uRAP estimate two tags well even at this epsilon, so where many check-ins are at home "
            "or at work, what is assumed of them decides."
            if max(apart.values()) > 1.4
            else "",
            why="Two tags are estimated well even at this epsilon, so what is assumed of them decides.",
        ),
        judged(
            paper="In every case the l1 loss is below the sum of both terms of theorem 1.",
            found=f"In every repeat of {within} of {len(known)} cases.",
            agrees=within == len(known),
        ),
    ]


def bound_table(rows: Sequence[Row]) -> list[Row]:
    """The loss and both terms at epsilon = ln d."""
    some = [row for row in rows if row.get("background")]
    epsilon = near_log(some, 625)
    return [
        {
            "at home, at work": f"{row['at_home']:.0%} each",
            "method": f"PUM over {row['base']}, background {row['background']}",
            "l1 loss": round(row["l1"], 4),
            "first term": round(row["first_term"], 4),
            "second term": round(row["second_term"], 4),
            "sum": round(row["first_term"] + row["second_term"], 4),
        }
        for row in of(some, epsilon=epsilon)
    ]


# -- the limit and EM ---------------------------------------------------------------------------------------


def of_limit(rows: Sequence[Row]) -> list[Claim]:
    closed = {row["mechanism"]: row["closed form"] for row in rows}
    measured = {row["mechanism"]: row["measured"] for row in rows}
    off = max(abs(measured[kind] / closed[kind] - 1) for kind in closed)
    return [
        judged(
            paper="At epsilon = ln d the squared l2 loss of RR is four times that without privacy, that of RAPPOR "
            "about the square root of d times; uRR and uRAP have almost that of no privacy.",
            found=", ".join(f"{kind} {value:.2f}" for kind, value in closed.items())
            + f" by the closed forms; the measured ones are within {off:.1%}.",
            agrees=abs(closed["RR"] - 4) < 0.1
            and abs(closed["RAPPOR"] / 625**0.5 - 1) < 0.2
            and closed["uRR"] < 1.1
            and closed["uRAP"] < 1.2,
            why="uRAP's loss grows by the number of sensitive values divided by the square root of d: 15 / 25 here. "
            "It is near to that of no privacy only for far fewer sensitive values than the root of d.",
        )
    ]


def of_em(rows: Sequence[Row]) -> list[Claim]:
    def ratios(kind: str) -> list[float]:
        joint = {row["epsilon"]: row["tv"] for row in of(rows, mechanism=kind, estimator="joint EM")}
        composite = {row["epsilon"]: row["tv"] for row in of(rows, mechanism=kind, estimator="composite-em")}
        return [composite[e] / joint[e] for e in sorted(joint)]

    text = "; ".join(f"{kind}: " + ", ".join(f"{r:.2f}" for r in ratios(kind)) for kind in ("RAPPOR", "uRAP"))
    every = ratios("RAPPOR") + ratios("uRAP")
    return [
        judged(
            paper="EM estimates from the reports of all users.",
            found="A server that keeps counts alone can only maximise a composite likelihood. Its total variation, "
            f"relative to that of EM from the reports, by epsilon: {text}.",
            agrees=max(every) < 1.1,
            why="What the bits of one report tell together is lost in the counts.",
        )
    ]
