"""What PrivKV says of its figures, held against what was measured."""

from __future__ import annotations

import itertools
from collections.abc import Sequence

import numpy as np

from .figures import Claim, Row, of
from .shapes import GAUSS, LNR, PLAW
from .verdicts import judged

__all__ = [
    "byte_table",
    "cost_table",
    "epsilon_table",
    "of_bytes",
    "of_correlation",
    "of_cost",
    "of_epsilon",
    "of_keys",
    "of_rounds",
    "of_users",
    "of_virtual",
    "round_table",
]


def by(rows: Sequence[Row], x: str, y: str, **wanted: object) -> dict[float, float]:
    """{x: y} of the rows with these values, where y exists."""
    return {row[x]: row[y] for row in of(rows, **wanted) if row.get(y) is not None}


def populations(rows: Sequence[Row]) -> list[str]:
    return list(dict.fromkeys(row["population"] for row in rows))


def listed(numbers: Sequence[float]) -> str:
    """Numbers as text, "a, b and c"."""
    texts = [f"{number:g}" for number in numbers]
    return texts[0] if len(texts) == 1 else ", ".join(texts[:-1]) + " and " + texts[-1]


# -- overall ------------------------------------------------------------------------------------------------


def of_epsilon(rows: Sequence[Row]) -> list[Claim]:
    ratios: dict[str, list[float]] = {"PrivKVM-Harmony": [], "PrivKVM-MeanEst": []}
    small: list[float] = []
    for shape in populations(rows):
        ours = by(rows, "epsilon", "mse_mean", population=shape, method="PrivKVM")
        for other, found in ratios.items():
            theirs = by(rows, "epsilon", "mse_mean", population=shape, method=other)
            found += [ours[e] / theirs[e] for e in ours]
        small.append(
            ours[min(ours)] / by(rows, "epsilon", "mse_mean", population=shape, method="PrivKVM-Harmony")[min(ours)]
        )
    every = [ratio for found in ratios.values() for ratio in found]
    wins, comparisons = 0, 0
    for shape in populations(rows):
        ours = by(rows, "epsilon", "re_frequency", population=shape, method="PrivKVM")
        for other in ("RAPPOR", "k-RR", "SHist"):
            theirs = by(rows, "epsilon", "re_frequency", population=shape, method=other)
            wins += sum(ours[e] < theirs[e] for e in ours)
            comparisons += len(ours)
    return [
        judged(
            paper="PrivKVM's means are more accurate than those of PrivKVM-Harmony and PrivKVM-MeanEst, above all for "
            "a small epsilon, where outliers are replaced by the means of the round before.",
            found=f"Its squared error is {min(every):.2f} to {max(every):.2f} times theirs, on average "
            f"{np.mean(every):.2f}; at the smallest epsilon {min(small):.2f} to {max(small):.2f}.",
            agrees=bool(np.mean(every) < 0.98) and max(small) < 0.9,
            exception="where no estimate lies beyond 1 or -1, at a large epsilon, all three are the same."
            if max(every) > 1.0
            else "",
            why="All three have the same reports, and differ only by what becomes of an estimate beyond 1 or -1.",
        ),
        judged(
            paper="PrivKVM's frequencies have the smallest relative error, below those of RAPPOR, k-RR and SHist, at "
            "every epsilon.",
            found=f"It has the smaller one in {wins} of {comparisons} comparisons.",
            agrees=wins == comparisons,
            why="Here the other three tell of one of the keys that a user holds, so everybody says something about the "
            "keys that people hold; PrivKVM draws the key from all 100, and one user in a hundred tells of each. The "
            "paper gives them its own way to draw keys, which leaves one answer about one key of each of them.",
        ),
    ]


