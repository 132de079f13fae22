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
from .pckv import PCKV

if TYPE_CHECKING:
    from numpy.random import Generator

__all__ = ["Sampled", "draw_counts", "draw_sampled"]

#: Numbers drawn at once, at most.
_CELLS = 1 << 20


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


def draw_counts(mechanism: PCKV, sampled: Sampled, generator: Generator) -> Counts:
    """Draw the counts of the reports of users who sampled `sampled`.

    Args:
        mechanism: PCKV-UE or PCKV-GRR.
        sampled: what the users sampled.
        generator: source of random numbers.

    Returns:
        Counts as `count` gives them for the users' reports.
    """
    law = mechanism.probabilities
    kept_plus, kept_minus = (generator.binomial(part, law.a) for part in (sampled.positive, sampled.negative))
    true_plus, false_minus = _signs(kept_plus, law.p, generator)
    true_minus, false_plus = _signs(kept_minus, law.p, generator)
    if mechanism.name == "pckv-ue":
        others = sampled.users - sampled.positive - sampled.negative
        noise = generator.binomial(others, law.b)
    else:
        drawn = sampled.positive + sampled.negative
        dummies = int(generator.binomial(sampled.users - drawn.sum(), 1.0 - law.a))
        noise = _landed(mechanism, dummies, drawn - kept_plus - kept_minus, generator)
    noise_plus, noise_minus = _signs(noise, 0.5, generator)
    cells = {"n1": true_plus + false_plus + noise_plus, "n2": true_minus + false_minus + noise_minus}
    return Counts(n=sampled.users, cells=cells)


def _signs(number: I64, share: float, generator: Generator) -> tuple[I64, I64]:
    first = generator.binomial(number, share)
    return first, number - first


def _landed(mechanism: PCKV, dummies: int, moved: I64, generator: Generator) -> I64:
    """Draw how many reports name each key though their user sampled another one, PCKV-GRR.

    Args:
        mechanism: the mechanism.
        dummies: reports of users who sampled a dummy key and did not keep it.
        moved: the same for each key, int64 (d,).
        generator: source of random numbers.
    """
    keys, others = mechanism.keys, mechanism.keys + mechanism.padding - 1
    to_key = np.full(keys + 1, 1.0 / others)
    to_key[keys] = (mechanism.padding - 1) / others
    landed: I64 = generator.multinomial(dummies, to_key)[:keys]
    to_key[keys] = mechanism.padding / others
    rows = max(1, _CELLS // (keys + 1))
    for start in range(0, keys, rows):
        part = moved[start : start + rows]
        shares = np.tile(to_key, (len(part), 1))
        shares[np.arange(len(part)), start + np.arange(len(part))] = 0.0
        landed = landed + generator.multinomial(part, shares)[:, :keys].sum(axis=0)
    return landed
