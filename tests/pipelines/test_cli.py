"""The command line as a contract: exit codes, what goes to which stream, suggestions, secrets."""

import json
import os
import stat
import subprocess
import sys

import pytest
from ldp_beam.pipelines.cli import cli


def test_every_verb_has_help_with_an_example(run):
    for name, command in cli.commands.items():
        if not hasattr(command, "commands"):
            code, out, _ = run(name, "--help")
            assert code == 0
            assert "Example" in out, name


def test_json_is_one_object_on_standard_output_and_nothing_else_there(define, nested, people, run, tmp_path):
    given = ("collect", "--collection", define(), "--input", nested(people(50)), "--output", tmp_path / "o")
    code, out, err = run(*given, "--json")
    assert code == 0
    assert json.loads(out)["verb"] == "collect"
    assert out.count("\n") == 1
    assert err == ""
    code, out, err = run(*given, "--overwrite")
    assert (code, out) == (0, "")
    assert "locally differentially private" in err


def test_the_module_is_the_command():
    done = subprocess.run([sys.executable, "-m", "ldp_beam.pipelines", "--version"], capture_output=True, text=True)
    assert done.returncode == 0
    assert done.stdout.startswith("ldp-beam, version ")
    assert done.stderr == ""


@pytest.mark.parametrize(
    ("given", "parts"),
    [
        (["colect"], ["Unknown verb 'colect'", "'collect'"]),
        (["collect", "--colection", "c.toml"], ["--colection", "Did you mean '--collection'"]),
        (["collect", "--collection", "c.toml"], ["--input"]),
        (["evaluate", "--estimates", "x", "--recrods", "y"], ["--recrods", "'--records'"]),
        (["simulate", "--population", "gaus", "--users", "5", "--output", "x.parquet"], ["'gaus'", "'gauss'"]),
        (["simulate", "--population", "gauss", "--users", "-5", "--output", "x.parquet"], ["--users"]),
        (["simulate", "--population", "gauss", "--users", "5", "--output", "x.xml"], ["x.xml", ".parquet"]),
        (["strem"], ["'strem'", "'stream'"]),
    ],
)
def test_wrong_usage_is_exit_code_2_and_one_paragraph(given, parts, run):
    code, out, err = run(*given)
    assert (code, out) == (2, "")
    for part in parts:
        assert part in err
    assert "Traceback" not in err


def test_inputs_may_follow_one_option_as_a_shell_expands_them(define, nested, people, run_json, tmp_path):
    everybody = people(30)
    parts = [nested(everybody[i::3], f"{i}.parquet") for i in range(3)]
    manifest = run_json("collect", "--collection", define(), "--input", *parts, "--output", tmp_path / "o")
    assert manifest["reports"]["counted"] == 30


def test_a_secret_file_is_private_new_and_never_replaced(run, tmp_path):
    path = tmp_path / "clients.secret"
    old = os.umask(0)
    try:
        code, out, err = run("secret", "new", path)
    finally:
        os.umask(old)
    assert code == 0
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    text = path.read_text().strip()
    assert len(bytes.fromhex(text)) == 32
    assert text not in out + err
    code, _, err = run("secret", "new", path)
    assert code == 2
    assert "never overwritten" in err
    assert path.read_text().strip() == text


@pytest.mark.parametrize(
    ("prepare", "message"),
    [
        (lambda p: None, "does not exist"),
        (lambda p: (p.write_text("ab" * 32), p.chmod(0o644)), "can be read by others"),
        (lambda p: (p.write_text("ab" * 31), p.chmod(0o600)), "64 hexadecimal digits"),
        (lambda p: (p.write_text("xy" * 32), p.chmod(0o600)), "64 hexadecimal digits"),
        (lambda p: (p.write_bytes(b"\xff" * 32), p.chmod(0o600)), "64 hexadecimal digits"),
    ],
)
def test_an_unsafe_or_broken_secret_file_is_refused(prepare, message, define, nested, people, run, tmp_path):
    path = tmp_path / "s"
    prepare(path)
    code, _, err = run(
        "collect", "--collection", define(), "--input", nested(people(5)), "--output", tmp_path / "o",
        "--secret-file", path, "--period", "p",
    )  # fmt: skip
    assert code == 2
    assert message in err
    if path.exists():
        assert path.read_bytes().decode("latin-1") not in err


