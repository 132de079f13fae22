"""The figures of PrivKV: Ye, Hu, Meng, Zheng, IEEE S&P 2019; `privkv_claims` holds what the paper says."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
from ldp_beam.mechanisms import MultiRound, make_mechanism
from ldp_beam.mechanisms.categorical.base import FrequencyOracle
from ldp_beam.mechanisms.categorical.simulation import draw_counts as draw_symbols
from ldp_beam.mechanisms.privkv.simulation import KeyPopulation

from . import privkv_claims as claims
from .figures import Figure, Line, Panel, Row, Scale, of, random_of, series
from .keyvalue import Method
from .shapes import GAUSS, HELD, LNR, PLAW, SHAPES, average, collect, errors, kept, people_of, relative

__all__ = ["FIGURES"]

USERS, KEYS, REPEATS = 1_000_000, 100, 50
EPSILONS = (0.1, 0.2, 0.4, 0.8, 1.6, 3.2, 6.4)
VIRTUAL = "one real, 5 virtual rounds"
METHODS = (
    Method(label="PrivKV", mechanism="privkv"),
    Method(label="PrivKVM", mechanism="privkvm", more={"rounds": 6}),
    Method(label="PrivKVM+", mechanism="privkvm+", more={"max_rounds": 6}),
    Method(label=VIRTUAL, mechanism="privkv", more={"virtual_rounds": 5}, estimator="virtual-same-key"),
    Method(label="PrivKVM-Harmony", mechanism="privkvm-harmony", more={"rounds": 6}),
    Method(label="PrivKVM-MeanEst", mechanism="privkvm-meanest", more={"rounds": 6}),
    Method(label="KVUE", mechanism="kvue"),
    Method(label="PCKV-UE", mechanism="pckv-ue"),
    Method(label="PCKV-GRR", mechanism="pckv-grr"),
)
ORACLES = {"RAPPOR": "sue", "k-RR": "grr", "SHist": "shist"}
DATA = (
    "{shapes} as this project defines them, {users} users with ten of {keys} keys each, users and means drawn anew in "
    "each of {repeats} repeats."
)
SIX = " PrivKVM and its variants with six rounds, PCKV with padding 10."


def described(shapes: str = "GAUSS, PLAW, LNR", users: str = "1,000,000", keys: str = "100") -> str:
    """The data of a caption."""
    return DATA.format(shapes=shapes, users=users, keys=keys, repeats=REPEATS)


def measured(
    name: str, method: Method, epsilon: float, shape: str, keys: int, users: int, repeats: int
) -> dict[str, float | None]:
    """Average errors of a method; the figure's name seeds the draws."""
    mechanism = method.make(epsilon, keys, HELD)
    rows = []
    for repeat in range(repeats):
        people = people_of(shape, keys, seed=repeat)
        random = random_of(f"{name}: {shape}, {method.label}, {epsilon}, {keys}, {users}", repeat)
        estimates, state = collect(mechanism, method.estimator, people, users, random)
        rows.append(errors(estimates, people) | {"rounds": float(len(state.counts) if state else 1)})
    return average(rows)


# -- against epsilon, users, keys ---------------------------------------------------------------------------


def epsilon_rows(scale: Scale) -> Iterator[Row]:
    for shape in scale.some(tuple(SHAPES)):
        for method in METHODS:
            for epsilon in scale.some(EPSILONS):
                found = measured("epsilon", method, epsilon, shape, KEYS, scale.users(USERS), scale.repeats(REPEATS))
                yield {"population": shape, "method": method.label, "epsilon": epsilon, **found}
        for label in ORACLES:
            for epsilon in scale.some(EPSILONS):
                yield {
                    "population": shape,
                    "method": label,
                    "epsilon": epsilon,
                    **oracle_errors(label, epsilon, shape, scale.users(USERS), scale.repeats(REPEATS)),
                }


def oracle_errors(label: str, epsilon: float, shape: str, users: int, repeats: int) -> dict[str, float | None]:
    """Average errors of a mechanism for keys alone: a user tells of one of her ten keys, with half of epsilon."""
    mechanism: Any = make_mechanism(ORACLES[label], epsilon=epsilon / 2, keys=KEYS)
    assert isinstance(mechanism, FrequencyOracle)
    true = people_of(shape, KEYS, seed=0).frequency
    rows = []
    for repeat in range(repeats):
        random = random_of(f"oracle: {shape}, {label}, {epsilon}, {users}", repeat)
        counts = draw_symbols(mechanism, random.multinomial(users, true / true.sum()), random)
        found = mechanism.estimate(counts).frequency * HELD
        rows.append(relative(np.clip(found, 1.0 / users, 1.0), true))
    return average(rows)


