"""Avro records decoded many at a time are what fastavro decodes one by one, and damage is told in its words."""

from __future__ import annotations

import io
import json
from datetime import UTC, datetime, timedelta
from typing import Any

import fastavro
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from ldp_beam.transforms import avro_blocks
from ldp_beam.transforms.avro_blocks import AvroBlocks
from ldp_beam.transforms.avro_columns import arrow_schema
from ldp_beam.transforms.avro_lanes import Irregular
from ldp_beam.transforms.avro_plan import Plan, Wanted, plan_of

NESTED = Wanted(("user_id", "items"), "items", ("key", "value"))
PAIRS = Wanted(("user_id", "key", "value"))


def written(schema: Any, rows: list[Any], *, codec: str = "null", sync: int = 200) -> bytes:
    file = io.BytesIO()
    fastavro.writer(file, schema, rows, codec=codec, sync_interval=sync)
    return file.getvalue()


def table(data: bytes, wanted: Wanted, *, slow: bool = False, batch_rows: int = 50) -> pa.Table:
    blocks = AvroBlocks(io.BytesIO(data), wanted)
    if slow:
        blocks._plan = None
    batches = list(blocks.batches(batch_rows))
    assert all(0 < batch.num_rows <= batch_rows for batch in batches)
    return pa.Table.from_batches(batches) if batches else pa.table({})


def is_fast(schema: Any, wanted: Wanted) -> bool:
    parsed = fastavro.parse_schema(schema)
    return plan_of(parsed, arrow_schema(parsed), wanted) is not None


