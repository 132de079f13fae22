"""The files and batches of true records. Client side only: nothing that counts or publishes may use this.

Raw records lie in one of two layouts. *Nested*: one row a user, with a list of items. *Pairs*: one row a
user and key; a row without a key declares a user who holds nothing. Canonical records are what the client
stages pass on: digested users with sorted, distinct key indices and fixed-point values.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import pyarrow as pa

__all__ = ["Columns", "Layout", "canonical_schema", "nested_schema", "pairs_schema"]

Layout = Literal["nested", "pairs"]

_TIME = pa.timestamp("us", tz="UTC")


@dataclass(frozen=True, kw_only=True)
class Columns:
    """Names of the columns of raw records.

    Attributes:
        user: user id, text or integer.
        key: key, text or integer; a column in the pairs layout, a field of an item in the nested one.
        value: value, likewise.
        items: list of items, in the nested layout.
        time: time of the row, optional.
        tag: why the key is sensitive to the user, beside the key, in collections with tags.
        attributes: columns that are the record of a row's user, in collections of attributes, instead of items.
        composite: whether all attributes of a row are one item together.
        coordinates: names of the coordinates where values are vectors, lists of so many numbers.
    """

    user: str = "user_id"
    key: str = "key"
    value: str = "value"
    items: str = "items"
    time: str = "timestamp"
    tag: str = "tag"
    attributes: tuple[str, ...] = ()
    composite: bool = False
    coordinates: tuple[str, ...] = ()


def nested_schema(
    *, has_values: bool = True, with_time: bool = False, has_tags: bool = False, columns: Columns | None = None
) -> pa.Schema:
    """Arrow schema of raw records with one row a user."""
    names = columns or Columns()
    item = [pa.field(names.key, pa.string())]
    if has_values:
        item.append(pa.field(names.value, pa.float64()))
    if has_tags:
        item.append(pa.field(names.tag, pa.string()))
    fields = [pa.field(names.user, pa.string()), pa.field(names.items, pa.list_(pa.struct(item)))]
    return pa.schema(fields + _time(names, with_time))


def pairs_schema(
    *, has_values: bool = True, with_time: bool = False, has_tags: bool = False, columns: Columns | None = None
) -> pa.Schema:
    """Arrow schema of raw records with one row a user and key."""
    names = columns or Columns()
    fields = [pa.field(names.user, pa.string()), pa.field(names.key, pa.string())]
    if has_values:
        fields.append(pa.field(names.value, pa.float64()))
    if has_tags:
        fields.append(pa.field(names.tag, pa.string()))
    return pa.schema(fields + _time(names, with_time))


def _time(names: Columns, with_time: bool) -> list[pa.Field]:
    return [pa.field(names.time, _TIME)] if with_time else []


def canonical_schema(*, has_values: bool, has_tags: bool = False) -> pa.Schema:
    """Arrow schema of canonical records.

    `user_digest` is a keyed digest of the user id; `items` holds indices into the key domain, strictly
    increasing, with values in fixed point where the collection has values, and tags where it has tags.
    """
    item = [pa.field("key", pa.int32(), nullable=False)]
    if has_values:
        item.append(pa.field("value", pa.int64(), nullable=False))
    if has_tags:
        item.append(pa.field("tag", pa.int16(), nullable=False))
    items = pa.list_(pa.field("item", pa.struct(item), nullable=False))
    return pa.schema([pa.field("user_digest", pa.binary(16), nullable=False), pa.field("items", items, nullable=False)])
