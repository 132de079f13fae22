"""Paths, layouts and columns are checked before anything runs."""

from __future__ import annotations

import gzip
import pickle
from pathlib import Path
from typing import Any

import fastavro
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from ldp_beam.errors import InputError
from ldp_beam.transforms.inputs import Columns, RecordInputs, inspect_records, slices
from ldp_beam.transforms.paths import expand

PAIRS = pa.table({"user_id": ["u", "v"], "key": ["a", "b"], "value": [0.5, 1.0]})
ITEM = pa.list_(pa.struct([("key", pa.string()), ("value", pa.float64())]))
NESTED = pa.table({"user_id": ["u", "v"], "items": pa.array([[{"key": "a", "value": 1.0}], []], ITEM)})


def parquet(path: Path, table: pa.Table = PAIRS, **options: Any) -> str:
    path.parent.mkdir(exist_ok=True, parents=True)
    pq.write_table(table, path, **options)
    return str(path)


def inspect(*patterns: str, **options: Any) -> RecordInputs:
    return inspect_records(patterns, has_values=options.pop("has_values", True), **options)


# -- paths ----------------------------------------------------------------------------------------------


def test_files_folders_and_globs(tmp_path: Path) -> None:
    a, b = parquet(tmp_path / "a.parquet"), parquet(tmp_path / "b.parquet")
    (tmp_path / "_SUCCESS").touch()
    (tmp_path / ".a.parquet.crc").touch()
    (tmp_path / "sub").mkdir()
    for patterns in (
        [str(tmp_path)],
        [f"{tmp_path}/"],
        [f"{tmp_path}/*"],
        [b, a],
        [a, f"{tmp_path}/*.parquet"],
    ):
        assert expand(patterns) == [a, b]


