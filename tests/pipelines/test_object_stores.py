"""Input from and results in an object store: a server on this machine that speaks S3."""

import inspect
import json
import os
import subprocess
import sys

import boto3
import pyarrow.parquet as pq
import pytest
from apache_beam.io.filesystems import FileSystems
from ldp_beam.errors import InputError, RunError
from ldp_beam.pipelines import output_store, preflight
from ldp_beam.pipelines.engine_target import Target
from ldp_beam.pipelines.output_store import StoreFolder, local_copy
from ldp_beam.pipelines.running import Engine
from ldp_beam.transforms import publish, store_clients
from ldp_beam.transforms.paths import expand, is_local


@pytest.fixture
def bucket(s3_server, monkeypatch):
    """An empty bucket and the environment in which AWS's own client finds it."""
    for name, value in s3_server.items():
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


def test_clients_are_shared_as_long_as_the_settings_are_the_same(bucket, people_in_store, monkeypatch):
    made, make = [], boto3.session.Session.client
    monkeypatch.setattr(boto3.session.Session, "client", lambda self, **more: made.append(1) or make(self, **more))
    monkeypatch.setattr(store_clients, "_clients", {})
    for _ in range(3):
        assert expand(["s3://data/in/*"]) == ["s3://data/in/records.parquet"]
    assert len(made) == 1
    monkeypatch.setenv("AWS_MAX_ATTEMPTS", "7")
    assert expand(["s3://data/in/*"]) == ["s3://data/in/records.parquet"]
    assert len(made) == 2


def test_a_store_may_be_named_by_options_of_beam(
    bucket, people_in_store, s3_server, define, run, monkeypatch, tmp_path
):
    """Already when the output is checked, before there is a pipeline; what the options say is secret stays so."""
    for name in s3_server:
        monkeypatch.delenv(name)
    monkeypatch.setattr(FileSystems, "_pipeline_options", None)
    code, _, err = run(
        *("collect", "--collection", define(), "--seed", "3", "--input", "s3://data/in/*.parquet"),
        *(
            "--output",
            "s3://data/out",
            "--s3_endpoint_url",
            s3_server["AWS_ENDPOINT_URL"],
            "--s3_region_name=us-east-1",
        ),
        *("--s3_access_key_id=k", "--s3_secret_access_key=very-secret"),
    )
    assert code == 0, err
    manifest = bucket.get_object(Bucket="data", Key="out/manifest.json")["Body"].read().decode()
    assert "very-secret" not in manifest
    assert "--s3_region_name=us-east-1" in manifest


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
    send = StoreFolder.send

    def breaks(self, path):
        if path.name.startswith("estimates"):
            raise ConnectionError("the line is dead")
        send(self, path)

    monkeypatch.setattr(StoreFolder, "send", breaks)
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


# -- workers on other machines -------------------------------------------------------------------------------


@pytest.fixture
def remote(monkeypatch, tmp_path):
    """Let workers count as being on other machines; a file that one of them writes to this disk is an error."""
    monkeypatch.setattr(Engine, "shares_disk", False)
    monkeypatch.setattr(Target, "shares_disk", False)
    create = FileSystems.create

    def only_in_stores(path, *arguments, **more):
        assert not (is_local(path) and in_a_worker()), path
        return create(path, *arguments, **more)

    monkeypatch.setattr(FileSystems, "create", only_in_stores)


def as_pairs(people, path):
    rows = [f"{user},{key},{value}" for user, held in people for key, value in held or [("", "")]]
    path.write_text("\n".join(["user_id,key,value", *rows]) + "\n")
    return path


def in_a_worker():
    return any("bundle_processor" in frame.filename for frame in inspect.stack(0))


def objects(client):
    return names(client, "")


def downloaded(client, prefix, folder):
    folder.mkdir()
    for name in names(client, prefix):
        client.download_file("data", prefix + name, str(folder / name))
    return folder


def same_tables(one, other):
    """Whether two results hold the same files with the same rows, and headers."""
    files = sorted(path.name for path in one.glob("*.parquet"))
    assert files == sorted(path.name for path in other.glob("*.parquet"))
    return all(pq.read_table(one / name).equals(pq.read_table(other / name), check_metadata=True) for name in files)


def reports_in(folder):
    """All reports of a result, whatever files they lie in."""
    return sorted(str(row) for path in folder.glob("reports-*.parquet") for row in pq.read_table(path).to_pylist())


