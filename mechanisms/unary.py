"""Unary reports as bit planes: bit-sliced noise for whole batches, and counting by carry-save addition.

Rows are kept as little-endian 64-bit words, a multiple of 128 cells wide, because 16 bytes are one block of
random bits; a report shows the first ceil(d / 8) bytes of its row.

Noise: cell c of a user is set when a uniform 64-bit number is below the threshold. Plane j holds bit j (the
most
significant first) of the numbers of all cells of all users of a batch, so that one bitwise operation compares
as many cells as a register has bits. After `PLANES` planes only one in 2^PLANES cells still ties with the
threshold; each of those draws its own 64 bits for the rest. The comparison is exact to the last bit.
"""

from __future__ import annotations

from typing import Final

import numpy as np

from .data import I64, U8, Bool
from .randomness import U64, BlockSource
from .workspace import scratch

__all__ = ["PLANES", "cell_noise", "column_sums", "row_words", "set_cells", "wide_rows"]

#: Planes compared for all cells. Part of the scheme: another number gives other reports.
PLANES: Final = 12

_WORD: Final = np.dtype("<u8")
_ALL: Final = np.uint64(0xFFFF_FFFF_FFFF_FFFF)
_ONE: Final = np.uint64(1)
#: Block numbers: the own blocks of a user lie below, one range of 2^32 for each plane, ties have the top bit.
_PLANE: Final = 32
_TIE: Final = np.uint64(1 << 63)
#: Bytes of rows that are worked on together when counting.
_COUNT_BYTES: Final = 1 << 20
#: So few rows are unpacked rather than added.
_FEW_ROWS: Final = 48


