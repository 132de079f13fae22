"""The key domain: text, order, normalisation, fast look-up of every column type."""

from __future__ import annotations

import gzip
import pickle
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st
from ldp_beam.errors import InputError
from ldp_beam.schemas.keys import MISSING, OUTSIDE, KeyDomain

TEXTS = ["a", "007", "7", "NA", "true", "1e3", "2024-01-01", "café"]


def string_columns(keys: list[str | None]) -> list[pa.Array]:
    plain = pa.array(keys, pa.string())
    padded = pa.array(["first", *keys, "last"], pa.string()).slice(1, len(keys))
    return [
        plain,
        padded,
        plain.cast(pa.large_string()),
        plain.cast(pa.string_view()),
        plain.dictionary_encode(),
        padded.dictionary_encode(),
        plain.cast(pa.large_string()).dictionary_encode(),
        pa.DictionaryArray.from_arrays(pa.array(range(len(keys)), pa.int8()), plain),  # nulls in the dictionary
    ]


def test_every_string_type_finds_the_same_indices() -> None:
    domain = KeyDomain.of_texts(TEXTS)
    keys = ["7", None, "other", "cafe\u0301", "a", "café", "", "True"]
    expected = [2, MISSING, OUTSIDE, 7, 0, 7, OUTSIDE, OUTSIDE]
    for column in string_columns(keys):
        index = domain.index(column)
        assert index.dtype == np.int32
        assert index.tolist() == expected, column.type


def test_ranges_agree_with_lists() -> None:
    keys = [
        "-2",
        "-1",
        "0",
        "-0",
        "00",
        "1",
        "01",
        "+1",
        "1.0",
        " 1",
        "4",
        "5",
        None,
        "",
        "9" * 19,
        "9" * 40,
        "１",
    ]
    listed = KeyDomain.of_texts([str(i) for i in range(-1, 5)])
    ranged = KeyDomain.of_range(-1, 4)
    assert ranged == listed
    for column in string_columns(keys):
        assert ranged.index(column).tolist() == listed.index(column).tolist(), column.type


@pytest.mark.parametrize("kind", [pa.int8(), pa.int32(), pa.int64(), pa.uint16(), pa.uint64()])
def test_integers_stand_for_their_decimal_text(kind: pa.DataType) -> None:
    low = -3 if pa.types.is_signed_integer(kind) else 0
    numbers = pa.array([low, 0, 1, None, 5, 100], kind)
    texts = numbers.cast(pa.string())
    for domain in (
        KeyDomain.of_range(-3, 5),
        KeyDomain.of_count(2),
        KeyDomain.of_texts(["1", "-3", "007", "100"]),
    ):
        expected = domain.index(texts).tolist()
        assert domain.index(numbers).tolist() == expected
        assert domain.index(numbers.dictionary_encode()).tolist() == expected


def test_extreme_integers() -> None:
    top, bottom = 2**63 - 1, -(2**63)
    numbers = pa.array([top, bottom, 0], pa.int64())
    assert KeyDomain.of_range(top - 1, top).index(numbers).tolist() == [1, OUTSIDE, OUTSIDE]
    assert KeyDomain.of_range(bottom, bottom + 1).index(numbers).tolist() == [OUTSIDE, 0, OUTSIDE]
    unsigned = pa.array([2**64 - 1, 2**63, 3], pa.uint64())
    assert KeyDomain.of_range(-1, 3).index(unsigned).tolist() == [OUTSIDE, OUTSIDE, 4]
    texts = pa.array([str(top), str(top + 1), str(bottom), str(bottom - 1)])
    assert KeyDomain.of_range(top - 1, top).index(texts).tolist() == [1, OUTSIDE, OUTSIDE, OUTSIDE]
    assert KeyDomain.of_range(bottom, bottom).index(texts).tolist() == [OUTSIDE, OUTSIDE, 0, OUTSIDE]


@pytest.mark.parametrize(
    "column",
    [
        pa.array([True]),
        pa.array([1.0]),
        pa.array([1.0]).dictionary_encode(),
        pa.array([b"a"]),
        pa.array([1], pa.timestamp("us")),
        pa.array([["a"]]),
    ],
)
@pytest.mark.parametrize("domain", [KeyDomain.of_count(3), KeyDomain.of_texts(["a"])])
def test_other_types_are_refused_with_file_and_column(column: pa.Array, domain: KeyDomain) -> None:
    with pytest.raises(InputError, match=r"f\.parquet: column 'key' is of type"):
        domain.index(column, where="f.parquet: column 'key'")


