"""Progress: a bar on a terminal, one line in a log, nothing under --json."""

import io
import threading
import time

import pytest
from ldp_beam.pipelines.progress import RunProgress
from ldp_beam.transforms.rows_read import WATCHED_ROWS, RowsRead
from rich.console import Console


def screen(*, terminal):
    return Console(file=io.StringIO(), force_terminal=terminal, width=80, color_system=None)


def shown(console):
    return console.file.getvalue()


def test_a_log_gets_one_line():
    console, rows, times = screen(terminal=False), RowsRead(), iter([0.0, 4.0])
    with RunProgress(console, rows=rows, clock=lambda: next(times)):
        rows.begin(2000)
        rows.add(1200)
        rows.add(800)
    assert shown(console) == "2,000 rows in 4.0 s (500 a second)\n"


@pytest.mark.parametrize("terminal", [True, False])
def test_quiet_shows_nothing(terminal):
    console, rows = screen(terminal=terminal), RowsRead()
    with RunProgress(console, quiet=True, rows=rows, patience=0):
        rows.add(10)
        time.sleep(0.3)
    assert shown(console) == ""


def test_an_error_is_not_decorated():
    console, rows = screen(terminal=False), RowsRead()
    progress = RunProgress(console, rows=rows).__enter__()
    rows.add(1)
    progress.__exit__(KeyError, KeyError(), None)
    assert shown(console) == ""


def test_a_terminal_gets_a_bar_with_rate_and_end():
    console, rows = screen(terminal=True), RowsRead()
    with RunProgress(console, rows=rows, patience=0):
        rows.begin(1_000_000)
        end = time.monotonic() + 20
        while "/s" not in shown(console) and time.monotonic() < end:
            rows.add(1000)
            time.sleep(0.05)
    assert "Rows read" in shown(console)
    assert "/1000000" in shown(console).replace(",", "")
    assert "/s" in shown(console)
    assert not [thread for thread in threading.enumerate() if thread.name == "progress"]


def test_a_short_run_on_a_terminal_shows_nothing():
    console, rows = screen(terminal=True), RowsRead()
    with RunProgress(console, rows=rows, patience=60):
        rows.add(1)
    assert shown(console) == ""


def test_rows_of_all_threads_are_counted():
    rows = RowsRead()
    rows.begin(None)
    threads = [threading.Thread(target=lambda: [rows.add(1) for _ in range(1000)]) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert rows.state == (4000, None)


def test_a_run_counts_the_rows_that_it_reads(define, nested, people, run, tmp_path):
    records = nested(people(500), row_group_size=100)
    code, out, err = run("collect", "--collection", define(), "--input", records, "--output", tmp_path / "out")
    assert (code, out) == (0, "")
    assert WATCHED_ROWS.state == (500, 500)
    assert "500 rows in" in err
    code, out, err = run("evaluate", "--estimates", tmp_path / "out", "--records", records, "--json")
    assert code == 0
    assert "rows in" not in err


def test_reports_are_counted_too(define, nested, people, run, tmp_path):
    records = nested(people(300))
    assert run("perturb", "--collection", define(), "--input", records, "--output", tmp_path / "reports")[0] == 0
    code, _, err = run(
        "aggregate",
        "--collection",
        define(),
        "--input",
        tmp_path / "reports" / "*.parquet",
        "--output",
        tmp_path / "out",
    )
    assert code == 0
    assert WATCHED_ROWS.state == (300, 300)
    assert "300 rows in" in err
