"""`ldp-beam-worker`: a Python worker that an engine or a pool starts, for `--environment_type PROCESS` and EXTERNAL.

Does what the start-up program of Beam's containers does, without a container: asks the engine how the job is
configured, fetches what was staged with the job, installs staged packages beside those of the machine, and becomes
a worker. Nothing of ldp-beam is imported: a machine that has apache-beam and a copy of this one file runs jobs that
stage the rest.
"""

from __future__ import annotations

import argparse
import fcntl
import hashlib
import importlib.util
import os
import queue
import shutil
import signal
import site
import socket
import subprocess
import sys
import tempfile
import time
import venv
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import FrameType
from typing import Any

import grpc
from apache_beam.portability import common_urns
from apache_beam.portability.api import (
    beam_artifact_api_pb2,
    beam_artifact_api_pb2_grpc,
    beam_fn_api_pb2,
    beam_fn_api_pb2_grpc,
    beam_provision_api_pb2,
    beam_provision_api_pb2_grpc,
    beam_runner_api_pb2,
    endpoints_pb2,
)
from google.protobuf import json_format, text_format

__all__ = ["StagingError", "installed", "main"]

_ANSWER_SECONDS = 60.0
_INSTALL_SECONDS = 1800.0
#: What nobody used for a day is deleted.
_KEPT_SECONDS = 86400.0
_FAILED_SECONDS = 120.0
#: Names that Beam gives to what it stages (apache_beam.runners.portability.stager).
_REQUIREMENTS, _EXTRA_PACKAGES = "requirements.txt", "extra_packages.txt"
_SETUP_PACKAGE, _SDK_PACKAGE = "workflow.tar.gz", "dataflow_python_sdk.tar"
#: Ours, for requirements that have no name.
_REQUIREMENTS_ENDING = ".pip-requirements"
#: What Beam stages with every job, for people to read.
_FOR_PEOPLE = "submission_environment_dependencies.txt"


class StagingError(Exception):
    """What was staged with the job cannot be fetched or installed here."""


@dataclass(frozen=True)
class _Engine:
    """Where the engine answers."""

    worker: str
    control: str
    logging: str
    artifacts: str

    def metadata(self) -> tuple[tuple[str, str], ...]:
        return (("worker_id", self.worker),)


def main() -> None:
    """Run one worker until the engine ends it."""
    given = _arguments()
    if given.prepared:  # the second start, in the environment that the first has made
        _work(Path(given.prepared))
        return
    info = _provision(given.provision_endpoint, given.id)
    engine = _Engine(
        given.id,
        given.control_endpoint or info.control_endpoint.url,
        given.logging_endpoint or info.logging_endpoint.url,
        given.artifact_endpoint or info.artifact_endpoint.url,
    )
    base = given.semi_persist_dir or tempfile.gettempdir()
    folder = Path(tempfile.mkdtemp(prefix="ldp-beam-worker-", dir=base))
    signal.signal(signal.SIGTERM, lambda number, frame: sys.exit(128 + number))  # an installation ends with us
    try:
        _tell_beam(engine, info, folder)
        staged = _fetched(engine, info.dependencies, folder / "staged")
        python = installed(staged, Path(base, f"ldp-beam-packages-{os.getuid()}"))
    except StagingError as error:
        shutil.rmtree(folder, ignore_errors=True)
        _refuse(engine, f"The worker on {socket.gethostname()} {error}")
    except BaseException:
        shutil.rmtree(folder, ignore_errors=True)
        raise
    else:
        if python is not None:
            os.execv(python, [python, "-P", __file__, "--prepared", str(folder)])
        _work(folder)


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description="A Python worker; an engine calls it.")
    for name in ("id", "provision_endpoint", "control_endpoint", "logging_endpoint", "artifact_endpoint"):
        parser.add_argument(f"--{name}", default="")
    parser.add_argument("--semi_persist_dir", default="", help="where the worker's own folder is made")
    parser.add_argument("--prepared", default="", help=argparse.SUPPRESS)
    given, _ = parser.parse_known_args()
    if not (given.provision_endpoint or given.prepared):
        parser.error("an engine starts this program; give its path as the command of --environment_config")
    return given


