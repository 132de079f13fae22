"""How many rows this process has read so far, for whoever watches a run.

Only for showing progress: workers in other processes have counters of their own, which nobody sees, and a repeated
bundle counts twice. What a manifest says is counted in the data, see `summary`.
"""

from __future__ import annotations

import threading
from typing import Final

__all__ = ["WATCHED_ROWS", "RowsRead"]


class RowsRead:
    """A counter for the threads of one process.

    Beam sends a copy of each stage to its workers, so a counter cannot be handed to them: there is one a process.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._rows = 0
        self._total: int | None = None

    def begin(self, total: int | None) -> None:
        """Start a run of `total` rows, or of an unknown number."""
        with self._lock:
            self._rows, self._total = 0, total

    def add(self, rows: int) -> None:
        """Count rows of a batch."""
        with self._lock:
            self._rows += rows

    @property
    def state(self) -> tuple[int, int | None]:
        """Rows read, and how many there are; None where that is unknown."""
        with self._lock:
            return self._rows, self._total


#: The counter of this process.
WATCHED_ROWS: Final = RowsRead()
