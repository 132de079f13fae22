"""Records of people who do not exist, as Arrow batches: for `simulate`, and as an input of any job by themselves.

`simulate:uniform,users=1000000,keys=100` stands wherever a file of records may. The job reads the records that the
verb `simulate` would have written with the same parameters, without a file: each worker makes up its part.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Final, Literal

import numpy as np
import pyarrow as pa

from ..errors import InputError, did_you_mean
from ..mechanisms.populations import BLOCK_USERS, Pairs, Population, Truth

__all__ = [
    "Generated",
    "Layout",
    "UserIds",
    "is_generated",
    "record_batches",
    "records_schema",
    "to_raw",
]

Layout = Literal["nested", "pairs"]
UserIds = Literal["text", "integer"]

_SCHEME: Final = "simulate:"
_PARAMETERS: Final = ("users", "keys", "pairs-per-user", "seed", "range", "user-ids")
_EXAMPLE: Final = "simulate:gauss,users=1000000,keys=100"
_ITEM: Final = pa.struct([pa.field("key", pa.string()), pa.field("value", pa.float64())])


def is_generated(pattern: str) -> bool:
    """Whether an input names a population instead of files."""
    return pattern.startswith(_SCHEME)


@dataclass(frozen=True, kw_only=True)
class Generated:
    """People of a population who stand for a file of records in the nested layout.

    Attributes:
        population: who they are.
        users: how many.
        user_ids: "text" or "integer".
        value_range: raw units to which the values of [-1, 1] are mapped.
    """

    population: Population
    users: int
    user_ids: UserIds = "text"
    value_range: tuple[float, float] = (-1.0, 1.0)

    @classmethod
    def parse(cls, text: str) -> Generated:
        """Read `simulate:NAME,users=N,…`; what is left out is as in the verb `simulate`.

        Raises:
            InputError: for a parameter that is missing, unknown or of a value that it cannot have.
            ParameterError: for a population that cannot be.
        """
        name, *parameters = text.removeprefix(_SCHEME).split(",")
        given: dict[str, str] = {}
        for one in parameters:
            parameter, _, value = one.partition("=")
            if parameter not in _PARAMETERS or parameter in given:
                fault = "is given twice" if parameter in given else "is unknown"
                raise InputError(f"{text}: the parameter {parameter!r} {fault}. {did_you_mean(parameter, _PARAMETERS)}")
            given[parameter] = value
        if "users" not in given:
            raise InputError(f"{text}: say how many users there are, for example {_EXAMPLE}.")
        population = Population(
            name=name,
            keys=_whole(text, given, "keys", 100),
            pairs_per_user=_whole(text, given, "pairs-per-user", 0),
            seed=_whole(text, given, "seed", 0),
        )
        ids = given.get("user-ids", "text")
        if ids not in ("text", "integer"):
            raise InputError(f"{text}: user-ids is {ids!r}; it must be text or integer.")
        return cls(
            population=population,
            users=_whole(text, given, "users", 0),
            user_ids="text" if ids == "text" else "integer",
            value_range=_range(text, given.get("range")),
        )

    @property
    def schema(self) -> pa.Schema:
        """Arrow schema of the records."""
        return records_schema("nested", self.user_ids)

    def block_sizes(self) -> list[int]:
        """Numbers of users of the blocks that are made up one at a time."""
        whole, rest = divmod(self.users, BLOCK_USERS)
        return [BLOCK_USERS] * whole + [rest] * (rest > 0)

    def blocks(self, first: int, stop: int) -> Iterator[pa.RecordBatch]:
        """Yield the records of the blocks first to stop - 1, one batch a block."""
        user, labels = first * BLOCK_USERS, _labels(self.population)
        count = min(stop * BLOCK_USERS, self.users) - user
        for pairs in self.population.batches(count, first_user=user):
            n = len(pairs.offsets) - 1
            yield _nested(_user_ids(user, n, self.users, self.user_ids), pairs, labels, self.value_range)
            user += n


def _whole(text: str, given: dict[str, str], name: str, default: int) -> int:
    value = given.get(name)
    if value is None:
        return default
    if not (value.isascii() and value.isdigit()):
        raise InputError(f"{text}: {name} is {value!r}; it must be a whole number from 0 on.")
    return int(value)


def _range(text: str, value: str | None) -> tuple[float, float]:
    if value is None:
        return -1.0, 1.0
    try:
        low, high = map(float, value.split(":"))
    except ValueError:
        low = high = math.nan
    if not (math.isfinite(low) and math.isfinite(high) and low < high):
        raise InputError(f"{text}: range is {value!r}; give two numbers, the lower one first, such as range=1:5.")
    return low, high


def records_schema(layout: Layout, user_ids: UserIds) -> pa.Schema:
    """Return the Arrow schema of the records in a layout."""
    user = pa.field("user_id", pa.string() if user_ids == "text" else pa.int64())
    if layout == "nested":
        return pa.schema([user, pa.field("items", pa.list_(_ITEM))])
    return pa.schema([user, *_ITEM])


def record_batches(
    population: Population,
    users: int,
    *,
    layout: Layout = "nested",
    user_ids: UserIds = "text",
    value_range: tuple[float, float] = (-1.0, 1.0),
    truth: Truth | None = None,
) -> Iterator[pa.RecordBatch]:
    """Yield a population's records as Arrow batches, and add them to `truth` where it is given."""
    labels = _labels(population)
    first = 0
    for pairs in population.batches(users):
        if truth is not None:
            truth.add(pairs)
        n = len(pairs.offsets) - 1
        ids = _user_ids(first, n, users, user_ids)
        yield (
            _nested(ids, pairs, labels, value_range) if layout == "nested" else _pairs(ids, pairs, labels, value_range)
        )
        first += n


