"""What must never happen in a run: a secret in anything it leaves, a report counted twice, a crash on a bad file."""

import json
import os
import shutil
import subprocess
import sys

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from ldp_beam.mechanisms import Secret
from ldp_beam.mechanisms.randomness import _derive


def bytes_below(folder):
    return b"\n".join(path.read_bytes() for path in sorted(folder.rglob("*")) if path.is_file())


def forbidden(secret):
    """The secret and every key that follows from it, in the forms that a text or a pickle would hold."""
    raw = bytes.fromhex(secret)
    keys = [raw, *(_derive(raw, name)[:16] for name in ("user", "record", "block"))]
    return [form for key in keys for form in (key, key.hex().encode(), key.hex().upper().encode(), repr(key).encode())]


@pytest.mark.parametrize("fail", [False, True])
def test_secrets_stay_out_of_everything_that_a_run_leaves(fail, define, nested, people, run, tmp_path):
    """Files, standard output and standard error of a process, tracebacks included."""
    secret = tmp_path / "kept" / "s.hex"
    secret.parent.mkdir()
    run("secret", "new", secret)
    held = secret.read_text().strip()
    people = people(50) if not fail else [("u", [("apple", 9.0)])] * 20
    done = subprocess.run(
        [
            sys.executable, "-m", "ldp_beam.pipelines", "collect", "--collection", define(), "--input", nested(people),
            "--output", tmp_path / "out" / "result", "--keep-reports", tmp_path / "out" / "reports",
            "--rejects", tmp_path / "out" / "rejects", "--ledger", tmp_path / "out" / "ledger",
            "--secret-file", secret, "--period", "1", "--traceback", "--json", "--max-rejects", "0.5",
        ],
        capture_output=True, check=False, cwd=tmp_path, env={**os.environ, "PYTHONWARNINGS": "ignore"},
    )  # fmt: skip
    assert done.returncode == (1 if fail else 0), done.stderr
    left = bytes_below(tmp_path / "out") + done.stdout + done.stderr
    assert len(left) > 1000
    for one in forbidden(held):
        assert one not in left
    # the id, which tells nothing, is there
    assert fail or Secret.from_hex(held).id.encode() in left


def test_a_wrong_secret_file_is_not_repeated_in_the_message(define, nested, people, run, tmp_path):
    secret = tmp_path / "s"
    secret.write_text("a1b2c3d4" * 7)
    secret.chmod(0o600)
    code, out, err = run(
        "collect", "--collection", define(), "--input", nested(people(5)), "--output", tmp_path / "o",
        "--secret-file", secret, "--period", "1", "--traceback",
    )  # fmt: skip
    assert code == 2
    assert "a1b2c3d4" not in out + err


@pytest.mark.parametrize("mode", [0o644, 0o640, 0o604, 0o660])
def test_a_secret_that_others_can_read_is_refused(mode, define, nested, people, run, tmp_path):
    secret = tmp_path / "s"
    run("secret", "new", secret)
    assert secret.stat().st_mode & 0o777 == 0o600
    secret.chmod(mode)
    code, _, err = run(
        "collect", "--collection", define(), "--input", nested(people(5)), "--output", tmp_path / "o",
        "--secret-file", secret, "--period", "1",
    )  # fmt: skip
    assert code == 2
    assert f"mode {mode:04o}" in err


def test_with_a_seed_everything_that_is_published_says_not_private(define, nested, people, run, tmp_path):
    code, out, err = run(
        "collect", "--collection", define(), "--input", nested(people(50)), "--output", tmp_path / "o",
        "--keep-reports", tmp_path / "r", "--seed", "1", "--json",
    )  # fmt: skip
    assert code == 0
    assert "NOT PRIVATE" in err
    assert "not private" in json.loads(out)["randomness"]["statement"]
    assert any("not private" in warning for warning in json.loads(out)["warnings"])
    assert "not private" in (tmp_path / "o" / "manifest.json").read_text()
    for path in (*(tmp_path / "o").glob("*.parquet"), *(tmp_path / "r").glob("*.parquet")):
        assert pq.read_schema(path).metadata[b"ldp_beam.randomness"] == b"seed: not private"
    code, out, err = run("aggregate", "--collection", define(), "--input", tmp_path / "r", "--output", tmp_path / "a")
    assert code == 0
    assert "not private" in err
    assert "not private" in (tmp_path / "a" / "manifest.json").read_text()


