"""A parent for an engine that ends it when we end, however that happens: SIGKILL leaves us no last word.

    python guard.py [COMMAND ARGUMENTS…]

The guard starts the command, in its own process group, and waits for two things: the command's end, which is its own
end, and the end of its standard input, which is a pipe whose other end only our process holds. No number of a process
is looked at for this, so none that was used again is taken for ours, and nobody asks anything again and again.

What stands in the pipe, a line each, are folders and files to delete when we ended without a word: "+PATH" adds one,
"-PATH" takes it back. Without a command that is all there is to do: what needs no engine leaves folders, too. This file
runs as a program of its own, without the packages of the interpreter: it starts in no time.
"""

import contextlib
import os
import select
import shutil
import signal
import sys
import time

__all__: list[str] = []

#: How long an engine may take to end by itself; and then, what it started.
_GRACE_SECONDS = 10.0
_LAST_SECONDS = 0.5
#: What was ended by force may write for a moment longer.
_DELETING_SECONDS = 5.0


def _start(command: list[str]) -> int:
    """Start the command, without our pipe, and return its number."""
    child = os.fork()
    if child:
        return child
    try:
        nothing = os.open(os.devnull, os.O_RDONLY)
        os.dup2(nothing, 0)
        os.execvp(command[0], command)
    except OSError as error:
        sys.stderr.write(f"error: {command[0]} could not be started: {error.strerror}\n")
        sys.stderr.flush()
    os._exit(127)


class _Command:
    """A child that runs, and how it ended."""

    def __init__(self, number: int) -> None:
        self._number = number
        self.code: int | None = None

    def has_ended(self) -> bool:
        """Look, without waiting."""
        if self.code is None:
            number, status = os.waitpid(self._number, os.WNOHANG)
            if number:
                self.code = os.waitstatus_to_exitcode(status)
        return self.code is not None


def _wait(command: _Command | None, ended: int) -> set[str] | None:
    """Wait for the command's end: None; or for that of our process: what is to be deleted."""
    folders: set[str] = set()
    rest = b""
    while True:
        ready = select.select([0, ended], [], [])[0]
        if 0 in ready:
            said = os.read(0, 1 << 16)
            if not said:
                return folders
            *lines, rest = (rest + said).split(b"\n")
            for line in lines:
                folder = os.fsdecode(line[1:])
                (folders.add if line[:1] == b"+" else folders.discard)(folder)
        if ended in ready:
            os.read(ended, 1 << 10)
            if command is not None and command.has_ended():
                return None


def _end_all(command: _Command, ended: int) -> None:
    """End the process group, gently and then by force; the last signal ends this process, too."""
    os.killpg(0, signal.SIGTERM)
    deadline = time.monotonic() + _GRACE_SECONDS
    while not command.has_ended() and (left := deadline - time.monotonic()) > 0:
        if select.select([ended], [], [], left)[0]:
            os.read(ended, 1 << 10)
    time.sleep(_LAST_SECONDS)
    os.killpg(0, signal.SIGKILL)


def _delete_afterwards(folders: set[str]) -> None:
    """Leave a process behind, outside of the group, that deletes the folders when the group has ended."""
    read, write = os.pipe()
    if os.fork():
        os.close(read)  # our end of the pipe closes when we are ended
        return
    os.setsid()
    os.close(write)
    os.read(read, 1)
    deadline = time.monotonic() + _DELETING_SECONDS
    while _delete(folders) and time.monotonic() < deadline:
        time.sleep(0.05)
    os._exit(0)


def _delete(paths: set[str]) -> bool:
    """Delete what is there, and return whether anything was."""
    from pathlib import Path  # takes its time, and mostly there is nothing to delete

    found = [path for path in map(Path, paths) if path.is_symlink() or path.exists()]
    for path in found:
        if path.is_dir():
            shutil.rmtree(path, ignore_errors=True)
        else:
            with contextlib.suppress(OSError):
                path.unlink()
    return bool(found)


def _delete_until_all_have_ended(paths: set[str]) -> None:
    """Delete, and again what workers that end by themselves have written in the meantime."""
    deadline = time.monotonic() + _DELETING_SECONDS
    while paths and time.monotonic() < deadline:
        _delete(paths)
        time.sleep(0.2)


def main(arguments: list[str]) -> int:
    """Run a command until it, or the process that called for it, has ended."""
    ended, tell = os.pipe()
    for end in (ended, tell):
        os.set_blocking(end, False)
    signal.set_wakeup_fd(tell, warn_on_full_buffer=False)
    for number in (signal.SIGCHLD, signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
        signal.signal(number, lambda number, frame: None)  # the command gets them too, and its end is ours
    if not arguments:
        _delete_until_all_have_ended(_wait(None, ended) or set())
        return 0
    command = _Command(_start(arguments))
    folders = _wait(command, ended)
    if folders is not None:
        _delete_afterwards(folders)
        _end_all(command, ended)
    code = command.code or 0
    return code if code >= 0 else 128 - code  # as a shell tells of signals


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
