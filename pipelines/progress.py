"""Progress of a local run: a bar with rate and estimated end on a terminal, one quiet line in a log, or nothing."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from types import TracebackType
from typing import Final

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, ProgressColumn, Task, TextColumn, TimeRemainingColumn
from rich.text import Text

from ..transforms.rows_read import WATCHED_ROWS, RowsRead

__all__ = ["RunProgress"]

#: A run that ends sooner shows nothing, so that short ones do not flicker.
_PATIENCE: Final = 1.0
_EVERY: Final = 0.2


class RunProgress:
    """Watches the rows that are read while a block runs; a context manager.

    Args:
        console: where to show it; a bar if it is a terminal, otherwise one line at the end.
        quiet: show nothing.
        rows: the counter.
        clock: seconds, from any start.
        patience: seconds after which the bar appears.
    """

    def __init__(
        self,
        console: Console,
        *,
        quiet: bool = False,
        rows: RowsRead = WATCHED_ROWS,
        clock: Callable[[], float] = time.monotonic,
        patience: float = _PATIENCE,
    ) -> None:
        self._console, self._quiet, self._rows = console, quiet, rows
        self._clock, self._patience = clock, patience
        self._ended = threading.Event()
        self._watcher: threading.Thread | None = None
        self._start = 0.0

    def __enter__(self) -> RunProgress:
        self._rows.begin(None)
        self._start = self._clock()
        if not self._quiet and self._console.is_terminal:
            self._watcher = threading.Thread(target=self._watch, name="progress", daemon=True)
            self._watcher.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._ended.set()
        if self._watcher is not None:
            self._watcher.join()
        elif not self._quiet and error is None:
            self._one_line()

    def _watch(self) -> None:
        if self._ended.wait(self._patience):
            return
        columns = (
            TextColumn("{task.description}"),
            BarColumn(bar_width=None),
            MofNCompleteColumn(),
            _Rate(),
            TimeRemainingColumn(),
        )
        with Progress(*columns, console=self._console, transient=True) as bar:
            task = bar.add_task("Rows read", total=None)
            while not self._ended.wait(_EVERY):
                done, total = self._rows.state
                bar.update(task, completed=done, total=total)
                if total is not None and done >= total:
                    bar.update(task, description="Estimating")

    def _one_line(self) -> None:
        rows, _ = self._rows.state
        seconds = max(self._clock() - self._start, 1e-9)
        if rows:
            # Engines on other machines count rows that this process never sees; then there is nothing to say.
            self._console.print(
                f"{rows:,} rows in {seconds:,.1f} s ({rows / seconds:,.0f} a second)", markup=False, soft_wrap=True
            )


class _Rate(ProgressColumn):
    """Rows a second."""

    def render(self, task: Task) -> Text:
        """Return the rate, or nothing while it is unknown."""
        speed = task.finished_speed or task.speed
        return Text("" if speed is None else f"{speed:,.0f}/s", style="progress.data.speed")
