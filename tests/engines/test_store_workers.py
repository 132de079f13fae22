"""Results in an object store from workers that do not see this machine's files: a pool with folders of its own."""

import os
import tempfile
from collections import Counter
from pathlib import Path

import pyarrow.parquet as pq
import pytest
from ldp_beam.engines import WorkerPool

boto3 = pytest.importorskip("boto3")
pytestmark = pytest.mark.engine
FAULTS = Path(__file__).parent / "faults"


@pytest.fixture(scope="module")
def here(tmp_path_factory):
    """The folder of this machine in which all lies that workers must not see."""
    return tmp_path_factory.mktemp("here")


@pytest.fixture(scope="module")
def distant_pool(tmp_path_factory, s3_server, here):
    """A pool whose workers have the credentials of the store and find nothing that lies in `here`."""
    there = tmp_path_factory.mktemp("there")
    settings = {
        "PYTHONPATH": str(FAULTS),
        "LDP_BEAM_TEST_FAULT": str(there / "plan"),
        "LDP_BEAM_TEST_HIDDEN": str(here),
        "HOME": str(there),
        "TMPDIR": str(there),
    }
    (there / "plan").mkdir()
    with pytest.MonkeyPatch.context() as patch:
        for name, value in {**s3_server, **settings}.items():
            patch.setenv(name, value)
        pool = WorkerPool(there)
    pool.plan = there / "plan"
    yield pool
    pool.stop()


@pytest.fixture
def bucket(s3_server, here, inputs, monkeypatch):
    """A bucket with the input, for us and for workers; our own temporary folder lies where they see nothing."""
    for name, value in s3_server.items():
        monkeypatch.setenv(name, value)
    monkeypatch.setattr(tempfile, "tempdir", str(here))
    client = boto3.client("s3")
    client.create_bucket(Bucket="far")
    for name in ("nested.parquet", "pairs.parquet"):
        client.upload_file(str(inputs / name), "far", f"in/{name}")
    yield client
    for name in names(client, ""):
        client.delete_object(Bucket="far", Key=name)
    client.delete_bucket(Bucket="far")


def names(client, prefix):
    found = client.list_objects_v2(Bucket="far", Prefix=prefix).get("Contents", [])
    return sorted(entry["Key"].removeprefix(prefix) for entry in found)


def downloaded(client, prefix, folder):
    folder.mkdir()
    for name in names(client, prefix):
        client.download_file("far", prefix + name, str(folder / name))
    return folder


def rows(folder):
    """All reports of a result, and how often each was sent."""
    return Counter(str(row) for path in folder.glob("reports-*") for row in pq.read_table(path).to_pylist())


def on_machines(engine, pool, request):
    """Options of an engine whose workers are those of the pool."""
    workers = ["--environment_type=EXTERNAL", f"--environment_config={pool.address}"]
    if engine == "prism":
        return ["--engine", "prism", *workers]
    cluster = request.getfixturevalue("flink_cluster")
    return ["--runner=FlinkRunner", f"--flink_master={cluster.master}", "--parallelism=2", *workers]


@pytest.mark.parametrize("engine", ["prism", "flink"], indirect=True)
def test_workers_elsewhere_send_byte_equal_counts_and_each_report_once(
    engine, distant_pool, bucket, inputs, run_json, run, request, here, tmp_path
):
    """On Flink a worker is killed when it has perturbed; what its attempt left in the store is no part of a result."""
    given = ("collect", "--collection", inputs / "collection.toml", "--seed", "41", "--workers", "1")
    local = here / f"{engine}-local"
    run_json(*given, "--input", inputs / "nested.parquet", "--output", local, "--keep-reports", here / f"{engine}-kept")
    options = on_machines(engine, distant_pool, request)
    if engine == "flink":
        (distant_pool.plan / "fault").write_text("kill worker")
    layout = "nested" if engine == "flink" else "pairs"
    code, _, err = run(
        *(*given, "--input", f"s3://far/in/{layout}.parquet", *options),
        *("--output", "s3://far/out", "--keep-reports", "s3://far/kept"),
    )
    assert code == 0, err
    assert (distant_pool.plan / "done").is_file() == (engine == "flink")
    for path in distant_pool.plan.iterdir():
        path.unlink()
    assert all(".staging-" not in name for name in names(bucket, ""))
    sent = downloaded(bucket, "out/", tmp_path / "sent")
    assert pq.read_table(sent / "counts.parquet").equals(pq.read_table(local / "counts.parquet"), check_metadata=True)
    assert rows(downloaded(bucket, "kept/", tmp_path / "kept")) == rows(here / f"{engine}-kept")
    if engine == "flink":  # where each further job takes its time
        return
    counting = ("aggregate", *given[1:3], "--input", "s3://far/kept/*.parquet", "--output", "s3://far/counted")
    code, _, err = run(*counting, *options)
    assert code == 0, err
    counted = downloaded(bucket, "counted/", tmp_path / "counted")
    assert pq.read_table(counted / "counts.parquet").equals(pq.read_table(local / "counts.parquet"))


@pytest.mark.parametrize("engine", ["prism"], indirect=True)
def test_a_folder_of_this_machine_is_refused_before_anything_is_read(engine, distant_pool, bucket, inputs, run, here):
    """Also where the result goes into a store and only the rejected rows, which are raw data, do not."""
    code, _, err = run(
        *(
            "collect",
            "--collection",
            inputs / "collection.toml",
            "--seed",
            "41",
            "--input",
            "s3://far/in/nested.parquet",
        ),
        *("--output", "s3://far/out", "--rejects", here / "rejects", "--engine", "prism"),
        *("--environment_type=EXTERNAL", f"--environment_config={distant_pool.address}"),
    )
    assert code == 2, err
    assert f"cannot write to the output folder {here}" in err  # the file is seen, since this is one machine
    assert names(bucket, "") == ["in/nested.parquet", "in/pairs.parquet"]
    assert not os.path.lexists(here / "rejects")
