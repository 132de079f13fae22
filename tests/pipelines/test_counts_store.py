"""The folder of a counts store: bytes that depend on the input alone, crashes at every step, two writers at once."""

import json
import signal
import subprocess
import sys
from datetime import date
from pathlib import Path

import numpy as np
import pyarrow.dataset as ds
import pyarrow.parquet as pq
import pytest
from ldp_beam.errors import InputError, RunError
from ldp_beam.mechanisms import Counts
from ldp_beam.pipelines.aggregate_store import CountsStore, CountsStoreDay
from ldp_beam.schemas.counts_store import StoredDay, day_of_folder, parse_day
from ldp_beam.transforms.collection import Collection

DAY = date(2026, 11, 1)
KEYS = 3


def day_of(n, *, day=DAY, files=("a",), scale=1):
    cells = {"n1": np.arange(KEYS, dtype=np.int64) * scale, "n2": np.ones(KEYS, dtype=np.int64)}
    return CountsStoreDay(day=day, counts=Counts(n=n, cells=cells), source=StoredDay(files=files, reports=n))


def content(folder):
    """Every file that is part of the store, with its bytes."""
    paths = sorted(path for path in Path(folder).rglob("*") if path.is_file() and not path.name.startswith("."))
    return {str(path.relative_to(folder)): path.read_bytes() for path in paths}


@pytest.fixture
def collection(define):
    return Collection.load(define())


@pytest.fixture
def store(collection, tmp_path):
    return CountsStore(tmp_path / "store", collection)


def test_what_is_put_is_got(store):
    assert store.days() == []
    assert store.private is None
    assert store.source(DAY) is None
    put = day_of(5, files=("b", "a"))
    store.put(put, private=True, replaces=None)
    got = store.get(DAY)
    assert got.counts.equals(put.counts)
    assert got.source == StoredDay(files=("a", "b"), reports=5)
    assert store.days() == [DAY]
    assert store.private is True


def test_the_same_day_has_the_same_bytes_whoever_writes_it(collection, tmp_path):
    for name in ("one", "two"):
        CountsStore(tmp_path / name, collection).put(day_of(7), private=True, replaces=None)
    assert content(tmp_path / "one") == content(tmp_path / "two")


def test_other_programs_read_it_as_one_partitioned_table(store):
    for number in (1, 2, 3):
        store.put(day_of(number, day=date(2026, 11, number)), private=True, replaces=None)
    table = ds.dataset(store.folder, format="parquet", partitioning="hive").to_table()
    assert sorted(set(table["date"].to_pylist())) == ["2026-11-01", "2026-11-02", "2026-11-03"]
    n = table.filter(ds.field("statistic") == "n")
    assert sorted(n["count"].to_pylist()) == [1, 2, 3]


def test_a_day_is_replaced_only_by_who_knows_what_stood_there(store):
    first, second = day_of(5), day_of(9, files=("a", "b"))
    store.put(first, private=True, replaces=None)
    store.put(second, private=True, replaces=first.source)
    with pytest.raises(RunError, match="Another run has counted 2026-11-01"):
        store.put(day_of(6, files=("c",)), private=True, replaces=first.source)
    assert store.get(DAY).counts.n == 9
    store.put(second, private=True, replaces=first.source)  # the other run did the same


def test_refuses_another_definition_randomness_and_foreign_folders(store, define, tmp_path):
    store.put(day_of(5), private=True, replaces=None)
    other = Collection.load(define("other.toml", epsilon="3"))
    with pytest.raises(InputError, match="another collection definition"):
        CountsStore(store.folder, other)
    with pytest.raises(InputError, match="not added"):
        store.put(day_of(5, day=date(2026, 11, 2)), private=False, replaces=None)
    (tmp_path / "full").mkdir()
    (tmp_path / "full" / "letters.txt").write_text("x")
    with pytest.raises(InputError, match="is no counts store"):
        CountsStore(tmp_path / "full", other)
    with pytest.raises(InputError, match="is not a folder"):
        CountsStore(tmp_path / "full" / "letters.txt", other)
    with pytest.raises(InputError, match="object stores"):
        CountsStore("gs://bucket/store", other)
    (store.folder / "_store.json").write_text("{")
    with pytest.raises(InputError, match="not readable"):
        CountsStore(store.folder, other)


def change(store, alter):
    """Write the day's file anew with another table or header."""
    path = store.folder / "date=2026-11-01" / "counts.parquet"
    table = pq.read_table(path)
    pq.write_table(alter(table), path)


def with_header(**fields):
    return lambda table: table.replace_schema_metadata(
        {**table.schema.metadata, **{f"ldp_beam.{name}".encode(): text for name, text in fields.items()}}
    )


