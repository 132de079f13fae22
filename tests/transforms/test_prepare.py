"""The rules for bad rows and pairs: nobody is left out because of her data, nothing vanishes uncounted."""

from __future__ import annotations

import math
from dataclasses import replace
from decimal import Decimal
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st
from ldp_beam.errors import InputError
from ldp_beam.mechanisms import VALUE_ONE, Records, Secret
from ldp_beam.schemas import Definition, Tally
from ldp_beam.schemas import tally as names
from ldp_beam.transforms.prepare import REJECTS_SCHEMA, PairRows, Preparer
from ldp_beam.transforms.record_files import RawBatch

USERS = Secret.from_seed(7).users()


def rules(values: str = "", *, keys: str = '["a", "b", "c", "zz"]', span: str = "[-1, 1]", **options: Any) -> Preparer:
    definition = Definition.from_text(
        'name = "c"\nmechanism = "pckv-grr"\nepsilon = 1\npadding = 1\n'
        f"[keys]\nlist = {keys}\n[values]\nrange = {span}\n{values}"
    )
    return Preparer(definition, USERS, **options)


def pairs(users: Any, keys: Any, values: Any, **more: Any) -> RawBatch:
    def column(data: Any) -> pa.Array:
        return data if isinstance(data, pa.Array) else pa.array(data)

    return RawBatch(
        path="f.csv",
        first_row=more.pop("first_row", 11),
        users=column(users),
        keys=column(keys),
        values=column(values),
        **more,
    )


def one_value(values: pa.Array) -> RawBatch:
    """One user a value, all with key a."""
    n = len(values)
    return pairs([f"u{i}" for i in range(n)], ["a"] * n, values)


# -- values ---------------------------------------------------------------------------------------------

NUMBERS = [float("nan"), float("inf"), float("-inf"), 1.0000001, -2.0, None, 0.5, 1.0, -1.0]
AS_TEXT = ["nan", "inf", "-Infinity", "1.0000001", "-2", None, "0.5", "1e0", " -1.00 "]