def _labels(population: Population) -> pa.Array:
    """Names of the keys: their numbers."""
    return pa.array(map(str, range(population.keys)), pa.string())


def _user_ids(first: int, n: int, users: int, kind: UserIds) -> pa.Array:
    """Ids of the users first to first + n: integers, or text of one width so that they sort."""
    numbers = np.arange(first, first + n, dtype=np.int64)
    if kind == "integer":
        return pa.array(numbers)
    digits = max(6, len(str(users - 1)))
    prefix = np.frombuffer(b"user-", np.uint8)
    width = len(prefix) + digits
    text = np.empty((n, width), np.uint8)
    text[:, : len(prefix)] = prefix
    for place in range(width - 1, len(prefix) - 1, -1):
        numbers, digit = np.divmod(numbers, 10)
        text[:, place] = digit + ord("0")
    offsets = np.arange(0, (n + 1) * width, width, dtype=np.int32)
    return pa.StringArray.from_buffers(n, pa.py_buffer(offsets), pa.py_buffer(text))


def to_raw(values: np.ndarray[Any, np.dtype[np.float64]], value_range: tuple[float, float]) -> Any:
    """Map values of [-1, 1] to raw units, never beyond the ends of the range."""
    low, high = value_range
    if (low, high) == (-1.0, 1.0):
        return values
    return np.clip(low + (values + 1.0) * ((high - low) / 2.0), low, high)


def _nested(ids: pa.Array, pairs: Pairs, labels: pa.Array, value_range: tuple[float, float]) -> pa.RecordBatch:
    """One row a user: user_id, items."""
    items = pa.StructArray.from_arrays(
        [labels.take(pa.array(pairs.keys)), pa.array(to_raw(pairs.values, value_range))], fields=list(_ITEM)
    )
    lists = pa.ListArray.from_arrays(pa.array(pairs.offsets.astype(np.int32)), items)
    return pa.RecordBatch.from_arrays([ids, lists], names=["user_id", "items"])


def _pairs(ids: pa.Array, pairs: Pairs, labels: pa.Array, value_range: tuple[float, float]) -> pa.RecordBatch:
    """One row a user and key; a user without a pair has one row whose key and value are null."""
    sizes = np.diff(pairs.offsets)
    rows = np.maximum(sizes, 1)
    owner = np.repeat(np.arange(len(sizes)), rows)
    held = np.repeat(sizes > 0, rows)
    source = np.zeros(len(owner), np.int64)
    source[held] = np.arange(len(pairs.keys))
    index = pa.array(source, mask=~held)
    keys = labels.take(pa.array(pairs.keys)).take(index)
    values = pa.array(to_raw(pairs.values, value_range), pa.float64()).take(index)
    return pa.RecordBatch.from_arrays([ids.take(pa.array(owner)), keys, values], names=["user_id", "key", "value"])
