"""Whether Docker answers here: without it, Beam's default environment for workers cannot start."""

from __future__ import annotations

import shutil
import subprocess

__all__ = ["docker_answers"]


def docker_answers() -> bool:
    """Return whether the docker command exists and its daemon answers within ten seconds."""
    path = shutil.which("docker")
    if path is None:
        return False
    try:
        done = subprocess.run(
            [path, "version", "--format", "{{.Server.Version}}"],
            capture_output=True,
            timeout=10,
            check=False,
            stdin=subprocess.DEVNULL,
        )
    except (OSError, subprocess.TimeoutExpired):
        return False
    return done.returncode == 0
