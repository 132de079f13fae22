"""Made-up records as an input: the same as from a file that `simulate` wrote, block by block, in any cut."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from ldp_beam.errors import InputError, ParameterError
from ldp_beam.mechanisms.populations import BLOCK_USERS, Population
from ldp_beam.pipelines.simulate import simulate
from ldp_beam.transforms.generated import Generated, is_generated
from ldp_beam.transforms.inputs import Columns, inspect_records, slices
from ldp_beam.transforms.record_files import read_slice

USERS = BLOCK_USERS + 1000


@pytest.mark.parametrize("ids", ["text", "integer"])
@pytest.mark.parametrize(("name", "extra"), [("uniform", ""), ("gg", ""), ("gauss", ",pairs-per-user=3,range=1:5")])
def test_the_records_are_those_of_the_file(tmp_path: Path, name: str, extra: str, ids: Any) -> None:
    text = f"simulate:{name},users={USERS},keys=20,seed=7,user-ids={ids}{extra}"
    people = Generated.parse(text)
    simulate(
        Population(name=name, keys=20, seed=7, pairs_per_user=3 if extra else 0),
        USERS,
        tmp_path / "x.parquet",
        user_ids=ids,
        value_range=(1.0, 5.0) if extra else (-1.0, 1.0),
    )
    made_up = pa.Table.from_batches(list(people.blocks(0, 2)))
    assert made_up.equals(pq.read_table(tmp_path / "x.parquet"))
    assert pa.Table.from_batches(list(people.blocks(1, 2))).equals(made_up.slice(BLOCK_USERS))


def test_slices_cover_every_user_once() -> None:
    text = "simulate:uniform,users=2500000,keys=3"
    inputs = inspect_records([text], has_values=True)
    parts = slices(inputs)
    assert inputs.layout == "nested"
    assert inputs.total_rows == sum(part.rows or 0 for part in parts) == 2_500_000
    assert len(parts) == 3
    first_rows = [raw.first_row for part in parts for raw in read_slice(part, Columns(), batch_rows=1 << 30)]
    assert first_rows == list(range(1, 2_500_001, BLOCK_USERS))
    last = list(read_slice(parts[-1], Columns()))[-1]
    assert last.users[-1].as_py() == "user-2499999"


def test_nobody() -> None:
    assert slices(inspect_records(["simulate:uniform,users=0"], has_values=True)) == []


def test_counts_are_those_of_the_file(tmp_path: Path, define: Any, run_json: Any) -> None:
    collection = define(keys="count = 20")
    run_json("simulate", "--population", "gauss", "--users", 3000, "--keys", 20, "--output", tmp_path / "p.parquet")
    made_up = "simulate:gauss,users=3000,keys=20"
    given = ("collect", "--collection", collection, "--seed", 1)
    found = run_json(*given, "--input", made_up, "--output", tmp_path / "a")
    run_json(*given, "--input", tmp_path / "p.parquet", "--output", tmp_path / "b")
    assert found["records"]["rows_read"] == 3000
    assert (tmp_path / "a" / "counts.parquet").read_bytes() == (tmp_path / "b" / "counts.parquet").read_bytes()


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("simulate:uniform", "say how many users"),
        ("simulate:uniform,users=-1", "users is '-1'"),
        ("simulate:uniform,users=1e6", "whole number"),
        ("simulate:uniform,users=5,user=5", "'user' is unknown.*users"),
        ("simulate:uniform,users=5,users=5", "given twice"),
        ("simulate:uniform,users=5,range=1", "lower one first"),
        ("simulate:uniform,users=5,range=5:1", "lower one first"),
        ("simulate:uniform,users=5,range=0:inf", "lower one first"),
        ("simulate:uniform,users=5,user-ids=uuid", "text or integer"),
    ],
)
def test_what_cannot_be_is_refused(text: str, message: str) -> None:
    assert is_generated(text)
    with pytest.raises(InputError, match=message):
        inspect_records([text], has_values=True)


@pytest.mark.parametrize("text", ["simulate:uniforn,users=5", "simulate:uniform,users=5,keys=2,pairs-per-user=3"])
def test_populations_that_cannot_be_are_refused(text: str) -> None:
    with pytest.raises((InputError, ParameterError), match="uniform"):
        inspect_records([text], has_values=True)


def test_files_and_people_may_be_given_together(tmp_path: Path) -> None:
    simulate(Population(name="uniform", keys=3, seed=1), 10, tmp_path / "x.parquet")
    inputs = inspect_records(["simulate:uniform,users=5,keys=3", str(tmp_path / "x.parquet")], has_values=True)
    assert [file.format for file in inputs.files] == ["parquet", "generated"]
    assert inputs.total_rows == 15
