"""Loops over users that Numba compiles. Imported by `compiled` alone, which says when.

Each does in one pass, without the interpreter's lock, what NumPy does in several; the NumPy code beside the caller is
the description, and tests hold the two together bit by bit. Types are declared, so that everything is compiled when
this module is imported and nothing later; the machine code is kept on disk.
"""

from __future__ import annotations

from typing import Any, Final

import numpy as np
from numba import boolean, int8, int32, int64, njit, types, uint32, uint64, void

from .data import VALUE_ONE

__all__ = ["column_sums", "compare", "digits", "draw", "fates", "one_pair", "others", "pick", "split", "tally"]

_OPTIONS: Final = {"nogil": True, "cache": True, "boundscheck": False, "error_model": "numpy"}


def _of(kind: Any, dimensions: int) -> Any:
    """Type of an array that is read."""
    return types.Array(kind, dimensions, "C", readonly=True)


def _to(kind: Any, dimensions: int) -> Any:
    """Type of an array that is written to."""
    return types.Array(kind, dimensions, "C")


_ONE: Final = np.uint64(1)
_HALF: Final = np.uint64(32)
_LOW: Final = np.uint64(0xFFFFFFFF)
#: A word's upper bits decide a value's sign with the resolution of the values.
_VALUE_SHIFT: Final = np.uint64(64 - 41)
_VALUE_ONE: Final = np.int64(VALUE_ONE)


@njit(inline="always")
def _mulhi(word: Any, bound: Any) -> Any:
    """High 64 bits of a product."""
    high, low, high_bound, low_bound = word >> _HALF, word & _LOW, bound >> _HALF, bound & _LOW
    middle = high * low_bound + (low * low_bound >> _HALF)
    other = low * high_bound + (middle & _LOW)
    return high * high_bound + (middle >> _HALF) + (other >> _HALF)


# -- ids ------------------------------------------------------------------------------------------------------


@njit(inline="always")
def _four_digits(value: Any) -> Any:
    """Digits of an integer below 10,000 with leading zeros, the first in the lowest byte: halves, then fourths."""
    upper = uint32(value * uint32(10486)) >> uint32(20)
    halves = upper | uint32(value - upper * uint32(100)) << uint32(16)
    upper = (uint32(halves * uint32(103)) >> uint32(10)) & uint32(0x000F000F)
    return upper | uint32(halves - upper * uint32(10)) << uint32(8)


@njit(inline="always")
def _ten_thousands(value: Any) -> Any:
    """How many tens of thousands an integer below 10^8 has."""
    return uint32(uint64(value) * uint64(109951163) >> uint64(40))


@njit(void(_of(int64, 1), _of(uint32, 2), _of(int64, 1), _to(uint32, 2)), **_OPTIONS)
def digits(values: Any, first: Any, powers: Any, out: Any) -> None:
    """Write decimal digits, left-justified, XOR the row of `first` of their number.

    Args:
        values: integers below 10^16, int64 (n,).
        first: uint32 (17, 4).
        powers: of ten, int64 (17,).
        out: uint32 (n, 4).
    """
    step = 512
    uppers, lowers = np.empty(step, np.uint32), np.empty(step, np.uint32)
    for start in range(0, len(values), step):
        part, rows = values[start : start + step], out[start : start + step]
        least = most = part[0]
        for value in part:
            least, most = min(least, value), max(most, value)
        count, longest = 1, 1
        while least >= powers[count]:
            count += 1
        while most >= powers[longest]:
            longest += 1
        if longest == count and count <= 8:  # the usual case: short loops without branches, many values at a time
            power, first_0, first_1 = uint32(powers[8 - count]), first[count, 0], first[count, 1]
            first_2, first_3 = first[count, 2], first[count, 3]
            for i in range(len(part)):
                eight = uint32(uint32(part[i]) * power)
                upper = _ten_thousands(eight)
                uppers[i], lowers[i] = upper, uint32(eight - upper * uint32(10_000))
            for i in range(step):
                uppers[i], lowers[i] = _four_digits(uppers[i]) ^ first_0, _four_digits(lowers[i]) ^ first_1
            for i in range(len(part)):
                rows[i, 0], rows[i, 1], rows[i, 2], rows[i, 3] = uppers[i], lowers[i], first_2, first_3
            continue
        for i in range(len(part)):
            count = 1
            while part[i] >= powers[count]:
                count += 1
            value = uint64(part[i]) * uint64(powers[16 - count])
            high = value // uint64(100_000_000)
            for place, half in enumerate((high, value - high * uint64(100_000_000))):
                upper = _ten_thousands(half)
                rows[i, 2 * place] = _four_digits(upper) ^ first[count, 2 * place]
                lower = uint32(half - upper * uint64(10_000))
                rows[i, 2 * place + 1] = _four_digits(lower) ^ first[count, 2 * place + 1]


