"""`aggregate --counts-store` from the command line: nights, late files, re-runs, gaps, limits, and what is refused."""

import json
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from ldp_beam.errors import InputError
from ldp_beam.mechanisms import Secret, make_records
from ldp_beam.pipelines.aggregate_period import StoreRun, aggregate_store, spans_text
from ldp_beam.schemas.counts_store import parse_day
from ldp_beam.transforms.batches import reports_to_batch
from ldp_beam.transforms.collection import Collection
from ldp_beam.transforms.table_files import write_table

NIGHTS = ("2026-11-01", "2026-11-02", "2026-11-03")


def content(folder):
    paths = sorted(path for path in Path(folder).rglob("*") if path.is_file() and not path.name.startswith("."))
    return {str(path.relative_to(folder)): path.read_bytes() for path in paths}


@pytest.fixture
def world(define, run_json, tmp_path):
    """A collection whose clients report, and a server with a store."""

    class World:
        definition = define()
        folder = tmp_path
        store = tmp_path / "store"

        def reports(
            self, day, n=300, name="first", start=0, to=None, seed=None, format_="parquet", memoised=False, window=()
        ):
            """Write a file of reports of n people on a day, as clients do; returns its folder."""
            collection = Collection.load(self.definition)
            secret = Secret.new() if seed is None else Secret.from_seed(seed)
            held = [(f"user-{start}-{i}", {i % 3: (i % 9 - 4) / 4}) for i in range(n)]
            records = make_records(secret.users(), [user for user, _ in held], [pairs for _, pairs in held])
            stream = secret.stream(fingerprint=collection.fingerprint, period=day, round=0)
            header = collection.header("reports", period=day, private=secret.private, memoised=memoised, **dict(window))
            schema = collection.report_schema(header)
            to = to or tmp_path / "reports" / f"{day}-{name}"
            to.mkdir(parents=True, exist_ok=True)
            batch = reports_to_batch(collection.mechanism.perturb(records, stream), schema)
            write_table(str(to / f"{name}.{format_}"), batch, format_, name="report")
            return to

        def aggregate(self, *arguments, output="result"):
            return run_json(
                "aggregate",
                *("--collection", self.definition, "--counts-store", self.store, "--overwrite"),
                *("--output", tmp_path / output, *arguments),
            )

        def table(self, output="result"):
            return pq.read_table(tmp_path / output / "estimates.parquet")

        def counts(self, output="result"):
            return pq.read_table(tmp_path / output / "counts.parquet").to_pylist()

    return World()


def plain(world, run_json, *inputs, output="plain"):
    """What `aggregate` without a store says of the same files."""
    run_json(
        *("aggregate", "--collection", world.definition, "--overwrite", "--output", world.folder / output),
        *("--input", *inputs),
    )
    return world.counts(output), world.table(output)


def all_but_n(table):
    return table.drop_columns(["n"]).replace_schema_metadata(None)