@pytest.mark.parametrize("layout", ["nested", "pairs"])
def test_workers_that_see_nothing_of_this_machine_write_into_the_store(
    bucket, layout, define, nested, people, run_json, request, tmp_path
):
    path = nested(people(200)) if layout == "nested" else as_pairs(people(200), tmp_path / "pairs.csv")
    given = ("collect", "--collection", define(), "--input", path, "--seed", "3")
    run_json(*given, "--output", tmp_path / "local", "--keep-reports", tmp_path / "reports")
    request.getfixturevalue("remote")
    manifest = run_json(*given, "--output", "s3://data/out", "--keep-reports", "s3://data/kept")
    assert manifest["reports"]["counted"] == 200
    assert names(bucket, "out/") == ["counts.parquet", "estimates.parquet", "manifest.json"]
    assert same_tables(downloaded(bucket, "out/", tmp_path / "sent"), tmp_path / "local")
    kept = downloaded(bucket, "kept/", tmp_path / "kept")
    assert reports_in(kept) == reports_in(tmp_path / "reports")
    assert all(".staging-" not in name for name in objects(bucket))


def test_reports_of_other_machines_get_their_names_within_the_store(
    bucket, people_in_store, define, run_json, run, request, tmp_path
):
    """`perturb`, then `aggregate`, with every worker elsewhere; the bytes of reports do not pass through here."""
    collection = define()
    given = ("perturb", "--collection", collection, "--input", people_in_store, "--seed", "3")
    run_json(*given, "--output", tmp_path / "local")
    request.getfixturevalue("remote")
    manifest = run_json(*given, "--output", "s3://data/reports", "--rejects", "s3://data/rejects")
    listed = [file["name"] for file in manifest["files"]]
    assert names(bucket, "reports/") == sorted([*listed, "manifest.json"])
    assert reports_in(downloaded(bucket, "reports/", tmp_path / "sent")) == reports_in(tmp_path / "local")
    counting = ("aggregate", "--collection", collection, "--detect-poisoning")
    run_json(*counting, "--input", "s3://data/reports/", "--output", "s3://data/counted")
    counted = downloaded(bucket, "counted/", tmp_path / "counted")
    assert pq.read_table(counted / "estimates.parquet")["n"][0].as_py() == 200
    assert all(".staging-" not in name for name in objects(bucket))
    code, _, err = run(*given, "--output", "s3://data/reports", "--overwrite", "--format", "avro")
    assert code == 0, err
    assert {name.rpartition(".")[2] for name in names(bucket, "reports/")} == {"avro", "json"}


def test_an_object_too_large_to_be_copied_at_once_passes_through(bucket, tmp_path, monkeypatch):
    monkeypatch.setattr(output_store, "_LARGEST_COPY", 3)
    store = StoreFolder("s3://data/out", "--output")
    for name in ("a", "bbbb"):
        bucket.put_object(Bucket="data", Key=f"{store.staging.removeprefix('s3://data/')}/{name}", Body=name.encode())
    (tmp_path / "manifest.json").write_text("{}")
    store.replace(tmp_path, {"reports-1": f"{store.staging}/a", "reports-2": f"{store.staging}/bbbb"})
    store.clear_staging()
    assert objects(bucket) == ["out/manifest.json", "out/reports-1", "out/reports-2"]
    assert bucket.get_object(Bucket="data", Key="out/reports-2")["Body"].read() == b"bbbb"
    with pytest.raises(FileNotFoundError):
        output_store.size_of("s3://data/out/absent")


ROUNDS = """name = "rounds"
mechanism = "privkvm"
epsilon = 3
[keys]
list = ["apple", "banana", "cherry"]
[values]
range = [-1, 1]
[privkv]
rounds = 2
"""


def test_all_rounds_of_a_collection_on_other_machines(bucket, nested, people, run_json, request, tmp_path):
    """Both halves in one run; and apart, where the store tells who answered, and a folder the state."""
    (tmp_path / "rounds.toml").write_text(ROUNDS)
    given, records = ("--collection", tmp_path / "rounds.toml", "--seed", "3"), ("--input", nested(people(50)))
    run_json("collect", *given, *records, "--output", tmp_path / "local")
    request.getfixturevalue("remote")
    run_json("collect", *given, *records, "--output", "s3://data/out", "--keep-reports", "s3://data/kept")
    assert same_tables(downloaded(bucket, "out/", tmp_path / "sent"), tmp_path / "local")
    assert {name[:15] for name in names(bucket, "kept/")} == {"reports-round-1", "reports-round-2"}
    state = ("--round", "1", "--state", tmp_path / "state")
    run_json("perturb", *given, *records, *state, "--output", "s3://data/r1")
    run_json("aggregate", *given[:2], *state, "--input", "s3://data/r1/", "--output", "s3://data/a1")
    run_json("perturb", *given, *records, "--round", "2", *state[2:], "--output", "s3://data/r2")
    assert len(names(bucket, "r2/")) == 2
    assert all(".staging-" not in name for name in objects(bucket))


