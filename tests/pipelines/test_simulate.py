"""Simulated files: the records in them are those of the population, in every format and layout."""

import gzip
import tomllib

import fastavro
import numpy as np
import pyarrow as pa
import pyarrow.csv
import pyarrow.parquet as pq
import pytest
from ldp_beam.errors import InputError
from ldp_beam.mechanisms.populations import BLOCK_USERS, Population, Truth
from ldp_beam.pipelines.simulate import collection_text, record_batches, simulate

USERS = 300
PEOPLE = Population(name="gg", keys=20, seed=3)  # some of them hold nothing


def expected_rows(value_range=(-1.0, 1.0)):
    """(user, key, value) of every pair, and (user, None, None) for who holds nothing, in plain Python."""
    pairs = PEOPLE.batch(0, USERS)
    low, high = value_range
    rows = []
    for user in range(USERS):
        held = range(pairs.offsets[user], pairs.offsets[user + 1])
        name = f"user-{user:06d}"
        rows += [(name, str(pairs.keys[i]), low + (pairs.values[i] + 1) * (high - low) / 2) for i in held]
        if not held:
            rows.append((name, None, None))
    assert any(row[1] is None for row in rows)
    return rows


def files_in(folder):
    return sorted(path.name for path in folder.iterdir())


def read_pairs(path):
    """(user, key, value) of every row of a file in either layout."""
    if path.name.endswith(".parquet"):
        rows = pq.read_table(path).to_pylist()
    elif path.name.endswith(".avro"):
        with path.open("rb") as stream:
            rows = list(fastavro.reader(stream))
    else:
        types = {"user_id": pa.string(), "key": pa.string(), "value": pa.float64()}
        options = pa.csv.ConvertOptions(column_types=types, strings_can_be_null=True, quoted_strings_can_be_null=False)
        rows = pa.csv.read_csv(path, convert_options=options).to_pylist()
    if "items" not in rows[0]:
        return [(row["user_id"], row["key"], row["value"]) for row in rows]
    empty = [{"key": None, "value": None}]
    return [(row["user_id"], item["key"], item["value"]) for row in rows for item in row["items"] or empty]


@pytest.mark.parametrize(
    ("name", "layout"),
    [
        ("r.parquet", "nested"),
        ("r.parquet", "pairs"),
        ("r.avro", "nested"),
        ("r.avro", "pairs"),
        ("r.csv", "pairs"),
        ("r.csv.gz", "pairs"),
    ],
)
def test_every_format_holds_the_population(tmp_path, name, layout):
    done = simulate(PEOPLE, USERS, tmp_path / name, layout=layout, value_range=(1.0, 5.0))
    rows, expected = read_pairs(tmp_path / name), expected_rows((1.0, 5.0))
    assert [row[:2] for row in rows] == [row[:2] for row in expected]
    held = [i for i, row in enumerate(expected) if row[1] is not None]
    np.testing.assert_allclose([rows[i][2] for i in held], [expected[i][2] for i in held], rtol=1e-12)
    assert done["users"] == USERS
    assert done["rows"] == (USERS if layout == "nested" else len(expected))
    assert done["pairs"] == len(held)
    assert done["layout"] == layout
    assert files_in(tmp_path) == [name]


def test_layout_follows_the_format(tmp_path):
    assert simulate(PEOPLE, 5, tmp_path / "a.parquet")["layout"] == "nested"
    assert simulate(PEOPLE, 5, tmp_path / "a.csv")["layout"] == "pairs"


def test_integer_ids(tmp_path):
    simulate(PEOPLE, 5, tmp_path / "a.parquet", user_ids="integer")
    assert pq.read_table(tmp_path / "a.parquet")["user_id"].to_pylist() == [0, 1, 2, 3, 4]
    simulate(PEOPLE, 5, tmp_path / "a.avro", user_ids="integer", layout="pairs")
    assert [row[0] for row in read_pairs(tmp_path / "a.avro")] == [0, 1, 2, 3, 4]


def test_ids_have_one_width_and_are_distinct():
    people = Population(name="uniform", keys=3, seed=0)
    ids = np.concatenate([b["user_id"].to_numpy(zero_copy_only=False) for b in record_batches(people, 70_000)])
    assert ids[0] == "user-000000"
    assert ids[-1] == "user-069999"
    assert len(set(ids)) == 70_000


def test_row_groups_are_bounded(tmp_path):
    simulate(Population(name="uniform", keys=3, seed=0), BLOCK_USERS + 10, tmp_path / "a.parquet")
    meta = pq.ParquetFile(tmp_path / "a.parquet").metadata
    assert [meta.row_group(i).num_rows for i in range(meta.num_row_groups)] == [BLOCK_USERS, 10]


@pytest.mark.parametrize("name", ["a.parquet", "a.avro", "a.csv", "a.csv.gz"])
def test_the_same_call_gives_the_same_records(tmp_path, name):
    simulate(PEOPLE, USERS, tmp_path / f"1{name}")
    simulate(PEOPLE, USERS, tmp_path / f"2{name}")
    assert read_pairs(tmp_path / f"1{name}") == read_pairs(tmp_path / f"2{name}")


def test_gzip_bytes_do_not_hold_the_time(tmp_path):
    simulate(PEOPLE, USERS, tmp_path / "a.csv.gz")
    simulate(PEOPLE, USERS, tmp_path / "b.csv.gz")
    assert (tmp_path / "a.csv.gz").read_bytes() == (tmp_path / "b.csv.gz").read_bytes()
    simulate(PEOPLE, USERS, tmp_path / "a.csv")
    assert gzip.decompress((tmp_path / "a.csv.gz").read_bytes()) == (tmp_path / "a.csv").read_bytes()


