"""When something is said of an open window: at its end, soon after news before or after that, and when it is closed.

Beam's timers belong to the step that declares them, so each step has its own three; what they stand for, and when they
are set, is said here once.
"""

from __future__ import annotations

import time as clock
from dataclasses import dataclass
from typing import Any, Final

from apache_beam.transforms.timeutil import TimeDomain
from apache_beam.transforms.userstate import TimerSpec
from apache_beam.utils.timestamp import Timestamp

from ..schemas.event_windows import Windows
from .gate import milliseconds

__all__ = ["WindowBook", "WindowTimers", "timer_specs"]

#: Seconds for which late reports are gathered before a window is restated.
_LATE_SECONDS: Final = 1.0


def timer_specs() -> tuple[TimerSpec, TimerSpec, TimerSpec]:
    """Return the timers of a step: for the end of a window, for when it is closed, and for a time on the wall."""
    on_time, close = TimerSpec("on_time", TimeDomain.WATERMARK), TimerSpec("close", TimeDomain.WATERMARK)
    return on_time, close, TimerSpec("soon", TimeDomain.REAL_TIME)


@dataclass
class WindowBook:
    """What is known of an open window, or of a shard of one, beside its content.

    Attributes:
        pieces: how many pieces its state is made of.
        news: whether something came since it was last told of.
        ended: whether the watermark has passed its end.
        waiting: whether it is about to be told of.
    """

    pieces: int = 0
    news: bool = False
    ended: bool = False
    waiting: bool = False


@dataclass(frozen=True)
class WindowTimers:
    """Sets the timers of a step.

    Attributes:
        windows: the windows.
        delay: milliseconds after its time at which the step fires, see `gate.milliseconds`.
        early: seconds after which news are told before the end, in processing time; None not to.
    """

    windows: Windows
    delay: int
    early: int | None

    def open(self, start: int, on_time: Any, close: Any) -> None:
        """Set what is known when the first of a window comes: its end, and when it is closed."""
        close.set(milliseconds(self.windows.closes(start), self.delay))
        if self.windows.lateness:
            on_time.set(milliseconds(self.windows.end(start), self.delay))

    def arrived(self, book: WindowBook, soon: Any) -> None:
        """Note that something came, and see to it that it is told."""
        book.pieces += 1
        book.news = True
        wait = _LATE_SECONDS if book.ended else self.early
        if wait is not None and not book.waiting:
            soon.set(Timestamp.of(clock.time() + wait))
            book.waiting = True

    def ended(self, book: WindowBook, soon: Any) -> None:
        """Note that the watermark has passed the end: what was about to be told is told now."""
        soon.clear()
        book.ended, book.waiting = True, False
