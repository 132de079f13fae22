"""Processes that we start: each with its own group, a log, a deadline for its start, and a certain end.

A process group holds whatever the process starts in turn (Spark's executors, the workers of a pool), so that
stopping the group stops all of it and nothing else.
"""

from __future__ import annotations

import contextlib
import errno
import os
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from types import FrameType

from ..errors import RunError
from . import guard

__all__ = [
    "Process",
    "free_port",
    "group_is_alive",
    "guard_command",
    "start_time",
    "stop_group",
    "swept",
    "temporary_folder",
    "terminated_as_interrupt",
    "wait_until",
]

_POLL_SECONDS = 0.1
_GRACE_SECONDS = 10.0
#: What runs under a guard, and the folders and files that guards delete when this process ends without a word.
_guarded: set[Process] = set()
_swept: set[str] = set()
#: The process whose guard of folders alone listens at the other end of a pipe, and that pipe.
_sweeper: tuple[int, int] | None = None
_sweeper_lock = threading.Lock()


class Process:
    """A running program in a process group of its own.

    Args:
        name: what it is, for messages.
        command: program and arguments.
        log: file that takes what it prints.
        env: variables beside those of this process.
        folder: its working directory.
        guarded: end it, and everything in its group, when this process ends, however that happens.
    """

    def __init__(
        self,
        name: str,
        command: Sequence[str],
        *,
        log: Path,
        env: Mapping[str, str] | None = None,
        folder: Path | None = None,
        guarded: bool = False,
    ) -> None:
        self.name, self.log = name, log
        if guarded and shutil.which(command[0]) is None:
            raise RunError(f"{name} could not be started ({command[0]}: {os.strerror(errno.ENOENT)}).")
        with log.open("ab") as output:
            try:
                self._popen = subprocess.Popen(
                    guard_command(command) if guarded else list(command),
                    stdin=subprocess.PIPE if guarded else subprocess.DEVNULL,
                    stdout=output,
                    stderr=subprocess.STDOUT,
                    env={**os.environ, **(env or {})},
                    cwd=folder,
                    start_new_session=True,  # the group's number is the process's
                )
            except OSError as error:
                raise RunError(f"{name} could not be started ({command[0]}: {error.strerror}).") from error
        if guarded:
            _guarded.add(self)
            self.tell(*(f"+{path}" for path in sorted(_swept)))

    @property
    def pid(self) -> int:
        """Number of the process and of its group."""
        return self._popen.pid

    def is_alive(self) -> bool:
        """Return whether it runs."""
        return self._popen.poll() is None

    def stop(self) -> None:
        """End the process and everything in its group."""
        stop_group(self.pid, wait=self._popen.wait)
        _guarded.discard(self)
        if self._popen.stdin is not None:
            with contextlib.suppress(OSError):
                self._popen.stdin.close()

    def tell(self, *lines: str) -> None:
        """Tell its guard what to delete, or not to; one that has ended deletes nothing."""
        if self._popen.stdin is not None:
            with contextlib.suppress(OSError, ValueError):
                self._popen.stdin.write(b"".join(os.fsencode(line) + b"\n" for line in lines))
                self._popen.stdin.flush()

    def detach(self) -> None:
        """Let it outlive this process: nobody will wait for it here, and Python shall not complain."""
        self._popen.returncode = 0

    def last_words(self) -> str:
        """Return the line of its log that tells best why it ended."""
        try:
            lines = [line.strip() for line in self.log.read_text(errors="replace").splitlines() if line.strip()]
        except OSError:
            return "its log cannot be read"
        telling = [line for line in lines if any(word in line for word in ("Exception", "Error", "SEVERE", "error:"))]
        return (telling or lines or ["it said nothing"])[-1][:400]


def guard_command(command: Sequence[str] = ()) -> list[str]:
    """Return what starts a guard, and under it a command: see `guard`."""
    return [sys.executable, "-I", "-S", guard.__file__, *command]


@contextlib.contextmanager
def swept(folder: str | Path) -> Iterator[None]:
    """Let guards delete a folder or a file, should this process end within the block without a word.

    The block itself deletes it otherwise. The guards of engines delete it when their engine has ended; one of its own,
    which stays with this process, does so where no engine runs.
    """
    path = str(Path(folder).absolute())
    _swept.add(path)
    _tell_guards(f"+{path}")
    try:
        yield
    finally:
        _swept.discard(path)
        _tell_guards(f"-{path}")


