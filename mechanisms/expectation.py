"""Expected squared errors of the *published* estimates: clipping, truncation and small counts included.

Closed forms speak of the raw estimates. Where noise is large, what is published is clipped, and errs much less than
they say; where users hold more keys than the padding, it is biased. Here the law of a key's two counts, which is
binomial for each and nearly normal for large ones, is put through the estimator itself, at the nodes of a quadrature.

The population is described by how many keys its users hold, and by the weights and means of classes of keys: users draw
their keys one after another with these weights, so that long lists consist of rare keys to a larger part than short
ones, and lose more of a padding that is too small for them.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise
from typing import Final

import numpy as np

from .data import F64, Counts
from .inclusion import inclusion
from .pckv.estimation import estimate
from .pckv.pckv import PCKV
from .privkv.kvue import KVUE
from .privkv.law import KeyLaw
from .privkv.privkv import PrivKV
from .protocol import Mechanism
from .registry import make_mechanism

__all__ = ["Expected", "Holdings", "expected_errors"]

#: Classes of frequencies.
_CLASSES: Final = 24
#: Nodes and weights of means that are spread uniformly over [-1, 1]: -m errs like m.
_MEANS, _MEAN_WEIGHTS = (part.copy() for part in np.polynomial.legendre.leggauss(3))
_MEANS, _MEAN_WEIGHTS = (_MEANS + 1.0) / 2.0, _MEAN_WEIGHTS / 2.0
_NODES, _WEIGHTS = np.polynomial.hermite_e.hermegauss(20)
_WEIGHTS /= _WEIGHTS.sum()
#: Rare counts whose expectation is smaller are Poisson numbers rather than normal ones.
_SMALL: Final = 30.0
_RARE: Final = 0.1


@dataclass(frozen=True, kw_only=True, eq=False)
class Holdings:
    """A population, as far as predictions depend on it.

    Attributes:
        lengths: share of the users with 0, 1, 2, … keys, float64 (L + 1,).
        held: chance that somebody with so many keys holds a key of each class, float64 (L + 1, c).
        number: number of keys in each class, float64 (c,).
        mean: mean of every key, from -1 to 1; None for means that are spread uniformly.
    """

    lengths: F64
    held: F64
    number: F64
    mean: float | None = None

    @classmethod
    def of(cls, lengths: F64, keys: int, *, exponent: float = 1.0, mean: float | None = None) -> Holdings:
        """Describe a population that draws its keys with the weights of a power law.

        Args:
            lengths: share of the users with 0, 1, 2, … keys.
            keys: number of keys, no fewer than anybody holds.
            exponent: of the power law; 0 for keys that are all alike.
            mean: mean of every key; None for means that are spread uniformly over [-1, 1].
        """
        share = np.asarray(lengths, dtype=np.float64) / np.sum(lengths)
        weights = np.arange(1.0, keys + 1.0) ** -exponent
        edges = np.unique(np.geomspace(1, keys + 1, _CLASSES + 1).astype(np.int64)) - 1
        parts = [weights[low:high] for low, high in pairwise(edges)]
        number = np.array([float(len(part)) for part in parts])
        typical = np.array([float(part.mean()) for part in parts])
        return cls(lengths=share, held=inclusion(typical, number, len(share) - 1), number=number, mean=mean)

    @property
    def frequency(self) -> F64:
        """Frequencies of the classes, float64 (c,)."""
        return np.asarray(self.lengths @ self.held)

    def seen(self, padding: int) -> F64:
        """Expected estimates of the frequencies with a padding, float64 (c,)."""
        shown = np.minimum(1.0, padding / np.maximum(np.arange(len(self.lengths)), 1.0))
        return np.asarray((self.lengths * shown) @ self.held)

    def means(self) -> tuple[F64, F64]:
        """Means and their weights."""
        return (_MEANS, _MEAN_WEIGHTS) if self.mean is None else (np.array([self.mean]), np.ones(1))


@dataclass(frozen=True, kw_only=True)
class Expected:
    """Expected squared errors: of all frequencies together, and of the means on average over the keys."""

    frequency: float
    mean: float


def expected_errors(mechanism: Mechanism, holdings: Holdings, users: int) -> Expected | None:
    """Predict the squared errors of what a mechanism's default estimator publishes.

    Args:
        mechanism: PCKV, PrivKV or KVUE.
        holdings: the population.
        users: number of users.

    Returns:
        The errors; None for a mechanism whose law is not known here.
    """
    means, weights = holdings.means()
    f = np.repeat(holdings.frequency, len(means))
    m = np.tile(means, len(holdings.number))
    number = np.outer(holdings.number, weights).reshape(-1)
    if isinstance(mechanism, PCKV):
        plus, minus = _pckv_chances(mechanism, np.repeat(holdings.seen(mechanism.padding), len(means)), m)
        answers = float(users)
    elif isinstance(mechanism, PrivKV | KVUE):
        plus, minus = _drawn_chances(mechanism.law, f, m)
        answers = users / mechanism.keys
    else:
        return None
    positive, negative, chance, owner = _counts(plus, minus, answers)
    found_f, found_m = _published(mechanism, users, answers, positive, negative)
    errors = [(found_f - f[owner]) ** 2, (found_m - m[owner]) ** 2]
    frequency, mean = (float(number @ np.bincount(owner, chance * error, minlength=len(f))) for error in errors)
    return Expected(frequency=frequency, mean=mean / float(number.sum()))


def _pckv_chances(mechanism: PCKV, seen: F64, mean: F64) -> tuple[F64, F64]:
    """Chances that a report supports a key with either sign."""
    law, sampled = mechanism.probabilities, seen / mechanism.padding
    support = law.b + law.gap * sampled
    surplus = law.trust * sampled * mean
    return (support + surplus) / 2.0, (support - surplus) / 2.0


def _drawn_chances(law: KeyLaw, frequency: F64, mean: F64) -> tuple[F64, F64]:
    """The same for who draws the key."""
    held = law.a * frequency
    support, surplus = held + law.b * (1.0 - frequency), law.trust * held * mean
    return (support + surplus) / 2.0, (support - surplus) / 2.0


def _published(mechanism: Mechanism, users: int, answers: float, positive: F64, negative: F64) -> tuple[F64, F64]:
    """What is published of such counts; a missing mean counts as 0."""
    if isinstance(mechanism, PCKV):
        # estimators take counts that are no whole numbers as well
        plus, minus = positive.view(), negative.view()
        found = estimate(mechanism.probabilities, mechanism.padding, users, plus, minus, corrected=True)  # type: ignore[arg-type]
    else:
        more = {"allocation": mechanism.allocation} if isinstance(mechanism, PrivKV) else {}
        alike = make_mechanism(mechanism.name, epsilon=mechanism.epsilon, keys=len(positive), **more)
        drawn = np.full(len(positive), answers)
        found = alike.estimate(Counts(n=users, cells={"n_drawn": drawn, "n1": positive, "n2": negative}))  # type: ignore[dict-item]
    mean = np.zeros(len(positive)) if found.mean is None else np.nan_to_num(found.mean)
    return np.nan_to_num(found.frequency), mean


# -- the law of two counts ----------------------------------------------------------------------------------


def _counts(plus: F64, minus: F64, answers: float) -> tuple[F64, F64, F64, np.ndarray[tuple[int], np.dtype[np.int64]]]:
    """Nodes of both counts with their weights, for every key, and whose they are."""
    parts = [_nodes(float(p), float(q), answers) for p, q in zip(plus, minus, strict=True)]
    positive, negative, chance = (np.concatenate([part[i] for part in parts]) for i in range(3))
    owner = np.repeat(np.arange(len(parts)), [len(part[0]) for part in parts])
    return positive, negative, chance, owner


def _nodes(plus: float, minus: float, answers: float) -> tuple[F64, F64, F64]:
    if min(plus, minus) * answers < _SMALL and max(plus, minus) < _RARE:
        first, second = _poisson_or_normal(plus, answers), _poisson_or_normal(minus, answers)
        grid = np.meshgrid(first[0], second[0], indexing="ij")
        return grid[0].reshape(-1), grid[1].reshape(-1), np.outer(first[1], second[1]).reshape(-1)
    spread = [np.sqrt(answers * p * (1.0 - p)) for p in (plus, minus)]
    # of one report at most one of both is true
    together = -np.sqrt(plus * minus / ((1.0 - plus) * (1.0 - minus)))
    z, other = (part.reshape(-1) for part in np.meshgrid(_NODES, _NODES, indexing="ij"))
    positive = answers * plus + spread[0] * z
    negative = answers * minus + spread[1] * (together * z + np.sqrt(1.0 - together**2) * other)
    return np.maximum(positive, 0.0), np.maximum(negative, 0.0), np.outer(_WEIGHTS, _WEIGHTS).reshape(-1)


def _poisson_or_normal(chance: float, answers: float) -> tuple[F64, F64]:
    expected = chance * answers
    if expected >= _SMALL:
        count = expected + np.sqrt(expected * (1.0 - chance)) * _NODES
        return np.maximum(count, 0.0), _WEIGHTS
    count = np.arange(int(expected + 8.0 * np.sqrt(expected) + 10.0) + 1, dtype=np.float64)
    logs = count * np.log(max(expected, 1e-300)) - np.concatenate([[0.0], np.cumsum(np.log(count[1:]))])
    weight = np.exp(logs - expected)
    return count, weight / weight.sum()
