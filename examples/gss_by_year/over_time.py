"""Estimates over time: each survey year is a window of one Beam pipeline, and has estimates of its own.

Run it with `make example-gss_by_year`, or with `python -m examples.gss_by_year.over_time FOLDER`.
"""

from __future__ import annotations

import argparse
import csv
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import apache_beam as beam
import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
from apache_beam.runners.portability.fn_api_runner import FnApiRunner
from apache_beam.transforms.window import FixedWindows, TimestampedValue
from ldp_beam.errors import LdpBeamError
from ldp_beam.pipelines.report import report
from ldp_beam.pipelines.results import manifest_of
from ldp_beam.pipelines.running import Clock, Engine
from ldp_beam.schemas.manifest import Randomness
from ldp_beam.transforms import CollectEstimates, Collection, Secret
from ldp_beam.transforms.in_memory import rows_to_batch

from examples import public_data
from examples.gss.prepare import QUESTIONS

COLLECTION = Path(__file__).with_name("collection.toml")
#: The question that is printed.
SHOWN = "abany"
_DAY = 24 * 60 * 60


def people() -> pd.DataFrame:
    """Return the answers, indexed by person: the year of the survey, and +1, -1 or nothing for each question."""
    survey = public_data.load("stevedata", "gss_abortion").set_index("rownames")
    answers = survey[list(QUESTIONS)] * 2.0 - 1.0
    return answers.assign(year=survey["year"].astype(int))


def records(answers: pd.DataFrame) -> list[TimestampedValue]:
    """Return one batch of records a survey, stamped with the first of January of its year."""
    stamped = []
    for year, survey in answers.groupby("year"):
        held = [
            {key: float(value) for key, value in zip(QUESTIONS, row, strict=True) if not np.isnan(value)}
            for row in survey[list(QUESTIONS)].to_numpy()
        ]
        batch = rows_to_batch(zip(survey.index.astype(str), held, strict=True), has_values=True)
        stamped.append(TimestampedValue(batch, _first_of(int(str(year))).timestamp()))
    return stamped


def _first_of(year: int) -> datetime:
    return datetime(year, 1, 1, tzinfo=UTC)


def collect_by_year(collection: Collection, secret: Secret, answers: pd.DataFrame, folder: Path) -> pa.Table:
    """Collect every year apart, in one pipeline, and return the estimates with the start of their window."""
    parts = folder / "parts"
    parts.mkdir(parents=True, exist_ok=True)
    with beam.Pipeline(runner=FnApiRunner()) as p:
        _ = (
            p
            | beam.Create(records(answers), reshuffle=False)
            | beam.Map(lambda stamped: stamped)
            | beam.WindowInto(FixedWindows(_DAY))
            | CollectEstimates(collection, secret)
            | beam.Map(_write, str(parts))
        )
    tables = [pq.read_table(path) for path in sorted(parts.glob("*.parquet"))]
    return pa.concat_tables(tables)


def _write(batch: pa.RecordBatch, folder: str, window: Any = beam.DoFn.WindowParam) -> None:
    start = window.start.to_utc_datetime().replace(tzinfo=UTC)
    column = pa.array([start] * batch.num_rows, pa.timestamp("us", tz="UTC"))
    table = pa.Table.from_batches([batch]).append_column("window_start", column)
    pq.write_table(table, f"{folder}/{start.year}.parquet")


def publish(collection: Collection, secret: Secret, estimates: pa.Table, folder: Path, clock: Clock) -> Path:
    """Write a result folder like `ldp-beam collect` does, and a page that shows it over time."""
    result = folder / "result"
    result.mkdir(exist_ok=True)
    pq.write_table(estimates, result / "estimates.parquet")
    manifest_of(
        "collect",
        collection,
        Randomness(source="fresh secret", private=secret.private, secret_id=secret.id),
        Engine(),
        clock,
        records=None,
        reports={"counted": sum(_reports(estimates).values()), "malformed": 0},
        files=[{"kind": "estimates", "name": "estimates.parquet", "rows": estimates.num_rows}],
        spends=True,
    ).write(result)
    return report(result, folder / "over-time.html", overwrite=True)


def _reports(estimates: pa.Table) -> dict[datetime, int]:
    return dict(zip(estimates["window_start"].to_pylist(), estimates["n"].to_pylist(), strict=True))


def compare(estimates: pa.Table, answers: pd.DataFrame, folder: Path) -> list[dict[str, Any]]:
    """Put the estimated mean answer of every year and question beside the true one; also as over_time.csv."""
    means = answers.groupby("year")[list(QUESTIONS)].mean()
    rows = [
        {
            "year": row["window_start"].year,
            "key": row["key"],
            "people": row["n"],
            "mean": row["mean_raw"],
            "mean_se": row["mean_se"],
            "true_mean": means.loc[row["window_start"].year, row["key"]],
        }
        for row in estimates.to_pylist()
    ]
    with (folder / "over_time.csv").open("w", newline="", encoding="utf-8") as stream:
        writer = csv.DictWriter(stream, fieldnames=list(rows[0]))
        writer.writeheader()
        writer.writerows(rows)
    return rows


def show(rows: list[dict[str, Any]]) -> None:
    """Print one question's mean answer by year beside the truth."""
    print(f"May a woman have a legal abortion {QUESTIONS[SHOWN]}? Mean answer, +1 yes, -1 no:")
    for row in rows:
        if row["key"] == SHOWN and not np.isnan(row["true_mean"]):
            shown = "too noisy to tell" if row["mean"] is None else f"{row['mean']:+.2f} ± {1.96 * row['mean_se']:.2f}"
            print(f"  {row['year']}  {row['people']:5,} people  {shown:>18}  true {row['true_mean']:+.2f}")


def main() -> None:
    """Collect, compare, and write the page."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("folder", type=Path, help="folder for the results")
    folder: Path = parser.parse_args().folder
    try:
        clock, collection, secret = Clock(), Collection.load(COLLECTION), Secret.new()
        answers = people()
        estimates = collect_by_year(collection, secret, answers, folder)
        rows = compare(estimates, answers, folder)
        page = publish(collection, secret, estimates, folder, clock)
    except LdpBeamError as error:
        parser.exit(error.exit_code, f"{error}\n")
    show(rows)
    print(f"All questions: {folder / 'over_time.csv'}. Charts over time: {page}")


if __name__ == "__main__":
    main()
