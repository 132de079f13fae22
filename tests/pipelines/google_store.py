"""Input from and results in Google's object store: a server of this process that answers as Google's does.

`test_google_store.py` runs these tests where Google's client is. What is the same for every store is tested with that
of S3 (test_object_stores.py).
"""

import json
import logging

import pyarrow.parquet as pq
import pytest
from apache_beam.internal.gcp.auth import _Credentials
from gcp_storage_emulator.server import create_server
from google.cloud import storage
from ldp_beam.engines import free_port
from ldp_beam.pipelines import output_store
from ldp_beam.pipelines.engine_target import Target
from ldp_beam.pipelines.output_store import StoreFolder
from ldp_beam.pipelines.running import Engine
from ldp_beam.transforms.paths import expand


@pytest.fixture(scope="module")
def server():
    logging.getLogger("gcp_storage_emulator").setLevel(logging.ERROR)  # it says of each answer that it is text
    running = create_server("127.0.0.1", port := free_port(), in_memory=True)
    running.start()
    yield f"http://127.0.0.1:{port}"
    running.stop()


@pytest.fixture
def bucket(server, monkeypatch):
    """An empty bucket, for Google's client and for Beam's, which would look for credentials for twenty seconds."""
    monkeypatch.setenv("STORAGE_EMULATOR_HOST", server)
    monkeypatch.setattr(_Credentials, "_credentials_init", True)
    monkeypatch.setattr(_Credentials, "_credentials", None)
    made = storage.Client.create_anonymous_client().create_bucket("data")
    yield made
    made.delete(force=True)


def names(bucket, prefix=""):
    return sorted(blob.name.removeprefix(prefix) for blob in bucket.list_blobs(prefix=prefix))


@pytest.fixture
def people_in_store(bucket, nested, people):
    """The same people on this machine and in the store."""
    path = nested(people(200))
    bucket.blob("in/records.parquet").upload_from_filename(path)
    return path


def downloaded(bucket, prefix, folder):
    folder.mkdir()
    for name in names(bucket, prefix):
        bucket.blob(prefix + name).download_to_filename(folder / name)
    return folder


def same_tables(one, other):
    files = sorted(path.name for path in one.glob("*.parquet"))
    assert files == sorted(path.name for path in other.glob("*.parquet"))
    return all(pq.read_table(one / name).equals(pq.read_table(other / name), check_metadata=True) for name in files)


def test_a_result_is_read_from_and_sent_to_a_store_and_replaced_only_where_asked(
    bucket, people_in_store, define, run_json, run, tmp_path
):
    assert expand(["gs://data/in/"]) == expand(["gs://data/*/*.parquet"]) == ["gs://data/in/records.parquet"]
    here = ("collect", "--collection", define(), "--seed", "3")
    run_json(*here, "--input", people_in_store, "--output", tmp_path / "local")
    there = (*here, "--input", "gs://data/in/*.parquet", "--output", "gs://data/out")
    code, out, err = run(*there)
    assert code == 0, err
    assert "in gs://data/out" in out + err
    assert names(bucket, "out/") == ["counts.parquet", "estimates.parquet", "manifest.json"]
    assert same_tables(downloaded(bucket, "out/", tmp_path / "sent"), tmp_path / "local")
    code, _, err = run(*there)
    assert code == 2
    assert "gs://data/out exists and holds a result" in err
    code, _, err = run(*there, "--overwrite", "--format", "csv")
    assert code == 0, err
    assert names(bucket, "out/") == ["counts.parquet", "estimates.csv", "manifest.json"]


def test_workers_that_see_nothing_of_this_machine_write_into_the_store(
    bucket, people_in_store, define, run_json, monkeypatch, tmp_path
):
    """`perturb`, then `aggregate`: reports get their names within the store."""
    given = ("perturb", "--collection", define(), "--input", people_in_store, "--seed", "3")
    run_json(*given, "--output", tmp_path / "local")
    monkeypatch.setattr(Engine, "shares_disk", False)
    monkeypatch.setattr(Target, "shares_disk", False)
    manifest = run_json(*given, "--output", "gs://data/reports")
    listed = [file["name"] for file in manifest["files"]]
    assert names(bucket, "reports/") == sorted([*listed, "manifest.json"])
    told = run_json("aggregate", *given[1:3], "--input", "gs://data/reports/", "--output", "gs://data/counted")
    assert told["reports"]["counted"] == 200
    assert json.loads(bucket.blob("counted/manifest.json").download_as_bytes())["reports"] == told["reports"]
    monkeypatch.undo()
    run_json("aggregate", *given[1:3], "--input", tmp_path / "local", "--output", tmp_path / "counted")
    assert same_tables(downloaded(bucket, "counted/", tmp_path / "sent"), tmp_path / "counted")


def test_many_objects_are_moved_replaced_and_deleted(bucket, tmp_path):
    """More than one request of ours names."""
    store = StoreFolder("gs://data/out", "--output")
    prefix = store.staging.removeprefix("gs://data/")
    for number in range(60):
        bucket.blob(f"{prefix}/{number}").upload_from_string(str(number))
    bucket.blob("out/reports-old").upload_from_string("old")
    (tmp_path / "manifest.json").write_text("{}")
    moved = range(1, 60)
    store.replace(tmp_path, {f"reports-{number}": f"{store.staging}/{number}" for number in moved})
    store.clear_staging()
    assert names(bucket) == sorted(["out/manifest.json", *(f"out/reports-{number}" for number in moved)])
    assert bucket.blob("out/reports-57").download_as_bytes() == b"57"
    assert output_store.size_of("gs://data/out/reports-59") == 2
    with pytest.raises(FileNotFoundError):
        output_store.size_of("gs://data/out/absent")


def test_a_store_that_is_not_there_is_named(bucket, people_in_store, define, run):
    code, _, err = run(
        "collect", "--collection", define(), "--input", people_in_store, "--output", "gs://nowhere/out", "--seed", "1"
    )
    assert code == 2
    assert "gs://nowhere/out" in err
