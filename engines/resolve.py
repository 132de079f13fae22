"""Where an engine comes from: a pinned pom (or Go module), resolved once into the user's cache.

An entry of the cache is named for what it was made from, so a new version of a pom never meets old files.
It is made in a folder of its own and renamed when it is complete: an interrupted download leaves nothing that
a later run could take for an engine.
"""

from __future__ import annotations

import contextlib
import fcntl
import hashlib
import os
import shutil
import subprocess
import xml.etree.ElementTree as ET
from collections.abc import Iterator
from pathlib import Path

from ..errors import InputError, RunError
from .processes import temporary_folder
from .tools import require

__all__ = ["cache_folder", "is_resolved", "pinned_versions", "resolve"]

#: Programs from the Go module of Beam; its version is that of the Python SDK. `boot` is what Beam's containers for
#: Python start with: tests run it as they would.
_BEAM_GO = "github.com/apache/beam/sdks/v2"
_GO_PROGRAMS = {"prism": f"{_BEAM_GO}/go/cmd/prism@v2.77.0", "boot": f"{_BEAM_GO}/python/container@v2.77.0"}

_POM = "{http://maven.apache.org/POM/4.0.0}"
#: A first resolution downloads 150 to 350 MB, or compiles for minutes.
_DEADLINE_SECONDS = 1800


def cache_folder() -> Path:
    """Return the folder for engines: XDG_CACHE_HOME/ldp-beam, else ~/.cache/ldp-beam."""
    base = os.environ.get("XDG_CACHE_HOME")
    return (Path(base) if base else Path.home() / ".cache") / "ldp-beam"


def pinned_versions(engine: str) -> dict[str, str]:
    """Return the artifacts of an engine and their versions, from its pom."""
    if engine in _GO_PROGRAMS:
        module, _, version = _GO_PROGRAMS[engine].partition("@v")
        return {module.rpartition("/")[2]: version}
    root = ET.parse(_pom(engine)).getroot()
    properties = {f"${{{p.tag.removeprefix(_POM)}}}": p.text or "" for p in root.iterfind(f"{_POM}properties/*")}
    found = {}
    for dependency in root.iterfind(f"{_POM}dependencies/{_POM}dependency"):
        name, version = (dependency.findtext(f"{_POM}{tag}") or "" for tag in ("artifactId", "version"))
        found[name] = properties.get(version, version)
    return found


def is_resolved(engine: str) -> bool:
    """Return whether the cache holds an engine already."""
    return _entry(engine).exists()


def resolve(engine: str) -> Path:
    """Return the folder of an engine's jars (flink, spark, kafka) or program (prism, boot), fetched at the first call.

    Raises:
        InputError: A tool is missing that fetches them.
        RunError: They cannot be fetched.
    """
    entry = _entry(engine)
    if entry.exists():
        return entry
    with _locked(engine):
        if entry.exists():  # another process was faster
            return entry
        with temporary_folder(f".{engine}-", beside=cache_folder()) as folder:
            fetched = Path(folder, "fetched")
            fetched.mkdir()
            _fetch(engine, fetched)
            fetched.rename(entry)
    return entry


def _entry(engine: str) -> Path:
    source = _GO_PROGRAMS[engine].encode() if engine in _GO_PROGRAMS else _pom(engine).read_bytes()
    return cache_folder() / f"{engine}-{hashlib.sha256(source).hexdigest()[:12]}"


def _pom(engine: str) -> Path:
    path = Path(__file__).parent / engine / "pom.xml"
    if not path.is_file():
        raise InputError(f"There is no engine {engine!r} to resolve.")
    return path


@contextlib.contextmanager
def _locked(engine: str) -> Iterator[None]:
    """Let one process at a time fetch an engine; the others wait for it."""
    try:
        cache_folder().mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise InputError(f"{cache_folder()}: the cache for engines cannot be made: {error.strerror}.") from error
    with Path(cache_folder(), f".{engine}.lock").open("w") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield


def _fetch_jars(engine: str, into: Path) -> None:
    maven = require("mvn", instead="With a ready-made job server give --job-server-jar FILE.")
    pom = into.parent / "pom.xml"  # Maven writes beside the pom: not into the installed package
    shutil.copyfile(_pom(engine), pom)
    _run(
        engine,
        [
            *(maven, "--batch-mode", "--quiet", "--file", str(pom), "dependency:copy-dependencies"),
            *(f"-DoutputDirectory={into}", "-DincludeScope=runtime"),
        ],
    )
    if not any(into.glob("*.jar")):
        raise RunError(
            f"Maven fetched no jar for {engine}. Run {' '.join((maven, '-f', str(_pom(engine))))} to see why."
        )


def _fetch_go(engine: str, into: Path) -> None:
    go = require("go", instead="With a ready-made Prism give --prism_location FILE.")
    module, (program,) = _GO_PROGRAMS[engine], pinned_versions(engine)
    _run(engine, [go, "install", module], {"GOBIN": str(into)})
    if not (into / program).is_file():
        raise RunError(f"{go} install {module} made no program called {program}.")


def _fetch(engine: str, into: Path) -> None:
    (_fetch_go if engine in _GO_PROGRAMS else _fetch_jars)(engine, into)


def _run(engine: str, command: list[str], more: dict[str, str] | None = None) -> None:
    try:
        done = subprocess.run(
            command,
            env={**os.environ, **(more or {})},
            capture_output=True,
            text=True,
            timeout=_DEADLINE_SECONDS,
            check=False,
            stdin=subprocess.DEVNULL,
        )
    except subprocess.TimeoutExpired as error:
        raise RunError(f"{engine} could not be fetched within {_DEADLINE_SECONDS // 60} minutes. Try again.") from error
    if done.returncode:
        lines = [line for line in (done.stdout + done.stderr).splitlines() if line.strip()]
        said = next((line for line in lines if "ERROR" in line), lines[-1] if lines else "nothing was said")
        raise RunError(
            f"{engine} could not be fetched ({Path(command[0]).name} ended with {done.returncode}: {said.strip()}). "
            "Check the network and the settings of its mirror, then run again."
        )
