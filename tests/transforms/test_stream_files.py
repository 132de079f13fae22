"""Files of a watched folder and people who come at their time, without an engine."""

from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest
from ldp_beam.errors import InputError
from ldp_beam.schemas import messages
from ldp_beam.schemas.event_time import time_text
from ldp_beam.schemas.messages import RefusedMessage, Reject
from ldp_beam.schemas.records import Columns
from ldp_beam.transforms.collection import Collection
from ldp_beam.transforms.gathered import Gathered
from ldp_beam.transforms.generate_stream import TimedPeople
from ldp_beam.transforms.record_messages import RecordDecoder, RecordFiles, record_message
from ldp_beam.transforms.report_messages import ReportDecoder, ReportFiles
from ldp_beam.transforms.table_files import write_table
from ldp_beam.transforms.watch_folder import _files

START = 1_700_000_000
LATE = START + 1e6


@pytest.fixture
def collection(define):
    return Collection.load(define(mechanism="pckv-grr"))


@pytest.fixture
def put(collection, tmp_path):
    """Return a function that writes a file of reports of a slice and returns its path."""

    def write(name, rows=5, start=START, seconds=10, schema=None, **header):
        about = collection.header("reports", window_start=time_text(start), window_seconds=seconds, **header)
        schema = schema or collection.report_schema(about)
        columns = [pa.array(np.arange(rows) % 3, pa.int32()), pa.array(np.ones(rows), pa.int8())]
        path = tmp_path / name
        batch = pa.RecordBatch.from_arrays(columns[: len(schema)], schema=schema)
        write_table(str(path), batch, name.rpartition(".")[2], name="report")
        return str(path)

    return write


def refused(decode, path, now=LATE):
    with pytest.raises(RefusedMessage) as error:
        decode.event_time(path, now)
    (aside,) = decode.read(path, now)
    assert isinstance(aside, Reject)
    assert (aside.reason, aside.where) == (error.value.reason, path)
    return aside.reason


@pytest.mark.parametrize("format_", ["parquet", "avro"])
def test_a_file_gives_its_reports_at_the_start_of_its_slice(collection, put, format_):
    decode, path = ReportFiles(collection, 10), put(f"r.{format_}")
    assert decode.event_time(path, LATE) == START
    ((time, batch),) = decode.read(path, LATE)
    assert (time, batch.num_rows, batch.schema.types) == (START, 5, collection.report_schema().types)


def test_what_is_no_file_of_reports_has_a_reason(collection, put, tmp_path, define):
    decode = ReportFiles(collection, 10)
    bad = tmp_path / "bad.parquet"
    bad.write_bytes(b"PAR1 and nothing more")
    assert refused(decode, str(bad)) == messages.UNREADABLE
    assert refused(decode, str(tmp_path / "absent.parquet")) == messages.UNREADABLE
    assert refused(decode, put("a.parquet", seconds=20)) == messages.ANOTHER_SLICE
    assert refused(decode, put("b.parquet", start=START + 3)) == messages.ANOTHER_SLICE
    assert refused(decode, put("c.parquet"), now=START) == messages.FROM_THE_FUTURE
    plain = pa.schema([("key", pa.int32()), ("sign", pa.int8())])
    assert refused(decode, put("d.parquet", schema=plain)) == messages.NO_HEADER
    narrow = pa.schema([("key", pa.int32())], metadata=collection.report_schema(collection.header("reports")).metadata)
    assert refused(decode, put("e.parquet", schema=narrow)) == messages.ANOTHER_SLICE
    about = collection.header("reports", window_start=time_text(START), window_seconds=10)
    assert refused(decode, put("f.parquet", schema=narrow.with_metadata(about.metadata()))) == messages.WRONG_COLUMNS
    other = Collection.load(define("other.toml", mechanism="pckv-grr", epsilon=3))
    assert refused(ReportFiles(other, 10), put("g.parquet")) == messages.ANOTHER_COLLECTION


def test_of_a_damaged_file_the_reports_before_the_damage_are_read(collection, put):
    path = put("r.avro", rows=200_000)
    with Path(path).open("r+b") as file:
        file.seek(-200, 2)
        file.write(b"\xff" * 200)
    *read, aside = ReportFiles(collection, 10).read(path, LATE)
    assert (aside.reason, aside.count) == (messages.UNREADABLE, 1)
    assert 0 < sum(batch.num_rows for _, batch in read) < 200_000


