"""Counting reports of a stream in windows: reports → one complete restatement of a window's counts at each pane.

    reports → checked → gate → partial counts of each open window → panes
                             → each id once, by shards of a window ↗         (reports with ids)

The state of a window is its counts as arrays, not its reports; it is added up as parts come in and goes away when the
window is closed. A collection whose reports carry ids keeps the reports of each open window beside them, since a report
that is delivered twice is known by its id only then, see `count_once`.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Final

import apache_beam as beam
import numpy as np
import numpy.typing as npt
import pyarrow as pa
from apache_beam.coders import PickleCoder
from apache_beam.metrics import Metrics
from apache_beam.transforms.userstate import BagStateSpec, ReadModifyWriteStateSpec, on_timer
from apache_beam.transforms.window import GlobalWindow
from apache_beam.utils.timestamp import Timestamp
from apache_beam.utils.windowed_value import WindowedValue

from ..errors import InputError
from ..mechanisms import Counts, Mechanism
from ..schemas.event_windows import Windows
from ..schemas.reports import FileHeader
from .batches import batch_to_reports
from .collection import Collection
from .count_once import CountOnce, Rows, by_shard, shard_bounds, shard_rows
from .gate import ASIDE, GATE_KEY, TIMED_BATCH, Gate
from .set_aside import SetAside
from .window_parts import Part, add_parts, parts_limit
from .window_timers import WindowBook, WindowTimers, timer_specs

__all__ = ["MALFORMED", "MEMOISED", "CountInWindows", "Pane"]

#: Reasons for which reports are set aside, see also `gate`.
MALFORMED: Final = "malformed"
MEMOISED: Final = "memoised_over_slices"

#: Milliseconds after its time at which each step fires, see `gate.milliseconds`.
_GATE_DELAY: Final = 3
_ONCE_DELAY: Final = 4
_PANE_DELAY: Final = 5


@dataclass(frozen=True, kw_only=True)
class Pane:
    """All of a window's reports so far, counted: it restates what earlier panes of the window said.

    Attributes:
        start: of the window, seconds since 1970.
        timing: "early", "on-time", "late" or "final".
        counts: of all reports.
        slices: reports by the start of their slice.
        repeated: reports left out because one with the same id is counted.
        met: how many different slices the stream had met so far.
        private: whether the randomness of all reports was secret.
        memoised: whether reports are memoised.
    """

    start: int
    timing: str
    counts: Counts
    slices: Mapping[int, int]
    repeated: int
    met: int
    private: bool
    memoised: bool

    @property
    def is_final(self) -> bool:
        """Whether the window is closed: nothing will be said of it any more."""
        return self.timing == "final"


# -- the transform --------------------------------------------------------------------------------------------


class CountInWindows(beam.PTransform):
    """Record batches of reports, each of one slice whose start is its timestamp → `Pane`s, and what is set aside.

    Args:
        collection: what is collected.
        windows: the windows.
        early: seconds between two early panes of a window, in processing time; None for no early panes.

    Returns (from `expand`): a tuple (`Pane`s keyed by the start of their window, `SetAside`s).

    Raises:
        InputError: The collection asks in rounds, or repeats a report in several slices of a window.
    """

    def __init__(self, collection: Collection, windows: Windows, *, early: int | None = None) -> None:
        super().__init__()
        self._collection, self._windows, self._early = collection, windows, early

    def expand(
        self, reports: beam.PCollection[pa.RecordBatch]
    ) -> tuple[beam.PCollection[tuple[int, Pane]], beam.PCollection[SetAside]]:
        check = beam.ParDo(_Check(self._collection, self._windows)).with_outputs(ASIDE, main="timed")
        timed, malformed = reports | "Check" >> check
        timed.element_type = TIMED_BATCH  # (key, (start of the slice, reports))
        parts, late = self._with_ids(timed) if self._collection.definition.report_ids else self._without_ids(timed)
        malformed.element_type = late.element_type = SetAside
        timers = WindowTimers(self._windows, _PANE_DELAY, self._early)
        count = beam.ParDo(_CountPanes(self._collection.mechanism, timers))
        panes = parts | "Windows" >> count.with_output_types(beam.typehints.KV[int, Pane])
        return panes, (malformed, late) | "Aside" >> beam.Flatten()

    def _without_ids(self, timed: beam.PCollection[Any]) -> tuple[beam.PCollection[Any], beam.PCollection[SetAside]]:
        gate = beam.ParDo(_CountAtGate(self._collection, self._windows)).with_outputs(ASIDE, main="parts")
        parts, late = timed | "Gate" >> gate
        parts.element_type = beam.typehints.KV[int, Part]  # (start of a window, partial counts)
        return parts, late

    def _with_ids(self, timed: beam.PCollection[Any]) -> tuple[beam.PCollection[Any], beam.PCollection[SetAside]]:
        gate = beam.ParDo(_RowsAtGate(self._windows)).with_outputs(ASIDE, main="rows")
        once = CountOnce(self._collection, WindowTimers(self._windows, _ONCE_DELAY, self._early))
        rows, late = timed | "Gate" >> gate
        rows.element_type = beam.typehints.KV[tuple[int, int], Rows]  # ((start of a window, shard), reports)
        parts = rows | "Once" >> beam.ParDo(once).with_output_types(beam.typehints.KV[int, Part])
        return parts, late


class _Check(beam.DoFn):
    """Sets aside reports that no client of the collection can have made."""

    def __init__(self, collection: Collection, windows: Windows) -> None:
        self._mechanism, self._schema = collection.mechanism, collection.report_schema()
        self._fingerprint, self._round = collection.fingerprint, collection.round
        self._pools, self._ids = windows.slices > 1, collection.definition.report_ids
        self._read = Metrics.counter("ldp_beam", "reports_read")
        self._malformed = Metrics.counter("ldp_beam", "reports_malformed")

    def process(self, element: pa.RecordBatch, timestamp: Any = beam.DoFn.TimestampParam) -> Iterator[Any]:
        time = int(timestamp.micros // 1_000_000)
        self._read.inc(element.num_rows)
        self._malformed.inc(0)  # a counter that nobody has touched does not exist, and would be unavailable
        reason, note = self._refused(element)
        if reason:
            self._malformed.inc(element.num_rows)
            yield beam.pvalue.TaggedOutput(ASIDE, SetAside(reason, element.num_rows, time, element, note=note))
            return
        batch = element.select(self._schema.names)
        valid = _whole_rows(batch)
        if valid.all():
            valid = self._mechanism.valid(batch_to_reports(batch, self._mechanism.layout()))
        else:  # a null could not be told from zeros
            whole = batch.filter(pa.array(valid))
            valid[valid] = self._mechanism.valid(batch_to_reports(whole, self._mechanism.layout()))
        if not valid.all():
            bad = element.filter(pa.array(~valid))
            self._malformed.inc(bad.num_rows)
            note = f"no client of {self._mechanism.name} sends such reports"
            yield beam.pvalue.TaggedOutput(ASIDE, SetAside(MALFORMED, bad.num_rows, time, bad, note=note))
            batch = batch.filter(pa.array(valid))
        if batch.num_rows:  # what can be done here, by many workers, is not left to the one gate
            yield GATE_KEY, (time, by_shard(batch) if self._ids else batch)

    def _refused(self, batch: pa.RecordBatch) -> tuple[str, str]:
        wanted = self._schema
        found = {name: batch.schema.field(name).type for name in batch.schema.names}
        if any(found.get(field.name) != field.type for field in wanted):
            return MALFORMED, f"columns {', '.join(f'{name} {kind}' for name, kind in found.items())}"
        try:
            header = _header(batch)
            if header is None:
                return "", ""
            header.require(kind="reports", fingerprint=self._fingerprint, path="A batch of reports", round_=self._round)
        except InputError as error:
            return MALFORMED, str(error)
        if header.memoised and self._pools:
            return MEMOISED, (
                "a user whose data did not change sent the same report in each slice of a window: the standard errors "
                "would be too small. Give memoised reports fixed windows of one slice."
            )
        return "", ""


def _whole_rows(batch: pa.RecordBatch) -> npt.NDArray[np.bool_]:
    whole = np.ones(batch.num_rows, dtype=np.bool_)
    for column in batch.columns:
        if column.null_count:
            whole &= column.is_valid().to_numpy(zero_copy_only=False)
    return whole


def _header(batch: pa.RecordBatch) -> FileHeader | None:
    """Return the header that the batch's file or message had; reports made in this very job have none."""
    metadata = batch.schema.metadata or {}
    if not any(name.startswith(b"ldp_beam.") for name in metadata):
        return None
    return FileHeader.read(metadata, "A batch of reports")


