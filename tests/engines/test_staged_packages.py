"""Packages that are staged with a job (`--extra_package`): fetched from the engine and installed by each worker.

The machines of these tests have what ldp-beam needs and not ldp-beam itself: a virtual environment that sees every
package of ours but that one.
"""

import ast
import fcntl
import importlib.metadata
import json
import os
import re
import shutil
import subprocess
import sys
import time
import venv
import zipfile
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import apache_beam as beam
import pytest
from ldp_beam.engines import WorkerPool, resolve, worker_boot
from ldp_beam.engines.processes import wait_until
from ldp_beam.errors import RunError
from ldp_beam.pipelines.preflight import worker_versions
from ldp_beam.pipelines.running import Engine, engine_pipeline

ROOT = Path(__file__).resolve().parents[2]
NOT_SOURCE = shutil.ignore_patterns(".*", "*.egg-info", "build", "dist", "demo-output", "__pycache__", "benchmarks")


def bare_machine(folder):
    """The Python of a machine without ldp-beam."""
    venv.create(folder, symlinks=True)
    (packages,) = folder.glob("lib/python*/site-packages")
    for entry in Path(pytest.__file__).parents[1].iterdir():
        if "ldp_beam" not in entry.name and not (packages / entry.name).exists():
            (packages / entry.name).symlink_to(entry)
    return folder / "bin" / "python"


@pytest.fixture(scope="module")
def bare(tmp_path_factory):
    python = bare_machine(tmp_path_factory.mktemp("machine") / "bare")
    code = "import apache_beam, pip, importlib.util as i; assert i.find_spec('ldp_beam') is None"
    subprocess.run([python, "-c", code], check=True)
    return python


@pytest.fixture(scope="module")
def wheel(tmp_path_factory):
    """Our own wheel."""
    sources = tmp_path_factory.mktemp("build") / "sources"
    shutil.copytree(ROOT, sources, ignore=NOT_SOURCE)
    command = [sys.executable, "-m", "build", "--wheel", "--outdir", sources / "dist", sources]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    (path,) = (sources / "dist").glob("*.whl")
    return path


def package(folder, name, version="1.0", *, text="", needs=()):
    """Write a wheel with one module."""
    path, info = folder / f"{name}-{version}-py3-none-any.whl", f"{name}-{version}.dist-info"
    needed = "".join(f"Requires-Dist: {other}\n" for other in needs)
    files = {
        f"{name}.py": text,
        f"{info}/METADATA": f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n{needed}",
        f"{info}/WHEEL": "Wheel-Version: 1.0\nGenerator: test\nRoot-Is-Purelib: true\nTag: py3-none-any\n",
    }
    with zipfile.ZipFile(path, "w") as archive:
        for member, content in files.items():
            archive.writestr(member, content)
        archive.writestr(f"{info}/RECORD", "".join(f"{member},,\n" for member in [*files, f"{info}/RECORD"]))
    return path


@pytest.fixture
def process(tmp_path):
    """Return a function that gives Beam's options for workers that a command starts."""

    def options(*command, env=""):
        script, folder = tmp_path / "start-worker", tmp_path / "scratch"
        folder.mkdir(exist_ok=True)
        script.write_text(f'#!/bin/sh\nTMPDIR={folder} {env} exec {" ".join(map(str, command))} "$@"\n')
        script.chmod(0o755)
        return [
            "--environment_cache_millis=20000",  # else each stage starts workers anew
            "--environment_type=PROCESS",
            f"--environment_config={json.dumps({'command': str(script)})}",
        ]

    return options


@pytest.fixture
def counts(inputs, run_json, tmp_path):
    """Return a function that collects the same people, and the bytes of its counts."""

    def collect(name, *more):
        output = tmp_path / name
        given = ("--collection", inputs / "collection.toml", "--input", inputs / "nested.parquet")
        run_json("collect", *given, "--output", output, "--seed", "41", *more)
        return (output / "counts.parquet").read_bytes()

    return collect


# -- the worker ----------------------------------------------------------------------------------------------


