"""Every command and every piece of Python in README runs as it stands there."""

import re
import subprocess
from pathlib import Path

import pytest

README = (Path(__file__).parents[1] / "README.md").read_text(encoding="utf-8")


def blocks(language):
    return re.findall(rf"```{language}\n(.*?)```", README, re.DOTALL)


@pytest.fixture
def shell(tmp_path, warm_python):
    """Run a block of shell in an empty folder, with the environment of these tests as .venv."""
    (tmp_path / ".venv" / "bin").mkdir(parents=True)
    (tmp_path / ".venv" / "bin" / "activate").touch()

    def run(script):
        return subprocess.run(
            ["bash", "-euc", script], cwd=tmp_path, env=warm_python.environment(), capture_output=True, text=True
        )

    return run


def test_the_worked_example_runs_from_top_to_bottom(shell, tmp_path):
    scripts = [block for block in blocks("sh") if "ldp-beam" in block]
    assert len(scripts) == 2
    for script in scripts:
        done = shell(script)
        assert done.returncode == 0, done.stderr
    assert (tmp_path / "ratings.toml").read_text() == blocks("toml")[0]
    for folder in ("result", "result-of-reports"):
        assert (tmp_path / folder / "manifest.json").exists()


def test_the_python_runs(shell):
    (code,) = blocks("python")
    done = shell(f"python - <<'END'\n{code}END\n")
    assert done.returncode == 0, done.stderr
    assert len(done.stdout.split()) == 2


def test_the_two_commands_are_targets_of_the_makefile():
    makefile = (Path(__file__).parents[1] / "Makefile").read_text(encoding="utf-8")
    commands = [block.split("#")[0].strip() for block in blocks("sh") if block.startswith("make")]
    assert commands == ["make demo", "make test"]
    for command in commands:
        assert f"\n{command.removeprefix('make ')}:" in makefile


def test_links_lead_somewhere():
    for target in re.findall(r"\]\(([^)#]+)\)", README):
        if not target.startswith("https://"):
            assert (Path(__file__).parents[1] / target).exists(), target
