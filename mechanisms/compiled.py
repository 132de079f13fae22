"""When to use the loops that Numba compiles: where it is installed and a process works on millions of users.

A caller asks `loops(rows)` for the module `loops` and, where it is told None, works with NumPy. Both ways give the
same bits. Importing Numba and loading its machine code takes about a second and 130 MB, and compiling on a machine's
first time some ten seconds, so that a process has to have worked on many rows before that pays. The variable
LDP_BEAM_LOOPS of the environment says otherwise: "compiled" loads them at once, "numpy" never, "auto" is the default.
"""

from __future__ import annotations

import importlib
import os
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, Final, cast

from ..errors import InputError

if TYPE_CHECKING:
    from types import ModuleType

__all__ = ["available", "forced", "loops"]

#: Rows that a process works on with NumPy first: some seconds of work, in which a row counts two or three times.
_ROWS_BEFORE: Final = 1 << 24
#: A call of fewer rows is not worth what a call of compiled code costs.
_FEW: Final = 256
_VARIABLE: Final = "LDP_BEAM_LOOPS"


class _State:
    """What this process has come to."""

    def __init__(self) -> None:
        self.rows = 0
        self.forced: bool | None = None
        self.asked = False
        self.tried = False
        self.module: Any = None
        self.lock = threading.Lock()


_STATE: Final = _State()


def loops(rows: int) -> ModuleType | None:
    """Return the compiled loops if they are to be used for so many rows, and None otherwise.

    Raises:
        InputError: The environment asks for what is not there.
    """
    state = _STATE
    if state.forced is not None:
        return _load() if state.forced else None
    if not state.asked:
        _ask()
    state.rows += rows
    if state.module is not None:
        return cast("ModuleType", state.module) if rows >= _FEW else None
    if state.tried or state.rows < _ROWS_BEFORE or not state.lock.acquire(blocking=False):
        return None  # another thread may be loading them: this one goes on with NumPy
    try:
        return _load()
    finally:
        state.lock.release()


def _ask() -> None:
    """Look into the environment, once."""
    wanted = os.environ.get(_VARIABLE, "auto")
    if wanted not in ("auto", "compiled", "numpy"):
        raise InputError(f'{_VARIABLE} is {wanted!r}, but may be "auto", "compiled" or "numpy".')
    if wanted == "compiled" and not available():
        raise InputError(
            f"{_VARIABLE} asks for compiled loops, but Numba is not installed or cannot compile here: "
            "pip install 'ldp-beam[accelerated]'."
        )
    if wanted == "numpy":
        _STATE.tried = True
    _STATE.asked = True


def available() -> bool:
    """Load the loops if that has not been done, and return whether they can be used here."""
    return _load() is not None


def _load() -> ModuleType | None:
    state = _STATE
    if not state.tried:
        state.tried = True
        state.module = _imported()
    return cast("ModuleType | None", state.module)


def _imported() -> Any:
    try:
        numba = importlib.import_module("numba")
        # without machine code the loops would run in the interpreter
        return None if numba.config.DISABLE_JIT else importlib.import_module(f"{__package__}.loops")
    except (ImportError, RuntimeError):  # not installed, or there is no folder to keep the machine code in
        return None


@contextmanager
def forced(use: bool) -> Iterator[bool]:
    """Within the block, use the compiled loops whatever the number of rows, or do not use them at all.

    Yields:
        Whether they are used.
    """
    before, _STATE.forced = _STATE.forced, use
    try:
        yield use and available()
    finally:
        _STATE.forced = before
