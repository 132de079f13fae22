"""What a stream leaves behind, read by the other verbs; and what a stream refuses before it begins."""

import json

import numpy as np
import pyarrow.parquet as pq
import pytest
from ldp_beam.errors import InputError
from ldp_beam.mechanisms import Reports
from ldp_beam.pipelines.results import manifest_of
from ldp_beam.pipelines.running import Clock, Engine
from ldp_beam.pipelines.stream_folder import StreamFolder
from ldp_beam.pipelines.stream_metrics import UNAVAILABLE, checked_metrics, read_metrics
from ldp_beam.pipelines.stream_status import StatusLine, status_of
from ldp_beam.schemas.event_windows import Windows
from ldp_beam.schemas.manifest import Randomness
from ldp_beam.transforms.collection import Collection
from ldp_beam.transforms.count_windows import Pane
from ldp_beam.transforms.publish_panes import PaneWriter
from ldp_beam.transforms.set_aside import replace_file
from rich.console import Console

HOUR = 3600
IDENTITY = {"fingerprint": "x", "windows": {}, "format": "parquet", "clients": False, "estimator": "corrected"}


@pytest.fixture
def collection(define):
    return Collection.load(define(mechanism="pckv-grr", epsilon=4, padding=1))


def counts(collection, keys):
    reports = Reports(n=len(keys), arrays={"key": np.array(keys, np.int32), "sign": np.ones(len(keys), np.int8)})
    return collection.mechanism.count(reports)


def base_of(collection, source="a topic"):
    randomness = Randomness(source="reports", private=True)
    engine, nothing = Engine(name="prism"), {"records": None, "reports": None, "files": [], "spends": False}
    manifest = manifest_of("stream", collection, randomness, engine, Clock(), **nothing)
    return manifest.as_json() | {"source": source}


@pytest.fixture
def live(collection, tmp_path):
    """A stream with two closed windows of several panes, and one that is open."""

    def make(format_="parquet", name="live", slide=HOUR):
        windows = Windows(size=HOUR, slide=slide, lateness=600)
        base = base_of(collection)
        with StreamFolder(tmp_path / name, IDENTITY | {"format": format_}) as folder:
            writer = PaneWriter(
                collection=collection, windows=windows, folder=str(folder.path), format_=format_, manifest=base
            )
            for start, timing, n in [
                (0, "early", 200), (0, "on-time", 400), (0, "final", 400), (HOUR, "on-time", 500),
                (HOUR, "late", 600), (HOUR, "final", 600), (2 * HOUR, "early", 90),
            ]:  # fmt: skip
                keys = [i % 2 + (start == HOUR) for i in range(n)]
                writer.write(
                    Pane(start=start, timing=timing, counts=counts(collection, keys), slices={start: n}, repeated=0,
                         met=1, private=True, memoised=False)
                )  # fmt: skip
            replace_file(folder.path / "rejects" / "too_late.json", b'{"reason": "too_late", "rows": 7}')
            folder.look()
            folder.write_manifest(folder.manifest(base, "running", {"late": 7}, seconds=1.0))
        return tmp_path / name

    return make


def test_the_manifest_tells_the_last_pane_of_each_window(live):
    manifest = json.loads((live() / "manifest.json").read_text())
    assert [(file["start"][11:13], file["n"], file["is_final"], file["pane"]) for file in manifest["files"]] == [
        ("00", 400, True, 2),
        ("01", 600, True, 2),
        ("02", 90, False, 0),
    ]
    assert manifest["reports"] == {"counted_in_windows": 1090, "repeated": 0, "rejected": {"too_late": 7}}
    assert manifest["stream"] | {"identity": 0} == {
        "identity": 0, "state": "running", "windows": 3, "final_windows": 2, "conflicts": 0, "metrics": {"late": 7},
    }  # fmt: skip
    assert manifest["epsilon"]["slices"] == 3


