"""Work arrays that are allocated once a thread: fresh temporaries would double the time of a kernel."""

from __future__ import annotations

import math
import threading
from typing import Final

import numpy as np
import numpy.typing as npt

__all__ = ["scratch"]

_ARRAYS: Final = threading.local()


def scratch(name: str, shape: tuple[int, ...]) -> npt.NDArray[np.uint64]:
    """Return an array of little-endian words with any content, to be used up before the caller returns.

    The same name gives the same memory again within a thread, so a name belongs to one function.
    """
    size = math.prod(shape)
    held: npt.NDArray[np.uint64] | None = getattr(_ARRAYS, name, None)
    if held is None or len(held) < size:
        held = np.empty(size, dtype="<u8")
        setattr(_ARRAYS, name, held)
    return held[:size].reshape(shape)
