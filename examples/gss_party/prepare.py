"""Turn the General Social Survey's question on party identification into records of one answer each."""

from __future__ import annotations

import csv
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

from examples import public_data

NO_ANSWER = "No answer"


def prepare(folder: Path) -> list[public_data.Figure]:
    """Write one row a person with her one answer; who gave none holds the key "No answer"."""
    survey = public_data.load("stevedata", "gss_abortion")
    answers = survey["partyid"].astype(object).where(survey["partyid"].notna(), NO_ANSWER).astype(str)
    people = len(answers)
    items = pa.StructArray.from_arrays([pa.array(answers.tolist())], names=["key"])
    offsets = pa.array(range(people + 1), pa.int32())
    users = pa.array(survey["rownames"].astype(str).tolist())
    folder.mkdir(parents=True, exist_ok=True)
    records = pa.table({"user_id": users, "items": pa.ListArray.from_arrays(offsets, items)})
    pq.write_table(records, folder / public_data.RECORDS)
    figures = [
        public_data.Figure(str(key), int(count), people, float("nan")) for key, count in answers.value_counts().items()
    ]
    with (folder / public_data.TRUTH).open("w", newline="", encoding="utf-8") as stream:
        writer = csv.writer(stream, lineterminator="\n")
        writer.writerow(["key", "frequency"])
        writer.writerows([figure.key, repr(figure.share)] for figure in figures)
    return figures


if __name__ == "__main__":
    public_data.main(__doc__, prepare)
