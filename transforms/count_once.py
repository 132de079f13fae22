"""Each id once in a stream: reports with ids → what they add to the counts of their window, without repeated ones.

    gate → rows of a window, by the first bits of their ids → what each of these shards adds → windows

A window's reports are kept in sixteen shards, so that several workers share them. Arriving reports are counted and put
aside; of a shard is then read back only the first eight bytes of each id, unless two of them are equal: only then the
reports themselves are, and those under such ids looked at. What a shard tells is the difference to what it told before,
so that parts of windows add up as they do without ids.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any, Final

import apache_beam as beam
import numpy as np
import numpy.typing as npt
import pyarrow as pa
from apache_beam.coders import PickleCoder
from apache_beam.transforms.userstate import BagStateSpec, ReadModifyWriteStateSpec, on_timer

from ..mechanisms import Counts, Mechanism
from ..schemas.reports import REPORT_ID, REPORT_ID_BYTES
from .batches import batch_to_reports
from .collection import Collection
from .count import add_counts
from .count_distinct import distinct_reports, id_bytes
from .window_parts import Part, add_parts, cells_bytes, difference
from .window_timers import WindowBook, WindowTimers, timer_specs

__all__ = ["SHARDS", "CountOnce", "Rows", "by_shard", "shard_bounds", "shard_rows"]

#: Reports of a window are kept by the first four bits of their ids; ids are uniform, so that the shards are alike.
SHARDS: Final = 16
_SHIFT: Final = 4
#: Pieces of a shard's state after which it is looked through; then at twice as many, and so on.
_PIECES: Final = 64
#: Rows of a piece that is large enough to stay as it is, and the share of repeated rows that may stay.
_LARGE_PIECE: Final = 4096
_MAY_STAY: Final = 0.25
#: Bytes of a mechanism's counts beyond which reports are counted when they are told of, not for each piece.
_SMALL_COUNTS: Final = 1 << 15
#: Bits of a number by which it is looked up first: a table that stays in the processor's cache.
_FLAG_BITS: Final = 19
_SLICE: Final = "slice"


@dataclass(frozen=True, kw_only=True)
class Rows:
    """Reports of one slice and shard, as the bytes of their columns: small to pickle, and quick.

    Attributes:
        time: start of the slice.
        n: how many.
        columns: by name, as in a record batch.
        met: how many different slices the stream had met so far.
        private: False as soon as a report's randomness came from a seed.
        memoised: whether an unchanged record repeats its report in every slice.
    """

    time: int
    n: int
    columns: Mapping[str, bytes]
    met: int = 0
    private: bool = True
    memoised: bool = False

    def batch(self, schema: pa.Schema) -> pa.RecordBatch:
        """Return the reports as a batch."""
        arrays = [
            pa.Array.from_buffers(field.type, self.n, [None, pa.py_buffer(self.columns[field.name])])
            for field in schema
        ]
        return pa.RecordBatch.from_arrays(arrays, schema=schema)

    def starts_of_ids(self) -> npt.NDArray[np.uint64]:
        """Return the first eight bytes of each id."""
        return np.frombuffer(self.columns[REPORT_ID], dtype="<u8")[:: REPORT_ID_BYTES // 8]


@dataclass(frozen=True)
class _Seen:
    """What of a piece is read back: its counts, and where its ids begin (8 bytes a report)."""

    part: Part
    ids: bytes


# -- before the window ----------------------------------------------------------------------------------------


def by_shard(batch: pa.RecordBatch) -> pa.RecordBatch:
    """Return the reports of a batch in the order of their shards."""
    order = np.argsort(_shards(batch), kind="stable")
    return batch.take(pa.array(order)).replace_schema_metadata(batch.schema.metadata)


def shard_bounds(batch: pa.RecordBatch) -> list[int]:
    """Return where each shard begins in a batch that `by_shard` gave, and where the last one ends."""
    bounds = np.searchsorted(_shards(batch), np.arange(SHARDS + 1, dtype=np.uint8))
    return [int(bound) for bound in bounds]


def _shards(batch: pa.RecordBatch) -> npt.NDArray[np.uint8]:
    return np.right_shift(id_bytes(batch)[:, 0], _SHIFT, dtype=np.uint8)


def shard_rows(
    batches: Iterable[pa.RecordBatch], bounds: Iterable[list[int]], first: Rows
) -> Iterator[tuple[int, Rows]]:
    """Put the reports of several batches together, shard by shard; empty shards are left out.

    Args:
        batches: what `by_shard` gave.
        bounds: of each, see `shard_bounds`.
        first: what is said of all of them.
    """
    given = list(zip(batches, bounds, strict=True))
    for shard in range(SHARDS):
        n = sum(ends[shard + 1] - ends[shard] for _, ends in given)
        if n:
            columns = {
                name: b"".join(_bytes(batch.column(name), ends[shard], ends[shard + 1]) for batch, ends in given)
                for name in given[0][0].schema.names
            }
            yield shard, replace(first, n=n, columns=columns)


def _bytes(column: pa.Array, begin: int, end: int) -> memoryview:
    width = column.type.bit_width // 8
    return memoryview(column.buffers()[1])[(column.offset + begin) * width : (column.offset + end) * width]


# -- in the window --------------------------------------------------------------------------------------------


_SEEN: Final = BagStateSpec("seen", PickleCoder())
_ROWS: Final = BagStateSpec("rows", PickleCoder())
_BOOK: Final = ReadModifyWriteStateSpec("shard", PickleCoder())
_TOLD: Final = ReadModifyWriteStateSpec("told", PickleCoder())
_ON_TIME, _CLOSE, _SOON = timer_specs()
_SEEN_STATE: Final = beam.DoFn.StateParam(_SEEN)
_ROWS_STATE: Final = beam.DoFn.StateParam(_ROWS)
_BOOK_STATE: Final = beam.DoFn.StateParam(_BOOK)
_TOLD_STATE: Final = beam.DoFn.StateParam(_TOLD)
_ON_TIME_TIMER: Final = beam.DoFn.TimerParam(_ON_TIME)
_CLOSE_TIMER: Final = beam.DoFn.TimerParam(_CLOSE)
_SOON_TIMER: Final = beam.DoFn.TimerParam(_SOON)

Key = tuple[int, int]


@dataclass
class _Book(WindowBook):
    """What is known of a shard beside its reports.

    Attributes:
        looked: how many pieces there were when it was last looked through.
    """

    looked: int = 0


class CountOnce(beam.DoFn):
    """((start of a window, shard), `Rows`) → (start of the window, `Part` that its new reports add to it).

    Args:
        collection: what is collected.
        timers: when a shard is told of.
    """

    def __init__(self, collection: Collection, timers: WindowTimers) -> None:
        self._shard = ShardReader(collection.mechanism, collection.report_schema())
        self._timers = timers

    def process(
        self,
        element: tuple[Key, Rows],
        seen: Any = _SEEN_STATE,
        kept: Any = _ROWS_STATE,
        state: Any = _BOOK_STATE,
        on_time: Any = _ON_TIME_TIMER,
        close: Any = _CLOSE_TIMER,
        soon: Any = _SOON_TIMER,
    ) -> None:
        (start, _), rows = element
        book = state.read()
        if book is None:
            book = _Book()
            self._timers.open(start, on_time, close)
        seen.add(self._shard.seen(rows))
        kept.add(rows)
        self._timers.arrived(book, soon)
        if book.pieces >= 2 * book.looked + _PIECES:
            book.pieces = book.looked = self._shard.look_through(seen, kept)
        state.write(book)

    @on_timer(_ON_TIME)  # type: ignore[untyped-decorator]  # Beam's decorator has no types
    def end(
        self,
        key: Any = beam.DoFn.KeyParam,
        seen: Any = _SEEN_STATE,
        kept: Any = _ROWS_STATE,
        state: Any = _BOOK_STATE,
        told: Any = _TOLD_STATE,
        soon: Any = _SOON_TIMER,
    ) -> Iterator[tuple[int, Part]]:
        """Tell what the shard holds when the watermark passes the end of the window."""
        book = state.read()
        if book is None:
            return
        self._timers.ended(book, soon)
        yield from self._news(key[0], book, seen, kept, told)
        state.write(book)

    @on_timer(_SOON)  # type: ignore[untyped-decorator]  # Beam's decorator has no types
    def tell(
        self,
        key: Any = beam.DoFn.KeyParam,
        seen: Any = _SEEN_STATE,
        kept: Any = _ROWS_STATE,
        state: Any = _BOOK_STATE,
        told: Any = _TOLD_STATE,
    ) -> Iterator[tuple[int, Part]]:
        """Tell what came since the last time."""
        book = state.read()
        if book is None or not book.waiting:  # a timer of a window that is closed, or that was overtaken
            return
        yield from self._news(key[0], book, seen, kept, told)
        state.write(book)

    @on_timer(_CLOSE)  # type: ignore[untyped-decorator]  # Beam's decorator has no types
    def close(
        self,
        key: Any = beam.DoFn.KeyParam,
        seen: Any = _SEEN_STATE,
        kept: Any = _ROWS_STATE,
        state: Any = _BOOK_STATE,
        told: Any = _TOLD_STATE,
        on_time: Any = _ON_TIME_TIMER,
        soon: Any = _SOON_TIMER,
    ) -> Iterator[tuple[int, Part]]:
        """Tell the last of the shard, and forget it."""
        book = state.read()
        if book is None:
            return
        yield from self._news(key[0], book, seen, kept, told)
        on_time.clear()
        soon.clear()
        for one in (seen, kept, state, told):
            one.clear()

    def _news(self, start: int, book: _Book, seen: Any, kept: Any, told: Any) -> Iterator[tuple[int, Part]]:
        book.waiting = False
        if book.news:
            total, before = self._shard.total(seen, kept), told.read() or Part()
            told.write(total)
            book.news = False
            yield start, difference(total, before)


class ShardReader:
    """Counts what the state of a shard holds, each id once.

    Of several valid reports with one id the one is counted that `distinct_reports` keeps, whatever their order.

    Args:
        mechanism: of the collection.
        schema: columns of the reports.
    """

    def __init__(self, mechanism: Mechanism, schema: pa.Schema) -> None:
        self._mechanism, self._schema = mechanism, schema.remove_metadata()
        self._when_told = cells_bytes(mechanism) > _SMALL_COUNTS

    def seen(self, rows: Rows) -> _Seen:
        """Return what is read back of some reports."""
        part = Part(
            counts=None if self._when_told else self._count(rows.batch(self._schema)),
            slices={rows.time: rows.n},
            met=rows.met,
            private=rows.private,
            memoised=rows.memoised,
        )
        return _Seen(part, rows.starts_of_ids().tobytes())

    def total(self, seen: Any, kept: Any) -> Part:
        """Return the counts of a shard."""
        total, ids = _together(seen)
        again, _ = _repeated(ids)
        if not len(again) and not self._when_told:
            return total
        rows = list(kept.read())
        if self._when_told:
            total = replace(total, counts=add_counts(self._count(one.batch(self._schema)) for one in rows))
        gone, _ = self._left_out(rows, again)
        return add_parts([total, gone])

    def look_through(self, seen: Any, kept: Any) -> int:
        """Put small pieces together, and leave out what is repeated if it is much; return the number of pieces."""
        found = list(seen.read())
        total, ids = _together(found)
        again, repeated = _repeated(ids)
        if len(ids) >= _LARGE_PIECE * len(found) and repeated <= _MAY_STAY * len(ids):
            return len(found)
        given = list(kept.read())
        gone, left = self._left_out(given, again)
        total = add_parts([total, gone])
        once = (_rows_where(rows, ~_among(rows.starts_of_ids(), again), self._schema) for rows in given)
        rows = list(_by_slice(pa.concat_batches([*once, left])))
        seen.clear()
        kept.clear()
        seen.add(_Seen(total, b"".join(one.starts_of_ids().tobytes() for one in rows)))
        for one in rows:
            kept.add(one)
        return len(rows)

    def _left_out(self, rows: list[Rows], again: npt.NDArray[np.uint64]) -> tuple[Part, pa.RecordBatch]:
        """Return what takes repeated reports out of the counts, and the reports that are left of their ids.

        Args:
            rows: all reports.
            again: where ids begin that may be there more than once, sorted.
        """
        asked = [_rows_where(one, _among(one.starts_of_ids(), again), self._schema) for one in rows]
        whole = pa.concat_batches(asked)
        left, repeated = distinct_reports(self._mechanism, whole)
        return difference(self._part(left, repeated), self._part(whole, 0)), left

    def _part(self, batch: pa.RecordBatch, repeated: int) -> Part:
        times, n = np.unique(batch.column(_SLICE).to_numpy(), return_counts=True)
        counts = None if not batch.num_rows else self._count(batch)
        return Part(counts=counts, slices=dict(zip(times.tolist(), n.tolist(), strict=True)), repeated=repeated)

    def _count(self, batch: pa.RecordBatch) -> Counts:
        return self._mechanism.count(batch_to_reports(batch, self._mechanism.layout()))


def _together(seen: Any) -> tuple[Part, npt.NDArray[np.uint64]]:
    """Return the counts of all pieces, every delivery counted, and where their ids begin."""
    found: list[_Seen] = list(seen if isinstance(seen, list) else seen.read())
    return add_parts(one.part for one in found), np.frombuffer(b"".join(one.ids for one in found), dtype="<u8")


def _repeated(ids: npt.NDArray[np.uint64]) -> tuple[npt.NDArray[np.uint64], int]:
    """Return the numbers that are there more than once, sorted, and how many would have to go."""
    sorted_ = np.sort(ids)
    again = sorted_[1:][sorted_[1:] == sorted_[:-1]]
    new = np.ones(len(again), dtype=np.bool_)
    new[1:] = again[1:] != again[:-1]  # far quicker than `np.unique`, which does not know that they are sorted
    return again[new], len(again)


def _among(ids: npt.NDArray[np.uint64], again: npt.NDArray[np.uint64]) -> npt.NDArray[np.bool_]:
    """Return which numbers are among sorted ones; few are looked for, since most differ in their last bits already."""
    found = np.zeros(len(ids), dtype=np.bool_)
    if len(again):
        flags = np.zeros(1 << _FLAG_BITS, dtype=np.bool_)
        last = np.uint64(len(flags) - 1)
        flags[again & last] = True
        maybe = np.flatnonzero(flags[ids & last])
        places = np.minimum(np.searchsorted(again, ids[maybe]), len(again) - 1)
        found[maybe] = again[places] == ids[maybe]
    return found


def _rows_where(rows: Rows, keep: npt.NDArray[np.bool_], schema: pa.Schema) -> pa.RecordBatch:
    """Return some of the reports, with the slice as their last column."""
    batch = rows.batch(schema).filter(pa.array(keep))
    times = pa.array(np.full(batch.num_rows, rows.time, dtype=np.int64))
    return pa.RecordBatch.from_arrays([*batch.columns, times], schema=schema.append(pa.field(_SLICE, pa.int64())))


def _by_slice(batch: pa.RecordBatch) -> Iterator[Rows]:
    """Put reports together again, slice by slice."""
    times = batch.column(_SLICE).to_numpy()
    names = [name for name in batch.schema.names if name != _SLICE]
    for time in np.unique(times).tolist():
        one = batch.filter(pa.array(times == time))
        columns = {name: bytes(_bytes(one.column(name), 0, one.num_rows)) for name in names}
        yield Rows(time=time, n=one.num_rows, columns=columns)
