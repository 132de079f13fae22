"""Report files from strangers: whatever they hold, they are counted as reports or refused with a reason, never a crash.

The fuzz tests change bytes of good files; hypothesis bounds their number, so their time is bounded too.
"""

import io
import json
import shutil
import struct
import zlib
from pathlib import Path

import fastavro
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from ldp_beam.errors import InputError
from ldp_beam.transforms.collection import Collection
from ldp_beam.transforms.report_files import _Accept, inspect_reports
from ldp_beam.transforms.report_files_avro import AvroReports
from ldp_beam.transforms.report_files_checks import COPY_ROWS, copies


@pytest.fixture(scope="module")
def made(tmp_path_factory):
    """Return collection file, collection, and good report files by mechanism and format."""
    from ldp_beam.pipelines.cli import main

    folder = tmp_path_factory.mktemp("made")
    items = pa.list_(pa.struct([("key", pa.string()), ("value", pa.float64())]))
    people = pa.table(
        {
            "user_id": [f"u{i}" for i in range(300)],
            "items": pa.array([[{"key": "abc"[i % 3], "value": 0.5}] for i in range(300)], items),
        }
    )
    pq.write_table(people, folder / "people.parquet")
    found = {}
    for mechanism in ("pckv-ue", "pckv-grr"):
        definition = folder / f"{mechanism}.toml"
        definition.write_text(
            f'name = "h"\nmechanism = "{mechanism}"\nepsilon = 2\npadding = 1\n[keys]\nlist = ["a", "b", "c"]\n'
            "[values]\nrange = [-1, 1]\n"
        )
        for format_ in ("parquet", "avro"):
            output = folder / f"{mechanism}-{format_}"
            with pytest.raises(SystemExit) as end:
                main(
                    ["perturb", "--collection", str(definition), "--input", str(folder / "people.parquet"),
                     "--output", str(output), "--format", format_, "--json"]
                )  # fmt: skip
            assert end.value.code == 0
            (file,) = output.glob(f"*.{format_}")
            found[mechanism, format_] = file
        found[mechanism] = definition
    return found


def read(path, collection):
    """Accept a file as the pipeline does: (reports, tally, refused)."""
    inputs = inspect_reports([str(path)], collection)
    reader, reports, tally, refused = _Accept(collection), 0, {}, []
    for part in inputs.slices:
        for element in reader.process(part):
            if isinstance(element, pa.RecordBatch):
                reports += element.num_rows
            else:
                tally = {**tally, **element.value.tally}
                refused += element.value.refused
    return reports, tally, refused


def one(made, mechanism="pckv-grr", format_="parquet"):
    return made[mechanism, format_], Collection.load(made[mechanism])


ALL = [(m, f) for m in ("pckv-ue", "pckv-grr") for f in ("parquet", "avro")]


@pytest.mark.parametrize(("mechanism", "format_"), ALL)
def test_a_good_file_is_read(made, mechanism, format_):
    path, collection = one(made, mechanism, format_)
    assert read(path, collection) == (300, {}, [])


# -- fuzzing ------------------------------------------------------------------------------------------------------


def survives(path, collection):
    """A changed file is refused, or read; what is read has the reports' schema and no more rows than the file had."""
    try:
        reports, _, _ = read(path, collection)
    except InputError:
        return
    assert 0 <= reports <= 1 << 20


