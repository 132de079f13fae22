"""What `--engine` and Beam's own `--runner` mean: engine, cluster, workers."""

import pytest
from ldp_beam.errors import InputError, NotAvailableError
from ldp_beam.pipelines.beam_options import parsed_options
from ldp_beam.pipelines.engine_target import target_of, without
from ldp_beam.pipelines.running import Engine


def target(name="direct", *arguments, jar=None):
    return target_of(name, parsed_options(arguments), jar=jar)


def test_without_anything_the_run_takes_place_in_this_process():
    assert target().engine == "direct"
    assert target().shares_disk
    assert target("direct", "--runner=FnApiRunner").engine == "direct"


@pytest.mark.parametrize("name", ["prism", "flink", "spark"])
def test_an_engine_of_ours_runs_here_and_its_workers_in_this_process(name):
    found = target(name)
    assert (found.engine, found.environment, found.master, found.service) == (name, "LOOPBACK", "", True)
    assert found.shares_disk


@pytest.mark.parametrize(
    ("runner", "engine"), [("PrismRunner", "prism"), ("FlinkRunner", "flink"), ("SparkRunner", "spark")]
)
def test_beams_runner_without_a_cluster_runs_here_too(runner, engine):
    found = target("direct", f"--runner={runner}")
    assert (found.engine, found.environment, found.service) == (engine, "LOOPBACK", False)


def test_a_cluster_is_taken_from_beams_options_and_gets_beams_default_environment():
    flink = target("direct", "--runner=FlinkRunner", "--flink_master", "http://host:8081")
    assert (flink.master, flink.environment, flink.shares_disk) == ("host:8081", "DOCKER", False)
    spark = target("direct", "--runner=SparkRunner", "--spark_master_url=spark://host:7077")
    assert (spark.master, spark.environment) == ("spark://host:7077", "DOCKER")
    assert target("spark", "--spark_master_url=local[8]").master == ""
    assert target("flink", "--flink_master=[local]").master == ""


def test_workers_of_a_cluster_may_be_a_pool():
    found = target("flink", "--flink_master=h:1", "--environment_type=external", "--environment_config=h:2")
    assert (found.environment, found.config, found.service) == ("EXTERNAL", "h:2", False)


def test_a_job_server_that_runs_is_used_as_it_is():
    found = target("direct", "--runner=PortableRunner", "--job_endpoint=h:8099")
    assert (found.engine, found.endpoint, found.environment) == ("portable", "h:8099", "DOCKER")
    with pytest.raises(InputError, match="--job_endpoint"):
        target("direct", "--runner=PortableRunner")


@pytest.mark.parametrize(
    "option", ["--flink_submit_uber_jar", "--flink_version=1.20", "--flink_job_server_jar=https://host/a.jar"]
)
def test_what_only_beam_can_fetch_is_left_to_beam(option):
    assert target("direct", "--runner=FlinkRunner", "--flink_master=h:1", option).beam_runner == "FlinkRunner"
    assert target("direct", "--runner=FlinkRunner", "--flink_version=1.19").beam_runner == ""


def test_a_ready_made_job_server_is_used():
    assert target("flink", jar="server.jar").jar == "server.jar"
    assert target("direct", "--runner=SparkRunner", "--spark_job_server_jar=server.jar").jar == "server.jar"
    with pytest.raises(InputError, match="--job-server-jar"):
        target("prism", jar="server.jar")


def test_contradictions_are_refused():
    with pytest.raises(InputError, match="two different engines"):
        target("spark", "--runner=FlinkRunner")
    with pytest.raises(InputError, match="Did you mean 'flink'"):
        target("flnk")
    with pytest.raises(NotAvailableError, match="DataflowRunner"):
        target("direct", "--runner=DataflowRunner")
    with pytest.raises(InputError, match="LOOPBACK"):
        target("flink", "--environment_type=LOOPBAK")


def test_an_environment_without_what_it_needs_is_refused():
    with pytest.raises(InputError, match="worker_pool"):
        target("flink", "--environment_type=EXTERNAL")
    with pytest.raises(InputError, match="ldp-beam-worker"):
        target("flink", "--environment_type=PROCESS", "--environment_config={}")


def test_options_are_taken_out_with_their_values():
    arguments = ["--runner", "FlinkRunner", "--parallelism=2", "--runner=x", "--flag", "value"]
    assert without(arguments, ("runner",)) == ["--parallelism=2", "--flag", "value"]


def test_the_manifest_names_the_engine_that_really_ran():
    engine = Engine(beam_arguments=("--runner=FlinkRunner",), workers=2)
    assert engine.as_json()["name"] == "flink"
