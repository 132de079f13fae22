"""How event time passes for an unbounded source: when it may say that nothing earlier will come.

A watermark that runs ahead makes reports late; one that stands still publishes nothing. Ours follows what has arrived
and, where a source has shown that it has read everything there is, the clock on the wall.
"""

from __future__ import annotations

import math
import threading
import time
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any, Final

import apache_beam as beam
from apache_beam.io.iobase import WatermarkEstimator
from apache_beam.transforms.core import WatermarkEstimatorProvider
from apache_beam.utils.timestamp import Timestamp

__all__ = ["EventClock", "EventClockProvider", "Pace", "SharedClock", "shared_clock"]

#: Later than any event.
_LAST: Final = 1 << 62
#: After so many seconds an engine has surely taken over what a partition put out at its end.
_TAKEN_OVER_SECONDS: Final = 15.0

ClockState = tuple[int | None, float, float]


@dataclass(frozen=True, kw_only=True)
class Pace:
    """What is assumed of the times at which reports, or records, arrive.

    A window closes when the watermark reaches its end. The watermark of a partition follows the latest slice that was
    seen there; when the partition has been read to its end, also the clock: reports of a slice exist once the slice is
    over, and have arrived `arrival_delay` seconds later. What arrives later still is late data.

    Attributes:
        slice_seconds: length of the slices that reports belong to; 0 for records with times of their own.
        disorder: seconds by which a slice may arrive after a later one in the same partition without being late.
        arrival_delay: seconds after which everything of a slice has arrived; None never to follow the clock, for a
            replay of the past.
        clock_skew: seconds by which other machines' clocks may be ahead of ours; what lies further in the future is
            set aside, so that nobody can close windows before their time.
        grid: seconds of which all times are multiples at which a window ends or closes.
    """

    slice_seconds: int
    disorder: float = 0.0
    arrival_delay: float | None = 5.0
    clock_skew: float = 1.0
    grid: int = 1

    def complete_until(self, now: float) -> float | None:
        """Return the time before which, at `now`, nothing is expected any more, in seconds since 1970."""
        if self.arrival_delay is None:
            return None
        past = now - self.arrival_delay
        return past if self.slice_seconds == 0 else past // self.slice_seconds * self.slice_seconds

    def slice_of(self, event_time: float) -> int:
        """Return the start of the slice that a time lies in; times of records are in slices of a second."""
        length = self.slice_seconds or 1
        return int(event_time // length) * length

    def latest(self, now: float) -> float:
        """Return the time, in seconds since 1970, before which a slice must be over at `now`."""
        return now + self.clock_skew


class SharedClock:
    """The watermarks of all partitions that one process reads, for engines that do not take the earliest themselves.

    Prism takes whatever watermark a partition gave last for that of all of them, so that the others' reports would be
    late. A partition is on the board with the watermark at which its present turn began: what it put out before that
    has been taken over by the engine.

    Args:
        partitions: their numbers; as long as one has not given a watermark, nobody has one.
    """

    def __init__(self, partitions: Iterable[int]) -> None:
        self._lock = threading.Lock()
        self._known: dict[int, int | None] = dict.fromkeys(partitions)
        self._ended: dict[int, float] = {}

    def begin(self, partition: int, seconds: int | None) -> None:
        """Note the watermark at which a turn of a partition begins."""
        with self._lock:
            self._known[partition] = seconds

    def end(self, partition: int) -> None:
        """Note that a partition has been read to its end; it holds the others for a while, until that is taken over."""
        with self._lock:
            self._ended[partition] = time.monotonic()

    def earliest(self, partition: int) -> int | None:
        """Return the earliest watermark of the other partitions in seconds since 1970; None where one has none."""
        with self._lock:
            over = time.monotonic() - _TAKEN_OVER_SECONDS
            held = [
                seconds
                for number, seconds in self._known.items()
                if number != partition and self._ended.get(number, math.inf) > over
            ]
        return None if None in held else min((seconds for seconds in held if seconds is not None), default=_LAST)


_boards: dict[str, SharedClock] = {}
_boards_lock = threading.Lock()


def shared_clock(name: str, partitions: Iterable[int]) -> SharedClock:
    """Return the clock of that name in this process, made at the first call."""
    with _boards_lock:
        if name not in _boards:
            _boards[name] = SharedClock(partitions)
        return _boards[name]


class EventClock(WatermarkEstimator):
    """The watermark of one partition or folder; goes forward only, and survives checkpoints.

    Windows end at whole seconds, and their steps fire some milliseconds after that (`gate.milliseconds`). Where nothing
    before a second is to come, the watermark is the next second: those steps fire, and no later ones. At the second
    itself they would wait for another slice, and Flink knows nothing between two seconds. What comes at that second is
    behind the watermark then, and no harm is done: the gate closes windows, and those that end there hold none of it.

    Its state is (time before which nothing is to come in whole seconds or None, time of the last arrival, time of its
    beginning); the latter two are on the wall, in seconds.
    """

    def __init__(self, state: ClockState) -> None:
        self._complete, self._quiet_since, self._began = state
        self._shared: tuple[SharedClock, int] | None = None

    def current_watermark(self) -> Timestamp | None:
        """Return the watermark; None, which holds everything back, before there is any."""
        complete = self.complete_until()
        return None if complete is None else Timestamp(complete + 1)

    def complete_until(self) -> int | None:
        """Return the second before which nothing is to come any more, since 1970; None before there is any."""
        complete = self._complete
        if complete is not None and self._shared is not None:
            earliest = self._shared[0].earliest(self._shared[1])
            complete = None if earliest is None else min(complete, earliest)
        return complete

    def share(self, clock: SharedClock, partition: int) -> None:
        """Begin a turn of a partition of several that are read in this process."""
        clock.begin(partition, self._complete)
        self._shared = clock, partition

    def get_estimator_state(self) -> ClockState:
        """Return what the next bundle starts from."""
        return self._complete, self._quiet_since, self._began

    def observe_timestamp(self, timestamp: Timestamp) -> None:
        """Leave the watermark alone: it moves once all of a turn's elements are out."""

    def arrived(self, latest: float | None, pace: Pace) -> None:
        """Note that something arrived, with the latest event time in it in seconds since 1970 (None: only rejects)."""
        self._quiet_since = time.time()
        if latest is not None:
            self._advance(latest - pace.disorder)

    def caught_up(self, pace: Pace) -> None:
        """Note that everything there is has been read."""
        complete = pace.complete_until(time.time())
        if complete is not None:
            self._advance(complete)

    def quiet_seconds(self) -> float:
        """Return for how long nothing has arrived."""
        return time.time() - self._quiet_since

    def age_seconds(self) -> float:
        """Return how long ago the source first ran."""
        return time.time() - self._began

    def _advance(self, seconds: float) -> None:
        complete = math.floor(seconds)
        if self._complete is None or complete > self._complete:
            self._complete = complete


class EventClockProvider(WatermarkEstimatorProvider):
    """Makes clocks for a splittable DoFn."""

    def initial_estimator_state(self, element: Any, restriction: Any) -> ClockState:
        """Return the state of a source that has read nothing."""
        now = time.time()
        return None, now, now

    def create_watermark_estimator(self, estimator_state: ClockState) -> EventClock:
        """Return the clock of a bundle."""
        return EventClock(estimator_state)

    def estimator_state_coder(self) -> beam.coders.Coder:
        """Return the coder of the state."""
        return beam.coders.FastPrimitivesCoder()