# -- unary reports --------------------------------------------------------------------------------------------


@njit(int64(_of(uint64, 2), uint64, _to(uint64, 1), _to(int64, 1), _to(uint64, 1)), **_OPTIONS)
def compare(planes: Any, threshold: Any, less: Any, places: Any, ties: Any) -> Any:
    """Compare cells' bits with the threshold's; see `unary._compare`.

    Args:
        planes: complements of the bits, the most significant plane first, uint64 (planes, n).
        threshold: of 64 bits.
        less: gets the cells that are below, uint64 (n,).
        places: gets the words that have cells even with the threshold, int64 (n,).
        ties: gets those cells, uint64 (n,).

    Returns:
        Number of such words.
    """
    step, found = 512, 0
    room = np.empty(step, np.uint64)
    for start in range(0, len(less), step):
        size = min(step, len(less) - start)
        below, even, plane = less[start : start + size], room[:size], planes[0, start : start + size]
        if threshold >> uint64(63) & _ONE:
            for i in range(size):
                below[i] = plane[i]
                even[i] = ~plane[i]
        else:
            for i in range(size):
                below[i] = 0
                even[i] = plane[i]
        for j in range(1, len(planes)):
            plane = planes[j, start : start + size]
            if threshold >> uint64(63 - j) & _ONE:
                for i in range(size):
                    here = even[i] & plane[i]
                    below[i] |= here
                    even[i] ^= here
            else:
                for i in range(size):
                    even[i] &= plane[i]
        for i in range(size):
            if even[i]:
                places[found], ties[found] = start + i, even[i]
                found += 1
    return found


