"""What a figure is: an experiment that yields rows, the panels that show them, and the claims they are held against."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal, TypeVar

import numpy as np
from ldp_beam.mechanisms import population_generator

__all__ = ["Claim", "Figure", "Line", "MissingData", "Panel", "Row", "Scale", "of", "random_of", "series"]

#: One measurement: texts and numbers by name, None where a figure does not exist.
Row = dict[str, Any]
T = TypeVar("T")

TINY_USERS = 4_000
TINY_REPEATS = 2


class MissingData(Exception):
    """A figure needs data that are not there; it is left out, by name."""


@dataclass(frozen=True, kw_only=True)
class Scale:
    """How much of an experiment is run, and where its data are.

    Attributes:
        data: folder with the data sets that the project may not distribute; None where there is none.
        tiny: only show that everything runs: few users, two repeats, the ends of each range.
    """

    data: Path | None = None
    tiny: bool = False

    def users(self, full: int) -> int:
        """Return the number of users."""
        return min(full, TINY_USERS) if self.tiny else full

    def repeats(self, full: int) -> int:
        """Return the number of repeats."""
        return min(full, TINY_REPEATS) if self.tiny else full

    def some(self, points: Sequence[T]) -> Sequence[T]:
        """Return the points of a range that are measured."""
        return [*points[:1], *points[1:][-1:]] if self.tiny else points

    def file(self, name: str) -> Path:
        """Return a file of the data folder.

        Raises:
            MissingData: There is no such file.
        """
        if self.data is None or not (self.data / name).is_file():
            raise MissingData(f"needs {name} in the folder of --data")
        return self.data / name


@dataclass(frozen=True, kw_only=True)
class Line:
    """One curve of a panel.

    Attributes:
        label: name in the legend.
        x: places; texts make a panel of bars.
        y: heights; None leaves a gap.
        look: "measured" has markers, "bound" is dotted, "dashed" is dashed; so is "theory", whose lines have one
            name in the legend, "closed form".
        colour: lines of one colour belong together; the label where none is given.
        spread: half the length of an error bar, where there are any.
    """

    label: str
    x: Sequence[float] | Sequence[str]
    y: Sequence[float | None]
    look: Literal["measured", "theory", "bound", "dashed"] = "measured"
    colour: str | None = None
    spread: Sequence[float | None] | None = None


@dataclass(frozen=True, kw_only=True)
class Panel:
    """One pair of axes."""

    title: str
    x: str
    y: str
    lines: Sequence[Line]
    x_log: bool = False
    y_log: bool = True


@dataclass(frozen=True, kw_only=True)
class Claim:
    """Something that the paper says of a figure, and what was measured.

    Attributes:
        paper: what the paper says, in our words.
        found: what was measured, in words and numbers.
        agrees: whether both are the same; decided by the numbers, not by hand.
        why: where they differ, the reason.
    """

    paper: str
    found: str
    agrees: bool
    why: str = ""


@dataclass(frozen=True, kw_only=True)
class Figure:
    """One figure of the reproduction.

    Attributes:
        name: family and name, such as "pckv-uu"; its files are called so.
        title: what it shows, a short phrase.
        source: paper and section or figure.
        data: population, users, repeats: what the caption tells of the data.
        rows: runs the experiment.
        panels: how the rows are drawn.
        claims: what the paper says, held against the rows.
        table: the rows that the page shows as numbers; none where it is left out.
        needs_data: whether it reads files of the data folder.
    """

    name: str
    title: str
    source: str
    data: str
    rows: Callable[[Scale], Iterable[Row]]
    panels: Callable[[Sequence[Row]], Sequence[Panel]]
    claims: Callable[[Sequence[Row]], Sequence[Claim]] = field(default=lambda rows: ())
    table: Callable[[Sequence[Row]], Sequence[Row]] = field(default=lambda rows: ())
    needs_data: bool = False

    @property
    def family(self) -> str:
        """The first part of the name."""
        return self.name.split("-")[0]

    @property
    def command(self) -> str:
        """The command that makes this figure."""
        return f"python -m benchmarks.accuracy {self.name}" + (" --data FOLDER" if self.needs_data else "")


def random_of(name: str, repeat: int) -> np.random.Generator:
    """Return the generator of one repeat of an experiment; the same name and repeat give the same numbers."""
    return population_generator(int.from_bytes(hashlib.sha256(name.encode()).digest()[:6]), repeat)


def of(rows: Iterable[Row], **wanted: Any) -> list[Row]:
    """Return the rows that have these values."""
    return [row for row in rows if all(row.get(name) == value for name, value in wanted.items())]


def series(rows: Iterable[Row], x: str, y: str, **line: Any) -> Line:
    """Return a line through the rows, ordered by `x`; see `Line` for what else it takes."""
    ordered = sorted(rows, key=lambda row: row[x])
    return Line(x=[row[x] for row in ordered], y=[row[y] for row in ordered], **line)
