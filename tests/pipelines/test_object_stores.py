"""Input from and results in an object store: a server on this machine that speaks S3."""

import json
import os
import subprocess
import sys
import time
import urllib.request

import boto3
import pyarrow.parquet as pq
import pytest
from ldp_beam.engines import free_port
from ldp_beam.errors import RunError
from ldp_beam.pipelines.output_store import StoreFolder, local_copy

REGION = {"AWS_ACCESS_KEY_ID": "k", "AWS_SECRET_ACCESS_KEY": "s", "AWS_DEFAULT_REGION": "us-east-1"}


@pytest.fixture(scope="module")
def server(tmp_path_factory):
    """The endpoint of a server in a process of its own."""
    endpoint = f"http://127.0.0.1:{(port := free_port())}"
    log = (tmp_path_factory.mktemp("s3") / "log").open("w")
    command = [sys.executable, "-W", "ignore", "-m", "moto.server", "-H", "127.0.0.1", "-p", str(port)]
    process = subprocess.Popen(command, stdout=log, stderr=log)
    end = time.monotonic() + 60
    while True:
        assert process.poll() is None, "the server ended"
        assert time.monotonic() < end, "the server does not answer"
        try:
            urllib.request.urlopen(endpoint, timeout=2).close()
            break
        except OSError:
            time.sleep(0.1)
    yield endpoint
    process.terminate()
    process.wait()
    log.close()


@pytest.fixture
def bucket(server, monkeypatch):
    """An empty bucket and the environment in which AWS's own client finds it."""
    for name, value in {**REGION, "AWS_ENDPOINT_URL": server}.items():
        monkeypatch.setenv(name, value)
    client = boto3.client("s3")
    client.create_bucket(Bucket="data")
    yield client
    for entry in client.list_objects_v2(Bucket="data").get("Contents", []):
        client.delete_object(Bucket="data", Key=entry["Key"])
    client.delete_bucket(Bucket="data")


def names(client, prefix):
    found = client.list_objects_v2(Bucket="data", Prefix=prefix).get("Contents", [])
    return sorted(entry["Key"].removeprefix(prefix) for entry in found)


@pytest.fixture
def people_in_store(bucket, nested, people):
    """The same people on this machine and in the store."""
    path = nested(people(200))
    bucket.upload_file(str(path), "data", "in/records.parquet")
    return path


def test_a_result_is_read_from_and_sent_to_a_store(bucket, people_in_store, define, run_json, run, tmp_path):
    here = ("collect", "--collection", define(), "--seed", "3")
    run_json(*here, "--input", people_in_store, "--output", tmp_path / "local")
    code, out, err = run(*here, "--input", "s3://data/in/*.parquet", "--output", "s3://data/out")
    assert code == 0, err
    assert "in s3://data/out" in out + err
    assert names(bucket, "out/") == ["counts.parquet", "estimates.parquet", "manifest.json"]
    for name in ("counts.parquet", "estimates.parquet"):
        bucket.download_file("data", f"out/{name}", str(tmp_path / name))
        assert pq.read_table(tmp_path / name).equals(pq.read_table(tmp_path / "local" / name))


def test_a_result_in_a_store_is_replaced_only_where_asked(bucket, people_in_store, define, run, tmp_path):
    given = (
        "collect",
        "--collection",
        define(),
        "--input",
        people_in_store,
        "--output",
        "s3://data/out",
        "--seed",
        "1",
    )
    assert run(*given)[0] == 0
    code, _, err = run(*given)
    assert code == 2
    assert "s3://data/out exists and holds a result" in err
    code, _, err = run(*given, "--overwrite", "--format", "csv")
    assert code == 0, err
    assert names(bucket, "out/") == ["counts.parquet", "estimates.csv", "manifest.json"]
    bucket.put_object(Bucket="data", Key="out/theirs.txt", Body=b"x")
    code, _, err = run(*given, "--overwrite")
    assert code == 2
    assert "theirs.txt" in err


def test_reports_go_into_a_store_and_are_counted_from_there(bucket, people_in_store, define, run_json, tmp_path):
    collection = define()
    run_json(
        "perturb",
        "--collection",
        collection,
        "--input",
        people_in_store,
        "--output",
        "s3://data/reports",
        "--seed",
        "3",
    )
    manifest = run_json(
        "aggregate", "--collection", collection, "--input", "s3://data/reports/", "--output", tmp_path / "o"
    )
    assert manifest["reports"]["counted"] == 200


def test_what_breaks_off_leaves_no_manifest(bucket, tmp_path, monkeypatch):
    for folder, text in (("old", "1"), ("new", "2")):
        (tmp_path / folder).mkdir()
        for name in ("counts.parquet", "estimates.parquet", "manifest.json"):
            (tmp_path / folder / name).write_text(text)
    store = StoreFolder("s3://data/out/", "--output")
    store.replace(tmp_path / "old")
    assert names(bucket, "out/") == ["counts.parquet", "estimates.parquet", "manifest.json"]
    send = StoreFolder._send

    def breaks(self, path):
        if path.name.startswith("estimates"):
            raise ConnectionError("the line is dead")
        send(self, path)

    monkeypatch.setattr(StoreFolder, "_send", breaks)
    with pytest.raises(RunError, match="the line is dead"):
        store.replace(tmp_path / "new")
    assert "manifest.json" not in names(bucket, "out/")
    monkeypatch.undo()


def test_a_store_that_is_not_there_is_named(bucket, people_in_store, define, run):
    code, _, err = run(
        "collect", "--collection", define(), "--input", people_in_store, "--output", "s3://nowhere/out", "--seed", "1"
    )
    assert code == 2
    assert "s3://nowhere/out" in err


def test_local_folders_are_their_own_copies(tmp_path):
    assert local_copy(tmp_path) == tmp_path
    first = local_copy("s3://data/a")
    assert local_copy("s3://data/a/") == first
    assert local_copy("s3://data/b") != first


def test_the_extra_is_named_where_it_is_missing(define, nested, people, tmp_path):
    """In a process in which AWS's client cannot be imported."""
    code = (
        "import sys; sys.modules['boto3'] = None\n"
        "from ldp_beam.pipelines.cli import main\n"
        f"main(['collect', '--collection', {str(define())!r}, '--input', {str(nested(people(5)))!r}, "
        "'--output', 's3://data/out', '--seed', '1'])"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=False, env=dict(os.environ)
    )
    assert done.returncode == 2, done.stderr
    assert "ldp-beam[aws]" in done.stderr
    assert json.dumps(done.stdout) == '""'
