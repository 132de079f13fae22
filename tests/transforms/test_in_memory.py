"""The public transforms in somebody's own pipeline: every form of a record, both halves, and what is refused."""

import pickle
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from types import SimpleNamespace

import apache_beam as beam
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from apache_beam.runners.portability.fn_api_runner import FnApiRunner
from apache_beam.testing.util import assert_that
from apache_beam.transforms.window import FixedWindows, TimestampedValue
from ldp_beam.errors import InputError
from ldp_beam.transforms import (
    CollectEstimates,
    Collection,
    Columns,
    EstimateReports,
    EstimatesToRows,
    PrepareRecords,
    RecordsToReports,
    Secret,
)
from ldp_beam.transforms.in_memory import rows_to_batch
from ldp_beam.transforms.record_batches import batch_to_records

PEOPLE = [(f"user-{i}", {"apple": 0.5, "banana": -1.0} if i % 3 else {}) for i in range(900)]
SECRET = Secret.from_seed(5)


def collected(records, transform):
    """What a transform makes of records, as Python objects; rows become plain namespaces."""
    with tempfile.TemporaryDirectory() as folder:
        with beam.Pipeline(runner=FnApiRunner()) as p:
            _ = p | beam.Create(records) | transform | beam.Map(_keep, folder)
        return [pickle.loads(path.read_bytes()) for path in sorted(Path(folder).iterdir())]


def _keep(element, folder):
    if isinstance(element, beam.Row):
        element = SimpleNamespace(**element._asdict())
    Path(folder, f"{time.monotonic_ns():020}").write_bytes(pickle.dumps(element))


def forms(people):
    yield "mappings", people
    yield "pairs", [(user, list(held.items())) for user, held in people]
    rows = [{"user_id": u, "items": [{"key": k, "value": v} for k, v in h.items()]} for u, h in people]
    yield "records", rows
    yield "beam rows", [beam.Row(user_id=r["user_id"], items=[beam.Row(**i) for i in r["items"]]) for r in rows]
    yield "batches", [rows_to_batch(people[start : start + 300], has_values=True) for start in range(0, 900, 300)]


@pytest.mark.parametrize(("form", "records"), list(forms(PEOPLE)), ids=lambda x: x if isinstance(x, str) else "")
def test_every_form_of_a_record_gives_the_same_estimates(define, form, records):
    collection = Collection.load(define())
    (batch,) = collected(records, CollectEstimates(collection, SECRET))
    (expected,) = collected(PEOPLE, CollectEstimates(collection, SECRET))
    assert batch.equals(expected)
    assert batch["n"].to_pylist() == [900] * 3
    frame = batch.to_pandas()
    assert list(frame["key"]) == ["apple", "banana", "cherry"]
    assert abs(frame["frequency_raw"][0] - 2 / 3) < 7 * frame["frequency_se"][0]


def test_it_equals_the_command_line(define, nested, run_json, tmp_path):
    path = nested([(user, list(held.items())) for user, held in PEOPLE])
    run_json("collect", "--collection", define(), "--input", path, "--output", tmp_path / "out", "--seed", 5)
    table = pq.read_table(tmp_path / "out" / "estimates.parquet")
    (batch,) = collected(PEOPLE, CollectEstimates(Collection.load(define()), SECRET))
    assert table.replace_schema_metadata(None).equals(pa.Table.from_batches([batch]).replace_schema_metadata(None))


def test_the_halves_together_are_the_whole(define):
    collection = Collection.load(define())
    reports = collected(PEOPLE, RecordsToReports(collection, SECRET))
    (halves,) = collected(reports, EstimateReports(collection, private=False))
    (whole,) = collected(PEOPLE, CollectEstimates(collection, SECRET))
    assert halves.equals(whole)


def test_rows_hold_one_key_each(define):
    collection = Collection.load(define())
    rows = collected(PEOPLE, CollectEstimates(collection, SECRET) | EstimatesToRows(collection))
    assert [row.key for row in rows] == ["apple", "banana", "cherry"]
    assert all(isinstance(row.flags, str) for row in rows)


