"""State beyond what Flink keeps of a checkpoint in memory, and many checkpoints on the way: nothing is lost."""

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from ldp_beam.mechanisms import Secret, make_records
from ldp_beam.schemas.event_time import time_text
from ldp_beam.schemas.reports import REPORT_ID, REPORT_ID_BYTES
from ldp_beam.transforms.batches import reports_to_batch
from ldp_beam.transforms.collection import Collection

pytestmark = pytest.mark.engine

START = 1_700_000_000
USERS, FILES = 20_000, 24


@pytest.mark.parametrize("engine", ["flink"], indirect=True)
def test_half_a_million_reports_with_ids_in_an_open_window(engine, define, run_json, tmp_path):
    definition = define(mechanism="pckv-grr", more="report_ids = true")
    collection, secret = Collection.load(definition), Secret.from_seed(1)
    people = [{i % 3: 0.5} for i in range(USERS)]
    records = make_records(secret.users(), list(range(USERS)), people)
    stream = secret.stream(fingerprint=collection.fingerprint, period="", round=0)
    header = collection.header("reports", private=False, window_start=time_text(START), window_seconds=10)
    schema = collection.report_schema(header)
    reports = collection.mechanism.perturb(records, stream)
    plain = reports_to_batch(reports, pa.schema([field for field in schema if field.name != REPORT_ID]))
    incoming, random = tmp_path / "incoming", np.random.default_rng(1)
    incoming.mkdir()
    for number in range(FILES):
        raw = pa.py_buffer(random.bytes(USERS * REPORT_ID_BYTES))
        ids = pa.Array.from_buffers(pa.binary(REPORT_ID_BYTES), USERS, [None, raw])
        batch = pa.RecordBatch.from_arrays([*plain.columns, ids], schema=schema)
        pq.write_table(pa.Table.from_batches([batch]), incoming / f"{number}.parquet")
    manifest = run_json(
        *("stream", "--collection", definition, "--source", incoming, "--window", "10s", "--allowed-lateness", "0s"),
        # Many checkpoints: what is on its way while one is taken must not be overtaken by the end.
        *("--drain", "--engine", engine, "--checkpointing_interval=500", "--output", tmp_path / "live"),
    )
    assert manifest["reports"]["counted_in_windows"] == USERS * FILES
