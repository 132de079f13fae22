"""What people see while a stream runs: one line on a terminal that changes, or a quiet line now and then in a log."""

from __future__ import annotations

import time
from collections.abc import Callable
from types import TracebackType
from typing import Final

from rich.console import Console
from rich.status import Status

from ..transforms.publish_panes import PaneFolder
from .stream_folder import StreamFolder

__all__ = ["StatusLine"]

#: Seconds between two lines in a log.
_QUIET_SECONDS: Final = 10.0


class StatusLine:
    """Tells of the latest window, reports, late ones and lag; a context manager.

    Args:
        console: where to show it.
        quiet: show nothing.
        clock: seconds, from any start.
    """

    def __init__(
        self, console: Console | None = None, *, quiet: bool = False, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._console = console or Console(stderr=True, highlight=False)
        self._quiet, self._clock = quiet, clock
        self._status: Status | None = None
        self._said, self._last = -_QUIET_SECONDS, ""

    def __enter__(self) -> StatusLine:
        if not self._quiet and self._console.is_terminal:
            self._status = self._console.status("Waiting for the first window")
            self._status.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._status is not None:
            self._status.stop()

    def update(self, folder: StreamFolder) -> None:
        """Show what is new in the folder."""
        line = status_of(folder)
        if self._quiet or line is None or line == self._last:
            return
        if self._status is not None:
            self._last = line
            self._status.update(line)
        elif self._clock() - self._said >= _QUIET_SECONDS:
            self._last, self._said = line, self._clock()
            self._console.print(line, markup=False, soft_wrap=True)


def status_of(folder: StreamFolder) -> str | None:
    """Return one line about a stream; None before its first window."""
    panes, lag = folder.panes(), folder.lag()
    if not panes or lag is None:
        return None
    late = sum(rows for reason, rows in folder.rejected().items() if "late" in reason)
    aside = sum(folder.rejected().values()) - late
    parts = [
        _window(panes[-1]),
        f"{len(panes):,} windows, {sum(bool(pane.window['is_final']) for pane in panes):,} of them final",
        f"late {late:,}",
    ]
    if aside:
        parts.append(f"set aside {aside:,}")
    if lag < 86_400:  # in a replay of the past the distance from a window's end to now says nothing
        parts.append(f"published {max(lag, 0.0):.1f} s after its end" if lag >= 0 else "not over yet")
    return "; ".join(parts)


def _window(pane: PaneFolder) -> str:
    window = pane.window
    start, end = (str(window[name]).replace("T", " ").removesuffix("Z") for name in ("start", "end"))
    return f"Window {start} to {end} UTC ({window['timing']}): {window['n']:,} reports"
