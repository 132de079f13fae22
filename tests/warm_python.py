"""Python that starts at once: one process imports what the commands need, and forks for each command that is run.

    with WarmPython() as warm:
        subprocess.run(["ldp-beam", "--version"], env=warm.environment())

`ldp-beam` and `python` are then small clients that send their arguments, folder, environment and open files to the
process that waits, which forks; the fork ends as the command would, with the same exit code, and takes signals. What a
fork cannot do as a new interpreter does (an option of the interpreter, a worker of multiprocessing) runs in a new one.

Each command is spared three seconds of imports. That commands start without that, on a fresh interpreter, is shown by
`tests/packaging` and by all tests that start `sys.executable`.
"""

from __future__ import annotations

import array
import atexit
import contextlib
import gc
import json
import os
import runpy
import select
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
import traceback
import types
import warnings
from pathlib import Path

#: What the commands of the documentation and the benchmarks import.
PRELOADED = ("ldp_beam.pipelines.cli", "fastavro", "pandas", "pyarrow.dataset")

_CLIENT = """#!{python} -IS
import array, json, os, signal, socket, sys
given = sys.argv[1:]
def plain():
    os.execv({real!r}, [{real!r}, *given])
program, rest, options = {program!r}, given, []
if not program:
    while rest[:1] == ["-W"]:
        options, rest = [*options, *rest[1:2]], rest[2:]
    if not rest or (rest[0][:1] == "-" and rest[0] not in ("-c", "-m", "-")) or "multiprocessing" in " ".join(rest):
        plain()
link = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
try:
    link.connect({address!r})
except OSError:
    plain()
open_files = []
for number in (0, 1, 2):
    try:
        os.fstat(number)
    except OSError:
        plain()
asked = json.dumps([program, rest, options, os.getcwd(), dict(os.environ), os.umask(0)]).encode()
link.sendmsg([len(asked).to_bytes(4, "big")], [(socket.SOL_SOCKET, socket.SCM_RIGHTS, array.array("i", (0, 1, 2)))])
link.sendall(asked)
for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
    signal.signal(number, lambda number, frame: link.send(bytes([number])))
answer = b""
while len(answer) < 2:
    more = link.recv(2 - len(answer))
    if not more:
        sys.exit("the waiting Python is gone")
    answer += more
killed_by, code = answer
if killed_by:
    if killed_by != signal.SIGKILL:
        signal.signal(killed_by, signal.SIG_DFL)
    os.kill(os.getpid(), killed_by)
os._exit(code)
"""


class WarmPython:
    """The process that waits, and the folder of clients; a context manager.

    Args:
        modules: further modules to import beforehand.
    """

    def __init__(self, *modules: str) -> None:
        self._modules = modules

    def __enter__(self) -> WarmPython:
        self._folder = Path(tempfile.mkdtemp(prefix="warm-"))
        self.bin = self._folder / "bin"
        self.bin.mkdir()
        address = self._folder / "socket"
        real = Path(sys.executable)
        for name, program in (("python", ""), ("python3", ""), ("ldp-beam", "ldp-beam")):
            client = self.bin / name
            found = real if not program else real.parent / name
            text = _CLIENT.format(python=real, real=str(found), program=program, address=str(address))
            client.write_text(text, encoding="utf-8")
            client.chmod(0o755)
        command = [sys.executable, __file__, str(address), str(self.bin), *self._modules]
        self._process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.DEVNULL)
        deadline = time.monotonic() + 120
        while not address.exists() and self._process.poll() is None and time.monotonic() < deadline:
            time.sleep(0.05)
        return self

    def __exit__(self, *error: object) -> None:
        assert self._process.stdin is not None
        self._process.stdin.close()  # it ends when nobody holds the other end any more
        self._process.wait(30)
        shutil.rmtree(self._folder, ignore_errors=True)

    @property
    def python(self) -> str:
        """The client that stands for the interpreter."""
        return str(self.bin / "python")

    def environment(self) -> dict[str, str]:
        """This process's environment with the clients, and then the interpreter's own folder, first on the path."""
        path = (str(self.bin), str(Path(sys.executable).parent), os.environ["PATH"])
        return {**os.environ, "PATH": os.pathsep.join(path)}


# -- the process that waits ----------------------------------------------------------------------------------


