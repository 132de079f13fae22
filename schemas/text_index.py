"""From texts to their places in a fixed list, over whole arrays and without Python objects."""

from __future__ import annotations

import itertools
from typing import Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

__all__ = ["ABSENT", "TextIndex"]

#: Place of a text that is not in the list, and of null.
ABSENT: Final = -1

_WORD: Final = 8
_MULTIPLIER: Final = np.uint64(0x9E3779B97F4A7C15)
_SHIFT: Final = np.uint64(32)
#: For 0 to 8 bytes: which bits of a little-endian word they take.
_KEEP: Final = np.array([(1 << (8 * size)) - 1 for size in range(_WORD + 1)], dtype=np.uint64)

I32 = npt.NDArray[np.int32]
I64 = npt.NDArray[np.int64]
U64 = npt.NDArray[np.uint64]


class TextIndex:
    """Places of distinct texts.

    A million texts cost 12 megabytes beside the texts, and a look-up a fraction of a microsecond; a Python
    dictionary would take ten times the memory and several times as long, since each look-up misses the cache.
    """

    __slots__ = ("_deepest", "_hashes", "_places", "_seed", "_shift", "_starts", "_texts")

    def __init__(self, texts: pa.Array) -> None:
        """Index distinct texts, none of them null."""
        self._texts = texts
        # Distinct texts hardly ever share a hash; where two do, another seed parts them.
        for seed in itertools.count():
            hashes = _hash(texts, seed)
            order = np.argsort(hashes)
            hashes = hashes[order]
            if not np.any(hashes[1:] == hashes[:-1]):
                break
        self._seed, self._hashes, self._places = seed, hashes, order.astype(np.int32)
        # The first bits of a hash tell the bucket: about one text in each, and a few in the deepest one.
        bits = max(1, (len(texts) - 1).bit_length())
        self._shift = np.uint64(64 - bits)
        sizes = np.bincount((hashes >> self._shift).astype(np.int64), minlength=1 << bits)
        self._starts = np.concatenate([[0], np.cumsum(sizes)]).astype(np.int32)
        self._deepest = int(sizes.max())

    def find(self, texts: pa.Array) -> I32:
        """Return the place of each text, int32 (n,), or `ABSENT`."""
        if not len(self._places) or not len(texts):
            return np.full(len(texts), ABSENT, dtype=np.int32)
        places = self._places[self._near(_hash(texts, self._seed))]
        # Equal hashes are not yet equal texts.
        candidates = self._texts.take(pa.array(places))
        equal = pc.fill_null(pc.equal(candidates, texts), False).to_numpy(zero_copy_only=False)
        return np.where(equal, places, np.int32(ABSENT))

    def _near(self, hashes: U64) -> I64:
        """Return where each hash stands among the sorted ones, or anywhere if it does not."""
        bucket = (hashes >> self._shift).astype(np.int64)
        near = self._starts[bucket].astype(np.int64)
        last = len(self._hashes) - 1
        np.minimum(near, last, out=near)
        open_ = np.flatnonzero(self._hashes[near] != hashes)
        for _ in range(self._deepest - 1):
            if not len(open_):
                break
            near[open_] = np.minimum(near[open_] + 1, last)
            open_ = open_[self._hashes[near[open_]] != hashes[open_]]
        return near


def _hash(texts: pa.Array, seed: int) -> U64:
    """Return a 64-bit hash of each text (no keyed one: the list is public, and equality is checked)."""
    n, start = len(texts), texts.offset
    _, offsets, data = texts.buffers()
    if n == 0 or offsets is None:
        return np.empty(n, dtype=np.uint64)
    bounds = np.frombuffer(offsets, dtype=np.int32)[start : start + n + 1].astype(np.int64)
    words = _words(data, int(bounds[0]), int(bounds[-1]))
    begin, size = bounds[:-1] - bounds[0], np.diff(bounds)
    state = (size.astype(np.uint64) + np.uint64(seed + 1)) * _MULTIPLIER
    rows, depth = np.flatnonzero(size), 0
    while len(rows):
        left = np.minimum(size[rows] - depth, _WORD)
        mixed = (state[rows] ^ (words[begin[rows] + depth] & _KEEP[left])) * _MULTIPLIER
        state[rows] = mixed ^ (mixed >> _SHIFT)
        depth += _WORD
        rows = rows[size[rows] > depth]
    return state


def _words(data: pa.Buffer | None, first: int, last: int) -> U64:
    """Return a view in which word i holds the eight bytes from byte i on, zero-padded at the end."""
    padded = np.zeros(last - first + _WORD, dtype=np.uint8)
    if data is not None:
        padded[: last - first] = np.frombuffer(data, dtype=np.uint8)[first:last]
    return np.ndarray((last - first + 1,), dtype="<u8", buffer=padded.data, strides=(1,))
