"""Vectors behind keys: each coordinate of a pair's vector becomes a pair of its own, key/coordinate and number."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from .input_columns import plain_type

__all__ = ["coordinate_pairs"]

I64 = npt.NDArray[np.int64]
Bool = npt.NDArray[np.bool_]


def coordinate_pairs(
    keys: pa.Array, vectors: pa.Array, offsets: I64 | None, coordinates: Sequence[str]
) -> tuple[I64, pa.Array, pa.Array]:
    """Return offsets, keys and values of the pairs that m pairs of a key and a vector become.

    A vector of another length is invalid in each of its coordinates (not a number), so that it is dropped and counted
    like any invalid value. A row of the pairs layout without key and vector still declares a user who holds nothing.

    Args:
        keys: texts or integers, (m,).
        vectors: lists of numbers, (m,).
        offsets: of the items of n rows, int64 (n + 1,); None where each row is one pair.
        coordinates: names of the c coordinates.

    Returns:
        Offsets int64 (n + 1,), key texts and values; c pairs for each of the m.
    """
    size, c = len(keys), len(coordinates)
    if pa.types.is_null(vectors.type):
        vectors = pa.nulls(size, pa.list_(pa.float64()))
    null = vectors.is_null().to_numpy(zero_copy_only=False)
    lengths = pc.fill_null(pc.list_value_length(vectors), 0).to_numpy(zero_copy_only=False)
    whole = ~null & (lengths == c)
    values = _values(vectors, whole, null, c)
    plain = keys.cast(plain_type(keys.type)) if plain_type(keys.type) != keys.type else keys
    owners = pa.array(np.repeat(np.arange(size), c))
    names = pa.array(list(coordinates) * size, pa.string())
    texts = pc.binary_join_element_wise(plain.cast(pa.string()).take(owners), names, "/", null_handling="emit_null")
    if offsets is not None:
        return offsets * c, texts, values
    nothing = null & keys.is_null().to_numpy(zero_copy_only=False)
    held = np.repeat(~nothing, c)
    bounds = np.concatenate([[0], np.cumsum(np.where(nothing, 0, c))]).astype(np.int64)
    return bounds, texts.filter(pa.array(held)), values.filter(pa.array(held))


def _values(vectors: pa.Array, whole: Bool, null: Bool, c: int) -> pa.Array:
    """Return the coordinates one behind the other: null where the vector is, NaN where its length is wrong."""
    kind = plain_type(vectors.type.value_type)
    numbers = vectors.filter(pa.array(whole)).flatten().cast(kind)
    invalid = pa.array(["nan"], pa.string()).cast(kind) if pa.types.is_string(kind) else pa.array([np.nan])
    if not pa.types.is_string(kind):
        numbers = numbers.cast(pa.float64())
    pool = pa.concat_arrays([numbers, invalid])
    place = np.full((len(whole), c), len(numbers), dtype=np.int64)
    place[whole] = np.arange(len(numbers)).reshape(-1, c)
    return pool.take(pa.array(place.reshape(-1), mask=np.repeat(null, c)))