def _provision(endpoint: str, worker: str) -> beam_provision_api_pb2.ProvisionInfo:
    with grpc.insecure_channel(endpoint) as channel:
        grpc.channel_ready_future(channel).result(timeout=_ANSWER_SECONDS)
        service = beam_provision_api_pb2_grpc.ProvisionServiceStub(channel)
        request = beam_provision_api_pb2.GetProvisionInfoRequest()
        return service.GetProvisionInfo(request, metadata=(("worker_id", worker),), timeout=_ANSWER_SECONDS).info


def _tell_beam(engine: _Engine, info: beam_provision_api_pb2.ProvisionInfo, folder: Path) -> None:
    """Set what Beam's worker reads from its environment; options are a file, as they may be long."""
    options = folder / "options.json"
    options.write_text(json_format.MessageToJson(info.pipeline_options), encoding="utf-8")
    os.environ |= {
        "WORKER_ID": engine.worker,
        "CONTROL_API_SERVICE_DESCRIPTOR": _descriptor(engine.control),
        "LOGGING_API_SERVICE_DESCRIPTOR": _descriptor(engine.logging),
        "PIPELINE_OPTIONS_FILE": str(options),
        "RUNNER_CAPABILITIES": " ".join(info.runner_capabilities),
        "SEMI_PERSISTENT_DIRECTORY": str(folder),
    }


def _descriptor(url: str) -> str:
    return text_format.MessageToString(endpoints_pb2.ApiServiceDescriptor(url=url))


def _work(folder: Path) -> None:
    """Be a worker; its folder goes with it, also when the engine asks it to end in the middle of something."""

    def end(number: int, frame: FrameType | None) -> None:
        shutil.rmtree(folder, ignore_errors=True)
        os._exit(128 + number)

    signal.signal(signal.SIGTERM, end)
    try:
        from apache_beam.runners.worker import sdk_worker_main  # reads the environment when it is imported

        sdk_worker_main.main(sys.argv)
    finally:
        shutil.rmtree(folder, ignore_errors=True)


# -- what was staged ----------------------------------------------------------------------------------------


def _fetched(engine: _Engine, artifacts: Sequence[beam_runner_api_pb2.ArtifactInformation], into: Path) -> Path:
    """Fetch what was staged with the job into a folder."""
    into.mkdir()
    named = [(artifact, _name(artifact, number)) for number, artifact in enumerate(artifacts)]
    wanted = [artifact for artifact, name in named if name != _FOR_PEOPLE]
    if not wanted:
        return into
    with grpc.insecure_channel(engine.artifacts) as channel:
        service = beam_artifact_api_pb2_grpc.ArtifactRetrievalServiceStub(channel)
        request = beam_artifact_api_pb2.ResolveArtifactsRequest(artifacts=wanted)
        try:
            found = service.ResolveArtifacts(request, metadata=engine.metadata(), timeout=_ANSWER_SECONDS).replacements
            for number, artifact in enumerate(found):
                _fetch(service, artifact, engine, into / _name(artifact, number))
        except (grpc.RpcError, OSError) as error:
            said = error.details() if isinstance(error, grpc.Call) else error
            raise StagingError(f"cannot fetch what was staged with the job ({str(said)[:300]}).") from error
    return into


def _name(artifact: beam_runner_api_pb2.ArtifactInformation, number: int) -> str:
    if artifact.role_urn == common_urns.artifact_roles.PIP_REQUIREMENTS_FILE.urn:
        return f"{number}{_REQUIREMENTS_ENDING}"
    role = beam_runner_api_pb2.ArtifactStagingToRolePayload.FromString(artifact.role_payload)
    return Path(role.staged_name).name or f"artifact-{number}"


def _fetch(
    service: beam_artifact_api_pb2_grpc.ArtifactRetrievalServiceStub,
    artifact: beam_runner_api_pb2.ArtifactInformation,
    engine: _Engine,
    path: Path,
) -> None:
    request, digest = beam_artifact_api_pb2.GetArtifactRequest(artifact=artifact), hashlib.sha256()
    with path.open("wb") as file:
        for part in service.GetArtifact(request, metadata=engine.metadata()):
            digest.update(part.data)
            file.write(part.data)
    if artifact.type_urn == common_urns.artifact_types.FILE.urn:
        expected = beam_runner_api_pb2.ArtifactFilePayload.FromString(artifact.type_payload).sha256
        if expected and digest.hexdigest() != expected:
            raise OSError(f"{path.name} arrived with another SHA-256 than it was staged with")


