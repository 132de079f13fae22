"""Decoding many blocks of an Avro file side by side, a field of one record of every block at a time.

A record of Avro can only be found by reading all that come before it, but the blocks of a file are independent:
their records are read in step, one *lane* a block, with NumPy. What is found first are places; texts and numbers
are taken from there for the whole group at once. The reader is strict: whatever it does not expect raises
`Irregular`, and the caller decodes the group with fastavro, which then decides.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa

__all__ = [
    "Array",
    "Capture",
    "Field",
    "Irregular",
    "Lanes",
    "Longs",
    "Nullable",
    "Numbers",
    "Record",
    "Skipped",
    "Texts",
]

U8 = npt.NDArray[np.uint8]
U64 = npt.NDArray[np.uint64]
I64 = npt.NDArray[np.int64]

#: Bytes behind the data, so that a word may be read at every place.
_PAD: Final = 16
#: A step over all lanes takes about as long as fastavro takes for so many bytes.
_BYTES_A_STEP: Final = 50
_FEWEST_STEPS: Final = 4096
#: The value of a long of one byte; -1 or less where the byte says that more follow, or the value is negative.
_SHORT: Final = np.array([(b >> 1) ^ -(b & 1) if b < 128 else -(1 << 62) for b in range(256)], dtype=np.int64)

_SEVEN: Final = np.uint64(0x7F7F7F7F7F7F7F7F)
_MORE: Final = np.uint64(0x8080808080808080)
_ONE: Final = np.uint64(1)


class Irregular(ValueError):
    """The bytes, or their shape, are not for this reader."""


class Lanes:
    """The bytes of a group of blocks, and where each block's next record begins.

    Args:
        blocks: the decompressed bytes of each block.
        counts: the number of records of each, (lanes,).
    """

    def __init__(self, blocks: Sequence[bytes], counts: Sequence[int]) -> None:
        self.buffer = b"".join([*blocks, bytes(_PAD)])
        self.data: U8 = np.frombuffer(self.buffer, dtype=np.uint8)
        self.size = len(self.buffer) - _PAD
        self.words: U64 = np.ndarray((self.size + _PAD - 7,), dtype="<u8", buffer=self.buffer, strides=(1,))
        self._ends = np.cumsum([len(block) for block in blocks], dtype=np.int64)
        self._counts = np.array(counts, dtype=np.int64)
        self.n = int(self._counts.sum())
        if self.size >= 1 << 31 or len(counts) == 0 or min(counts) < 0 or self.n > self.size:
            raise Irregular("more records than bytes")
        self._steps = _FEWEST_STEPS + self.size // _BYTES_A_STEP

    def step(self) -> None:
        """Count one step over some lanes; blocks that are too unequal to be read side by side take too many."""
        self._steps -= 1
        if self._steps < 0:
            raise Irregular("too few blocks with something to read at a time")

    def read(self, record: Field) -> None:
        """Read all records of all lanes."""
        order = np.argsort(-self._counts, kind="stable")
        counts = self._counts[order]
        at = (self._ends - np.diff(self._ends, prepend=0))[order]
        first = (np.cumsum(self._counts) - self._counts)[order]
        active = np.searchsorted(-counts, -np.arange(int(counts[0])), side="left").tolist()
        try:
            for number, lanes in enumerate(active):
                at[:lanes] = record.read(self, at[:lanes].copy(), first[:lanes] + number)
        except IndexError as error:
            raise Irregular("a record reaches beyond the end") from error
        if not np.array_equal(at, self._ends[order]):
            raise Irregular("a block does not end with its last record")

    def longs(self, at: I64) -> tuple[I64, I64]:
        """Return the integers that stand at some places, and the places behind them."""
        self.step()
        values = _SHORT[self.data[at]]
        if int(values.min()) >= 0:
            return values, at + 1
        raw, sizes = self.varints(at)
        return _signed(raw), at + sizes

    def behind_long(self, at: I64) -> I64:
        """Return the places behind the integers that stand at some places."""
        self.step()
        stops = ~self.words[at] & _MORE
        if not stops.all():
            return at + self.varints(at)[1]
        # The lowest stop bit is bit 7 of the last byte.
        return at + (np.bitwise_count(stops ^ (stops - _ONE)) >> 3).astype(np.int64)

    def varints(self, at: I64) -> tuple[U64, I64]:
        """Return variable-length integers of up to ten bytes, and how many bytes they take."""
        words = self.words[at]
        stops = ~words & _MORE
        kept = np.where(stops == 0, ~np.uint64(0), stops ^ (stops - _ONE))
        sizes = (np.bitwise_count(kept) >> 3).astype(np.int64)
        raw = _squeezed(words & kept & _SEVEN)
        long = np.flatnonzero(stops == 0)
        if len(long):
            ninth, tenth = self.data[at[long] + 8].astype(np.uint64), self.data[at[long] + 9].astype(np.uint64)
            more = ninth >= 128
            if bool((tenth[more] > 1).any()):
                raise Irregular("an integer of more than 64 bits")
            raw[long] |= (ninth & np.uint64(127)) << np.uint64(56)
            raw[long[more]] |= tenth[more] << np.uint64(63)
            sizes[long] = 9 + more
        return raw, sizes


def _squeezed(words: U64) -> U64:
    """Put the lower seven bits of the eight bytes of each word together."""
    for bits, low in ((1, 0x007F007F007F007F), (2, 0x00003FFF00003FFF), (4, 0x000000000FFFFFFF)):
        mask = np.uint64(low)
        words = (words & mask) | ((words & ~mask) >> np.uint64(bits))
    return words


def _signed(raw: U64) -> I64:
    """Undo the zigzag."""
    return (raw >> _ONE).view(np.int64) ^ -(raw & _ONE).view(np.int64)


class Field:
    """A field of a schema, or what is inside one."""

    def read(self, lanes: Lanes, at: I64, rows: I64) -> I64:
        """Read one value in each of some lanes.

        Args:
            lanes: the group.
            at: where the values begin, int64 (m,).
            rows: numbers of the rows that they belong to, int64 (m,).

        Returns:
            The places behind them, int64 (m,).
        """
        raise NotImplementedError

    def clear(self) -> None:
        """Forget the group before."""


class Skipped(Field):
    """A value of a fixed size that nobody asked for."""

    def __init__(self, size: int) -> None:
        self._size = size

    def read(self, lanes: Lanes, at: I64, rows: I64) -> I64:
        return at + self._size


class Record(Field):
    """The fields of a record, one after the other."""

    def __init__(self, fields: Sequence[Field]) -> None:
        self._fields = [field for field in fields if not isinstance(field, Skipped) or field._size]

    def read(self, lanes: Lanes, at: I64, rows: I64) -> I64:
        for field in self._fields:
            at = field.read(lanes, at, rows)
        return at

    def clear(self) -> None:
        for field in self._fields:
            field.clear()


class Capture(Field):
    """Notes in which rows something stands, where it begins, and what else `read` finds of it."""

    #: Arrays that `read` notes in each step, the rows among them.
    notes = 2

    def clear(self) -> None:
        self._found: list[tuple[I64, ...]] = []

    def note(self, *arrays: I64) -> None:
        """Keep what was found in one step: rows first."""
        self._found.append(arrays)

    def found(self) -> tuple[I64, ...]:
        """Return what was kept, each in one array."""
        if not self._found:
            return tuple(np.empty(0, dtype=np.int64) for _ in range(self.notes))
        return tuple(np.concatenate(parts) for parts in zip(*self._found, strict=True))

    def column(self, lanes: Lanes, n: int, places: I64 | None) -> pa.Array:
        """Return the values of n rows; a row without any is null.

        Args:
            lanes: the group.
            n: number of rows.
            places: where the row of each number goes, or None where it stays.
        """
        rows, *what = self.found()
        where = rows if places is None else places[rows]
        if len(where) == n:
            order = np.empty(n, dtype=np.int64)
            order[where] = np.arange(n)
            return self.values(lanes, *(array[order] for array in what))
        index = np.full(n, -1, dtype=np.int64)
        index[where] = np.arange(len(where))
        held = index >= 0
        values = self.values(lanes, *(array[index[held]] for array in what))
        ranks = np.cumsum(held) - 1
        return values.take(pa.array(ranks, mask=~held))

    def check(self, lanes: Lanes) -> None:
        """Look at all values, although nobody wants them."""
        what = self.found()[1:]
        order = np.argsort(what[0])
        self.values(lanes, *(array[order] for array in what))

    def values(self, lanes: Lanes, *what: I64) -> pa.Array:
        """Return the values of all rows that hold one, which are given in the order of the file."""
        raise NotImplementedError


class Numbers(Capture):
    """Little-endian numbers of a fixed size, as 64-bit floats."""

    def __init__(self, kind: str) -> None:
        self._kind = np.dtype(kind)
        self.clear()

    def read(self, lanes: Lanes, at: I64, rows: I64) -> I64:
        self.note(rows, at)
        return at + self._kind.itemsize

    def values(self, lanes: Lanes, *what: I64) -> pa.Array:
        (at,) = what
        size = len(lanes.buffer) - self._kind.itemsize + 1
        everywhere = np.ndarray((size,), dtype=self._kind, buffer=lanes.buffer, strides=(1,))
        return pa.array(everywhere[at].astype(np.float64, copy=False))


class Longs(Capture):
    """Integers, and what is written as one.

    Args:
        convert: makes the column of the integers; raises `Irregular` where one of them cannot be.
    """

    def __init__(self, convert: Callable[[I64], pa.Array] = pa.array) -> None:
        self._convert = convert
        self.clear()

    def read(self, lanes: Lanes, at: I64, rows: I64) -> I64:
        self.note(rows, at)
        return lanes.behind_long(at)

    def values(self, lanes: Lanes, *what: I64) -> pa.Array:
        (at,) = what
        return self._convert(_signed(lanes.varints(at)[0]))


class Texts(Capture):
    """Texts, or bytes, with their length before them."""

    notes = 3

    def __init__(self, kind: pa.DataType) -> None:
        self._kind = kind
        self.clear()

    def read(self, lanes: Lanes, at: I64, rows: I64) -> I64:
        sizes, starts = lanes.longs(at)
        self.note(rows, starts, sizes)
        return starts + sizes

    def values(self, lanes: Lanes, *what: I64) -> pa.Array:
        starts, sizes = what
        n = len(starts)
        if n and (int(sizes.min()) < 0 or int(sizes.max()) > lanes.size):
            raise Irregular("a text of an impossible length")
        # One Arrow array over the whole group, in which every second element is what lies between two texts.
        bounds = np.empty(2 * n + 1, dtype=np.int32)
        bounds[0:-1:2], bounds[1::2] = starts, starts + sizes
        bounds[-1] = bounds[-2] if n else 0
        buffers = [None, pa.py_buffer(bounds), pa.py_buffer(lanes.buffer)]
        every = pa.Array.from_buffers(self._kind, 2 * n, buffers)
        texts = every.take(pa.array(np.arange(0, 2 * n, 2, dtype=np.int64)))
        texts.validate(full=True)  # UTF-8
        return texts


class Nullable(Field):
    """A union of null and something else.

    Args:
        something: what it is.
        index: its place in the union, 0 or 1.
    """

    def __init__(self, something: Field, index: int) -> None:
        self.something, self._index = something, index
        self.clear()

    def clear(self) -> None:
        self._held: list[I64] = []
        self.something.clear()

    def read(self, lanes: Lanes, at: I64, rows: I64) -> I64:
        branch, at = lanes.longs(at)
        if int(branch.min()) < 0 or int(branch.max()) > 1:
            raise Irregular("a union has no such branch")
        held = np.flatnonzero(branch == self._index)
        if len(held) == len(at):
            self._held.append(rows)
            return self.something.read(lanes, at, rows)
        if len(held):
            self._held.append(rows[held])
            at[held] = self.something.read(lanes, at[held], rows[held])
        return at

    def missing(self, n: int, places: I64 | None) -> npt.NDArray[np.bool_]:
        """Return which of n rows are null, bool (n,); `places` as in `Capture.column`."""
        null = np.ones(n, dtype=np.bool_)
        for rows in self._held:
            null[rows if places is None else places[rows]] = False
        return null


class Array(Field):
    """The items of a list. Items are numbered as they are read; `places` tells where each belongs."""

    def __init__(self, item: Field) -> None:
        self.item = item
        self.clear()

    def clear(self) -> None:
        self._owners: list[I64] = []
        self._ordinals: list[I64] = []
        self._items = 0
        self.item.clear()

    def read(self, lanes: Lanes, at: I64, rows: I64) -> I64:
        done = np.zeros(len(at), dtype=np.int64)
        open_ = np.arange(len(at))
        while len(open_):
            counts, behind = self._counts(lanes, at[open_])
            at[open_] = behind
            more = counts > 0
            if not more.all():
                open_, counts = open_[more], counts[more]
            for number in range(int(counts.max()) if len(open_) else 0):
                some = open_[counts > number] if number else open_
                at[some] = self._read_items(lanes, at[some], rows[some], done[some])
                done[some] += 1
        return at

    @staticmethod
    def _counts(lanes: Lanes, at: I64) -> tuple[I64, I64]:
        """Read how many items follow; a negative number is followed by their size in bytes."""
        counts, at = lanes.longs(at)
        if int(counts.min()) < 0:
            sized = np.flatnonzero(counts < 0)
            at[sized] = lanes.behind_long(at[sized])
            counts = np.abs(counts)
        if not 0 <= int(counts.min()) <= int(counts.max()) <= lanes.size:
            raise Irregular("more items than bytes")
        return counts, at

    def _read_items(self, lanes: Lanes, at: I64, owners: I64, ordinals: I64) -> I64:
        lanes.step()
        numbers = np.arange(self._items, self._items + len(at))
        self._items += len(at)
        self._owners.append(owners)
        self._ordinals.append(ordinals)
        return self.item.read(lanes, at, numbers)

    def places(self, n: int) -> tuple[npt.NDArray[np.int32], I64]:
        """Return the offsets of the lists of n rows, (n + 1,), and the place of each item in the order of the file."""
        offsets = np.zeros(n + 1, dtype=np.int64)
        if not self._owners:
            return offsets.astype(np.int32), offsets[:0]
        owners, ordinals = np.concatenate(self._owners), np.concatenate(self._ordinals)
        np.cumsum(np.bincount(owners, minlength=n), out=offsets[1:])
        return offsets.astype(np.int32), offsets[owners] + ordinals
