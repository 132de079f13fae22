"""The same data give the same records and counts in every format, type and layout."""

from __future__ import annotations

import gzip
import pickle
from collections.abc import Callable
from pathlib import Path
from typing import Any

import fastavro
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from ldp_beam.errors import InputError, RunError
from ldp_beam.mechanisms import Records, Secret
from ldp_beam.schemas import Definition, Tally
from ldp_beam.schemas import tally as names
from ldp_beam.transforms.inputs import Columns, inspect_records, slices
from ldp_beam.transforms.prepare import PairRows, Preparer
from ldp_beam.transforms.record_files import RawBatch, read_slice

COLUMNS = Columns()
TEXT, FLOAT = pa.string(), pa.float64()
Row = tuple[Any, Any, Any]

#: One row for each rule: user, key, value.
ROWS: list[Row] = [
    ("001", "a", 0.5),
    ("1", "a", -0.25),
    ("01", "007", 1.0),
    ("u", "a", 0.1),
    ("u", "b", 0.2),
    ("u", "a", 0.4),
    ("u", None, None),
    ("empty", None, None),
    (None, "a", 0.5),
    ("null value", "a", None),
    ("null key", None, 0.5),
    ("nan", "a", float("nan")),
    ("inf", "a", float("inf")),
    ("-inf", "b", float("-inf")),
    ("high", "a", 1.0000001),
    ("low", "a", -2.0),
    ("edge", "a", -1.0),
    ("outside", "elsewhere", 0.5),
    ("mixed", "elsewhere", 0.5),
    ("mixed", "b", 0.75),
    ("cafe\u0301", "cafe\u0301", 0.5),
    ("x" * 2000, "true", 0.5),
    (str(2**63 - 1), "1e3", 0.5),
]
EXPECTED = Tally(
    {
        names.ROWS_READ: 23,
        names.ROWS_WITHOUT_USER: 1,
        names.REJECTED_ROWS: 8,
        names.PAIRS_READ: 20,
        names.EMPTY_ROWS: 2,
        names.OUTSIDE_DOMAIN: 2,
        names.NULL_VALUE: 1,
        names.NULL_KEY: 1,
        names.NOT_A_NUMBER: 3,
        names.OUTSIDE_RANGE: 2,
        names.USERS: 18,
        names.KEPT_PAIRS: 10,
        names.DUPLICATE_PAIRS: 1,
    }
)


def definition(*, keys: str = '["a", "b", "007", "café", "true", "1e3", "zz"]', values: str = "") -> Definition:
    return Definition.from_text(
        'name = "c"\nmechanism = "pckv-ue"\nepsilon = 1\npadding = 1\n'
        f"[keys]\nlist = {keys}\n[values]\nrange = [-1, 1]\n{values}"
    )


def preparer(rules: Definition | None = None, **options: Any) -> Preparer:
    return Preparer(rules or definition(), Secret.from_seed(1).users(), COLUMNS, **options)


# -- writers --------------------------------------------------------------------------------------------


def table(rows: list[Row], user: Any = TEXT, key: Any = TEXT, value: Any = FLOAT) -> pa.Table:
    return pa.table(
        {
            "user_id": pa.array([r[0] for r in rows], user),
            "key": pa.array([r[1] for r in rows], pa.string()).cast(key),
            "value": pa.array([r[2] for r in rows], pa.float64()).cast(value),
        }
    )


def write_parquet(path: Path, rows: list[Row]) -> None:
    pq.write_table(table(rows), path.with_suffix(".parquet"), row_group_size=7)


def write_parquet_other_types(path: Path, rows: list[Row]) -> None:
    dictionary = pa.dictionary(pa.int32(), pa.string())
    data = table(rows, pa.large_string(), dictionary)
    data = data.set_column(2, "value", data["value"].cast(pa.string()).cast(pa.large_string()))
    pq.write_table(data, path.with_suffix(".parquet"), row_group_size=5)


def write_avro(*value: str, codec: str = "null") -> Callable[[Path, list[Row]], None]:
    def write(path: Path, rows: list[Row]) -> None:
        fields = [
            {"name": "user_id", "type": ["string", "null"]},
            {"name": "key", "type": ["null", "string"]},
            {"name": "value", "type": list(value)},
        ]
        records = [dict(zip(("user_id", "key", "value"), row, strict=True)) for row in rows]
        with path.with_suffix(".avro").open("wb") as file:
            schema = {"type": "record", "name": "r", "fields": fields}
            fastavro.writer(file, schema, records, codec=codec, sync_interval=200)

    return write