def test_the_worker_is_one_file_that_needs_nothing_of_ours():
    tree = ast.parse(Path(worker_boot.__file__).read_text())
    imported = [node for node in ast.walk(tree) if isinstance(node, ast.ImportFrom)]
    assert imported
    assert all(node.level == 0 and not (node.module or "").startswith("ldp_beam") for node in imported)


@pytest.mark.engine
def test_a_machine_with_apache_beam_and_one_file_runs_a_job_with_our_wheel(
    bare, wheel, flink_server, process, counts, tmp_path
):
    program = shutil.copy(worker_boot.__file__, tmp_path / "worker.py")
    workers = process(bare, "-P", program)
    assert counts("there", *flink_server, *workers, f"--extra_package={wheel}") == counts("here")
    scratch = tmp_path / "scratch"
    # All other files of a worker go with it, some seconds after the job: its engine keeps it for the next stage.
    wait_until(lambda: len(list(scratch.iterdir())) == 1, "The end of the workers", [], seconds=120)
    (kept,) = scratch.iterdir()
    assert len([path for path in kept.iterdir() if path.is_dir()]) == 1  # the workers of all stages share it
    done = subprocess.run([bare, "-c", "import ldp_beam"], capture_output=True, check=False)
    assert done.returncode == 1  # the machine stays as it was


@pytest.mark.engine
def test_without_the_package_the_message_says_what_a_worker_lacks(bare, flink_server, process, inputs, run, tmp_path):
    given = ("--collection", inputs / "collection.toml", "--input", inputs / "nested.parquet")
    workers = process(bare, "-P", worker_boot.__file__)
    code, _, err = run("collect", *given, "--output", tmp_path / "out", *flink_server, *workers)
    assert code == 1
    assert "a worker lacks the module ldp_beam" in err
    assert "--extra_package" in err
    assert not (tmp_path / "out").exists()


# -- the pool ------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def pool(tmp_path_factory):
    running = WorkerPool(tmp_path_factory.mktemp("plain-pool"))
    yield running
    running.stop()


def with_package(where, pool, path):
    workers = (
        "--environment_type=EXTERNAL",
        f"--environment_config={pool.address}",
        "--environment_cache_millis=20000",
    )
    return Engine(beam_arguments=(*where, *workers, f"--extra_package={path}"))


#: How a project is built that needs nothing for it; the wheel lies in it. Each time the bytes are the same, so that the
#: workers of all jobs share what is installed.
BACKEND = """
import gzip, shutil, tarfile
def build_sdist(folder, settings=None):
    packed = gzip.GzipFile(f"{{folder}}/set_up_by_test-1.0.tar.gz", "w", mtime=0)
    with packed, tarfile.open(fileobj=packed, mode="w") as archive:
        for name in ("backend.py", "pyproject.toml", "{wheel}"):
            archive.add(name, f"set_up_by_test-1.0/{{name}}")
    return "set_up_by_test-1.0.tar.gz"
def build_wheel(folder, settings=None, metadata=None):
    shutil.copy("{wheel}", folder)
    return "{wheel}"
"""


@pytest.fixture
def staged_in_each_way(tmp_path, monkeypatch):
    """A wheel, and Beam's options that stage another wheel that a list requires, and a project of one module."""
    for folder in ("cache", "project"):
        (tmp_path / folder).mkdir()
    wheel = package(tmp_path, "staged_by_test", text="more = 1")
    package(tmp_path / "cache", "required_by_test", text="more = 2")
    monkeypatch.setenv("PIP_NO_INDEX", "1")  # Beam would look for it there, too
    (tmp_path / "requirements.txt").write_text("required_by_test==1.0\n")
    wheel_of_project = package(tmp_path / "project", "set_up_by_test", text="more = 3")
    (tmp_path / "project" / "backend.py").write_text(BACKEND.format(wheel=wheel_of_project.name))
    (tmp_path / "project" / "pyproject.toml").write_text(
        '[build-system]\nrequires = []\nbuild-backend = "backend"\nbackend-path = ["."]\n'
        '[project]\nname = "set_up_by_test"\nversion = "1.0"\n'
    )
    return wheel, (
        f"--requirements_file={tmp_path / 'requirements.txt'}",
        f"--requirements_cache={tmp_path / 'cache'}",
        f"--setup_file={tmp_path / 'project' / 'pyproject.toml'}",
    )


