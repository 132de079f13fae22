"""Synthetic populations: true records of people who do not exist, batch by batch.

For simulation and tests only; nothing here is private or meant to be. A population is a frozen value, and
the records of a user depend on the population and on the user's number alone: users are generated in blocks
of `BLOCK_USERS`, each with a generator of its own, so that the size of a batch changes nothing and memory is
bounded by one block.

Four shapes, after the experiments of the papers (Gu et al., USENIX Security 2020, section 6; where that
source leaves the population open, the definition is ours):

* ``uniform`` (``uu``): keys drawn uniformly, every holder of a key has the same value, uniform in [-1, 1].
* ``gg``: one key, the k-th with k = ceil(|d/2 N(0, 1)|), and no pair at all where k exceeds d; every holder
  of a key has the same value, normal and truncated to [-1, 1].
* ``gauss``, ``power-law``, ``linear``: distinct keys drawn without replacement with weights that follow a
  Gaussian bell, 1/k, or a straight line; each key has a mean, values scatter around it with a standard
  deviation of 0.2 and are clipped to [-1, 1].
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from math import erf
from typing import TYPE_CHECKING, Literal, NamedTuple

import numpy as np
import numpy.typing as npt

from ..errors import ParameterError, did_you_mean
from .randomness import population_generator

if TYPE_CHECKING:
    from numpy.random import Generator

__all__ = ["BLOCK_USERS", "POPULATIONS", "Pairs", "Population", "Truth"]

#: Users who share one generator; changing it changes every population.
BLOCK_USERS = 1 << 16
#: Standard deviation of a value around its key's mean, where values scatter.
VALUE_SPREAD = 0.2
#: Random numbers drawn at once, at most, when keys are drawn without replacement.
_CHUNK = 1 << 21
#: Stream of the per-key figures; the users of block i draw from stream i + 1.
_KEY_STREAM = 0

I32 = npt.NDArray[np.int32]
I64 = npt.NDArray[np.int64]
F64 = npt.NDArray[np.float64]


class Pairs(NamedTuple):
    """The records of a batch of n users with m pairs together.

    Attributes:
        offsets: user i holds the pairs offsets[i] to offsets[i + 1], int64 (n + 1,), starting at 0.
        keys: key indices, int32 (m,); within a user strictly increasing.
        values: values in [-1, 1], float64 (m,).
    """

    offsets: I64
    keys: I32
    values: F64


@dataclass(frozen=True)
class _Shape:
    """How a named population draws keys and values."""

    #: Weights of the keys 1 to d (as float64), float64 (d,); None where all weigh the same.
    weights: Callable[[F64], F64] | None
    #: Pairs per user unless told otherwise.
    pairs: int
    #: Whether each pair scatters around its key's mean; otherwise all holders share one value.
    scatter: bool


_SHAPES = {
    "gauss": _Shape(lambda k: np.exp(-((k - len(k) / 2) ** 2) / (2 * (len(k) / 6) ** 2)), 10, True),
    "power-law": _Shape(lambda k: 1.0 / k, 10, True),
    "linear": _Shape(lambda k: len(k) + 1.0 - k, 10, True),
    "uniform": _Shape(None, 1, False),
    "uu": _Shape(None, 1, False),
    "gg": _Shape(None, 1, False),
}

#: Names of the populations.
POPULATIONS: tuple[str, ...] = tuple(_SHAPES)


@dataclass(frozen=True, kw_only=True)
class Population:
    """A synthetic population of any number of users.

    Attributes:
        name: one of `POPULATIONS`.
        keys: size of the key domain.
        seed: two populations of one seed, shape and size hold the same records.
        pairs_per_user: distinct keys that every user holds; 0 stands for the shape's own number (10 for
            gauss, power-law and linear, otherwise 1). A gg user always draws one key.
        means: "uniform" draws the per-key means uniformly from [-1, 1]; "ranked" lets the mean rise with
            the rank of the key's weight, so that frequency and mean are fully correlated in rank.

    Raises:
        ParameterError: for an unknown name or a size that cannot be.
    """

    name: str
    keys: int
    seed: int
    pairs_per_user: int = 0
    means: Literal["uniform", "ranked"] = "uniform"

    def __post_init__(self) -> None:
        if self.name not in _SHAPES:
            raise ParameterError(f"Unknown population {self.name!r}. {did_you_mean(self.name, _SHAPES)}")
        if not 1 <= self.keys <= np.iinfo(np.int32).max:
            raise ParameterError(f"A population needs between 1 and 2^31 - 1 keys, not {self.keys}.")
        if self.seed < 0:
            raise ParameterError(f"The seed of a population is a number from 0 on, not {self.seed}.")
        if self.means not in ("uniform", "ranked"):
            raise ParameterError(f"The key means are 'uniform' or 'ranked', not {self.means!r}.")
        self._check_pairs()

    def _check_pairs(self) -> None:
        if self.pairs_per_user < 0 or self.pairs > self.keys:
            raise ParameterError(
                f"A user of population {self.name!r} cannot hold {self.pairs} distinct keys of {self.keys}; "
                f"give pairs per user between 1 and {self.keys}."
            )
        if self.name == "gg" and self.pairs != 1:
            raise ParameterError(
                f"Population 'gg' is defined for one pair per user, not {self.pairs}; "
                "'gauss' draws several keys from a bell."
            )
        if self.means == "ranked" and _SHAPES[self.name].weights is None:
            raise ParameterError(
                f"Population {self.name!r} has no key weights to rank the means by; use 'gauss', "
                "'power-law' or 'linear', or uniform means."
            )

    @property
    def pairs(self) -> int:
        """Keys that every user draws."""
        return self.pairs_per_user or _SHAPES[self.name].pairs

    def weights(self) -> F64:
        """Weights with which the first key of a user is drawn, summing to 1, float64 (keys,).

        Of gg they leave out the draws beyond the domain, which become users without a pair.
        """
        number = np.arange(1.0, self.keys + 1)
        if self.name == "gg":
            edges = np.concatenate([[0.0], number]) / (self.keys / 2)
            weights = np.diff(_half_normal(edges))
        else:
            shape = _SHAPES[self.name].weights
            weights = np.ones(self.keys) if shape is None else shape(number)
        return np.asarray(weights / weights.sum(), dtype=np.float64)

    def key_means(self) -> F64:
        """The value around which each key's holders lie, in [-1, 1], float64 (keys,)."""
        if self.means == "ranked":
            rank = np.empty(self.keys)
            rank[np.argsort(self.weights(), kind="stable")] = np.arange(1, self.keys + 1)
            return np.asarray(2.0 * rank / self.keys - 1.0)
        generator = population_generator(self.seed, _KEY_STREAM)
        if self.name == "gg":
            return _truncated_normal(generator, self.keys)
        return np.asarray(generator.uniform(-1.0, 1.0, self.keys))

    def batch(self, first_user: int, count: int) -> Pairs:
        """Return the records of the users first_user to first_user + count.

        Any split into batches gives the same records. Batches that follow the blocks of `BLOCK_USERS` waste
        nothing; `batches` does so.
        """
        if first_user < 0 or count < 0:
            raise ParameterError(f"Users are numbered from 0 on; got first {first_user}, count {count}.")
        parts = [
            _slice(pairs, max(first_user - start, 0), min(first_user + count - start, BLOCK_USERS))
            for start, pairs in self._blocks(first_user, count)
        ]
        return _join(parts)

    def batches(self, users: int, *, first_user: int = 0) -> Iterator[Pairs]:
        """Yield the records of the users first_user to first_user + users, block by block."""
        for start, pairs in self._blocks(first_user, users):
            yield _slice(pairs, max(first_user - start, 0), min(first_user + users - start, BLOCK_USERS))

    def _blocks(self, first_user: int, count: int) -> Iterator[tuple[int, Pairs]]:
        """Yield the number of the first user and the records of every block that the users touch."""
        if not count:
            return
        draw = _Draw(self)
        for block in range(first_user // BLOCK_USERS, -(-(first_user + count) // BLOCK_USERS)):
            yield block * BLOCK_USERS, draw.block(population_generator(self.seed, block + 1))


class _Draw:
    """The figures that all blocks of a population share."""

    def __init__(self, population: Population) -> None:
        self.population = population
        self.means = population.key_means()
        self.scatter = _SHAPES[population.name].scatter
        self.even = population.name in ("uniform", "uu")
        self.weights = population.weights()

    def block(self, generator: Generator) -> Pairs:
        """Draw the records of one block of users."""
        pairs = self.population.pairs
        if self.population.name == "gg":
            offsets, keys = self._bell(generator)
        else:
            offsets = np.arange(0, BLOCK_USERS * pairs + 1, pairs, dtype=np.int64)
            keys = self._keys(generator, pairs).reshape(-1)
        return Pairs(offsets, keys, self._values(generator, keys))

    def _keys(self, generator: Generator, pairs: int) -> I32:
        """Draw `pairs` distinct keys for each user, int32 (users, pairs), increasing."""
        if pairs == 1 and self.even:
            return generator.integers(0, len(self.weights), (BLOCK_USERS, 1), dtype=np.int32)
        # The race costs one draw a key, rejection one or a few a pair; rejection would stall where nearly all
        # keys are taken.
        draw = _by_race if 4 * pairs >= len(self.weights) else _by_rejection
        keys = draw(generator, self.weights, pairs)
        keys.sort(axis=1)
        return keys

    def _bell(self, generator: Generator) -> tuple[I64, I32]:
        """Draw one key a user from half a bell; a draw beyond the domain is a user without a pair."""
        number = np.ceil(np.abs(generator.standard_normal(BLOCK_USERS)) * (len(self.weights) / 2))
        inside = (number >= 1) & (number <= len(self.weights))
        offsets = np.concatenate([[0], np.cumsum(inside)]).astype(np.int64)
        return offsets, (number[inside] - 1).astype(np.int32)

    def _values(self, generator: Generator, keys: I32) -> F64:
        values = self.means[keys]
        if self.scatter:
            values += VALUE_SPREAD * generator.standard_normal(len(keys))
            np.clip(values, -1.0, 1.0, out=values)
        return values


def _by_race(generator: Generator, weights: F64, pairs: int) -> I32:
    """Draw keys one after another without replacement: the first arrivals of one exponential clock a key.

    Source: the exponential order statistics of Efraimidis and Spirakis, Information Processing Letters 2006.
    """
    d = len(weights)
    keys = np.empty((BLOCK_USERS, pairs), np.int32)
    rows = max(1, _CHUNK // d)
    for start in range(0, BLOCK_USERS, rows):
        arrival = generator.standard_exponential((min(rows, BLOCK_USERS - start), d))
        arrival /= weights
        keys[start : start + rows] = np.argpartition(arrival, pairs - 1, axis=1)[:, :pairs]
    return keys


def _by_rejection(generator: Generator, weights: F64, pairs: int) -> I32:
    """Draw keys one after another without replacement: draw with replacement, repeat what is held already."""
    edges = np.cumsum(weights)
    edges /= edges[-1]
    keys = np.empty((BLOCK_USERS, pairs), np.int32)
    for j in range(pairs):
        open_rows = np.arange(BLOCK_USERS)
        while len(open_rows):
            drawn = np.searchsorted(edges, generator.random(len(open_rows)), side="right").astype(np.int32)
            keys[open_rows, j] = drawn
            open_rows = open_rows[(keys[open_rows, :j] == drawn[:, None]).any(axis=1)]
    return keys


def _half_normal(x: F64) -> F64:
    """Pr[|N(0, 1)| <= x], elementwise."""
    return np.array([erf(t / 2.0**0.5) for t in x.tolist()])


def _truncated_normal(generator: Generator, size: int) -> F64:
    """Draw `size` standard normal numbers, each redrawn until it lies in [-1, 1]."""
    values = generator.standard_normal(size)
    while (outside := np.abs(values) > 1.0).any():
        values[outside] = generator.standard_normal(int(outside.sum()))
    return values


def _slice(pairs: Pairs, start: int, stop: int) -> Pairs:
    first, last = int(pairs.offsets[start]), int(pairs.offsets[stop])
    return Pairs(pairs.offsets[start : stop + 1] - first, pairs.keys[first:last], pairs.values[first:last])


def _join(parts: list[Pairs]) -> Pairs:
    if len(parts) == 1:
        return parts[0]
    sizes = np.concatenate([np.zeros(1, np.int64), *(np.diff(part.offsets) for part in parts)])
    return Pairs(
        np.cumsum(sizes),
        np.concatenate([np.empty(0, np.int32), *(part.keys for part in parts)]),
        np.concatenate([np.empty(0), *(part.values for part in parts)]),
    )


@dataclass(kw_only=True, eq=False)
class Truth:
    """True frequency and mean of every key, added up batch by batch; what estimates are compared with.

    Attributes:
        keys: size of the key domain.
        users: users so far, with or without a pair.
        holders: users who hold each key, int64 (keys,).
        totals: sum of the values of each key, float64 (keys,).
    """

    keys: int
    users: int = 0
    holders: I64 = field(init=False)
    totals: F64 = field(init=False)

    def __post_init__(self) -> None:
        self.holders = np.zeros(self.keys, np.int64)
        self.totals = np.zeros(self.keys)

    def add(self, pairs: Pairs) -> None:
        """Add the records of a batch; a user must not hold a key twice."""
        self.users += len(pairs.offsets) - 1
        self.holders += np.bincount(pairs.keys, minlength=self.keys)
        self.totals += np.bincount(pairs.keys, weights=pairs.values, minlength=self.keys)

    def frequency(self) -> F64:
        """Share of the users who hold each key, float64 (keys,); NaN where there are no users."""
        if not self.users:
            return np.full(self.keys, np.nan)
        return np.asarray(self.holders / self.users)

    def mean(self) -> F64:
        """Mean value among the holders of each key, float64 (keys,); NaN where nobody holds the key."""
        mean = np.full(self.keys, np.nan)
        return np.asarray(np.divide(self.totals, self.holders, out=mean, where=self.holders > 0))
