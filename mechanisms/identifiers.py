"""Decimal texts of integer user ids, over whole arrays."""

from __future__ import annotations

from typing import Final

import numpy as np
import numpy.typing as npt

from .data import I64, U8

__all__ = ["MAX_DIGITS", "TENS", "decimal_digits", "digit_counts", "texts_of"]

#: Integers of more digits take the way through Python texts.
MAX_DIGITS: Final = 16

_TEN_THOUSAND: Final = np.uint32(10_000)
#: Powers of ten: a number times the right one has its digits at the left of eight or sixteen places.
TENS: Final = 10 ** np.arange(MAX_DIGITS + 1, dtype=np.int64)
_NOTHING: Final = np.zeros(2, dtype="<u8")


def _four_digits() -> npt.NDArray[np.uint32]:
    """Table of the four digits of 0 to 9,999, the first digit in the lowest byte."""
    number = np.arange(10_000, dtype=np.uint32)
    table = np.zeros(10_000, dtype="<u4")
    for place, power in enumerate((1000, 100, 10, 1)):
        table |= (number // np.uint32(power) % np.uint32(10)) << np.uint32(8 * place)
    return table


_FOUR_DIGITS: Final = _four_digits()


def _eight_digits(values: npt.NDArray[np.uint32], out: npt.NDArray[np.uint32], start: npt.NDArray[np.uint32]) -> None:
    """Write the digits of integers below 10^8 with leading zeros, four to a word, (n, 2), XOR `start`, (2,)."""
    upper = values // _TEN_THOUSAND
    out[:, 0] = np.take(_FOUR_DIGITS ^ start[0], upper)
    out[:, 1] = np.take(_FOUR_DIGITS ^ start[1], values - upper * _TEN_THOUSAND)


def digit_counts(values: I64) -> I64 | int:
    """Return the number of digits of each of n > 0 non-negative integers, or one number where all have as many."""
    shortest, longest = len(str(int(values.min()))), len(str(int(values.max())))
    if shortest == longest:
        return shortest
    lengths = np.full(len(values), shortest, dtype=np.uint8)
    for digits in range(shortest, longest):
        lengths += values >= 10**digits
    return lengths.astype(np.int64)


def decimal_digits(
    values: I64, lengths: I64 | int, out: npt.NDArray[np.uint64], start: npt.NDArray[np.uint64] = _NOTHING
) -> None:
    """Write the digits (as numbers 0 to 9) of non-negative integers, left-justified and zero-padded.

    Args:
        values: integers below 10^16, (n,), n > 0.
        lengths: their numbers of digits, see `digit_counts`.
        out: uint64 (n, 2), contiguous and little-endian: 16 bytes of digits a row.
        start: words that the digits are joined with by XOR, uint64 (2,).
    """
    words, first = out.view("<u4"), start.view("<u4")
    if int(np.max(lengths)) <= 8:  # half the bytes, and division by multiplication in registers
        spread = values.astype(np.uint32) * TENS[8 - lengths].astype(np.uint32)
        _eight_digits(spread, words[:, :2], first[:2])
        out[:, 1] = start[1]
        return
    long = values * TENS[MAX_DIGITS - lengths]
    upper = long // 10**8
    _eight_digits(upper.astype(np.uint32), words[:, :2], first[:2])
    _eight_digits((long - upper * 10**8).astype(np.uint32), words[:, 2:], first[2:])


def texts_of(values: npt.NDArray[np.integer]) -> tuple[I64, U8]:
    """Return integers as decimal texts, one behind the other: offsets (n + 1,) and bytes."""
    texts = [str(value) for value in values.tolist()]
    offsets = np.zeros(len(texts) + 1, dtype=np.int64)
    np.cumsum([len(text) for text in texts], out=offsets[1:])
    return offsets, np.frombuffer("".join(texts).encode("ascii"), dtype=np.uint8)