def importing():
    """A function that workers get whole, since they have no module of tests; one that fails ends the run."""

    def imported(number):
        import required_by_test  # each only in what was staged
        import set_up_by_test
        import staged_by_test

        assert (staged_by_test.more, required_by_test.more, set_up_by_test.more) == (1, 2, 3)
        return number

    return imported


@pytest.fixture
def where(request, tmp_path):
    """Beam's options for an embedded Flink, or for a standalone cluster of Spark (parametrised indirectly)."""
    if request.param == "flink":
        return request.getfixturevalue("flink_server")
    cluster, nothing = request.getfixturevalue("spark_cluster"), tmp_path / "nothing.jar"
    zipfile.ZipFile(nothing, "w").close()
    return ["--runner=SparkRunner", f"--spark_master_url={cluster.master}", f"--files_to_stage={nothing}"]


@pytest.mark.engine
@pytest.mark.parametrize("where", ["flink", "spark"], indirect=True)
def test_a_pool_installs_packages_that_a_function_of_ours_imports(where, pool, staged_in_each_way):
    """A package, what a list of requirements names, and a project: `--extra_package` and its two relatives."""
    wheel, more = staged_in_each_way
    with engine_pipeline(with_package((*where, *more), pool, wheel)) as pipeline:
        _ = pipeline | beam.Create([1, 2], reshuffle=False) | beam.Map(importing())


@pytest.mark.engine
def test_a_package_that_cannot_be_installed_ends_the_run_with_the_reason(flink_server, pool, tmp_path):
    path = package(tmp_path, "staged_by_test", needs=["ldp-beam-has-no-such-part==1"])
    with (
        pytest.raises(RunError, match=r"The worker on \S+ cannot install .*ldp-beam-has-no-such-part") as caught,
        engine_pipeline(with_package(flink_server, pool, path)) as pipeline,
    ):
        _ = pipeline | beam.Create([1, 2], reshuffle=False) | beam.Map(importing())
    assert "Traceback" not in str(caught.value)


# -- what an environment is made of ---------------------------------------------------------------------------


@pytest.fixture
def staged(tmp_path):
    folder = tmp_path / "staged"
    folder.mkdir()
    return folder


def said(python, code):
    return subprocess.run([python, "-c", code], capture_output=True, text=True, check=True).stdout.strip()


def test_nothing_is_installed_where_no_package_is_staged(staged, tmp_path):
    (staged / "data.csv").write_text("no package")
    assert worker_boot.installed(staged, tmp_path / "kept") is None
    assert [path.name for path in tmp_path.iterdir()] == ["staged"]


def test_requirements_are_met_by_what_is_staged_and_by_what_is_installed(staged, tmp_path):
    package(staged, "needed_by_test", text="x = 3", needs=["numpy"])
    (staged / "requirements.txt").write_text("needed_by_test\napache-beam\n")
    python = worker_boot.installed(staged, tmp_path / "kept")
    assert said(python, "import needed_by_test, apache_beam; print(needed_by_test.x, apache_beam.__file__)") == (
        f"3 {beam.__file__}"
    )


def test_a_staged_package_hides_an_installed_one_of_the_same_version_and_is_installed_once(
    staged, tmp_path, monkeypatch
):
    path = package(staged, "click", importlib.metadata.version("click"), text="here = True")
    (staged / "extra_packages.txt").write_text(f"{path.name}\n")
    python = worker_boot.installed(staged, tmp_path / "kept")
    assert said(python, "import click; print(click.here)") == "True"
    assert said(sys.executable, "import click; print(hasattr(click, 'here'))") == "False"
    monkeypatch.setattr(worker_boot, "_pip", lambda *arguments: pytest.fail("a second installation"))
    assert worker_boot.installed(staged, tmp_path / "kept") == python