@pytest.fixture
def only_fast(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let no group be handed to fastavro."""

    def refuse(*_: Any) -> None:
        raise AssertionError("this was left to fastavro")

    monkeypatch.setattr(AvroBlocks, "_one_by_one", refuse)


def record(name: str, **fields: Any) -> dict[str, Any]:
    return {"type": "record", "name": name, "fields": [{"name": n, "type": t} for n, t in fields.items()]}


# -- any schema of the usual kinds, any records ---------------------------------------------------------------

TEXT = st.text(st.characters(codec="utf-8"), max_size=12)
LONG = st.integers(-(2**63), 2**63 - 1) | st.integers(-200, 200)
FLOAT = st.floats(allow_nan=False, width=32)
#: Types of columns that may be wanted, and their values.
SIMPLE: list[tuple[Any, Any]] = [
    ("string", TEXT),
    ("long", LONG),
    ("int", st.integers(-(2**31), 2**31 - 1)),
    ("double", st.floats(allow_nan=False)),
    ("float", FLOAT),
    ({"type": "string", "avro.java.string": "String"}, TEXT),
    ({"type": "long", "logicalType": "timestamp-micros"}, st.datetimes(timezones=st.just(UTC))),
]
#: Types that are only passed over.
OTHER: list[tuple[Any, Any]] = [
    ("boolean", st.booleans()),
    ("bytes", st.binary(max_size=9)),
    ("null", st.none()),
    ({"type": "array", "items": ["string", "null"]}, st.lists(TEXT | st.none(), max_size=3)),
    ({"type": "array", "items": {"type": "array", "items": "long"}}, st.lists(st.lists(LONG, max_size=3), max_size=3)),
]


@st.composite
def files(draw: st.DrawFn) -> tuple[bytes, Wanted]:
    """A file in blocks of any size, and columns of it."""
    named = iter(range(1000))

    def named_type() -> tuple[Any, Any]:
        name = f"N{next(named)}"
        kind = draw(st.sampled_from(["enum", "fixed", "record"]))
        if kind == "enum":
            return {"type": "enum", "name": name, "symbols": ["A", "B"]}, st.sampled_from(["A", "B"])
        if kind == "fixed":
            return {"type": "fixed", "name": name, "size": 3}, st.binary(min_size=3, max_size=3)
        return record(name, a="string", b=["null", "double"]), st.fixed_dictionaries(
            {"a": TEXT, "b": st.none() | FLOAT}
        )

    def column(simple: bool) -> tuple[Any, Any]:
        type_, values = (
            draw(st.sampled_from(SIMPLE)) if simple else draw(st.sampled_from([*OTHER, None])) or named_type()
        )
        if type_ == "null":
            return type_, values
        union = draw(st.sampled_from([None, ["null", type_], [type_, "null"]]))
        return (type_, values) if union is None else (union, values | st.none())

    def fields(wanted: list[str]) -> tuple[dict[str, Any], Any]:
        kinds = {name: column(True) for name in wanted}
        kinds |= {f"other{i}": column(False) for i in range(draw(st.integers(0, 2)))}
        order = draw(st.permutations(list(kinds)))
        return {n: kinds[n][0] for n in order}, {n: kinds[n][1] for n in order}

    nested = draw(st.booleans())
    types, values = fields(["user_id"] if nested else ["user_id", "key", "value"])
    if nested:
        inner, held = fields(["key", "value"])
        item: Any = st.fixed_dictionaries(held)
        type_: Any = record("Item", **inner)
        if draw(st.booleans()):
            type_, item = ["null", type_], st.none() | item
        types["items"], values["items"] = {"type": "array", "items": type_}, st.lists(item, max_size=4)
        if draw(st.booleans()):
            types["items"], values["items"] = [types["items"], "null"], values["items"] | st.none()
    rows = draw(st.lists(st.fixed_dictionaries(values), max_size=40))
    sync, codec = draw(st.sampled_from([1, 60, 10_000])), draw(st.sampled_from(["null", "deflate"]))
    return written(record("R", **types), rows, sync=sync, codec=codec), NESTED if nested else PAIRS


@settings(max_examples=150, deadline=None)
@given(files())
def test_equal_to_fastavro(given_: tuple[bytes, Wanted]) -> None:
    data, wanted = given_
    slow, fast = table(data, wanted, slow=True), table(data, wanted)
    assert fast.equals(slow)
    parsed = fastavro.block_reader(io.BytesIO(data)).writer_schema
    assert plan_of(parsed, arrow_schema(parsed), wanted) is not None
    fast.validate(full=True)


@settings(max_examples=150, deadline=None)
@given(files(), st.data())
def test_damage_is_what_fastavro_says_it_is(given_: tuple[bytes, Wanted], data: st.DataObject) -> None:
    content, wanted = given_
    broken = bytearray(content)
    for _ in range(data.draw(st.integers(1, 3))):
        broken[data.draw(st.integers(0, len(content) - 1))] = data.draw(st.integers(0, 255))
    if data.draw(st.booleans()):
        del broken[data.draw(st.integers(0, len(content) - 1)) :]
    assert outcome(bytes(broken), wanted, slow=False) == outcome(bytes(broken), wanted, slow=True)


def outcome(data: bytes, wanted: Wanted, *, slow: bool) -> tuple[Any, ...]:
    """Return the rows that come out before the damage, its block and its message."""
    blocks: AvroBlocks | None = None
    rows: list[str] = []
    try:
        blocks = AvroBlocks(io.BytesIO(data), wanted)
        if slow:
            blocks._plan = None
        for batch in blocks.batches(1):
            rows += map(str, batch.to_pylist())  # by text, since NaN is not itself
    except MemoryError:
        return ("too large",)
    except Exception as error:
        return rows, blocks and blocks.read, type(error), str(error)
    return rows, blocks.read


# -- shapes of blocks -----------------------------------------------------------------------------------------

SCHEMA = record(
    "n.s.User",
    user_id="string",
    items={"type": "array", "items": record("Item", key=["null", "string"], value="double")},
)


def people(n: int, *, items: int = 3) -> list[dict[str, Any]]:
    return [
        {"user_id": f"u{i}", "items": [{"key": f"k{j}" if j else None, "value": i / 7} for j in range(i % (items + 1))]}
        for i in range(n)
    ]


@pytest.mark.parametrize("codec", ["null", "deflate"])
@pytest.mark.parametrize(("n", "sync"), [(0, 100), (1, 100), (5000, 100), (5000, 2000)])
@pytest.mark.usefixtures("only_fast")
def test_blocks_of_any_size(codec: str, n: int, sync: int) -> None:
    rows = people(n)
    found = table(written(SCHEMA, rows, codec=codec, sync=sync), NESTED, batch_rows=1000)
    assert found.to_pylist() == rows


def test_groups_end_anywhere(monkeypatch: pytest.MonkeyPatch) -> None:
    rows = people(300)
    data = written(SCHEMA, rows, sync=100)
    for bytes_, blocks in ((1, 1024), (777, 1024), (1 << 20, 1), (1 << 20, 7)):
        monkeypatch.setattr(avro_blocks, "_GROUP_BYTES", bytes_)
        monkeypatch.setattr(avro_blocks, "_GROUP_BLOCKS", blocks)
        assert table(data, NESTED).to_pylist() == rows


@pytest.mark.usefixtures("only_fast")
def test_lists_in_several_blocks_with_and_without_their_size() -> None:
    """Other writers cut a list into blocks, and may say how many bytes each takes."""
    item = b"\x02\x02k" + bytes(8)  # the key "k" and the value 0
    lists = [b"\x02" + item + b"\x02" + item + b"\0", b"\x03\x16" + 2 * item + b"\x02" + item + b"\0", b"\0"]
    lists[1] = b"\x03\x2c" + lists[1][2:]
    rows = [b"\x02u" + one for one in lists]
    data = with_blocks(SCHEMA, [(3, b"".join(rows)), (1, rows[1])])
    pair = {"key": "k", "value": 0.0}
    expected = [2 * [pair], 3 * [pair], [], 3 * [pair]]
    assert table(data, NESTED).to_pylist() == [{"user_id": "u", "items": items} for items in expected]


def with_blocks(schema: Any, blocks: list[tuple[int, bytes]]) -> bytes:
    """Return a file with blocks as they are given: number of records, bytes."""
    file = io.BytesIO()
    fastavro.writer(file, schema, [])
    sync = file.getvalue()[-16:]
    for n, content in blocks:
        for number in (n, len(content)):
            fastavro.schemaless_writer(file, "long", number)
        file.write(content + sync)
    return file.getvalue()


@pytest.mark.parametrize("value", [0, -1, 2**7, 2**55 - 1, 2**55, 2**62, 2**63 - 1, -(2**63)])
@pytest.mark.usefixtures("only_fast")
def test_integers_of_every_length(value: int) -> None:
    schema = record("R", user_id="long", key="long", value="double")
    rows = [{"user_id": value, "key": value // 3, "value": 0.5}] * 3
    assert table(written(schema, rows), PAIRS).to_pylist() == rows


@pytest.mark.usefixtures("only_fast")
def test_times_and_symbols() -> None:
    millis = {"type": "long", "logicalType": "timestamp-millis"}
    kind = {"type": "enum", "name": "K", "symbols": ["a", "b"]}
    schema = record("R", user_id="string", key=["null", kind], timestamp=millis)
    time = datetime(2026, 1, 2, tzinfo=UTC)
    rows = [{"user_id": "u", "key": "ab"[i % 2], "timestamp": time + timedelta(hours=i)} for i in range(5)]
    rows.append({"user_id": "v", "key": None, "timestamp": time})
    assert table(written(schema, rows), Wanted(("user_id", "key", "timestamp"))).to_pylist() == rows


# -- what is left to fastavro ---------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "kind",
    [
        ["null", "int", "double"],
        ["null", "string", "double"],
        ["double"],
        {"type": "map", "values": "long"},
        {"type": "bytes", "logicalType": "decimal", "precision": 9, "scale": 2},
        {"type": "string", "logicalType": "uuid"},
        {"type": "long", "logicalType": "time-micros"},
        record("Other", again=["null", "Other"]),
    ],
    ids=json.dumps,
)
def test_other_schemas_are_left_to_fastavro(kind: Any) -> None:
    assert is_fast(record("R", user_id="string", key="string", value="double", other="double"), PAIRS)
    assert not is_fast(record("R", user_id="string", key="string", value="double", other=kind), PAIRS)


def test_blocks_too_unequal_to_be_read_side_by_side_are_left_to_fastavro(monkeypatch: pytest.MonkeyPatch) -> None:
    rows = people(3)
    rows[1]["items"] = [{"key": "k", "value": 0.5}] * 20_000
    left = []
    decode = Plan.decode

    def watched(*given: Any) -> Any:
        try:
            return decode(*given)
        except Irregular as error:
            left.append(str(error))
            raise

    monkeypatch.setattr(Plan, "decode", watched)
    assert table(written(SCHEMA, rows, sync=1), NESTED).to_pylist() == rows
    assert left == ["too few blocks with something to read at a time"]


@pytest.mark.parametrize("where", ["user_id", "other"])
def test_a_text_that_is_not_utf8_is_refused_wherever_it_stands(where: str) -> None:
    data = written(
        record("R", user_id="string", key="string", value="double", other="string"),
        [{"user_id": "user", "key": "k", "value": 1.0, "other": "more"}],
    )
    broken = data.replace({"user_id": b"user", "other": b"more"}[where], b"\xff\xfe\xff\xff", 2)
    with pytest.raises(UnicodeDecodeError):
        table(broken, PAIRS)