@contextlib.contextmanager
def temporary_folder(prefix: str, *, beside: Path | None = None, ignore_errors: bool = False) -> Iterator[str]:
    """Yield a new folder that only this user can read and that is gone afterwards, even if this process is killed.

    Args:
        prefix: how its name begins.
        beside: the folder that it is made in; None for the temporary folder.
        ignore_errors: say nothing where it cannot be deleted.
    """
    with (
        tempfile.TemporaryDirectory(prefix=prefix, dir=beside, ignore_cleanup_errors=ignore_errors) as folder,
        swept(folder),
    ):
        yield folder


def _tell_guards(line: str) -> None:
    for process in tuple(_guarded):
        process.tell(line)
    with contextlib.suppress(OSError), _sweeper_lock:  # one that cannot be started, or was ended, is none
        os.write(_sweeper_pipe(), os.fsencode(line) + b"\n")


def _sweeper_pipe() -> int:
    """Return the pipe to the guard of folders, which is started at the first use; a forked process has its own."""
    global _sweeper
    if _sweeper is None or _sweeper[0] != os.getpid():
        read, write = os.pipe()
        try:
            started = subprocess.Popen(
                guard_command(),
                stdin=read,
                stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL,
                start_new_session=True,
            )
        finally:
            os.close(read)
        started.returncode = 0  # it outlives us: nobody will wait for it here, and Python shall not complain
        _sweeper = os.getpid(), write
    return _sweeper[1]


def stop_group(pgid: int, *, wait: Callable[[float], object] | None = None, grace: float = _GRACE_SECONDS) -> None:
    """Ask a process group to end, and end it by force if it does not within `grace` seconds.

    Args:
        pgid: number of the group.
        wait: reaps the group's first process, where it is our child; takes a time-out in seconds.
        grace: seconds to wait.
    """
    if not _signal_group(pgid, signal.SIGTERM):
        return
    deadline = time.monotonic() + grace
    while time.monotonic() < deadline:
        _reap(wait, pgid)
        if not group_is_alive(pgid):
            return
        time.sleep(_POLL_SECONDS)
    _signal_group(pgid, signal.SIGKILL)
    _reap(wait, pgid, seconds=grace)


def _reap(wait: Callable[[float], object] | None, pid: int, seconds: float = 0.0) -> None:
    """Take notice of the end of a child; a process that nobody took notice of still counts as a member of its group."""
    if wait is not None:
        with contextlib.suppress(subprocess.TimeoutExpired):
            wait(seconds)
    else:
        with contextlib.suppress(ChildProcessError):  # started by another process, which has ended
            os.waitpid(pid, os.WNOHANG)


def _signal_group(pgid: int, number: signal.Signals) -> bool:
    try:
        os.killpg(pgid, number)
    except (ProcessLookupError, PermissionError):
        return False
    return True


def group_is_alive(pgid: int) -> bool:
    """Return whether a process group has a member."""
    try:
        os.killpg(pgid, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        return True
    return True


def start_time(pid: int) -> str | None:
    """Return when a process started, in the system's own terms; None where it does not run.

    With the number of a process it names one process for ever, since numbers are used again.
    """
    try:
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
        return None if fields[0] == "Z" else fields[19]
    except OSError:
        pass
    if Path("/proc/self/stat").exists():
        return None
    done = subprocess.run(["ps", "-o", "lstart=", "-p", str(pid)], capture_output=True, text=True, check=False)
    return done.stdout.strip() or None


def free_port() -> int:
    """Return a port on which nothing listens now."""
    with socket.socket() as probe:
        probe.bind(("localhost", 0))
        return int(probe.getsockname()[1])


def wait_until(ready: Callable[[], bool], what: str, processes: Sequence[Process], *, seconds: float) -> None:
    """Wait until something answers, and stop waiting when one of its processes has ended.

    Raises:
        RunError: A process ended, or the deadline passed.
    """
    deadline = time.monotonic() + seconds
    while not ready():
        for process in processes:
            if not process.is_alive():
                raise RunError(f"{what} did not start: {process.name} ended ({process.last_words()}).")
        if time.monotonic() > deadline:
            raise RunError(f"{what} did not answer within {seconds:g} seconds. Its log said: {_said(processes)}.")
        time.sleep(_POLL_SECONDS)


def _said(processes: Sequence[Process]) -> str:
    return processes[-1].last_words() if processes else "nothing"


@contextlib.contextmanager
def terminated_as_interrupt() -> Iterator[None]:
    """Let SIGTERM and SIGHUP unwind the stack as Ctrl-C does, so that what was started is stopped."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return

    def interrupt(number: int, frame: FrameType | None) -> None:
        raise KeyboardInterrupt

    before = {number: signal.signal(number, interrupt) for number in (signal.SIGTERM, signal.SIGHUP)}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
