"""What people bring themselves: a ready-made job-server jar; a cluster of ours that they started before."""

import json
import zipfile

import pyarrow.parquet as pq
import pytest
from ldp_beam.engines.resolve import resolve

MAIN = {
    "flink": "org.apache.beam.runners.flink.FlinkJobServerDriver",
    "spark": "org.apache.beam.runners.spark.SparkJobServerDriver",
}


def ready_made_jar(engine, path):
    """A jar that names its main class and finds everything else on its own, as Beam's published job servers do."""
    jars = sorted(resolve(engine).glob("*.jar"))
    line = "Class-Path: " + " ".join(jar.as_uri() for jar in jars)
    # A line of a manifest holds 72 bytes at most and goes on after a blank.
    folded = [line[:70], *(" " + line[start : start + 69] for start in range(70, len(line), 69))]
    manifest = "\r\n".join(["Manifest-Version: 1.0", f"Main-Class: {MAIN[engine]}", *folded, "", ""])
    with zipfile.ZipFile(path, "w") as file:
        file.writestr("META-INF/MANIFEST.MF", manifest)
    return path


@pytest.fixture
def counts(inputs, run_json, tmp_path):
    """Return a function that collects the same people, and its counts."""

    def collect(name, *more):
        run_json(
            *("collect", "--collection", inputs / "collection.toml", "--input", inputs / "nested.parquet"),
            *("--output", tmp_path / name, "--seed", "41", *more),
        )
        return pq.read_table(tmp_path / name / "counts.parquet")

    return collect


@pytest.mark.engine
@pytest.mark.parametrize("engine", ["flink", "spark"], indirect=True)
def test_a_ready_made_job_server_gives_the_same_counts(engine, counts, tmp_path):
    jar = ready_made_jar(engine, tmp_path / "server.jar")
    assert counts("theirs", "--engine", engine, "--job-server-jar", jar).equals(counts("ours"))


@pytest.mark.engine
@pytest.mark.parametrize("engine", ["spark"], indirect=True)
def test_a_cluster_that_was_started_before_is_used_and_stopped(engine, counts, run, run_json, tmp_path, monkeypatch):
    monkeypatch.setattr("ldp_beam.engines.service._state_folder", lambda: tmp_path / "state")
    (tmp_path / "state").mkdir()
    started = run_json("engine", "start", engine, "--cluster")
    try:
        assert started["kind"] == "cluster"
        assert started["healthy"]
        assert counts("cluster", "--engine", engine).equals(counts("ours"))
    finally:
        code, out, err = run("engine", "stop", engine, "--json")
    assert code == 0, err
    assert json.loads(out)["stopped"]
    assert run_json("engine", "status")["engines"][engine] == {"running": False}