def against(x: str, x_label: str, y: str, y_label: str, rows: Sequence[Row], methods: Sequence[str]) -> list[Panel]:
    """One panel a population: a figure of every method."""
    return [
        Panel(
            title=shape,
            x=x_label,
            y=y_label,
            x_log=True,
            y_log=y != "log_mse_mean",
            lines=[series(of(rows, population=shape, method=one), x, y, label=one) for one in methods],
        )
        for shape in dict.fromkeys(row["population"] for row in rows)
    ]


def labels(rows: Sequence[Row], figure: str) -> list[str]:
    """Methods that have this figure."""
    return list(dict.fromkeys(row["method"] for row in rows if row.get(figure) is not None))


def mean_panels(rows: Sequence[Row]) -> list[Panel]:
    y = "log10 of the mean squared error of means"
    return against("epsilon", "epsilon", "log_mse_mean", y, rows, labels(rows, "log_mse_mean"))


def frequency_panels(rows: Sequence[Row]) -> list[Panel]:
    y = "median relative error of frequencies"
    some = [one for one in labels(rows, "re_frequency") if one not in ("PrivKVM-Harmony", "PrivKVM-MeanEst", VIRTUAL)]
    return against("epsilon", "epsilon", "re_frequency", y, rows, some)


SIZES = (10_000, 100_000, 1_000_000, 10_000_000)
DOMAINS = (50, 100, 200, 500, 1000)
#: Budget of the figures against users and keys.
MIDDLE = 3.2


def size_rows(scale: Scale) -> Iterator[Row]:
    for shape in (GAUSS, PLAW):
        for method in METHODS:
            for users in scale.some(SIZES):
                n = scale.users(users)
                found = measured("users", method, MIDDLE, shape, KEYS, n, scale.repeats(REPEATS))
                yield {"population": shape, "method": method.label, "users": users, **found}


def domain_rows(scale: Scale) -> Iterator[Row]:
    for shape in (GAUSS, PLAW):
        for method in METHODS:
            for keys in scale.some(DOMAINS):
                n = scale.users(USERS)
                found = measured("keys", method, MIDDLE, shape, keys, n, scale.repeats(REPEATS))
                yield {"population": shape, "method": method.label, "keys": keys, **found}


def scaling_panels(x: str) -> Any:
    """Panels of means and frequencies against users or keys."""

    def panels(rows: Sequence[Row]) -> list[Panel]:
        methods = labels(rows, "log_mse_mean")
        means = against(x, x, "log_mse_mean", "log10 of the MSE of means", rows, methods)
        return means + against(x, x, "re_frequency", "median relative error of frequencies", rows, methods)

    return panels


# -- rounds -------------------------------------------------------------------------------------------------

ROUNDS = tuple(range(1, 11))
ROUND_EPSILONS = (0.4, 1.6, 6.4)
ROUND_KINDS = {"PrivKVM": "privkvm", "PrivKVM-Harmony": "privkvm-harmony", "PrivKVM-MeanEst": "privkvm-meanest"}


def in_rounds(label: str, rounds: int, **more: Any) -> Method:
    """A method of this kind with a number of rounds."""
    return Method(label=f"{label}, {rounds}", mechanism=ROUND_KINDS[label], more={"rounds": rounds, **more})


def round_rows(scale: Scale) -> Iterator[Row]:
    for shape in (GAUSS, PLAW):
        for epsilon in scale.some(ROUND_EPSILONS):
            for rounds in scale.some(ROUNDS):
                bias = left_over(shape, epsilon, rounds)
                for label in ROUND_KINDS:
                    method = in_rounds(label, rounds)
                    n, repeats = scale.users(USERS), scale.repeats(REPEATS)
                    found = measured("rounds", method, epsilon, shape, KEYS, n, repeats)
                    found["rounds"] = rounds
                    yield {"population": shape, "method": label, "epsilon": epsilon, **found, "log_bias": bias}


def left_over(shape: str, epsilon: float, rounds: int) -> float:
    """log10 of the squared bias that is left after the rounds, averaged over keys whose means are uniform."""
    f = people_of(shape, KEYS, seed=0).frequency
    law = make_mechanism("privkvm", epsilon=epsilon, keys=KEYS, rounds=rounds).parameters()
    alpha = law["a"] * f / (law["a"] * f + law["b"] * (1.0 - f))
    bias = (1.0 - alpha) * (1.0 - f) ** (rounds - 1)
    squares = np.mean([people_of(shape, KEYS, seed=seed).mean ** 2 for seed in range(REPEATS)], axis=0)
    return float(np.log10(np.mean(bias**2 * squares)))