def test_three_nights_a_late_file_a_re_run_and_a_gap(world, run_json):
    first = world.reports(NIGHTS[0])
    told = world.aggregate("--input", first)
    assert told["counts_store"] == {
        "since": NIGHTS[0],
        "until": NIGHTS[0],
        "by": "total",
        "days": 1,
        "gaps": [],
        "counted": [NIGHTS[0]],
        "replaced": [],
        "unchanged": [],
        "outside": [],
    }
    assert told["reports"] == {"counted": 300, "malformed": 0, "unreadable": 0, "refused_files": 0}
    assert told["metrics"] == {"reports_read": 300, "reports_malformed": 0, "reports_counted": 300, "late": 0}

    third = world.reports(NIGHTS[2], n=200)  # nothing came on the second night
    told = world.aggregate("--input", world.folder / "reports" / "*" / "*.parquet")
    assert told["counts_store"]["counted"] == [NIGHTS[2]]
    assert told["counts_store"]["unchanged"] == [NIGHTS[0]]
    assert told["counts_store"]["gaps"] == [NIGHTS[1]]
    assert any("2026-11-02" in warning for warning in told["warnings"])
    assert told["reports"]["counted"] == 500
    counts, table = plain(world, run_json, first, third)
    assert world.counts() == counts
    assert world.table().equals(table)

    before = content(world.store)
    world.aggregate("--input", world.folder / "reports" / "*" / "*.parquet")  # again, nothing new
    assert content(world.store) == before
    world.aggregate("--input", first, "--recount")  # and from the beginning
    assert content(world.store) == before

    late = world.reports(NIGHTS[0], n=50, name="late", start=1)
    told = world.aggregate("--input", world.folder / "reports" / "*" / "*.parquet")
    assert told["counts_store"]["replaced"] == [NIGHTS[0]]
    assert told["counts_store"]["unchanged"] == [NIGHTS[2]]
    assert told["metrics"]["late"] == 50
    assert world.counts() == plain(world, run_json, first, third, late)[0]
    changed = {name for name, data in content(world.store).items() if before[name] != data}
    assert changed == {f"date={NIGHTS[0]}/counts.parquet"}


def test_a_store_depends_on_the_files_alone_not_on_the_order_in_which_they_came(world, run_json):
    folders = [world.reports(NIGHTS[0]), world.reports(NIGHTS[0], n=40, name="late", start=1), world.reports(NIGHTS[1])]
    world.aggregate("--input", folders[0])
    world.aggregate("--input", *folders)
    at_once = world.folder / "at-once"
    run_json(
        *("aggregate", "--collection", world.definition, "--counts-store", at_once, "--output", world.folder / "r2"),
        *("--input", *folders[::-1]),
    )
    assert content(world.store) == content(at_once)


def test_a_period_needs_no_new_input(world, run_json):
    folders = {day: world.reports(day, n=100 + i) for i, day in enumerate(NIGHTS)}
    world.aggregate("--input", *folders.values())
    told = world.aggregate("--since", NIGHTS[1])
    assert told["counts_store"]["days"] == 2
    assert told["reports"]["counted"] == 203
    assert world.counts() == plain(world, run_json, folders[NIGHTS[1]], folders[NIGHTS[2]])[0]
    told = world.aggregate("--until", NIGHTS[0])
    assert told["reports"]["counted"] == 100
    assert told["randomness"]["period"] == NIGHTS[0]
    told = world.aggregate("--since", "2026-10-30", "--until", "2026-11-05")
    assert told["counts_store"]["gaps"] == ["2026-10-30", "2026-10-31", "2026-11-04", "2026-11-05"]


def test_days_counted_back_from_today(world, run, monkeypatch):
    monkeypatch.setattr("ldp_beam.pipelines.cli_store._today", lambda: parse_day("2026-11-04", ""))
    for day in NIGHTS:
        world.reports(day)
    told = world.aggregate(
        *("--input", world.folder / "reports" / "*" / "*.parquet", "--since", "3d", "--until", "yesterday")
    )
    assert (told["counts_store"]["since"], told["counts_store"]["until"]) == (NIGHTS[0], NIGHTS[2])
    assert world.aggregate("--since", "2d")["counts_store"]["since"] == NIGHTS[1]
    assert world.aggregate("--until", "today")["counts_store"]["gaps"] == ["2026-11-04"]
    code, _, err = run(
        *("aggregate", "--collection", world.definition, "--counts-store", world.store, "--overwrite"),
        *("--output", world.folder / "result"),
    )
    assert code == 0
    assert "Days from 2026-11-01 to 2026-11-03: 3 with counts. Counted now: none" in err
    assert "n counts reports, not people" in err


