"""The files of the engines: pinned versions, the page that tells them, the container, what is installed."""

import json
import re
from pathlib import Path

import pytest
from ldp_beam.engines import ENGINES, pinned_versions, resolve
from ldp_beam.engines.java import java_command
from ldp_beam.engines.tools import tool_version
from ldp_beam.errors import InputError, RunError
from ldp_beam.pipelines.failures import translated

ROOT = Path(__file__).parents[2]


@pytest.mark.parametrize("engine", ENGINES)
def test_versions_are_pinned_and_the_page_tells_them(engine):
    page = (ROOT / "docs" / "engines.md").read_text()
    for name, version in pinned_versions(engine).items():
        assert re.fullmatch(r"[0-9.]+", version)
        assert "slf4j" in name or f"{name} {version}" in page


def test_prism_the_container_and_python_have_one_version_of_beam():
    project = (ROOT / "pyproject.toml").read_text()
    version = pinned_versions("prism")["prism"]
    assert f'"apache-beam=={version}"' in project
    container = (ROOT / "engines" / "container" / "Dockerfile").read_text()
    (python,) = re.findall(r"^FROM apache/beam_python(3\.\d+)_sdk:", container, flags=re.MULTILINE)
    assert f"_sdk:{version}\n" in container
    assert f'"Programming Language :: Python :: {python}"' in project
    (ours,) = set(re.findall(r"LDP_BEAM_VERSION=(\S+)", container))
    assert f'\nversion = "{ours}"\n' in project
    assert f"worker:{ours}" in container
    assert pinned_versions("boot") == {"container": version}
    installed = re.findall(r"^RUN (.*)$", container, flags=re.MULTILINE)
    assert installed == ['pip install --no-cache-dir "ldp-beam==${LDP_BEAM_VERSION}"']


def test_a_missing_tool_is_named_with_what_it_is_for(monkeypatch, tmp_path):
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    monkeypatch.delenv("JAVA_HOME", raising=False)
    with pytest.raises(InputError, match=r"mvn was not found .*--job-server-jar"):
        resolve("flink")
    with pytest.raises(InputError, match=r"go was not found .*--prism_location"):
        resolve("prism")
    with pytest.raises(InputError, match="java was not found"):
        java_command("jars", "Main", [], scratch=tmp_path)
    assert tool_version("java") is None
    assert sorted(p.name for p in (tmp_path / "ldp-beam").iterdir()) == [".flink.lock", ".prism.lock"]


def test_an_old_java_is_refused(monkeypatch, tmp_path):
    home = tmp_path / "jdk"
    (home / "bin").mkdir(parents=True)
    java = home / "bin" / "java"
    java.write_text("#!/bin/sh\necho 'openjdk version \"1.8.0_392\"' >&2\n")
    java.chmod(0o755)
    monkeypatch.setenv("JAVA_HOME", str(home))
    with pytest.raises(InputError, match=r"Java 1\.8\.0_392; the engines need Java 11"):
        java_command("jars", "Main", [], scratch=tmp_path)


@pytest.mark.parametrize("failure", ["exit 1", "touch $GOBIN/x"])
def test_a_failed_fetch_leaves_nothing_that_looks_like_an_engine(failure, monkeypatch, tmp_path):
    tools = tmp_path / "bin"
    tools.mkdir()
    (tools / "go").write_text(f"#!/bin/sh\necho 'no route to the module' >&2\n{failure}\n")
    (tools / "go").chmod(0o755)
    monkeypatch.setenv("PATH", f"{tools}:/usr/bin:/bin")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    with pytest.raises(RunError, match=r"no route to the module|made no program"):
        resolve("prism")
    assert [path.name for path in (tmp_path / "cache" / "ldp-beam").iterdir()] == [".prism.lock"]


# -- what an engine says, in a paragraph ---------------------------------------------------------------------


@pytest.mark.parametrize(
    ("said", "kind", "told"),
    [
        (
            "Pipeline job-1 failed in state FAILED: java.lang.RuntimeException: Error received from SDK harness for "
            "instruction 4: Traceback (most recent call last):\n  File ...\nldp_beam.errors.RunError: The input file a "
            "is damaged. [while running 'Read-ptransform-12']\n\n\tat org.apache.beam.fn.Client(Client.java:1)",
            RunError,
            "The input file a is damaged.",
        ),
        (
            "x\nldp_beam.errors.InputError: b.csv: row 3 is wrong.\n\tat java.base/x",
            InputError,
            "b.csv: row 3 is wrong.",
        ),
        ("OSError: [Errno 28] No space left on device: 'x'", RunError, "a disk is full (No space left on device)"),
        (
            "ModuleNotFoundError: No module named 'ldp_beam.engines'",
            RunError,
            "a worker lacks the module ldp_beam.engines",
        ),
        ('java.io.IOException: Cannot run program "docker": error=2', RunError, "--environment_type EXTERNAL"),
        ("java.lang.OutOfMemoryError: Java heap space", RunError, "ran out of memory"),
        ("AttributeError: Can't get attribute 'X' on <module>", RunError, "a worker cannot load this job"),
        ("CANCELLED: Multiplexer hanging up", RunError, "a Python worker ended in the middle of the job"),
        ("something else\nlast line.", RunError, "The run failed: last line (--traceback shows where)"),
    ],
)
def test_what_an_engine_says_becomes_a_paragraph(said, kind, told):
    error = translated(RuntimeError(said))
    assert type(error) is kind
    assert told in str(error)
    assert "\n" not in str(error)


def test_our_own_error_is_found_behind_others():
    try:
        try:
            raise InputError("a.csv: column 'x' is absent. [while running 'Read']")
        except InputError as error:
            raise RuntimeError("wrapped") from error
    except RuntimeError as error:
        found = translated(error)
    assert (type(found), str(found)) == (InputError, "a.csv: column 'x' is absent.")


def test_the_doctor_needs_no_engine_to_be_fetched(run, monkeypatch, tmp_path):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    code, out, _ = run("doctor", "--json", "--no-fetch")
    assert code == 0
    engines = json.loads(out)["engines"]
    assert engines["direct"]["ok"]
    assert not engines["flink"]["ok"]
    assert "not in the cache" in engines["flink"]["problem"]
