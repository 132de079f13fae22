"""Beam ignores a misspelled option without a word; we stop and suggest the nearest name."""

import pytest
from apache_beam.options.pipeline_options import DirectOptions
from ldp_beam.errors import InputError, NotAvailableError
from ldp_beam.pipelines.beam_options import local_options, parse_beam_options, runner_for

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


@pytest.mark.parametrize("runner", ["FlinkRunner", "PortableRunner", "DataflowRunner", "PrismRunner"])
def test_runners_of_later_versions_are_refused_by_name(runner):
    with pytest.raises(NotAvailableError, match=runner):
        parse_beam_options([f"--runner={runner}"], OURS)


def test_the_local_runner_is_named_and_never_a_download():
    assert type(runner_for("direct")).__name__ == "FnApiRunner"
    for engine in ("prism", "flink", "spark"):
        with pytest.raises(NotAvailableError, match=engine):
            runner_for(engine)
    with pytest.raises(InputError, match="Did you mean 'direct'"):
        runner_for("dirct")


def test_workers_become_threads_unless_told_otherwise():
    options = local_options(3, ()).view_as(DirectOptions)
    assert (options.direct_num_workers, options.direct_running_mode) == (3, "multi_threading")
    options = local_options(2, ("--direct_running_mode=multi_processing",)).view_as(DirectOptions)
    assert (options.direct_num_workers, options.direct_running_mode) == (2, "multi_processing")
    options = local_options(1, ("--direct_num_workers=4",)).view_as(DirectOptions)
    assert options.direct_num_workers == 4
