"""Parts of a window: some of its reports, counted; parts add up in any order."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Final

from ..mechanisms import Counts, Mechanism
from .count import add_counts

__all__ = ["Part", "add_parts", "cells_bytes", "difference", "parts_limit"]

#: Parts of a window's state that are added up into one; few where they are large.
_PARTS: Final = 64
_FEW_PARTS: Final = 4
_STATE_BYTES: Final = 64 << 20


@dataclass(frozen=True, kw_only=True)
class Part:
    """Some reports of a window, counted.

    Attributes:
        counts: their counts.
        slices: reports by the start of their slice.
        repeated: reports left out because one with the same id is there already.
        met: how many different slices the stream had met so far.
        private: False as soon as a report's randomness came from a seed.
        memoised: whether an unchanged record repeats its report in every slice.
    """

    counts: Counts | None = None
    slices: Mapping[int, int] = field(default_factory=dict)
    repeated: int = 0
    met: int = 0
    private: bool = True
    memoised: bool = False


def add_parts(parts: Iterable[Part]) -> Part:
    """Add parts of one window up into one; the inputs are not changed."""
    given = list(parts)
    slices: dict[int, int] = {}
    for part in given:
        for time, n in part.slices.items():
            slices[time] = slices.get(time, 0) + n
    return Part(
        counts=add_counts(part.counts for part in given if part.counts is not None),
        slices={time: n for time, n in slices.items() if n},
        repeated=sum(part.repeated for part in given),
        met=max((part.met for part in given), default=0),
        private=all(part.private for part in given),
        memoised=any(part.memoised for part in given),
    )


def difference(whole: Part, told: Part) -> Part:
    """Return what must be added to `told`, an earlier state of the same reports, to have `whole`.

    Cells may be negative: an earlier state may have counted another report of an id whose reports differ.
    """
    return add_parts([whole, replace(_negative(told), met=0, private=True, memoised=False)])


def _negative(part: Part) -> Part:
    counts = part.counts
    if counts is not None:
        counts = Counts(n=-counts.n, cells={name: -cells for name, cells in counts.cells.items()})
    return replace(part, counts=counts, slices={time: -n for time, n in part.slices.items()}, repeated=-part.repeated)


def cells_bytes(mechanism: Mechanism) -> int:
    """Return the bytes of a mechanism's counts."""
    return sum(array.nbytes for array in mechanism.zero().cells.values())


def parts_limit(mechanism: Mechanism) -> int:
    """Return how many parts a window's state may hold before they are added up."""
    return max(_FEW_PARTS, min(_PARTS, _STATE_BYTES // max(cells_bytes(mechanism), 1)))