def test_the_same_secret_with_another_definition_gives_independent_bits(
    define, nested, people, run, run_json, tmp_path
):
    """Two definitions that differ in their name alone: reports of one say nothing about those of the other."""
    run("secret", "new", tmp_path / "s")
    tables = []
    for number in (1, 2):
        definition = define(f"{number}.toml", keys="count = 200", padding=1)
        definition.write_text(definition.read_text().replace('"fruit"', f'"fruit {number}"'))
        keys = [str(i) for i in range(200)]
        run_json(
            "perturb", "--collection", definition, "--input", nested(people(300, keys)),
            "--output", tmp_path / f"r{number}",
            "--secret-file", tmp_path / "s", "--period", "1",
        )  # fmt: skip
        tables.append(
            {
                (row["plus"], row["minus"])
                for row in pq.read_table(list((tmp_path / f"r{number}").glob("*.parquet"))).to_pylist()
            }
        )
    assert len(tables[0]) == len(tables[1]) == 300
    assert not tables[0] & tables[1]


# -- strangers' files ------------------------------------------------------------------------------------------


@pytest.fixture
def reports(define, nested, people, run_json, tmp_path):
    run_json("perturb", "--collection", define(), "--input", nested(people(2_000)), "--output", tmp_path / "reports")
    return tmp_path / "reports"


