"""Jobs of a Flink cluster, asked for and cancelled over its REST interface.

A job server that is asked to cancel a job, or that ends, leaves a stream running on its cluster.
"""

from __future__ import annotations

import time
import urllib.error
import urllib.request
from typing import Final

from ..errors import RunError
from .cluster import get_json

__all__ = ["cancel_flink_jobs", "running_flink_jobs"]

_ENDED: Final = ("FAILED", "CANCELED", "FINISHED", "SUSPENDED")
_CANCEL_SECONDS: Final = 60.0
_POLL_SECONDS: Final = 0.3


def running_flink_jobs(master: str, name: str) -> list[str]:
    """Return the numbers of the jobs of a name that have not ended.

    Args:
        master: "host:port" of the cluster's REST interface.
        name: of the jobs.

    Raises:
        RunError: The cluster does not answer.
    """
    found = get_json(f"http://{master}/jobs/overview")
    if found is None:
        raise RunError(f"The Flink cluster at {master} does not tell its jobs: nothing answers there over HTTP.")
    return [str(job["jid"]) for job in found.get("jobs", []) if job["name"] == name and job["state"] not in _ENDED]


def cancel_flink_jobs(master: str, name: str) -> int:
    """Cancel the jobs of a name and wait until they have ended; return how many there were.

    Raises:
        RunError: The cluster does not answer, or they do not end within a minute.
    """
    running = running_flink_jobs(master, name)
    opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
    for job in running:
        request = urllib.request.Request(f"http://{master}/jobs/{job}?mode=cancel", method="PATCH")
        try:
            opener.open(request, timeout=10).close()
        except (urllib.error.URLError, OSError):
            continue  # it may have ended by itself; what remains is told below
    deadline = time.monotonic() + _CANCEL_SECONDS
    while running and running_flink_jobs(master, name):
        if time.monotonic() > deadline:
            raise RunError(
                f"The job {name} on the Flink cluster at {master} has not ended within {_CANCEL_SECONDS:g} seconds of "
                "being cancelled. End it there before this stream is started again."
            )
        time.sleep(_POLL_SECONDS)
    return len(running)
