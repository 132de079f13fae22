"""What a failed run says: the worker's own error, also where the engine tells something else."""

import logging

import pytest
from apache_beam.runners.worker import sdk_worker
from ldp_beam.errors import InputError, RunError
from ldp_beam.pipelines.failures import WorkerErrors, translated

STANDSTILL = RuntimeError(
    "Pipeline job-001 failed in state FAILED: nothing in progress and no refreshes with non zero pending elements: 1\n"
    "stage-000 watermark in +inf out +inf"
)
WORKER = "ldp_beam.errors.InputError: ledger.sqlite refuses this run [while running 'Clients/Charge']\n"


@pytest.fixture
def level():
    """Return the function that sets what Beam logs; set back afterwards."""
    logger = logging.getLogger("apache_beam")
    before = logger.level
    yield logger.setLevel
    logger.setLevel(before)


@pytest.fixture
def quiet(level):
    """As the command line runs: nothing of Beam's is printed."""
    level(logging.CRITICAL)


def fail(text=WORKER):
    sdk_worker._LOGGER.error("Error processing instruction %s. Original traceback is\n%s\n", "bundle_1", text)


def test_an_error_that_the_engine_does_not_tell_is_taken_from_the_worker(quiet, capfd):
    with WorkerErrors() as workers:
        fail()
    found = translated(STANDSTILL, workers)
    assert type(found) is InputError
    assert str(found) == "ledger.sqlite refuses this run"
    assert not any(capfd.readouterr())


def test_any_error_of_a_worker_says_more_than_a_standstill(quiet):
    with WorkerErrors() as workers:
        fail('Traceback (most recent call last):\n  File "x.py", line 1, in process\nMemoryError: 3 GiB')
    assert str(translated(STANDSTILL, workers)).startswith("The run failed: MemoryError: 3 GiB")


def test_an_error_that_the_engine_tells_goes_before_an_earlier_one_of_a_worker(quiet):
    with WorkerErrors() as workers:
        fail()
    found = translated(RuntimeError("ldp_beam.errors.RunError: the disk is full\n\nmore"), workers)
    assert (type(found), str(found)) == (RunError, "the disk is full")


def test_what_a_worker_says_outside_the_block_is_not_kept(quiet, caplog):
    with WorkerErrors() as workers:
        pass
    fail()
    assert workers.last == ""
    assert not caplog.records
    assert str(translated(STANDSTILL, workers)).startswith("The run failed: stage-000 watermark")


def test_without_the_command_line_beam_logs_as_ever(level, caplog):
    level(logging.NOTSET)
    with WorkerErrors() as workers:
        fail()
    assert len(caplog.records) == 1
    assert "refuses this run" in workers.last
