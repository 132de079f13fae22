"""The key domain of a collection: an ordered list of texts, and a fast way from columns to indices."""

from __future__ import annotations

import hashlib
import unicodedata
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.csv as pa_csv

from ..errors import InputError, did_you_mean
from .text_index import TextIndex

__all__ = ["MAX_KEYS", "MISSING", "OUTSIDE", "KeyDomain"]

#: Index of a key that is not in the domain.
OUTSIDE = -1
#: Index of a null key.
MISSING = -2
#: Largest domain; beyond it the counts of one collection would no longer fit a machine.
MAX_KEYS = 10_000_000

I32 = npt.NDArray[np.int32]

#: In larger domains the keys of a batch are mostly distinct, and encoding them first costs more than it saves.
_MOSTLY_DISTINCT = 1 << 16
_DECIMAL = "^(0|-?[1-9][0-9]{0,18})$"
_INT64 = np.iinfo(np.int64)


class KeyDomain:
    """An ordered domain of distinct keys; key number i is the index that mechanisms work with.

    Keys are text, normalised to NFC; integers stand for their decimal text. Domains that are ranges of
    integers hold two numbers only. Instances are immutable and pickle without their look-up table.
    """

    def __init__(self, texts: pa.Array | None, start: int, size: int) -> None:
        """Use `of_texts`, `of_range`, `of_count` or `of_file` instead."""
        self._texts = texts
        self._start = start
        self._size = size
        self._lookup: TextIndex | None = None

    # -- construction -----------------------------------------------------------------------------------

    @classmethod
    def of_texts(cls, keys: Sequence[str] | pa.Array, *, where: str = "keys.list") -> KeyDomain:
        """Make the domain of the given keys, in the given order.

        Args:
            keys: texts.
            where: how messages call the origin of the keys.

        Raises:
            InputError: There is no key, an empty or null key, or one that repeats.
        """
        texts = pa.array(keys, pa.string())
        if len(texts) == 0:
            raise InputError(f"{where} holds no key. A collection needs at least one key to ask about.")
        _require_size(len(texts), where)
        texts = _normal(texts)
        _refuse_empty(texts, where)
        _refuse_repeated(texts, where)
        return cls(texts, 0, len(texts))

    @classmethod
    def of_range(cls, first: int, last: int, *, where: str = "keys.range") -> KeyDomain:
        """Make the domain of the decimal texts of the integers `first` to `last`, both included."""
        if first > last:
            raise InputError(f"{where} is [{first}, {last}]; the first number must not be above the last one.")
        if first < _INT64.min or last > _INT64.max:
            raise InputError(f"{where} is [{first}, {last}]; both ends must be 64-bit integers.")
        _require_size(last - first + 1, where)
        return cls(None, first, last - first + 1)

    @classmethod
    def of_count(cls, count: int, *, where: str = "keys.count") -> KeyDomain:
        """Make the domain of the texts "0" to "count - 1"."""
        if count < 1:
            raise InputError(f"{where} is {count}; it must be at least 1.")
        return cls.of_range(0, count - 1, where=where)

    @classmethod
    def of_file(cls, path: str | Path) -> KeyDomain:
        """Read the column `key` of a CSV file (.csv or .csv.gz) as text, in the order of its rows.

        Raises:
            InputError: The file cannot be read, has no column `key`, or its keys are no domain.
        """
        return cls.of_texts(_read_key_column(Path(path)), where=str(path))

    # -- what it holds ----------------------------------------------------------------------------------

    def __len__(self) -> int:
        return self._size

    def texts(self) -> pa.Array:
        """Return all keys in index order, as an Arrow string array."""
        if self._texts is not None:
            return self._texts
        stop = self._start + self._size
        return pc.cast(pa.array(np.arange(self._start, stop, dtype=np.int64)), pa.string())

    def digest(self) -> str:
        """Return the SHA-256 (hex) of the ordered keys, each preceded by its length in bytes."""
        state = hashlib.sha256()
        for start in range(0, self._size, 65_536):
            for text in self.texts().slice(start, 65_536).to_pylist():
                data = text.encode()
                state.update(len(data).to_bytes(8, "little") + data)
        return state.hexdigest()

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, KeyDomain) or self._size != other._size:
            return False
        if self._texts is None and other._texts is None:
            return self._start == other._start
        return bool(self.texts().equals(other.texts()))

    def __hash__(self) -> int:
        return hash(self._size)

    def __repr__(self) -> str:
        return f"KeyDomain(<{self._size} keys>)"

    def __reduce__(self) -> tuple[Any, ...]:
        return KeyDomain, (self._texts, self._start, self._size)

    # -- look-up ----------------------------------------------------------------------------------------

    def index(self, keys: pa.Array, *, where: str = "the key column") -> I32:
        """Return the index of every key of a column.

        Args:
            keys: n keys: any string type, any integer type, null, or a dictionary of these.
            where: how messages call the column, with its file.

        Returns:
            int32 (n,): an index into the domain, `OUTSIDE` or `MISSING`.

        Raises:
            InputError: The column is of a type that keys cannot have (boolean, float, …).
        """
        kind = keys.type
        if pa.types.is_null(kind):
            return np.full(len(keys), MISSING, dtype=np.int32)
        if pa.types.is_integer(kind) and self._texts is None:
            return self._index_integers(keys)
        if not pa.types.is_dictionary(kind):
            if self._size > _MOSTLY_DISTINCT and _is_text(kind):
                return self._index_distinct(keys, where)
            keys = _encode(keys, where)
        found = self._index_distinct(keys.dictionary, where)
        return _spread(found, keys.indices)

    def _index_distinct(self, distinct: pa.Array, where: str) -> I32:
        kind = distinct.type
        if pa.types.is_null(kind):
            return np.full(len(distinct), MISSING, dtype=np.int32)
        if pa.types.is_integer(kind):
            if self._texts is None:
                return self._index_integers(distinct)
        elif not _is_text(kind):
            raise InputError(f"{where} is of type {kind}; keys must be text or integers. Convert the column to text.")
        texts = pc.cast(distinct, pa.string())
        return self._index_decimal_texts(texts) if self._texts is None else self._index_texts(texts)

    def _index_integers(self, numbers: pa.Array) -> I32:
        """Look integers up by arithmetic; only for domains that are ranges."""
        missing = None
        if numbers.null_count:
            missing = pc.is_null(numbers).to_numpy(zero_copy_only=False)
            numbers = pc.fill_null(numbers, 0)
        raw = numbers.to_numpy(zero_copy_only=False)
        inside = (raw >= self._start) & (raw <= self._start + self._size - 1)
        # Differences of numbers outside may wrap around; they are not used.
        shifted = raw.astype(np.int64) - np.int64(self._start)
        result = np.where(inside, shifted, OUTSIDE).astype(np.int32)
        if missing is not None:
            result[missing] = MISSING
        return result

    def _index_decimal_texts(self, texts: pa.Array) -> I32:
        """Look texts up in a domain that is a range: the canonical decimal texts are its only members."""
        result = np.full(len(texts), OUTSIDE, dtype=np.int32)
        decimal = pc.fill_null(pc.match_substring_regex(texts, _DECIMAL), False)
        # Nineteen digits may exceed 64 bits; decimal128 holds them all.
        numbers = pc.cast(texts.filter(decimal), pa.decimal128(20, 0))
        low, high = self._start, self._start + self._size - 1
        inside = pc.and_(pc.greater_equal(numbers, low), pc.less_equal(numbers, high))
        rows = np.flatnonzero(decimal.to_numpy(zero_copy_only=False))
        rows = rows[inside.to_numpy(zero_copy_only=False)]
        found = pc.cast(numbers.filter(inside), pa.int64()).to_numpy(zero_copy_only=False)
        result[rows] = found - np.int64(low)
        return _mark_missing(result, texts)

    def _index_texts(self, texts: pa.Array) -> I32:
        if self._lookup is None:
            self._lookup = TextIndex(self.texts())
        return _mark_missing(self._lookup.find(_normal(texts)), texts)


