"""The clients of a stream, simulated: unbounded raw records → one report a user and slice. Client side only.

A user is perturbed once a slice, when the watermark has passed the slice's end and her record of it is complete. A
record that comes later is counted as late and never reported on: a second report of the same slice would cost epsilon
again. Whatever pane, engine or retry asks, the report of a user and slice is the same one, since its random bits are a
function of secret, slice, user and record.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final, Protocol

import apache_beam as beam
import numpy as np
import numpy.typing as npt
import pyarrow as pa
from apache_beam.coders import BytesCoder, PickleCoder
from apache_beam.metrics import Metrics
from apache_beam.transforms.timeutil import TimeDomain
from apache_beam.transforms.userstate import BagStateSpec, ReadModifyWriteStateSpec, TimerSpec, on_timer
from apache_beam.transforms.window import TimestampedValue
from apache_beam.utils.timestamp import Timestamp

from ..errors import InputError, NotAvailableError
from ..mechanisms import AutoPadding, MultiRound, Records, Secret
from ..schemas.event_time import time_text
from ..schemas.event_windows import Windows
from ..schemas.records import Columns
from ..schemas.tally import REJECTED_ROWS, ROWS_READ, ROWS_WITHOUT_USER, UNREADABLE_TIMES, USERS, Tally
from .batches import batch_to_reports
from .collection import Collection
from .gate import ASIDE, GATE_KEY, TIMED_BATCH, Gate, milliseconds
from .input_columns import columns_of
from .inputs import FileSlice
from .memo import Memo
from .perturb import PerturbRecords
from .prepare import PairRows, Preparer
from .raw_columns import NO_TIME, microseconds
from .record_batches import records_to_batch
from .record_files import raw_batch
from .report_digest import digest_reports
from .set_aside import SetAside, replace_file

__all__ = ["LATE_RECORDS", "Clients", "KeepTally", "ReportSlices", "SliceCharge", "slice_period"]

#: Reason for which records are counted as late.
LATE_RECORDS: Final = "late_records"

_TALLY: Final = "tally"
_ROWS: Final = b"ldp_beam.raw_rows"
_GATE_DELAY: Final = 1
_PERTURB_DELAY: Final = 2
_USERS_OUT: Final = 1 << 15


class SliceCharge(Protocol):
    """Charges a slice to a ledger: reserved before its first report is made, settled before one leaves."""

    def reserve(self, period: str) -> int:
        """Reserve the epsilon of a slice and return the entry's number; raises where the budget does not allow it."""

    def settle(self, entry: int, *, reports: int, digest: int) -> None:
        """Charge for the reports that were made."""


@dataclass(frozen=True, kw_only=True, repr=False)
class Clients:
    """What the clients of a stream know.

    Attributes:
        secret: their secret.
        period: what the user named this stream; part of every slice's label.
        columns: names of the columns of raw records.
        memo: memoised collection, or None.
        charge: charges each slice, or None.
        shards: parts of the users that are perturbed apart; 1 where slices are charged.
    """

    secret: Secret
    period: str = ""
    columns: Columns = field(default_factory=Columns)
    memo: Memo | None = None
    charge: SliceCharge | None = None
    shards: int = 1


def slice_period(period: str, start: int) -> str:
    """Return the name of a slice as a period of its own: another slice gives fresh, independent reports."""
    return f"{period} {time_text(start)}".strip()


class ReportSlices(beam.PTransform):
    """Record batches of raw records with event times → record batches of reports, at the start of their slice.

    The event time of a row stands in the column of times, where the batch has it, and is the batch's timestamp else.

    Privacy:
        Each report satisfies the collection's epsilon for the user's record of one slice. A user who takes part in k
        slices spends k times epsilon, however many windows the server counts a report in.

    Args:
        collection: what is collected.
        clients: secret, columns, ledger.
        windows: windows of the server; a slice is as long as one slide.
        tally_to: file that takes the exact tallies of the raw data, which belong to the client side.

    Returns (from `expand`): a tuple (reports, `SetAside`s).

    Raises:
        NotAvailableError: The collection asks several questions of a user.
    """

    def __init__(self, collection: Collection, clients: Clients, windows: Windows, *, tally_to: str) -> None:
        super().__init__()
        if isinstance(collection.mechanism, AutoPadding):
            raise NotAvailableError.of(
                'stream with padding = "auto"', instead="Use the resolved definition, which holds a number."
            )
        if isinstance(collection.mechanism, MultiRound):
            raise NotAvailableError.of(
                f"stream with {collection.definition.mechanism}, which asks in rounds,",
                instead="Collect each period with `ldp-beam collect`.",
            )
        if collection.definition.tags:
            raise NotAvailableError.of("stream with sensitive keys of each user", instead="Use `ldp-beam collect`.")
        # nobody is asked in a slice that no window counts: she would spend epsilon for nothing
        slices = Windows(size=windows.slice, slide=max(windows.slide if windows.slices == 1 else 0, windows.slice))
        self._prepare = _Prepare(collection, clients, slices)
        self._gate = _RecordsGate(slices, clients.shards)
        self._perturb = _PerturbSlices(collection, clients, slices)
        self._tally_to = tally_to

    def expand(
        self, raw: beam.PCollection[pa.RecordBatch]
    ) -> tuple[beam.PCollection[pa.RecordBatch], beam.PCollection[SetAside]]:
        prepare = beam.ParDo(self._prepare).with_outputs(ASIDE, _TALLY, main="rows")
        prepared = raw | "Prepare" >> prepare
        prepared.rows.element_type = TIMED_BATCH  # (key, (start of a slice, packed rows of user and pair))
        rows, late = prepared.rows | "Gate" >> beam.ParDo(self._gate).with_outputs(ASIDE, main="rows")
        rows.element_type = beam.typehints.KV[tuple[int, int], bytes]  # ((start of a slice, shard of users), rows)
        perturb = beam.ParDo(self._perturb).with_outputs(_TALLY, main="reports")
        reports, users = rows | "Perturb" >> perturb
        reports.element_type = pa.RecordBatch
        prepared[_TALLY].element_type = users.element_type = Tally
        prepared[ASIDE].element_type = late.element_type = SetAside
        (prepared[_TALLY], users) | "Tallies" >> beam.Flatten() | "KeepTally" >> KeepTally(self._tally_to)
        return reports, (prepared[ASIDE], late) | "Aside" >> beam.Flatten()