def round_panels(rows: Sequence[Row]) -> list[Panel]:
    panels = []
    for shape in (GAUSS, PLAW):
        lines: list[Line] = []
        for epsilon in dict.fromkeys(row["epsilon"] for row in rows):
            for method in ("PrivKVM", "PrivKVM-Harmony"):
                some = of(rows, population=shape, method=method, epsilon=epsilon)
                lines.append(series(some, "rounds", "log_mse_mean", label=f"{method}, epsilon {epsilon:g}"))
            some = of(rows, population=shape, method="PrivKVM", epsilon=epsilon)
            own = f"PrivKVM, epsilon {epsilon:g}"
            lines.append(
                series(some, "rounds", "log_bias", label=f"its bias, epsilon {epsilon:g}", look="theory", colour=own)
            )
        panels.append(Panel(title=shape, x="rounds", y="log10 of the MSE of means", y_log=False, lines=lines))
    return panels


COSTS = (0.2, 0.02)
COST_EPSILONS = (0.8, 1.6, 3.2, 6.4)


def cost_methods(cost: float) -> list[Method]:
    """PrivKVM with three and six rounds, and PrivKVM+ with either initial fake value."""
    plus = {"A0": cost, "max_rounds": 10}
    return [
        Method(label="PrivKVM, 3 rounds", mechanism="privkvm", more={"rounds": 3}),
        Method(label="PrivKVM, 6 rounds", mechanism="privkvm", more={"rounds": 6}),
        Method(label="PrivKVM+", mechanism="privkvm+", more=plus),
        Method(label="PrivKVM+, first fake value 1", mechanism="privkvm+", more={**plus, "initial": 1}),
    ]


def cost_rows(scale: Scale) -> Iterator[Row]:
    for shape in (GAUSS, PLAW):
        for cost in COSTS:
            for method in cost_methods(cost):
                for epsilon in scale.some(COST_EPSILONS):
                    n, repeats = scale.users(USERS), scale.repeats(REPEATS)
                    found = measured(f"cost {cost}", method, epsilon, shape, KEYS, n, repeats)
                    rounds, error = found["rounds"], found["l1_mean"]
                    assert rounds is not None
                    assert error is not None
                    yield {
                        "population": shape,
                        "A0": cost,
                        "method": method.label,
                        "epsilon": epsilon,
                        "rounds": rounds,
                        "F1": error,
                        "F": error + cost * rounds,
                    }


def cost_panels(rows: Sequence[Row]) -> list[Panel]:
    return [
        Panel(
            title=f"{shape}, A0 = {cost:g}",
            x="epsilon",
            y="cost F",
            x_log=True,
            y_log=False,
            lines=[
                series(of(rows, population=shape, A0=cost, method=one), "epsilon", "F", label=one)
                for one in dict.fromkeys(row["method"] for row in rows)
            ],
        )
        for shape in (GAUSS, PLAW)
        for cost in COSTS
    ]


VIRTUAL_EPSILONS = (0.05, 0.1, 0.2, 0.4, 0.8, 1.6, 3.2, 6.4)
VIRTUAL_METHODS = (
    Method(label="PrivKVM, 6 real rounds", mechanism="privkvm", more={"rounds": 6}),
    Method(label="PrivKV, 1 round", mechanism="privkv"),
    Method(label="5 virtual, same key step", mechanism="privkv", estimator="virtual-same-key"),
    Method(label="5 virtual, key step 1/2", mechanism="privkv", estimator="virtual-half"),
)


def virtual_rows(scale: Scale) -> Iterator[Row]:
    for shape in (GAUSS, PLAW):
        for method in VIRTUAL_METHODS:
            for epsilon in scale.some(VIRTUAL_EPSILONS):
                n, repeats = scale.users(USERS), scale.repeats(REPEATS)
                found = measured("virtual", method, epsilon, shape, KEYS, n, repeats)
                yield {"population": shape, "method": method.label, "epsilon": epsilon, **found}


# -- the correlation of keys and values ---------------------------------------------------------------------

CORRELATED = tuple(one for one in METHODS if one.label in ("PrivKV", "PrivKVM", VIRTUAL, "KVUE", "PCKV-UE"))
APART = "k-RR and Harmony, apart"
#: Budget of the profile of GAUSS.
PROFILE = 6.4