def test_each_file_counts_once_under_whatever_name(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    a = parquet(tmp_path / "a.parquet")
    (tmp_path / "link.parquet").symlink_to(a)
    monkeypatch.chdir(tmp_path)
    assert expand(["a.parquet", "./a.parquet", a, "link.parquet"]) == [a]


def test_a_file_whose_name_looks_like_a_pattern(tmp_path: Path) -> None:
    odd = parquet(tmp_path / "data[1].parquet")
    assert expand([odd]) == [odd]


def test_a_hidden_file_may_be_named(tmp_path: Path) -> None:
    hidden = parquet(tmp_path / "_x.parquet")
    assert expand([hidden]) == [hidden]


@pytest.mark.parametrize("missing", ["no/such/*.parquet", "no-such.parquet", "no/such"])
def test_a_pattern_without_a_match_is_an_error_even_beside_others(tmp_path: Path, missing: str) -> None:
    a = parquet(tmp_path / "a.parquet")
    with pytest.raises(InputError, match=r"no.such.* matches no file"):
        expand([a, str(tmp_path / missing)])


def test_no_pattern_at_all() -> None:
    with pytest.raises(InputError, match="No input was given"):
        expand([])


def test_a_folder_without_data(tmp_path: Path) -> None:
    (tmp_path / "_SUCCESS").touch()
    with pytest.raises(InputError, match="holds no data file"):
        expand([str(tmp_path)])


def test_an_empty_file(tmp_path: Path) -> None:
    (tmp_path / "a.csv").touch()
    with pytest.raises(InputError, match=r"a\.csv is empty"):
        expand([str(tmp_path)])


@pytest.mark.parametrize("name", ["a.txt", "a.csv.zip", "a", "a.json"])
def test_an_unknown_extension(tmp_path: Path, name: str) -> None:
    (tmp_path / name).write_text("x")
    with pytest.raises(InputError, match=r"known are \.parquet, \.avro, \.csv, \.csv\.gz"):
        expand([str(tmp_path / name)])


# -- damaged files --------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["x.parquet", "x.avro", "x.csv.gz"])
@pytest.mark.parametrize("content", [b"nonsense", b"PAR1", b"Obj\x01", b"\x1f\x8b\x08"])
def test_damaged_files_are_named_before_anything_runs(tmp_path: Path, name: str, content: bytes) -> None:
    (tmp_path / name).write_bytes(content)
    with pytest.raises(InputError, match=rf"{name} cannot be read"):
        inspect(str(tmp_path))


def test_a_broken_footer(tmp_path: Path) -> None:
    path = Path(parquet(tmp_path / "a.parquet"))
    path.write_bytes(path.read_bytes()[:-5])
    with pytest.raises(InputError, match=r"a\.parquet cannot be read as parquet"):
        inspect(str(path))


def test_a_truncated_gzip_header(tmp_path: Path) -> None:
    path = tmp_path / "a.csv.gz"
    path.write_bytes(gzip.compress(b"user_id,key,value\n")[:-9])
    with pytest.raises(InputError, match=r"a\.csv\.gz cannot be read"):
        inspect(str(path))


# -- layouts and columns --------------------------------------------------------------------------------


def test_layouts_are_recognised_by_their_columns(tmp_path: Path) -> None:
    nested = inspect(parquet(tmp_path / "n.parquet", NESTED))
    assert (nested.layout, nested.total_rows) == ("nested", 2)
    pairs = inspect(parquet(tmp_path / "p.parquet"))
    assert (pairs.layout, pairs.total_rows) == ("pairs", 2)
    (tmp_path / "c.csv").write_text("\ufeffuser_id,key,value\nu,a,1\n")
    text = inspect(str(tmp_path / "c.csv"))
    assert (text.layout, text.total_rows) == ("pairs", None)
    assert text.estimated_rows >= 1


def test_layouts_do_not_mix(tmp_path: Path) -> None:
    parquet(tmp_path / "n.parquet", NESTED)
    parquet(tmp_path / "p.parquet")
    with pytest.raises(InputError, match=r"mixes two layouts: .*n\.parquet is nested, .*p\.parquet is pairs"):
        inspect(str(tmp_path))


def test_a_list_of_items_decides_the_layout(tmp_path: Path) -> None:
    both = parquet(tmp_path / "a.parquet", NESTED.append_column("key", pa.array([1.5, 2.5])))
    assert inspect(both).layout == "nested"
    text = parquet(tmp_path / "b.parquet", PAIRS.append_column("items", pa.array(["x", "y"])))
    assert inspect(text).layout == "pairs"


@pytest.mark.parametrize(
    ("rename", "message"),
    [
        ({"user_id": "userid"}, r"no user column 'user_id'.*--user-column.*Did you mean 'userid'"),
        ({"key": "keys"}, r"neither a column 'key'.*--key-column.*Did you mean 'keys'"),
        ({"value": "values"}, r"no value column 'value'.*--value-column.*Did you mean 'values'"),
        ({"value": "user_id"}, r"more than one column 'user_id'"),
    ],
)
def test_missing_columns_name_the_option(tmp_path: Path, rename: dict[str, str], message: str) -> None:
    path = parquet(tmp_path / "a.parquet", PAIRS.rename_columns([rename.get(n, n) for n in PAIRS.column_names]))
    with pytest.raises(InputError, match=message) as caught:
        inspect(path)
    assert "a.parquet" in str(caught.value)


def test_columns_can_be_named(tmp_path: Path) -> None:
    path = parquet(tmp_path / "a.parquet", PAIRS.rename_columns(["who", "what", "how"]))
    assert inspect(path, columns=Columns(user="who", key="what", value="how")).layout == "pairs"


def test_values_are_needed_only_where_the_collection_has_them(tmp_path: Path) -> None:
    path = parquet(tmp_path / "a.parquet", PAIRS.drop_columns("value"))
    assert inspect(path, has_values=False).layout == "pairs"


@pytest.mark.parametrize(
    ("column", "data"),
    [
        ("user_id", pa.array([True, False])),
        ("user_id", pa.array([1.0, 2.0])),
        ("user_id", pa.array([b"a", b"b"])),
        ("user_id", pa.array([1, 2], pa.timestamp("us"))),
        ("key", pa.array([True, False])),
        ("key", pa.array([1.0, 2.0])),
        ("key", pa.array([1.0, 2.0]).dictionary_encode()),
        ("value", pa.array([True, False])),
        ("value", pa.array([["a"], []])),
    ],
)
def test_wrong_types_name_file_and_column(tmp_path: Path, column: str, data: pa.Array) -> None:
    path = parquet(tmp_path / "a.parquet", PAIRS.set_column(PAIRS.column_names.index(column), column, data))
    with pytest.raises(InputError, match=rf"a\.parquet has the type .* in column '{column}'"):
        inspect(path)


@pytest.mark.parametrize(
    ("column", "data"),
    [
        ("user_id", pa.array([1, 2], pa.uint64())),
        ("user_id", pa.nulls(2)),
        ("key", pa.array([1, 2], pa.int8())),
        ("key", pa.array(["a", "b"]).dictionary_encode()),
        ("value", pa.array([1, 2], pa.int16())),
        ("value", pa.array([1, 2]).cast(pa.decimal128(30, 2))),
        ("value", pa.array(["1", "2"], pa.large_string())),
        ("value", pa.array([1, 2]).cast(pa.float16())),
    ],
)
def test_compatible_types_are_taken(tmp_path: Path, column: str, data: pa.Array) -> None:
    path = parquet(tmp_path / "a.parquet", PAIRS.set_column(PAIRS.column_names.index(column), column, data))
    assert inspect(path).layout == "pairs"


@pytest.mark.parametrize(
    ("items", "message"),
    [
        (pa.array(["x", "y"]), r"column 'items'\. It must hold a list of structs"),
        (pa.array([["a"], []]), "a list of structs"),
        (pa.array([[{"k": "a", "value": 1.0}], []]), "no key field 'key' in the items"),
        (pa.array([[{"key": "a", "valeu": 1.0}], []]), r"no value field 'value'.*Did you mean 'valeu'"),
        (pa.array([[{"key": True, "value": 1.0}], []]), r"column 'items\.key'"),
        (pa.array([[{"key": "a", "value": True}], []]), r"column 'items\.value'"),
    ],
)
def test_items_must_be_lists_of_key_and_value(tmp_path: Path, items: pa.Array, message: str) -> None:
    path = parquet(tmp_path / "a.parquet", NESTED.set_column(1, "items", items))
    with pytest.raises(InputError, match=message):
        inspect(path)


def test_times_are_checked_where_they_decide(tmp_path: Path) -> None:
    path = parquet(tmp_path / "a.parquet", PAIRS.append_column("timestamp", pa.array([1.5, 2.5])))
    assert not inspect(path).has_times
    with pytest.raises(InputError, match=r"column 'timestamp'\. It must hold a timestamp"):
        inspect(path, with_times=True)
    with pytest.raises(InputError, match=r"no column 'timestamp', which .* needs.*--time-column"):
        inspect(parquet(tmp_path / "b.parquet"), with_times=True)


def test_avro_types_follow_the_same_rules(tmp_path: Path) -> None:
    def write(key_type: Any) -> str:
        fields = [
            {"name": "user_id", "type": "string"},
            {"name": "key", "type": key_type},
            {"name": "value", "type": "double"},
        ]
        path = tmp_path / "a.avro"
        with path.open("wb") as file:
            fastavro.writer(file, {"type": "record", "name": "r", "fields": fields}, [])
        return str(path)

    assert inspect(write(["null", "string"])).layout == "pairs"
    assert inspect(write(["null", "long", "string"])).layout == "pairs"
    for wrong in (
        "boolean",
        ["null", "double"],
        "bytes",
        ["string", "boolean"],
        {"type": "array", "items": "int"},
    ):
        with pytest.raises(InputError, match=r"a\.avro has the type .* in column 'key'"):
            inspect(write(wrong))


# -- slices ---------------------------------------------------------------------------------------------


def test_slices_cover_every_row_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("ldp_beam.transforms.inputs._SLICE_ROWS", 25)
    table = pa.table({"user_id": [str(i) for i in range(103)], "key": ["a"] * 103, "value": [1.0] * 103})
    parquet(tmp_path / "a.parquet", table, row_group_size=10)
    parquet(tmp_path / "b.parquet", table.slice(0, 0))
    (tmp_path / "c.csv").write_text("user_id,key,value\nu,a,1\n")
    (tmp_path / "d.csv").write_text("user_id,key,value")
    inputs = inspect(str(tmp_path))
    parts = slices(inputs)
    found = [(Path(part.path).name, part.groups, part.first_row, part.rows) for part in parts]
    assert found == [
        ("a.parquet", (0, 3), 1, 30),
        ("a.parquet", (3, 6), 31, 30),
        ("a.parquet", (6, 9), 61, 30),
        ("a.parquet", (9, 11), 91, 13),
        ("c.csv", None, 1, None),
    ]
    assert inputs.total_rows is None
    assert len(pickle.dumps(parts[0])) < 1000


def test_estimates_of_nested_files_count_pairs(tmp_path: Path) -> None:
    items = pa.array([[{"key": "a", "value": 1.0}] * 7, []], ITEM)
    path = parquet(tmp_path / "a.parquet", NESTED.set_column(1, "items", items))
    assert inspect(path).estimated_rows >= 7