@pytest.mark.parametrize("column", [pa.array(NUMBERS), pa.array(AS_TEXT), pa.array(AS_TEXT).dictionary_encode()])
def test_drop_leaves_every_user_and_only_valid_values(column: pa.Array) -> None:
    rows, tally, rejects = rules().prepare_pairs(one_value(column))
    assert rows.n == 9
    assert rows.keys.tolist() == [-1] * 6 + [0] * 3
    assert rows.values is not None
    assert rows.values[6:].tolist() == [VALUE_ONE // 2, VALUE_ONE, -VALUE_ONE]
    assert [tally[name] for name in names.INVALID_REASONS] == [0, 1, 3, 2]
    assert tally[names.REJECTED_ROWS] == 6
    assert rejects is None


@pytest.mark.parametrize("column", [pa.array(NUMBERS), pa.array(AS_TEXT)])
def test_clip_moves_finite_values_only(column: pa.Array) -> None:
    rows, tally, _ = rules('outside = "clip"').prepare_pairs(one_value(column))
    assert rows.keys.tolist() == [-1, -1, -1, 0, 0, -1, 0, 0, 0]
    assert rows.values is not None
    assert rows.values[3:5].tolist() == [VALUE_ONE, -VALUE_ONE]
    assert tally[names.CLIPPED_VALUES] == 2
    assert [tally[name] for name in names.INVALID_REASONS] == [0, 1, 3, 0]
    assert tally[names.REJECTED_ROWS] == 4


@pytest.mark.parametrize(
    "text", ["", " ", "x", "1,5", "0x1", "1_0", "--1", "1e", "NaN", "1e999", "true", "½", "0.5 0.5", "None"]
)
def test_text_that_is_no_number_is_dropped(text: str) -> None:
    rows, tally, _ = rules().prepare_pairs(one_value(pa.array([text, "0.5"])))
    assert rows.keys.tolist() == [-1, 0]
    assert tally[names.NOT_A_NUMBER] == 1


@pytest.mark.parametrize(
    "column",
    [
        pa.array([1, 0], pa.int8()),
        pa.array([1, 0], pa.uint64()),
        pa.array([1.0, 0.0], pa.float32()),
        pa.array(np.array([1, 0], np.float16)),
        pa.array([Decimal("1.00"), Decimal(0)]),
        pa.array([Decimal("1.00"), Decimal(0)], pa.decimal256(50, 3)),
        pa.array(["1", "0"], pa.large_string()),
        pa.array(["1", "0"], pa.string_view()),
        pa.array([1.0, 0.0]).dictionary_encode(),
    ],
)
def test_every_type_of_number(column: pa.Array) -> None:
    rows, _, _ = rules().prepare_pairs(one_value(column))
    assert rows.values is not None
    assert rows.values.tolist() == [VALUE_ONE, 0]


@pytest.mark.parametrize(
    ("change", "column"),
    [
        ({"values": pa.array([True])}, "value"),
        ({"values": pa.array([1], pa.date32())}, "value"),
        ({"users": pa.array([True])}, "user_id"),
        ({"users": pa.array([1.0])}, "user_id"),
        ({"keys": pa.array([True])}, "key"),
        ({"keys": pa.array([1.0])}, "key"),
    ],
)
def test_types_that_no_column_may_have(change: dict[str, Any], column: str) -> None:
    batch = {"users": ["u"], "keys": ["a"], "values": [0.5]} | change
    with pytest.raises(InputError, match=rf"f\.csv: column '{column}' is of type"):
        rules().prepare_pairs(pairs(**batch))


def test_raw_units_become_fixed_point() -> None:
    rows, _, _ = rules(span="[1, 5]").prepare_pairs(one_value(pa.array([1, 2, 3, 5, 0, 6])))
    assert rows.values is not None
    assert rows.values[:4].tolist() == [-VALUE_ONE, -VALUE_ONE // 2, 0, VALUE_ONE]
    assert rows.keys.tolist() == [0, 0, 0, 0, -1, -1]


# -- keys and users -------------------------------------------------------------------------------------


def test_keys_outside_are_counted_and_appear_nowhere() -> None:
    batch = pairs(["u", "v", "w", None], ["secret", "secret", "a", "secret"], [0.5, math.nan, 9.0, 0.5])
    for strict in (False,):
        rows, tally, rejects = rules(strict=strict, keep_rejects=True).prepare_pairs(batch)
        assert tally[names.OUTSIDE_DOMAIN] == 2
        assert tally[names.REJECTED_ROWS] == 2
        assert rejects is not None
        for text in (repr(tally), str(rejects.to_pylist()), repr(rows)):
            assert "secret" not in text


def test_a_key_outside_is_no_fault_in_strict_mode() -> None:
    rows, tally, _ = rules(strict=True).prepare_pairs(pairs(["u", "v"], ["secret", "a"], [math.nan, 0.5]))
    assert rows.keys.tolist() == [-1, 0]
    assert tally[names.OUTSIDE_DOMAIN] == 1


def test_null_key_with_and_without_value() -> None:
    rows, tally, _ = rules().prepare_pairs(pairs(["u", "v", "w"], [None, None, "a"], [None, math.nan, 0.1]))
    assert rows.keys.tolist() == [-1, -1, 0]
    assert (tally[names.EMPTY_ROWS], tally[names.NULL_KEY]) == (1, 1)


def test_ids_are_text_and_not_normalised() -> None:
    def digests(users: Any) -> list[bytes]:
        column = pa.array(users) if isinstance(users, list) else users
        raw = pairs(column, ["a"] * len(column), [0.5] * len(column))
        return [row.tobytes() for row in rules().prepare_pairs(raw)[0].digests]

    texts = ["1", "-7", str(2**63 - 1), "0"]
    for kind in (pa.int64(), pa.large_string(), pa.string_view(), pa.dictionary(pa.int8(), pa.string())):
        assert digests(pa.array(texts).cast(kind)) == digests(texts)
    assert digests(pa.array([str(2**64 - 1)]).cast(pa.uint64())) == digests([str(2**64 - 1)])
    assert digests(pa.array(["x", *texts, "y"]).slice(1, 4)) == digests(texts)
    assert len(set(digests(["01", "1", "001", "1.0", "", " 1", "caf\u00e9", "cafe\u0301"]))) == 8


# -- strict mode and rejects ----------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("row", "message"),
    [
        ((None, "a", 0.5), "column 'user_id': the row has no user id"),
        (("u", None, 0.5), "column 'key': the row has a value but no key"),
        (("u", "a", None), "column 'value': the row has no value"),
        (("u", "a", math.nan), "column 'value': the row holds a value that is not a finite number"),
        (("u", "a", 1.5), "column 'value': the row holds a value outside the declared range"),
    ],
)
def test_strict_mode_names_file_column_row_and_remedy(row: tuple[Any, Any, Any], message: str) -> None:
    good = ("g", "a", 0.5)
    batch = pairs(*(pa.array(list(column)) for column in zip(good, good, row, good, strict=True)))
    with pytest.raises(InputError, match=rf"f\.csv, row 13, {message}\. Strict mode.*--strict") as caught:
        rules(strict=True).prepare_pairs(batch)
    assert "1.5" not in str(caught.value)
    _, tally, _ = rules().prepare_pairs(batch)
    assert tally[names.REJECTED_ROWS] == 1


def test_strict_mode_finds_the_row_of_a_nested_pair() -> None:
    batch = pairs([None, "v", "w"], ["a", "a", "b"], [0.5, 0.5, 7.0], offsets=np.array([0, 0, 1, 3]))
    with pytest.raises(InputError, match=r"row 11, column 'user_id'"):
        rules(strict=True).prepare_nested(batch)
    named = pairs(["u", "v", "w"], ["a", "a", "b"], [0.5, 0.5, 7.0], offsets=np.array([0, 0, 1, 3]))
    with pytest.raises(InputError, match=r"row 13, column 'value'"):
        rules(strict=True).prepare_nested(named)


def test_clean_rows_pass_strict_mode() -> None:
    rows, tally, _ = rules(strict=True).prepare_pairs(pairs(["u", "v"], ["a", None], [0.5, None]))
    assert rows.keys.tolist() == [0, -1]
    assert tally[names.REJECTED_ROWS] == 0


def test_rejects_hold_row_reason_and_raw_fields() -> None:
    batch = pairs(
        pa.array([None, "u", "v", "w", "x"]),
        ["a", "a", None, "b", "b"],
        pa.array(["0.5", "nope", "0.5", "7", "0"]),
        unreadable=(12,),
    )
    _, _, rejects = rules(keep_rejects=True).prepare_pairs(batch)
    assert rejects is not None
    assert rejects.schema == REJECTS_SCHEMA
    found = [tuple(row.values()) for row in rejects.to_pylist()]
    assert found == [
        ("f.csv", 12, names.UNREADABLE_ROWS, None, None, None),
        ("f.csv", 11, names.ROWS_WITHOUT_USER, None, None, None),
        ("f.csv", 13, names.NOT_A_NUMBER, "u", "a", "nope"),
        ("f.csv", 14, names.NULL_KEY, "v", None, "0.5"),
        ("f.csv", 15, names.OUTSIDE_RANGE, "w", "b", "7"),
    ]
    assert rules(keep_rejects=True).prepare_pairs(pairs(["u"], ["a"], [0.5]))[2] is None


# -- nested rows ----------------------------------------------------------------------------------------


def nested(items: list[list[tuple[Any, Any]]]) -> RawBatch:
    flat = [pair for row in items for pair in row]
    return pairs(
        [f"u{i}" for i in range(len(items))],
        pa.array([key for key, _ in flat], pa.string()),
        pa.array([value for _, value in flat], pa.float64()),
        offsets=np.concatenate([[0], np.cumsum([len(row) for row in items])]).astype(np.int64),
    )


def as_dicts(records: Records) -> dict[bytes, dict[int, int]]:
    assert records.values is not None
    result = {}
    for i in range(records.n):
        one = slice(records.offsets[i], records.offsets[i + 1])
        result[records.users[i].tobytes()] = dict(
            zip(records.keys[one].tolist(), records.values[one].tolist(), strict=True)
        )
    return result


def test_items_are_sorted_and_duplicates_averaged() -> None:
    batch = nested([[("zz", 0.5), ("a", 1.0), ("zz", 0.25)], [], [("b", 0.5)], [("x", 1.0)]])
    records, tally, _ = rules().prepare_nested(batch)
    assert records.offsets.tolist() == [0, 2, 2, 3, 3]
    assert records.keys.tolist() == [0, 3, 1]
    assert records.values is not None
    assert records.values.tolist() == [VALUE_ONE, VALUE_ONE * 3 // 8, VALUE_ONE // 2]
    assert tally == Tally(
        {
            names.ROWS_READ: 4,
            names.USERS: 4,
            names.EMPTY_ROWS: 1,
            names.PAIRS_READ: 5,
            names.KEPT_PAIRS: 3,
            names.DUPLICATE_PAIRS: 1,
            names.OUTSIDE_DOMAIN: 1,
        }
    )


def test_empty_batches() -> None:
    empty = pairs(pa.array([], pa.string()), pa.array([], pa.string()), pa.array([], pa.float64()))
    rows, tally, _ = rules().prepare_pairs(empty)
    assert (rows.n, tally) == (0, Tally())
    records, tally = rules().merge_pairs(rows)
    assert (records.n, tally) == (0, Tally())
    nothing = pairs(pa.nulls(2), pa.nulls(0), pa.nulls(0), offsets=np.zeros(3, np.int64))
    records, tally, _ = rules().prepare_nested(nothing)
    assert records.n == 0
    assert tally[names.ROWS_WITHOUT_USER] == 2


# -- properties -----------------------------------------------------------------------------------------

VALUE = st.one_of(
    st.none(), st.sampled_from([0.0, 1.0, -1.0, 1.5, math.nan, math.inf]), st.floats(-1, 1, allow_nan=False)
)
KEY = st.sampled_from(["a", "b", "c", "zz", "other", None])
USER = st.sampled_from(["u", "v", "w", "", None])
ROWS = st.lists(st.tuples(USER, KEY, VALUE), max_size=30)


def pair_batch(rows: list[tuple[Any, Any, Any]]) -> RawBatch:
    return pairs(
        pa.array([r[0] for r in rows], pa.string()),
        pa.array([r[1] for r in rows], pa.string()),
        pa.array([r[2] for r in rows], pa.float64()),
    )


def expected_records(rows: list[tuple[Any, Any, Any]]) -> dict[str, dict[int, int]]:
    """The rules again, one row at a time, with exact arithmetic."""
    held: dict[str, dict[int, list[int]]] = {}
    for user, key, value in rows:
        if user is None:
            continue
        mine = held.setdefault(user, {})
        valid = value is not None and -1 <= value <= 1
        if key in ("a", "b", "c", "zz") and valid:
            mine.setdefault(("a", "b", "c", "zz").index(key), []).append(round(value * VALUE_ONE))

    def mean(values: list[int]) -> int:
        from fractions import Fraction

        return round(Fraction(sum(values), len(values)))

    return {user: {key: mean(values) for key, values in mine.items()} for user, mine in held.items()}


def digest_of(user: str) -> bytes:
    data = np.frombuffer(user.encode(), np.uint8)
    return USERS.text(np.array([0, len(data)]), data)[0].tobytes()


@given(ROWS)
def test_pairs_agree_with_the_rules_one_by_one(rows: list[tuple[Any, Any, Any]]) -> None:
    prepared, tally, _ = rules().prepare_pairs(pair_batch(rows))
    records, merged = rules().merge_pairs(prepared)
    assert as_dicts(records) == {digest_of(user): pairs for user, pairs in expected_records(rows).items()}
    check_conservation(tally + merged, rows)


@given(ROWS)
def test_nested_rows_agree_with_pairs(rows: list[tuple[Any, Any, Any]]) -> None:
    by_user: dict[Any, list[tuple[Any, Any]]] = {}
    for user, key, value in rows:
        if user is not None:
            by_user.setdefault(user, []).append((key, value))
    batch = nested(list(by_user.values()))
    batch = pairs(list(by_user) or pa.array([], pa.string()), batch.keys, batch.values, offsets=batch.offsets)
    records, tally, _ = rules().prepare_nested(batch)
    assert as_dicts(records) == {digest_of(user): pairs for user, pairs in expected_records(rows).items()}
    assert tally[names.ROWS_READ] == tally[names.USERS] == len(by_user)
    exploded, more, _ = rules().prepare_pairs(batch)
    again, merged = rules().merge_pairs(exploded)
    assert as_dicts(again) == as_dicts(records)
    assert more + merged == tally


def check_conservation(tally: Tally, rows: list[tuple[Any, Any, Any]]) -> None:
    named = [row for row in rows if row[0] is not None]
    assert tally[names.ROWS_READ] == len(rows) == len(named) + tally[names.ROWS_WITHOUT_USER]
    assert tally[names.USERS] == len({row[0] for row in named})
    assert len(named) == tally[names.PAIRS_READ] + tally[names.EMPTY_ROWS]
    dropped = sum(tally[name] for name in names.INVALID_REASONS)
    assert tally[names.PAIRS_READ] == (
        tally[names.KEPT_PAIRS] + tally[names.DUPLICATE_PAIRS] + tally[names.OUTSIDE_DOMAIN] + dropped
    )
    assert tally[names.REJECTED_ROWS] == dropped + tally[names.ROWS_WITHOUT_USER]


@given(ROWS, st.randoms(use_true_random=False), st.integers(1, 5))
def test_any_order_and_batches_give_the_same_records(rows: list[Any], random: Any, size: int) -> None:
    def run(some: list[Any]) -> tuple[Records, Tally]:
        total, parts = Tally(), [np.empty(0, rules().row_dtype)]
        for start in range(0, len(some), size):
            prepared, tally, _ = rules().prepare_pairs(pair_batch(some[start : start + size]))
            parts.append(prepared.packed())
            total += tally
        records, tally = rules().merge_pairs(PairRows.unpacked(np.concatenate(parts)))
        return records, total + tally

    shuffled = rows.copy()
    random.shuffle(shuffled)
    (one, first), (two, second) = run(rows), run(shuffled)
    assert first == second
    for name in ("users", "offsets", "keys", "values"):
        assert np.array_equal(getattr(one, name), getattr(two, name))


# -- collections without values -------------------------------------------------------------------------


def without_values(**options: Any) -> Preparer:
    base = Definition.from_text(
        'name = "c"\nmechanism = "pckv-grr"\nepsilon = 1\npadding = 1\n'
        '[keys]\nlist = ["a", "b"]\n[values]\nrange = [0, 1]'
    )
    return Preparer(replace(base, values=None), USERS, **options)


def test_keys_alone() -> None:
    batch = RawBatch(
        path="f.csv", first_row=1, users=pa.array(["u", "u", "v", "w", "x"]), keys=pa.array(["b", "b", None, "q", "a"])
    )
    rows, tally, rejects = without_values(strict=True, keep_rejects=True).prepare_pairs(batch)
    assert rows.values is None
    assert rows.keys.tolist() == [1, 1, -1, -1, 0]
    assert (tally[names.EMPTY_ROWS], tally[names.OUTSIDE_DOMAIN], rejects) == (1, 1, None)
    records, merged = without_values().merge_pairs(rows)
    assert records.values is None
    assert (records.n, merged[names.DUPLICATE_PAIRS]) == (4, 1)
    nested_batch = replace(batch, users=pa.array(["u", "v"]), offsets=np.array([0, 3, 5]))
    records, tally, _ = without_values().prepare_nested(nested_batch)
    assert records.offsets.tolist() == [0, 1, 2]
    assert tally[names.NULL_KEY] == 1


def test_raw_data_do_not_show_in_messages() -> None:
    batch = pairs(["alice"], ["secret"], [0.123])
    rows, _, _ = rules().prepare_pairs(batch)
    for shown in (repr(batch), repr(rows), repr(rules())):
        assert not any(text in shown for text in ("alice", "secret", "0.123"))