def csv_text(rows: list[Row]) -> bytes:
    def field(x: Any) -> str:
        if x is None:
            return ""
        return f'"{x}"' if isinstance(x, str) else repr(x)

    lines = [",".join(map(field, row)) for row in rows]
    return "\n".join(["\ufeffuser_id,key,value", *lines]).encode()


def write_csv(path: Path, rows: list[Row]) -> None:
    path.with_suffix(".csv").write_bytes(csv_text(rows))


def write_csv_gz(path: Path, rows: list[Row]) -> None:
    data = csv_text(rows)
    # Two members behind each other, as `cat` and some tools produce them.
    path.with_suffix(".csv.gz").write_bytes(gzip.compress(data[:100]) + gzip.compress(data[100:]))


PAIR_WRITERS = {
    "parquet": write_parquet,
    "parquet, other types": write_parquet_other_types,
    "avro": write_avro("null", "double"),
    "avro, union reversed": write_avro("double", "null"),
    "avro, three branches": write_avro("null", "string", "double", codec="deflate"),
    "csv": write_csv,
    "csv.gz": write_csv_gz,
}


# -- readers --------------------------------------------------------------------------------------------


def raw_batches(folder: Path, *, batch_rows: int = 4, **options: Any) -> list[RawBatch]:
    inputs = inspect_records([str(folder)], has_values=True, **options)
    return [raw for part in slices(inputs) for raw in read_slice(part, COLUMNS, batch_rows=batch_rows)]


def read_pairs(folder: Path, rules: Preparer | None = None, **options: Any) -> tuple[Records, Tally]:
    rules = rules or preparer()
    rows, total = [], Tally()
    for raw in raw_batches(folder, **options):
        part, tally, _ = rules.prepare_pairs(raw)
        rows.append(part.packed())
        total += tally
    merged = np.concatenate(rows) if rows else np.empty(0, rules.row_dtype)
    records, tally = rules.merge_pairs(PairRows.unpacked(merged))
    return records, total + tally


def same(a: Records, b: Records) -> bool:
    return all(np.array_equal(getattr(a, name), getattr(b, name)) for name in ("users", "offsets", "keys", "values"))


def sorted_by_user(records: Records) -> Records:
    order = sorted(range(records.n), key=lambda i: records.users[i].view("<u8")[0])
    parts = [records.slice(i, i + 1) for i in order]
    return Records(
        users=np.concatenate([part.users for part in parts]),
        offsets=np.concatenate([[0], np.cumsum([len(part.keys) for part in parts])]),
        keys=np.concatenate([part.keys for part in parts]),
        values=np.concatenate([part.values for part in parts if part.values is not None]),
    )


# -- the same in every format ---------------------------------------------------------------------------


@pytest.fixture(scope="module")
def reference(tmp_path_factory: pytest.TempPathFactory) -> Records:
    folder = tmp_path_factory.mktemp("reference")
    write_parquet(folder / "x", ROWS)
    return read_pairs(folder)[0]


@pytest.mark.parametrize("name", PAIR_WRITERS)
@pytest.mark.parametrize("batch_rows", [1, 4, 1000])
def test_pairs(tmp_path: Path, reference: Records, name: str, batch_rows: int) -> None:
    PAIR_WRITERS[name](tmp_path / "x", ROWS)
    records, tally = read_pairs(tmp_path, batch_rows=batch_rows)
    assert tally == EXPECTED
    assert same(records, reference)
    assert sorted(records.sizes.tolist()) == [0] * 9 + [1] * 8 + [2]


def test_the_order_of_rows_and_files_does_not_matter(tmp_path: Path, reference: Records) -> None:
    order = np.random.default_rng(5).permutation(len(ROWS))
    shuffled = [ROWS[i] for i in order]
    write_csv(tmp_path / "1", shuffled[:9])
    write_avro("null", "double")(tmp_path / "2", shuffled[9:15])
    write_parquet(tmp_path / "3", shuffled[15:])
    records, tally = read_pairs(tmp_path)
    assert tally == EXPECTED
    assert same(records, reference)


def nested_rows(rows: list[Row]) -> list[tuple[str | None, list[dict[str, Any]] | None]]:
    """The same data with one row a user; a user without pairs has an empty or a null list."""
    users: dict[str | None, list[dict[str, Any]] | None] = {}
    for user, key, value in rows:
        items = users.setdefault(user, None)
        if key is not None or value is not None:
            users[user] = [*(items or []), {"key": key, "value": value}]
    return list(users.items())