# -- installing ---------------------------------------------------------------------------------------------


def installed(staged: Path, kept: Path) -> str | None:
    """Install the packages among staged files, once for all workers on this machine that are given the same.

    An engine starts workers for each stage of a job anew, and they share what the first of them installed. It is
    deleted when nobody has used it for a day; each worker that uses it holds a lock.

    Args:
        staged: the folder of staged files, with Beam's names for lists of packages and of requirements.
        kept: the folder of such environments; what is installed on the machine stays as it is.

    Returns:
        The Python of an environment that sees what is installed on the machine behind what was staged; None where no
        packages are staged.

    Raises:
        StagingError: They cannot be installed.
    """
    lists = [*staged.glob(_REQUIREMENTS), *sorted(staged.glob(f"*{_REQUIREMENTS_ENDING}"))]
    packages = list(_packages(staged))
    if not (packages or lists):
        return None
    _make_private(kept)
    _sweep(kept)
    home = kept / _key(staged)
    used = os.open(f"{home}.lock", os.O_RDWR | os.O_CREAT, 0o600)
    os.set_inheritable(used, True)  # held by the worker that this process becomes
    fcntl.flock(used, fcntl.LOCK_SH)
    os.utime(used)
    if not (home / "complete").is_file():
        installing = os.open(f"{home}.installing", os.O_RDWR | os.O_CREAT, 0o600)
        fcntl.flock(installing, fcntl.LOCK_EX)  # of its own: those who use what is there already are not waited for
        try:
            if not (home / "complete").is_file():
                required = [f"--requirement={path}" for path in lists]
                _install_or_fail_again(home, staged, list(map(str, packages)), required)
                (home / "complete").touch()
        except StagingError:
            os.close(used)  # this process stays, to tell the engine
            raise
        finally:
            os.close(installing)
    return str(home / "bin" / "python")


def _install_or_fail_again(home: Path, staged: Path, packages: list[str], requirements: list[str]) -> None:
    """Install, but not what has just failed: an engine asks several times before it gives up."""
    failed = Path(f"{home}.failed")
    if failed.is_file() and time.time() - failed.stat().st_mtime < _FAILED_SECONDS:
        raise StagingError(failed.read_text(encoding="utf-8"))
    try:
        _install(home, staged, packages, requirements)
    except StagingError as error:
        failed.write_text(str(error), encoding="utf-8")
        raise


def _install(home: Path, staged: Path, packages: list[str], requirements: list[str]) -> None:
    shutil.rmtree(home, ignore_errors=True)  # of an installation that failed or was interrupted
    python = _environment(home)
    if not all(package.endswith(".whl") for package in packages):  # else each of the calls below would build it anew
        wheels = home / "wheels"
        _pip(python, staged, "wheel", ["--no-deps", "--wheel-dir", str(wheels), *packages])
        packages = sorted(map(str, wheels.iterdir()))
    if packages:  # what was staged is meant, even where the same version is installed
        _pip(python, staged, "install", ["--no-deps", "--force-reinstall", *packages])
    _pip(python, staged, "install", [*requirements, *packages])


def _make_private(folder: Path) -> None:
    """Make a folder that nobody else can put packages into: the temporary folder is everybody's."""
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    found = folder.lstat()
    if folder.is_symlink() or found.st_uid != os.getuid() or found.st_mode & 0o022:
        raise StagingError(f"cannot install what was staged: {folder} is not a folder that belongs to this user alone.")


def _sweep(kept: Path) -> None:
    for path in kept.glob("*.lock"):
        home = path.with_suffix("")
        if not home.exists() or time.time() - path.stat().st_mtime < _KEPT_SECONDS:
            continue
        with path.open() as lock:
            try:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except OSError:
                continue  # a worker still uses it
            shutil.rmtree(home, ignore_errors=True)


def _key(staged: Path) -> str:
    """Name an environment for what goes into it."""
    digest = hashlib.sha256(f"{sys.prefix} {sys.version}".encode())
    for path in sorted(staged.iterdir()):
        digest.update(f" {path.name} ".encode() + hashlib.sha256(path.read_bytes()).digest())
    return digest.hexdigest()[:24]


