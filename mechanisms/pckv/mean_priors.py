"""Posterior means of PCKV's keys, where neither the frequencies nor the prior of the means is known.

Of a key's n1 + n2 supporting reports a share (1 + theta m) / 2 is positive in expectation, where theta is known for a
known frequency. The frequency is not: its posterior is a few nodes with weights, over which the likelihood of the mean
is averaged. An estimate with one frequency, however good, knows nothing of that: a key that may be half as frequent may
have twice the mean.

The prior of a mean is a normal distribution cut to [-1, 1]. Over its centre and its width is averaged, each weighing as
much as it makes the counts of all keys likely. So where nothing can be told, the result is near 0 and not anywhere. The
models, over which is averaged in the same way:

* one centre for all keys;
* a centre that is a straight line in the rank of a key's frequency, for populations in which frequent keys have other
  means than rare ones. The rank is that of each node of the frequency, so that keys whose frequency is uncertain have
  an uncertain centre;
* both once more for groups of keys of similar noise, each group with a prior of its own.

One prior more says that all means are at the ends of the range.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import lru_cache
from itertools import product
from math import erf, sqrt
from typing import Final

import numpy as np

from ..data import F64, I64

__all__ = ["FIT_KEYS", "Signs", "places", "posterior_means"]

#: The priors are fitted to about so many keys at most; of more keys to every so-manieth.
FIT_KEYS: Final = 2_000
_NODES, _NODE_WEIGHTS = np.polynomial.legendre.leggauss(40)
#: Standard errors beyond which the likelihood of a mean is taken to be 0.
_FAR: Final = 6.0
#: A prior that is less likely than the best one by this factor is left out.
_UNLIKELY: Final = 1e-4
#: Probability that is given beforehand to a line rather than a level, and to groups rather than all keys together.
_LINE, _GROUPED = 0.25, 0.2
_CENTRES: Final = np.linspace(-1.0, 1.0, 41)
_PER_UNIT: Final = (len(_CENTRES) - 1) / 2.0
_WIDTHS: Final = np.geomspace(0.08, 1.5, 9)
_SLOPES: Final = (0.25, 0.5, 0.75, 1.0)
_ENDS: Final = (0.1, 0.3, 0.5, 0.7, 0.9)
#: Entries that are looked up at a time.
_BATCH: Final = 200_000


@dataclass(frozen=True, kw_only=True, eq=False)
class Signs:
    """What the supporting reports say of each key.

    Attributes:
        surplus: (n1 - n2) / (n1 + n2), float64 (d,).
        reports: n1 + n2, at least 1, float64 (d,).
        trust: theta at the nodes of the frequency, float64 (d, nodes).
        weight: posterior probability of each node, float64 (d, nodes).
        places: ranks of the nodes, from -1 to 1: among all keys and within the key's group, float64 (2, d, nodes).
    """

    surplus: F64
    reports: F64
    trust: F64
    weight: F64
    places: F64

    def likelihood(self, mean: F64) -> F64:
        """Likelihood of means (d, m) at each node of the frequency, times its weight, float64 (d, nodes, m).

        Each key has a constant factor of its own.
        """
        expected = self.trust[:, :, None] * mean[:, None, :]
        precision = self.reports[:, None, None] / np.maximum(1.0 - expected**2, 1e-9)
        logs = 0.5 * np.log(precision) - 0.5 * precision * (self.surplus[:, None, None] - expected) ** 2
        return np.asarray(np.exp(logs - logs.max(axis=(1, 2), keepdims=True)) * self.weight[:, :, None])

    def nodes(self) -> tuple[F64, F64]:
        """Nodes of the mean where its likelihood is not negligible, and their weights, float64 (d, m)."""
        error = _FAR / np.sqrt(self.reports)[:, None]
        low = ((self.surplus[:, None] - error) / self.trust).min(axis=1)
        high = ((self.surplus[:, None] + error) / self.trust).max(axis=1)
        low = np.clip(low, -1.0, 0.999)
        high = np.clip(high, low + 0.001, 1.0)
        half = (high - low)[:, None] / 2.0
        return (low + high)[:, None] / 2.0 + half * _NODES, half * _NODE_WEIGHTS


# -- priors ---------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class _Prior:
    """A normal prior cut to [-1, 1], whose centre may be a line in a rank; of width 0: a share at 1, all else at -1.

    Attributes:
        width: of the normal distribution.
        centre: of the normal distribution where the rank is 0; for width 0 the share at 1.
        slope: of the centre.
        place: which of the ranks.
    """

    width: float
    centre: float
    slope: float = 0.0
    place: int = 0


def _lines(place: int) -> tuple[_Prior, ...]:
    slopes = [sign * slope for slope in _SLOPES for sign in (-1.0, 1.0)]
    return tuple(_Prior(float(w), c, s, place) for w, c, s in product(_WIDTHS[:7:2], _CENTRES[::5].tolist(), slopes))


_LEVELS: Final = tuple(_Prior(float(w), c) for w, c in product(_WIDTHS, _CENTRES[::2].tolist()))
_LEVELS_AND_ENDS: Final = (*_LEVELS, *(_Prior(0.0, share) for share in _ENDS))
_PRIORS: Final = (*_LEVELS_AND_ENDS, *_lines(0), *_lines(1))
_LEVEL: Final = slice(0, len(_LEVELS_AND_ENDS))
_LINE_OF_ALL: Final = slice(_LEVEL.stop, _LEVEL.stop + len(_lines(0)))
_LINE_OF_GROUP: Final = slice(_LINE_OF_ALL.stop, len(_PRIORS))


@lru_cache(maxsize=32)
def _masses(width: float) -> F64:
    """Integrals of the bells around each centre over [-1, 1]."""
    scale = width * sqrt(2.0)
    parts = [erf((1.0 - centre) / scale) + erf((1.0 + centre) / scale) for centre in _CENTRES.tolist()]
    return np.array(parts) * width * sqrt(np.pi / 2.0)


def _moments(signs: Signs, priors: Sequence[_Prior]) -> tuple[F64, F64, F64]:
    """Under each prior the log-likelihood of each key, posterior mean and mean square, float64 (priors, d) each."""
    parts = np.empty((3, len(priors), len(signs.surplus)))
    nodes, weights = signs.nodes()
    ends = np.broadcast_to([-1.0, 1.0], (len(nodes), 2))
    likelihood = signs.likelihood(np.concatenate([nodes, ends], axis=1))
    inner = likelihood[:, :, :-2] * weights[:, None, :]
    level = likelihood.sum(axis=1)
    kinds: dict[tuple[float, bool], list[int]] = {}
    for i, prior in enumerate(priors):
        kinds.setdefault((prior.width, prior.slope != 0.0), []).append(i)
    for (width, line), own in kinds.items():
        some = [priors[i] for i in own]
        if width == 0.0:
            parts[:, own] = _at_ends(level[:, -2:], some)
        elif line:
            parts[:, own] = _on_lines(_tables(nodes, inner, width), signs, some)
        else:
            tables = _tables(nodes, inner.sum(axis=1, keepdims=True), width)[:, :, 0]
            parts[:, own] = tables[:, :, _index([prior.centre for prior in some])].transpose(0, 2, 1)
    total = np.maximum(parts[0], 1e-300)
    return np.log(total), parts[1] / total, parts[2] / total


def _tables(nodes: F64, likelihood: F64, width: float) -> F64:
    """Integrals of likelihood times prior times 1, m and m^2 for each centre, float64 (3, d, nodes, centres)."""
    distance = (nodes[:, :, None] - _CENTRES) / width
    bells = np.exp(-0.5 * distance * distance) / _masses(width)
    return np.array([(likelihood * nodes[:, None, :] ** power) @ bells for power in range(3)])


def _on_lines(tables: F64, signs: Signs, priors: Sequence[_Prior]) -> F64:
    """Integrals under priors of one width whose centres are lines, float64 (3, priors, d)."""
    result = np.empty((3, len(priors), len(signs.surplus)))
    flat, first = tables.reshape(3, -1), np.arange(signs.trust.size).reshape(signs.trust.shape) * len(_CENTRES)
    batch = max(1, _BATCH // signs.trust.size)
    for start in range(0, len(priors), batch):
        some = priors[start : start + batch]
        level, slope = (np.array([[[x]] for x in y]) for y in zip(*((p.centre, p.slope) for p in some), strict=True))
        centre = np.clip(level + slope * signs.places[[prior.place for prior in some]], -1.0, 1.0)
        result[:, start : start + batch] = flat.take(first + _index(centre), axis=1).sum(axis=3)
    return result


def _index(centre: F64 | Sequence[float]) -> I64:
    """Where the nearest centre of the tables is."""
    return np.asarray(np.rint((np.asarray(centre) + 1.0) * _PER_UNIT), dtype=np.int64)


def _at_ends(likelihood: F64, priors: Sequence[_Prior]) -> F64:
    share = np.array([[prior.centre] for prior in priors])
    low, high = likelihood[:, 0] * (1.0 - share), likelihood[:, 1] * share
    return np.array([low + high, high - low, low + high])


# -- averages ---------------------------------------------------------------------------------------------------


def posterior_means(signs_of: Callable[[I64, I64], Signs], groups: Sequence[I64]) -> tuple[F64, F64]:
    """Posterior means and mean squares, float64 (d,) each.

    Args:
        signs_of: what the reports say of some keys of a group.
        groups: keys in groups of similar noise, each key in one of them.
    """
    keys = sum(map(len, groups))
    step = -(-keys // FIT_KEYS)
    fitted = [_moments(signs_of(group[::step], group), _PRIORS) for group in groups]
    weights = _weights(np.column_stack([logs.sum(axis=1) for logs, _, _ in fitted]))
    mean, square = np.zeros(keys), np.zeros(keys)
    for group, weight, (_, first, second) in zip(groups, weights.T, fitted, strict=True):
        if step == 1:
            mean[group], square[group] = weight @ first, weight @ second
            continue
        alive = np.flatnonzero(weight)
        for start in range(0, len(group), FIT_KEYS):
            part = group[start : start + FIT_KEYS]
            _, *both = _moments(signs_of(part, group), [_PRIORS[i] for i in alive])
            mean[part], square[part] = (weight[alive] @ one for one in both)
    return mean, square


def _weights(of_group: F64) -> F64:
    """Posterior probability of each prior in each group, from log-likelihoods, float64 (priors, groups)."""
    of_all = np.broadcast_to(of_group.sum(axis=1, keepdims=True), of_group.shape)
    together, alone = np.full_like(of_group, -np.inf), np.full_like(of_group, -np.inf)
    for logs, likelihood, line in ((together, of_all, _LINE_OF_ALL), (alone, of_group, _LINE_OF_GROUP)):
        for part, share in ((_LEVEL, 1.0 - _LINE), (line, _LINE)):
            logs[part] = likelihood[part] + np.log(share / (part.stop - part.start))
    found = [np.logaddexp.reduce(logs, axis=0) for logs in (together, alone)]
    evidence = np.array([found[0][0], found[1].sum()]) + np.log([1.0 - _GROUPED, _GROUPED])
    shares = np.exp(evidence - np.logaddexp.reduce(evidence))
    weights = shares[0] * np.exp(together - found[0]) + shares[1] * np.exp(alone - found[1])
    weights[weights < _UNLIKELY * weights.max(axis=0)] = 0.0
    return np.asarray(weights / weights.sum(axis=0))


def places(frequency: F64, nodes: F64) -> F64:
    """Return the ranks of nodes among the frequencies of keys, from -1 to 1, in the shape of the nodes."""
    return np.interp(nodes, np.sort(frequency), np.linspace(-1.0, 1.0, len(frequency)))