def test_workers_that_start_together_install_once_and_work_at_the_same_time(staged, tmp_path, monkeypatch):
    (staged / "requirements.txt").touch()
    made = []

    def install(home, *arguments):
        time.sleep(0.2)  # long enough for the others to come
        home.mkdir()
        made.append(home)

    monkeypatch.setattr(worker_boot, "_install", install)
    with ThreadPoolExecutor(4) as workers:
        found = list(workers.map(lambda _: worker_boot.installed(staged, tmp_path / "kept"), range(4)))
    assert set(found) == {str(made[0] / "bin" / "python")}
    assert len(made) == 1


def test_what_has_just_failed_is_not_tried_again_and_says_the_same(staged, tmp_path, monkeypatch):
    (staged / "requirements.txt").touch()
    tried = []

    def fail(*arguments):
        tried.append(arguments)
        raise worker_boot.StagingError("cannot install this.")

    monkeypatch.setattr(worker_boot, "_install", fail)
    for _ in range(2):
        with pytest.raises(worker_boot.StagingError, match=r"cannot install this\."):
            worker_boot.installed(staged, tmp_path / "kept")
    assert len(tried) == 1


@pytest.mark.parametrize("used", [True, False])
def test_an_environment_goes_when_nobody_has_used_it_for_a_day(used, tmp_path):
    (tmp_path / "old").mkdir()
    (tmp_path / "old.lock").touch()
    os.utime(tmp_path / "old.lock", (0, 0))
    with (tmp_path / "old.lock").open() as lock:
        if used:
            fcntl.flock(lock, fcntl.LOCK_SH)
        worker_boot._sweep(tmp_path)
    assert (tmp_path / "old").exists() == used


def test_packages_are_not_installed_where_others_may_write(staged, tmp_path):
    (staged / "requirements.txt").touch()
    (tmp_path / "kept").mkdir()
    (tmp_path / "kept").chmod(0o777)
    with pytest.raises(worker_boot.StagingError, match="belongs to this user alone"):
        worker_boot.installed(staged, tmp_path / "kept")


# -- the container -------------------------------------------------------------------------------------------


def container():
    """The instructions of our Dockerfile."""
    text = (ROOT / "engines" / "container" / "Dockerfile").read_text()
    return re.findall(r"^([A-Z]+) (.*)$", text, flags=re.MULTILINE)


@pytest.fixture(scope="module")
def image(wheel, tmp_path_factory):
    """A machine on which the RUN lines of our Dockerfile were run.

    A virtual environment stands for Beam's image, and a folder with our wheel for the package index.
    """
    folder = tmp_path_factory.mktemp("image")
    python = bare_machine(folder)
    (python.parent / "pip").write_text(f'#!/bin/sh\nexec {python} -m pip "$@"\n')
    (python.parent / "pip").chmod(0o755)
    arguments = dict(line.split("=", 1) for word, line in container() if word == "ARG")
    env = {"PATH": f"{python.parent}:/usr/bin:/bin", "PIP_NO_INDEX": "1", "PIP_FIND_LINKS": str(wheel.parent)}
    lines = [line for word, line in container() if word == "RUN"]
    assert lines
    for line in lines:
        subprocess.run(["/bin/sh", "-euc", line], env={**env, **arguments}, check=True, capture_output=True)
    return python


@pytest.mark.engine
def test_the_run_lines_of_our_container_make_a_worker_of_our_versions(image):
    code = "from ldp_beam.pipelines.preflight import worker_versions as w, __file__ as f; print(f, w())"
    file, _, versions = said(image, code).partition(" ")
    assert Path(file).is_relative_to(image.parents[1])
    assert versions == str(worker_versions())


@pytest.mark.engine
def test_the_start_up_program_of_beams_containers_starts_a_worker_in_ours(
    image, require_engine, flink_server, process, counts, tmp_path
):
    """What Docker would run in a container of our image."""
    require_engine("prism")  # Go
    env = f"PATH={image.parent}:$PATH RUN_PYTHON_SDK_IN_DEFAULT_ENVIRONMENT=1"
    workers = process(resolve("boot") / "container", f"--semi_persist_dir={tmp_path / 'semi'}", env=env)
    assert counts("there", *flink_server, *workers) == counts("here")
