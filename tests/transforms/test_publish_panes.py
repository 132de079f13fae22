"""The sink of a stream: what a pane becomes, depending on what is on the disk."""

import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from ldp_beam.mechanisms import Counts
from ldp_beam.schemas.event_windows import Windows
from ldp_beam.schemas.reports import FileHeader
from ldp_beam.transforms.collection import Collection
from ldp_beam.transforms.count_windows import Pane
from ldp_beam.transforms.publish_panes import PaneWriter, pane_folders


@pytest.fixture
def writer(define, tmp_path):
    return PaneWriter(
        collection=Collection.load(define()),
        windows=Windows(size=3600, slide=600),
        folder=str(tmp_path / "out"),
        format_="parquet",
        manifest={"epsilon": {"declared": "2"}, "warnings": [], "verb": "stream"},
    )


def pane(n=10, start=7200, timing="final", **more):
    cells = {"n1": np.array([n, 1, 0]), "n2": np.array([0, n // 2, 3])}
    fields = {"slices": {start: n}, "repeated": 0, "met": 1, "private": True, "memoised": False} | more
    return Pane(start=start, timing=timing, counts=Counts(n=n, cells=cells), **fields)


def writer_folder(writer):
    return Path(writer.folder, "windows")


def writer_path(published):
    return Path(published.folder)


def content(path):
    return {file.name: file.read_bytes() for file in path.iterdir()}


def test_a_pane_is_a_complete_result_with_the_bounds_of_its_window(writer):
    published = writer.write(pane())
    (only,) = pane_folders(next(writer_folder(writer).iterdir()))
    assert (published.outcome, published.folder) == ("written", str(only.path))
    table = pq.read_table(only.path / "estimates.parquet")
    assert table.column_names[-4:] == ["window_start", "window_end", "pane", "is_final"]
    assert {str(time) for time in table["window_start"].to_pylist()} == {"1970-01-01 02:00:00+00:00"}
    assert {str(time) for time in table["window_end"].to_pylist()} == {"1970-01-01 03:00:00+00:00"}
    header = FileHeader.read(table.schema.metadata, "x")
    assert (header.kind, header.window_start, header.window_seconds) == ("estimates", "1970-01-01T02:00:00Z", 3600)
    counts = pq.read_table(only.path / "counts.parquet")
    assert FileHeader.read(counts.schema.metadata, "x").kind == "counts"
    manifest = json.loads((only.path / "manifest.json").read_text())
    assert manifest["window"] | {"counts_digest": ""} == {
        "start": "1970-01-01T02:00:00Z", "end": "1970-01-01T03:00:00Z", "pane": 0, "timing": "final",
        "is_final": True, "n": 10, "counts_digest": "",
    }  # fmt: skip
    assert [file["name"] for file in manifest["files"]] == ["estimates.parquet", "counts.parquet"]


def test_the_manifest_says_what_was_spent(writer):
    told = pane(slices={7200: 6, 7800: 4}, met=5)
    manifest = json.loads((writer_path(writer.write(told)) / "manifest.json").read_text())
    assert manifest["epsilon"]["slices"] == {"1970-01-01T02:00:00Z": 6, "1970-01-01T02:10:00Z": 4}
    assert manifest["epsilon"]["spent_in_window_at_most"] == "4"
    assert manifest["epsilon"]["spent_so_far_at_most"] == "10"


def test_the_same_pane_again_changes_nothing(writer):
    first = writer.write(pane())
    before = content(writer_path(first))
    again = writer.write(pane())
    assert (again.outcome, again.folder) == ("same", first.folder)
    assert content(writer_path(first)) == before


def test_another_run_writes_the_same_bytes(writer, tmp_path):
    first = writer.write(pane())
    other = replace(writer, folder=str(tmp_path / "other")).write(pane())
    assert content(writer_path(first)) == content(writer_path(other))


def test_panes_restate_and_are_numbered(writer):
    outcomes = [writer.write(pane(n, timing=timing)) for n, timing in [(2, "early"), (4, "on-time"), (4, "final")]]
    assert [published.outcome for published in outcomes] == ["written"] * 3
    panes = pane_folders(next(writer_folder(writer).iterdir()))
    assert [(one.number, one.window["n"], one.window["is_final"]) for one in panes] == [
        (0, 2, False),
        (1, 4, False),
        (2, 4, True),
    ]


def test_a_repetition_under_way_does_not_displace_what_knows_more(writer):
    writer.write(pane(4, timing="on-time"))
    assert writer.write(pane(2, timing="early")).outcome == "behind"
    assert writer.write(pane(4, timing="on-time")).outcome == "same"
    assert writer.write(pane(5, timing="late")).outcome == "written"
    assert writer.write(pane(5, timing="final")).outcome == "written"
    assert writer.write(pane(2, timing="early")).outcome == "behind"
    assert writer.write(pane(5, timing="final")).outcome == "same"


def test_a_final_result_is_never_replaced_and_another_one_is_told_of(writer):
    first = writer.write(pane(5))
    before = content(writer_path(first))
    other = writer.write(pane(6))
    assert other.outcome == "conflict"
    assert content(writer_path(first)) == before
    assert pq.read_table(writer_path(other) / "estimates.parquet")["n"][0].as_py() == 6
    assert writer.write(pane(6)).outcome == "conflict"  # told again, kept once
    assert len(list(writer_path(first).parent.iterdir())) == 2


def test_a_stream_that_begins_in_the_middle_does_not_contradict_what_was_published(writer):
    first = writer.write(pane(5))
    assert writer.write(pane(4)).outcome == "behind"
    assert len(list(writer_path(first).parent.iterdir())) == 1


def test_what_breaks_off_leaves_nothing(writer, monkeypatch):
    def full(*_):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("ldp_beam.transforms.publish_panes.write_counts", full)
    with pytest.raises(Exception, match="No space left"):
        writer.write(pane())
    assert list(next(writer_folder(writer).iterdir()).iterdir()) == []


@pytest.mark.parametrize("format_", ["csv", "json", "avro"])
def test_every_format(writer, format_):
    published = replace(writer, format_=format_).write(pane())
    assert (writer_path(published) / f"estimates.{format_}").stat().st_size
    assert isinstance(published.estimates, pa.RecordBatch)


def test_reports_of_a_seed_are_told_of(writer):
    manifest = json.loads((writer_path(writer.write(pane(private=False))) / "manifest.json").read_text())
    assert "not private" in manifest["warnings"][0]
