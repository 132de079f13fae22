"""Report files on the server: every fault of a file is refused by name, before or while it is read."""

from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from ldp_beam.errors import InputError
from ldp_beam.transforms.collection import Collection
from ldp_beam.transforms.report_files import inspect_reports


@pytest.fixture
def reports(define, nested, people, run_json, tmp_path):
    collection = define()
    run_json("perturb", "--collection", collection, "--input", nested(people(100)), "--output", tmp_path / "reports")
    return Collection.load(collection), str(next((tmp_path / "reports").glob("*.parquet")))


def test_a_good_file_is_accepted(reports):
    collection, path = reports
    found = inspect_reports([path], collection)
    assert (found.rows, found.private, found.periods) == (100, True, ("",))
    assert [part.row_groups for part in found.slices] == [(0,)]


def rewrite(path, change):
    table = pq.read_table(path)
    pq.write_table(change(table), path)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda t: t.replace_schema_metadata(None), "no header"),
        (lambda t: t.drop_columns(["minus"]), "'minus' is absent"),
        (lambda t: t.set_column(0, "plus", t["plus"].cast(pa.binary())), "'plus' is of type binary"),
        (
            lambda t: t.replace_schema_metadata({**t.schema.metadata, b"ldp_beam.kind": b"counts"}),
            "holds counts, not reports",
        ),
        (
            lambda t: t.replace_schema_metadata({**t.schema.metadata, b"ldp_beam.fingerprint": b"00"}),
            "another collection definition",
        ),
    ],
)
def test_a_foreign_file_is_refused(reports, change, message):
    collection, path = reports
    rewrite(path, change)
    with pytest.raises(InputError, match=message):
        inspect_reports([path], collection)


def test_a_truncated_file_is_refused(reports):
    collection, path = reports
    with Path(path).open("r+b") as file:
        file.truncate(200)
    with pytest.raises(InputError, match="cannot be read as Parquet"):
        inspect_reports([path], collection)


def test_reports_in_another_format_are_refused(reports, tmp_path):
    collection, _ = reports
    (tmp_path / "r.csv").write_text("plus,minus\n")
    with pytest.raises(InputError, match=r"neither \.parquet nor \.avro"):
        inspect_reports([str(tmp_path / "r.csv")], collection)


def test_null_reports_are_malformed(reports, define, run_json, tmp_path):
    _, path = reports

    def with_null(table):
        planes = pa.chunked_array([[None, *table["plus"].to_pylist()[1:]]], pa.binary(1))
        return table.set_column(0, pa.field("plus", pa.binary(1)), planes)

    rewrite(path, with_null)
    manifest = run_json("aggregate", "--collection", define(), "--input", path, "--output", tmp_path / "o")
    assert (manifest["reports"]["counted"], manifest["reports"]["malformed"]) == (99, 1)


def test_counts_and_reports_are_not_mixed(reports, define, nested, people, run, run_json, tmp_path):
    _, path = reports
    run_json("collect", "--collection", define(), "--input", nested(people(20)), "--output", tmp_path / "c")
    code, _, err = run(
        "aggregate", "--collection", define(), "--input", path, tmp_path / "c" / "counts.parquet",
        "--output", tmp_path / "o",
    )  # fmt: skip
    assert code == 2
    assert "counted twice" in err