def test_files_that_are_being_written_are_passed_over(put, tmp_path):
    put("r.parquet")
    put("r.avro")
    for name in (".r.parquet", "_r.parquet", "r.csv", "r.parquet.partial"):
        (tmp_path / name).write_bytes(b"")
    found = _files(str(tmp_path), (".parquet", ".avro"))
    assert sorted(path.rpartition("/")[2] for path in found) == ["r.avro", "r.parquet"]


# -- raw records ------------------------------------------------------------------------------------------------


def people(**more):
    given = ["simulate:gauss,users=2500,keys=4,pairs-per-user=2", *(f"{name}={value}" for name, value in more.items())]
    return TimedPeople.parse(",".join(given), now=LATE)


def test_people_come_at_their_times():
    made = people(start=time_text(START), span=100)
    batches = list(made.batches(0, 2500))
    assert [batch.num_rows for _, batch in batches] == [1000, 1000, 500]
    assert [time for time, _ in batches] == [START, START + 40, START + 80]
    table = pa.Table.from_batches([batch for _, batch in batches])
    assert table["user_id"].to_pylist() == sorted(set(table["user_id"].to_pylist()))
    seconds = pc.divide(table["timestamp"].cast(pa.int64()), 1_000_000).to_pylist()
    assert (seconds[0], seconds[1250], seconds[-1]) == (START, START + 50, START + 99)
    part = pa.Table.from_batches([batch for _, batch in made.batches(1700, 1800)])
    assert part.equals(table.slice(1700, 100).combine_chunks())  # whoever goes on in the middle makes the same people


def test_what_is_not_said_of_time():
    assert (people().start, people().span) == (LATE - 3600, 3600)
    live = people(rate=50)
    assert (live.start, live.span, live.due(2.5), live.due(1e9)) == (LATE, 50, 125, 2500)
    assert people().due(0) == 2500
    assert [batch.num_rows for _, batch in live.batches(0, 25)] == [10, 10, 5]  # a fifth of a second
    for wrong in ({"rate": "x"}, {"rate": 0}, {"span": -1}, {"start": "noon"}, {"speed": 1}):
        with pytest.raises(InputError):
            people(**wrong)


def test_records_in_messages_and_files_are_at_the_time_of_their_first_row(tmp_path):
    ((_, batch),) = people(start=time_text(START), span=100).batches(500, 600)
    (found,) = RecordDecoder()(record_message(batch), (), 0).parts
    assert found == (START + 20, batch)
    for format_ in ("parquet", "avro"):
        path = str(tmp_path / f"r.{format_}")
        write_table(path, batch, format_, name="row")
        decode = RecordFiles()
        assert decode.event_time(path, 0) == START + 20
        rows = [read for _, read in decode.read(path, 0)]
        assert pa.Table.from_batches(rows)["user_id"].equals(pa.Table.from_batches([batch])["user_id"])


@pytest.mark.parametrize(
    ("batch", "reason"),
    [
        (pa.RecordBatch.from_pydict({"user_id": ["a"]}), messages.WRONG_COLUMNS),
        (pa.RecordBatch.from_pydict({"user_id": ["a"], "timestamp": ["noon"]}), messages.WRONG_COLUMNS),
        (
            pa.RecordBatch.from_pydict({"user_id": ["a"], "timestamp": pa.array([None], pa.timestamp("us"))}),
            messages.NO_REPORTS,
        ),
    ],
)
def test_records_without_times_are_set_aside(batch, reason, tmp_path):
    with pytest.raises(RefusedMessage) as error:
        RecordDecoder(Columns())(record_message(batch), (), 0)
    assert error.value.reason == reason
    pq.write_table(pa.Table.from_batches([batch]), tmp_path / "r.parquet")
    assert refused(RecordFiles(), str(tmp_path / "r.parquet")) == reason


# -- single reports ----------------------------------------------------------------------------------------------


def test_single_reports_of_a_slice_become_one_element(collection):
    def one(start, period=""):
        header = collection.header("reports", period=period, window_start=time_text(start), window_seconds=10)
        batch = pa.RecordBatch.from_arrays([[1], [1]], schema=collection.report_schema())
        value, headers = messages.packed_message(batch), messages.packed_headers(header)
        return ReportDecoder.of(collection)(value, headers, LATE).parts[0]

    gathered, elements = Gathered(), []
    for part in (*[one(START)] * 3, one(START + 10), one(START), one(START), one(START, "another")):
        elements += list(gathered.add(*part))
    elements += list(gathered.flush())
    assert [(element.value.num_rows, int(element.timestamp.micros // 1_000_000)) for element in elements] == [
        (3, START), (1, START + 10), (2, START), (1, START),
    ]  # fmt: skip
    assert list(gathered.flush()) == []
