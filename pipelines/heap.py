"""One heap for all threads of the command line."""

from __future__ import annotations

import ctypes
from contextlib import suppress

__all__ = ["share_heap"]

#: `M_ARENA_MAX` of glibc's mallopt.
_ARENAS = -8


def share_heap() -> None:
    """Let all threads that are started from now on take memory from one heap, where the C library is glibc.

    By default each thread has heaps of its own and keeps what it freed there, about 60 MB in a job of ours. The arrays
    are large and few, so threads do not wait for one another.
    """
    with suppress(AttributeError, OSError, TypeError):  # another C library
        ctypes.CDLL(None).mallopt(_ARENAS, 1)