def _normal(texts: pa.Array) -> pa.Array:
    """Return texts in NFC; Arrow's own `utf8_normalize` gives NFD for "NFC" in some versions."""
    if pc.all(pc.string_is_ascii(texts), skip_nulls=True).as_py() is not False:
        return texts
    normal = [None if text is None else unicodedata.normalize("NFC", text) for text in texts.to_pylist()]
    return pa.array(normal, pa.string())


def _is_text(kind: pa.DataType) -> bool:
    return bool(pa.types.is_string(kind) or pa.types.is_large_string(kind) or pa.types.is_string_view(kind))


def _encode(keys: pa.Array, where: str) -> pa.Array:
    if pa.types.is_string_view(keys.type):
        keys = pc.cast(keys, pa.string())
    if not _is_text(keys.type) and not pa.types.is_integer(keys.type):
        raise InputError(f"{where} is of type {keys.type}; keys must be text or integers. Convert the column to text.")
    return keys.dictionary_encode()


def _spread(found: I32, codes: pa.Array) -> I32:
    """Bring the indices of the distinct keys to the rows; null rows become `MISSING`."""
    table = np.append(found, np.int32(MISSING))
    if codes.null_count:
        codes = pc.fill_null(pc.cast(codes, pa.int64()), len(found))
    result: I32 = table.take(codes.to_numpy(zero_copy_only=False))
    return result