def test_null_and_empty_columns() -> None:
    for domain in (KeyDomain.of_count(3), KeyDomain.of_texts(["a"])):
        assert domain.index(pa.nulls(2)).tolist() == [MISSING, MISSING]
        assert domain.index(pa.nulls(2, pa.string())).tolist() == [MISSING, MISSING]
        assert domain.index(pa.nulls(2, pa.int64())).tolist() == [MISSING, MISSING]
        assert domain.index(pa.array([], pa.string())).tolist() == []


@given(
    st.lists(st.text(min_size=1, max_size=4), min_size=1, max_size=20),
    st.lists(st.text(max_size=4), max_size=20),
)
def test_look_up_agrees_with_a_dictionary(keys: list[str], asked: list[str]) -> None:
    import unicodedata

    normal = list(dict.fromkeys(unicodedata.normalize("NFC", key) for key in keys))
    domain = KeyDomain.of_texts(normal)
    table = {key: i for i, key in enumerate(normal)}
    expected = [table.get(unicodedata.normalize("NFC", key), OUTSIDE) for key in asked]
    assert domain.index(pa.array(asked, pa.string())).tolist() == expected


def test_pickle_leaves_the_table_out() -> None:
    ranged = KeyDomain.of_count(1_000_000)
    assert len(pickle.dumps(ranged)) < 200
    listed = KeyDomain.of_texts([f"key-{i}" for i in range(1000)])
    before = len(pickle.dumps(listed))
    listed.index(pa.array(["key-1"]))
    assert len(pickle.dumps(listed)) == before
    clone = pickle.loads(pickle.dumps(listed))
    assert clone == listed
    assert hash(clone) == hash(listed)
    assert clone.index(pa.array(["key-999", "x"])).tolist() == [999, OUTSIDE]


def test_equality_and_digest_depend_on_order_and_text() -> None:
    assert KeyDomain.of_texts(["a", "b"]) != KeyDomain.of_texts(["b", "a"])
    assert KeyDomain.of_count(2) == KeyDomain.of_texts(["0", "1"])
    assert KeyDomain.of_count(2).digest() == KeyDomain.of_texts(["0", "1"]).digest()
    assert KeyDomain.of_texts(["ab", "c"]).digest() != KeyDomain.of_texts(["a", "bc"]).digest()
    assert KeyDomain.of_count(2) != "01"
    assert len(KeyDomain.of_count(2)) == 2
    assert "2 keys" in repr(KeyDomain.of_count(2))


# -- key files ------------------------------------------------------------------------------------------


def write(path: Path, data: bytes) -> Path:
    path.write_bytes(gzip.compress(data) if path.suffix == ".gz" else data)
    return path


@pytest.mark.parametrize("name", ["keys.csv", "keys.csv.gz", "KEYS.CSV"])
def test_key_files_are_text(tmp_path: Path, name: str) -> None:
    data = '\ufefflabel,key\n1,007\n2,NA\n,"a,b"\n4,"x\ny"\n5,1e3\n6,cafe\u0301\n'.encode()
    domain = KeyDomain.of_file(write(tmp_path / name, data))
    assert domain.texts().to_pylist() == ["007", "NA", "a,b", "x\ny", "1e3", "café"]


@pytest.mark.parametrize(
    ("data", "message"),
    [
        (b"", "is empty"),
        (b"name\na\n", "must have one column `key`"),
        (b"key,key\na,b\n", "must have one column `key`"),
        (b"keys\na\n", "Did you mean 'keys'"),
        (b"key\n", "holds no key"),
        (b"key,x\n,1\n", "number 1 is empty"),
        (b"key\na\na\n", "stands twice"),
        (b"key\n\xff\n", "cannot be read"),
        (b"key,x\na\n", "cannot be read"),
    ],
)
def test_bad_key_files(tmp_path: Path, data: bytes, message: str) -> None:
    path = write(tmp_path / "keys.csv", data)
    with pytest.raises(InputError, match=message) as caught:
        KeyDomain.of_file(path)
    assert "keys.csv" in str(caught.value)


def test_truncated_gzip(tmp_path: Path) -> None:
    path = tmp_path / "keys.csv.gz"
    path.write_bytes(gzip.compress(b"key\n" + bytes(range(97, 120)) * 50)[:-12])
    with pytest.raises(InputError, match="cannot be read"):
        KeyDomain.of_file(path)


def test_a_million_keys() -> None:
    domain = KeyDomain.of_count(1_000_000)
    listed = KeyDomain.of_texts(domain.texts())
    asked: Any = pa.array(np.arange(999_000, 1_001_000)).cast(pa.string())
    assert domain.index(asked).tolist() == listed.index(asked).tolist()
    assert domain.index(asked).max() == 999_999
