"""The figures of utility-optimised mechanisms: Murakami, Kawamoto, USENIX Security 2019."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from math import log
from typing import Any

import numpy as np
from ldp_beam.mechanisms import Counts, Records, Secret, make_mechanism
from ldp_beam.mechanisms.categorical.estimation import Supports, joint_em
from ldp_beam.mechanisms.categorical.simulation import draw_counts as draw_oracle
from ldp_beam.mechanisms.uldp.pum_estimation import DROP, Background, bound_terms
from ldp_beam.mechanisms.uldp.simulation import draw_counts as draw_uldp
from ldp_beam.mechanisms.uldp.theory import Losses, expected_losses, no_privacy_l2_squared

from . import uldp_claims as claims
from .figures import Figure, Line, Panel, Row, Scale, of, random_of, series
from .symbols import CELLS, Symbols, adult, attributes, census, places, tagged

__all__ = ["FIGURES"]

REPEATS = 50
#: Mechanism and its name here; the latter two know which symbols are sensitive.
KINDS = {"RR": "grr", "RAPPOR": "sue", "uRR": "urr", "uRAP": "urap"}
ESTIMATORS = ("empirical", "thresholded", "EM")
CHECK_INS = 300_000
ADULTS = 48_842
CENSUS = 50_000
SOURCE = "Murakami and Kawamoto, section "


def build(kind: str, epsilon: float, people: Symbols) -> Any:
    """Make a mechanism for the symbols of a population."""
    sensitive = {"sensitive": np.flatnonzero(people.sensitive)} if kind in ("uRR", "uRAP") else {}
    return make_mechanism(KINDS[kind], epsilon=epsilon, keys=people.keys, **sensitive)


def named(mechanism: Any, estimator: str) -> str:
    """What an estimator is called by a mechanism; where reports support several symbols EM takes the counts alone."""
    if estimator != "EM":
        return estimator
    return "em" if "em" in mechanism.estimators else "composite-em"


def draw(mechanism: Any, symbols: np.ndarray, random: np.random.Generator) -> Counts:
    """Counts of the reports of users of these symbols."""
    return (draw_uldp if mechanism.name in ("urr", "urap", "pum") else draw_oracle)(mechanism, symbols, random)


def measure(
    name: str,
    kind: str,
    epsilon: float,
    people: Symbols,
    users: int,
    repeats: int,
    estimators: Sequence[str] = ESTIMATORS,
) -> Iterator[Row]:
    """Yield a row an estimator: total variation and MSE, averaged over repeats, users drawn anew in each."""
    mechanism = build(kind, epsilon, people)
    found: dict[str, list[tuple[float, float]]] = {one: [] for one in estimators}
    for repeat in range(repeats):
        random = random_of(f"{name}: {kind}, {epsilon}, {users}", repeat)
        counts = draw(mechanism, random.multinomial(users, people.shares), random)
        for one in estimators:
            shares = mechanism.estimate(counts, named(mechanism, one)).frequency
            found[one].append(distances(shares, people.shares))
    closed = theory(mechanism, people, users)
    for one, pairs in found.items():
        tv, mse = np.mean(pairs, axis=0)
        row = {"mechanism": kind, "estimator": one, "epsilon": epsilon, "tv": tv, "mse": mse}
        if one == "empirical":
            row |= {"theory_tv": closed.l1 / 2, "theory_mse": closed.mse}
        yield row


def distances(found: np.ndarray, true: np.ndarray) -> tuple[float, float]:
    """Total variation (half of l1) and mean squared error."""
    return float(np.abs(found - true).sum() / 2), float(np.mean((found - true) ** 2))


def theory(mechanism: Any, people: Symbols, users: int) -> Losses:
    """Losses to expect of the empirical estimates."""
    if mechanism.name in ("urr", "urap"):
        losses: Losses = mechanism.expected_losses(people.shares, users)
        return losses
    nothing = np.zeros(people.keys, dtype=np.int64)
    return expected_losses(Supports.alike(users, nothing, float(mechanism.own), float(mechanism.other)), people.shares)


def without_privacy(people: Symbols, users: int) -> tuple[float, float]:
    """Total variation and MSE to expect of the shares of a sample itself."""
    p = people.shares
    tv = np.sqrt(2.0 / (users * np.pi)) * np.sqrt(p * (1.0 - p)).sum() / 2
    return float(tv), no_privacy_l2_squared(p, users) / len(p)


# -- against epsilon ----------------------------------------------------------------------------------------

EPSILONS = (0.1, 0.3, 1.0, 2.0, 4.0, 8.0)
Populations = dict[str, tuple[int, Callable[[Scale], Symbols]]]
PLACES: Populations = {
    "places, 15 of 625 sensitive": (CHECK_INS, lambda scale: places(15)),
    "places, 610 of 625 sensitive": (CHECK_INS, lambda scale: places(CELLS - 15)),
}
HISTOGRAMS: Populations = {
    "census, 35 of 277 sensitive": (CENSUS, lambda scale: census(scale, "and")),
    "census, 253 of 277 sensitive": (CENSUS, lambda scale: census(scale, "or")),
    "Adult, 64 of 224 sensitive": (ADULTS, adult),
}


def epsilon_rows(populations: Populations, scale: Scale) -> Iterator[Row]:
    for name, (users, make) in populations.items():
        people, n = make(scale), scale.users(users)
        tv, mse = without_privacy(people, n)
        for epsilon in sorted([*scale.some(EPSILONS), log(people.keys)]):
            for kind in KINDS:
                for row in measure(f"epsilon: {name}", kind, epsilon, people, n, scale.repeats(REPEATS)):
                    yield {"population": name, **row, "no_privacy_tv": tv, "no_privacy_mse": mse}


def epsilon_panels(rows: Sequence[Row]) -> list[Panel]:
    panels = []
    for name in dict.fromkeys(row["population"] for row in rows):
        for figure, label in (("tv", "total variation"), ("mse", "MSE per symbol")):
            some, lines = of(rows, population=name), list[Line]()
            for kind in KINDS:
                for estimator, look in (("EM", "measured"), ("thresholded", "bound"), ("empirical", "dashed")):
                    points = of(some, mechanism=kind, estimator=estimator)
                    text = f"{kind}, {estimator}"
                    lines.append(series(points, "epsilon", figure, label=text, look=look, colour=kind))
            points = of(some, mechanism="RR", estimator="EM")
            lines.append(series(points, "epsilon", f"no_privacy_{figure}", label="no privacy", look="bound"))
            panels.append(Panel(title=name, x="epsilon", y=label, x_log=True, lines=lines))
    return panels


# -- number of sensitive values, of attributes --------------------------------------------------------------

NUMBERS = (5, 10, 20, 50, 100, 200, 400, 610)


def number_rows(scale: Scale) -> Iterator[Row]:
    n = scale.users(CHECK_INS)
    for epsilon in (0.1, log(CELLS)):
        for number in scale.some(NUMBERS):
            people = places(number)
            tv, mse = without_privacy(people, n)
            for kind in KINDS:
                # RR and RAPPOR do not know what is sensitive, so their draws are the same for every number
                for row in measure("number", kind, epsilon, people, n, scale.repeats(REPEATS), ("EM",)):
                    yield {"sensitive": number, **row, "no_privacy_tv": tv, "no_privacy_mse": mse}


def number_panels(rows: Sequence[Row]) -> list[Panel]:
    panels = []
    for epsilon in dict.fromkeys(row["epsilon"] for row in rows):
        for figure, label in (("tv", "total variation"), ("mse", "MSE per symbol")):
            some = of(rows, epsilon=epsilon)
            lines = [series(of(some, mechanism=kind), "sensitive", figure, label=kind) for kind in KINDS]
            lines.append(
                series(of(some, mechanism="RR"), "sensitive", f"no_privacy_{figure}", label="no privacy", look="bound")
            )
            title = f"epsilon {epsilon:.3g}"
            panels.append(Panel(title=title, x="sensitive cells of 625", y=label, x_log=True, lines=lines))
    return panels


PEOPLE = 200_000
ATTRIBUTES = tuple(range(1, 10))


def attribute_rows(scale: Scale) -> Iterator[Row]:
    n = scale.users(PEOPLE)
    for epsilon in (0.1, 1.0, 6.0):
        for number in scale.some(ATTRIBUTES):
            people = attributes(number)
            tv, mse = without_privacy(people, n)
            for kind in KINDS:
                for row in measure(f"attributes: {number}", kind, epsilon, people, n, scale.repeats(REPEATS), ("EM",)):
                    fixed = {"attributes": number, "symbols": people.keys, "sensitive": int(people.sensitive.sum())}
                    yield {**fixed, **row, "no_privacy_tv": tv, "no_privacy_mse": mse}


def attribute_panels(rows: Sequence[Row]) -> list[Panel]:
    panels = []
    for epsilon in dict.fromkeys(row["epsilon"] for row in rows):
        some = of(rows, epsilon=epsilon)
        lines = [series(of(some, mechanism=kind), "attributes", "tv", label=kind) for kind in KINDS]
        lines.append(series(of(some, mechanism="RR"), "attributes", "no_privacy_tv", label="no privacy", look="bound"))
        panels.append(Panel(title=f"epsilon {epsilon:g}", x="attributes", y="total variation", lines=lines))
    return panels


# -- what is sensitive differs from person to person ----------------------------------------------------------

BASES = {"uRR": "urr", "uRAP": "urap"}
BACKGROUNDS = ("none", "estimated", "true")
#: Shares of the check-ins at home, and as many at work.
SHARES = (0.2, 0.02)
TAGS: Any = ("home", "work")
PERSONAL_EPSILONS = (0.1, 0.3, 1.0, 2.0, 4.0, log(CELLS), 8.0)


def backgrounds(share: float) -> dict[str, Background]:
    """What the server may assume of homes and workplaces."""
    found = {}
    for name in BACKGROUNDS:
        entries: Any = DROP
        if name != "none":
            table = tagged(share).backgrounds[name]
            entries = tuple((tag, cell, table[tag, cell]) for tag, cell in zip(*np.nonzero(table), strict=True))
        found[name] = Background.of(entries, tags=len(TAGS), keys=CELLS, sensitive=())
    return found


def personal_rows(scale: Scale) -> Iterator[Row]:
    n, repeats = scale.users(CHECK_INS), scale.repeats(REPEATS)
    for share in SHARES:
        everything = Symbols(shares=tagged(share).shares, sensitive=np.ones(CELLS, dtype=np.bool_))
        for epsilon in scale.some(PERSONAL_EPSILONS):
            for base in BASES:
                for row in personal(base, epsilon, share, n, repeats):
                    yield {"at_home": share, **row}
            for kind in ("RR", "RAPPOR"):
                for row in measure("personal", kind, epsilon, everything, n, repeats, ("EM",)):
                    yield {"at_home": share, "method": kind, "epsilon": epsilon, "tv": row["tv"], "mse": row["mse"]}


def personal(base: str, epsilon: float, share: float, users: int, repeats: int) -> Iterator[Row]:
    """Yield average distances and both terms of the bound, for each background knowledge from the same reports."""
    people, known = tagged(share), backgrounds(share)
    mechanism: Any = make_mechanism(
        "pum", epsilon=epsilon, keys=CELLS, tags=TAGS, sensitive=[], base=BASES[base], background=DROP
    )
    told = np.append(people.joint[0], people.joint[1:].sum(axis=1))
    found: dict[str, list[tuple[float, ...]]] = {name: [] for name in known}
    for repeat in range(repeats):
        random = random_of(f"personal: {base}, {epsilon}, {users}", repeat)
        counts = draw(mechanism, random.multinomial(users, told), random)
        estimated = mechanism.symbol_shares(counts, named(mechanism, "EM"))
        for name, background in known.items():
            tv, mse = distances(background.spread(estimated), people.shares)
            terms = bound_terms(background, estimated, people.joint, np.zeros(len(told)))
            within = float(2 * tv <= terms.bound + 1e-12)
            found[name].append((tv, mse, 2 * tv, terms.obfuscation, terms.background, within))
    figures = ("tv", "mse", "l1", "first_term", "second_term", "within")
    for name, rows in found.items():
        means = dict(zip(figures, np.mean(rows, axis=0), strict=True))
        yield {"method": f"{base}, {name}", "base": base, "background": name, "epsilon": epsilon, **means}


def personal_panels(rows: Sequence[Row]) -> list[Panel]:
    looks = {"none": "bound", "estimated": "measured", "true": "dashed"}
    panels = []
    for share in dict.fromkeys(row["at_home"] for row in rows):
        some = of(rows, at_home=share)
        for figure, label in (("tv", "total variation"), ("mse", "MSE per cell")):
            lines = [
                series(
                    of(some, method=f"{base}, {one}"), "epsilon", figure, label=f"{base}, {one}", look=look, colour=base
                )
                for base in BASES
                for one, look in looks.items()
            ]
            lines += [series(of(some, method=kind), "epsilon", figure, label=kind) for kind in ("RR", "RAPPOR")]
            title = f"{share:.0%} each at home and at work"
            panels.append(Panel(title=title, x="epsilon", y=label, x_log=True, lines=lines))
    return panels


# -- the limit epsilon = ln d, and both kinds of EM ---------------------------------------------------------


def limit_rows(scale: Scale) -> Iterator[Row]:
    shares = np.zeros(CELLS)
    sensitive = np.zeros(CELLS, dtype=np.bool_)
    sensitive[:15] = True
    shares[15:] = 1.0 / (CELLS - 15)
    people, n, epsilon = Symbols(shares=shares, sensitive=sensitive), scale.users(CHECK_INS), log(CELLS)
    base = (1.0 - 1.0 / CELLS) / n
    for kind in KINDS:
        (row,) = measure("limit", kind, epsilon, people, n, scale.repeats(400), ("empirical",))
        yield {
            "mechanism": kind,
            "closed form": row["theory_mse"] * CELLS / base,
            "measured": row["mse"] * CELLS / base,
        }


def limit_panels(rows: Sequence[Row]) -> list[Panel]:
    lines = [
        Line(label=one, x=[row["mechanism"] for row in rows], y=[row[one] for row in rows])
        for one in ("closed form", "measured")
    ]
    return [Panel(title="at epsilon = ln 625", x="", y="squared l2, relative to no privacy", lines=lines)]


EM_USERS, EM_REPEATS = 20_000, 5
#: When EM over the reports ends; at a small epsilon it creeps on for ever without any change that matters.
TOLERANCE, ITERATIONS = 1e-6, 200
EM_EPSILONS = (1.0, 2.0, 4.0)


def em_rows(scale: Scale) -> Iterator[Row]:
    people, n = census(scale, "and"), scale.users(EM_USERS)
    steps = 10 if scale.tiny else ITERATIONS
    for epsilon in scale.some(EM_EPSILONS):
        for kind in ("RAPPOR", "uRAP"):
            found = [both_em(kind, epsilon, people, n, r, steps) for r in range(scale.repeats(EM_REPEATS))]
            for estimator in found[0]:
                tv, mse = np.mean([one[estimator] for one in found], axis=0)
                yield {"mechanism": kind, "epsilon": epsilon, "estimator": estimator, "tv": tv, "mse": mse}


def both_em(
    kind: str, epsilon: float, people: Symbols, users: int, repeat: int, iterations: int
) -> dict[str, tuple[float, float]]:
    """Distances of the empirical, the composite and the joint estimates of one set of reports."""
    mechanism = build(kind, epsilon, people)
    drawn = random_of(f"em: {kind}, {epsilon}, {users}", repeat).multinomial(users, people.shares)
    secret = Secret.from_seed(repeat)
    records = Records(
        users=secret.users().integers(np.arange(users)),
        offsets=np.arange(users + 1),
        keys=np.repeat(np.arange(people.keys, dtype=np.int32), drawn),
    )
    reports = mechanism.perturb(records, secret.stream(fingerprint="em"))
    counts = mechanism.count(reports)
    found = {one: mechanism.estimate(counts, one).frequency for one in ("empirical", "composite-em")}
    if kind == "uRAP":
        found["joint EM"] = mechanism.joint_shares(reports, tolerance=TOLERANCE, iterations=iterations)
    else:
        found["joint EM"] = joint_em(
            mechanism.supported(reports), *mechanism.likelihoods(), tolerance=TOLERANCE, iterations=iterations
        )
    return {name: distances(shares, people.shares) for name, shares in found.items()}


def em_panels(rows: Sequence[Row]) -> list[Panel]:
    return [
        Panel(
            title=kind,
            x="epsilon",
            y="total variation",
            lines=[
                series(of(rows, mechanism=kind, estimator=one), "epsilon", "tv", label=one)
                for one in ("empirical", "composite-em", "joint EM")
            ],
        )
        for kind in ("RAPPOR", "uRAP")
    ]


GRID = (
    f"{CHECK_INS:,} check-ins drawn anew in each of {REPEATS} repeats, on a grid of 25 x 25 cells, from a mixture of "
    "ten bells that this project defines; "
)
FIGURES: tuple[Figure, ...] = (
    Figure(
        name="uldp-places",
        title="Utility-optimised mechanisms: errors against epsilon, places on a grid",
        source=SOURCE + "6.2, figure 5; appendix E.3",
        data=GRID + "15 or 610 cells are sensitive, chosen by a seed. EM of RAPPOR and uRAP is composite.",
        rows=lambda scale: epsilon_rows(PLACES, scale),
        panels=epsilon_panels,
        claims=claims.of_epsilon,
        table=claims.epsilon_table,
    ),
    Figure(
        name="uldp-histograms",
        title="Utility-optimised mechanisms: errors against epsilon, census and Adult",
        source=SOURCE + "6.2, figure 5; appendix E.3",
        data=f"census microdata of the United States, 2023 ({CENSUS:,} people, two definitions of what is sensitive); "
        f"Adult ({ADULTS:,} people: decade of age, marital status, sex, income; divorced or separated is sensitive); "
        f"people drawn anew in each of {REPEATS} repeats. EM of RAPPOR and uRAP is composite.",
        rows=lambda scale: epsilon_rows(HISTOGRAMS, scale),
        panels=epsilon_panels,
        claims=claims.of_epsilon,
        table=claims.epsilon_table,
        needs_data=True,
    ),
    Figure(
        name="uldp-sensitive",
        title="Utility-optimised mechanisms: errors against the number of sensitive values",
        source=SOURCE + "6.2, figure 6",
        data=GRID + "cells become sensitive in an order fixed by a seed. EM.",
        rows=number_rows,
        panels=number_panels,
        claims=claims.of_number,
    ),
    Figure(
        name="uldp-attributes",
        title="Utility-optimised mechanisms: errors against the number of attributes",
        source=SOURCE + "6.2, figure 7",
        data=f"{PEOPLE:,} simulated people drawn anew in each of {REPEATS} repeats, up to nine attributes of two or "
        "three categories, in four classes; the last category of the first two is sensitive. EM.",
        rows=attribute_rows,
        panels=attribute_panels,
        claims=claims.of_attributes,
    ),
    Figure(
        name="uldp-personal",
        title="Personalised mechanism: background knowledge and the bound of theorem 1",
        source=SOURCE + "6.2, figure 8 and table 1",
        data=GRID
        + "a fifth or a fiftieth of them each at one's own home and workplace, which are sensitive. Estimated "
        "background: 1,000 venues, 30 % of them stray. EM.",
        rows=personal_rows,
        panels=personal_panels,
        claims=claims.of_personal,
        table=claims.bound_table,
    ),
    Figure(
        name="uldp-limit",
        title="Utility-optimised mechanisms: the loss at epsilon = ln d",
        source=SOURCE + "4.3 and appendices D and E",
        data=f"{CHECK_INS:,} users, 625 symbols of which 15 are sensitive, all others equally frequent, 400 repeats.",
        rows=limit_rows,
        panels=limit_panels,
        claims=claims.of_limit,
        table=lambda rows: rows,
    ),
    Figure(
        name="uldp-em",
        title="EM from counts and EM from reports",
        source=SOURCE + "2.5 (estimation)",
        data=f"census microdata, 35 of 277 categories sensitive, {EM_USERS:,} people, {EM_REPEATS} repeats with the "
        "reports themselves.",
        needs_data=True,
        rows=em_rows,
        panels=em_panels,
        claims=claims.of_em,
        table=lambda rows: rows,
    ),
)
