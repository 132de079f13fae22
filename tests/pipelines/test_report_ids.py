"""Reports with ids through the verbs: a repeated delivery is counted once, wherever it stands."""

import json

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from ldp_beam.transforms.collection import Collection
from ldp_beam.transforms.count_distinct import distinct_reports

IDS = "report_ids = true"


@pytest.fixture
def sent(define, nested, people, run_json, tmp_path):
    """A definition with ids and the file of 300 people's reports."""
    collection = define(more=IDS)
    run_json("perturb", "--collection", collection, "--input", nested(people(300)), "--output", tmp_path / "sent")
    return collection, next((tmp_path / "sent").glob("*.parquet"))


def aggregate(run_json, collection, inputs, output):
    manifest = run_json("aggregate", "--collection", collection, "--input", *inputs, "--output", output)
    return manifest["reports"], (output / "counts.parquet").read_bytes()


def test_every_report_has_an_id_of_its_own_and_the_file_says_nothing_of_the_order(sent):
    _, path = sent
    ids = pq.read_table(path)["report_id"]
    assert ids.type == pa.binary(16)
    assert len(set(ids.to_pylist())) == 300


def test_copies_in_the_same_and_in_another_file_are_counted_once(sent, run_json, tmp_path):
    collection, path = sent
    table = pq.read_table(path)
    once, counts = aggregate(run_json, collection, [path], tmp_path / "once")
    assert once == {"counted": 300, "malformed": 0, "unreadable": 0, "refused_files": 0}
    pq.write_table(pa.concat_tables([table.slice(0, 40), table.slice(10, 10)]), tmp_path / "again.parquet")
    found, repeated = aggregate(run_json, collection, [path, tmp_path / "again.parquet"], tmp_path / "twice")
    assert found == once | {"duplicate": 50}
    assert repeated == counts


def test_without_ids_nothing_is_claimed(define, nested, people, run_json, tmp_path):
    collection = define()
    run_json("perturb", "--collection", collection, "--input", nested(people(30)), "--output", tmp_path / "sent")
    path = next((tmp_path / "sent").glob("*.parquet"))
    table = pq.read_table(path)
    pq.write_table(pa.concat_tables([table, table]), path)
    found, _ = aggregate(run_json, collection, [path], tmp_path / "o")
    assert found["counted"] == 60
    assert "duplicate" not in found


def test_the_definition_with_ids_is_another_one(define):
    plain, with_ids = Collection.load(define("a.toml")), Collection.load(define("b.toml", more=IDS))
    assert plain.fingerprint != with_ids.fingerprint
    assert Collection.load(define("c.toml", more="report_ids = false")).fingerprint == plain.fingerprint
    assert with_ids.mechanism == plain.mechanism


@pytest.mark.parametrize("order", [(0, 1, 2), (2, 1, 0), (1, 0, 2)])
def test_of_several_contents_under_one_id_the_same_one_is_counted_in_any_order(sent, order):
    collection, path = sent
    one = Collection.load(collection)
    batch = pq.read_table(path).combine_chunks().to_batches()[0].replace_schema_metadata(None)
    different = batch.slice(0, 300).take(pa.array(np.unique(_packed(batch), return_index=True)[1][:3]))
    same_id = different.set_column(different.schema.get_field_index("report_id"), "report_id", _one_id(3))
    kept, left_out = distinct_reports(one.mechanism, same_id.cast(batch.schema).take(pa.array(order)))
    assert (kept.num_rows, left_out) == (1, 2)
    assert _packed(kept)[0] == min(_packed(different))


def test_a_malformed_report_does_not_displace_the_true_one_of_its_id(sent):
    collection, path = sent
    one = Collection.load(collection)
    batch = pq.read_table(path).combine_chunks().to_batches()[0].slice(0, 1).replace_schema_metadata(None)
    plus = batch.schema.field("plus")
    both = pa.array([b"\xff" * plus.type.byte_width], plus.type)  # bits beyond the last key
    impossible = pa.RecordBatch.from_arrays([both, *batch.columns[1:]], schema=batch.schema)
    kept, left_out = distinct_reports(one.mechanism, pa.concat_batches([impossible, batch]))
    assert (kept.num_rows, left_out) == (2, 0)


def _packed(batch):
    names = [name for name in batch.schema.names if name != "report_id"]
    return [b"".join(row[name] for name in names) for row in batch.to_pylist()]


def _one_id(n):
    return pa.array([b"i" * 16] * n, pa.binary(16))


def test_collect_keeps_reports_with_ids_that_aggregate_counts_alike(define, nested, people, run_json, tmp_path):
    collection = define(more=IDS)
    run_json(
        "collect", "--collection", collection, "--input", nested(people(100)), "--output", tmp_path / "a",
        "--keep-reports", tmp_path / "kept", "--period", "1", "--seed", "3",
    )  # fmt: skip
    files = sorted((tmp_path / "kept").glob("*.parquet"))
    found, _ = aggregate(run_json, collection, files, tmp_path / "b")
    assert found["counted"] == 100
    assert pq.read_table(tmp_path / "a" / "counts.parquet").equals(pq.read_table(tmp_path / "b" / "counts.parquet"))


def test_the_audit_of_a_collection_with_ids_covers_them(define, run_json):
    found = run_json("audit", "--collection", define(more=IDS))
    assert found["violations"] == []
    assert found["report"]["fields"]["report_id"] == 16


def test_a_wrong_word_is_refused(define, run):
    code, _, err = run("audit", "--collection", define(more='report_ids = "yes"'), "--json")
    assert code == 2
    assert "report_ids" in err
    assert "true or false" in err


@pytest.mark.parametrize("mechanism", ["pckv-grr", "grr"])
def test_avro_reports_carry_ids_too(mechanism, define, nested, people, run_json, tmp_path):
    collection = define(more=IDS)
    run_json(
        "perturb", "--collection", collection, "--input", nested(people(50)), "--output", tmp_path / "sent",
        "--format", "avro",
    )  # fmt: skip
    found, _ = aggregate(run_json, collection, list((tmp_path / "sent").glob("*.avro")), tmp_path / "o")
    assert json.dumps(found["counted"]) == "50"
