"""The end of a stopped job: one expected traceback is left out, everything else is printed."""

import sys
import traceback

import pytest
from ldp_beam.pipelines.quiet_end import QuietEnd


class Worker:
    """Stands for Beam's worker: the names of these functions are those in its traceback."""

    def release(self, error):
        raise error

    def _execute(self, error):
        try:
            self.release(error)
        except Exception:
            print(traceback.format_exc(), file=sys.stderr)


@pytest.mark.parametrize(
    ("error", "begun", "shown"),
    [
        (KeyError("inst064"), True, False),
        (KeyError("inst064"), False, True),  # before a stop it is news
        (RuntimeError("inst064"), True, True),
    ],
)
def test_only_a_bundle_that_a_stopped_job_no_longer_knows_is_not_told(capsys, error, begun, shown):
    with QuietEnd() as ending:
        if begun:
            ending.begin()
        Worker()._execute(error)
        print("a warning", file=sys.stderr)
    told = capsys.readouterr().err
    assert told.endswith("a warning\n")
    assert ("Traceback" in told) == shown
    assert (told == "a warning\n") == (not shown)


def test_afterwards_standard_error_is_what_it_was():
    before = sys.stderr
    with QuietEnd() as ending:
        ending.begin()
        ending.begin()
        assert sys.stderr is not before
        assert sys.stderr.isatty() == before.isatty()
    assert sys.stderr is before
