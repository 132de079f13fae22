"""The programs that the engines need, and what to say where one is missing."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from dataclasses import dataclass
from pathlib import Path

from ..errors import InputError

__all__ = ["TOOLS", "Tool", "java_launcher", "require", "tool_version"]


@dataclass(frozen=True)
class Tool:
    """A program: how it is called, how it tells its version, who needs it."""

    name: str
    arguments: tuple[str, ...]
    pattern: str
    purpose: str


TOOLS = {
    "java": Tool("java", ("-version",), r'version "([^"]+)"', "runs Flink, Spark and Kafka (tested: Java 17)"),
    "mvn": Tool("mvn", ("--version",), r"Apache Maven ([\d.]+)", "fetches Flink, Spark and Kafka once"),
    "go": Tool("go", ("version",), r"go version go(\S+)", "builds Prism once"),
}
_OLDEST_JAVA = 11


def tool_version(name: str) -> str | None:
    """Return the version of a program of `TOOLS`, or None where it is absent or does not run."""
    tool = TOOLS[name]
    path = _path(name)
    if path is None:
        return None
    try:
        done = subprocess.run(
            [path, *tool.arguments], capture_output=True, text=True, timeout=60, check=False, stdin=subprocess.DEVNULL
        )
    except (OSError, subprocess.TimeoutExpired):
        return None
    found = re.search(tool.pattern, done.stdout + done.stderr)
    return found.group(1) if found else None


def require(name: str, *, instead: str = "") -> str:
    """Return the path of a program.

    Raises:
        InputError: It is not on this machine.
    """
    path = _path(name)
    if path is None:
        raise InputError(
            f"{name} was not found on this machine; it {TOOLS[name].purpose}. Install it, or run with "
            f"--engine direct, which needs nothing. {instead}".strip()
        )
    return path


def java_launcher() -> str:
    """Return the path of Java, the one in JAVA_HOME first.

    Raises:
        InputError: There is none, or it is too old for the engines.
    """
    path = require("java")
    version = tool_version("java")
    major = _major(version)
    if major is not None and major < _OLDEST_JAVA:
        raise InputError(f"{path} is Java {version}; the engines need Java {_OLDEST_JAVA} or newer, 17 is tested.")
    return path


def _path(name: str) -> str | None:
    home = os.environ.get("JAVA_HOME")
    if name == "java" and home:
        candidate = Path(home, "bin", "java")
        if candidate.is_file():
            return str(candidate)
    return shutil.which(name)


def _major(version: str | None) -> int | None:
    found = re.match(r"(?:1\.)?(\d+)", version or "")
    return int(found.group(1)) if found else None