def test_counts_files_are_an_input_too(world, run_json):
    folder = world.reports(NIGHTS[0])
    world.aggregate("--input", folder)
    by_reports = world.counts()
    run_json(
        *("aggregate", "--collection", world.definition, "--input", folder, "--output", world.folder / "night"),
        *("--period", NIGHTS[0]),
    )
    world.store = world.folder / "second-store"
    told = world.aggregate("--input", world.folder / "night" / "counts.parquet")
    assert told["metrics"]["reports_counted"] == "unavailable"  # no engine counted them
    names = {path.name for path in (world.folder / "result").iterdir()}
    assert names == {"estimates.parquet", "counts.parquet", "manifest.json"}
    assert world.counts() == by_reports


def test_files_of_several_days_and_formats_at_once(world):
    world.reports(NIGHTS[0], n=100, to=world.folder / "a", format_="avro")
    world.reports(NIGHTS[1], n=50, to=world.folder / "b")
    world.reports(NIGHTS[2], n=0, to=world.folder / "c")
    told = world.aggregate("--input", world.folder / "a", world.folder / "b")
    assert told["counts_store"]["counted"] == [NIGHTS[0], NIGHTS[1]]
    assert told["reports"]["counted"] == 150


def test_period_names_the_day_of_files_that_name_none(world, run, run_json, nested, people):
    records, to = nested(people(60)), world.folder / "anonymous"
    run_json("perturb", "--collection", world.definition, "--input", records, "--output", to)
    told = world.aggregate("--input", to, "--period", NIGHTS[1])
    assert told["counts_store"]["counted"] == [NIGHTS[1]]
    common = ("aggregate", "--collection", world.definition, "--counts-store", world.store)
    code, _, err = run(*common, "--input", to, "--output", world.folder / "no")
    assert code == 2
    assert "--period DATE" in err
    other = world.reports(NIGHTS[0])
    code, _, err = run(*common, "--input", other, "--period", NIGHTS[1], "--output", world.folder / "no")
    assert code == 2
    assert "holds reports of 2026-11-01, but 2026-11-02 is counted" in err


def test_reports_of_slices_of_time_belong_to_the_day_of_their_slice(world, run):
    hour = {"window_start": "2026-11-02T23:00:00Z", "window_seconds": 3600}
    told = world.aggregate("--input", world.reports("autumn", n=70, window=hour))
    assert told["counts_store"]["counted"] == [NIGHTS[1]]
    over_midnight = world.reports("winter", window=hour | {"window_seconds": 7200})
    assert "does not lie within one day (UTC)" in refused(run, world, "--input", over_midnight)


def test_estimates_over_time_are_windows(world, run_json):
    for day in ("2026-10-31", *NIGHTS):
        world.reports(day, n=100)
    told = world.aggregate("--input", world.folder / "reports" / "*" / "*.parquet", "--by", "day")
    table = world.table()
    starts = sorted(set(table["window_start"].to_pylist()))
    assert [f"{start:%Y-%m-%d}" for start in starts] == ["2026-10-31", *NIGHTS]
    assert table.num_rows == 4 * 3
    assert set(table["n"].to_pylist()) == {100}
    assert set(table["is_final"].to_pylist()) == {True}
    assert not (world.folder / "result" / "counts.parquet").exists()
    assert told["reports"]["counted"] == 400
    world.aggregate("--by", "month")
    assert (
        sorted(set(zip(world.table()["window_start"].to_pylist(), world.table()["n"].to_pylist(), strict=True)))[1][1]
        == 300
    )
    world.aggregate("--by", "week", "--format", "json")
    lines = (world.folder / "result" / "estimates.json").read_text().splitlines()
    assert json.loads(lines[0])["window_start"].startswith("2026-10-31T00:00:00")
    for format_ in ("csv", "avro"):
        world.aggregate("--by", "day", "--format", format_)


def test_a_page_shows_the_days(world, run, run_json):
    for day in NIGHTS:
        world.reports(day, n=100)
    world.aggregate("--input", world.folder / "reports" / "*" / "*.parquet", "--by", "day")
    page = world.folder / "page.html"
    run_json("report", "--input", world.folder / "result", "--output", page)
    assert f'"label":"{NIGHTS[2]}"' in page.read_text(encoding="utf-8")
    code, _, err = run(
        *("aggregate", "--collection", world.definition, "--counts-store", world.store, "--by", "day", "--overwrite"),
        *("--output", world.folder / "result"),
    )
    assert code == 0
    assert "2026-11-03" in err


