"""An unbounded source over a folder: files that appear there, each read once, at the event times of their headers.

A file counts as complete from the moment at which its name appears: whoever writes it renames it into the folder. Names
that begin with "." or "_" are passed over, so that a file can be written beside its place.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Final, Protocol

import apache_beam as beam
import pyarrow as pa
from apache_beam.coders import PickleCoder
from apache_beam.io.filesystem import BeamIOError
from apache_beam.io.filesystems import FileSystems
from apache_beam.io.iobase import RestrictionProgress, RestrictionTracker
from apache_beam.transforms.core import RestrictionProvider
from apache_beam.transforms.window import TimestampedValue
from apache_beam.utils.timestamp import Duration, Timestamp

from ..errors import RunError
from ..schemas.messages import RefusedMessage, Reject
from .event_clock import EventClock, EventClockProvider, Pace

__all__ = ["FileDecoder", "FolderOutputs", "WatchFolder"]

#: Files of one turn; a backlog of more is read in several turns, the earliest event times first.
_TURN_FILES: Final = 200


class FileDecoder(Protocol):
    """Knows the files of a folder."""

    @property
    def suffixes(self) -> tuple[str, ...]:
        """Endings of the names that are looked at."""

    def event_time(self, path: str, now: float) -> float:
        """Return the earliest event time in a file, in seconds since 1970; `now` is the latest that it may tell of.

        Raises:
            RefusedMessage: It is set aside; nothing else is raised.
        """

    def read(self, path: str, now: float) -> Iterator[tuple[float, pa.RecordBatch] | Reject]:
        """Yield batches with their event times, and what is set aside; raises nothing."""


@dataclass(frozen=True)
class FolderOutputs:
    """What `WatchFolder` gives.

    Attributes:
        batches: record batches whose Beam timestamps are their event times.
        rejects: `Reject`s.
    """

    batches: beam.PCollection[pa.RecordBatch]
    rejects: beam.PCollection[Reject]


class WatchFolder(beam.PTransform):
    """A pipeline's root: files that appear in a folder → record batches at their event times.

    Each file is read once in a run, by its name. The names that were read are part of the engine's checkpoint, about
    100 bytes a file. A new run reads all files that are there again, so leave them until their windows are final.

    Args:
        folder: on any of Beam's file systems; all workers must see it.
        decode: what the files hold, for example `ReportFiles`.
        pace: how event time passes.
        poll_seconds: how often the folder is looked at.
        drain: read what is there at the first look and end.
        until_idle: end when nothing new has appeared for so many seconds; None to go on for ever.

    Returns (from `expand`): `FolderOutputs`.
    """

    def __init__(
        self,
        folder: str,
        decode: FileDecoder,
        pace: Pace,
        *,
        poll_seconds: float = 1.0,
        drain: bool = False,
        until_idle: float | None = None,
    ) -> None:
        super().__init__()
        self._folder, self._decode, self._pace = folder, decode, pace
        self._list = _ListFolder(decode, pace, poll_seconds, 0.0 if drain else until_idle)

    def expand(self, begin: beam.pvalue.PBegin) -> FolderOutputs:
        listed = (
            begin
            | "Folder" >> beam.Create([self._folder], reshuffle=False)
            | "List" >> beam.ParDo(self._list).with_outputs("rejects", main="files")
        )
        listed.files.element_type, listed.rejects.element_type = str, Reject
        read = beam.ParDo(_ReadFile(self._decode, self._pace)).with_outputs("rejects", main="batches")
        found = listed.files | "Spread" >> beam.Reshuffle() | "Read" >> read
        found.batches.element_type, found.rejects.element_type = pa.RecordBatch, Reject
        rejects = (listed.rejects, found.rejects) | "Rejects" >> beam.Flatten()
        return FolderOutputs(found.batches, rejects)


# -- which files have been read ---------------------------------------------------------------------------


@dataclass(frozen=True)
class Seen:
    """What a range of a folder's history is: the files that were read before it, and whether it is over."""

    names: frozenset[str] = frozenset()
    over: bool = False