def test_two_questions_on_other_machines(bucket, define, nested, people, run_json, request, tmp_path):
    given = ("--collection", define(padding='"auto"'), "--seed", "3")
    records = ("--input", nested(people(100)))
    run_json("collect", *given, *records, "--output", tmp_path / "local")
    request.getfixturevalue("remote")
    run_json("collect", *given, *records, "--output", "s3://data/out", "--keep-reports", "s3://data/kept")
    assert same_tables(downloaded(bucket, "out/", tmp_path / "sent"), tmp_path / "local")
    assert names(bucket, "kept-length/")
    state = ("--round", "1", "--state", tmp_path / "state")
    run_json("perturb", *given, *records, *state, "--output", "s3://data/q1")
    told = run_json("aggregate", *given[:2], *state, "--input", "s3://data/q1/", "--output", "s3://data/lengths")
    sent = json.loads(bucket.get_object(Bucket="data", Key="lengths/manifest.json")["Body"].read())
    assert sent["mechanism"]["padding"] == told["mechanism"]["padding"]
    assert all(".staging-" not in name for name in objects(bucket))


def test_days_counted_on_other_machines_come_into_the_store_of_counts(
    bucket, define, nested, people, run_json, request, tmp_path
):
    given = ("--collection", define())
    for day in ("2026-11-01", "2026-11-02"):
        run_json(
            *("perturb", *given, "--input", nested(people(40)), "--seed", "3", "--period", day),
            *("--output", tmp_path / "reports" / day),
        )
    counting = ("aggregate", *given, "--input", tmp_path / "reports" / "*" / "*.parquet", "--counts-store")
    run_json(*counting, tmp_path / "store", "--output", tmp_path / "local")
    request.getfixturevalue("remote")
    told = run_json(*counting, tmp_path / "other", "--output", "s3://data/out")
    assert told["reports"]["counted"] == 80
    assert same_tables(downloaded(bucket, "out/", tmp_path / "sent"), tmp_path / "local")
    assert all(".staging-" not in name for name in objects(bucket))


def test_a_step_that_fails_leaves_nothing_in_the_store(bucket, people_in_store, remote, define, run, monkeypatch):
    """Reports lie in the staging prefix already when the summary fails."""

    def fails(self, *arguments):
        raise RuntimeError("the power is off")

    monkeypatch.setattr(publish._WriteCounts, "process", fails)
    code, _, err = run(
        *("collect", "--collection", define(), "--input", people_in_store, "--seed", "3"),
        *("--output", "s3://data/out", "--keep-reports", "s3://data/kept"),
    )
    assert code == 1
    assert "the power is off" in err
    assert objects(bucket) == ["in/records.parquet"]


def test_what_a_store_lost_is_named_and_nothing_is_published(bucket, people_in_store, remote, define, run, monkeypatch):
    written = publish.write_counts

    def lost(path, *arguments):
        file = written(path, *arguments)
        FileSystems.delete([path])
        return file

    monkeypatch.setattr(publish, "write_counts", lost)
    code, _, err = run(
        "collect", "--collection", define(), "--input", people_in_store, "--seed", "3", "--output", "s3://data/out"
    )
    assert code == 1
    assert "counts.parquet, which cannot be seen from here" in err
    assert objects(bucket) == ["in/records.parquet"]


def test_a_worker_that_cannot_write_to_the_store_says_so_before_anything_is_read(
    bucket, remote, people_in_store, define, run, monkeypatch
):
    write = preflight._write

    def denied(path):
        if in_a_worker():
            raise PermissionError("AccessDenied")
        write(path)

    monkeypatch.setattr(preflight, "_write", denied)
    code, _, err = run(
        "collect", "--collection", define(), "--input", people_in_store, "--seed", "3", "--output", "s3://data/out"
    )
    assert code == 2, err
    assert "cannot write to s3://data/out/.staging-" in err
    assert "credentials" in err
    assert objects(bucket) == ["in/records.parquet"]


def test_a_worker_that_talks_to_another_store_is_found(bucket):
    with pytest.raises(InputError, match="talks to another store"):
        list(preflight._Check(preflight.worker_versions(), {"s3://data/out/.staging-1": ".here-absent"}).process(0))


def test_what_a_killed_run_left_is_read_by_nobody_and_in_nobodys_way(bucket):
    for key in ("out/reports-1.parquet", "out/.staging-0123/reports-2.parquet", "out/.staging-0123/.days/x.parquet"):
        bucket.put_object(Bucket="data", Key=key, Body=b"x")
    for pattern in ("s3://data/out/", "s3://data/out/*", "s3://data/out/**", "s3://data/**/*.parquet"):
        assert expand([pattern]) == ["s3://data/out/reports-1.parquet"]
    assert StoreFolder("s3://data/out", "--output").names() == ["reports-1.parquet"]
