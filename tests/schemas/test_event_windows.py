"""Windows of event time: arithmetic against brute force, and what is refused."""

import os
import subprocess
import sys

import pytest
from hypothesis import given
from hypothesis import strategies as st
from ldp_beam.errors import InputError
from ldp_beam.schemas.event_windows import Windows, parse_duration

shapes = st.tuples(st.integers(1, 12), st.integers(1, 12), st.booleans()).map(
    lambda three: (
        Windows(size=three[0] * three[1], slide=three[1])
        if three[2]
        else Windows(size=three[1], slide=three[0] * three[1])
    )
)


@given(shapes, st.integers(-500, 500))
def test_starts_are_those_of_all_windows_that_hold_a_time(windows, time):
    every = [k * windows.slide for k in range(-600, 600)]
    assert windows.starts(time) == [start for start in every if start <= time < start + windows.size]


@given(shapes, st.integers(-500, 500))
def test_a_slice_lies_in_a_window_as_a_whole(windows, time):
    start = time - time % windows.slice
    assert windows.starts(start) == windows.starts(time) == windows.starts(start + windows.slice - 1)


def test_kinds_ends_and_names():
    sliding = Windows(size=3600, slide=600, lateness=60)
    assert (sliding.slices, sliding.slice, sliding.end(0), sliding.closes(0)) == (6, 600, 3600, 3660)
    assert sliding.name(0) == "19700101T000000Z--19700101T010000Z"
    assert sliding.as_json()["kind"] == "sliding"
    assert Windows(size=5, slide=10).as_json()["kind"] == "with gaps"
    assert Windows(size=5, slide=5).as_json()["kind"] == "fixed"


def test_a_window_is_made_of_whole_slices():
    with pytest.raises(InputError, match="whole slices"):
        Windows(size=25, slide=10)
    for wrong in ({"size": 0, "slide": 1}, {"size": 1, "slide": 1, "lateness": -1}):
        with pytest.raises(InputError, match="lateness"):
            Windows(**wrong)


@pytest.mark.parametrize(
    ("text", "seconds"), [("30s", 30), ("10m", 600), ("1 h", 3600), ("7D", 604_800), ("2w", 1_209_600)]
)
def test_durations(text, seconds):
    assert parse_duration(text, "--window") == seconds


@pytest.mark.parametrize("text", ["", "h", "1.5h", "-1m", "10", "1month", "0", "0s"])
def test_no_durations(text):
    with pytest.raises(InputError, match="--window"):
        parse_duration(text, "--window")
    assert parse_duration("0", "--allowed-lateness", zero=True) == 0


@pytest.mark.parametrize("text", ["session", "session:5m", "Sessions(300)"])
def test_session_windows_are_refused_with_the_reason(text):
    """B27: sessions of different users would merge where they overlap."""
    with pytest.raises(InputError, match=r"session windows are refused.*different people.*merge"):
        parse_duration(text, "--window")


def test_the_time_zone_of_the_machine_does_not_matter():
    """B23: bounds of windows are the same everywhere."""
    code = "from ldp_beam.schemas.event_windows import Windows as W; print(W(size=86400, slide=86400).name(86400))"
    told = {
        subprocess.run(
            [sys.executable, "-c", code], env={**os.environ, "TZ": zone}, capture_output=True, text=True, check=True
        ).stdout
        for zone in ("UTC", "America/New_York", "Asia/Kathmandu")
    }
    assert told == {"19700102T000000Z--19700103T000000Z\n"}
