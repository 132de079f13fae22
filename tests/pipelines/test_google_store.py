"""Google's object store: the tests of `google_store.py`, on a machine that has what the extra `gcs` brings.

Beam loads Google's client into each of its processes where it finds it. So it has an environment of its own, which
sees all that this one has.
"""

import os
import site
import subprocess
import tomllib
import venv
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
EMULATOR = "gcp-storage-emulator>=2026.7"


@pytest.fixture(scope="module")
def python(tmp_path_factory):
    """The Python of an environment with the extra, and with a server that answers as Google's does."""
    home = tmp_path_factory.mktemp("google")
    venv.create(home, symlinks=True)
    (own,) = home.glob("lib/python*/site-packages")
    (own / "installed_here.pth").write_text(f"import site; list(map(site.addsitedir, {site.getsitepackages()!r}))\n")
    extra = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["optional-dependencies"]["gcs"]
    command = [home / "bin" / "python", "-m", "pip", "install", "--quiet", "--disable-pip-version-check"]
    done = subprocess.run([*command, *extra, EMULATOR], capture_output=True, text=True, check=False)
    if done.returncode:
        (pytest.fail if os.environ.get("CI") == "true" else pytest.skip)(done.stderr)
    return home / "bin" / "python"


def test_results_are_read_from_and_sent_to_googles_store(python):
    tests = Path(__file__).with_name("google_store.py")
    command = [python, "-m", "pytest", "-q", "-x", "-p", "no:cacheprovider", "-p", "no:xdist", tests]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "passed" in done.stdout
    assert "skipped" not in done.stdout, done.stdout


def test_without_the_extra_its_name_is_told(define, nested, people, run):
    """In this environment, where Beam knows no such store."""
    given = ("collect", "--collection", define(), "--input", nested(people(5)), "--seed", "1")
    code, out, err = run(*given, "--output", "gs://data/out")
    assert code == 2
    assert "ldp-beam[gcs]" in err
    assert out == ""
