"""What is found out before a job runs: Docker absent, workers of other versions, output that nobody sees."""

import json
import stat
import sys
from pathlib import Path

import pytest
from ldp_beam.errors import InputError, RunError
from ldp_beam.pipelines import preflight, results

FAULTS = Path(__file__).parent / "faults"


def collect(inputs, output, *more):
    return [
        *("collect", "--collection", inputs / "collection.toml", "--input", inputs / "nested.parquet"),
        *("--output", output, "--seed", "41", *more),
    ]


@pytest.mark.parametrize("runner", ["FlinkRunner", "SparkRunner", "PortableRunner"])
def test_without_docker_the_message_says_what_to_do_instead(runner, inputs, run, tmp_path, monkeypatch):
    """B31, before anything is submitted: Beam's default environment is a container."""
    monkeypatch.setattr(preflight, "docker_answers", lambda: False)
    more = ["--environment_type=DOCKER"] if runner != "PortableRunner" else ["--job_endpoint=localhost:1"]
    code, _, err = run(*collect(inputs, tmp_path / "out", f"--runner={runner}", *more))
    assert code == 2
    assert "Docker does not answer" in err
    assert "worker_pool" in err
    assert not (tmp_path / "out").exists()


def test_an_engine_that_reports_success_without_all_rows_is_not_believed():
    """B31, afterwards."""
    files = [{"kind": "estimates", "name": "estimates.parquet", "rows": 11}]
    with pytest.raises(RunError, match="11 rows for 12 keys"):
        results.require_every_key(files, 12)
    with pytest.raises(RunError, match="0 rows"):
        results.require_every_key([], 12)
    results.require_every_key([{**files[0], "rows": 24}], 12)


def test_a_summary_that_is_not_there_says_where_output_has_to_lie(tmp_path):
    from ldp_beam.transforms.summary import read_summary

    with pytest.raises(RunError, match="file system that all machines share"):
        read_summary(str(tmp_path / "absent.json"))


def test_output_that_workers_wrote_and_nobody_sees_is_refused(tmp_path):
    marker = preflight.marker_in(str(tmp_path))
    with pytest.raises(RunError, match="file system that all machines share"):
        preflight.clear_answers(str(tmp_path), marker)
    assert list(tmp_path.iterdir()) == []


def check(expected, markers):
    return list(preflight._Check(expected, markers).process(0))


def test_a_worker_that_does_not_see_the_output_folder_says_so(tmp_path):
    with pytest.raises(InputError, match="does not see the output folder"):
        check(preflight.worker_versions(), {str(tmp_path): "absent"})
    marker = preflight.marker_in(str(tmp_path))
    assert check(preflight.worker_versions(), {str(tmp_path): marker})
    preflight.clear_answers(str(tmp_path), marker)
    assert list(tmp_path.iterdir()) == []


@pytest.fixture(scope="module")
def worker_script(tmp_path_factory):
    """Return a function that writes a program that starts a worker, with a version that is not ours or none."""

    def write(claimed=""):
        path = tmp_path_factory.mktemp("worker") / "start-worker"
        path.write_text(
            f"#!/bin/sh\nPYTHONPATH={FAULTS} LDP_BEAM_TEST_VERSION='{claimed}' "
            f'exec {sys.executable} -m ldp_beam.engines.worker_boot "$@"\n'
        )
        path.chmod(path.stat().st_mode | stat.S_IXUSR)
        return ["--environment_type=PROCESS", f"--environment_config={json.dumps({'command': str(path)})}"]

    return write


@pytest.mark.engine
@pytest.mark.parametrize(
    ("claimed", "said"),
    [
        ("Python=3.12.1", "Python 3.12 (here"),
        ("apache-beam=2.60.0", "apache-beam 2.60.0 (here"),
        ("ldp-beam=0.0.9", "ldp-beam 0.0.9 (here"),
    ],
)
def test_a_worker_of_another_version_is_refused_before_it_reads(
    claimed, said, flink_server, worker_script, inputs, run, tmp_path
):
    """B32."""
    code, _, err = run(*collect(inputs, tmp_path / "out", *flink_server, *worker_script(claimed)))
    assert code == 2, err
    assert said in err
    assert "Traceback" not in err
    assert not (tmp_path / "out").exists()


@pytest.mark.engine
def test_workers_that_the_engine_starts_itself_do_the_job(flink_server, worker_script, inputs, run_json, tmp_path):
    manifest = run_json(*collect(inputs, tmp_path / "out", *flink_server, *worker_script()))
    assert manifest["reports"]["counted"] == 20_000
    assert [path.name for path in tmp_path.iterdir()] == ["out"]
