"""The terminal's manners: completion in the shell, help that fits, tracebacks only when asked for, 80 columns."""

import os
import subprocess
import sys

import click
import pytest
from ldp_beam.pipelines.cli import cli


def complete(words, shell="bash"):
    """What the shell is offered after these words."""
    environment = {**os.environ, "_LDP_BEAM_COMPLETE": f"{shell}_complete"}
    environment |= {"COMP_WORDS": " ".join(["ldp-beam", *words]), "COMP_CWORD": str(len(words))}
    program = "from ldp_beam.pipelines.cli import main; main()"
    done = subprocess.run([sys.executable, "-c", program], env=environment, capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr
    return {line.split(",")[-1] for line in done.stdout.splitlines()}


@pytest.mark.parametrize(
    ("words", "offered"),
    [(["co"], {"collect", "compare"}), (["collect", "--coll"], {"--collection"}), (["secret", "n"], {"new"})],
)
def test_verbs_and_options_complete(words, offered):
    assert offered <= complete(words)


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_the_line_for_the_shells_start_file(shell):
    environment = {**os.environ, "_LDP_BEAM_COMPLETE": f"{shell}_source"}
    program = "from ldp_beam.pipelines.cli import main; main()"
    done = subprocess.run([sys.executable, "-c", program], env=environment, capture_output=True, text=True, timeout=120)
    assert done.returncode == 0
    assert "_LDP_BEAM_COMPLETE" in done.stdout


def commands(command, path=()):
    yield path, command
    if isinstance(command, click.Group):
        for name, inner in command.commands.items():
            yield from commands(inner, (*path, name))


ALL = [(path, command) for path, command in commands(cli) if path]


@pytest.mark.parametrize(("path", "command"), ALL, ids=[" ".join(path) for path, _ in ALL])
def test_help_shows_examples_line_by_line_in_80_columns(path, command):
    with click.Context(command, info_name=" ".join(path), terminal_width=80, max_content_width=80) as context:
        text = command.get_help(context)
    assert "\\b" not in text
    prose = [line for line in text.splitlines() if "ldp-beam" not in line and not line.startswith("      ")]
    assert max(map(len, prose)) <= 80
    if not isinstance(command, click.Group):
        assert "Example" in text
        assert any(line.strip().startswith("ldp-beam ") for line in text.splitlines())


def test_a_traceback_only_when_asked_for(run, tmp_path):
    given = ("report", "--input", tmp_path, "--output", tmp_path / "page.html")
    code, out, err = run(*given)
    assert (code, out) == (2, "")
    assert "Traceback" not in err
    assert err.startswith("Error: ")
    code, _, err = run(*given, "--traceback")
    assert code == 2
    assert "Traceback" in err


def test_tables_fit_80_columns(define, nested, people, tmp_path):
    nested(people(2000))
    define()
    program = [sys.executable, "-m", "ldp_beam.pipelines"]
    given = ["--collection", "collection.toml", "--input", "records.parquet", "--output", "out"]
    done = subprocess.run(
        [*program, "collect", *given],
        cwd=tmp_path,
        env={**os.environ, "COLUMNS": "80"},
        capture_output=True,
        text=True,
        timeout=300,
    )
    assert done.returncode == 0, done.stderr
    assert "apple" in done.stderr
    assert max(map(len, done.stderr.splitlines())) <= 80
