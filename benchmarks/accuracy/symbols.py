"""Populations for the figures of single symbols: census, Adult, places on a grid, several attributes, tagged places."""

from __future__ import annotations

import csv
import gzip
from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache
from math import erf, sqrt
from pathlib import Path

import numpy as np
import numpy.typing as npt

from .figures import Scale, random_of

__all__ = ["CELLS", "Symbols", "TaggedPlaces", "adult", "attributes", "census", "places", "places_order", "tagged"]

F64 = npt.NDArray[np.float64]
Bool = npt.NDArray[np.bool_]

SIDE = 25
CELLS = SIDE * SIDE


@dataclass(frozen=True, kw_only=True, eq=False)
class Symbols:
    """A population whose users hold one symbol each.

    Attributes:
        shares: share of each symbol, float64 (d,).
        sensitive: which symbols are sensitive, bool (d,).
    """

    shares: F64
    sensitive: Bool

    @property
    def keys(self) -> int:
        """Number of symbols."""
        return len(self.shares)


# -- given histograms -----------------------------------------------------------------------------------------


def census(scale: Scale, definition: str) -> Symbols:
    """The 277 categories of the United States' census microdata of 2023, sensitive by the definition "and" or "or"."""
    with Path(scale.file(f"acs_pums2023_hist_{definition}.csv")).open(encoding="utf-8", newline="") as file:
        rows = list(csv.DictReader(file))
    counts = np.array([float(row["count"]) for row in rows])
    return Symbols(shares=counts / counts.sum(), sensitive=np.array([row["sensitive"] == "1" for row in rows]))


def adult(scale: Scale) -> Symbols:
    """Adult: decade of age, marital status, sex and income, 8 x 7 x 2 x 2; divorced or separated is sensitive."""
    with gzip.open(scale.file("adult_reduced.csv.gz"), "rt", encoding="utf-8") as file:
        rows = list(csv.DictReader(file))
    status = sorted({row["marital_status"] for row in rows})
    counts = np.zeros((8, len(status), 2, 2))
    for row in rows:
        decade = min(max(int(row["age"]) // 10, 1), 8) - 1
        rich = row["income"].strip().startswith(">")
        counts[decade, status.index(row["marital_status"]), int(row["sex"] == "Male"), int(rich)] += 1
    sensitive = np.zeros(counts.shape, dtype=np.bool_)
    sensitive[:, [status.index(one) for one in ("Divorced", "Separated")]] = True
    return Symbols(shares=counts.reshape(-1) / counts.sum(), sensitive=sensitive.reshape(-1))


# -- places -------------------------------------------------------------------------------------------------


def _normal(x: F64) -> F64:
    return np.array([0.5 * (1.0 + erf(t / sqrt(2.0))) for t in x.tolist()])


def _mixture(name: str, centres: int) -> F64:
    """Shares of the cells of a grid for a mixture of round bells whose places, widths and weights a name fixes."""
    random = random_of(name, 0)
    edges = np.linspace(0.0, 1.0, SIDE + 1)
    shares = np.zeros((SIDE, SIDE))
    for weight in random.dirichlet(np.ones(centres)):
        x, y = random.random(2)
        width = random.uniform(0.03, 0.15)
        shares += weight * np.outer(*(np.diff(_normal((edges - at) / width)) for at in (x, y)))
    return np.asarray((shares / shares.sum()).reshape(-1))


def places_order() -> npt.NDArray[np.int64]:
    """All cells in the order in which they become sensitive."""
    return random_of("sensitive cells", 0).permutation(CELLS)


def places(sensitive: int) -> Symbols:
    """Check-ins on a grid of 25 x 25 cells from a mixture of ten bells; so many cells are sensitive."""
    chosen = np.zeros(CELLS, dtype=np.bool_)
    chosen[places_order()[:sensitive]] = True
    return Symbols(shares=_mixture("check-ins", 10), sensitive=chosen)


@dataclass(frozen=True, kw_only=True, eq=False)
class TaggedPlaces:
    """Check-ins of people to whom their own home and workplace are sensitive.

    Attributes:
        joint: share of check-ins by tag (none, home, work) and cell, float64 (3, CELLS).
        backgrounds: distribution of cells behind each tag that a server may assume, float64 (2, CELLS), by name.
    """

    joint: F64
    backgrounds: Mapping[str, F64]

    @property
    def shares(self) -> F64:
        """Share of each cell."""
        return np.asarray(self.joint.sum(axis=0))


VENUES = 1_000
#: Share of venues that say nothing of homes or workplaces.
STRAY = 0.3


@lru_cache(maxsize=8)
def tagged(share: float) -> TaggedPlaces:
    """Homes and workplaces from mixtures of their own, other check-ins as in `places`.

    Somebody makes this share of her check-ins at home on purpose, and as many at work; others may be there by chance.
    The estimated background is what a server may know from a map: where 1,000 venues are, of which 30 % are scattered
    like check-ins.
    """
    anywhere, home, work = _mixture("check-ins", 10), _mixture("homes", 10), _mixture("workplaces", 5)
    rest = 1.0 - 2.0 * share
    joint = np.stack(
        [
            rest * anywhere * (1.0 - home) * (1.0 - work),
            share * home + rest * anywhere * home,
            share * work + rest * anywhere * work * (1.0 - home),
        ]
    )
    true = joint[1:] / joint[1:].sum(axis=1, keepdims=True)
    random = random_of("venues", 0)
    seen = np.stack([random.multinomial(VENUES, (1.0 - STRAY) * one + STRAY * anywhere) for one in true]) / VENUES
    return TaggedPlaces(joint=joint / joint.sum(), backgrounds={"true": true, "estimated": seen})


# -- attributes ---------------------------------------------------------------------------------------------

#: Categories of the nine attributes.
CATEGORIES = (2, 3, 2, 2, 3, 2, 3, 2, 2)
CLASSES = 4


def attributes(number: int) -> Symbols:
    """The first attributes of people of four classes, within which attributes are independent.

    Sensitive is who has the last category of the first two attributes (of the first one, where there is no other).
    """
    random = random_of("attributes", 0)
    weights = random.dirichlet(np.ones(CLASSES))
    tables = [random.dirichlet(2.0 * np.arange(size, 0, -1), CLASSES) for size in CATEGORIES][:number]
    shares = np.zeros(CATEGORIES[:number])
    for kind, weight in enumerate(weights):
        part = np.array(weight)
        for table in tables:
            part = np.multiply.outer(part, table[kind])
        shares += part
    sensitive = np.zeros(shares.shape, dtype=np.bool_)
    sensitive[(-1,) * min(2, number)] = True
    return Symbols(shares=shares.reshape(-1), sensitive=sensitive.reshape(-1))
