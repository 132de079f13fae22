"""Who holds which key: the chance that somebody with r keys holds a key, for keys drawn one after another.

Keys drawn without replacement with weights w are the first arrivals of independent exponential clocks of rates w.
Somebody with r keys holds key k if fewer than r of the others arrive before it, which is one integral over the time of
its arrival. Keys of one class have the same weight, so that the number of others is a sum of binomial numbers.

Long lists consist of rare keys to a larger part than short ones, so a padding that is too small hides more of them.

Source:
    The clocks: Efraimidis, Spirakis, Information Processing Letters 2006. Long lists: Rosén, Journal of Statistical
    Planning and Inference 1997.
"""

from __future__ import annotations

from typing import Final

import numpy as np

from .data import F64

__all__ = ["inclusion"]

#: Lists up to this length are computed exactly; the chances of longer ones differ by less than 0.004.
_EXACT: Final = 32
#: Step of the integral, in the logarithm of time. Half of it changes chances by less than 1e-8.
_STEP: Final = 0.1
_HALVINGS: Final = 60
_EDGE: Final = 40.0


def inclusion(weights: F64, number: F64, longest: int) -> F64:
    """Return the chance that somebody with r keys holds a key of each class.

    Args:
        weights: weight of a key of each class, above 0, float64 (c,).
        number: keys in each class, whole numbers of at least 1, float64 (c,).
        longest: the largest r, at most the number of keys.

    Returns:
        Chances, float64 (longest + 1, c); row 0 is zero, and the last one is 1 where somebody holds all keys.
    """
    result = np.zeros((longest + 1, len(weights)))
    if longest == 0:
        return result
    short = min(longest, _EXACT)
    result[1 : short + 1] = _first_arrivals(weights, number, short)
    result[short + 1 :] = _threshold(weights, number, np.arange(short + 1.0, longest + 1.0))
    if longest == round(float(number.sum())):
        result[longest] = 1.0
    return result


def _first_arrivals(weights: F64, number: F64, longest: int) -> F64:
    """Chances for 1, 2, … `longest` keys, float64 (longest, c)."""
    rates = weights / float(weights @ number)
    time = np.exp(np.arange(np.log(1e-9), np.log(40.0 / rates.min()), _STEP))
    arrived = [_binomial(n - 1.0, rate, time, longest) for n, rate in zip(number, rates, strict=True)]
    whole = [_binomial(n, rate, time, longest) for n, rate in zip(number, rates, strict=True)]
    before, behind = _running(whole), _running(whole[::-1])[::-1]
    chances = np.empty((longest, len(rates)))
    for k, rate in enumerate(rates):
        others = _sum(_sum(before[k], arrived[k]), behind[k])
        density = rate * time * np.exp(-rate * time) * _STEP
        chances[:, k] = np.cumsum(others, axis=0) @ density
    return np.minimum(chances, 1.0)


def _binomial(number: float, rate: float, time: F64, longest: int) -> F64:
    """Chances that 0 … longest - 1 of so many clocks have arrived, float64 (longest, times)."""
    late = rate * time
    odds = np.log(-np.expm1(-late))
    logs, steps = np.empty((longest, len(time))), 0.0
    for j in range(longest):
        logs[j] = -late * (number - j) + j * odds + steps if j <= number else -np.inf
        steps += np.log((number - j) / (j + 1.0)) if j < number else 0.0
    return np.exp(logs)


def _running(parts: list[F64]) -> list[F64]:
    """Chances of the sum of all parts in front of each."""
    sums = [np.zeros_like(parts[0])]
    sums[0][0] = 1.0
    for part in parts[:-1]:
        sums.append(_sum(sums[-1], part))
    return sums


def _sum(first: F64, second: F64) -> F64:
    """Chances of the sum of two independent numbers, as far as the table goes."""
    result = np.zeros_like(first)
    for j in range(len(first)):
        result[j:] += first[j] * second[: len(first) - j]
    return result


def _threshold(weights: F64, number: F64, keys: F64) -> F64:
    """Chances of arriving before the time at which so many keys are expected to have arrived, float64 (r, c)."""
    edge = _EDGE + float(np.log(weights.max() / weights.min()))
    low, high = np.full((len(keys), 1), -edge), np.full((len(keys), 1), edge)
    chance = np.zeros((len(keys), len(weights)))
    for _ in range(_HALVINGS):
        middle = (low + high) / 2.0
        chance = -np.expm1(-weights / weights.max() * np.exp(middle))
        few = (chance @ number < keys)[:, None]
        low, high = np.where(few, middle, low), np.where(few, high, middle)
    return chance