@pytest.mark.parametrize("format_", ["parquet", "csv", "json", "avro"])
def test_evaluate_takes_the_last_final_window_or_the_one_that_is_named(live, run_json, tmp_path, format_):
    truth = tmp_path / "truth.csv"
    truth.write_text("key,frequency\napple,0.5\nbanana,0.5\ncherry,0\n")
    given = ("evaluate", "--estimates", live(format_), "--truth", truth)
    assert run_json(*given)["figures"]["n"] == 600
    assert run_json(*given, "--window", "1970-01-01T00:00:00Z")["figures"]["n"] == 400
    assert run_json(*given, "--window", "1970-01-01T02")["figures"]["n"] == 90


def test_a_window_that_is_not_there_is_refused_with_those_that_are(live, run, tmp_path):
    truth = tmp_path / "truth.csv"
    truth.write_text("key,frequency\napple,0.5\nbanana,0.5\ncherry,0\n")
    code, _, err = run("evaluate", "--estimates", live(), "--truth", truth, "--window", "1999")
    assert code == 2
    assert "no windows that start at 1999" in err
    assert "1970-01-01T02:00:00Z" in err


def test_two_windows_of_a_stream_are_compared(live, run_json, run):
    given = ("compare", "--first", live(), "--second", live(name="other"), "--first-window", "1970-01-01T00:00")
    compared = run_json(*given)
    differing = {row["key"] for row in compared["rows"] if row["differs"] and row["figure"] == "frequency"}
    assert differing == {"apple", "cherry"}
    code, _, err = run(*given, "--second-window", "1970-01-01T00:00")
    assert code == 2
    assert "overlap" in err


def test_the_report_shows_every_window(live, run, tmp_path):
    code, _, err = run("report", "--input", live(), "--output", tmp_path / "page.html")
    assert code == 0, err
    page = (tmp_path / "page.html").read_text()
    for hour in ("00:00", "01:00:00", "02:00:00"):
        assert hour in page


def test_a_pane_is_a_result_of_its_own(live, run, tmp_path):
    pane = live() / "windows" / "19700101T010000Z--19700101T020000Z" / "pane-001"
    code, _, err = run("report", "--input", pane, "--output", tmp_path / "page.html")
    assert code == 0, err
    assert pq.read_table(pane / "estimates.parquet")["n"][0].as_py() == 600


def test_a_stream_without_a_window_says_so(collection, tmp_path, run):
    with StreamFolder(tmp_path / "live", IDENTITY) as folder:
        folder.write_manifest(folder.manifest(base_of(collection), "running", None, seconds=0.0))
    code, _, err = run("report", "--input", tmp_path / "live", "--output", tmp_path / "page.html")
    assert code == 2
    assert "no window yet" in err


# -- the folder -----------------------------------------------------------------------------------------------


def test_one_stream_at_a_time_writes_into_a_folder(tmp_path):
    with (
        StreamFolder(tmp_path / "live", IDENTITY),
        pytest.raises(InputError, match="another stream writes there"),
        StreamFolder(tmp_path / "live", IDENTITY),
    ):
        pass
    with StreamFolder(tmp_path / "live", IDENTITY):
        pass


def test_only_the_same_stream_goes_on_in_a_folder(live):
    path = live()
    other = StreamFolder(path, IDENTITY | {"fingerprint": "y"})
    with pytest.raises(InputError, match="another stream: it differs in fingerprint"), other:
        pass
    with StreamFolder(path, IDENTITY) as folder:
        folder.look()
        assert len(folder.panes()) == 3
        assert folder.rejected() == {}  # a run counts from its own beginning
        assert (path / "rejects" / "earlier-000" / "too_late.json").is_file()  # and keeps what was kept
    with StreamFolder(path, IDENTITY | {"fingerprint": "y"}, overwrite=True) as folder:
        folder.look()
        assert folder.panes() == []


def test_files_of_others_are_not_touched(tmp_path):
    (tmp_path / "live").mkdir()
    (tmp_path / "live" / "thesis.tex").write_text("x")
    with pytest.raises(InputError, match=r"thesis\.tex"), StreamFolder(tmp_path / "live", IDENTITY, overwrite=True):
        pass
    with pytest.raises(InputError, match="object stores"):
        StreamFolder("gs://bucket/live", IDENTITY)


# -- what people see ------------------------------------------------------------------------------------------


