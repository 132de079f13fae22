"""Records from anywhere: elements of someone's own pipeline → canonical records. Client side only.

Files are read by `ReadRecords`; this is for records that another transform already holds. Python objects are
gathered into batches at the edge, and everything after that works on whole batches.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any, Final

import apache_beam as beam
import numpy as np
import pyarrow as pa
from apache_beam.metrics import Metrics
from apache_beam.transforms.window import BoundedWindow
from apache_beam.utils.windowed_value import WindowedValue

from ..errors import InputError
from ..mechanisms import Secret
from ..schemas.records import Columns
from .collection import Collection
from .input_columns import check_columns, check_tags, columns_of
from .inputs import FileSlice
from .prepare import Preparer
from .record_batches import records_to_batch
from .record_files import raw_batch

__all__ = ["PrepareRecords", "rows_to_batch"]

#: Records that are gathered before they are worked on together.
_GATHERED: Final = 8192
_WHERE: Final = "A record of the pipeline"


class PrepareRecords(beam.PTransform):
    """Records as Python objects or Arrow batches → record batches of canonical records, one row a user.

    An element is one user's whole record, in one of these forms, or a `pyarrow.RecordBatch` of many users in
    the nested layout (columns `user_id` and `items`, a list of structs `key`, `value`):

        ("ann", {"bread": 0.5, "milk": -1.0})
        ("ann", [("bread", 0.5), ("milk", -1.0)])
        {"user_id": "ann", "items": [{"key": "bread", "value": 0.5}, {"key": "milk", "value": -1.0}]}

    Where the collection has no values, the items are the keys alone: `("ann", ["bread", "milk"])`; where it has tags,
    the tag of a key, or None, stands where a value would: `("ann", {"bread": None, "pills": "health"})`.
    Pairs that lie apart come together by `beam.GroupByKey()`, whose output has the second form.

    Privacy:
        One element sends one report. A user in several elements reports, and spends epsilon, several times.
        Invalid pairs are dropped and counted (metrics in the namespace "ldp_beam"); their user still reports.

    Args:
        collection: what is collected.
        secret: the clients' secret, which keys the digests of user ids.
        columns: names of the fields in mappings and batches.

    Raises:
        InputError: The collection needs times (duplicates = "latest"), which such records do not have.
    """

    def __init__(self, collection: Collection, secret: Secret, *, columns: Columns | None = None) -> None:
        super().__init__()
        values = collection.definition.values
        if values is not None and values.duplicates == "latest":
            raise InputError(
                'duplicates = "latest" needs the time of each pair, which records in a pipeline do not carry. '
                "Keep the latest value of each key before this transform, or read files with ReadRecords."
            )
        self._collection, self._digests = collection, secret.users()
        self._columns = columns_of(collection.definition, columns)

    def expand(self, records: beam.PCollection[Any]) -> beam.PCollection[pa.RecordBatch]:
        preparer = Preparer(self._collection.definition, self._digests, self._columns)
        definition = self._collection.definition
        prepare = _Prepare(
            preparer, self._columns, has_values=definition.values is not None, has_tags=bool(definition.tags)
        )
        return records | "Prepare" >> beam.ParDo(prepare).with_output_types(pa.RecordBatch)


class _Prepare(beam.DoFn):
    """Gathers objects per window and bundle; batches pass straight through."""

    def __init__(self, preparer: Preparer, columns: Columns, *, has_values: bool, has_tags: bool) -> None:
        self._preparer, self._columns = preparer, columns
        self._has_values, self._has_tags = has_values, has_tags

    def start_bundle(self) -> None:
        self._gathered: dict[BoundedWindow, list[Any]] = {}

    def process(self, element: Any, window: Any = beam.DoFn.WindowParam) -> Iterator[pa.RecordBatch]:
        if isinstance(element, pa.RecordBatch):
            yield from self._prepared(element)
            return
        gathered = self._gathered.setdefault(window, [])
        gathered.append(element)
        if len(gathered) >= _GATHERED:
            yield from self._prepared(self._batch(self._gathered.pop(window)))

    def finish_bundle(self) -> Iterator[WindowedValue]:
        for window, gathered in self._gathered.items():
            for batch in self._prepared(self._batch(gathered)):
                yield WindowedValue(batch, window.max_timestamp(), (window,))

    def _batch(self, rows: list[Any]) -> pa.RecordBatch:
        return rows_to_batch(rows, self._columns, has_values=self._has_values, has_tags=self._has_tags)

    def _prepared(self, batch: pa.RecordBatch) -> Iterator[pa.RecordBatch]:
        has_values = self._has_values
        layout = check_columns(_WHERE, batch.schema, self._columns, has_values=has_values, with_times=False)
        if layout != "nested":
            raise InputError(
                f"{_WHERE} holds one pair a row; each element must hold everything of one user. Bring the pairs of a "
                "user together first, for example with beam.GroupByKey()."
            )
        if self._has_tags:
            check_tags(_WHERE, batch.schema, self._columns, layout, wanted=True)
        part = FileSlice(
            path=_WHERE,
            format="memory",
            layout=layout,
            has_values=has_values,
            with_times=False,
            with_tags=self._has_tags,
        )
        records, tally, _ = self._preparer.prepare_nested(raw_batch(part, self._columns, batch, 1))
        for name, count in tally.items():
            Metrics.counter("ldp_beam", name).inc(count)
        if records.n:
            yield records_to_batch(records)


def rows_to_batch(
    rows: Iterable[Any], columns: Columns | None = None, *, has_values: bool, has_tags: bool = False
) -> pa.RecordBatch:
    """Return Python records, in the forms that `PrepareRecords` takes, as one batch in the nested layout.

    Raises:
        InputError: An element has none of the forms, or ids and keys are neither all texts nor all integers.
    """
    names = columns or Columns()
    beside = names.value if has_values else names.tag if has_tags else None  # what stands beside a key
    users: list[Any] = []
    sizes: list[int] = []
    pairs: list[tuple[Any, Any]] = []
    for row in rows:
        user, items = _parts(row, names)
        before = len(pairs)
        pairs.extend(_pairs(items, names, beside))
        users.append(user)
        sizes.append(len(pairs) - before)
    offsets = pa.array(np.concatenate([[0], np.cumsum(sizes)]).astype(np.int32))
    children = [_array([key for key, _ in pairs], "keys")]
    fields = [names.key]
    if beside is not None:
        children.append(_array([value for _, value in pairs], "values" if has_values else "tags"))
        fields.append(beside)
    items = pa.StructArray.from_arrays(children, names=fields)
    return pa.RecordBatch.from_arrays(
        [_array(users, "user ids"), pa.ListArray.from_arrays(offsets, items)], names=[names.user, names.items]
    )


def _parts(row: Any, names: Columns) -> tuple[Any, Any]:
    if hasattr(row, "_asdict"):  # beam.Row and named tuples
        row = row._asdict()
    if isinstance(row, Mapping) and names.user in row and names.items in row:
        return row[names.user], row[names.items]
    if isinstance(row, tuple) and len(row) == 2:
        return row
    # What was given may be raw data, so its content stays out of the message.
    raise InputError(
        f"{_WHERE} is of type {type(row).__name__}; it must be a pair (user, items), a mapping with {names.user!r} and "
        f"{names.items!r}, or a pyarrow.RecordBatch of the nested layout."
    )


def _pairs(items: Any, names: Columns, beside: str | None) -> Iterator[tuple[Any, Any]]:
    if items is None:
        return
    if isinstance(items, Mapping):
        yield from items.items()
        return
    what = "tag" if beside == names.tag else "value"
    for item in items:
        held = item._asdict() if hasattr(item, "_asdict") else item
        # A tag that is left out might be one that was forgotten, and its key would be sent as it is.
        if isinstance(held, Mapping) and (beside != names.tag or names.tag in held):
            yield held.get(names.key), held.get(names.value if beside is None else beside)
        elif beside is None and not isinstance(held, tuple | list):
            yield held, None
        elif isinstance(held, tuple | list) and len(held) == 2:
            yield held[0], held[1]
        else:
            raise InputError(
                f"An item of a record is of type {type(item).__name__}; it must be a pair (key, {what}) or a mapping "
                f"with {names.key!r} and {beside or names.value!r}."
            )


def _array(values: list[Any], what: str) -> pa.Array:
    try:
        return pa.array(values)
    except (pa.ArrowException, OverflowError) as error:
        raise InputError(
            f"The {what} of the records are of several types, or of one that is not allowed. User ids and keys are "
            "texts or whole numbers, values are numbers; convert them before this transform."
        ) from error
