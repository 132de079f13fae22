"""The same surveys as a stream: each year's answers arrive as a file, and each year's estimates are published.

Run it with `make example-gss_by_year_stream`, or with `python -m examples.gss_by_year.replay FOLDER`. It needs Prism,
which is compiled with Go the first time.
"""

from __future__ import annotations

import argparse
import shutil
from datetime import UTC, datetime
from pathlib import Path

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
from ldp_beam.engines import is_resolved
from ldp_beam.errors import LdpBeamError
from ldp_beam.pipelines.evaluate import read_estimates
from ldp_beam.pipelines.report import report
from ldp_beam.pipelines.stream import StreamRun, stream
from ldp_beam.pipelines.stream_sources import FolderSource
from ldp_beam.schemas.event_windows import Windows
from ldp_beam.schemas.manifest import Randomness
from ldp_beam.schemas.records import Columns
from ldp_beam.transforms import Collection, Secret
from ldp_beam.transforms.event_clock import Pace
from ldp_beam.transforms.record_messages import RecordFiles
from ldp_beam.transforms.slice_records import Clients

from examples.gss.prepare import QUESTIONS
from examples.gss_by_year.over_time import COLLECTION, compare, people, show

_DAY = 24 * 60 * 60


def write_surveys(answers: pd.DataFrame, folder: Path) -> Path:
    """Write one file a survey: nested records, all at the first of January of the survey's year."""
    incoming = folder / "incoming"
    incoming.mkdir(parents=True, exist_ok=True)
    for year, survey in answers.groupby("year"):
        held = [
            [{"key": key, "value": value} for key, value in zip(QUESTIONS, row, strict=True) if not np.isnan(value)]
            for row in survey[list(QUESTIONS)].to_numpy()
        ]
        when = pa.repeat(pa.scalar(datetime(int(str(year)), 1, 1, tzinfo=UTC), pa.timestamp("us", "UTC")), len(survey))
        table = pa.table({"user_id": survey.index.astype(str), "items": held, "timestamp": when})
        pq.write_table(table, incoming / f"{year}.parquet")
    return incoming


def replay(collection: Collection, incoming: Path, result: Path) -> None:
    """Run the stream over the files that are there, year after year, and end with the last one."""
    secret = Secret.new()
    stream(
        StreamRun(
            collection=collection,
            # The past is replayed: event time follows the files, not the clock on the wall.
            source=FolderSource(
                folder=str(incoming),
                decode=RecordFiles(Columns()),
                pace=Pace(slice_seconds=0, arrival_delay=None),
                drain=True,
            ),
            windows=Windows(size=_DAY, slide=_DAY),
            clients=Clients(secret=secret),
            randomness=Randomness(source="fresh secret", private=secret.private, secret_id=secret.id),
            overwrite=True,
        ),
        result,
    )


def main() -> None:
    """Replay, compare, and write the page."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("folder", type=Path, help="folder for the results")
    folder: Path = parser.parse_args().folder
    if not is_resolved("prism") and shutil.which("go") is None:
        print("Skipped: streams run on Prism, which needs Go once, and Go is not installed here.")
        return
    try:
        answers = people()
        replay(Collection.load(COLLECTION), write_surveys(answers, folder), folder / "live")
        estimates = read_estimates(folder / "live").sort_by("window_start")
        rows = compare(estimates, answers, folder)
        page = report(folder / "live", folder / "over-time.html", overwrite=True)
    except LdpBeamError as error:
        parser.exit(error.exit_code, f"{error}\n")
    show(rows)
    print(f"All questions: {folder / 'over_time.csv'}. Charts over time: {page}")


if __name__ == "__main__":
    main()