def test_the_status_is_one_line_and_a_log_gets_few(live, collection):
    folder = StreamFolder(live(), IDENTITY)
    folder.look()
    line = status_of(folder)
    assert line.startswith("Window 1970-01-01 02:00:00 to 1970-01-01 03:00:00 UTC (early): 90 reports; 3 windows")
    assert "2 of them final; late 7" in line
    now = [0.0]
    console = Console(record=True, width=300, force_terminal=False)
    with StatusLine(console, clock=lambda: now[0]) as status:
        for _ in range(3):
            status.update(folder)
        replace_file(folder.path / "rejects" / "too_late.json", b'{"reason": "too_late", "rows": 8}')
        folder.look()
        status.update(folder)  # too soon
        now[0] = 11.0
        status.update(folder)
    assert console.export_text().count("\n") == 2


def test_nothing_is_said_before_the_first_window(tmp_path):
    with StreamFolder(tmp_path / "live", IDENTITY) as folder:
        folder.look()
        assert status_of(folder) is None


def test_a_counter_that_an_engine_does_not_tell_is_unavailable():
    """B34: missing is said to be missing, never 0."""

    class Gone:
        def metrics(self):
            raise NotImplementedError

    assert set(read_metrics(Gone()).values()) == {UNAVAILABLE}


def test_a_counter_that_lost_a_part_is_unavailable_too():
    assert checked_metrics({"late": 2, "rows_read": 5, "x": 1}, {"late": 3, "rows_read": 5}) == {
        "late": UNAVAILABLE, "rows_read": 5, "x": 1,
    }  # fmt: skip


# -- refusals -------------------------------------------------------------------------------------------------


@pytest.fixture
def streamed(define, tmp_path, run):
    (tmp_path / "in").mkdir()

    def call(*more):
        return run("stream", "--collection", define(), "--source", tmp_path / "in", "--window", "1h",
                   "--allowed-lateness", "0s", "--output", tmp_path / "out", *more)  # fmt: skip

    return call


@pytest.mark.parametrize(
    ("more", "parts"),
    [
        (["--engine", "direct"], ["inside this process", "--engine prism", "--engine flink"]),
        (["--engine", "spark"], ["spark", "not available"]),
        (["--window", "session:5m"], ["session windows are refused", "merge"]),
        (["--window", "25m", "--slide", "10m"], ["whole slices"]),
        (["--allowed-lateness", "soon"], ["--allowed-lateness soon", "10m"]),
        (["--ledger", "l.sqlite"], ["--ledger", "the server spends nothing"]),
        (["--seed", "1"], ["--seed", "--records"]),
        (["--source", "nowhere"], ["nowhere", "no folder"]),
        (["--source", "simulate:gauss,users=5"], ["--records"]),
        (["--output", "another"], ["one --output DIR"]),
        (["--format", "xml"], ["xml", "parquet"]),
        (["--records", "--memoise", "m.sqlite"], ["belong together"]),
        (["--early", "0s"], ["--early 0s"]),
    ],
)
def test_wrong_usage_is_told_before_anything_runs(streamed, tmp_path, more, parts):
    code, out, err = streamed(*more)
    assert (code, out) == (2, ""), err
    for part in parts:
        assert part in err
    assert not (tmp_path / "out").exists()


def test_lateness_has_no_default(define, tmp_path, run):
    code, _, err = run("stream", "--collection", define(), "--source", tmp_path, "--window", "1h", "--output", "x")
    assert code == 2
    assert "--allowed-lateness" in err


def test_memoised_reports_and_sliding_windows_exclude_each_other(define, tmp_path, run):
    secret = tmp_path / "secret.hex"
    assert run("secret", "new", secret)[0] == 0
    code, _, err = run(
        "stream", "--collection", define(), "--source", tmp_path, "--records", "--window", "1h", "--slide", "10m",
        "--allowed-lateness", "0s", "--output", tmp_path / "out", "--secret-file", secret, "--period", "x",
        "--memoise", tmp_path / "memo", "--memoise-states", "2",
    )  # fmt: skip
    assert code == 2
    assert "standard errors" in err
