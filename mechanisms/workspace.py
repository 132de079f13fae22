"""Work arrays that are allocated once a thread: fresh temporaries would double the time of a kernel."""

from __future__ import annotations

import math
import threading
from typing import Final

import numpy as np
import numpy.typing as npt

__all__ = ["scratch", "scratch_bytes"]

_ARRAYS: Final = threading.local()
_BLOCK_WORDS: Final = 2


def _keep_freed_memory() -> None:
    """Have the C library keep freed memory instead of giving it back to the system.

    The GNU C library gives freed arrays back at once, and every page of the next batch's reports is then a page fault:
    a third of a kernel's time. It raises its threshold to the largest block that was ever freed, up to 32 MB. This one
    is never touched, so it takes no memory.
    """
    np.empty(31 << 20, dtype=np.uint8)


_keep_freed_memory()


def scratch(name: str, shape: tuple[int, ...]) -> npt.NDArray[np.uint64]:
    """Return an array of little-endian words with any content, to be used up before the caller returns.

    The same name gives the same memory again within a thread, so a name belongs to one function.
    """
    return _held(name, math.prod(shape))[: math.prod(shape)].reshape(shape)


def scratch_bytes(name: str, shape: tuple[int, ...]) -> tuple[npt.NDArray[np.uint64], memoryview]:
    """Return such an array, and its bytes with those of one block of 16 bytes behind it, which a cipher asks for."""
    size = math.prod(shape)
    held = _held(name, size)
    return held[:size].reshape(shape), held[: size + _BLOCK_WORDS].view(np.uint8).data


def _held(name: str, size: int) -> npt.NDArray[np.uint64]:
    held: npt.NDArray[np.uint64] | None = getattr(_ARRAYS, name, None)
    if held is None or len(held) < size + _BLOCK_WORDS:
        held = np.empty(size + _BLOCK_WORDS, dtype="<u8")
        setattr(_ARRAYS, name, held)
    return held
