"""Someone else's environment: wheel and sdist, pip and uv, extras, and a small client that needs only the mathematics.

The installations fetch the dependencies from the package index that pip is configured for. Where it cannot be
reached the tests are skipped; under CI=true that is a failure.
"""

import email
import os
import shutil
import subprocess
import sys
import tarfile
import tomllib
import venv
import zipfile
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
PACKAGES = [name.split(".")[1] for name in PROJECT["tool"]["setuptools"]["packages"]]
NOT_SOURCE = shutil.ignore_patterns(".*", "*.egg-info", "build", "dist", "demo-output", "__pycache__", "typings")


def call(*command, cwd=None, timeout=900):
    """Run a command and return what it printed."""
    done = subprocess.run([str(part) for part in command], cwd=cwd, capture_output=True, text=True, timeout=timeout)
    assert done.returncode == 0, f"{command}\n{done.stdout}\n{done.stderr}"
    return done.stdout


def fetch(*command, cwd=None):
    """Run a command that needs the package index."""
    try:
        return call(*command, cwd=cwd)
    except AssertionError as error:
        offline = any(
            word in str(error) for word in ("Connection", "connect", "resolve host", "No matching distribution")
        )
        if offline and os.environ.get("CI") != "true":
            pytest.skip(f"the package index cannot be reached: {str(error)[-200:]}")
        raise


@pytest.fixture(scope="module")
def dist(tmp_path_factory):
    """The folder of a wheel that was built from an sdist that was built from the sources."""
    pytest.importorskip("build")
    sources = tmp_path_factory.mktemp("build") / "sources"
    shutil.copytree(ROOT, sources, ignore=NOT_SOURCE)
    fetch(sys.executable, "-m", "build", "--outdir", sources / "dist", sources)
    return sources / "dist"


@pytest.fixture(scope="module")
def wheel(dist):
    (path,) = dist.glob("*.whl")
    return path


@pytest.fixture(scope="module", params=["pip", "uv"])
def environment(request, wheel, tmp_path_factory):
    """An empty virtual environment into which the wheel was installed: bare by pip, with an extra by uv."""
    folder = tmp_path_factory.mktemp(request.param) / "venv"
    python = folder / "bin" / "python"
    if request.param == "pip":
        venv.create(folder, with_pip=True)
        fetch(python, "-m", "pip", "install", "--quiet", "--disable-pip-version-check", wheel)
    else:
        uv = shutil.which("uv") or shutil.which("uv", path=str(Path(sys.executable).parent))
        if uv is None:
            pytest.skip("uv is not installed")
        fetch(uv, "venv", "--quiet", "--python", sys.executable, folder)
        fetch(uv, "pip", "install", "--quiet", "--python", python, f"ldp-beam[report] @ {wheel.as_uri()}")
    return request.param, folder / "bin"


def test_the_wheel_holds_the_packages_and_their_files(wheel):
    sources = wheel.parent.parent
    with zipfile.ZipFile(wheel) as archive:
        names = archive.namelist()
        metadata = email.message_from_bytes(archive.read(next(n for n in names if n.endswith("METADATA"))))
    tops = {name.split("/")[0] for name in names if not name.split("/")[0].endswith(".dist-info")}
    assert tops == {"ldp_beam"}
    for package in PACKAGES:
        assert f"ldp_beam/{package}/py.typed" in names
        for path in (sources / package).glob("*.py"):
            assert f"ldp_beam/{package}/{path.name}" in names
    for asset in ("page.html", "page.css", "page.js"):
        assert f"ldp_beam/pipelines/report_assets/{asset}" in names
    assert any(name.endswith("licenses/LICENSE") for name in names)
    assert metadata["Name"] == "ldp-beam"
    assert metadata["Version"] == PROJECT["project"]["version"]
    assert set(metadata.get_all("Provides-Extra")) == set(PROJECT["project"]["optional-dependencies"])


def test_the_sdist_holds_what_builds_it(dist):
    (path,) = dist.glob("*.tar.gz")
    with tarfile.open(path) as archive:
        names = {name.partition("/")[2] for name in archive.getnames()}
    assert {"pyproject.toml", "README.md", "LICENSE", "pipelines/report_assets/page.js"} <= names


def test_it_works_in_an_empty_environment(environment, tmp_path):
    tool, bin_folder = environment
    program = bin_folder / "ldp-beam"
    assert PROJECT["project"]["version"] in call(program, "--version", cwd=tmp_path)
    made = ("--output", "people.parquet", "--collection-to", "c.toml")
    call(program, "simulate", "--population", "gauss", "--users", 2000, "--keys", 20, *made, cwd=tmp_path)
    where = ("--collection", "c.toml", "--input", "people.parquet", "--output", "result")
    assert '"counted": 2000' in call(program, "collect", *where, "--json", cwd=tmp_path)
    page = ("report", "--input", "result", "--output", "page.html")
    if tool == "uv":
        call(program, *page, cwd=tmp_path)
        assert "plotly" in (tmp_path / "page.html").read_text(encoding="utf-8")
    else:
        done = subprocess.run([program, *page], cwd=tmp_path, capture_output=True, text=True)
        assert done.returncode == 2
        assert "ldp-beam[report]" in " ".join(done.stderr.split())


def test_a_client_that_perturbs_loads_only_the_mathematics(environment, tmp_path):
    _, bin_folder = environment
    code = """
import sys
import ldp_beam.mechanisms as m
secret = m.Secret.new()
records = m.make_records(secret.users(), ids=["ann"], items=[{0: 0.5}])
reports = m.PCKVUE(epsilon=1, keys=3, padding=1).perturb(records, secret.stream(fingerprint="x"))
print(reports.n, *{name.split(".")[0] for name in sys.modules} & {"apache_beam", "pyarrow", "fastavro", "pandas"})
"""
    assert call(bin_folder / "python", "-c", code, cwd=tmp_path).split() == ["1"]