# -- what is refused ----------------------------------------------------------------------------------------------


def refused(run, world, *arguments, code=2):
    before = content(world.store) if world.store.exists() else None
    got, _, err = run(
        *("aggregate", "--collection", world.definition, "--counts-store", world.store),
        *("--output", world.folder / "no", *arguments),
    )
    assert got == code, err
    assert not (world.folder / "no").exists()
    assert (content(world.store) if world.store.exists() else None) == before
    return err


def test_part_of_a_days_files_does_not_take_the_others_place(world, run):
    first, second = world.reports(NIGHTS[0]), world.reports(NIGHTS[0], n=40, name="second", start=1)
    world.aggregate("--input", first, second)
    third = world.reports(NIGHTS[0], n=10, name="third", start=2)
    err = refused(run, world, "--input", third)
    assert "was counted from 2 files, of which 2 are not among the inputs" in err
    assert "--recount" in err
    told = world.aggregate("--input", third, "--recount")
    assert told["counts_store"]["replaced"] == [NIGHTS[0]]
    assert told["metrics"]["late"] == "unavailable"
    assert told["reports"]["counted"] == 10


def test_another_definition_a_seed_and_rounds_are_refused(world, run, run_json, define, nested, people):
    world.aggregate("--input", world.reports(NIGHTS[0]))
    right = world.definition
    world.definition = define("other.toml", epsilon="3")
    others = world.reports(NIGHTS[1])
    assert "another collection definition" in refused(run, world, "--since", NIGHTS[0])
    world.definition = right
    assert "another collection definition" in refused(run, world, "--input", others)
    seeded = world.reports(NIGHTS[1], name="seeded", seed=3)
    assert "the two are never added" in refused(run, world, "--input", seeded)
    world.definition = define("rounds.toml", mechanism="privkvm", padding="1", more="[privkv]\nrounds = 2")
    text = Path(world.definition).read_text().replace("padding   = 1\n", "")
    Path(world.definition).write_text(text)
    world.store = world.folder / "rounds-store"
    assert "asks in rounds" in refused(run, world, "--since", NIGHTS[0])
    world.definition = define("auto.toml", padding='"auto"')
    assert "asks two questions" in refused(run, world, "--since", NIGHTS[0])


def test_a_stranger_among_the_files_is_refused_alone(world):
    good = world.reports(NIGHTS[0])
    (good / "stranger.parquet").write_bytes(b"PAR1 nonsense")
    told = world.aggregate("--input", good)
    assert told["reports"]["counted"] == 300
    assert told["reports"]["refused_files"] == 1
    assert any("stranger.parquet" in warning for warning in told["warnings"])


def test_a_copy_is_counted_once(world):
    folder = world.reports(NIGHTS[0], n=1500)
    (path,) = folder.glob("*.parquet")
    (folder / "again.parquet").write_bytes(path.read_bytes())
    told = world.aggregate("--input", folder)
    assert told["reports"]["counted"] == 1500
    assert told["reports"]["refused_files"] == 1


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (("--since", "soon"), "count back from today (UTC)"),
        (("--since", "2026-11-02", "--until", "2026-11-01"), "lies after"),
        (("--by", "year"), "--by year"),
        (("--by", "dya"), "Did you mean 'day'"),
        (("--round", "1"), "exclude each other"),
        (("--detect-poisoning",), "exclude each other"),
        ((), "holds no counts; it is empty"),
        (("--max-rejects", "2"), "from 0 to 1"),
    ],
)
def test_wrong_usage(world, run, arguments, says):
    assert says in refused(run, world, *arguments)


