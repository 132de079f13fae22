"""What a stream sets aside is counted, and kept under numbers that a second attempt uses again."""

import json

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from ldp_beam.transforms.set_aside import SetAside, _Keep, read_set_aside, replace_file


class State:
    """State of one key, as a step of Beam sees it."""

    def __init__(self, value=None):
        self.value = value

    def read(self):
        return self.value

    def write(self, value):
        self.value = dict(value)


@pytest.fixture
def keep(tmp_path):
    step, state = _Keep(str(tmp_path)), State()

    def call(one, state=state):
        return list(step.process((one.reason, one), state))

    return call


def rows(*values, **metadata):
    batch = pa.RecordBatch.from_pydict({"key": pa.array(values, pa.int32())})
    return batch.replace_schema_metadata(metadata or None)


def test_rows_are_kept_with_their_reason_and_header(keep, tmp_path):
    keep(SetAside("too_late", 2, 7, rows(1, 2, **{"ldp_beam.kind": "reports"}), missed=3, note="because"))
    table = pq.read_table(tmp_path / "too_late-00000000.parquet")
    assert table["key"].to_pylist() == [1, 2]
    told = {name.decode(): value.decode() for name, value in table.schema.metadata.items()}
    assert told == {
        "ldp_beam.kind": "reports", "set_aside.reason": "too_late", "set_aside.time": "7", "set_aside.note": "because",
    }  # fmt: skip


def test_totals_add_up(keep, tmp_path):
    assert keep(SetAside("too_late", 2, 7, rows(1, 2), missed=3)) == [("too_late", 2)]
    assert keep(SetAside("too_late", 1, 8, rows(3), missed=1)) == [("too_late", 3)]
    assert read_set_aside(tmp_path) == {
        "too_late": {"reason": "too_late", "rows": 3, "batches": 2, "windows_missed": 7, "last_note": ""}
    }


def test_a_second_attempt_writes_the_same_files(keep, tmp_path):
    for _ in range(2):
        keep(SetAside("malformed", 2, 7, rows(1, 2)), state=State())  # as after a failure: the state is that of before
    assert sorted(path.name for path in tmp_path.iterdir()) == ["malformed-00000000.parquet", "malformed.json"]
    assert json.loads((tmp_path / "malformed.json").read_text())["rows"] == 2


def test_what_is_no_table_is_kept_as_it_came_and_raw_data_are_only_counted(keep, tmp_path):
    keep(SetAside("unreadable", 1, raw=b"\x00noise"))
    keep(SetAside("late_records", 4, 7), state=State())
    assert (tmp_path / "unreadable-00000000.bin").read_bytes() == b"\x00noise"
    assert not list(tmp_path.glob("late_records-*"))
    assert read_set_aside(tmp_path)["late_records"]["rows"] == 4


def test_a_file_is_replaced_as_a_whole(tmp_path):
    for content in (b"one", b"two"):
        replace_file(tmp_path / "x", content)
    assert [path.read_bytes() for path in tmp_path.iterdir()] == [b"two"]