def test_truth_is_the_truth_of_the_file(tmp_path):
    simulate(PEOPLE, USERS, tmp_path / "a.csv", truth=tmp_path / "t.csv", value_range=(0.0, 10.0))
    given = {row["key"]: row for row in pa.csv.read_csv(tmp_path / "t.csv").to_pylist()}
    assert [int(k) for k in given] == list(range(20))
    rows = read_pairs(tmp_path / "a.csv")
    for key, row in given.items():
        values = [v for _, k, v in rows if k == str(key)]
        assert row["frequency"] == pytest.approx(len(values) / USERS)
        assert row["mean"] == (pytest.approx(np.mean(values)) if values else None)


def test_record_batches_add_to_the_truth():
    known = Truth(keys=20)
    batches = list(record_batches(PEOPLE, USERS, truth=known))
    assert known.users == sum(b.num_rows for b in batches) == USERS


def test_values_never_leave_the_raw_range(tmp_path):
    people = Population(name="gauss", keys=20, seed=3)
    simulate(people, 2000, tmp_path / "a.parquet", layout="pairs", value_range=(0.1, 0.7))
    values = pq.read_table(tmp_path / "a.parquet")["value"].to_numpy()
    assert values.min() == 0.1
    assert values.max() == 0.7


@pytest.mark.parametrize("which", ["records", "truth", "collection"])
def test_existing_output_is_refused_unless_allowed(tmp_path, which):
    files = {"records": tmp_path / "a.csv", "truth": tmp_path / "t.csv", "collection": tmp_path / "c.toml"}
    others = {name: path for name, path in files.items() if name != "records"}
    files[which].write_text("mine")
    with pytest.raises(InputError, match="exists already"):
        simulate(PEOPLE, 5, files["records"], **others)
    assert files[which].read_text() == "mine"
    assert files_in(tmp_path) == [files[which].name]
    simulate(PEOPLE, 5, files["records"], **others, overwrite=True)
    assert files[which].read_text() != "mine"


def test_a_failure_leaves_nothing(tmp_path, monkeypatch):
    def fail(*_, **__):
        raise OSError("disk is full")

    monkeypatch.setattr(pq.ParquetWriter, "write_batch", fail)
    with pytest.raises(OSError, match="disk is full"):
        simulate(PEOPLE, 5, tmp_path / "a.parquet")
    assert files_in(tmp_path) == []


@pytest.mark.parametrize(
    ("given", "named"),
    [
        ({"output": "a.json"}, "ends in one of"),
        ({"output": ".csv"}, "ends in one of"),
        ({"output": "a.csv", "layout": "nested"}, "CSV cannot hold nested"),
        ({"layout": "wide"}, "'nested' or 'pairs'"),
        ({"users": -1}, "0 users or more"),
        ({"value_range": (5.0, 1.0)}, "lower to a higher"),
        ({"value_range": (0.0, float("inf"))}, "finite"),
        ({"truth": "a.parquet"}, "are different files"),
    ],
)
def test_what_cannot_be_is_refused(tmp_path, monkeypatch, given, named):
    monkeypatch.chdir(tmp_path)
    arguments = {"population": PEOPLE, "users": 5, "output": "a.parquet", **given}
    with pytest.raises(InputError, match=named):
        simulate(**arguments)
    assert files_in(tmp_path) == []


def test_a_folder_is_not_an_output(tmp_path):
    (tmp_path / "a.csv").mkdir()
    with pytest.raises(InputError, match="is a folder"):
        simulate(PEOPLE, 5, tmp_path / "a.csv", overwrite=True)


def test_collection_text_is_a_definition_of_the_population():
    people = Population(name="gauss", keys=50, seed=1)
    text = collection_text(people, name='a "trial"', mechanism="pckv-grr", epsilon="0.5", value_range=(1, 5))
    assert tomllib.loads(text) == {
        "name": 'a "trial"',
        "mechanism": "pckv-grr",
        "epsilon": 0.5,
        "padding": 10,
        "keys": {"count": 50},
        "values": {"range": [1, 5]},
    }
    assert tomllib.loads(collection_text(people, name="a", mechanism="m", epsilon="1", padding=3))["padding"] == 3


def test_the_collection_is_written_beside_the_records(tmp_path):
    done = simulate(PEOPLE, 5, tmp_path / "a.csv", collection=tmp_path / "c.toml", mechanism="pckv-grr", epsilon="0.25")
    written = tomllib.loads((tmp_path / "c.toml").read_text())
    assert (written["name"], written["mechanism"], written["epsilon"]) == ("gg", "pckv-grr", 0.25)
    assert done["collection"] == str(tmp_path / "c.toml")


@pytest.mark.parametrize("name", ["a.parquet", "a.avro", "a.csv"])
def test_nobody_can_be_simulated(tmp_path, name):
    done = simulate(PEOPLE, 0, tmp_path / name, truth=tmp_path / "t.csv")
    assert (done["users"], done["rows"], done["pairs"]) == (0, 0, 0)
    truth = pa.csv.read_csv(tmp_path / "t.csv").to_pylist()
    assert len(truth) == 20
    assert {row["frequency"] for row in truth} == {row["mean"] for row in truth} == {None}
