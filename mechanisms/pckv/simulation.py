"""Counts of PCKV drawn from their law at once, without making a report: for experiments only, nothing here is private.

What a user's report says about the keys depends only on the pair that was sampled and on its discretised value. So the
users who sampled alike are exchangeable, and the counts of a whole collection are sums of binomial and multinomial
numbers, drawn in a time that does not depend on the number of users. The law is that of the reports themselves, with
the same integer thresholds; only words that are mapped to slots and to other keys are taken to be exactly uniform (they
are, but for 2^-44).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from ..data import F64, I64, Counts
from ..populations import Pairs
from .pckv import PCKV

if TYPE_CHECKING:
    from numpy.random import Generator

__all__ = [
    "Sampled",
    "Shares",
    "draw_counts",
    "draw_sampled",
    "draw_sampled_of",
    "draw_sampled_shares",
    "sampled_shares",
]


@dataclass(frozen=True, kw_only=True, eq=False)
class Sampled:
    """What the users of a collection sampled, before anything is perturbed.

    Attributes:
        users: number of users, those who sampled a dummy key included.
        positive: users who sampled each key with the discretised value 1, int64 (d,).
        negative: the same with -1.
    """

    users: int
    positive: I64
    negative: I64


@dataclass(frozen=True, kw_only=True, eq=False)
class Shares:
    """With what probabilities somebody drawn at random from a population samples each key.

    Attributes:
        positive: each key with the discretised value 1, float64 (d,).
        negative: the same with -1; what both together lack of 1 is sampled dummies.
    """

    positive: F64
    negative: F64


# -- what is sampled --------------------------------------------------------------------------------------


def draw_sampled(frequency: F64, mean: F64, padding: int, users: int, generator: Generator) -> Sampled:
    """Draw what users sample who are themselves drawn from a population in which nobody holds more than `padding` keys.

    A user then samples key k with probability frequency_k / padding, whatever else she holds.

    Args:
        frequency: share of the population that holds each key, float64 (d,); the sum is at most the padding.
        mean: mean value of the holders of each key, in [-1, 1], float64 (d,).
        padding: padding length.
        users: number of users.
        generator: source of random numbers.
    """
    shares = frequency / padding
    dummy = max(0.0, 1.0 - float(shares.sum()))
    drawn = generator.multinomial(users, np.append(shares, dummy) / (shares.sum() + dummy))[:-1]
    positive = generator.binomial(drawn, (1.0 + mean) / 2.0)
    return Sampled(users=users, positive=positive, negative=drawn - positive)


def sampled_shares(pairs: Pairs, keys: int, padding: int) -> Shares:
    """Return the shares for a population of real records, in which users may hold more keys than the padding.

    Args:
        pairs: records of the population.
        keys: size of the domain.
        padding: padding length.
    """
    sizes = np.diff(pairs.offsets)
    slot = np.repeat(1.0 / np.maximum(sizes, padding), sizes) / max(1, len(sizes))
    plus = (1.0 + pairs.values) / 2.0
    sums = [np.bincount(pairs.keys, weights=slot * part, minlength=keys) for part in (plus, 1.0 - plus)]
    return Shares(positive=sums[0].astype(np.float64), negative=sums[1].astype(np.float64))


def draw_sampled_shares(shares: Shares, users: int, generator: Generator) -> Sampled:
    """Draw what users sample who are drawn from a population, with replacement.

    Args:
        shares: the population's shares.
        users: number of users.
        generator: source of random numbers.
    """
    both = np.concatenate([shares.positive, shares.negative])
    dummy = max(0.0, 1.0 - float(both.sum()))
    drawn = generator.multinomial(users, np.append(both, dummy) / (both.sum() + dummy))
    d = len(shares.positive)
    return Sampled(users=users, positive=drawn[:d], negative=drawn[d:-1])


def draw_sampled_of(pairs: Pairs, keys: int, padding: int, generator: Generator) -> Sampled:
    """Draw what given users sample, each of whom takes part once.

    Args:
        pairs: their records.
        keys: size of the domain.
        padding: padding length.
        generator: source of random numbers.
    """
    sizes = np.diff(pairs.offsets)
    slot = generator.integers(0, np.maximum(sizes, padding))
    real = slot < sizes
    chosen = (pairs.offsets[:-1] + slot)[real]
    plus = generator.random(len(chosen)) < (1.0 + pairs.values[chosen]) / 2.0
    counts = [np.bincount(pairs.keys[chosen[part]], minlength=keys) for part in (plus, ~plus)]
    return Sampled(users=len(sizes), positive=counts[0], negative=counts[1])


# -- what is reported -------------------------------------------------------------------------------------


def draw_counts(mechanism: PCKV, sampled: Sampled, generator: Generator) -> Counts:
    """Draw the counts of the reports of users who sampled `sampled`.

    Args:
        mechanism: PCKV-UE or PCKV-GRR.
        sampled: what the users sampled.
        generator: source of random numbers.

    Returns:
        Counts as `count` gives them for the users' reports.
    """
    draw = _unary if mechanism.name == "pckv-ue" else _randomised
    plus, minus = draw(mechanism, sampled, generator)
    return Counts(n=sampled.users, cells={"n1": plus, "n2": minus})


def _unary(mechanism: PCKV, sampled: Sampled, generator: Generator) -> tuple[I64, I64]:
    """Cells of a report are independent: the sampled key's has its own law, all others one law."""
    law = mechanism.probabilities
    own_plus, own_minus, _ = _own(sampled, law.a * law.p, law.a * (1.0 - law.p), generator)
    noise = generator.binomial(sampled.users - sampled.positive - sampled.negative, law.b)
    noise_plus = generator.binomial(noise, 0.5)
    return own_plus + noise_plus, own_minus + noise - noise_plus


