"""Tags from rows to canonical records, against a slow reference, in every order of rows."""

import itertools

import apache_beam as beam
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from apache_beam.runners.portability.fn_api_runner import FnApiRunner
from hypothesis import given
from hypothesis import strategies as st
from ldp_beam.errors import InputError
from ldp_beam.mechanisms import Records, Secret
from ldp_beam.schemas.collection import Definition
from ldp_beam.schemas.records import canonical_schema, nested_schema, pairs_schema
from ldp_beam.transforms import CollectEstimates
from ldp_beam.transforms.collection import Collection
from ldp_beam.transforms.in_memory import rows_to_batch
from ldp_beam.transforms.pair_rows import PairRows, row_dtype
from ldp_beam.transforms.prepare import Preparer
from ldp_beam.transforms.record_batches import batch_to_records, records_to_batch
from ldp_beam.transforms.record_files import RawBatch

DEFINITION = Definition.from_text("""
name = "t"
mechanism = "pum"
epsilon = 1
[keys]
list = ["a", "b", "c"]
[uldp]
sensitive = []
tags = ["x", "7"]
""")
USERS = Secret.from_seed(1).users()
KEYS, TAGS = ["a", "b", "c"], ["x", "7"]


def rules(**options):
    return Preparer(DEFINITION, USERS, **options)


def raw(rows, offsets=None):
    users, keys, tags = zip(*rows, strict=True) if rows else ((), (), ())
    if offsets is not None:
        users = users[: len(offsets) - 1]
    return RawBatch(
        path="r.csv",
        first_row=1,
        users=pa.array(users, pa.string()),
        keys=pa.array(keys, pa.string()),
        tags=pa.array(tags, pa.string()),
        offsets=None if offsets is None else np.array(offsets, np.int64),
    )


def tag_index(tag):
    return 0 if tag is None else TAGS.index(tag) + 1 if tag in TAGS else -1


def strongest(tags):
    """Of several tags the first named one; one that is unknown before none."""
    named = [tag for tag in tags if tag > 0]
    return min(named) if named else min(tags)


def reference(rows, table):
    """{user digest: {key: tag}} one by one."""
    held = {}
    for user, key, tag in rows:
        mine = held.setdefault(user, {})
        if key in KEYS:
            mine.setdefault(KEYS.index(key), []).append(tag_index(tag))
    for user, key, tag in table:
        if user in held and key in KEYS and KEYS.index(key) in held[user]:
            held[user][KEYS.index(key)].append(tag_index(tag) or -1)
    digests = {user: USERS.text(np.array([0, len(user)]), np.frombuffer(user.encode(), np.uint8))[0] for user in held}
    return {
        digests[user].tobytes(): {key: strongest(tags) for key, tags in mine.items()} for user, mine in held.items()
    }


def as_mapping(records):
    bounds = records.offsets.tolist()
    return {
        records.users[i].tobytes(): dict(
            zip(records.keys[start:stop].tolist(), records.tags[start:stop].tolist(), strict=True)
        )
        for i, (start, stop) in enumerate(itertools.pairwise(bounds))
    }


ROW = st.tuples(
    st.sampled_from(["u", "v", "w"]), st.sampled_from([*KEYS, "z", None]), st.sampled_from([*TAGS, "?", None])
)


@given(rows=st.lists(ROW, max_size=12), table=st.lists(ROW, max_size=8), seed=st.integers(0, 99))
def test_rows_and_table_meet_as_in_the_reference(rows, table, seed):
    preparer = rules(sensitive_table=True)
    parts = [preparer.prepare_pairs(raw(rows))[0].packed(), preparer.prepare_table(raw(table))[0].packed()]
    packed = np.concatenate(parts)
    packed = packed[np.random.default_rng(seed).permutation(len(packed))]
    records, tally = preparer.merge_pairs(PairRows.unpacked(packed))
    assert as_mapping(records) == reference(rows, table)
    assert tally["users"] == records.n
    assert tally["pairs_kept"] + tally["duplicate_pairs"] == sum(key in KEYS for _, key, _ in rows)


@given(people=st.lists(st.lists(st.tuples(st.sampled_from(KEYS), st.sampled_from([*TAGS, "?", None])), max_size=5)))
def test_nested_rows_are_as_in_the_reference(people):
    items = [(f"u{i}", key, tag) for i, held in enumerate(people) for key, tag in held]
    offsets = np.cumsum([0, *(len(held) for held in people)]).astype(np.int64)
    batch = RawBatch(
        path="r",
        first_row=1,
        users=pa.array([f"u{i}" for i in range(len(people))], pa.string()),
        keys=pa.array([key for _, key, _ in items], pa.string()),
        tags=pa.array([tag for *_, tag in items], pa.string()),
        offsets=offsets,
    )
    records, tally, _ = rules().prepare_nested(batch)
    expected = reference([*items, *((f"u{i}", None, None) for i in range(len(people)))], [])
    assert as_mapping(records) == expected
    assert tally["unknown_tags"] == sum(tag == "?" for *_, tag in items)


