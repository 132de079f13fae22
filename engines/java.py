"""The command that starts a Java program of an engine from its class path."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from .tools import java_launcher

__all__ = ["OPENED", "java_command"]

#: Flink and Spark reach into these packages, which Java 17 closes. Harmless where they are open.
_PACKAGES = (
    *("java.io", "java.lang", "java.lang.invoke", "java.lang.reflect", "java.math", "java.net", "java.nio"),
    *("java.text", "java.time", "java.util", "java.util.concurrent", "java.util.concurrent.atomic"),
    *("sun.net.util", "sun.nio.ch", "sun.nio.cs", "sun.security.action", "sun.util.calendar"),
)
OPENED = tuple(f"--add-opens=java.base/{package}=ALL-UNNAMED" for package in _PACKAGES)

#: The work is done in Python; Java only moves batches. So a quick start is worth more than the last compiler's code.
_QUICK = ("-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC")


def java_command(
    source: Path | str, main: str | None, arguments: Sequence[str], *, scratch: Path, options: Sequence[str] = ()
) -> list[str]:
    """Return the command line.

    Args:
        source: a folder of jars, or one jar that names its own main class.
        main: main class; None for a jar.
        arguments: arguments of the program.
        scratch: folder for its temporary files.
        options: further options of Java.
    """
    what = ["-jar", str(source)] if main is None else ["-cp", f"{source}/*", main]
    return [java_launcher(), *OPENED, *_QUICK, f"-Djava.io.tmpdir={scratch}", *options, *what, *arguments]