def epsilon_table(rows: Sequence[Row]) -> list[Row]:
    """log10 of the squared error of means at three budgets."""
    some = sorted({row["epsilon"] for row in rows})
    chosen = [some[len(some) // 4], some[len(some) // 2], some[-1]] if len(some) > 2 else some
    return [
        {
            "population": shape,
            "method": method,
            **{
                f"epsilon {e:g}": round(found[e], 2)
                for e in chosen
                for found in [by(rows, "epsilon", "log_mse_mean", population=shape, method=method)]
            },
        }
        for shape in populations(rows)
        for method in dict.fromkeys(row["method"] for row in rows if row.get("log_mse_mean") is not None)
    ]


# -- scaling ------------------------------------------------------------------------------------------------

_FAMILY = ("PrivKVM", "PrivKVM-Harmony", "PrivKVM-MeanEst")


def _scaling(rows: Sequence[Row], x: str, grows: bool, paper: str, what: str) -> list[Claim]:
    steady, steps, best, points = 0, 0, 0, 0
    for shape in populations(rows):
        errors = {
            method: by(rows, x, "mse_mean", population=shape, method=method)
            for method in dict.fromkeys(row["method"] for row in rows)
        }
        frequencies = by(rows, x, "re_frequency", population=shape, method="PrivKVM")
        for found in (*errors.values(), frequencies):
            ordered = [found[at] for at in sorted(found)]
            steps += len(ordered) - 1
            steady += sum((b > a) == grows for a, b in itertools.pairwise(ordered))
        for at in errors["PrivKVM"]:
            points += 1
            best += errors["PrivKVM"][at] <= 1.05 * min(errors[one][at] for one in _FAMILY)
    ends = {
        shape: next(
            found[max(found)] / found[min(found)]
            for found in [by(rows, x, "mse_mean", population=shape, method="PrivKVM")]
        )
        for shape in populations(rows)
    }
    ratio = " and ".join(f"{value:.2f} ({shape})" for shape, value in ends.items())
    return [
        judged(
            paper=paper,
            found=f"So it is in {steady} of {steps} steps from one {what} to the next. From the smallest to the "
            f"largest PrivKVM's squared error of means changes by a factor of {ratio}.",
            agrees=steady >= 0.9 * steps,
            why="Where noise swamps a mean its clipped estimate is about as wrong whatever the size.",
        ),
        judged(
            paper="PrivKVM is the best of the three that draw keys in its way, everywhere.",
            found="Its squared error of means is the smallest of theirs, or within 5 % of it, at "
            f"{best} of {points} points.",
            agrees=best >= 0.9 * points,
            exception="the three differ only by what becomes of an estimate beyond 1 or -1." if best < points else "",
            why="It and PrivKVM-Harmony have the same reports, and PrivKVM-MeanEst has too; they differ by what "
            "becomes of an estimate beyond 1 or -1.",
        ),
    ]


def of_users(rows: Sequence[Row]) -> list[Claim]:
    return _scaling(rows, "users", False, "Errors fall with the number of users, for every method.", "number of users")


def of_keys(rows: Sequence[Row]) -> list[Claim]:
    return _scaling(
        rows,
        "keys",
        True,
        "Errors grow with the number of keys, since fewer users tell of each one.",
        "number of keys",
    )


# -- rounds -------------------------------------------------------------------------------------------------


def of_rounds(rows: Sequence[Row]) -> list[Claim]:
    budgets = sorted({row["epsilon"] for row in rows})
    parts, falls = [], []
    for epsilon in budgets:
        for shape in populations(rows):
            found = by(rows, "rounds", "mse_mean", population=shape, method="PrivKVM", epsilon=epsilon)
            first, last, least = found[min(found)], found[max(found)], min(found, key=found.__getitem__)
            falls.append(last / first)
            parts.append(f"{first:.3f}, {found[least]:.3f} after {least}, {last:.3f} ({shape}, epsilon {epsilon:g})")
    text = "; ".join(parts)
    pairs = [
        (row["mse_mean"], other["mse_mean"])
        for row in of(rows, method="PrivKVM")
        for other in of(rows, method="PrivKVM-Harmony", population=row["population"], epsilon=row["epsilon"])
        if other["rounds"] == row["rounds"]
    ]
    apart = [a / b for a, b in pairs]
    estimated = [
        by(rows, "rounds", "mse_mean", population=shape, method="PrivKVM-MeanEst", epsilon=epsilon)
        for shape in populations(rows)
        for epsilon in budgets
    ]
    moves = [max(found.values()) / min(found.values()) for found in estimated]
    return [
        judged(
            paper="The log MSE falls with the number of rounds and tends to what the noise of the values leaves.",
            found=f"Squared error after one round, least, and after the most rounds: {text}.",
            agrees=max(falls) < 1.0,
            why="The bias does fall (dashed line), and two or three rounds are a little better than one unless epsilon "
            "is small. But each of c rounds has a c-th of the values' half of epsilon, so that the variance of a mean "
            "grows about with c squared; with ten thousand answers a key, as here, it outweighs the bias.",
        ),
        judged(
            paper="PrivKVM-Harmony has about the same error as PrivKVM.",
            found=f"PrivKVM's squared error is {min(apart):.2f} to {max(apart):.2f} times as large, "
            f"{np.mean(apart):.2f} times on average.",
            agrees=bool(0.8 < np.mean(apart) < 1.25),
            exception="at a small epsilon many estimates lie beyond 1 or -1, and replacing them by the ones before is "
            "better than clipping them."
            if min(apart) < 0.9
            else "",
            why="They differ where estimates often lie beyond 1 or -1.",
        ),
        judged(
            paper="PrivKVM-MeanEst hardly changes with the rounds, since it suits domains of a few keys only.",
            found=f"Its largest squared error over the rounds is {min(moves):.2f} to {max(moves):.2f} times the least.",
            agrees=max(moves) < 1.2,
            why="Ours uses MeanEst for the one value that the answer is about, where it is Harmony by another name; "
            "the paper seems to use it for the vector of all values at once.",
        ),
    ]


def round_table(rows: Sequence[Row]) -> list[Row]:
    return [
        {
            "population": shape,
            "epsilon": epsilon,
            **{
                f"{rounds} rounds": round(found[rounds], 4)
                for found in [by(rows, "rounds", "mse_mean", population=shape, method="PrivKVM", epsilon=epsilon)]
                for rounds in sorted(found)
                if rounds in (1, 2, 3, 6, 10)
            },
        }
        for shape in populations(rows)
        for epsilon in sorted({row["epsilon"] for row in rows})
    ]


def of_cost(rows: Sequence[Row]) -> list[Claim]:
    found = {
        (cost, method): [
            row["F"] for row in sorted(of(rows, A0=cost, method=method), key=lambda r: (r["population"], r["epsilon"]))
        ]
        for cost in (0.2, 0.02)
        for method in dict.fromkeys(row["method"] for row in rows)
    }
    dear = [
        six > three for three, six in zip(found[0.2, "PrivKVM, 3 rounds"], found[0.2, "PrivKVM, 6 rounds"], strict=True)
    ]
    cheap = [
        six < three
        for three, six in zip(found[0.02, "PrivKVM, 3 rounds"], found[0.02, "PrivKVM, 6 rounds"], strict=True)
    ]
    asked = {cost: [row["rounds"] for row in of(rows, A0=cost, method="PrivKVM+")] for cost in (0.2, 0.02)}
    least = {
        cost: sum(
            plus <= min(three, six) + 1e-9
            for plus, three, six in zip(
                found[cost, "PrivKVM+"], found[cost, "PrivKVM, 3 rounds"], found[cost, "PrivKVM, 6 rounds"], strict=True
            )
        )
        for cost in (0.2, 0.02)
    }
    zero, one = ([row["F1"] for row in of(rows, method=m)] for m in ("PrivKVM+", "PrivKVM+, first fake value 1"))
    ratios = [a / b for a, b in zip(one, zero, strict=True)]
    return [
        judged(
            paper="With A0 = 0.2, six rounds cost more than three.",
            found=f"So it is in {sum(dear)} of {len(dear)} cases.",
            agrees=all(dear),
        ),
        judged(
            paper="With A0 = 0.02, three rounds cost more than six.",
            found=f"So it is in {sum(cheap)} of {len(cheap)} cases.",
            agrees=all(cheap),
            why="Means after six rounds are no better than after three with these numbers of users (see the figure of "
            "rounds), so more rounds pay only where the noise is small: for a large epsilon.",
        ),
        judged(
            paper="PrivKVM+ finds the number of rounds with the least cost by itself.",
            found=f"It asked {min(asked[0.2]):.1f} to {max(asked[0.2]):.1f} rounds with A0 = 0.2 and "
            f"{min(asked[0.02]):.1f} to {max(asked[0.02]):.1f} with 0.02; it cost no more than the cheaper of three "
            f"and six rounds in {least[0.2]} and {least[0.02]} of {len(dear)} cases.",
            agrees=all(number == len(dear) for number in least.values()),
            why="It takes the movement of noisy means for progress and goes on; each round then has half of what was "
            "left of the budget, and the mean is that of the last one.",
        ),
        judged(
            paper="PrivKVM+ begins with the fake value 1; why, is not said.",
            found=f"The mean absolute error is {np.mean(one) / np.mean(zero):.2f} times that with the fake value 0 on "
            f"average, {min(ratios):.2f} to {max(ratios):.2f} times case by case.",
            agrees=min(ratios) < 0.98,
            why="a fake value at the end of the range draws every mean there, and in the middle it draws them half as "
            "far; 0 is the default here, and lets the client draw the first fake sign itself.",
        ),
    ]


def cost_table(rows: Sequence[Row]) -> list[Row]:
    return [
        {
            "population": row["population"],
            "A0": row["A0"],
            "method": row["method"],
            "epsilon": row["epsilon"],
            "rounds": round(row["rounds"], 2),
            "F1": round(row["F1"], 3),
            "F": round(row["F"], 3),
        }
        for row in rows
        if row["epsilon"] in (min(r["epsilon"] for r in rows), max(r["epsilon"] for r in rows))
    ]


def of_virtual(rows: Sequence[Row]) -> list[Claim]:
    ratios = {}
    for shape in populations(rows):
        real = by(rows, "epsilon", "mse_mean", population=shape, method="PrivKVM, 6 real rounds")
        virtual = by(rows, "epsilon", "mse_mean", population=shape, method="5 virtual, same key step")
        ratios[shape] = {epsilon: virtual[epsilon] / real[epsilon] for epsilon in real}
    low = {shape: found[min(found)] for shape, found in ratios.items()}
    high = {shape: found[max(found)] for shape, found in ratios.items()}
    first = {shape: min((e for e in found if found[e] < 1.0), default=None) for shape, found in ratios.items()}
    starts = ", ".join(
        f"from epsilon {epsilon:g} on ({shape})" if epsilon is not None else f"never ({shape})"
        for shape, epsilon in first.items()
    )
    return [
        judged(
            paper="With a very small epsilon virtual rounds are worse than real ones, because they amplify the noise "
            "of the first round.",
            found="At the smallest epsilon their squared error is "
            + " and ".join(f"{value:.2f} ({shape})" for shape, value in low.items())
            + " times that of six real rounds.",
            agrees=min(low.values()) > 1.0,
            why="Six real rounds have a sixth of the values' budget each, and where noise swamps everything both are "
            "clipped to 1 or -1, wherever it came from.",
        ),
        judged(
            paper="With a larger epsilon they overtake the real ones.",
            found=f"Their error is the smaller one {starts}; at the largest epsilon it is "
            + " and ".join(f"{value:.2f} ({shape})" for shape, value in high.items())
            + " times that of real rounds.",
            agrees=max(high.values()) < 1.0,
        ),
    ]


# -- correlation and bytes ----------------------------------------------------------------------------------


def of_correlation(rows: Sequence[Row]) -> list[Claim]:
    kept, apart, true = {}, {}, {}
    for shape in (PLAW, LNR):
        kept[shape] = by(rows, "epsilon", "correlation", population=shape, method="PrivKVM")
        apart[shape] = by(rows, "epsilon", "correlation", population=shape, method="k-RR and Harmony, apart")
        true[shape] = next(iter(by(rows, "epsilon", "true", population=shape, method="PrivKVM").values()))
    last = max(kept[PLAW])
    profile = of(rows, population=GAUSS)
    spread = {m: float(np.std([row["mean"] for row in of(profile, method=m)])) for m in {r["method"] for r in profile}}
    return [
        judged(
            paper="With a large epsilon the correlation after PrivKVM is close to the true one.",
            found=f"At epsilon {last:g}: "
            + ", ".join(f"{kept[shape][last]:.2f} of {true[shape]:.2f} ({shape})" for shape in kept)
            + ".",
            agrees=all(kept[shape][last] > 0.8 * true[shape] for shape in kept),
            why="The means are drawn towards 0 by the fake values, the more the rarer a key is.",
        ),
        judged(
            paper="k-RR for the keys and Harmony for the values, apart from each other, leave hardly any correlation.",
            found="Averaged over epsilon: "
            + ", ".join(f"{np.mean(list(apart[shape].values())):.2f} of {true[shape]:.2f} ({shape})" for shape in apart)
            + f"; at epsilon {last:g} "
            + ", ".join(f"{apart[shape][last]:.2f} ({shape})" for shape in apart)
            + f". The means of GAUSS spread by {spread['k-RR and Harmony, apart']:.2f} over the keys, where the true "
            f"ones do by {spread['true']:.2f} and PrivKVM's by {spread['PrivKVM']:.2f}.",
            agrees=all(np.mean(list(apart[shape].values())) < 0.5 * true[shape] for shape in apart),
            exception="with a large epsilon most keys are kept. Even then Pearson's correlation does not see how far "
            "all means are drawn to one value."
            if any(apart[shape][last] > 0.5 * true[shape] for shape in apart)
            else "",
            why="Pearson's correlation does not see how far all means are drawn to one value: each reported key is a "
            "mixture of itself and all others, and keys that are more frequent keep more of their own.",
        ),
    ]


def of_bytes(rows: Sequence[Row]) -> list[Claim]:
    domain = min(row["keys"] for row in rows)
    sent = {row["method"]: row for row in of(rows, keys=domain)}
    once, rounds = sent["PrivKV"], sent["PrivKVM"]
    both = (rounds["sent"] + rounds["received"]) / once["sent"]
    return [
        judged(
            paper="PrivKVM takes several times the bandwidth of PrivKV (about nine times, as the figure was read), "
            "since every round goes both ways.",
            found=f"{rounds['sent']} bytes sent in {rounds['rounds']} rounds beside {once['sent']}, "
            f"{rounds['sent'] / once['sent']:.0f} times as many; with the bits for {domain} keys that a user receives, "
            f"{both:.0f} times.",
            agrees=both > 4,
            why="",
        ),
    ]


def byte_table(rows: Sequence[Row]) -> list[Row]:
    """Bytes of each method, for the smallest and the largest domain."""
    domains = sorted({row["keys"] for row in rows})
    table: dict[str, Row] = {}
    for keys in (domains[0], domains[-1]):
        for row in of(rows, keys=keys):
            line = table.setdefault(row["method"], {"method": row["method"], "rounds": row["rounds"]})
            line |= {f"{name}, {keys:,} keys": row[name] for name in ("sent", "received")}
    return list(table.values())