def _randomised(mechanism: PCKV, sampled: Sampled, generator: Generator) -> tuple[I64, I64]:
    """PCKV-GRR as a mixture, so that the time grows with the domain and not with its square.

    A report names each other key, with a fair sign, with probability b. Taking as much of the sampled key's own law
    apart leaves the mixture: with probability d' b any of the d' keys, uniformly, with a fair sign, whatever was
    sampled; else the sampled key, with its sign with probability a p - b/2 and the other one with a (1 - p) - b/2. The
    latter is 0 for the optimised allocation and positive for the others, since a report of the sampled key with the
    other sign is never rarer than one of another key.
    """
    law, cells = mechanism.probabilities, mechanism.keys + mechanism.padding
    same = law.a * law.p - law.b / 2.0
    turned = max(0.0, law.gap - same)
    own_plus, own_minus, anything = _own(sampled, same, turned, generator)
    dummies = sampled.users - int(sampled.positive.sum() + sampled.negative.sum())
    anything += int(generator.binomial(dummies, min(1.0, cells * law.b)))
    to_cell = np.full(2 * mechanism.keys + 1, 0.5 / cells)
    to_cell[-1] = mechanism.padding / cells
    landed = generator.multinomial(anything, to_cell)
    return own_plus + landed[: mechanism.keys], own_minus + landed[mechanism.keys : -1]


def _own(sampled: Sampled, same: float, turned: float, generator: Generator) -> tuple[I64, I64, int]:
    """Reports of the sampled key that are +1, that are -1, int64 (d,) each, and how many users' are not decided yet."""
    fates = [same, turned, max(0.0, 1.0 - same - turned)]
    from_plus, from_minus = (generator.multinomial(part, fates) for part in (sampled.positive, sampled.negative))
    plus, minus = from_plus[:, 0] + from_minus[:, 1], from_plus[:, 1] + from_minus[:, 0]
    return plus, minus, int(from_plus[:, 2].sum() + from_minus[:, 2].sum())
