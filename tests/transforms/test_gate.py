"""The gate's book: what is open, what is closed, and in which order."""

from hypothesis import given
from hypothesis import strategies as st
from ldp_beam.schemas.event_windows import Windows
from ldp_beam.transforms.gate import GateBook, milliseconds


def closed(book, windows):
    book.close(book.closing[0] - windows.lateness - windows.size + windows.slide)


def test_a_window_that_is_closed_stays_closed_and_so_do_earlier_ones():
    windows, book = Windows(size=10, slide=10, lateness=5), GateBook()
    assert book.is_open(windows.closes(0))
    assert book.admit(10, [windows.closes(10)])
    closed(book, windows)
    assert book.horizon == 25
    assert not book.is_open(windows.closes(10))
    assert not book.is_open(windows.closes(0))  # although nothing was ever heard of it
    assert book.is_open(windows.closes(20))


def test_only_a_new_first_closing_time_sets_the_timer_again():
    book = GateBook()
    assert book.admit(10, [20])
    assert not book.admit(10, [20])
    assert not book.admit(20, [30])
    assert book.admit(0, [10])
    assert book.closing == [10, 20, 30]
    assert book.met == 3


@given(st.lists(st.integers(0, 300), max_size=40), st.sampled_from([(30, 10, 0), (10, 10, 20), (20, 20, 0)]))
def test_the_state_is_that_of_open_windows_alone(times, shape):
    windows = Windows(size=shape[0], slide=shape[1], lateness=shape[2])
    book, slices = GateBook(), set()
    for time in times:
        start = time - time % windows.slice
        taking = [c for c in map(windows.closes, windows.starts(start)) if book.is_open(c)]
        if taking:
            book.admit(start, taking)
            slices.add(start)
        if len(book.closing) > 3:
            closed(book, windows)
        assert all(book.is_open(c) for c in book.closing)
        assert all(any(book.is_open(windows.closes(w)) for w in windows.starts(s)) for s in book.slices)
    assert book.met == len(slices)
    while book.closing:
        closed(book, windows)
    assert book.slices == []


def test_steps_fire_one_after_the_other():
    assert [milliseconds(2, delay).micros for delay in (1, 2, 3, 4)] == [2_001_000, 2_002_000, 2_003_000, 2_004_000]