def write_nested_parquet(path: Path, kind: Any, key: Any = TEXT, value: Any = FLOAT) -> None:
    rows = nested_rows(ROWS)
    struct = pa.struct([("extra", pa.int8()), ("key", key), ("value", value)])
    users = pa.array([user for user, _ in rows])
    items = pa.array(
        [items for _, items in rows],
        pa.list_(pa.struct([struct.field(0), ("key", pa.string()), ("value", pa.float64())])),
    )
    if value != pa.float64():
        text = items.values.field(2).cast(pa.string())
        flat = pa.StructArray.from_arrays(
            [items.values.field(0), items.values.field(1), text], ["extra", "key", "value"]
        )
        items = pa.ListArray.from_arrays(items.offsets, flat, mask=items.is_null())
    pq.write_table(
        pa.table({"user_id": users, "items": items.cast(kind(struct))}),
        path.with_suffix(".parquet"),
        row_group_size=6,
    )


def write_nested_avro(path: Path, codec: str = "null", items: Any = None) -> None:
    item = {
        "type": "record",
        "name": "item",
        "fields": [
            {"name": "value", "type": ["null", "float", "double"]},
            {"name": "key", "type": ["null", "string"]},
        ],
    }
    fields = [
        {"name": "user_id", "type": ["null", "string"]},
        {"name": "items", "type": ["null", {"type": "array", "items": ["null", item]}]},
    ]
    records = [{"user_id": user, "items": items} for user, items in nested_rows(ROWS)]
    with path.with_suffix(".avro").open("wb") as file:
        fastavro.writer(
            file,
            {"type": "record", "name": "r", "namespace": "n.s", "fields": fields},
            records,
            codec=codec,
            sync_interval=100,
        )


NESTED_WRITERS: dict[str, Callable[[Path], None]] = {
    "parquet": lambda path: write_nested_parquet(path, pa.list_),
    "parquet, large": lambda path: write_nested_parquet(path, pa.large_list, value=pa.string()),
}


@pytest.mark.parametrize("name", NESTED_WRITERS)
@pytest.mark.parametrize("batch_rows", [1, 4, 1000])
def test_nested(tmp_path: Path, reference: Records, name: str, batch_rows: int) -> None:
    NESTED_WRITERS[name](tmp_path / "x")
    rules = preparer()
    parts, total = [], Tally()
    for raw in raw_batches(tmp_path, batch_rows=batch_rows):
        records, tally, _ = rules.prepare_nested(raw)
        parts += [records.slice(i, i + 1) for i in range(records.n)]
        total += tally
    whole = Records(
        users=np.concatenate([part.users for part in parts]),
        offsets=np.concatenate([[0], np.cumsum([len(part.keys) for part in parts])]),
        keys=np.concatenate([part.keys for part in parts]),
        values=np.concatenate([part.values for part in parts if part.values is not None]),
    )
    assert same(sorted_by_user(whole), reference)
    for counter in (
        names.USERS,
        names.PAIRS_READ,
        names.KEPT_PAIRS,
        names.DUPLICATE_PAIRS,
        *names.INVALID_REASONS,
    ):
        without_user = {names.PAIRS_READ: 0}.get(counter, 0)
        assert total[counter] == EXPECTED[counter] - without_user
    assert total[names.ROWS_READ] == total[names.USERS] + total[names.ROWS_WITHOUT_USER] == 19


@pytest.mark.parametrize("codec", ["null", "deflate"])
def test_nested_rows_taken_apart_equal_pairs(tmp_path: Path, reference: Records, codec: str) -> None:
    write_nested_avro(tmp_path / "x", codec)
    records, tally = read_pairs(tmp_path)
    # Single floats of a union: fastavro writes the first branch that fits, so values lose digits.
    assert np.array_equal(records.users, reference.users)
    assert np.array_equal(records.offsets, reference.offsets)
    assert np.array_equal(records.keys, reference.keys)
    assert tally[names.USERS] == reference.n


@pytest.mark.parametrize("union", [["null", "int", "double"], ["double", "null"], ["null", "float", "double"]])
def test_unions_of_numbers(tmp_path: Path, union: list[str]) -> None:
    rows: list[Row] = [("a", "a", 1), ("b", "a", 0.5), ("c", "a", None)]
    write_avro(*union)(tmp_path / "x", rows)
    records, tally = read_pairs(tmp_path)
    assert records.values is not None
    assert sorted(records.values.tolist()) == [2**39, 2**40]
    assert tally[names.NULL_VALUE] == 1