@pytest.mark.parametrize("arguments", [("--since", "2026-11-01"), ("--by", "day"), ("--recount",), ("--max-gaps", "1")])
def test_options_of_a_store_need_a_store(run, define, tmp_path, arguments):
    code, _, err = run("aggregate", "--collection", define(), "--input", "x", "--output", tmp_path / "no", *arguments)
    assert code == 2
    assert "--counts-store DIR" in err
    code, _, err = run("aggregate", "--collection", define(), "--output", tmp_path / "no")
    assert code == 2
    assert "No input was given" in err


def test_a_period_without_counts_is_refused(world, run):
    world.aggregate("--input", world.reports(NIGHTS[0]))
    err = refused(run, world, "--since", "2027-01-01")
    assert "no counts in the period; its days are 2026-11-01" in err


# -- limits and exit codes ----------------------------------------------------------------------------------------


def test_a_gap_is_an_exit_code_of_its_own_and_the_result_is_there(world, run):
    world.aggregate("--input", world.reports(NIGHTS[0]))
    common = ("aggregate", "--collection", world.definition, "--counts-store", world.store, "--json", "--overwrite")
    period = ("--since", NIGHTS[0], "--until", NIGHTS[2], "--output", world.folder / "gaps")
    for allowed, code in (("2", 0), ("1", 3), ("0", 3)):
        got, out, _ = run(*common, *period, "--max-gaps", allowed)
        assert got == code
        assert json.loads(out)["counts_store"]["gaps"] == [NIGHTS[1], NIGHTS[2]]
    assert (world.folder / "gaps" / "manifest.json").is_file()


def spoil(folder, rows):
    """Make reports of a file malformed: both bits of a key set."""
    (path,) = folder.glob("*.parquet")
    table = pq.read_table(path)
    for name in ("plus", "minus"):
        column = [b"\x07" if i < rows else value for i, value in enumerate(table[name].to_pylist())]
        field = table.schema.field(name)
        table = table.set_column(table.schema.get_field_index(name), field, pa.array(column, field.type))
    pq.write_table(table, path)


def test_too_many_rejects_stop_the_run_before_anything_is_stored(world, run):
    folder = world.reports(NIGHTS[0], n=200)
    spoil(folder, 50)
    err = refused(run, world, "--input", folder, "--max-rejects", "0.2", code=1)
    assert "50 of 200 reports are malformed or unreadable" in err
    told = world.aggregate("--input", folder, "--max-rejects", "0.25")
    assert told["reports"] == {"counted": 150, "malformed": 50, "unreadable": 0, "refused_files": 0}
    told = world.aggregate("--since", NIGHTS[0])  # the store remembers
    assert told["reports"]["malformed"] == 50


def test_no_refused_file_is_allowed_where_no_reject_is(world, run, run_json):
    folder = world.reports(NIGHTS[0])
    (folder / "stranger.parquet").write_bytes(b"PAR1 nonsense")
    assert "1 files are refused" in refused(run, world, "--input", folder, "--max-rejects", "0", code=1)
    code, _, err = run(
        *("aggregate", "--collection", world.definition, "--input", folder, "--output", world.folder / "no"),
        *("--max-rejects", "0"),
    )
    assert code == 1
    assert "1 files are refused" in err


def test_days_outside_the_period_are_left_alone(world):
    for day in NIGHTS:
        world.reports(day)
    told = world.aggregate("--input", world.folder / "reports" / "*" / "*.parquet", "--since", NIGHTS[1])
    assert told["counts_store"]["outside"] == [NIGHTS[0]]
    assert told["counts_store"]["counted"] == [NIGHTS[1], NIGHTS[2]]
    assert not (world.store / f"date={NIGHTS[0]}").exists()


def test_a_damaged_file_that_comes_again_whole_makes_its_day_whole(world):
    folder = world.reports(NIGHTS[0], n=1200, format_="avro")
    (path,) = folder.glob("*.avro")
    whole = path.read_bytes()
    path.write_bytes(whole[: len(whole) - 20])
    told = world.aggregate("--input", folder)
    assert told["reports"]["refused_files"] == 1
    path.write_bytes(whole)
    told = world.aggregate("--input", folder)
    assert told["reports"]["counted"] == 1200
    assert told["counts_store"]["replaced"] == [NIGHTS[0]]


