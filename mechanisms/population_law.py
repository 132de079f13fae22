"""Exact frequencies and mean values of the synthetic populations, without drawing anybody.

Keys drawn one after another without replacement, with weights w, are the first arrivals of independent exponential
clocks: key k arrives at a time of rate w_k. A user with r keys holds key k if fewer than r of the others arrive before
it, so

    f_k = integral over t of w_k e^(-w_k t) Pr[fewer than r of the others arrived by t],

one Poisson-binomial chance for each t. Values are normal numbers clipped to [-1, 1], whose mean has a closed form.

Source:
    The clocks: Efraimidis, Spirakis, Information Processing Letters 2006. The integral is ours.
"""

from __future__ import annotations

from math import erf, sqrt
from typing import TYPE_CHECKING, Final

import numpy as np

from .data import F64, I64
from .populations import VALUE_SPREAD, Population

if TYPE_CHECKING:
    from numpy.random import Generator

__all__ = ["draw_values", "exact_frequency", "exact_mean"]

#: Points of the integral. 400 give the frequencies of all shapes up to 1,000 keys to 1e-9.
_POINTS: Final = 400
_SCATTERED: Final = ("gauss", "power-law", "linear")


def exact_frequency(population: Population) -> F64:
    """Return the chance that a user holds each key, float64 (keys,).

    Args:
        population: any population; that of "gg" includes users without a pair.
    """
    weights, pairs = population.weights(), population.pairs
    if population.name == "gg":
        # the weights leave out the draws beyond the domain, |N| > 2
        return np.asarray(weights * erf(2.0 / sqrt(2.0)))
    if pairs == 1:
        return weights
    if pairs == len(weights):
        return np.ones(pairs)
    return _first_arrivals(weights, pairs)


def _first_arrivals(weights: F64, pairs: int) -> F64:
    """Chance that each clock is among the first `pairs`, float64 (d,)."""
    # u = e^(-t w_max) maps the times to (0, 1); powers of x in u = x^s tame both ends
    nodes, shares = np.polynomial.legendre.leggauss(_POINTS)
    x = (nodes + 1.0) / 2.0
    rates = weights / weights.max()
    total = float(rates.sum())
    # most arrivals are decided around the time at which `pairs` of them have come
    scale = max(1.0, total / pairs)
    time = scale * x / (1.0 - x)
    density = scale / (1.0 - x) ** 2 * shares / 2.0
    late = np.exp(-np.outer(rates, time))
    before, behind = _fewer(late, pairs)
    fewer = np.zeros_like(late)
    for j in range(pairs):
        fewer += before[:, j] * behind[:, : pairs - j].sum(axis=1)
    result: F64 = rates * ((late * fewer) @ density)
    return result


def _fewer(late: F64, pairs: int) -> tuple[F64, F64]:
    """Chances that j = 0 … pairs - 1 of the clocks before, and behind, each clock have arrived: (d, pairs, points)."""
    d, points = late.shape
    before, behind = np.zeros((d, pairs, points)), np.zeros((d, pairs, points))
    for table, order in ((before, range(d)), (behind, range(d - 1, -1, -1))):
        row = np.zeros((pairs, points))
        row[0] = 1.0
        for k in order:
            table[k] = row
            row = row * late[k]
            row[1:] += table[k][:-1] * (1.0 - late[k])
    return before, behind


def exact_mean(population: Population) -> F64:
    """Return the mean value of the holders of each key, float64 (keys,)."""
    centre = population.key_means()
    if population.name not in _SCATTERED:
        return centre
    low, high = (-1.0 - centre) / VALUE_SPREAD, (1.0 - centre) / VALUE_SPREAD
    below, above = _normal(low), 1.0 - _normal(high)
    inside = centre * (1.0 - below - above) + VALUE_SPREAD * (_bell(low) - _bell(high))
    return np.asarray(inside + above - below)


def draw_values(population: Population, keys: I64, generator: Generator) -> F64:
    """Draw the value of one holder of each given key, float64 (m,)."""
    values = population.key_means()[keys]
    if population.name in _SCATTERED:
        values = values + VALUE_SPREAD * generator.standard_normal(len(keys))
        np.clip(values, -1.0, 1.0, out=values)
    return np.asarray(values)


def _normal(x: F64) -> F64:
    return np.array([0.5 * (1.0 + erf(t / sqrt(2.0))) for t in x.tolist()])


def _bell(x: F64) -> F64:
    return np.asarray(np.exp(-x * x / 2.0) / sqrt(2.0 * np.pi))