class FolderTracker(RestrictionTracker):
    """Claims names, each once; can be interrupted, but not divided."""

    def __init__(self, seen: Seen) -> None:
        self._before, self._claimed, self._over = seen.names, set[str](), seen.over

    def current_restriction(self) -> Seen:
        """Return what has been read up to now."""
        return Seen(self._before | self._claimed, self._over)

    def try_claim(self, position: str | None) -> bool:
        """Claim a name; None says that no more are wanted. False where the turn was interrupted."""
        if self._over:
            return False
        if position is None:
            self._over = True
            return False
        self._claimed.add(position)
        return True

    def try_split(self, fraction_of_remainder: float) -> tuple[Seen, Seen] | None:
        """Stop here and leave what comes for later; any other fraction is refused."""
        if self._over or fraction_of_remainder != 0:
            return None
        rest = Seen(self._before | self._claimed)
        self._over = True
        return Seen(rest.names, over=True), rest

    def check_done(self) -> None:
        """Require that the turn was ended on purpose."""
        if not self._over:
            raise ValueError("the folder was left before its end or a checkpoint")

    def current_progress(self) -> RestrictionProgress:
        """Say that everything is still to come: how many files that is, is not known."""
        # As a fraction: amounts of work are replaced by Beam, and are no numbers where nothing was put out.
        return RestrictionProgress(fraction=0.0)

    def is_bounded(self) -> bool:
        """A folder has no end."""
        return False


class _History(RestrictionProvider):
    def initial_restriction(self, element: str) -> Seen:
        return Seen()

    def create_tracker(self, restriction: Seen) -> FolderTracker:
        return FolderTracker(restriction)

    def restriction_size(self, element: str, restriction: Seen) -> float:
        return 1.0

    def restriction_coder(self) -> beam.coders.Coder:
        return PickleCoder()


_SEEN: Final = beam.DoFn.RestrictionParam(_History())
_CLOCK: Final = beam.DoFn.WatermarkEstimatorParam(EventClockProvider())


# -- the steps --------------------------------------------------------------------------------------------


class _ListFolder(beam.DoFn):
    """Emits each new file at the earliest event time in it, which holds the watermark back until it is read."""

    def __init__(self, decode: FileDecoder, pace: Pace, poll_seconds: float, until_idle: float | None) -> None:
        self._decode, self._pace = decode, pace
        self._poll, self._until_idle = Duration(poll_seconds), until_idle

    @beam.DoFn.unbounded_per_element()  # type: ignore[untyped-decorator]  # Beam's decorator has no types
    def process(self, element: str, tracker: Any = _SEEN, clock: Any = _CLOCK) -> Iterator[Any]:
        seen = tracker.current_restriction().names
        new = [path for path in _files(element, self._decode.suffixes) if path not in seen]
        timed, refused = self._timed(new)
        latest: float | None = None
        for path, event_time in timed[:_TURN_FILES]:
            if not tracker.try_claim(path):
                return
            latest = event_time
            yield TimestampedValue(path, Timestamp(event_time))
        for reject in refused:
            if not tracker.try_claim(reject.where):
                return
            yield _aside(reject)
        left = len(timed) > _TURN_FILES
        if new:
            clock.arrived(latest, self._pace)
        if not left and self._is_over(tracker, clock):
            return
        tracker.defer_remainder(Duration(0) if left else self._poll)

    def _timed(self, paths: list[str]) -> tuple[list[tuple[str, float]], list[Reject]]:
        """Return files by event time, and those that are none of ours."""
        timed, refused, now = [], [], self._pace.latest(time.time())
        for path in paths:
            try:
                timed.append((path, self._decode.event_time(path, now)))
            except RefusedMessage as error:
                refused.append(Reject(error.reason, 1, path, str(error)))
        return sorted(timed, key=lambda one: (one[1], one[0])), refused

    def _is_over(self, tracker: Any, clock: EventClock) -> bool:
        clock.caught_up(self._pace)
        if self._until_idle is not None and clock.quiet_seconds() >= self._until_idle:
            return not tracker.try_claim(None)
        return False


def _files(folder: str, suffixes: tuple[str, ...]) -> list[str]:
    try:
        (found,) = FileSystems.match([FileSystems.join(folder, "*")])
    except BeamIOError as error:
        raise RunError(f"The watched folder {folder} cannot be listed: {error}.") from error
    return [one.path for one in found.metadata_list if _is_taken(one.path, suffixes)]


def _is_taken(path: str, suffixes: tuple[str, ...]) -> bool:
    name = path.replace("\\", "/").rpartition("/")[2]
    return name.endswith(suffixes) and not name.startswith((".", "_"))


class _ReadFile(beam.DoFn):
    def __init__(self, decode: FileDecoder, pace: Pace) -> None:
        self._decode, self._pace = decode, pace

    def process(self, element: str) -> Iterator[Any]:
        for found in self._decode.read(element, self._pace.latest(time.time())):
            if isinstance(found, Reject):
                yield _aside(found)
            else:
                event_time, batch = found
                yield TimestampedValue(batch, Timestamp(event_time))


def _aside(reject: Reject) -> Any:
    return beam.pvalue.TaggedOutput("rejects", TimestampedValue(reject, Timestamp(time.time())))
