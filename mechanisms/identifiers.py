"""Decimal texts of integer user ids, over whole arrays."""

from __future__ import annotations

from typing import Final

import numpy as np
import numpy.typing as npt

from .data import I64, U8

__all__ = ["MAX_DIGITS", "decimal_digits", "texts_of"]

#: Integers of more digits take the way through Python texts.
MAX_DIGITS: Final = 16

_TEN_THOUSAND: Final = 10_000


def _four_digits() -> npt.NDArray[np.uint64]:
    """Table of the four digits of 0 to 9,999, the first digit in the lowest byte."""
    number = np.arange(_TEN_THOUSAND, dtype=np.uint64)
    table = np.zeros(_TEN_THOUSAND, dtype=np.uint64)
    for place, power in enumerate((1000, 100, 10, 1)):
        table |= (number // np.uint64(power) % np.uint64(10)) << np.uint64(8 * place)
    return table


_FOUR_DIGITS: Final = _four_digits()


def _eight_digits(values: I64) -> npt.NDArray[np.uint64]:
    """Digits of integers below 10^8, the first digit in the lowest byte, with leading zeros."""
    short = values.astype(np.uint32)  # half the bytes, and division by multiplication in registers
    upper = short // np.uint32(_TEN_THOUSAND)
    short -= upper * np.uint32(_TEN_THOUSAND)
    digits: npt.NDArray[np.uint64] = np.take(_FOUR_DIGITS, short)
    digits <<= np.uint64(32)
    digits |= np.take(_FOUR_DIGITS, upper)
    return digits


def _lengths(values: I64) -> I64 | int:
    """Numbers of digits; one figure where all agree."""
    shortest, longest = len(str(int(values.min()))), len(str(int(values.max())))
    if shortest == longest:
        return shortest
    lengths = np.full(len(values), shortest, dtype=np.uint8)
    for digits in range(shortest, longest):
        lengths += values >= 10**digits
    return lengths.astype(np.int64)


def decimal_digits(values: I64, out: npt.NDArray[np.uint64]) -> I64 | int:
    """Write the digits (as numbers 0 to 9) of non-negative integers, left-justified and zero-padded.

    Args:
        values: integers below 10^16, (n,), n > 0.
        out: uint64 (n, 2), little-endian: 16 bytes of digits a row.

    Returns:
        Numbers of digits, (n,), or one number where all rows have as many.
    """
    lengths = _lengths(values)
    if int(np.max(lengths)) <= 8:
        digits = _eight_digits(values)
        if not isinstance(lengths, int) or lengths < 8:
            digits >>= np.asarray(8 * (8 - lengths), dtype=np.uint64)
        out[:, 0] = digits
        out[:, 1] = 0
        return lengths
    upper = values // 10**8
    high, low = _eight_digits(upper), _eight_digits(values - upper * 10**8)
    drop = np.asarray(8 * (MAX_DIGITS - lengths), dtype=np.int64)
    within = np.asarray(np.minimum(drop, 56), dtype=np.uint64)
    beyond = np.asarray(np.maximum(drop - 64, 0), dtype=np.uint64)
    long = drop < 64
    # A shift by 64 is undefined, hence in two steps.
    joined = (high >> within) | ((low << np.uint64(1)) << (np.uint64(63) - within))
    out[:, 0] = np.where(long, joined, low >> beyond)
    out[:, 1] = np.where(long, low >> within, 0)
    return lengths


def texts_of(values: npt.NDArray[np.integer]) -> tuple[I64, U8]:
    """Return integers as decimal texts, one behind the other: offsets (n + 1,) and bytes."""
    texts = [str(value) for value in values.tolist()]
    offsets = np.zeros(len(texts) + 1, dtype=np.int64)
    np.cumsum([len(text) for text in texts], out=offsets[1:])
    return offsets, np.frombuffer("".join(texts).encode("ascii"), dtype=np.uint8)
