"""Several columns of one row a user, read as the items of her record: column=value, or all of them joined."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from .input_columns import plain_type

__all__ = ["attribute_items"]

I64 = npt.NDArray[np.int64]


def attribute_items(columns: Sequence[pa.Array], names: Sequence[str], *, composite: bool) -> tuple[I64, pa.Array]:
    """Return offsets and keys of the items of n rows.

    Args:
        columns: one array of texts or integers for each attribute, (n,) each.
        names: names of the attributes.
        composite: one item a row, of all attributes, where none is null; else an item for each that is not null.

    Returns:
        Offsets int64 (n + 1,) and key texts.
    """
    texts = [
        pc.binary_join_element_wise(name, _text(column), "=", null_handling="emit_null")
        for name, column in zip(names, columns, strict=True)
    ]
    if composite:
        texts = [pc.binary_join_element_wise(*texts, ",", null_handling="emit_null")]
    n = len(texts[0])
    held = np.stack([text.is_valid().to_numpy(zero_copy_only=False) for text in texts], axis=1)
    offsets = np.zeros(n + 1, dtype=np.int64)
    np.cumsum(held.sum(axis=1), out=offsets[1:])
    # row by row: the texts stand column by column
    order = np.arange(len(texts) * n).reshape(len(texts), n).T[held]
    return offsets, pa.concat_arrays(texts).take(pa.array(order))


def _text(column: pa.Array) -> pa.Array:
    kind = plain_type(column.type)
    plain = column.cast(kind) if kind != column.type else column
    return plain.cast(pa.string())