@pytest.mark.parametrize(("mechanism", "format_"), ALL)
@settings(max_examples=60, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(data=st.data())
def test_changed_bytes_never_crash_the_reader(made, tmp_path, mechanism, format_, data):
    path, collection = one(made, mechanism, format_)
    content = bytearray(path.read_bytes())
    for _ in range(data.draw(st.integers(1, 8))):
        at = data.draw(st.integers(0, len(content) - 1))
        content[at] = data.draw(st.integers(0, 255))
    changed = tmp_path / f"changed.{format_}"
    changed.write_bytes(content)
    survives(changed, collection)


@pytest.mark.parametrize(("mechanism", "format_"), ALL)
@settings(max_examples=25, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(data=st.data())
def test_cut_and_joined_files_never_crash_the_reader(made, tmp_path, mechanism, format_, data):
    path, collection = one(made, mechanism, format_)
    content = path.read_bytes()
    start, stop = sorted((data.draw(st.integers(0, len(content))), data.draw(st.integers(0, len(content)))))
    changed = tmp_path / f"changed.{format_}"
    changed.write_bytes(
        data.draw(st.sampled_from([content[:stop], content[:start] + content[stop:], content + content[start:stop]]))
    )
    survives(changed, collection)


@settings(max_examples=40, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(noise=st.binary(max_size=400), head=st.sampled_from([b"", b"PAR1", b"Obj\x01"]))
def test_noise_is_refused(made, tmp_path, noise, head):
    for format_ in ("parquet", "avro"):
        path = tmp_path / f"noise.{format_}"
        path.write_bytes(head + noise)
        with pytest.raises(InputError):
            read(path, Collection.load(made["pckv-grr"]))


# -- planted faults --------------------------------------------------------------------------------------------------


def changed_table(path, to, change, **options):
    table = pq.read_table(path)
    pq.write_table(change(table), to, **options)


def test_a_user_id_in_a_report_file_is_refused(made, tmp_path):
    path, collection = one(made)
    changed_table(path, tmp_path / "x.parquet", lambda t: t.append_column("user_id", pa.array(["u"] * 300)))
    with pytest.raises(InputError, match="'user_id', which no report"):
        read(tmp_path / "x.parquet", collection)


def test_wrong_types_and_sizes_are_refused(made, tmp_path):
    path, collection = one(made, "pckv-ue")
    for change in (
        lambda t: t.set_column(0, "plus", pa.array([b"\0\0"] * 300, pa.binary(2))),
        lambda t: t.set_column(0, "plus", pa.array([b"\0"] * 300, pa.binary())),
        lambda t: t.set_column(0, "plus", pa.array([0] * 300, pa.uint8())),
    ):
        changed_table(path, tmp_path / "x.parquet", change)
        with pytest.raises(InputError, match="'plus' is of type"):
            read(tmp_path / "x.parquet", collection)


def test_a_parquet_file_that_unpacks_to_much_more_than_its_reports_is_refused(made, tmp_path):
    """Row groups of a thousand million equal reports take a few hundred bytes in the file."""
    path, collection = one(made)
    table = pq.read_table(path)
    rows = 9_000_000
    bomb = pa.table(
        {"key": pa.array(np.zeros(rows, np.int32)), "sign": pa.array(np.ones(rows, np.int8))},
        schema=table.schema,
    )
    pq.write_table(bomb, tmp_path / "rows.parquet", row_group_size=rows, compression="zstd")
    with pytest.raises(InputError, match="claims 9,000,000 reports"):
        read(tmp_path / "rows.parquet", collection)
    # fixed-size cells whose pages hold far more than the reports: a dictionary of a million entries for one row
    path, collection = one(made, "pckv-ue")
    schema = pq.read_schema(path)
    wide = pa.table({"plus": pa.array([b"\0"] * 5, pa.binary(1)), "minus": pa.array([b"\0"] * 5, pa.binary(1))}, schema)
    pq.write_table(wide, tmp_path / "ok.parquet")
    assert read(tmp_path / "ok.parquet", collection)[0] == 5


def test_a_claimed_size_beyond_the_reports_is_refused(made):
    """The footer's figure is checked before a page is unpacked."""
    from ldp_beam.transforms.report_files_checks import check_row_groups

    class Chunk:
        path_in_schema, total_uncompressed_size = "key", 1 << 31

    class Group:
        num_rows, num_columns = 300, 1

        def column(self, _):
            return Chunk

    class Metadata:
        num_row_groups = 1

        def row_group(self, _):
            return Group()

    schema = pq.read_schema(made["pckv-grr", "parquet"])
    with pytest.raises(InputError, match="unpacks to 2,147,483,648 bytes"):
        check_row_groups(Metadata(), schema, "x")


# -- Avro by hand ------------------------------------------------------------------------------------------------------


def long(value):
    value = (value << 1) ^ (value >> 63)
    out = b""
    while value > 0x7F:
        out += bytes([value & 0x7F | 0x80])
        value >>= 7
    return out + bytes([value])


def avro_file(path, good, blocks, codec=b"deflate", **meta):
    """Write an Avro file with the header of a good one and blocks (reports, bytes) as given."""
    with good.open("rb") as file:
        found = fastavro.reader(file)
        entries = {**{k: v.encode() if isinstance(v, str) else v for k, v in found.metadata.items()}, **meta}
    entries["avro.codec"] = codec
    out = io.BytesIO()
    out.write(b"Obj\x01" + long(len(entries)))
    for name, value in entries.items():
        out.write(long(len(name)) + name.encode() + long(len(value)) + value)
    out.write(long(0) + b"s" * 16)
    for reports, data in blocks:
        out.write(long(reports) + long(len(data)) + data + b"s" * 16)
    path.write_bytes(out.getvalue())
    return path


def deflated(data):
    packer = zlib.compressobj(9, zlib.DEFLATED, -15)
    return packer.compress(data) + packer.flush()


def zeros(megabytes):
    """So many zeros, packed: the stream of one megabyte over and over, which takes no time to make."""
    packer = zlib.compressobj(9, zlib.DEFLATED, -15)
    first = packer.compress(bytes(1 << 20)) + packer.flush(zlib.Z_FULL_FLUSH)
    return first * megabytes + packer.flush()


REPORT = long(1) + long(-1)  # key 1, sign -1
BOMB = zeros(500)


def test_avro_files_written_by_hand_are_read(made, tmp_path):
    good, collection = one(made, "pckv-grr", "avro")
    path = avro_file(tmp_path / "x.avro", good, [(2, deflated(REPORT * 2)), (1, deflated(REPORT))])
    assert read(path, collection) == (3, {}, [])
    path = avro_file(tmp_path / "x.avro", good, [(2, REPORT * 2)], codec=b"null")
    assert read(path, collection) == (2, {}, [])


@pytest.mark.parametrize(
    ("blocks", "reason"),
    [
        ([(2, deflated(REPORT * 2)), (3, BOMB)], "holds more than 30 bytes"),
        ([(2, deflated(REPORT * 2)), (2, deflated(REPORT * 3))], "more than its reports"),
        ([(2, deflated(REPORT * 2)), (3, deflated(REPORT * 2))], "damaged"),
        ([(2, deflated(REPORT * 2)), (-1, deflated(REPORT))], "claims -1 reports"),
        ([(2, deflated(REPORT * 2)), (1 << 40, deflated(REPORT))], "claims 1099511627776 reports"),
        ([(2, deflated(REPORT * 2)), (1, b"no deflate at all")], "cannot be decompressed"),
    ],
    ids=["bomb", "more", "fewer", "negative", "huge", "noise"],
)
def test_of_a_damaged_avro_file_the_rest_is_lost_with_a_reason(made, tmp_path, blocks, reason):
    good, collection = one(made, "pckv-grr", "avro")
    reports, _, refused = read(avro_file(tmp_path / "x.avro", good, blocks), collection)
    assert reports == 2
    assert reason in refused[0][1]
    assert "damaged after 2 reports" in refused[0][1]


def test_numbers_that_do_not_fit_are_malformed_reports(made, tmp_path):
    good, collection = one(made, "pckv-grr", "avro")
    huge = long(1 << 40) + long(1)
    path = avro_file(tmp_path / "x.avro", good, [(3, deflated(REPORT + huge + REPORT))])
    assert read(path, collection) == (2, {"reports_malformed": 1}, [])


def test_headers_that_lie(made, tmp_path):
    good, collection = one(made, "pckv-grr", "avro")
    block = [(1, deflated(REPORT))]
    for meta, message in (
        ({"avro.schema": b"[" * 100_000}, "cannot be read"),
        ({"avro.schema": b'"long"'}, "absent"),
        ({"avro.schema": json.dumps({"type": "record", "name": "r", "fields": []}).encode()}, "absent"),
        ({"ldp_beam.round": b"9" * 5000}, "damaged header"),
        ({"ldp_beam.round_thresholds": b"[1"}, "damaged header"),
        ({"ldp_beam.fingerprint": b"\xff\xfe"}, "another collection"),
        ({"comment": bytes(2 << 20)}, "larger than any header"),
    ):
        with pytest.raises(InputError, match=message):
            read(avro_file(tmp_path / "x.avro", good, block, **meta), collection)
    with pytest.raises(InputError, match="codec is 'snappy'"):
        read(avro_file(tmp_path / "x.avro", good, block, codec=b"snappy"), collection)
    # a map of 2^62 entries, and a text of 2^62 bytes
    for head in (long(1 << 62), long(1) + long(1 << 62)):
        (tmp_path / "x.avro").write_bytes(b"Obj\x01" + head)
        with pytest.raises(InputError, match="cannot be read"):
            read(tmp_path / "x.avro", collection)


def test_blocks_out_of_step(made, tmp_path):
    good, collection = one(made, "pckv-grr", "avro")
    path = avro_file(tmp_path / "x.avro", good, [(1, deflated(REPORT)), (1, deflated(REPORT))])
    content = path.read_bytes()
    path.write_bytes(content[:-20] + b"x" + content[-19:])
    reports, _, refused = read(path, collection)
    assert (reports, len(refused)) == (1, 1)
    path.write_bytes(content + b"\x80" * 20)
    assert "head is damaged" in read(path, collection)[2][0][1]


def test_the_reader_needs_no_room_for_a_bomb(made, tmp_path):
    """Half a gigabyte of zeros in half a megabyte: the reader's memory stays far below."""
    import tracemalloc

    good, collection = one(made, "pckv-grr", "avro")
    path = avro_file(tmp_path / "x.avro", good, [(1, deflated(bytes(300_000_000)))])
    tracemalloc.start()
    with path.open("rb") as file, pytest.raises(ValueError, match="holds more than"):
        list(AvroReports(file, pq.read_schema(made["pckv-grr", "parquet"]).remove_metadata()).batches())
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 20_000_000
    assert collection


# -- copies ------------------------------------------------------------------------------------------------


def test_copies_are_found_by_their_bytes(tmp_path):
    for name, content in (("a", b"12"), ("b", b"12"), ("c", b"21"), ("d", b"123"), ("e", b"12")):
        (tmp_path / name).write_bytes(content)
    paths = [str(tmp_path / name) for name in "abcde"]
    assert copies(paths) == {paths[1]: paths[0], paths[4]: paths[0]}


def test_a_copy_of_many_reports_is_refused_and_of_few_is_not(made, tmp_path):
    path, collection = one(made)
    table = pq.read_table(path)
    for rows, refused in ((300, 0), (COPY_ROWS, 1)):
        many = pa.concat_tables([table] * (1 + rows // 300)).slice(0, rows)
        pq.write_table(many, tmp_path / "a.parquet")
        shutil.copy(tmp_path / "a.parquet", tmp_path / "b.parquet")
        found = inspect_reports([str(tmp_path / "a.parquet"), str(tmp_path / "b.parquet")], collection)
        assert len(found.refused) == refused
        assert found.rows == rows * (2 - refused)


def test_what_pads_the_end_of_a_file(made, tmp_path):
    path, collection = one(made)
    content = Path(path).read_bytes()
    length = struct.unpack("<I", content[-8:-4])[0]
    for tail in (struct.pack("<I", length * 2), struct.pack("<I", 0), struct.pack("<I", 0xFFFFFFFF)):
        (tmp_path / "x.parquet").write_bytes(content[:-8] + tail + b"PAR1")
        with pytest.raises(InputError, match="cannot be read as Parquet"):
            read(tmp_path / "x.parquet", collection)