# -- days that do not add up ------------------------------------------------------------------------------------------


def test_memoised_days_are_estimated_one_by_one_and_never_summed(world, run):
    for day in NIGHTS[:2]:
        world.reports(day, n=100, memoised=True)
    err_of = ("--input", world.folder / "reports" / "*" / "*.parquet")
    code, _, err = run(
        *("aggregate", "--collection", world.definition, "--counts-store", world.store, *err_of),
        *("--output", world.folder / "no"),
    )
    assert code == 2
    assert "memoised reports of 2 days" in err
    told = world.aggregate("--by", "day")
    assert told["counts_store"]["days"] == 2
    assert world.aggregate("--since", NIGHTS[1])["reports"]["counted"] == 100
    code, _, err = run(
        *("aggregate", "--collection", world.definition, "--counts-store", world.store, "--by", "month"),
        *("--output", world.folder / "no"),
    )
    assert code == 2


def test_standard_errors_of_a_sum_are_those_of_all_its_reports(world, run_json):
    folders = [world.reports(day, n=400, start=i) for i, day in enumerate(NIGHTS)]
    world.aggregate("--input", *folders)
    _, table = plain(world, run_json, *folders)
    for name in ("frequency_se", "mean_se", "frequency_raw"):
        assert np.array_equal(world.table()[name].to_numpy(), table[name].to_numpy(), equal_nan=True)


# -- two runs, and one that is killed -----------------------------------------------------------------------------


def started(world, *arguments, output):
    return subprocess.Popen(
        [
            *(sys.executable, "-m", "ldp_beam.pipelines", "aggregate", "--collection", str(world.definition)),
            *("--counts-store", str(world.store), "--output", str(world.folder / output), "--json"),
            *map(str, arguments),
        ],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def test_two_runs_at_once_count_all_days(world):
    folders = [world.reports(day) for day in NIGHTS]
    runs = [
        started(world, "--input", folders[0], folders[1], output="one"),
        started(world, "--input", folders[1], folders[2], output="two"),
    ]
    ends = [one.communicate(timeout=120) for one in runs]
    assert [one.returncode for one in runs] == [0, 0], ends
    told = world.aggregate("--since", NIGHTS[0])
    assert told["counts_store"]["days"] == 3
    assert told["reports"]["counted"] == 900
    one_after_the_other, world.store = content(world.store), world.folder / "again"
    world.aggregate("--input", *folders)
    assert content(world.store) == one_after_the_other


def test_a_run_that_is_killed_is_made_good_by_the_next(world):
    folders = [world.reports(day) for day in NIGHTS]
    world.aggregate("--input", folders[0])
    before = world.aggregate("--since", NIGHTS[0])["reports"]
    killed = started(world, "--input", *folders, output="killed")
    end = time.monotonic() + 60
    while not list(world.folder.glob(".killed.*.partial/.days/*")) and killed.poll() is None:
        assert time.monotonic() < end
        time.sleep(0.01)
    killed.kill()
    killed.communicate()
    assert world.aggregate("--until", NIGHTS[0])["reports"] == before
    assert world.aggregate("--input", *folders)["reports"]["counted"] == 900


# -- small things -------------------------------------------------------------------------------------------------


def test_runs_of_days_in_words():
    days = [parse_day(f"2026-11-{number:02}", "") for number in (1, 2, 3, 7, 9, 10)]
    assert spans_text(days) == "2026-11-01 to 2026-11-03, 2026-11-07, 2026-11-09 to 2026-11-10"
    assert spans_text([]) == ""


def test_the_function_says_what_the_command_says(world, tmp_path):
    with pytest.raises(InputError, match="holds no counts"):
        aggregate_store(Collection.load(world.definition), StoreRun(folder=world.store), tmp_path / "no")