def correlation_rows(scale: Scale) -> Iterator[Row]:
    n, repeats = scale.users(USERS), scale.repeats(REPEATS)
    for shape in (PLAW, LNR):
        for epsilon in scale.some(EPSILONS):
            for label in (*(one.label for one in CORRELATED), APART):
                found = [both(label, epsilon, shape, n, repeat) for repeat in range(repeats)]
                true = people_of(shape, KEYS, seed=0, means="ranked")
                yield {
                    "population": shape,
                    "method": label,
                    "epsilon": epsilon,
                    "true": kept(true.frequency, true.mean),
                    "correlation": float(np.mean([kept(f, m) for f, m in found])),
                }
    true = people_of(GAUSS, KEYS, seed=0, means="ranked")
    profiles = {label: both(label, PROFILE, GAUSS, n, 0) for label in ("PrivKVM", APART)}
    profiles["true"] = true.frequency, true.mean
    for label, (frequency, mean) in profiles.items():
        for key in range(KEYS):
            yield {
                "population": GAUSS,
                "method": label,
                "key": key + 1,
                "frequency": frequency[key],
                "mean": mean[key],
            }


def both(label: str, epsilon: float, shape: str, users: int, repeat: int) -> tuple[np.ndarray, np.ndarray]:
    """Estimated frequencies and means of one collection; a mean that does not exist counts as 0."""
    people = people_of(shape, KEYS, seed=0, means="ranked")
    random = random_of(f"correlation: {shape}, {label}, {epsilon}, {users}", repeat)
    if label == APART:
        return apart(epsilon, people, users, random)
    method = next(one for one in CORRELATED if one.label == label)
    found, _ = collect(method.make(epsilon, KEYS, HELD), method.estimator, people, users, random)
    assert found.mean is not None
    return found.frequency, np.nan_to_num(found.mean)


def apart(
    epsilon: float, people: KeyPopulation, users: int, random: np.random.Generator
) -> tuple[np.ndarray, np.ndarray]:
    """One pair a user: its key goes through k-RR and its value through Harmony, each with half of epsilon.

    The server takes the mean of the values that came with each reported key, so keys that were not kept bring the
    values of other keys.
    """
    oracle: Any = make_mechanism("grr", epsilon=epsilon / 2, keys=KEYS)
    own, other = float(oracle.own), float(oracle.other)
    trust = np.tanh(epsilon / 4)  # 2p - 1 for p = e^(epsilon/2) / (e^(epsilon/2) + 1)
    sampled = people.frequency / people.frequency.sum()
    told = other * np.ones((KEYS, KEYS)) + (own - other) * np.eye(KEYS)
    plus = (sampled * (1.0 + trust * people.mean) / 2.0) @ told
    chances = np.concatenate([plus, sampled @ told - plus])
    n1, n2 = random.multinomial(users, chances / chances.sum()).reshape(2, KEYS)
    frequency = np.clip(HELD * ((n1 + n2) / users - other) / (own - other), 1.0 / users, 1.0)
    return frequency, np.clip((n1 - n2) / np.maximum(n1 + n2, 1) / trust, -1.0, 1.0)


def correlation_panels(rows: Sequence[Row]) -> list[Panel]:
    panels = []
    for shape in (PLAW, LNR):
        some = [row for row in of(rows, population=shape) if "epsilon" in row]
        lines = [
            series(of(some, method=one), "epsilon", "correlation", label=one)
            for one in dict.fromkeys(row["method"] for row in some)
        ]
        lines.append(series(of(some, method=APART), "epsilon", "true", label="in the population", look="bound"))
        panels.append(Panel(title=shape, x="epsilon", y="correlation", x_log=True, y_log=False, lines=lines))
    profile = of(rows, population=GAUSS)
    for figure in ("frequency", "mean"):
        lines = [
            series(of(profile, method=one), "key", figure, label=one)
            for one in dict.fromkeys(r["method"] for r in profile)
        ]
        title = f"GAUSS, epsilon {PROFILE:g}: {figure} of each key"
        panels.append(Panel(title=title, x="key", y=figure, y_log=False, lines=lines))
    return panels


# -- bytes --------------------------------------------------------------------------------------------------

BYTE_DOMAINS = (100, 1_000, 10_000)