def with_counts(change_counts):
    def alter(table):
        counts = change_counts(table["count"].to_numpy().copy())
        return table.set_column(4, table.schema.field("count"), [counts])

    return alter


@pytest.mark.parametrize(
    ("alter", "says"),
    [
        (with_header(fingerprint="0" * 64), "another collection definition"),
        (with_header(round="2"), "round 2"),
        (with_header(randomness="seed: not private"), "not private"),
        (with_header(period="2026-11-09"), "somebody moved it"),
        (with_header(kind="reports"), "holds reports"),
        (with_header(day="{}"), "no whole file"),
        (with_counts(lambda counts: counts - 1), "no whole file"),
        (with_counts(lambda counts: counts + 9 * (np.arange(7) == 1)), "larger than the number of its reports"),
        (with_counts(lambda counts: counts + (np.arange(7) == 0)), "no whole file"),
        (lambda table: table.slice(0, 3), "no whole file"),
        (lambda table: table.take(list(range(table.num_rows))[::-1]), "no whole file"),
        (lambda table: table.append_column("more", table["count"]), "no whole file"),
    ],
)
def test_refuses_what_is_not_a_day_of_it(store, alter, says):
    store.put(day_of(5), private=True, replaces=None)
    change(store, alter)
    with pytest.raises(InputError, match=says):
        store.get(DAY)


def test_a_damaged_file_names_itself_and_what_to_do(store):
    store.put(day_of(5), private=True, replaces=None)
    path = store.folder / "date=2026-11-01" / "counts.parquet"
    path.write_bytes(path.read_bytes()[:100])
    with pytest.raises(InputError, match=r"counts.parquet is no whole file .* Take its folder away"):
        store.get(DAY)


def test_dates():
    assert parse_day("2026-11-01", "--since") == DAY
    assert day_of_folder("date=2026-11-01") == DAY
    assert day_of_folder("date=2026-02-30") is None
    assert day_of_folder("2026-11-01") is None
    for text in ("2026-11", "20261101", "2026-02-30", "yesterday", ""):
        with pytest.raises(InputError, match="give a date such as"):
            parse_day(text, "--since")


# -- crashes ------------------------------------------------------------------------------------------------------

# Each child is a process of its own that is killed, as the power would, at the k-th thing that it does to the store.
CRASHES = """
import json, os, signal, sys
from pathlib import Path
from datetime import date
import numpy as np
from ldp_beam.mechanisms import Counts
from ldp_beam.pipelines.aggregate_store import CountsStore, CountsStoreDay
from ldp_beam.schemas.counts_store import StoredDay
from ldp_beam.transforms.collection import Collection

definition, folder = sys.argv[1], Path(sys.argv[2])
collection = Collection.load(definition)
EVENTS = {"open", "os.mkdir", "os.rename", "os.remove", "fcntl.flock", "os.truncate"}

def day(n, number, files):
    cells = {"n1": np.arange(3, dtype=np.int64), "n2": np.ones(3, dtype=np.int64)}
    counts = Counts(n=n, cells=cells)
    return CountsStoreDay(day=date(2026, 11, number), counts=counts, source=StoredDay(files=files, reports=n))

def work(store):
    store.put(day(5, 1, ("a",)), private=True, replaces=None)
    store.put(day(6, 2, ("b",)), private=True, replaces=None)
    store.put(day(9, 1, ("a", "late")), private=True, replaces=day(5, 1, ("a",)).source)

def child(store, at):
    seen = 0
    def hook(event, arguments):
        nonlocal seen
        if event in EVENTS and (event == "fcntl.flock" or str(store) in str(arguments[0])):
            seen += 1
            if seen == at:
                os.kill(os.getpid(), signal.SIGKILL)
    sys.addaudithook(hook)
    work(CountsStore(store, collection))
    os._exit(0)

at = 0
while True:
    at += 1
    store = folder / str(at)
    pid = os.fork()
    if pid == 0:
        child(store, at)
    _, status = os.waitpid(pid, 0)
    after = CountsStore(store, collection)
    n = {day.isoformat(): after.get(day).counts.n for day in after.days()}
    again = CountsStore(store, collection)
    seen = {day: again.source(day) for day in again.days()}
    def put(one):
        again.put(one, private=True, replaces=seen.get(one.day))
    put(day(6, 2, ("b",)))
    put(day(9, 1, ("a", "late")))
    print(json.dumps({"at": at, "killed": os.WIFSIGNALED(status), "held": n}), flush=True)
    if not os.WIFSIGNALED(status):
        break
"""


