"""Beam ignores a misspelled option without a word; we stop and suggest the nearest name."""

import pytest
from apache_beam.options.pipeline_options import DirectOptions
from ldp_beam.errors import InputError, NotAvailableError
from ldp_beam.pipelines.beam_options import local_options, parse_beam_options, parsed_options, without_secrets

OURS = ["--collection", "--input", "--secret-file", "--output"]


def test_options_of_beam_pass_through():
    given = ["--direct_running_mode=multi_threading", "--temp_location", "/x", "--direct-num-workers", "2"]
    assert parse_beam_options(given, OURS) == [
        "--direct_running_mode=multi_threading",
        "--temp_location",
        "/x",
        "--direct_num_workers",
        "2",
    ]


@pytest.mark.parametrize(
    ("given", "suggestion"),
    [
        ("--secretfile", "--secret-file"),
        ("--direct_num_worker=2", "--direct_num_workers"),
        ("--temp_locatoin", "--temp_location"),
    ],
)
def test_a_misspelled_option_stops_with_a_suggestion(given, suggestion):
    with pytest.raises(InputError, match=suggestion):
        parse_beam_options([given], OURS)


def test_an_option_unlike_any_other_is_refused():
    with pytest.raises(InputError, match="Unknown option --frobnicate"):
        parse_beam_options(["--frobnicate=1"], OURS)


def test_an_abbreviation_is_not_taken_for_an_option():
    with pytest.raises(InputError, match="Unknown option"):
        parse_beam_options(["--direct_num=2"], OURS)


def test_a_stray_value_is_refused():
    with pytest.raises(InputError, match=r"Unexpected argument 'records\.parquet'"):
        parse_beam_options(["records.parquet"], OURS)


def test_a_bad_value_of_a_beam_option_is_refused():
    with pytest.raises(InputError, match="Beam refuses"):
        parse_beam_options(["--direct_num_workers=many"], OURS)


def test_a_runner_that_is_not_supported_is_refused_by_name():
    with pytest.raises(NotAvailableError, match="DataflowRunner"):
        parse_beam_options(["--runner=DataflowRunner"], OURS)


@pytest.mark.parametrize("option", ["--number_of_execution_retries=5", "--object-reuse", "--bundle_size=10"])
def test_options_of_flink_and_spark_that_only_their_job_servers_declare_pass_through(option):
    assert parse_beam_options([option], OURS)


def test_only_what_was_given_has_a_value():
    assert parsed_options(["--parallelism=4", "--flink_master", "host:1"]) == {
        "parallelism": 4,
        "flink_master": "host:1",
    }


def test_workers_become_threads_unless_told_otherwise():
    options = local_options(3, ()).view_as(DirectOptions)
    assert (options.direct_num_workers, options.direct_running_mode) == (3, "multi_threading")
    options = local_options(2, ("--direct_running_mode=multi_processing",)).view_as(DirectOptions)
    assert (options.direct_num_workers, options.direct_running_mode) == (2, "multi_processing")
    options = local_options(1, ("--direct_num_workers=4",)).view_as(DirectOptions)
    assert options.direct_num_workers == 4


def test_credentials_are_not_told_in_the_manifest():
    given = ["--s3_secret_access_key=x", "--s3_session_token", "y", "--s3_endpoint_url", "http://z", "--parallelism=2"]
    told = ["--s3_secret_access_key=…", "--s3_session_token", "…", "--s3_endpoint_url", "http://z", "--parallelism=2"]
    assert without_secrets(given) == told