class _Prepare(beam.DoFn):
    """Validates rows and packs those of each slice."""

    def __init__(self, collection: Collection, clients: Clients, slices: Windows) -> None:
        definition = collection.definition
        self._columns = columns_of(definition, clients.columns)
        self._preparer = Preparer(definition, clients.secret.users(), self._columns)
        self._slices, self._has_values = slices, definition.has_values
        self._read = Metrics.counter("ldp_beam", "rows_read")
        self._rejected = Metrics.counter("ldp_beam", "rows_rejected")

    def process(self, element: pa.RecordBatch, timestamp: Any = beam.DoFn.TimestampParam) -> Iterator[Any]:
        seconds = self._seconds(element, int(timestamp.micros))
        timeless = seconds == NO_TIME
        tally = Tally()
        if timeless.any():
            missing = int(np.count_nonzero(timeless))
            tally += Tally({ROWS_READ: missing, UNREADABLE_TIMES: missing, REJECTED_ROWS: missing})
            yield beam.pvalue.TaggedOutput(ASIDE, SetAside(UNREADABLE_TIMES, missing, None))
        starts = seconds - seconds % self._slices.size
        for start in np.unique(starts[~timeless]).tolist():
            part = element.filter(pa.array((starts == start) & ~timeless))
            rows, counted, _ = self._preparer.prepare_pairs(raw_batch(self._slice(part), self._columns, part, 1))
            tally += counted
            if rows.n:
                yield GATE_KEY, (start, _packed(rows, part.num_rows - counted[ROWS_WITHOUT_USER]))
        self._read.inc(tally[ROWS_READ])
        self._rejected.inc(tally[REJECTED_ROWS])
        yield beam.pvalue.TaggedOutput(_TALLY, tally)

    def _seconds(self, batch: pa.RecordBatch, timestamp: int) -> npt.NDArray[np.int64]:
        """Return the event times of the rows in whole seconds."""
        if self._columns.time not in batch.schema.names:
            return np.full(batch.num_rows, timestamp // 1_000_000, dtype=np.int64)
        times = microseconds(batch.column(self._columns.time))
        return np.where(times == NO_TIME, NO_TIME, times // 1_000_000)

    def _slice(self, batch: pa.RecordBatch) -> FileSlice:
        names = batch.schema.names
        layout = "nested" if self._columns.items in names or self._columns.attributes else "pairs"
        needed = [self._columns.user, self._columns.items if layout == "nested" else self._columns.key]
        missing = [name for name in needed if name not in names]
        if missing and not self._columns.attributes:
            raise InputError(f"A batch of records has no column {missing[0]!r}; it has {', '.join(names)}.")
        return FileSlice(
            path="the stream",
            format="parquet",
            layout=layout,  # type: ignore[arg-type]  # a literal
            has_values=self._has_values,
            with_times=self._preparer.latest,
        )


def _packed(rows: PairRows, raw_rows: int) -> pa.RecordBatch:
    """Return rows as a batch of one column of bytes, which knows how many raw rows it comes from."""
    packed = rows.packed()
    kind = pa.binary(packed.dtype.itemsize)
    column = pa.Array.from_buffers(kind, len(packed), [None, pa.py_buffer(packed.tobytes())])
    schema = pa.schema([pa.field("row", kind)], metadata={_ROWS: str(raw_rows)})
    return pa.RecordBatch.from_arrays([column], schema=schema)


class _RecordsGate(Gate):
    """Passes rows of open slices on, by shard of users."""

    too_late = LATE_RECORDS

    def __init__(self, slices: Windows, shards: int) -> None:
        super().__init__(slices, _GATE_DELAY)
        self._shards = shards

    def aside(self, reason: str, time: int, batch: pa.RecordBatch, missed: int = 0) -> SetAside:
        """Count raw rows that do not pass; raw data are not kept."""
        return SetAside(reason, int(batch.schema.metadata[_ROWS]), time)

    def take(self, time: int, batch: pa.RecordBatch, starts: tuple[int, ...], met: int) -> Iterator[Any]:
        width = batch.column(0).type.byte_width
        data = np.frombuffer(batch.column(0).buffers()[1], dtype=np.uint8)
        offset = batch.column(0).offset
        rows = data[offset * width : (offset + batch.num_rows) * width].reshape(-1, width)
        shards = rows[:, 0] % np.uint8(self._shards)
        for shard in np.unique(shards).tolist():
            yield (time, shard), rows[shards == shard].tobytes()


_OVER: Final = TimerSpec("over", TimeDomain.WATERMARK)
_ROWS_STATE: Final = beam.DoFn.StateParam(BagStateSpec("rows", BytesCoder()))
_OVER_TIMER: Final = beam.DoFn.TimerParam(_OVER)


class _PerturbSlices(beam.DoFn):
    """Keeps the rows of each open slice and shard of users, and perturbs its users when the slice is over."""

    def __init__(self, collection: Collection, clients: Clients, slices: Windows) -> None:
        self._collection, self._clients, self._slices = collection, clients, slices
        self._preparer = Preparer(collection.definition, clients.secret.users(), clients.columns)
        self._sent = Metrics.counter("ldp_beam", "reports_sent")

    def process(
        self,
        element: tuple[tuple[int, int], bytes],
        rows: Any = _ROWS_STATE,
        over: Any = _OVER_TIMER,
    ) -> None:
        rows.add(element[1])
        over.set(milliseconds(self._slices.end(element[0][0]), _PERTURB_DELAY))

    @on_timer(_OVER)  # type: ignore[untyped-decorator]  # Beam's decorator has no types
    def perturb(self, key: Any = beam.DoFn.KeyParam, rows: Any = _ROWS_STATE) -> Iterator[Any]:
        """Perturb the users of a slice and shard, and forget their records."""
        start = key[0]
        packed = [np.frombuffer(part, dtype=self._preparer.row_dtype) for part in rows.read()]
        rows.clear()
        if not packed:
            return
        records, tally = self._preparer.merge_pairs(PairRows.unpacked(np.concatenate(packed)))
        batches = self._reports(start, records)
        if self._clients.charge is not None:
            batches = iter(self._charged(self._clients.charge, start, batches))
        time = Timestamp(start)
        for batch in batches:
            self._sent.inc(batch.num_rows)
            yield TimestampedValue(batch, time)
        yield beam.pvalue.TaggedOutput(_TALLY, TimestampedValue(tally, time))

    def _reports(self, start: int, records: Records) -> Iterator[pa.RecordBatch]:
        """Yield the reports of a slice, with the header that they would have in a file."""
        clients = self._clients
        step = PerturbRecords(
            self._collection, clients.secret, period=slice_period(clients.period, start), memo=clients.memo
        )
        header = self._collection.header(
            "reports",
            period=clients.period,
            private=clients.secret.private,
            memoised=clients.memo is not None,
            window_start=time_text(start),
            window_seconds=self._slices.size,
        ).metadata()
        for chunk in records.chunks(_USERS_OUT):
            for batch in step.perturb(records_to_batch(chunk)):
                yield batch.replace_schema_metadata(header)

    def _charged(self, charge: SliceCharge, start: int, batches: Iterable[pa.RecordBatch]) -> list[pa.RecordBatch]:
        """Make all reports of a slice between reservation and settlement."""
        entry = charge.reserve(slice_period(self._clients.period, start))
        made = list(batches)
        layout = self._collection.mechanism.layout()
        digest = sum(digest_reports(batch_to_reports(batch, layout)) for batch in made) % (1 << 128)
        charge.settle(entry, reports=sum(batch.num_rows for batch in made), digest=digest)
        return made


# -- tallies ------------------------------------------------------------------------------------------------------


class KeepTally(beam.PTransform):
    """`Tally`s → their sum so far in one JSON file, which is always whole."""

    def __init__(self, path: str) -> None:
        super().__init__()
        self._path = path

    def expand(self, tallies: beam.PCollection[Tally]) -> beam.PCollection[int]:
        return (
            tallies
            | "Together" >> beam.Map(lambda tally: (GATE_KEY, tally)).with_output_types(beam.typehints.KV[int, Tally])
            | "Add" >> beam.ParDo(_AddTallies(self._path)).with_output_types(int)
        )


_TOTAL_STATE: Final = beam.DoFn.StateParam(ReadModifyWriteStateSpec("total", PickleCoder()))


class _AddTallies(beam.DoFn):
    def __init__(self, path: str) -> None:
        self._path = Path(path)

    def process(self, element: tuple[int, Tally], state: Any = _TOTAL_STATE) -> Iterator[int]:
        total = (state.read() or Tally()) + element[1]
        state.write(total)
        replace_file(self._path, json.dumps(dict(total)).encode())
        yield total[USERS]
