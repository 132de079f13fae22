"""One client of S3 for all operations of a process: Beam makes a new one for each, at 0.3 s of processor.

A run with thousands of files of reports would spend hours on nothing else. What is shared is the client of AWS's own
library, which may be used from several threads; what Beam keeps of a file that is open stays apart.
"""

from __future__ import annotations

import os
import threading
from types import SimpleNamespace
from typing import Any

__all__ = ["share_clients"]

_lock = threading.Lock()
_clients: dict[tuple[object, ...], Any] = {}


def share_clients(path: str) -> None:
    """Let Beam share clients from now on, if a path lies in S3 and what that needs is installed."""
    if not path.startswith("s3://"):
        return
    from apache_beam.io.aws.clients.s3 import boto3_client

    if boto3_client.boto3 is not None and not isinstance(boto3_client.boto3, SimpleNamespace):
        make = boto3_client.boto3.session.Session
        shared = SimpleNamespace(client=lambda **options: _client(make, options))
        boto3_client.boto3 = SimpleNamespace(session=SimpleNamespace(Session=lambda: shared))


def _client(session: Any, options: dict[str, Any]) -> Any:
    """Return the client for some options; others where the settings in the environment have changed."""
    environment = [(name, value) for name, value in sorted(os.environ.items()) if name.startswith("AWS_")]
    key = (*sorted((name, repr(value)) for name, value in options.items()), *environment)
    with _lock:  # sessions are not to be used by several threads
        if key not in _clients:
            _clients[key] = session().client(**options)
        return _clients[key]
