"""Loaded by every Python worker of the tests' pool: does what the plan beside it says, once.

The plan is a folder; `fault` in it names what happens after the first reports are perturbed: "kill worker", or
"kill PID". Each attempt leaves the digest of the reports that it saw in the folder.
"""

import hashlib
import importlib.abc
import importlib.util
import os
import signal
import sys
import uuid
from pathlib import Path

PLAN = Path(os.environ.get("LDP_BEAM_TEST_FAULT", "/nonexistent"))
HIDDEN = os.environ.get("LDP_BEAM_TEST_HIDDEN", "")
VERSIONS = os.environ.get("LDP_BEAM_TEST_VERSION", "")
TARGET = "ldp_beam.transforms.perturb"


def after_perturbing(batch):
    if not (PLAN / "fault").is_file() and not (PLAN / "done").is_file():
        return
    content = hashlib.sha256(b"".join(bytes(b) for c in batch.columns for b in c.buffers() if b is not None))
    (PLAN / f"seen-{batch.num_rows}-{content.hexdigest()}-{os.getpid()}-{uuid.uuid4().hex}").touch()
    try:
        fault = (PLAN / "fault").read_text().split()
        (PLAN / "fault").rename(PLAN / "done")  # one worker is the first
    except FileNotFoundError:
        return
    os.kill(os.getpid() if fault[1] == "worker" else int(fault[1]), signal.SIGKILL)


class Finder(importlib.abc.MetaPathFinder):
    """Wraps the client's step when it is imported."""

    def find_spec(self, name, path, target=None):
        if name != TARGET:
            return None
        sys.meta_path.remove(self)
        spec = importlib.util.find_spec(name)
        load = spec.loader.exec_module

        def exec_module(module):
            load(module)
            process = module._Perturb.process

            def watched(self, *arguments, **named):
                for batch in process(self, *arguments, **named):
                    after_perturbing(batch)
                    yield batch

            module._Perturb.process = watched

        spec.loader.exec_module = exec_module
        return spec


if PLAN.name != "nonexistent":
    sys.meta_path.insert(0, Finder())

if HIDDEN:  # a folder of another machine: a worker that looks for it does not find it

    def hide(event, arguments):
        if event in ("open", "os.listdir", "os.mkdir", "os.rename") and str(arguments[0]).startswith(HIDDEN):
            raise FileNotFoundError(f"{arguments[0]} lies on another machine")

    sys.addaudithook(hide)

if VERSIONS:  # "apache-beam=2.60.0": the worker claims to have another version
    import importlib.metadata
    import platform

    NAME, _, CLAIMED = VERSIONS.partition("=")
    real = importlib.metadata.version
    importlib.metadata.version = lambda package: CLAIMED if package == NAME else real(package)
    if NAME == "Python":
        platform.python_version_tuple = lambda: tuple(CLAIMED.split("."))
