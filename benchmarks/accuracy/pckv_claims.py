"""What PCKV's authors say of each figure, held against the rows."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from .figures import Claim, Row, of
from .reference import PCKV_UU, PRIVKV_UU

__all__ = [
    "domain_claims",
    "gg_claims",
    "movielens_claims",
    "ratings_claims",
    "top_claims",
    "users_claims",
    "uu_claims",
]

#: Closed forms are for small errors: those whose mean squared error of means is at most that.
SMALL = 0.05


def _at(rows: Sequence[Row], what: str, **wanted: object) -> float:
    """The figure of the only such row."""
    (row,) = of(rows, **wanted)
    return float(row[what])


def _epsilons(rows: Sequence[Row]) -> list[float]:
    return sorted({row["epsilon"] for row in rows})


def _range(values: Sequence[float]) -> str:
    low, high = (f"{value:,.0f}" if value >= 100 else f"{value:.2g}" for value in (min(values), max(values)))
    return low if low == high else f"{low} to {high}"


# -- better than what was there before --------------------------------------------------------------------


NOTHING_LEARNT = (
    "where nothing can be learnt of means, an estimate that is drawn to the middle of the range errs less than an "
    "unbiased one"
)
DRAWING_SUITS = (
    "a quarter to a half of the people rated each of these films, so that a question about one of them is often "
    "answered with a rating; that suits methods which draw the question from the domain"
)


def _better(rows: Sequence[Row], least: float, exception: str = NOTHING_LEARNT) -> Claim:
    """Both errors are below those of every earlier method, from some epsilon on."""
    found, first = [], 0.0
    for figure, name in (("frequency", "frequencies"), ("mean", "means")):
        ratios = {e: _ratio(of(rows, epsilon=e), f"mse_{figure}") for e in _epsilons(rows)}
        worse = [e for e, ratio in ratios.items() if ratio >= 1]
        since = min((e for e in ratios if all(ratios[x] < 1 for x in ratios if x >= e)), default=float("inf"))
        first = max(first, since)
        good = [ratio for ratio in ratios.values() if ratio < 1]
        where = "at every epsilon" if not worse else f"except at epsilon {', '.join(f'{e:g}' for e in worse)}"
        found.append(
            f"{name}: {_range(good)} times the error of the best earlier method, {where}" if good else f"{name}: never"
        )
    return Claim(
        paper="Frequencies and means of PCKV are more accurate than those of PrivKVM, virtual rounds or not, and of "
        "KVUE.",
        found="The better of the two PCKV mechanisms; " + "; ".join(found) + ".",
        agrees=first <= least,
        why="" if first <= _epsilons(rows)[0] else exception,
    )


def _ratio(rows: Sequence[Row], figure: str) -> float:
    ours = min(row[figure] for row in rows if row["method"].startswith("PCKV"))
    return float(ours / min(row[figure] for row in rows if not row["method"].startswith("PCKV")))


def _which(rows: Sequence[Row]) -> Claim:
    """Where PCKV-GRR overtakes PCKV-UE."""
    better = {
        e: _at(rows, "mse_mean", method="PCKV-GRR", epsilon=e) < _at(rows, "mse_mean", method="PCKV-UE", epsilon=e)
        for e in _epsilons(rows)
    }
    since = [e for e, wins in better.items() if wins]
    small = _at(rows, "mse_frequency", method="PCKV-GRR", epsilon=1) / _at(
        rows, "mse_frequency", method="PCKV-UE", epsilon=1
    )
    found = (
        f"PCKV-GRR's means are better from epsilon {min(since):g} on"
        if since
        else "PCKV-UE's means are better throughout"
    )
    return Claim(
        paper="As with keys alone, PCKV-GRR is for large epsilon and small domains, PCKV-UE for the others.",
        found=f"{found}; at epsilon 1 its frequencies err {small:.0f} times as much.",
        agrees=small > 1 and all(better[e] for e in better if since and e >= min(since)),
    )


# -- closed forms -----------------------------------------------------------------------------------------


def _closed(rows: Sequence[Row]) -> Claim:
    known = [row for row in rows if row.get("theory_mean") is not None]
    small = [row for row in known if row["theory_mean"] <= SMALL]
    ratios = [row[f"mse_{figure}"] / row[f"theory_{figure}"] for row in small for figure in ("frequency", "mean")]
    large = [row["mse_mean"] / row["theory_mean"] for row in known if row["theory_mean"] > SMALL]
    return Claim(
        paper="The closed forms give the errors where these are small; where they are large, correction leaves less.",
        found=f"Measured errors are {_range(ratios)} times the closed forms where those promise means a squared "
        "error of "
        f"{SMALL:g} or less, and at most {max(large):.2f} times elsewhere (means).",
        agrees=min(ratios) > 0.8 and max(ratios) < 1.2 and max(large) < 1.05,
    )


def _rounds(rows: Sequence[Row]) -> Claim:
    ratios = [
        _at(rows, "mse_mean", method="PrivKVM, 6 rounds", epsilon=e)
        / _at(rows, "mse_mean", method="PrivKVM, 1 round", epsilon=e)
        for e in _epsilons(rows)
    ]
    return Claim(
        paper="Rounds take PrivKVM's bias away, but their small budgets make its variance very large.",
        found=f"With a million users, means of six rounds err {_range(ratios)} times as much as those of one.",
        agrees=min(ratios) > 1,
    )


def _independent(rows: Sequence[Row]) -> Claim:
    """Our figures beside those of independent programs."""
    z, ratios = [], []
    for (mechanism, epsilon), (f, f_sd, m, m_sd) in PCKV_UU.items():
        (row,) = of(rows, method=mechanism.upper(), epsilon=epsilon)
        for figure, mean, deviation in (("frequency", f, f_sd), ("mean", m, m_sd)):
            z.append((row[f"mse_{figure}"] - mean) / (deviation * np.sqrt(1 / 400 + 1 / row["repeats"])))
    for method, errors in PRIVKV_UU.items():
        ratios += [_at(rows, "mse_mean", method=method, epsilon=e) / error for e, error in errors.items()]
    return Claim(
        paper="Not the paper's, whose figures have no numbers: independent programs at this setting, PCKV at epsilon "
        "1, "
        "2, 4 and 6, the others at 2 and 6.",
        found=f"PCKV: all {len(z)} errors within {np.abs(z).max():.1f} standard errors. The others: {_range(ratios)} "
        "times.",
        agrees=bool(np.abs(z).max() < 3.5) and all(abs(ratio - 1) < 0.1 for ratio in ratios),
    )


def uu_claims(rows: Sequence[Row]) -> list[Claim]:
    return [_better(rows, 0.5), _which(rows), _closed(rows), _rounds(rows), _independent(rows)]


def gg_claims(rows: Sequence[Row]) -> list[Claim]:
    return [_better(rows, 1.0), _which(rows), _closed(rows), _rounds(rows)]


def ratings_claims(rows: Sequence[Row]) -> list[Claim]:
    return [_better(rows, 0.5), _closed(rows)]


# -- padding ----------------------------------------------------------------------------------------------


def movielens_claims(rows: Sequence[Row]) -> list[Claim]:
    paddings = sorted({row["padding"] for row in rows if row["padding"] is not None})
    errors = {ell: _at(rows, "mse_frequency", method="PCKV-UE", padding=ell, epsilon=2) for ell in paddings}
    best = min(errors, key=lambda ell: errors[ell])
    gains = {
        ell: [
            _at(rows, "mse_mean", method="PCKV-UE", padding=ell, epsilon=e)
            / _at(rows, "mse_mean", method="PCKV-GRR", padding=ell, epsilon=e)
            for e in _epsilons(rows)
        ]
        for ell in paddings
    }
    return [
        _better(rows, 2, DRAWING_SUITS),
        Claim(
            paper="A small padding underestimates frequencies, a large one makes them vary.",
            found=f"PCKV-UE at epsilon 2: the squared error falls from {errors[paddings[0]]:.2g} at padding "
            f"{paddings[0]} to {errors[best]:.2g} at {best} and is {errors[paddings[-1]]:.2g} at {paddings[-1]}.",
            agrees=paddings[0] < best < paddings[-1],
        ),
        Claim(
            paper="Padding and sampling amplifies the privacy of PCKV-GRR and not that of PCKV-UE.",
            found=f"Squared errors of PCKV-UE's means over those of PCKV-GRR: {_range(gains[paddings[0]])} at padding "
            f"{paddings[0]}, {_range(gains[paddings[-1]])} at {paddings[-1]}, with {9_066:,} keys.",
            agrees=min(gains[paddings[-1]]) > 1 > min(gains[paddings[0]]),
        ),
        _closed(rows),
    ]


# -- domain and users -------------------------------------------------------------------------------------


def _growth(rows: Sequence[Row], x: str, figure: str, method: str) -> float:
    ends = sorted({row[x] for row in rows})
    first, last = (_at(rows, figure, method=method, **{x: end}) for end in (ends[0], ends[-1]))
    return last / first


def domain_claims(rows: Sequence[Row]) -> list[Claim]:
    keys = sorted({row["keys"] for row in rows})
    ours = _growth(rows, "keys", "mse_frequency", "PCKV-UE")
    grr = _growth(rows, "keys", "mse_frequency", "PCKV-GRR")
    others = [_growth(rows, "keys", "mse_frequency", method) for method in PRIVKV_UU]
    last = of(rows, keys=keys[-1])
    return [
        Claim(
            paper="Drawing one key of the whole domain makes a large domain costly; padding and sampling does not "
            "depend "
            "on the domain.",
            found=f"From {keys[0]:,} to {keys[-1]:,} keys, squared errors of frequencies become {_range(others)} "
            "times as "
            f"large for PrivKVM and KVUE, {ours:.2g} times for PCKV-UE. PCKV-GRR's become {grr:,.0f} times as large: "
            "its "
            "sampling does not depend on the domain, its randomised response does.",
            agrees=ours < 1.2 and min(others) > 100,
        ),
        _better(last, 4),
    ]


def users_claims(rows: Sequence[Row]) -> list[Claim]:
    many = sorted({row["users"] for row in rows})[-3:]
    some = [row for row in rows if row["users"] in many]
    ours = [_growth(some, "users", "mse_mean", method) for method in ("PCKV-UE", "PCKV-GRR")]
    one, virtual = (_growth(some, "users", "mse_mean", method) for method in list(PRIVKV_UU)[:3:2])
    return [
        Claim(
            paper="Bias and variance of PCKV's means vanish as users grow; PrivKVM's bias of one round does not.",
            found=f"From {many[0]:,} to {many[-1]:,} users, squared errors of means fall to {_range(ours)} of what "
            "they "
            f"were for PCKV, to {one:.2g} for one round of PrivKVM and to {virtual:.2g} with five virtual rounds.",
            agrees=max(ours) < 0.05 and one > 0.5,
        ),
        _closed(rows),
    ]


# -- the most frequent keys -------------------------------------------------------------------------------


def top_claims(rows: Sequence[Row]) -> list[Claim]:
    claims = []
    for label, epsilon in (("power law", 1), ("clothes", 4)):
        some = of(rows, population=label, epsilon=epsilon)
        if not some:
            continue
        ours = _at(some, "top10", method="PCKV-UE")
        others = max(row["top10"] for row in some if not row["method"].startswith("PCKV"))
        claims.append(
            Claim(
                paper=f"Frequent keys are sampled often however large the domain is, so they can be found ({label}).",
                found=f"At epsilon {epsilon}, PCKV-UE finds {ours:.0%} of the ten most frequent keys, PCKV-GRR "
                f"{_at(some, 'top10', method='PCKV-GRR'):.0%}, PrivKVM and KVUE {others:.0%} at best.",
                agrees=ours > 0.8 and ours > 2 * others,
            )
        )
    return claims
