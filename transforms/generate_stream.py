"""An unbounded source of people who do not exist: raw records at a steady rate, for demonstrations. Client side."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Final

import apache_beam as beam
import numpy as np
import pyarrow as pa
from apache_beam.io.restriction_trackers import OffsetRange, OffsetRestrictionTracker
from apache_beam.transforms.core import RestrictionProvider
from apache_beam.transforms.window import TimestampedValue
from apache_beam.utils.timestamp import Duration, Timestamp

from ..errors import InputError
from ..mechanisms.populations import BLOCK_USERS
from ..schemas.event_time import parse_time
from .event_clock import EventClockProvider, Pace
from .generated import Generated

__all__ = ["GenerateStream", "TimedPeople"]

#: People of a batch, and so of a message.
BATCH_USERS: Final = 1000
#: Seconds on the wall that a batch may gather, so that few people a second come at once too.
_BATCH_SECONDS: Final = 0.2
_PAUSE: Final = Duration(micros=100_000)
_TURN_BATCHES: Final = 100
_OWN: Final = ("rate", "start", "span")


@dataclass(frozen=True, kw_only=True)
class TimedPeople:
    """People of a population, each with one record at an event time of its own.

    User i has the event time start + i / users * span. With a rate, records come out at that many a second from the
    moment at which the source first runs.

    Attributes:
        people: who they are.
        start: first event time, in seconds since 1970.
        span: seconds from the first event time to the end of the last one.
        rate: people a second on the wall; None as fast as they are read.
    """

    people: Generated
    start: float
    span: float
    rate: float | None = None

    @classmethod
    def parse(cls, text: str, *, now: float) -> TimedPeople:
        """Read `simulate:NAME,users=N,…,rate=R,start=TIME,span=SECONDS`.

        Without a start, event times are those at which the records come out (with a rate), or end now (without one).
        Without a span they take as long as the records take to come out, or an hour.

        Raises:
            InputError: for a parameter of a value that it cannot have.
        """
        parts = text.split(",")
        own = dict(part.split("=", 1) for part in parts if part.partition("=")[0] in _OWN and "=" in part)
        people = Generated.parse(",".join(part for part in parts if part.partition("=")[0] not in _OWN))
        rate = _positive(text, own, "rate")
        start = parse_time(own["start"]) if "start" in own else None
        return cls.over(people, rate=rate, span=_positive(text, own, "span"), start=start, now=now)

    @classmethod
    def over(
        cls, people: Generated, *, rate: float | None, span: float | None, start: float | None, now: float
    ) -> TimedPeople:
        """Fill in what is not given, as `parse` does."""
        if span is None:
            span = max(people.users, 1) / rate if rate else 3600.0
        if start is None:
            start = now if rate else now - span
        return cls(people=people, start=start, span=span, rate=rate)

    def batches(self, first: int, stop: int) -> Iterator[tuple[float, pa.RecordBatch]]:
        """Yield the records of the users first to stop - 1 with the earliest event time of each batch."""
        block, number = None, -1
        step = BATCH_USERS if self.rate is None else max(1, min(BATCH_USERS, int(self.rate * _BATCH_SECONDS)))
        while first < stop:
            if number != first // BLOCK_USERS:
                number = first // BLOCK_USERS
                (block,) = self.people.blocks(number, number + 1)
            end = min(stop, first + step, (number + 1) * BLOCK_USERS)
            yield self._time(first), self._timed(block, first, end)
            first = end

    def due(self, seconds: float) -> int:
        """Return how many people have come out after so many seconds."""
        return self.people.users if self.rate is None else min(self.people.users, int(seconds * self.rate))

    def _time(self, user: int) -> float:
        return self.start + user / self.people.users * self.span

    def _timed(self, block: Any, first: int, stop: int) -> pa.RecordBatch:
        rows = block.slice(first % BLOCK_USERS, stop - first)
        seconds = self.start + np.arange(first, stop) / self.people.users * self.span
        times = pa.array((seconds * 1e6).astype(np.int64)).cast(pa.timestamp("us", tz="UTC"))
        return rows.append_column("timestamp", times)


def _positive(text: str, given: dict[str, str], name: str) -> float | None:
    if name not in given:
        return None
    try:
        value = float(given[name])
    except ValueError:
        value = 0.0
    if not 0 < value < 1e12:
        raise InputError(f"{text}: {name} is {given[name]!r}; it must be a number above 0.")
    return value


class GenerateStream(beam.PTransform):
    """A pipeline's root: record batches of raw records (nested, with a column `timestamp`) at their event times.

    The source ends with the last of its people. It is read by one worker, and goes on where it was after a restart from
    a checkpoint.

    Args:
        people: who comes when.
        pace: how event time passes.
    """

    def __init__(self, people: TimedPeople, pace: Pace) -> None:
        super().__init__()
        self._people, self._generate = people, _Generate(pace)

    def expand(self, begin: beam.pvalue.PBegin) -> beam.PCollection[pa.RecordBatch]:
        return (
            begin
            | "People" >> beam.Create([self._people], reshuffle=False)
            | "Generate" >> beam.ParDo(self._generate).with_output_types(pa.RecordBatch)
        )


class _UserTracker(OffsetRestrictionTracker):
    """Claims users in their order; can be interrupted, but not divided."""

    def try_split(self, fraction_of_remainder: float) -> tuple[OffsetRange, OffsetRange] | None:
        return super().try_split(0) if fraction_of_remainder == 0 else None


class _Users(RestrictionProvider):
    def initial_restriction(self, element: TimedPeople) -> OffsetRange:
        return OffsetRange(0, element.people.users)

    def create_tracker(self, restriction: OffsetRange) -> _UserTracker:
        return _UserTracker(restriction)

    def restriction_size(self, element: TimedPeople, restriction: OffsetRange) -> float:
        return float(max(1, restriction.size()))


_USERS: Final = beam.DoFn.RestrictionParam(_Users())
_CLOCK: Final = beam.DoFn.WatermarkEstimatorParam(EventClockProvider())


class _Generate(beam.DoFn):
    def __init__(self, pace: Pace) -> None:
        self._pace = pace

    @beam.DoFn.unbounded_per_element()  # type: ignore[untyped-decorator]  # Beam's decorator has no types
    def process(self, element: TimedPeople, tracker: Any = _USERS, clock: Any = _CLOCK) -> Iterator[Any]:
        given = tracker.current_restriction()
        if given.start >= given.stop:
            return
        due = element.due(clock.age_seconds())
        at = given.start
        for number, (event_time, batch) in enumerate(element.batches(given.start, min(due, given.stop))):
            # The last user of the batch stands for all: nobody can stop between them.
            if number == _TURN_BATCHES or not tracker.try_claim(at + batch.num_rows - 1):
                break
            at += batch.num_rows
            yield TimestampedValue(batch, Timestamp(event_time))
            clock.arrived(event_time, self._pace)
        if at < given.stop:
            tracker.defer_remainder(_PAUSE if at >= due else Duration(0))
