"""The end of a job that was asked to stop: the one complaint that Beam then makes, and nobody needs, is not shown."""

from __future__ import annotations

import re
import sys
from contextlib import AbstractContextManager
from types import TracebackType
from typing import Any, Final, TextIO, cast

__all__ = ["QuietEnd"]

#: A worker in this process finishes its bundle after the engine has ended it, looks for it, and prints a traceback.
_EXPECTED: Final = re.compile(
    r"Traceback \(most recent call last\):\n.*, in _execute\n.*, in release\n.*\nKeyError: '[^'\n]*'\n?", re.DOTALL
)


class QuietEnd(AbstractContextManager["QuietEnd"]):
    """From `begin` to the end of the block, standard error does not take what Beam prints of bundles that were ended.

    Everything else is printed as ever.
    """

    def __init__(self) -> None:
        self._before: TextIO | None = None

    def begin(self) -> None:
        """Note that the job has been asked to stop."""
        if self._before is None:
            self._before, without = sys.stderr, cast(TextIO, _Without(sys.stderr))
            sys.stderr = without

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._before is not None:
            sys.stderr, self._before = self._before, None


class _Without:
    """A stream that leaves out the one expected text, and the end of line that is written after it."""

    def __init__(self, stream: TextIO) -> None:
        self._stream, self._left_out = stream, False

    def write(self, text: str) -> int:
        end_of_left_out, self._left_out = self._left_out and text == "\n", bool(_EXPECTED.fullmatch(text))
        if self._left_out or end_of_left_out:
            return len(text)
        return self._stream.write(text)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._stream, name)