class _CountAtGate(Gate):
    """Counts what the gate lets pass, and sends one part a slice and bundle to each of its windows."""

    def __init__(self, collection: Collection, windows: Windows) -> None:
        super().__init__(windows, _GATE_DELAY)
        self._mechanism = collection.mechanism

    def start_bundle(self) -> None:
        self._parts: dict[tuple[int, tuple[int, ...]], Part] = {}

    def take(self, time: int, batch: pa.RecordBatch, starts: tuple[int, ...], met: int) -> Iterator[Any]:
        header = _header(batch)
        before = self._parts.get((time, starts), Part())
        reports = batch_to_reports(batch, self._mechanism.layout())
        self._parts[time, starts] = Part(
            counts=self._mechanism.count(reports, into=before.counts),
            slices={time: before.slices.get(time, 0) + batch.num_rows},
            met=max(met, before.met),
            private=before.private and (header is None or header.private),
            memoised=before.memoised or (header is not None and header.memoised),
        )
        yield from ()

    def finish_bundle(self) -> Iterator[Any]:
        for (time, starts), part in self._parts.items():
            for start in starts:
                yield WindowedValue((start, part), Timestamp(time), (GlobalWindow(),))
        self._parts = {}


class _RowsAtGate(Gate):
    """Sends the reports that the gate lets pass to each of their windows, one piece a slice, shard and bundle."""

    def __init__(self, windows: Windows) -> None:
        super().__init__(windows, _GATE_DELAY)

    def start_bundle(self) -> None:
        self._taken: dict[tuple[int, tuple[int, ...], bool, bool], list[pa.RecordBatch]] = {}
        self._met = 0

    def take(self, time: int, batch: pa.RecordBatch, starts: tuple[int, ...], met: int) -> Iterator[Any]:
        header = _header(batch)
        private, memoised = (True, False) if header is None else (header.private, header.memoised)
        self._taken.setdefault((time, starts, private, memoised), []).append(batch)
        self._met = max(self._met, met)
        yield from ()

    def finish_bundle(self) -> Iterator[Any]:
        for (time, starts, private, memoised), batches in self._taken.items():
            first = Rows(time=time, n=0, columns={}, met=self._met, private=private, memoised=memoised)
            for shard, rows in shard_rows(batches, map(shard_bounds, batches), first):
                for start in starts:
                    yield WindowedValue(((start, shard), rows), Timestamp(time), (GlobalWindow(),))
        self._taken = {}