def test_bad_files_are_refused_one_by_one_and_the_good_ones_counted(
    reports, define, nested, people, run_json, tmp_path
):
    (good,) = reports.glob("*.parquet")
    content = good.read_bytes()
    (reports / "cut.parquet").write_bytes(content[: len(content) // 2])
    (reports / "noise.parquet").write_bytes(b"PAR1" + os.urandom(500) + b"PAR1")
    (reports / "empty.parquet").touch()
    (reports / "noise.avro").write_bytes(b"Obj\x01" + os.urandom(500))
    (reports / "readme.txt").write_text("hello")
    shutil.copy(good, reports / "z-copy.parquet")
    run_json(
        "perturb", "--collection", define("other.toml", epsilon="3"), "--input", nested(people(20)),
        "--output", tmp_path / "other",
    )  # fmt: skip
    shutil.copy(next((tmp_path / "other").glob("*.parquet")), reports / "foreign.parquet")
    table = pq.read_table(good)
    bad = table.slice(0, 10).set_column(0, table.schema.field("plus"), pa.array([b"\xff"] * 10, pa.binary(1)))
    pq.write_table(bad, reports / "impossible.parquet")
    said = run_json("aggregate", "--collection", define(), "--input", reports, "--output", tmp_path / "o")
    assert said["reports"] == {"counted": 2_000, "malformed": 10, "unreadable": 0, "refused_files": 7}
    text = " ".join(said["warnings"])
    for word in (
        "cut.parquet",
        "noise.parquet",
        "empty.parquet",
        "noise.avro",
        "readme.txt",
        "copy of",
        "another collection",
    ):
        assert word in text
    assert json.loads((tmp_path / "o" / "manifest.json").read_text())["warnings"] == said["warnings"]


def test_nothing_but_bad_files_is_an_error(reports, define, run, tmp_path):
    for path in reports.glob("*.parquet"):
        path.write_bytes(path.read_bytes()[:500])
    code, _, err = run("aggregate", "--collection", define(), "--input", reports, "--output", tmp_path / "o")
    assert code == 2
    assert "cannot be read as Parquet" in err
    assert not (tmp_path / "o").exists()


def test_damage_in_the_middle_of_a_file_loses_the_rest_and_says_so(define, nested, people, run_json, tmp_path):
    run_json(
        "perturb", "--collection", define(mechanism="pckv-grr"), "--input", nested(people(2_000)),
        "--output", tmp_path / "reports",
    )  # fmt: skip
    (good,) = (tmp_path / "reports").glob("*.parquet")
    pq.write_table(pq.read_table(good), good, row_group_size=500, compression="zstd")
    content = bytearray(good.read_bytes())
    column = pq.ParquetFile(good).metadata.row_group(2).column(0)
    start = column.dictionary_page_offset or column.data_page_offset
    content[start : start + column.total_compressed_size] = os.urandom(column.total_compressed_size)
    good.write_bytes(content)
    said = run_json(
        "aggregate", "--collection", define(mechanism="pckv-grr"), "--input", tmp_path / "reports",
        "--output", tmp_path / "o",
    )  # fmt: skip
    assert said["reports"]["counted"] + said["reports"]["unreadable"] == 2_000
    assert said["reports"]["unreadable"] > 0
    assert said["reports"]["refused_files"] == 1
    assert any("damaged after" in warning for warning in said["warnings"])


def test_a_replayed_period_is_refused(define, nested, people, run, run_json, tmp_path):
    run("secret", "new", tmp_path / "s")
    for period in ("may", "june"):
        run_json(
            "perturb", "--collection", define(), "--input", nested(people(100)), "--output", tmp_path / period,
            "--secret-file", tmp_path / "s", "--period", period,
        )  # fmt: skip
    inputs = ("--input", tmp_path / "may", tmp_path / "june")
    said = run_json("aggregate", "--collection", define(), *inputs, "--period", "june", "--output", tmp_path / "o")
    assert said["reports"]["counted"] == 100
    assert said["reports"]["refused_files"] == 1
    both = run_json("aggregate", "--collection", define(), *inputs, "--output", tmp_path / "b")
    assert any("several periods" in warning for warning in both["warnings"])


def test_poisoning_is_warned_of_where_it_was_asked_for(define, nested, people, run, run_json, tmp_path):
    keys = [f"k{i}" for i in range(40)]
    collection = define(keys="list = [" + ", ".join(f'"{key}"' for key in keys) + "]")
    run_json("perturb", "--collection", collection, "--input", nested(people(3_000, keys)), "--output", tmp_path / "r")
    given = ("aggregate", "--collection", collection, "--input", tmp_path / "r", "--detect-poisoning")
    assert run_json(*given, "--output", tmp_path / "honest")["warnings"] == []
    (good,) = (tmp_path / "r").glob("*.parquet")
    table = pq.read_table(good)
    fake = pa.table(
        {"plus": pa.array([b"\x06\0\0\0\0"] * 300, pa.binary(5)), "minus": pa.array([b"\0" * 5] * 300, pa.binary(5))},
        table.schema,
    )
    pq.write_table(fake, tmp_path / "r" / "fake.parquet")
    (warning, *more) = run_json(*given, "--output", tmp_path / "poisoned")["warnings"]
    assert "Poisoning is suspected" in warning
    assert any("'k1', 'k2'" in text for text in (warning, *more))
    code, _, err = run(
        "aggregate", "--collection", define("grr.toml", mechanism="pckv-grr"), "--input", tmp_path / "r",
        "--detect-poisoning", "--output", tmp_path / "x",
    )  # fmt: skip
    assert code == 2
    assert "looks at the cells of unary reports" in err


def test_counts_that_cannot_be_are_refused(define, nested, people, run, run_json, tmp_path):
    run_json("collect", "--collection", define(), "--input", nested(people(100)), "--output", tmp_path / "c")
    counts = tmp_path / "c" / "counts.parquet"
    table = pq.read_table(counts)

    def counted(change, name="x.parquet"):
        pq.write_table(change(table), tmp_path / name)
        return run("aggregate", "--collection", define(), "--input", tmp_path / name, "--output", tmp_path / "o")

    def with_counts(values):
        return table.set_column(4, table.schema.field("count"), pa.array(values, pa.int64()))

    rows = table["count"].to_pylist()
    for values, message in (
        ([*rows[:-1], -1], "negative"),
        ([*rows[:-1], 101], "larger than the number of reports"),
        ([*rows[:-1], 1 << 62], "a count is above"),
    ):
        code, _, err = counted(lambda _, values=values: with_counts(values))
        assert code == 2
        assert message in err
    shutil.copy(counts, tmp_path / "copy.parquet")
    given = ("aggregate", "--collection", define(), "--output", tmp_path / "o", "--input", counts)
    code, _, err = run(*given, tmp_path / "copy.parquet")
    assert code == 2
    assert "is a copy of" in err
    content = bytearray(counts.read_bytes())
    content[4:200] = os.urandom(196)
    (tmp_path / "damaged.parquet").write_bytes(content)
    code, _, err = run(*given[:-1], tmp_path / "damaged.parquet")
    assert code == 2
    assert "cannot be read as Parquet" in err
    assert not (tmp_path / "o").exists()