# -- text stays text ------------------------------------------------------------------------------------


def test_integer_and_text_ids_and_keys_are_the_same_people_and_keys(tmp_path: Path) -> None:
    rules = preparer(definition(keys='["1", "-7", "1.0", "true"]'))
    rows: list[Row] = [(str(i), str(k), 0.5) for i, k in [(1, 1), (2, -7), (-5, 1), (2**62, 1), (3, 9)]]
    write_csv(tmp_path / "x", rows)
    expected = read_pairs(tmp_path, rules)
    for name, (user, key) in {"i64": (pa.int64(), pa.int64()), "i64 i8": (pa.int64(), pa.int8())}.items():
        folder = tmp_path / name
        folder.mkdir()
        columns = {
            "user_id": pa.array([int(r[0]) for r in rows], user),
            "key": pa.array([int(r[1]) for r in rows], key),
            "value": [r[2] for r in rows],
        }
        pq.write_table(pa.table(columns), folder / "x.parquet")
        records, tally = read_pairs(folder, rules)
        assert same(records, expected[0])
        assert tally == expected[1]
    assert expected[0].sizes.sum() == 4


def test_csv_quoting_tells_null_from_empty(tmp_path: Path) -> None:
    (tmp_path / "x.csv").write_text('user_id,key,value\n"","a",0.5\n,a,0.5\nu,"",0.5\nv,a,""\nw,,\n')
    records, tally = read_pairs(tmp_path)
    assert tally[names.ROWS_WITHOUT_USER] == 1
    assert tally[names.OUTSIDE_DOMAIN] == 1  # an empty text is a text
    assert tally[names.NOT_A_NUMBER] == 1
    assert tally[names.EMPTY_ROWS] == 1
    assert records.n == 4


def test_csv_fields_with_newlines_and_blanks(tmp_path: Path) -> None:
    (tmp_path / "x.csv").write_text('user_id,key,value\n"u\n1","a"," 0.5 "\r\nv, a,0.5\n')
    records, tally = read_pairs(tmp_path)
    assert records.n == 2
    assert tally[names.KEPT_PAIRS] == 1
    assert tally[names.OUTSIDE_DOMAIN] == 1


# -- damaged in the middle ------------------------------------------------------------------------------


def test_rows_that_are_not_rows_are_counted_with_their_numbers(tmp_path: Path) -> None:
    (tmp_path / "x.csv").write_text("user_id,key,value\nu1,a,1\nbad\nu3,a,1\nu4,a\nu5,a,1,9,9\nu6,a,x\nbad\n")
    raw = raw_batches(tmp_path, batch_rows=1)
    assert [(r.row_numbers().tolist(), r.unreadable) for r in raw] == [
        ([1], ()),
        ([3], (2,)),
        ([6], (4, 5)),
        ([], (7,)),
    ]
    (whole,) = raw_batches(tmp_path, batch_rows=100)[:1]
    assert whole.row_numbers().tolist() == [1, 3, 6]
    records, tally = read_pairs(tmp_path)
    assert tally[names.ROWS_READ] == 7 == records.n + tally[names.UNREADABLE_ROWS]
    with pytest.raises(InputError, match=r"x\.csv, row 2: the row does not have as many fields"):
        read_pairs(tmp_path, preparer(strict=True))


def test_only_unreadable_rows(tmp_path: Path) -> None:
    (tmp_path / "x.csv").write_text("user_id,key,value\nbad\n")
    records, tally = read_pairs(tmp_path)
    assert records.n == 0
    assert tally == Tally({names.ROWS_READ: 1, names.UNREADABLE_ROWS: 1, names.REJECTED_ROWS: 1})


@pytest.mark.parametrize("header", ["user_id,key,value", "user_id,key,value\n", "user_id,key,value\r\n\n"])
def test_a_header_alone_is_an_empty_input(tmp_path: Path, header: str) -> None:
    (tmp_path / "x.csv").write_text(header)
    records, tally = read_pairs(tmp_path)
    assert records.n == 0
    assert tally == Tally()


def test_other_encodings_are_named(tmp_path: Path) -> None:
    (tmp_path / "x.csv").write_bytes("user_id,key,value\nu,café,1\n".encode("latin-1"))
    with pytest.raises(InputError, match=r"x\.csv is not UTF-8"):
        read_pairs(tmp_path)