def test_integers_are_tags_by_their_text():
    batch = RawBatch(path="r", first_row=1, users=pa.array(["u"]), keys=pa.array(["a"]), tags=pa.array([7], pa.int64()))
    assert rules().prepare_pairs(batch)[0].tags.tolist() == [2]


def test_a_collection_with_tags_does_not_take_rows_without():
    batch = RawBatch(path="r.csv", first_row=1, users=pa.array(["u"]), keys=pa.array(["a"]))
    with pytest.raises(InputError, match=r"r\.csv has no tags"):
        rules().prepare_pairs(batch)
    assert rules(sensitive_table=True).prepare_pairs(batch)[0].tags.tolist() == [0]


def test_a_table_needs_a_collection_with_tags():
    plain = Definition.from_text('name = "t"\nmechanism = "grr"\nepsilon = 1\n[keys]\ncount = 3\n')
    with pytest.raises(InputError, match="no tags"):
        Preparer(plain, USERS, sensitive_table=True).prepare_table(raw([]))


def test_rows_of_a_table_that_speak_of_nothing_are_counted():
    rows, tally = rules().prepare_table(raw([(None, "a", "x"), ("u", None, "x"), ("u", "z", "x"), ("u", "a", "x")]))
    assert rows.n == 1
    assert dict(tally) == {"sensitive_rows_read": 4, "sensitive_rows_unusable": 3}


@pytest.mark.parametrize("faulty", [(None, "a", "x"), ("u", None, "x"), ("u", "a", "?"), ("u", "a", None)])
def test_strict_mode_names_the_row_of_the_table(faulty):
    batch = raw([("u", "b", "x"), ("v", "z", "x"), faulty])
    if faulty[2] is None:  # sensitive without a reason is no fault
        assert rules(strict=True).prepare_table(batch)[0].n == 2
        return
    with pytest.raises(InputError, match=r"r\.csv, row 3"):
        rules(strict=True).prepare_table(batch)


def test_record_batches_carry_tags():
    records = Records(
        users=USERS.integers(np.arange(3)),
        offsets=np.array([0, 2, 2, 3]),
        keys=np.array([0, 2, 1], np.int32),
        tags=np.array([0, -1, 2], np.int16),
    )
    batch = records_to_batch(records)
    assert batch.schema == canonical_schema(has_values=False, has_tags=True)
    assert batch_to_records(batch).tags.tolist() == [0, -1, 2]
    assert batch_to_records(batch.slice(1, 2)).tags.tolist() == [2]
    without = Records(users=records.users, offsets=records.offsets, keys=records.keys)
    assert batch_to_records(records_to_batch(without)).tags is None


def test_layouts_without_tags_are_as_before():
    assert row_dtype(has_values=True, with_times=False).itemsize == 28
    assert row_dtype(has_values=False, with_times=False, has_tags=True).itemsize == 22
    assert "tag" not in str(canonical_schema(has_values=True))
    for schema in (nested_schema, pairs_schema):
        assert "tag" not in str(schema())
        assert "tag: string" in str(schema(has_tags=True))


# -- records of one's own pipeline ------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "items",
    [
        {"a": "x", "b": None},
        [("a", "x"), ("b", None)],
        [{"key": "a", "tag": "x"}, {"key": "b", "tag": None}],
    ],
    ids=["mapping", "pairs", "mappings"],
)
def test_python_records_carry_tags(items):
    batch = rows_to_batch([("u", items), ("v", [])], has_values=False, has_tags=True)
    assert batch["items"].to_pylist() == [[{"key": "a", "tag": "x"}, {"key": "b", "tag": None}], []]


@pytest.mark.parametrize("items", [["a"], [{"key": "a"}], [("a",)]], ids=str)
def test_python_records_must_not_forget_their_tags(items):
    with pytest.raises(InputError, match=r"\(key, tag\)"):
        rows_to_batch([("u", items)], has_values=False, has_tags=True)


def test_tags_reach_the_reports_of_a_pipeline(tmp_path):
    """At epsilon 20 next to nothing is changed: 300 people at "b" of whom 100 say so."""
    definition = Definition.from_text("""
name = "t"
mechanism = "pum"
epsilon = 20
[keys]
list = ["a", "b", "c"]
[uldp]
sensitive = []
tags = ["x"]
background = [["x", "c", 1]]
""")
    people = [(f"u{i}", {"b": "x" if i % 3 else None}) for i in range(300)]
    with beam.Pipeline(runner=FnApiRunner()) as p:
        estimates = p | beam.Create(people) | CollectEstimates(Collection.of(definition), Secret.new())
        _ = estimates | beam.Map(lambda batch, path: pq.write_table(pa.table(batch), path), str(tmp_path / "e.parquet"))
    supports = pq.read_table(tmp_path / "e.parquet")["supports"].to_pylist()
    assert supports == pytest.approx([0, 100, 0], abs=3)