def test_a_secret_file_needs_a_period_and_excludes_a_seed(define, nested, people, run, tmp_path):
    run("secret", "new", tmp_path / "s")
    given = ("collect", "--collection", define(), "--input", nested(people(5)), "--output", tmp_path / "o")
    code, _, err = run(*given, "--secret-file", tmp_path / "s")
    assert (code, "--period" in err) == (2, True)
    code, _, err = run(*given, "--secret-file", tmp_path / "s", "--period", "p", "--seed", "1")
    assert (code, "exclude" in err) == (2, True)


def test_a_seed_is_called_not_private_everywhere(define, nested, people, run, tmp_path):
    out = tmp_path / "o"
    _, _, err = run(
        "collect", "--collection", define(), "--input", nested(people(5)), "--output", out, "--seed", "1",
        "--keep-reports", tmp_path / "r",
    )  # fmt: skip
    assert err.count("NOT PRIVATE") == 2
    manifest = json.loads((out / "manifest.json").read_text())
    assert manifest["randomness"]["private"] is False
    assert "not private" in manifest["warnings"][0]
    import pyarrow.parquet as pq

    files = [*out.glob("*.parquet"), *(tmp_path / "r").iterdir()]
    assert len(files) == 3
    for path in files:
        assert pq.read_schema(path).metadata[b"ldp_beam.randomness"] == b"seed: not private"


def test_outputs_must_not_lie_inside_one_another(define, nested, people, run, tmp_path):
    code, _, err = run(
        "collect", "--collection", define(), "--input", nested(people(5)), "--output", tmp_path / "o",
        "--keep-reports", tmp_path / "o" / "reports",
    )  # fmt: skip
    assert code == 2
    assert "folders of their own" in err


def test_mechanisms_lists_source_and_guarantee(run_json, run):
    listed = {entry["name"]: entry for entry in run_json("mechanisms")["mechanisms"]}
    assert {"pckv-ue", "pckv-grr"} <= listed.keys()
    for entry in listed.values():
        assert all(entry[field] for field in ("estimates", "guarantee", "source", "report_size"))
    code, out, _ = run("mechanisms")
    assert code == 0
    assert "pckv-grr" in out


def test_evaluate_wants_one_truth_and_a_complete_result(define, nested, people, run, run_json, tmp_path):
    records = nested(people(50))
    run_json("collect", "--collection", define(), "--input", records, "--output", tmp_path / "o")
    code, _, err = run("evaluate", "--estimates", tmp_path / "o")
    assert (code, "--truth" in err) == (2, True)
    code, _, err = run("evaluate", "--estimates", tmp_path, "--records", records)
    assert (code, "manifest.json" in err) == (2, True)
    (tmp_path / "t.csv").write_text("key,frequency\napple,0.5\n")
    code, _, err = run("evaluate", "--estimates", tmp_path / "o", "--truth", tmp_path / "t.csv")
    assert (code, "'banana'" in err) == (2, True)
    (tmp_path / "t.csv").write_text("key,frequency\napple,0.5\nbanana,0.25\ncherry,0\n")
    judged = run_json("evaluate", "--estimates", tmp_path / "o", "--truth", tmp_path / "t.csv", "--top", 2)
    assert [row["key"] for row in judged["keys"]] == ["apple", "banana"]
    found = {row["key"]: row["frequency"] for row in judged["keys"]}
    expected = ((found["apple"] - 0.5) ** 2 + (found["banana"] - 0.25) ** 2) / 2
    assert judged["figures"]["frequency_mse"] == pytest.approx(expected)
