"""Estimates per declared key, and for no other key: what an analyst reads."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from .reports import FileHeader

__all__ = ["FREQUENCY_COLUMNS", "MEAN_COLUMNS", "estimates_schema", "estimates_table"]

FREQUENCY_COLUMNS = ("frequency", "frequency_se", "frequency_low", "frequency_high", "frequency_raw")
MEAN_COLUMNS = ("mean", "mean_se", "mean_low", "mean_high", "mean_raw")


def estimates_schema(
    *,
    has_values: bool,
    support: tuple[str, ...],
    has_frequency: bool = True,
    further: tuple[str, ...] = (),
    labels: tuple[str, ...] = (),
    header: FileHeader | None = None,
) -> pa.Schema:
    """Arrow schema of estimates files.

    Args:
        has_values: whether there are mean columns.
        support: names of the counts behind an estimate, e.g. ("n1", "n2").
        has_frequency: whether there are frequency columns.
        further: names of more figures, e.g. ("p50", "minimum").
        labels: names of texts that say what a key belongs to, e.g. ("attribute",).
        header: metadata to attach.
    """
    figures = (FREQUENCY_COLUMNS if has_frequency else ()) + (MEAN_COLUMNS if has_values else ()) + further
    fields = [pa.field(name, pa.string(), nullable=False) for name in ("key", *labels)]
    fields += [pa.field(name, pa.float64()) for name in figures]
    fields += [pa.field(name, pa.int64(), nullable=False) for name in (*support, "n")]
    fields.append(pa.field("flags", pa.list_(pa.field("item", pa.string(), nullable=False)), nullable=False))
    return pa.schema(fields, metadata=None if header is None else dict(header.metadata()))


def estimates_table(
    keys: pa.Array,
    figures: Mapping[str, npt.NDArray[np.float64]],
    support: Mapping[str, npt.NDArray[np.int64]],
    n: int,
    flags: Mapping[str, npt.NDArray[np.bool_]],
    schema: pa.Schema,
    labels: Mapping[str, Sequence[str]] | None = None,
) -> pa.RecordBatch:
    """Lay estimates out as one row a key, in the order of the key domain.

    Args:
        keys: key texts, d of them.
        figures: float64 (d,) by column name; NaN becomes null.
        support: int64 (d,) by count name.
        n: reports that were counted.
        flags: bool (d,) by flag name.
        schema: result of `estimates_schema`.
        labels: d texts by column name.
    """
    size = len(keys)
    columns: list[pa.Array] = []
    for name in schema.names:
        if name == "key":
            columns.append(keys)
        elif labels is not None and name in labels:
            columns.append(pa.array(labels[name], pa.string()))
        elif name == "n":
            columns.append(pa.array(np.full(size, n, dtype=np.int64)))
        elif name == "flags":
            columns.append(_flag_lists(flags, size, schema.field("flags").type))
        elif name in support:
            columns.append(pa.array(np.asarray(support[name], dtype=np.int64)))
        else:
            columns.append(pa.array(figures[name], from_pandas=True))
    return pa.RecordBatch.from_arrays(columns, schema=schema)


def _flag_lists(flags: Mapping[str, npt.NDArray[np.bool_]], size: int, kind: pa.DataType) -> pa.Array:
    names = sorted(flags)
    if not names:
        return pa.ListArray.from_arrays(pa.array(np.zeros(size + 1, np.int32)), pa.array([], pa.string()), type=kind)
    table = np.stack([flags[name] for name in names], axis=1)  # (d, number of flags)
    offsets = np.zeros(size + 1, dtype=np.int32)
    np.cumsum(table.sum(axis=1), out=offsets[1:])
    which = np.nonzero(table)[1]
    texts = pa.array(names, pa.string()).take(pa.array(which))
    return pa.ListArray.from_arrays(pa.array(offsets), texts, type=kind)