def _mark_missing(result: I32, texts: pa.Array) -> I32:
    if texts.null_count:
        result[pc.is_null(texts).to_numpy(zero_copy_only=False)] = MISSING
    return result


def _require_size(size: int, where: str) -> None:
    if size > MAX_KEYS:
        raise InputError(f"{where} gives {size:,} keys; at most {MAX_KEYS:,} are possible.")


def _refuse_empty(texts: pa.Array, where: str) -> None:
    bad = pc.fill_null(pc.equal(texts, ""), True)
    if pc.any(bad).as_py():
        row = pc.index(bad, True).as_py() + 1
        raise InputError(f"{where}: key number {row} is empty; every key must be a text of at least one character.")


def _refuse_repeated(texts: pa.Array, where: str) -> None:
    if pc.count_distinct(texts).as_py() == len(texts):
        return
    seen: dict[str, int] = {}
    for row, text in enumerate(texts.to_pylist(), start=1):
        if text in seen:
            raise InputError(
                f"{where}: key {text!r} stands twice, as number {seen[text]} and number {row} (composed "
                "and decomposed characters count as the same). Remove one of them."
            )
        seen[text] = row


def _read_key_column(path: Path) -> pa.Array:
    _require_csv(path)
    convert = pa_csv.ConvertOptions(
        column_types={"key": pa.string()},
        strings_can_be_null=True,
        quoted_strings_can_be_null=False,
        null_values=[""],
    )
    parse = pa_csv.ParseOptions(newlines_in_values=True)
    try:
        # A stream never guesses the types of other columns wrongly in the middle: they are not converted.
        names = pa_csv.open_csv(str(path), parse_options=parse).schema.names
        _require_key_column(names, path)
        convert.include_columns = ["key"]
        table = pa_csv.read_csv(str(path), parse_options=parse, convert_options=convert)
    except (pa.ArrowInvalid, OSError) as error:
        raise InputError(f"The key file {path} cannot be read: {error}") from error
    return table["key"].combine_chunks()


def _require_csv(path: Path) -> None:
    if not path.name.lower().endswith((".csv", ".csv.gz")):
        raise InputError(f"keys.file is {path}; it must be a CSV file (.csv or .csv.gz) with a column `key`.")
    if not path.is_file():
        raise InputError(f"keys.file: there is no file {path}. Paths are relative to the collection definition.")
    if path.stat().st_size == 0:
        raise InputError(f"The key file {path} is empty; it must have a header and a column `key`.")


def _require_key_column(names: list[str], path: Path) -> None:
    if names.count("key") != 1:
        raise InputError(f"The key file {path} must have one column `key`. {did_you_mean('key', names)}")