def test_damage_in_the_middle_is_an_error_that_says_where(tmp_path: Path) -> None:
    rows: list[Row] = [(f"user {i}", "a", 0.5) for i in range(20_000)]
    for name, write in {
        "a.parquet": write_parquet,
        "a.avro": write_avro("double"),
        "a.csv.gz": write_csv_gz,
    }.items():
        folder = tmp_path / name
        folder.mkdir()
        if name == "a.parquet":
            pq.write_table(table(rows), folder / name, row_group_size=5000, compression="gzip")
        else:
            write(folder / "a", rows)
        data = bytearray((folder / name).read_bytes())
        middle = len(data) // 2
        data[middle : middle + 400] = b"\xff" * 400
        (folder / name).write_bytes(data)
        with pytest.raises(RunError, match=rf"{name} is damaged: after (row|block) \d+"):
            read_pairs(folder, batch_rows=1000)


def test_a_truncated_gzip_file_is_an_error(tmp_path: Path) -> None:
    data = gzip.compress(csv_text([(f"user {i}", "a", 0.5) for i in range(20_000)]))
    (tmp_path / "x.csv.gz").write_bytes(data[:-2000])
    with pytest.raises(RunError, match=r"x\.csv\.gz is damaged"):
        read_pairs(tmp_path)


# -- duplicates and times -------------------------------------------------------------------------------

STAMPS = ["2024-01-01T00:00:00.000001Z", "2024-01-01 00:00:00", "2024-01-01T02:00:00+02:00", None, "soon"]


def test_latest_reads_times_of_every_kind_alike(tmp_path: Path) -> None:
    rules = preparer(definition(values='duplicates = "latest"'))
    micros = [1704067200000001, 1704067200000000, 1704067200000000, None, None]
    kinds: dict[str, pa.Array] = {
        "text": pa.array(STAMPS),
        "us": pa.array(micros, pa.timestamp("us")),
        "utc": pa.array(micros, pa.timestamp("us", tz="UTC")),
        "zone": pa.array(micros, pa.timestamp("us", tz="America/New_York")),
        "ns": pa.array([None if m is None else m * 1000 + 1 for m in micros], pa.timestamp("ns")),
        "int": pa.array(micros, pa.int64()),
    }
    for name, times in kinds.items():
        folder = tmp_path / name
        folder.mkdir()
        columns = {
            "user_id": ["u"] * 5,
            "key": ["a"] * 5,
            "value": [0.0, 0.5, 0.25, 1.0, 0.75],
            "timestamp": times,
        }
        pq.write_table(pa.table(columns), folder / "x.parquet")
        records, tally = read_pairs(folder, rules, with_times=True)
        assert records.values is not None
        assert records.values.tolist() == [0], name
        assert tally[names.UNREADABLE_TIMES] == 2
        assert tally[names.DUPLICATE_PAIRS] == 4
    with pytest.raises(InputError, match=r"row 4, column 'timestamp': the row has no readable time"):
        read_pairs(
            tmp_path / "text",
            preparer(definition(values='duplicates = "latest"'), strict=True),
            with_times=True,
        )
    with pytest.raises(InputError, match="--time-column"):
        read_pairs(tmp_path / "text", rules)


def test_avro_times(tmp_path: Path) -> None:
    fields = [
        {"name": "user_id", "type": "string"},
        {"name": "key", "type": "string"},
        {"name": "value", "type": "double"},
        {"name": "timestamp", "type": ["null", {"type": "long", "logicalType": "timestamp-millis"}]},
    ]
    rows = [{"user_id": "u", "key": "a", "value": v, "timestamp": t} for v, t in [(0.0, 5), (0.5, 4), (1.0, None)]]
    with (tmp_path / "x.avro").open("wb") as file:
        fastavro.writer(file, {"type": "record", "name": "r", "fields": fields}, rows)
    rules = preparer(definition(values='duplicates = "latest"'))
    records, _ = read_pairs(tmp_path, rules, with_times=True)
    assert records.values is not None
    assert records.values.tolist() == [0]


def test_slices_and_batches_pickle_what_they_must(tmp_path: Path) -> None:
    write_parquet(tmp_path / "x", ROWS)
    (part,) = slices(inspect_records([str(tmp_path)], has_values=True))
    assert pickle.loads(pickle.dumps(part)) == part
    rules = pickle.loads(pickle.dumps(preparer()))
    assert same(read_pairs(tmp_path, rules)[0], read_pairs(tmp_path)[0])
