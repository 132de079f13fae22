"""`ldp-beam-worker`: a Python worker that an engine starts itself, for `--environment_type PROCESS`.

Does what the start-up program of Beam's containers does, without a container: asks the engine how the job is
configured, and becomes a worker of it. Packages are those that are installed beside it.
"""

from __future__ import annotations

import argparse
import os
import sys
import tempfile

import grpc
from apache_beam.portability.api import beam_provision_api_pb2, beam_provision_api_pb2_grpc, endpoints_pb2
from google.protobuf import json_format, text_format

__all__ = ["main"]

_ANSWER_SECONDS = 60.0


def main() -> None:
    """Run one worker until the engine ends it."""
    parser = argparse.ArgumentParser(description="A Python worker; an engine calls it.")
    for name in ("id", "provision_endpoint", "control_endpoint", "logging_endpoint", "artifact_endpoint"):
        parser.add_argument(f"--{name}", default="")
    given, _ = parser.parse_known_args()
    if not given.provision_endpoint:
        parser.error("an engine starts this program; give its path as the command of --environment_config")
    info = _provision(given.provision_endpoint, given.id)
    control = given.control_endpoint or info.control_endpoint.url
    logging = given.logging_endpoint or info.logging_endpoint.url
    os.environ |= {
        "WORKER_ID": given.id,
        "CONTROL_API_SERVICE_DESCRIPTOR": _descriptor(control),
        "LOGGING_API_SERVICE_DESCRIPTOR": _descriptor(logging),
        "PIPELINE_OPTIONS": json_format.MessageToJson(info.pipeline_options),
        "RUNNER_CAPABILITIES": " ".join(info.runner_capabilities),
    }
    with tempfile.TemporaryDirectory(prefix="ldp-beam-worker-") as folder:
        os.environ["SEMI_PERSISTENT_DIRECTORY"] = folder
        from apache_beam.runners.worker import sdk_worker_main  # reads the environment when it is imported

        sdk_worker_main.main(sys.argv)


def _provision(endpoint: str, worker_id: str) -> beam_provision_api_pb2.ProvisionInfo:
    with grpc.insecure_channel(endpoint) as channel:
        grpc.channel_ready_future(channel).result(timeout=_ANSWER_SECONDS)
        service = beam_provision_api_pb2_grpc.ProvisionServiceStub(channel)
        request = beam_provision_api_pb2.GetProvisionInfoRequest()
        return service.GetProvisionInfo(request, metadata=(("worker_id", worker_id),), timeout=_ANSWER_SECONDS).info


def _descriptor(url: str) -> str:
    return text_format.MessageToString(endpoints_pb2.ApiServiceDescriptor(url=url))


if __name__ == "__main__":
    main()
