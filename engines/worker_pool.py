"""`python -m ldp_beam.engines.worker_pool --port N`: starts a Python worker whenever an engine asks for one.

For `--environment_type EXTERNAL --environment_config HOST:N`. Unlike Beam's own pool it starts workers with
its own interpreter, not with whatever `python` is on the path, lets them write to its log, and installs packages
that are staged with a job.
"""

from __future__ import annotations

import argparse
import signal
import subprocess
import sys
import tempfile
import threading
from types import FrameType

import grpc
from apache_beam.portability.api import beam_fn_api_pb2, beam_fn_api_pb2_grpc
from apache_beam.utils.thread_pool_executor import shared_unbounded_instance

from . import worker_boot

__all__ = ["main"]

_GRACE_SECONDS = 10.0


class _Pool(beam_fn_api_pb2_grpc.BeamFnExternalWorkerPoolServicer):
    """Starts and stops one process a worker.

    Every machine of an engine numbers its workers from 1, so a worker's name is its number and who asked for it:
    else one machine's end of a stage would end another's worker. A worker that is not found ends by itself when
    the engine closes its control channel.

    Args:
        folder: takes what the workers fetch and install.
    """

    def __init__(self, folder: str) -> None:
        self._folder = folder
        self._workers: dict[tuple[str, str], subprocess.Popen[bytes]] = {}

    def StartWorker(self, request: beam_fn_api_pb2.StartWorkerRequest, context: grpc.ServicerContext) -> object:
        """Start a worker that takes its work from the engine at the given endpoint."""
        # As a file, not as a module: beside staged packages the package of this file may be another one.
        command = [sys.executable, "-P", worker_boot.__file__, f"--semi_persist_dir={self._folder}"]
        command += [f"--id={request.worker_id}", f"--provision_endpoint={request.provision_endpoint.url}"]
        command += [f"--control_endpoint={request.control_endpoint.url}"]
        command += [f"--logging_endpoint={request.logging_endpoint.url}"]
        command += [f"--artifact_endpoint={request.artifact_endpoint.url}"]
        try:
            self._workers[request.worker_id, context.peer()] = subprocess.Popen(command, stdin=subprocess.DEVNULL)
        except OSError as error:
            return beam_fn_api_pb2.StartWorkerResponse(error=f"{sys.executable} cannot be started: {error}")
        return beam_fn_api_pb2.StartWorkerResponse()

    def StopWorker(self, request: beam_fn_api_pb2.StopWorkerRequest, context: grpc.ServicerContext) -> object:
        """End a worker."""
        worker = self._workers.pop((request.worker_id, context.peer()), None)
        if worker is not None:
            _end(worker)
        return beam_fn_api_pb2.StopWorkerResponse()

    def stop(self) -> None:
        """End all workers."""
        for worker in self._workers.values():
            _end(worker)


def _end(worker: subprocess.Popen[bytes]) -> None:
    worker.terminate()
    try:
        worker.wait(timeout=_GRACE_SECONDS)
    except subprocess.TimeoutExpired:
        worker.kill()
        worker.wait()


def main() -> None:
    """Serve until told to end."""
    parser = argparse.ArgumentParser(description="Starts Python workers for Flink or Spark.")
    parser.add_argument("--port", type=int, required=True, help="port to listen on")
    parser.add_argument("--host", default="localhost", help="address to listen on; 0.0.0.0 for other machines")
    given = parser.parse_args()
    # An engine may ping more often than gRPC likes.
    options = [("grpc.http2.max_pings_without_data", 0), ("grpc.http2.max_ping_strikes", 0)]
    server = grpc.server(shared_unbounded_instance(), options=options)
    with tempfile.TemporaryDirectory(prefix="ldp-beam-pool-") as folder:
        _serve(server, _Pool(folder), f"{given.host}:{given.port}")


def _serve(server: grpc.Server, pool: _Pool, address: str) -> None:
    beam_fn_api_pb2_grpc.add_BeamFnExternalWorkerPoolServicer_to_server(pool, server)
    server.add_insecure_port(address)
    ended = threading.Event()

    def end(number: int, frame: FrameType | None) -> None:
        ended.set()

    signal.signal(signal.SIGTERM, end)
    signal.signal(signal.SIGINT, end)
    server.start()
    ended.wait()
    pool.stop()
    server.stop(0)


if __name__ == "__main__":
    main()