def _packages(staged: Path) -> Iterator[Path]:
    for name in (_SDK_PACKAGE, _SETUP_PACKAGE):
        yield from staged.glob(name)
    for manifest in staged.glob(_EXTRA_PACKAGES):
        yield from (staged / line for line in manifest.read_text(encoding="utf-8").splitlines() if line)


def _environment(home: Path) -> str:
    """Make a virtual environment that sees what our own Python sees, and return its Python."""
    try:
        venv.create(home, symlinks=True, with_pip=importlib.util.find_spec("pip") is None)
    except (OSError, subprocess.CalledProcessError) as error:
        raise StagingError(
            f"cannot make an environment for staged packages ({error}). Give its Python pip, or the module venv."
        ) from error
    ours = [*site.getsitepackages(), *([site.getusersitepackages()] if site.ENABLE_USER_SITE else [])]
    (own,) = home.glob("lib/python*/site-packages")
    (own / "installed_here.pth").write_text(f"import site; list(map(site.addsitedir, {ours!r}))\n")
    return str(home / "bin" / "python")


def _pip(python: str, staged: Path, what: str, arguments: Sequence[str]) -> None:
    """Run pip: with what is staged and installed if that is enough, else with a package index too."""
    said = ""
    for source in (("--no-index", "--no-build-isolation"), ()):
        command = [
            *(python, "-m", "pip", what, "--quiet", "--no-input", "--disable-pip-version-check"),
            # Looking for conflicts among all that is installed takes longer than the rest.
            *(("--no-warn-conflicts",) if what == "install" else ()),
            *("--find-links", str(staged), *source, *arguments),
        ]
        try:
            done = subprocess.run(
                command, capture_output=True, text=True, timeout=_INSTALL_SECONDS, check=False, stdin=subprocess.DEVNULL
            )
        except subprocess.TimeoutExpired as error:
            raise StagingError(f"did not install the staged packages within {_INSTALL_SECONDS:.0f} s.") from error
        if done.returncode == 0:
            return
        said = done.stderr + done.stdout
    lines = [line.strip() for line in said.splitlines() if line.strip()]
    telling = [line for line in lines if line.startswith("ERROR")] or lines or ["pip said nothing"]
    raise StagingError(
        f"cannot install the packages staged with the job ({' '.join(telling)[:500]}). Stage what they need too, "
        "or install it on the machine."
    )


def _refuse(engine: _Engine, message: str) -> None:
    """Answer every request of the engine with a message: a worker that just ended would take its reason with it."""
    print(message, file=sys.stderr, flush=True)
    # The name of our error class lets the machine that submitted show the message alone.
    told = f"ldp_beam.errors.RunError: {message}"
    answers: queue.SimpleQueue[beam_fn_api_pb2.InstructionResponse] = queue.SimpleQueue()
    with grpc.insecure_channel(engine.control) as channel:
        service, connected = beam_fn_api_pb2_grpc.BeamFnControlStub(channel), []
        try:
            for request in service.Control(_each(answers), metadata=engine.metadata()):
                connected += _data(service, request.process_bundle.process_bundle_descriptor_id, engine)
                answers.put(beam_fn_api_pb2.InstructionResponse(instruction_id=request.instruction_id, error=told))
        except grpc.RpcError:
            pass  # the engine is done with this worker
    os._exit(1)  # grpc's threads still wait for something to send


def _data(service: beam_fn_api_pb2_grpc.BeamFnControlStub, bundle: str, engine: _Engine) -> list[object]:
    """Connect to where a bundle's data come from: Java's engines look at no answer before."""
    wanted = beam_fn_api_pb2.GetProcessBundleDescriptorRequest(process_bundle_descriptor_id=bundle)
    transforms = (
        service.GetProcessBundleDescriptor(wanted, metadata=engine.metadata()).transforms.values() if bundle else ()
    )
    specs = [transform.spec for transform in transforms if transform.spec.urn == "beam:runner:source:v1"]
    ports = [beam_fn_api_pb2.RemoteGrpcPort.FromString(spec.payload).api_service_descriptor.url for spec in specs]
    stubs = [beam_fn_api_pb2_grpc.BeamFnDataStub(grpc.insecure_channel(port)) for port in ports]
    return [stub.Data(_each(queue.SimpleQueue()), metadata=engine.metadata()) for stub in stubs]


def _each(answers: queue.SimpleQueue[Any]) -> Iterator[Any]:
    while True:
        yield answers.get()


if __name__ == "__main__":
    main()