_PARTS_BAG: Final = BagStateSpec("parts", PickleCoder())
_BOOK: Final = ReadModifyWriteStateSpec("window", PickleCoder())
_ON_TIME, _CLOSE, _SOON = timer_specs()
_PARTS_STATE: Final = beam.DoFn.StateParam(_PARTS_BAG)
_BOOK_STATE: Final = beam.DoFn.StateParam(_BOOK)
_ON_TIME_TIMER: Final = beam.DoFn.TimerParam(_ON_TIME)
_CLOSE_TIMER: Final = beam.DoFn.TimerParam(_CLOSE)
_SOON_TIMER: Final = beam.DoFn.TimerParam(_SOON)


class _CountPanes(beam.DoFn):
    """Keeps the parts of each open window, and says all of it at the end of the window, and before and after."""

    def __init__(self, mechanism: Mechanism, timers: WindowTimers) -> None:
        self._mechanism, self._timers = mechanism, timers
        self._limit = parts_limit(mechanism)

    def process(
        self,
        element: tuple[int, Part],
        parts: Any = _PARTS_STATE,
        state: Any = _BOOK_STATE,
        on_time: Any = _ON_TIME_TIMER,
        close: Any = _CLOSE_TIMER,
        soon: Any = _SOON_TIMER,
    ) -> None:
        start, part = element
        book = state.read()
        if book is None:
            book = WindowBook()
            self._timers.open(start, on_time, close)
        parts.add(part)
        self._timers.arrived(book, soon)
        if book.pieces > self._limit:
            self._added(parts, book)
        state.write(book)

    @on_timer(_ON_TIME)  # type: ignore[untyped-decorator]  # Beam's decorator has no types
    def end(
        self,
        start: Any = beam.DoFn.KeyParam,
        parts: Any = _PARTS_STATE,
        state: Any = _BOOK_STATE,
        soon: Any = _SOON_TIMER,
    ) -> Iterator[tuple[int, Pane]]:
        """Say what the window holds when the watermark passes its end."""
        book = state.read()
        if book is None:
            return
        self._timers.ended(book, soon)
        yield self._pane(start, "on-time", parts, book)
        state.write(book)

    @on_timer(_SOON)  # type: ignore[untyped-decorator]  # Beam's decorator has no types
    def restate(
        self,
        start: Any = beam.DoFn.KeyParam,
        parts: Any = _PARTS_STATE,
        state: Any = _BOOK_STATE,
    ) -> Iterator[tuple[int, Pane]]:
        """Say what the window holds so far, or with the reports that came late."""
        book = state.read()
        if book is None or not book.waiting:  # a timer of a window that is closed, or of a pane that was overtaken
            return
        book.waiting = False
        if book.news:
            yield self._pane(start, "late" if book.ended else "early", parts, book)
        state.write(book)

    @on_timer(_CLOSE)  # type: ignore[untyped-decorator]  # Beam's decorator has no types
    def close(
        self,
        start: Any = beam.DoFn.KeyParam,
        parts: Any = _PARTS_STATE,
        state: Any = _BOOK_STATE,
        on_time: Any = _ON_TIME_TIMER,
        soon: Any = _SOON_TIMER,
    ) -> Iterator[tuple[int, Pane]]:
        """Say the last of the window, and forget it."""
        book = state.read()
        if book is None:
            return
        yield self._pane(start, "final", parts, book)
        on_time.clear()
        soon.clear()
        parts.clear()
        state.clear()

    def _pane(self, start: int, timing: str, parts: Any, book: WindowBook) -> tuple[int, Pane]:
        total = self._added(parts, book)
        book.news = False
        pane = Pane(
            start=start,
            timing=timing,
            counts=self._mechanism.zero() if total.counts is None else total.counts,
            slices=total.slices,
            repeated=total.repeated,
            met=total.met,
            private=total.private,
            memoised=total.memoised,
        )
        return start, pane

    def _added(self, parts: Any, book: WindowBook) -> Part:
        """Add the parts up, in the state too."""
        given = list(parts.read())
        total = add_parts(given)
        if len(given) > 1:
            parts.clear()
            parts.add(total)
        book.pieces = 1
        return total
