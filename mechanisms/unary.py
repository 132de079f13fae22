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

from collections.abc import Sequence
from types import ModuleType
from typing import Final

import numpy as np

from . import compiled
from .data import I32, I64, U8, Bool
from .randomness import U64, BlockSource, bytes_of
from .workspace import scratch, scratch_bytes

__all__ = ["PLANES", "cell_noise", "column_sums", "row_words", "set_cells", "set_noise", "wide_rows"]

#: Planes compared for all cells. Part of the scheme: another number gives other reports.
PLANES: Final = 12

_WORD: Final = np.dtype("<u8")
_ONE: Final = np.uint64(1)
_BIT: Final = np.uint8(1)
#: Planes 1, 2, … have keys of their own; the numbers of ties have the top bit and those of a user's own blocks do not.
_TIE: Final = np.uint64(1 << 63)
#: Bytes of a plane that are drawn together: fewer would be nearer in the caches, but calls would weigh more.
_NOISE_BYTES: Final = 1 << 18
#: Bytes of a plane that are worked on together when counting.
_COUNT_BYTES: Final = 1 << 20
#: So few rows are unpacked rather than added; sums of so many bits fit a byte.
_FEW_ROWS: Final = 255


def row_words(cells: int) -> int:
    """Number of 64-bit words of a row inside."""
    return 2 * -(-cells // 128)


def _inputs(seeds: U64, words: int) -> U64:
    """Inputs of plane 0's blocks: seed XOR number of the block within the row, uint64 (n, words)."""
    if words == 2:
        return seeds
    inputs = scratch("noise_inputs", (len(seeds), words))
    # a complex number is what NumPy copies fastest of all that has 16 bytes
    inputs.view(np.complex128)[...] = np.ascontiguousarray(seeds).view(np.complex128)
    inputs ^= np.repeat(np.arange(words // 2, dtype=np.uint64), 2)
    return inputs


def cell_noise(seeds: U64, threshold: int, cells: int, source: BlockSource, planes: int = PLANES) -> tuple[U64, U64]:
    """Draw the noise of every cell of every user, and a fair sign for each.

    Args:
        seeds: uint64 (n, 2).
        threshold: a cell is set with probability threshold / 2^64, 0 < threshold < 2^64.
        cells: cells of a row.
        source: the stream's block function.
        planes: bits to compare for all cells.

    Returns:
        Cells that are set and signs, uint64 (n, row_words(cells)) each, in work arrays of this thread. Cells from
        `cells` on hold noise.
    """
    signs, room = scratch_bytes("noise_signs", (len(seeds), row_words(cells)))
    return _below(seeds, threshold, cells, source, planes, room), signs


def set_noise(seeds: U64, threshold: int, cells: int, source: BlockSource, planes: int = PLANES) -> U64:
    """Draw the same cells as `cell_noise`, without signs."""
    return _below(seeds, threshold, cells, source, planes, None)


def _below(seeds: U64, threshold: int, cells: int, source: BlockSource, planes: int, signs: memoryview | None) -> U64:
    """Return the cells whose numbers are below the threshold, and write the plane behind the last to `signs`.

    Parts of the batch whose planes stay in the cache; ties are settled together, since there are few in a part.
    """
    n, words = len(seeds), row_words(cells)
    less, step = scratch("noise_less", (n, words)), max(64, _NOISE_BYTES // (8 * words))
    places, ties = [], []
    loops = compiled.loops(n)
    for start in range(0, n, step):
        part = less[start : start + step]
        inputs = bytes_of(_inputs(seeds[start : start + step], words))
        if loops is not None:
            place, even = _compare_compiled(loops, inputs, threshold, planes, source, part)
        else:
            place, even = _compare(inputs, threshold, planes, source, part)
        places.append(place + start * words)
        ties.append(even)
        if signs is not None:  # the block of room behind is the next part's first, which is written after
            first = 8 * words * start
            source.fill_plane(planes + 1, inputs, signs[first : first + len(inputs) + 16])
    if n:
        _settle_ties(seeds, threshold, cells, source, planes, np.concatenate(places), np.concatenate(ties), less)
    return less


def _compare(inputs: memoryview, threshold: int, planes: int, source: BlockSource, less: U64) -> tuple[I64, U64]:
    """Write which cells' first bits are below the threshold's, and return words with cells that are even with it.

    A plane holds the complement of its bits, which is as uniform. Before the first bit all cells are even with the
    threshold, and until its first bit that is 1 none is below it, so that those planes need fewer operations.
    """
    (plane, plane_room), (even, even_room) = (scratch_bytes(f"noise_{name}", less.shape) for name in ("plane", "even"))
    source.fill_plane(1, inputs, even_room)
    seen = bool(threshold >> 63)
    if seen:
        less[...] = even
        np.bitwise_not(even, out=even)
    for j in range(1, planes):
        source.fill_plane(j + 1, inputs, plane_room)
        if not threshold >> (63 - j) & 1:
            np.bitwise_and(even, plane, out=even)
            continue
        found = plane if seen else less
        np.bitwise_and(even, plane, out=found)
        np.bitwise_xor(even, found, out=even)
        if seen:
            np.bitwise_or(less, found, out=less)
        seen = True
    if not seen:
        less[...] = 0
    even = even.reshape(-1)
    place = np.flatnonzero(even != 0)  # three times as fast as on the words themselves
    return place, even[place]


def _compare_compiled(
    loops: ModuleType, inputs: memoryview, threshold: int, planes: int, source: BlockSource, less: U64
) -> tuple[I64, U64]:
    """Do the same in one pass over all planes."""
    bits, room = scratch_bytes("noise_planes", (planes, less.size))
    for j in range(planes):  # the block of room behind is the next plane's first, which is written after
        source.fill_plane(j + 1, inputs, room[j * less.nbytes :])
    place, even = scratch("noise_place", (less.size,)).view(np.int64), scratch("noise_even", (less.size,))
    found = loops.compare(bits, np.uint64(threshold), less.reshape(-1), place, even)
    return place[:found], even[:found].copy()


def _settle_ties(
    seeds: U64, threshold: int, cells: int, source: BlockSource, planes: int, place: I64, left: U64, less: U64
) -> None:
    """Draw 64 bits of its own for each cell whose first bits equal the threshold's, and compare the rest.

    `place` are the words of `less` that have such cells, and `left` those cells as bits, (t,) each.
    """
    words, below = less.shape[1], less.reshape(-1)
    rest = np.uint64(threshold & ((1 << (64 - planes)) - 1))
    while len(place):  # the lowest tie of every word, then the next where there is one: hardly ever
        bit = left & -left
        user = place // words
        cell = (place - user * words << 6) + np.bitwise_count(bit - _ONE)
        blocks = np.take(seeds, user, axis=0)
        blocks ^= (cell.view(np.uint64) | _TIE)[:, None]
        source.fill(blocks, blocks)
        found = (blocks[:, 0] >> np.uint64(planes) < rest) & (cell < cells)
        below[place[found]] |= bit[found]
        left ^= bit
        more = np.flatnonzero(left)
        place, left = place[more], left[more]


def set_cells(users: I64, cells: I32, *planes: tuple[U64, Bool]) -> None:
    """Set one cell in each of the rows `users` of every plane to a value of that plane, in place.

    Args:
        users: rows, each at most once, int64 (m,).
        cells: cell of each row, int32 (m,).
        planes: rows, uint64 (n, words), with the values, bool (m,).
    """
    place = users * (8 * planes[0][0].shape[1])
    place += cells >> 3
    bit = np.left_shift(_BIT, (cells & 7).astype(np.uint8))
    others = ~bit
    for rows, values in planes:
        flat = rows.reshape(-1).view(np.uint8)
        byte = flat[place]
        byte &= others
        byte |= values.view(np.uint8) * bit
        flat[place] = byte


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


def column_sums(*planes: U64) -> I64:
    """Count the rows that have each bit set, of several planes at once.

    Args:
        planes: uint64 (n, words) each, of one shape; not changed.

    Returns:
        int64 (64 * words,) for one plane, (planes, 64 * words) for several.
    """
    n, words = planes[0].shape
    total = np.zeros((len(planes), 64 * words), dtype=np.int64)
    if (loops := compiled.loops(n)) is not None:
        for plane, sums in zip(planes, total, strict=True):
            loops.column_sums(np.ascontiguousarray(plane), sums)
        return total if len(planes) > 1 else total[0]
    step = max(64, _COUNT_BYTES // (8 * words))
    for start in range(0, n, step):
        _add_chunk([plane[start : start + step] for plane in planes], total)
    return total if len(planes) > 1 else total[0]


def _add_chunk(planes: Sequence[U64], total: I64) -> None:
    """Add three rows of one weight to one of that weight and one of twice the weight, until few are left."""
    n, words = planes[0].shape
    shape = len(planes), n, words
    # The carries of a weight are read while those of the next are written, and so are sums in turn.
    carries = scratch("sum_carries_even", shape), scratch("sum_carries_odd", shape)
    most = len(planes), n // 3 + 2, words
    turns, half = (scratch("sum_even", most), scratch("sum_odd", most)), scratch("sum_half", most)
    left: list[U64] = []
    level: Sequence[U64] | U64 = planes
    while rows := len(level[0]):
        out, filled, turn = carries[len(left) % 2], 0, 0
        while rows > _FEW_ROWS:
            third = rows // 3
            level = _full_add(level, third, turns[turn], out[:, filled : filled + third], half[:, :third])
            rows, filled, turn = rows - 2 * third, filled + third, 1 - turn
        left.append(np.stack([plane[:rows] for plane in level]))
        level = out[:, :filled]
    for weight, few in enumerate(left):
        bits = np.unpackbits(few.view(np.uint8), axis=2, bitorder="little")
        total += np.add.reduce(bits, axis=1, dtype=np.uint8).astype(np.int64) << weight


def _full_add(level: Sequence[U64] | U64, third: int, sums: U64, carry: U64, half: U64) -> U64:
    """Write the sums of `third` triples and the rows left over to `sums`, which is returned, and the carries."""
    rest = len(level[0]) - 3 * third
    if isinstance(level, np.ndarray):  # all planes in one array: fewer calls
        a, b, c = (level[:, start : start + third] for start in (0, third, 2 * third))
        _add_three(a, b, c, half, sums[:, :third], carry)
        if rest:
            sums[:, third : third + rest] = level[:, 3 * third :]
        return sums[:, : third + rest]
    for number, plane in enumerate(level):
        a, b, c = (plane[start : start + third] for start in (0, third, 2 * third))
        _add_three(a, b, c, half[number], sums[number, :third], carry[number])
        sums[number, third : third + rest] = plane[3 * third :]
    return sums[:, : third + rest]


def _add_three(a: U64, b: U64, c: U64, half: U64, sums: U64, carry: U64) -> None:
    np.bitwise_and(a, b, out=carry)
    np.bitwise_xor(a, b, out=half)
    np.bitwise_xor(half, c, out=sums)
    np.bitwise_and(half, c, out=half)
    np.bitwise_or(carry, half, out=carry)
