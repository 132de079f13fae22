"""Reports in windows, step by step, without an engine: what is counted and what is set aside."""

from dataclasses import replace
from itertools import chain
from types import SimpleNamespace

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st
from ldp_beam.errors import NotAvailableError
from ldp_beam.mechanisms import Reports, Secret
from ldp_beam.schemas.collection import Definition
from ldp_beam.schemas.event_windows import Windows
from ldp_beam.transforms.collection import Collection
from ldp_beam.transforms.count_windows import MALFORMED, MEMOISED, _Check
from ldp_beam.transforms.gate import GATE_KEY
from ldp_beam.transforms.slice_records import Clients, ReportSlices
from ldp_beam.transforms.window_parts import Part, add_parts, difference

FIXED = Windows(size=10, slide=10)
SLIDING = Windows(size=20, slide=10)


@pytest.fixture
def collection(define):
    return Collection.load(define(mechanism="pckv-grr"))


@pytest.fixture
def with_ids(define):
    return Collection.load(define("ids.toml", mechanism="pckv-grr", more="report_ids = true"))


def reports(collection, keys, signs=None, header=None, ids=None):
    keys = np.array(keys, dtype=np.int32)
    columns = [pa.array(keys), pa.array(np.ones(len(keys), np.int8) if signs is None else np.array(signs, np.int8))]
    if ids is not None:
        columns.append(pa.array([bytes([i]) * 16 for i in ids], pa.binary(16)))
    schema = collection.report_schema(header)
    return pa.RecordBatch.from_arrays(
        [column.cast(field.type) for column, field in zip(columns, schema, strict=True)], schema=schema
    )


def checked(collection, batch, windows=FIXED):
    """(batches that pass, [(reason, rows)])."""
    out = list(_Check(collection, windows).process(batch, timestamp=SimpleNamespace(micros=13_000_000)))
    passed = [one for one in out if isinstance(one, tuple)]
    assert all((key, time) == (GATE_KEY, 13) for key, (time, _) in passed)
    aside = [one.value for one in out if not isinstance(one, tuple)]
    return [batch for _, (_, batch) in passed], [(one.reason, one.rows, one.note) for one in aside]


def test_whole_reports_pass_as_they_are(collection):
    batch = reports(collection, [0, 1, 2])
    assert checked(collection, batch) == ([batch], [])


def test_what_no_client_sends_is_set_aside_and_the_others_pass(collection):
    passed, aside = checked(collection, reports(collection, [0, 99, 2, -1], [1, 1, 5, 1]))
    assert [batch.num_rows for batch in passed] == [1]
    assert [(reason, rows) for reason, rows, _ in aside] == [(MALFORMED, 3)]


def test_a_null_is_no_report(collection):
    schema = pa.schema([field.with_nullable(True) for field in collection.report_schema()])
    batch = pa.RecordBatch.from_arrays(
        [pa.array([0, None, 2], schema.field(0).type), pa.array([1, 1, None], schema.field(1).type)], schema=schema
    )
    passed, aside = checked(collection, batch)
    assert [one.num_rows for one in passed] == [1]
    assert [(reason, rows) for reason, rows, _ in aside] == [(MALFORMED, 2)]


def test_other_columns_and_another_definition_are_refused_with_the_reason(collection, define):
    passed, aside = checked(collection, pa.RecordBatch.from_pydict({"x": [1, 2]}))
    assert passed == []
    assert aside[0][:2] == (MALFORMED, 2)
    assert "x int64" in aside[0][2]
    other = Collection.load(define("other.toml", mechanism="pckv-grr", epsilon=3))
    passed, aside = checked(collection, reports(collection, [0], header=other.header("reports")))
    assert (passed, aside[0][:2]) == ([], (MALFORMED, 1))
    assert "fingerprint" in aside[0][2]


def test_memoised_reports_are_not_pooled(collection):
    header = collection.header("reports", memoised=True, window_start="2026-11-30T00:00:00Z", window_seconds=10)
    batch = reports(collection, [0, 1], header=header)
    assert len(checked(collection, batch, FIXED)[0]) == 1
    passed, aside = checked(collection, batch, SLIDING)
    assert (passed, aside[0][:2]) == ([], (MEMOISED, 2))
    assert "standard errors" in aside[0][2]


def part_of(collection, keys, **more):
    counts = collection.mechanism.count(_as_reports(keys)) if keys else None
    return Part(counts=counts, **({"slices": {0: len(keys)}} | more))


def _as_reports(keys):
    return Reports(n=len(keys), arrays={"key": np.array(keys, np.int32), "sign": np.ones(len(keys), np.int8)})


@given(st.lists(st.lists(st.integers(0, 2), min_size=1, max_size=5), min_size=1, max_size=6), st.randoms())
def test_parts_add_up_in_any_order_and_tree(keys, random):
    collection = Collection.of(_definition())
    parts = [part_of(collection, part, met=i) for i, part in enumerate(keys)]
    whole = add_parts(parts)
    shuffled = parts[:]
    random.shuffle(shuffled)
    cut = random.randint(0, len(parts))
    tree = add_parts([add_parts(shuffled[:cut]), add_parts(shuffled[cut:])])
    assert tree.counts.equals(whole.counts)
    together = list(chain.from_iterable(keys))
    assert whole.counts.equals(collection.mechanism.count(_as_reports(together)))
    assert (tree.slices, tree.met) == (whole.slices, whole.met) == ({0: len(together)}, len(keys) - 1)
    told = add_parts(shuffled[:cut])
    again = add_parts([told, difference(whole, told)])
    assert again.counts.equals(whole.counts)
    assert again == replace(whole, counts=again.counts)


def _definition():
    return Definition.from_text(
        'name="x"\nmechanism="pckv-grr"\nepsilon=2\npadding=1\n[keys]\ncount=3\n[values]\nrange=[-1,1]\n'
    )


def test_parts_are_not_changed_by_adding(collection):
    one, two = part_of(collection, [0, 1]), part_of(collection, [2])
    before = {name: cells.copy() for name, cells in one.counts.cells.items()}
    add_parts([one, two])
    assert all(np.array_equal(cells, before[name]) for name, cells in one.counts.cells.items())
    assert add_parts([]).counts is None


def test_rounds_are_refused(define):
    path = define("rounds.toml", mechanism="privkvm", padding="")
    path.write_text(
        path.read_text().replace("padding   = \n", "[privkv]\nrounds = 2\n").replace("\n\n[keys]", "\n[keys]")
    )
    collection = Collection.load(path)
    with pytest.raises(NotAvailableError, match="rounds"):
        ReportSlices(collection, Clients(secret=Secret.from_seed(1)), FIXED, tally_to="x")
