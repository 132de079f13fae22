"""An environment of its own for each peer, made from the package index when it is needed and kept for the next run."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

__all__ = ["PEERS", "Environment", "Missing", "Peer", "environment"]


@dataclass(frozen=True)
class Peer:
    """A package to compare with.

    Attributes:
        package: its name in the package index.
        cases: mechanisms that it has: "grr", "oue".
        how: how it is used, in one line; its documented way for many users.
        more: what its documentation asks to install besides.
    """

    package: str
    cases: tuple[str, ...]
    how: str
    more: tuple[str, ...] = ()


PEERS = (
    Peer(
        "pure-ldp",
        ("grr", "oue"),
        "client.privatise and server.aggregate for each user, estimate_all",
        more=("scikit-learn", "statsmodels"),  # imported by it, but not among its declared requirements
    ),
    Peer("multi-freq-ldpy", ("grr", "oue"), "GRR_Client or UE_Client (numba) for each user, then the MI aggregator"),
    Peer("ldp-toolbox", ("grr", "oue"), "obfuscate (numba) for each user, then estimate"),
    Peer("trasgodp", ("grr",), "dp_randomized_response_kary_array over all users; without a server, so numpy.unique"),
    Peer(
        "opendp",
        ("grr", "oue"),
        "a measurement for each user: make_randomized_response; instead of OUE, which it lacks, "
        "make_randomized_response_bitvec and its debias function",
        more=("numpy",),
    ),
    Peer("pipeline-dp", (), "DPEngine.aggregate on Beam: count and mean", more=("apache-beam==2.77.0", "pyarrow")),
)


@dataclass(frozen=True)
class Environment:
    """A peer that is installed: its interpreter and the versions of what matters."""

    python: Path
    versions: dict[str, str]


@dataclass(frozen=True)
class Missing:
    """A peer that could not be installed, and why."""

    reason: str


def environment(peer: Peer, folder: Path) -> Environment | Missing:
    """Return the peer's environment in a folder, making it where it is not there yet."""
    place = folder / peer.package
    python = place / "bin" / "python"
    done = place / "installed"
    if not done.exists():
        for command in _commands(place, python, peer):
            ran = subprocess.run(command, capture_output=True, text=True)
            if ran.returncode:
                shutil.rmtree(place, ignore_errors=True)
                return Missing(_last_words(ran.stderr or ran.stdout))
        done.touch()
    return Environment(python, _versions(python, peer))


def _commands(place: Path, python: Path, peer: Peer) -> tuple[list[str], list[str]]:
    uv = shutil.which("uv", path=str(Path(sys.executable).parent)) or shutil.which("uv")
    if uv is not None:
        make = [uv, "venv", "--quiet", "--clear", "--python", sys.executable, str(place)]
        return make, [uv, "pip", "install", "--quiet", "--python", str(python), peer.package, *peer.more]
    pip = [str(python), "-m", "pip", "install", "--quiet", "--disable-pip-version-check"]
    return [sys.executable, "-m", "venv", str(place)], [*pip, peer.package, *peer.more]


def _last_words(text: str) -> str:
    """Return the end of what an installer said, without the names of folders."""
    lines = [line.strip() for line in text.splitlines() if line.strip() and "/" not in line]
    return " ".join(lines[-3:]) or "the installer failed without a reason"


def _versions(python: Path, peer: Peer) -> dict[str, str]:
    names = [peer.package, "numpy", "numba", "apache-beam", "python-dp"]
    code = (
        "import json, sys\nfrom importlib.metadata import PackageNotFoundError, version\nfound = {}\n"
        "for name in sys.argv[1:]:\n"
        "    try:\n        found[name] = version(name)\n    except PackageNotFoundError:\n        pass\n"
        "print(json.dumps(found))"
    )
    ran = subprocess.run([str(python), "-c", code, *names], check=True, capture_output=True, text=True)
    found: dict[str, str] = json.loads(ran.stdout)
    return found