def byte_rows(scale: Scale) -> Iterator[Row]:
    for keys in BYTE_DOMAINS:
        for method in METHODS:
            mechanism = method.make(MIDDLE, keys, HELD)
            size = sum(np.dtype(one.dtype).itemsize * max(1, one.width) for one in mechanism.layout())
            rounds = mechanism.rounds_max if isinstance(mechanism, MultiRound) else 1
            yield {
                "keys": keys,
                "method": method.label,
                "rounds": rounds,
                "sent": size * rounds,
                "received": (rounds - 1) * -(-keys // 8),
            }


def byte_panels(rows: Sequence[Row]) -> list[Panel]:
    panels = []
    for keys in (BYTE_DOMAINS[0], BYTE_DOMAINS[-1]):
        some = [row for row in of(rows, keys=keys) if row["method"] not in ("PrivKVM-Harmony", "PrivKVM-MeanEst")]
        names = ["virtual" if row["method"] == VIRTUAL else row["method"].replace("-", "\n") for row in some]
        lines = [
            Line(label="sent by a user", x=names, y=[row["sent"] for row in some]),
            Line(label="sent to her", x=names, y=[row["received"] or None for row in some]),
        ]
        panels.append(Panel(title=f"{keys:,} keys", x="", y="bytes per user", lines=lines))
    return panels


FIGURES: tuple[Figure, ...] = (
    Figure(
        name="privkv-means",
        title="PrivKV: errors of means and frequencies against epsilon",
        source="PrivKV, section 6.2 (overall results)",
        data=described() + SIX + " RAPPOR, k-RR and SHist ask for one of the ten keys, with half of epsilon.",
        rows=epsilon_rows,
        panels=lambda rows: mean_panels(rows) + frequency_panels(rows),
        claims=claims.of_epsilon,
        table=claims.epsilon_table,
    ),
    Figure(
        name="privkv-users",
        title="PrivKV: errors against the number of users",
        source="PrivKV, section 6.3 (scalability)",
        data=described("GAUSS, PLAW", "10,000 to 10,000,000") + SIX + f" Epsilon is {MIDDLE:g}.",
        rows=size_rows,
        panels=scaling_panels("users"),
        claims=claims.of_users,
    ),
    Figure(
        name="privkv-keys",
        title="PrivKV: errors against the number of keys",
        source="PrivKV, section 6.3 (scalability)",
        data=described("GAUSS, PLAW", keys="50 to 1,000") + SIX + f" Epsilon is {MIDDLE:g}.",
        rows=domain_rows,
        panels=scaling_panels("keys"),
        claims=claims.of_keys,
    ),
    Figure(
        name="privkv-rounds",
        title="PrivKV: errors of means after one to ten rounds",
        source="PrivKV, section 6.5 (impact of iterations)",
        data=described("GAUSS, PLAW") + " Each number of rounds is a collection of its own, among which the budget is "
        "shared. Dashed: the squared bias by the closed form.",
        rows=round_rows,
        panels=round_panels,
        claims=claims.of_rounds,
        table=claims.round_table,
    ),
    Figure(
        name="privkv-cost",
        title="PrivKV: the cost function",
        source="PrivKV, section 6.6 (impact of the cost function)",
        data=described("GAUSS, PLAW")
        + " F = mean absolute error of means + A0 times the rounds; PrivKVM+ may ask ten.",
        rows=cost_rows,
        panels=cost_panels,
        claims=claims.of_cost,
        table=claims.cost_table,
    ),
    Figure(
        name="privkv-virtual",
        title="PrivKV: virtual rounds",
        source="PrivKV, section 6.7 (impact of virtual iterations)",
        data=described("GAUSS, PLAW") + " Virtual rounds: one real round, five computed by the server.",
        rows=virtual_rows,
        panels=mean_panels,
        claims=claims.of_virtual,
    ),
    Figure(
        name="privkv-correlation",
        title="PrivKV: how much of the correlation of keys and values is kept",
        source="PrivKV, section 6.4 (key-value correlation)",
        data=described("PLAW, LNR").replace("users and means", "users")
        + SIX
        + " Means rise with the rank of the frequency. Below: one collection of GAUSS.",
        rows=correlation_rows,
        panels=correlation_panels,
        claims=claims.of_correlation,
    ),
    Figure(
        name="privkv-bytes",
        title="PrivKV: bytes that a user sends and receives",
        source="PrivKV, section 6.2 (bandwidth)",
        data="the layouts of the reports; between rounds a user is sent one bit a key. At most six rounds. "
        "PrivKVM-Harmony and PrivKVM-MeanEst send what PrivKVM sends.",
        rows=byte_rows,
        panels=byte_panels,
        claims=claims.of_bytes,
        table=claims.byte_table,
    ),
)