def _wait(address: str) -> tuple[list, list[int]]:
    """Fork for every request; return in the fork that is to run the command, and end where stdin ends."""
    listening = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    listening.bind(address + ".new")
    listening.listen(64)
    Path(address + ".new").rename(address)
    while True:
        ready, _, _ = select.select([listening, 0], [], [])
        with contextlib.suppress(ChildProcessError):
            while os.waitpid(-1, os.WNOHANG)[0]:
                pass
        if 0 in ready:
            os._exit(0)
        link, _ = listening.accept()
        if os.fork() == 0:
            listening.close()
            return _watch(link)
        link.close()


def _watch(link: socket.socket) -> tuple[list, list[int]]:
    """Receive one request and fork once more; here pass signals on and tell the end, there return."""
    size, ancillary, _, _ = link.recvmsg(4, socket.CMSG_SPACE(12))
    files = array.array("i")
    for _, _, data in ancillary:
        files.frombytes(data)
    wanted, asked = int.from_bytes(size, "big"), b""
    while len(asked) < wanted:
        asked += link.recv(wanted - len(asked))
    child = os.fork()
    if child == 0:
        link.close()
        return json.loads(asked), list(files)
    for number in files:
        os.close(number)
    ended = os.pidfd_open(child)
    while True:
        ready, _, _ = select.select([link, ended], [], [])
        if ended in ready:
            break
        number = link.recv(1)
        os.kill(child, number[0] if number else signal.SIGKILL)  # a client that was killed takes its command along
        if not number:
            os.waitpid(child, 0)
            os._exit(1)
    code = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    with contextlib.suppress(OSError):
        link.sendall(bytes([-code, 0] if code < 0 else [0, code]))
    os._exit(0)


def _become(asked: list, files: list[int], clients: str) -> None:
    """Be the command: its files, folder, environment, arguments."""
    program, given, options, folder, environment, umask = asked
    for number, file in enumerate(files):
        os.dup2(file, number)
        os.close(file)
    signal.signal(signal.SIGINT, signal.default_int_handler)  # also where our parent runs in the background of a shell
    os.umask(umask)
    os.chdir(folder)
    os.environ.clear()
    os.environ.update(environment)
    time.tzset()
    tempfile.tempdir = None
    sys.executable = str(Path(clients, "python"))
    sys.path[:1] = filter(None, environment.get("PYTHONPATH", "").split(os.pathsep))
    for action in (*filter(None, environment.get("PYTHONWARNINGS", "").split(",")), *options):
        sys.warnoptions.append(action)
        warnings.simplefilter(action)
    if program:
        from ldp_beam.pipelines.cli import main

        sys.argv = [str(Path(clients, program)), *given]
        main()
    elif given[0] == "-m":
        sys.argv = given[1:]
        sys.path.insert(0, folder)
        runpy.run_module(given[1], run_name="__main__", alter_sys=True)
    elif given[0] in ("-c", "-"):
        code, name = (given[1], "<string>") if given[0] == "-c" else (sys.stdin.read(), "<stdin>")
        sys.argv = ["-c", *given[2:]] if given[0] == "-c" else given
        sys.path.insert(0, "")
        module = sys.modules["__main__"] = types.ModuleType("__main__")
        exec(compile(code, name, "exec"), module.__dict__)
    else:
        sys.argv = given
        runpy.run_path(given[0], run_name="__main__")


def _serve(address: str, clients: str, *modules: str) -> None:
    for name in (*PRELOADED, *modules):
        with contextlib.suppress(ImportError):
            __import__(name)
    gc.freeze()  # the collector would write into, and so copy, what all forks share
    code = _run(*_wait(address), clients)
    # What the interpreter does at its end, but for taking a few hundred modules apart.
    threading._shutdown()  # type: ignore[attr-defined]
    atexit._run_exitfuncs()
    with contextlib.suppress(BrokenPipeError):
        sys.stdout.flush()
    os._exit(code)


def _run(asked: list, files: list[int], clients: str) -> int:
    """Be the command to its end; return the exit code."""
    try:
        _become(asked, files, clients)
    except SystemExit as end:
        if end.code is None or isinstance(end.code, int):
            return (end.code or 0) & 0xFF
        print(end.code, file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        traceback.print_exc()
        signal.signal(signal.SIGINT, signal.SIG_DFL)
        os.kill(os.getpid(), signal.SIGINT)
    except BaseException:
        traceback.print_exc()
        return 1
    return 0


if __name__ == "__main__":
    _serve(*sys.argv[1:])