@njit(
    void(
        *(_of(uint64, 2), _of(uint64, 2), _of(int32, 1), _of(boolean, 1), _of(boolean, 1), _of(boolean, 1)),
        *(int64, _to(uint64, 2), _to(uint64, 2)),
    ),
    **_OPTIONS,
)
def split(
    cells: Any, signs: Any, key: Any, real: Any, kept: Any, positive: Any, keys: Any, plus: Any, minus: Any
) -> None:
    """Write the planes of PCKV-UE; see `PCKVUE._perturb_chunk`.

    Args:
        cells: noise, uint64 (n, words).
        signs: of the noise, alike.
        key: sampled keys, int32 (n,).
        real: whether there is one, bool (n,); (0,) if all have one.
        kept: whether it is reported, bool (n,).
        positive: with which sign, bool (n,).
        keys: number of keys; behind their cells all others are cleared in their last word.
        plus: uint64 (n, words).
        minus: alike.
    """
    n, words = cells.shape
    mask = (_ONE << uint64(keys % 64)) - _ONE
    flat_cells, flat_signs, flat_plus, flat_minus = cells.ravel(), signs.ravel(), plus.ravel(), minus.ravel()
    step = max(1, 2048 // words)
    for start in range(0, n, step):
        stop = min(n, start + step)
        for j in range(start * words, stop * words):
            shown = flat_cells[j]
            up = shown & flat_signs[j]
            flat_plus[j], flat_minus[j] = up, shown ^ up
        for i in range(start, stop):  # no branches, which nobody can predict
            j, place = i * words + (key[i] >> 6), uint64(key[i] & 63)
            own = uint64(not len(real) or real[i]) << place
            up, down = uint64(kept[i] & positive[i]) << place, uint64(kept[i] & ~positive[i]) << place
            flat_plus[j] = flat_plus[j] & ~own | up & own
            flat_minus[j] = flat_minus[j] & ~own | down & own
        if keys % 64:
            for j in range(start * words + keys // 64, stop * words, words):
                flat_plus[j] &= mask
                flat_minus[j] &= mask


@njit(inline="always")
def _add_three(a: Any, b: Any, c: Any) -> Any:
    half = a ^ b
    return half ^ c, a & b | half & c


@njit(inline="always")
def _add_eight(rows: Any, first: Any, w: Any, ones: Any, twos: Any, fours: Any) -> Any:
    ones, two_a = _add_three(ones, rows[first, w], rows[first + 1, w])
    ones, two_b = _add_three(ones, rows[first + 2, w], rows[first + 3, w])
    twos, four_a = _add_three(twos, two_a, two_b)
    ones, two_a = _add_three(ones, rows[first + 4, w], rows[first + 5, w])
    ones, two_b = _add_three(ones, rows[first + 6, w], rows[first + 7, w])
    twos, four_b = _add_three(twos, two_a, two_b)
    fours, eight = _add_three(fours, four_a, four_b)
    return ones, twos, fours, eight


@njit(inline="always")
def _add_sixteen(rows: Any, first: Any, state: Any, out: Any) -> None:
    """Add sixteen rows to sums of weight 1, 2, 4, 8 (`state`), and write the carries of weight 16."""
    for w in range(rows.shape[1]):
        ones, twos, fours, eight_a = _add_eight(rows, first, w, state[0, w], state[1, w], state[2, w])
        ones, twos, fours, eight_b = _add_eight(rows, first + 8, w, ones, twos, fours)
        state[0, w], state[1, w], state[2, w] = ones, twos, fours
        state[3, w], out[w] = _add_three(state[3, w], eight_a, eight_b)


@njit(void(_of(uint64, 2), _to(int64, 1)), **_OPTIONS)
def column_sums(rows: Any, total: Any) -> None:
    """Add to `total` how many rows have each bit set: carry-save addition by sixteens.

    Args:
        rows: uint64 (n, words), below 2^40 rows.
        total: int64 (64 * words,).
    """
    n, words = rows.shape
    low, high = np.zeros((4, words), np.uint64), np.zeros((4, words), np.uint64)
    sixteens, top, carry = (
        np.zeros((16, words), np.uint64),
        np.zeros((33, words), np.uint64),
        np.zeros(words, np.uint64),
    )
    filled = 0
    for start in range(0, n - 15, 16):
        _add_sixteen(rows, start, low, sixteens[filled])
        filled += 1
        if filled == 16:
            filled = 0
            _add_sixteen(sixteens, 0, high, carry)
            for w in range(words):
                up, k = carry[w], 0
                while up:
                    both = top[k, w] & up
                    top[k, w] ^= up
                    up = both
                    k += 1
    for w in range(words):
        for b in range(64):
            at, found = uint64(b), int64(0)
            for k in range(32):
                found += int64(top[k, w] >> at & _ONE) << (8 + k)
            for k in range(4):
                found += (int64(high[k, w] >> at & _ONE) << (4 + k)) + (int64(low[k, w] >> at & _ONE) << k)
            for k in range(filled):
                found += int64(sixteens[k, w] >> at & _ONE) << 4
            for r in range(n - n % 16, n):
                found += int64(rows[r, w] >> at & _ONE)
            total[64 * w + b] += found


# -- one pair a user ------------------------------------------------------------------------------------------


@njit(
    void(
        *(_of(int64, 1), _of(int32, 1), _of(int64, 1), _of(uint64, 2), uint64),
        *(_to(int32, 1), _to(int64, 1), _to(boolean, 1)),
    ),
    **_OPTIONS,
)
def pick(offsets: Any, keys: Any, values: Any, block: Any, padding: Any, key: Any, value: Any, real: Any) -> None:
    """Draw each user's slot with the first word of a block; see `sampling._pick`. A dummy has key 0 and value 0."""
    for i in range(len(key)):
        first = offsets[i]
        size = uint64(offsets[i + 1] - first)
        slot = _mulhi(block[i, 0], max(size, padding))
        real[i] = slot < size
        if slot < size:
            key[i], value[i] = keys[first + int64(slot)], values[first + int64(slot)]
        else:
            key[i], value[i] = 0, 0


@njit(
    void(_of(int64, 1), _of(uint64, 2), uint64, uint64, *(_to(boolean, 1) for _ in range(3))),
    **_OPTIONS,
)
def fates(value: Any, block: Any, same: Any, kept_below: Any, kept: Any, plus: Any, coin: Any) -> None:
    """Decide each sampled pair's fate and sign; see `sampling.sample`."""
    for i in range(len(kept)):
        sign, fate = block[i, 0], block[i, 1]
        kept[i] = fate < kept_below
        plus[i] = (int64(sign >> _VALUE_SHIFT) < value[i] + _VALUE_ONE) ^ (fate >= same)
        coin[i] = sign & _ONE != 0


@njit(
    void(
        *(_of(int32, 1), _of(boolean, 1), _of(boolean, 1), _of(boolean, 1), _of(boolean, 1), _of(uint64, 2), uint64),
        *(int32, _to(int32, 1), _to(int8, 1)),
    ),
    **_OPTIONS,
)
def others(
    key: Any, real: Any, kept: Any, plus: Any, coin: Any, block: Any, number: Any, keys: Any, out: Any, sign: Any
) -> None:
    """Write the key and sign that PCKV-GRR reports; see `PCKVGRR._perturb_chunk`. `real` is (0,) if all are real."""
    for i in range(len(out)):
        own = key[i] if not len(real) or real[i] else int32(number)
        drawn = int32(_mulhi(block[i, 1], number))
        drawn += drawn >= own
        out[i] = min(own if kept[i] else drawn, keys)
        sign[i] = 2 * (plus[i] if kept[i] else coin[i]) - 1


@njit(
    void(
        *(_of(int32, 1), _of(int64, 1), _of(uint64, 3), uint64, uint64, uint64, int32),
        *(_to(int32, 1), _to(int8, 1)),
    ),
    **_OPTIONS,
)
def one_pair(
    key: Any, value: Any, blocks: Any, same: Any, kept_below: Any, number: Any, keys: Any, out: Any, sign: Any
) -> None:
    """Do what `fates` and `others` do, at once, where everybody has one pair and no choice."""
    for i in range(len(out)):
        coins, fate, own = blocks[0, i, 0], blocks[0, i, 1], key[i]
        drawn = int32(_mulhi(blocks[1, i, 1], number))
        drawn += drawn >= own
        kept = fate < kept_below
        plus = (int64(coins >> _VALUE_SHIFT) < value[i] + _VALUE_ONE) ^ (fate >= same)
        out[i] = min(own if kept else drawn, keys)
        sign[i] = 2 * (plus if kept else coins & _ONE != 0) - 1


@njit(void(_of(int32, 1), _of(int8, 1), _to(int64, 1), _to(int64, 1)), **_OPTIONS)
def tally(key: Any, sign: Any, positive: Any, negative: Any) -> None:
    """Add to the counts of positive and negative signs of every key; other keys count nowhere."""
    keys = len(positive)
    for i in range(len(key)):
        if key[i] < keys:
            up = int64(sign[i] > 0)
            positive[key[i]] += up
            negative[key[i]] += 1 - up


@njit(void(_of(int32, 1), _of(uint64, 2), uint64, uint64, _to(int32, 1)), **_OPTIONS)
def draw(own: Any, block: Any, number: Any, kept_below: Any, out: Any) -> None:
    """Write the own symbol or one of `number` others; see `grr._OneSymbol._respond`."""
    for i in range(len(out)):
        drawn = int32(_mulhi(block[i, 0], number))
        drawn += drawn >= own[i]
        out[i] = own[i] if block[i, 1] < kept_below else drawn
