"""Rows of one user come together alike through files and through the shuffle of a cluster."""

import itertools
import pickle
import uuid
from pathlib import Path

import apache_beam as beam
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from apache_beam.runners.portability.fn_api_runner import FnApiRunner
from ldp_beam.mechanisms import Secret
from ldp_beam.transforms import inputs as inputs_module
from ldp_beam.transforms import regroup
from ldp_beam.transforms.collection import Collection
from ldp_beam.transforms.inputs import inspect_records, slices
from ldp_beam.transforms.prepare import Preparer
from ldp_beam.transforms.record_batches import batch_to_records
from ldp_beam.transforms.records import ReadRecords


@pytest.fixture
def pairs(tmp_path):
    """A file of pairs whose users stand in several of its row groups."""
    n = 3000
    table = pa.table(
        {
            "user_id": [f"u{i % 700}" for i in range(n)],
            "key": [None if i % 11 == 0 else ("apple", "banana", "cherry")[i % 3] for i in range(n)],
            "value": [None if i % 11 == 0 else (i % 17 - 8) / 8 for i in range(n)],
        }
    )
    pq.write_table(table, tmp_path / "pairs.parquet", row_group_size=250)
    return tmp_path / "pairs.parquet"


def canonical(path, definition, spill, folder):
    """Every user's canonical record, read with several slices."""
    folder.mkdir()
    collection = Collection.load(definition)
    checked = inspect_records([str(path)], has_values=True)
    preparer = Preparer(collection.definition, Secret.from_seed(1).users())
    with beam.Pipeline(runner=FnApiRunner()) as p:
        parts = p | beam.Create(slices(checked), reshuffle=False) | beam.Reshuffle()
        records, _ = parts | ReadRecords(preparer, checked, spill=spill)
        records | beam.Map(keep, str(folder)).with_output_types(int)
    found = {}
    for file in folder.iterdir():
        for user, record in pickle.loads(file.read_bytes()):
            assert user not in found
            found[user] = record
    return found


def keep(batch, folder):
    """Write the records of a batch to a file: what a worker keeps in memory is a copy."""
    records = batch_to_records(batch)
    ends = records.offsets.tolist()
    rows = [
        (records.users[i].tobytes(), (records.keys[a:b].tolist(), records.values[a:b].tolist()))
        for i, (a, b) in enumerate(itertools.pairwise(ends))
    ]
    Path(folder, uuid.uuid4().hex).write_bytes(pickle.dumps(rows))
    return batch.num_rows


@pytest.mark.parametrize("gathered", [100, 1 << 21])
def test_files_and_the_shuffle_give_the_same_records(gathered, pairs, define, tmp_path, monkeypatch):
    monkeypatch.setattr(inputs_module, "_SLICE_ROWS", 500)
    monkeypatch.setattr(regroup, "_GATHERED_ROWS", gathered)
    spill = tmp_path / "spill"
    spill.mkdir()
    by_files = canonical(pairs, define(), str(spill), tmp_path / "files")
    assert len(by_files) == 700
    assert canonical(pairs, define(), None, tmp_path / "shuffled") == by_files


def test_what_crosses_the_shuffle_is_28_bytes_a_row_and_no_text(define):
    collection = Collection.load(define())
    preparer = Preparer(collection.definition, Secret.from_seed(1).users())
    assert preparer.row_dtype.itemsize == 28
    assert set(preparer.row_dtype.names) == {"digest", "key", "value"}