def test_integer_ids_and_other_names(define):
    collection = Collection.load(define())
    rows = [{"who": i, "has": [{"what": "apple", "much": 1}]} for i in range(50)]
    columns = Columns(user="who", items="has", key="what", value="much")
    (batch,) = collected(rows, PrepareRecords(collection, SECRET, columns=columns))
    (other,) = collected([(str(i), {"apple": 1.0}) for i in range(50)], PrepareRecords(collection, SECRET))
    assert np.array_equal(batch_to_records(batch).users, batch_to_records(other).users)


def test_invalid_pairs_are_dropped_and_counted_and_their_user_stays(define):
    collection = Collection.load(define())
    p = beam.Pipeline(runner=FnApiRunner())
    people = [("a", {"apple": 9.0}), ("b", {"plum": 0.0}), ("c", {"apple": None}), ("d", None)]
    batches = p | beam.Create(people) | PrepareRecords(collection, SECRET)
    assert_that(batches, lambda found: sum(b.num_rows for b in found) == 4 or pytest.fail(str(found)))
    done = p.run()
    done.wait_until_finish()
    counters = {m.key.metric.name: m.committed for m in done.metrics().query()["counters"]}
    assert counters["outside_the_range"] == counters["outside_the_domain"] == counters["null_value"] == 1
    assert counters["users"] == 4


@pytest.mark.parametrize(
    ("record", "part"),
    [
        ("ann", "must be a pair"),
        (("ann", [("apple", 1.0, 2)]), "must be a pair \\(key, value\\)"),
        ((1.5, {"apple": 1.0}), "user_id"),
        (pa.RecordBatch.from_pydict({"user_id": ["a"], "key": ["apple"], "value": [1.0]}), "one pair a row"),
    ],
)
def test_other_forms_are_refused_without_showing_them(define, record, part):
    with pytest.raises(Exception, match=part) as caught:
        collected([record], CollectEstimates(Collection.load(define()), SECRET))
    assert "ann" not in str(caught.value).split("[while running")[0]


def test_ids_of_two_types_are_refused():
    with pytest.raises(InputError, match="several types"):
        rows_to_batch([("a", {}), (3, {})], has_values=True)


def test_times_cannot_decide_here(define):
    with pytest.raises(InputError, match="latest"):
        CollectEstimates(Collection.load(define(values='duplicates = "latest"')), SECRET)


def test_a_server_that_counts_loads_no_module_of_the_client():
    code = (
        "import sys\nfrom ldp_beam.transforms import EstimateReports, ReadReports, WriteEstimates\n"
        "print(*(m for m in sys.modules if m.startswith('ldp_beam')))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    loaded = set(done.stdout.split())
    assert "ldp_beam.transforms.estimate_reports" in loaded
    for name in ("in_memory", "perturb", "prepare", "records", "record_files", "record_batches"):
        assert f"ldp_beam.transforms.{name}" not in loaded
    assert "ldp_beam.schemas.records" not in loaded


def test_every_public_name_exists():
    import ldp_beam.schemas
    import ldp_beam.transforms

    for package in (ldp_beam.transforms, ldp_beam.schemas):
        assert package.__doc__
        for name in package.__all__:
            assert getattr(package, name) is not None
            assert name in dir(package)
    with pytest.raises(AttributeError, match="no attribute"):
        _ = ldp_beam.transforms.Nothing


def test_each_window_has_estimates_of_its_own(define):
    """Reports in windows are counted per window, and the sum of the windows' reports is everybody."""
    collection = Collection.load(define())
    days = beam.Map(lambda person: TimestampedValue(person, int(person[0].split("-")[1]) % 3 * 86_400))
    windows = days | beam.WindowInto(FixedWindows(86_400))
    batches = collected(PEOPLE, windows | CollectEstimates(collection, SECRET))
    assert [batch["n"].to_pylist() for batch in batches] == [[300] * 3] * 3
    (whole,) = collected(PEOPLE, CollectEstimates(collection, SECRET))
    for name in ("n1", "n2"):
        together = np.sum([batch[name].to_numpy() for batch in batches], axis=0)
        assert together.tolist() == whole[name].to_pylist()
