"""Values, times and user ids of raw columns as NumPy arrays, alike for every type that files may use."""

from __future__ import annotations

from datetime import UTC, datetime

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from ..errors import InputError
from ..mechanisms import UserDigests
from .input_columns import is_number, is_text, plain_type

__all__ = ["NO_TIME", "digest_users", "microseconds", "null_mask", "numbers"]

#: The time of a row without a readable one: earlier than all.
NO_TIME = np.iinfo(np.int64).min

_NUMBER = r"^-?([0-9]+(\.[0-9]*)?|\.[0-9]+)([eE][+-]?[0-9]+)?$"

F64 = npt.NDArray[np.float64]
I64 = npt.NDArray[np.int64]
Bool = npt.NDArray[np.bool_]


def null_mask(column: pa.Array) -> Bool | None:
    """Return where a column is null, bool (n,); None where it is nowhere."""
    if pa.types.is_dictionary(column.type) and column.dictionary.null_count:
        column = column.dictionary_decode()
    if not column.null_count:
        return None
    mask: Bool = pc.is_null(column).to_numpy(zero_copy_only=False)
    return mask


def _plain(column: pa.Array) -> pa.Array:
    if pa.types.is_dictionary(column.type):
        column = column.dictionary_decode()
    if is_text(column.type) and not pa.types.is_string(column.type):
        # Batches are far below the two gigabytes that 32-bit offsets can address.
        column = pc.cast(column, pa.string())
    return column


def digest_users(users: pa.Array, digests: UserDigests, *, where: str) -> npt.NDArray[np.uint8]:
    """Digest user ids as text, without a copy a row.

    Args:
        users: n ids without nulls: text or integers.
        digests: the keyed hash.
        where: how messages call the column.

    Returns:
        uint8 (n, 16).

    Raises:
        InputError: The column is of a type that ids cannot have.
    """
    users = _plain(users)
    if pa.types.is_null(users.type):
        return np.empty((0, 16), dtype=np.uint8)
    if pa.types.is_integer(users.type):
        return digests.integers(users.to_numpy(zero_copy_only=False))
    if not pa.types.is_string(users.type):
        raise InputError(f"{where} is of type {users.type}; user ids must be text or integers.")
    n, start = len(users), users.offset
    _, offsets, data = users.buffers()
    if offsets is None or n == 0:
        return np.empty((0, 16), dtype=np.uint8)
    bounds = np.frombuffer(offsets, dtype=np.int32)[start : start + n + 1]
    text = np.frombuffer(data, dtype=np.uint8) if data is not None else np.empty(0, dtype=np.uint8)
    return digests.text(bounds, text)


def numbers(column: pa.Array, *, where: str) -> F64:
    """Return values as floats; null, and text that is no number, become NaN.

    Text is read as decimal numbers with an optional fraction and exponent, blanks around it ignored.

    Args:
        column: n numbers of any type, or text.
        where: how messages call the column.

    Returns:
        float64 (n,); infinite where the file says so or the number is too large.

    Raises:
        InputError: The column is of a type that values cannot have (boolean, date, …).
    """
    kind = plain_type(column.type)
    if pa.types.is_null(kind):
        return np.full(len(column), np.nan)
    if not (is_number(kind) or is_text(kind)):
        raise InputError(f"{where} is of type {kind}; values must be numbers, or text that holds numbers.")
    column = _plain(column)
    if is_text(column.type):
        column = _parse(column)
    if not pa.types.is_float64(column.type):
        column = pc.cast(column, pa.float64(), safe=False)
    result: F64 = column.to_numpy(zero_copy_only=False)
    return result


def _parse(texts: pa.Array) -> pa.Array:
    try:
        return pc.cast(texts, pa.float64())
    except pa.ArrowInvalid:
        texts = pc.ascii_trim_whitespace(texts)
        known = pc.match_substring_regex(texts, _NUMBER)
        return pc.cast(pc.if_else(known, texts, "nan"), pa.float64())


def microseconds(column: pa.Array) -> I64:
    """Return times as microseconds since 1970 in UTC; a time without a zone means UTC.

    Integers are taken as they are. Text is read as ISO 8601.

    Args:
        column: n times.

    Returns:
        int64 (n,), `NO_TIME` where a time is null or unreadable.
    """
    column = _plain(column)
    if pa.types.is_null(column.type):
        return np.full(len(column), NO_TIME, dtype=np.int64)
    if is_text(column.type):
        return np.array([_iso(text) for text in column.to_pylist()], dtype=np.int64)
    if pa.types.is_date(column.type):
        column = pc.cast(column, pa.timestamp("us"))
    elif pa.types.is_timestamp(column.type):
        column = pc.cast(column, pa.timestamp("us", tz=column.type.tz), safe=False)
    whole = pc.fill_null(pc.cast(column, pa.int64(), safe=False), NO_TIME)
    times: I64 = whole.to_numpy(zero_copy_only=False)
    return times


def _iso(text: str | None) -> int:
    if text is None:
        return NO_TIME
    try:
        time = datetime.fromisoformat(text.strip())
    except ValueError:
        return NO_TIME
    if time.tzinfo is None:
        time = time.replace(tzinfo=UTC)
    since = time - datetime(1970, 1, 1, tzinfo=UTC)
    return (since.days * 86_400 + since.seconds) * 1_000_000 + since.microseconds
