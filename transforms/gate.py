"""The gate of a stream: lets batches of open windows pass, and sets aside what comes too late.

Beam drops what is later than its allowed lateness without a word. Here windows are kept in the state of one step in
the global window, where nothing is dropped: an event-time timer closes each window when the watermark has passed its
end and the lateness, and from then on the window is closed for good. A report is too late when every window that holds
its slice is closed, or when a later one is (windows close in their order).

The gate is one key, and so one worker: it moves whole batches and adds arrays. Its state is a few numbers for each open
window.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

import apache_beam as beam
import pyarrow as pa
from apache_beam.coders import PickleCoder
from apache_beam.metrics import Metrics
from apache_beam.transforms.timeutil import TimeDomain
from apache_beam.transforms.userstate import ReadModifyWriteStateSpec, TimerSpec, on_timer
from apache_beam.utils.timestamp import Timestamp

from ..schemas.event_windows import Windows
from .set_aside import SetAside

__all__ = ["ASIDE", "GATE_KEY", "IN_NO_WINDOW", "TIMED_BATCH", "TOO_LATE", "Gate", "GateBook", "milliseconds"]

#: Tag of the output of what is set aside.
ASIDE: Final = "aside"
#: Reasons for which a batch is set aside.
TOO_LATE: Final = "too_late"
IN_NO_WINDOW: Final = "in_no_window"

#: The one key of a gate.
GATE_KEY: Final = 0
#: Beam's type of what a gate takes: (key, (start of the slice in seconds since 1970, rows)).
TIMED_BATCH = beam.typehints.KV[int, tuple[int, pa.RecordBatch]]


def milliseconds(seconds: int, more: int) -> Timestamp:
    """Return a time as Beam has it, some milliseconds later.

    Steps that follow one another fire a millisecond apart: what a step sends out when its timer fires has then arrived
    before the next one's timer fires.
    """
    return Timestamp(micros=(seconds * 1000 + more) * 1000)


@dataclass
class GateBook:
    """The state of a gate.

    Attributes:
        horizon: the latest time at which a window was closed; None before the first.
        closing: closing times of the windows that are open, in order.
        slices: slices that were met and belong to an open window.
        met: how many different slices were met at all.
    """

    horizon: int | None = None
    closing: list[int] = field(default_factory=list)
    slices: list[int] = field(default_factory=list)
    met: int = 0

    def is_open(self, closes: int) -> bool:
        """Whether a window with this closing time takes reports."""
        return self.horizon is None or closes > self.horizon

    def admit(self, time: int, closes: Sequence[int]) -> bool:
        """Note a slice and its open windows; return whether the next closing time changed."""
        if time not in self.slices:
            self.slices.append(time)
            self.met += 1
        before = self.closing[:1]
        new = [time for time in closes if time not in self.closing]
        if new:
            self.closing = sorted([*self.closing, *new])
        return self.closing[:1] != before

    def close(self, keep_slices_from: int) -> None:
        """Close the next window, and forget the slices that no open window holds."""
        self.horizon = self.closing.pop(0)
        self.slices = [time for time in self.slices if time >= keep_slices_from]


_BOOK: Final = ReadModifyWriteStateSpec("gate", PickleCoder())
_CLOSE: Final = TimerSpec("close", TimeDomain.WATERMARK)
_BOOK_STATE: Final = beam.DoFn.StateParam(_BOOK)
_CLOSE_TIMER: Final = beam.DoFn.TimerParam(_CLOSE)


class Gate(beam.DoFn):
    """Passes batches of open windows on; subclasses say how (`take`) and send it at the end of a bundle.

    Args:
        windows: the windows of this stream.
        delay: milliseconds after its closing time at which a window is closed, see `milliseconds`.
    """

    #: Reason that late batches are set aside for.
    too_late = TOO_LATE

    def __init__(self, windows: Windows, delay: int) -> None:
        self._windows, self._delay = windows, delay
        self._late = Metrics.counter("ldp_beam", "late")

    def aside(self, reason: str, time: int, batch: pa.RecordBatch, missed: int = 0) -> SetAside:
        """Return what is kept of a batch that does not pass."""
        return SetAside(reason, batch.num_rows, time, batch, missed)

    def take(self, time: int, batch: pa.RecordBatch, starts: tuple[int, ...], met: int) -> Iterator[Any]:
        """Take a batch of the slice at `time` for the open windows `starts`; `met` slices were met so far."""
        raise NotImplementedError

    def process(
        self,
        element: tuple[int, tuple[int, pa.RecordBatch]],
        state: Any = _BOOK_STATE,
        timer: Any = _CLOSE_TIMER,
    ) -> Iterator[Any]:
        time, batch = element[1]
        length = _slice_seconds(batch)
        starts = [start for start in self._windows.starts(time) if time + length <= self._windows.end(start)]
        if not starts:
            yield beam.pvalue.TaggedOutput(ASIDE, self.aside(IN_NO_WINDOW, time, batch))
            return
        book = state.read() or GateBook()
        taking = tuple(start for start in starts if book.is_open(self._windows.closes(start)))
        self._late.inc(0)  # a counter that nobody has touched does not exist, and would be unavailable
        if len(taking) < len(starts):
            late = self.aside(self.too_late, time, batch, missed=len(starts) - len(taking))
            self._late.inc(late.rows)
            yield beam.pvalue.TaggedOutput(ASIDE, late)
        if not taking:
            return
        if book.admit(time, [self._windows.closes(start) for start in taking]):
            timer.set(milliseconds(book.closing[0], self._delay))
        state.write(book)
        yield from self.take(time, batch, taking, book.met)

    @on_timer(_CLOSE)  # type: ignore[untyped-decorator]  # Beam's decorator has no types
    def close(
        self,
        state: Any = _BOOK_STATE,
        timer: Any = _CLOSE_TIMER,
        now: Any = beam.DoFn.TimestampParam,
    ) -> None:
        """Close the window whose time has come, and wait for the next one."""
        book = state.read()
        if book is None or not book.closing:
            return
        if now >= milliseconds(book.closing[0], self._delay):
            book.close(book.closing[0] - self._windows.lateness - self._windows.size + self._windows.slide)
            state.write(book)
        if book.closing:
            timer.set(milliseconds(book.closing[0], self._delay))


def _slice_seconds(batch: pa.RecordBatch) -> int:
    """Return the length of the batch's slice, where its header tells."""
    text = (batch.schema.metadata or {}).get(b"ldp_beam.window_seconds", b"0")
    return int(text) if text.isdigit() else 0