def test_a_kill_at_any_step_leaves_a_store_that_can_be_read_and_finished(define, tmp_path):
    definition = define()
    program = [sys.executable, "-c", CRASHES, str(definition), str(tmp_path / "stores")]
    (tmp_path / "stores").mkdir()
    done = subprocess.run(program, capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr
    steps = [json.loads(line) for line in done.stdout.splitlines()]
    assert not steps[-1]["killed"]
    assert sum(step["killed"] for step in steps) == len(steps) - 1 > 15
    allowed = [{}, {"2026-11-01": 5}, {"2026-11-01": 5, "2026-11-02": 6}, {"2026-11-01": 9, "2026-11-02": 6}]
    assert all(step["held"] in allowed for step in steps), steps
    assert all(any(step["held"] == held for step in steps) for held in allowed)
    undisturbed = content(tmp_path / "stores" / str(steps[-1]["at"]))
    for step in steps:
        folder = tmp_path / "stores" / str(step["at"])
        assert content(folder) == undisturbed
        assert not list(folder.glob(".*.partial"))  # what the killed run left is swept away


def test_a_store_that_another_run_begins_while_it_is_looked_at_is_a_store(store, collection, monkeypatch):
    read = CountsStore._identity

    def begun_meanwhile(self):
        monkeypatch.setattr(CountsStore, "_identity", read)
        CountsStore(store.folder, collection).put(day_of(5), private=True, replaces=None)
        return

    monkeypatch.setattr(CountsStore, "_identity", begun_meanwhile)
    assert CountsStore(store.folder, collection).days() == [DAY]


# -- two at once ------------------------------------------------------------------------------------------------------

HOLDER = """
import sys, time
from ldp_beam.pipelines.aggregate_store import CountsStore
from ldp_beam.transforms.collection import Collection
store = CountsStore(sys.argv[2], Collection.load(sys.argv[1]))
with store._locked():
    print("held", flush=True)
    time.sleep(60)
"""

WRITER = """
import sys
from datetime import date, timedelta
import numpy as np
from ldp_beam.mechanisms import Counts
from ldp_beam.pipelines.aggregate_store import CountsStore, CountsStoreDay
from ldp_beam.schemas.counts_store import StoredDay
from ldp_beam.transforms.collection import Collection
store, name = CountsStore(sys.argv[2], Collection.load(sys.argv[1])), sys.argv[3]
print("ready", flush=True)
sys.stdin.readline()
lost = 0
for i in range(40):
    day = date(2026, 1, 1) + timedelta(days=i)
    cells = {"n1": np.arange(3, dtype=np.int64), "n2": np.ones(3, dtype=np.int64)}
    made = StoredDay(files=("a",) if i % 2 else (name,), reports=9)
    try:
        store.put(CountsStoreDay(day=day, counts=Counts(n=9, cells=cells), source=made), private=True, replaces=None)
    except Exception as error:
        assert "Another run" in str(error), error
        lost += 1
print(lost)
"""


def start(program, *arguments):
    return subprocess.Popen(
        [sys.executable, "-c", program, *map(str, arguments)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def test_two_processes_write_all_days_and_exactly_one_wins_where_they_differ(define, collection, tmp_path):
    definition, folder = define(), tmp_path / "store"
    both = [start(WRITER, definition, folder, name) for name in ("one", "two")]
    for process in both:
        assert process.stdout.readline() == "ready\n"
    for process in both:
        process.stdin.write("\n")
        process.stdin.flush()
    outputs = [process.communicate(timeout=60) for process in both]
    assert [process.returncode for process in both] == [0, 0], outputs
    assert sum(int(out) for out, _ in outputs) == 20  # the even days differ; the odd ones are the same
    store = CountsStore(folder, collection)
    assert len(store.days()) == 40
    assert all(store.get(day).counts.n == 9 for day in store.days())


def test_who_waits_in_vain_is_told_for_whom(define, collection, tmp_path, monkeypatch):
    monkeypatch.setattr("ldp_beam.pipelines.aggregate_store._LOCK_SECONDS", 0.2)
    definition, folder = define(), tmp_path / "store"
    holder = start(HOLDER, definition, folder)
    try:
        assert holder.stdout.readline() == "held\n"
        with pytest.raises(RunError, match=f'"process": {holder.pid}'):
            CountsStore(folder, collection).put(day_of(5), private=True, replaces=None)
        holder.send_signal(signal.SIGKILL)
        holder.wait()
        CountsStore(folder, collection).put(day_of(5), private=True, replaces=None)  # its lock died with it
    finally:
        holder.kill()
        holder.communicate()


def test_a_folder_that_cannot_be_written_is_named(collection, tmp_path):
    (tmp_path / "file").write_text("x")
    with pytest.raises(InputError, match="cannot be written"):
        CountsStore(tmp_path / "file" / "store", collection).put(day_of(5), private=True, replaces=None)
