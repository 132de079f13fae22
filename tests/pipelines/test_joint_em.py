"""`aggregate --joint-em`: the most likely shares of the reports themselves, whatever files they come in."""

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from ldp_beam.transforms import estimate_joint
from ldp_beam.transforms.batches import batch_to_reports
from ldp_beam.transforms.collection import Collection

DEFINITION = 'name = "c"\nmechanism = "{mechanism}"\nepsilon = 2\n{more}[keys]\nlist = ["a", "b", "c", "d"]\n{table}'
SHARES = np.array([0.5, 0.3, 0.2, 0.0])


@pytest.fixture
def sent(tmp_path, run_json):
    """Return a function that writes a definition and the reports of 3,000 people in one file or two."""

    def make(mechanism, files=1, more="", table=""):
        collection = tmp_path / "c.toml"
        collection.write_text(DEFINITION.format(mechanism=mechanism, more=more, table=table))
        keys = np.repeat(["a", "b", "c", "d"], (SHARES * 3000).astype(int))
        pq.write_table(pa.table({"user_id": np.arange(len(keys)), "key": keys}), tmp_path / "r.parquet")
        run_json(
            "perturb", "--collection", collection, "--input", tmp_path / "r.parquet", "--output", tmp_path / "sent",
            "--seed", "4", "--period", "1",
        )  # fmt: skip
        (path,) = (tmp_path / "sent").glob("*.parquet")
        if files == 2:
            table = pq.read_table(path)
            pq.write_table(table.slice(0, 1000), tmp_path / "sent" / "one.parquet")
            pq.write_table(table.slice(1000), path)
        return collection, tmp_path / "sent"

    return make


def frequencies(run_json, collection, sent, output, *more):
    run_json("aggregate", "--collection", collection, "--input", sent / "*.parquet", "--output", output, *more)
    return pq.read_table(output / "estimates.parquet")


@pytest.mark.parametrize(
    ("mechanism", "table"), [("oue", ""), ("olh", ""), ("hadamard", ""), ("urap", '[uldp]\nsensitive = ["a"]\n')]
)
def test_frequencies_are_the_joint_estimate_of_all_files(mechanism, table, sent, run_json, tmp_path):
    collection, folder = sent(mechanism, files=2, table=table)
    joint = frequencies(run_json, collection, folder, tmp_path / "joint", "--joint-em")
    plain = frequencies(run_json, collection, folder, tmp_path / "plain")
    shares = joint["frequency"].to_numpy()
    assert shares.sum() == pytest.approx(1)
    assert np.abs(shares - SHARES).max() < 7 * joint["frequency_se"].to_numpy().max()
    assert joint["frequency_raw"].equals(plain["frequency_raw"])
    one = Collection.load(collection)
    tables = [pq.read_table(path) for path in sorted(folder.glob("*.parquet"))]
    batch = pa.concat_tables(tables).combine_chunks().to_batches()[0]
    expected = one.mechanism.joint_shares(batch_to_reports(batch, one.mechanism.layout()))
    assert shares == pytest.approx(expected, abs=1e-6)


def test_repeated_and_malformed_reports_have_no_part_in_it(sent, run_json, tmp_path):
    collection, folder = sent("oue", more="report_ids = true\n")
    first = frequencies(run_json, collection, folder, tmp_path / "first", "--joint-em")
    (path,) = folder.glob("*.parquet")
    table = pq.read_table(path)
    bad = table.slice(0, 1).set_column(0, table.schema.field(0), pa.array([b"\xff"], table.schema.field(0).type))
    pq.write_table(pa.concat_tables([table.slice(0, 500), bad]), folder / "again.parquet")
    second = frequencies(run_json, collection, folder, tmp_path / "second", "--joint-em")
    assert second["frequency"].to_numpy() == pytest.approx(first["frequency"].to_numpy(), abs=1e-9)


def test_it_says_what_the_column_holds(sent, run, tmp_path):
    collection, folder = sent("oue")
    code, out, err = run(
        "aggregate", "--collection", collection, "--input", folder, "--output", tmp_path / "o", "--joint-em"
    )
    assert code == 0
    assert "joint EM" in out + err


@pytest.mark.parametrize("more", ["reports = 2\n", ""])
def test_what_has_no_joint_estimate_is_refused(more, sent, define, run, tmp_path):
    if more:
        collection, folder = sent("oue", more=more)
    else:
        collection, folder = define(), tmp_path
    code, _, err = run(
        "aggregate", "--collection", collection, "--input", folder, "--output", tmp_path / "o", "--joint-em"
    )
    assert code == 2
    assert "no joint EM estimate" in err


def test_counts_are_refused(sent, run, run_json, tmp_path):
    collection, folder = sent("oue")
    frequencies(run_json, collection, folder, tmp_path / "o")
    code, _, err = run(
        "aggregate", "--collection", collection, "--input", tmp_path / "o" / "counts.parquet",
        "--output", tmp_path / "p", "--joint-em",
    )  # fmt: skip
    assert code == 2
    assert "needs reports" in err


def test_too_many_reports_are_refused_before_anything_runs(sent, run, tmp_path, monkeypatch):
    collection, folder = sent("oue")
    monkeypatch.setattr(estimate_joint, "_CELLS", 4 * 2_999)
    code, _, err = run(
        "aggregate", "--collection", collection, "--input", folder, "--output", tmp_path / "o", "--joint-em"
    )
    assert code == 2
    assert "2,999 at most" in err
    assert not (tmp_path / "o").exists()