def row_words(cells: int) -> int:
    """Number of 64-bit words of a row inside."""
    return 2 * -(-cells // 128)


def _inputs(seeds: U64, words: int) -> U64:
    """Inputs of plane 0's blocks: seed XOR number of the block within the row, uint64 (n, words)."""
    n = len(seeds)
    inputs = scratch("noise_inputs", (n, words))
    for word in range(words):
        np.bitwise_xor(seeds[:, word % 2], np.uint64(word // 2), out=inputs[:, word])
    return inputs


def cell_noise(seeds: U64, threshold: int, cells: int, source: BlockSource, planes: int = PLANES) -> tuple[U64, U64]:
    """Draw the noise of every cell of every user.

    Args:
        seeds: uint64 (n, 2).
        threshold: a cell is set with probability threshold / 2^64, 0 < threshold < 2^64.
        cells: cells of a row.
        source: the stream's block function.
        planes: bits to compare for all cells.

    Returns:
        Cells that are set and a fair sign for every cell, uint64 (n, row_words(cells)) each, in work arrays
        of this thread. Cells from `cells` on hold noise.
    """
    n, words = len(seeds), row_words(cells)
    inputs = _inputs(seeds, words)
    plane, tie = scratch("noise_plane", (n, words)), scratch("noise_tie", (n, words))
    less, even = scratch("noise_less", (n, words)), scratch("noise_even", (n, words))
    less[:] = 0
    even[:] = _ALL
    for j in range(planes):
        # number of plane j: j + 1; from one to the next the inputs change by a constant
        np.bitwise_xor(inputs, np.uint64(((j + 1) ^ j) << _PLANE), out=inputs)
        source.fill(inputs, plane)
        # the plane holds the complement of bit j, which is as uniform
        np.bitwise_and(even, plane, out=tie)
        if threshold >> (63 - j) & 1:
            np.bitwise_or(less, tie, out=less)
            np.bitwise_xor(even, tie, out=even)
        else:
            even, tie = tie, even
    np.bitwise_xor(inputs, np.uint64(((planes + 1) ^ planes) << _PLANE), out=inputs)
    source.fill(inputs, plane)
    _settle_ties(seeds, threshold, cells, source, planes, even, less)
    return less, plane


def _settle_ties(
    seeds: U64, threshold: int, cells: int, source: BlockSource, planes: int, even: U64, less: U64
) -> None:
    """Draw 64 bits of its own for each cell whose first bits equal the threshold's, and compare the rest."""
    words = even.shape[1]
    flat = even.reshape(-1)
    where = np.flatnonzero(flat != 0)  # three times as fast as on the words themselves
    bits = np.unpackbits(flat[where].view(np.uint8), bitorder="little")
    found = np.flatnonzero(bits.view(np.bool_))
    row, bit = found >> 6, found & 63
    word = where[row]
    user = word // words
    cell = (word - user * words) * 64 + bit
    inside = cell < cells
    word, user, cell, bit = word[inside], user[inside], cell[inside], bit[inside]
    if not len(word):
        return
    blocks = seeds[user] ^ (cell.astype(np.uint64) | _TIE)[:, None]
    source.fill(blocks, blocks)
    below = blocks[:, 0] >> np.uint64(planes) < np.uint64(threshold & ((1 << (64 - planes)) - 1))
    np.bitwise_or.at(less.reshape(-1), word[below], _ONE << bit[below].astype(np.uint64))


def set_cells(rows: U64, users: I64, cells: I64, values: Bool) -> None:
    """Set one cell in each of the rows `users` to `values`, in place."""
    words = rows.shape[1]
    flat = rows.reshape(-1)
    place = users * words
    place += cells >> 6
    shift = (cells & 63).view(np.uint64)
    word = flat[place]
    word &= ~(_ONE << shift)
    word |= values.astype(np.uint64) << shift
    flat[place] = word


def wide_rows(plane: U8, cells: int) -> U64:
    """Return the rows of a report's plane as words; what lies beyond the cells is not specified.

    Args:
        plane: uint8 (n, ceil(cells / 8)); a view of wide rows is taken as it stands, others are copied.
        cells: cells of a row.

    Returns:
        uint64 (n, row_words(cells)), not to be written to.
    """
    n, words = len(plane), row_words(cells)
    base = plane.base
    if (
        isinstance(base, np.ndarray)
        and n > 1
        and base.flags.c_contiguous
        and plane.strides == (8 * words, 1)
        and _within(base, plane, n * words * 8)
    ):
        wide: U8 = np.lib.stride_tricks.as_strided(plane, shape=(n, 8 * words), strides=(8 * words, 1), writeable=False)
        return wide.view(_WORD)
    copy = np.zeros((n, 8 * words), dtype=np.uint8)
    copy[:, : plane.shape[1]] = plane
    return copy.view(_WORD)


def _within(base: np.ndarray[tuple[int, ...], np.dtype[np.generic]], plane: U8, size: int) -> bool:
    """Whether `size` bytes from the start of `plane` belong to `base` and are aligned."""
    start = plane.__array_interface__["data"][0]
    first = base.__array_interface__["data"][0]
    return bool(first <= start and start + size <= first + base.nbytes and start % 8 == 0)


def column_sums(rows: U64) -> I64:
    """Count the rows that have each bit set.

    Args:
        rows: uint64 (n, words), not changed.

    Returns:
        int64 (64 * words,).
    """
    n, words = rows.shape
    total = np.zeros(64 * words, dtype=np.int64)
    step = max(64, _COUNT_BYTES // (8 * words))
    for start in range(0, n, step):
        _add_chunk(rows[start : start + step], total)
    return total


def _add_chunk(level: U64, total: I64) -> None:
    """Add three rows of one weight to one of that weight and one of twice the weight, until few are left."""
    n, words = level.shape
    # The carries of a weight are read while those of the next are written.
    carries = scratch("sum_carries_even", (n, words)), scratch("sum_carries_odd", (n, words))
    weight = 0
    while len(level):
        out = carries[weight % 2]
        filled = turn = 0
        while len(level) > _FEW_ROWS:
            third = len(level) // 3
            level = _full_add(level, third, out[filled : filled + third], f"sum_turn_{turn % 2}")
            filled += third
            turn += 1
        bits = np.unpackbits(np.ascontiguousarray(level).view(np.uint8), axis=1, bitorder="little")
        total += bits.sum(axis=0, dtype=np.int64) << weight
        level = out[:filled]
        weight += 1


def _full_add(level: U64, third: int, carry: U64, place: str) -> U64:
    """Return the sums of `third` triples and the rows left over, in array `place`; write the carries."""
    words = level.shape[1]
    a, b, c = level[:third], level[third : 2 * third], level[2 * third : 3 * third]
    rest = level[3 * third :]
    sums, half = scratch(place, (third + len(rest), words)), scratch("sum_half", (third, words))
    np.bitwise_and(a, b, out=carry)
    np.bitwise_xor(a, b, out=half)
    np.bitwise_xor(half, c, out=sums[:third])
    np.bitwise_and(half, c, out=half)
    np.bitwise_or(carry, half, out=carry)
    sums[third:] = rest
    return sums
