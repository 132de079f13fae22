"""Write the records of a synthetic population to one file, for trials and tests.

The file has one of the two layouts of records: *nested* (one row a user with a list of items) or *pairs* (one
row a user and key). It appears complete or not at all.
"""

from __future__ import annotations

import gzip
import json
import os
import tempfile
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any

import fastavro
import numpy as np
import pyarrow as pa
import pyarrow.csv
import pyarrow.parquet as pq

from ..engines import swept
from ..errors import InputError
from ..mechanisms.populations import Population, Truth
from ..schemas.mechanism_fields import MECHANISM_FIELDS
from ..schemas.uldp_fields import TABLE as ULDP_TABLE
from ..transforms.generated import Layout, UserIds, record_batches, records_schema, to_raw

__all__ = ["Beside", "Layout", "UserIds", "collection_text", "record_batches", "simulate"]

#: Users of one Parquet row group: a few million bytes, so that a reader's memory stays small.
ROW_GROUP_USERS = 1 << 16
_SUFFIXES = (".parquet", ".avro", ".csv", ".csv.gz")


def simulate(
    population: Population,
    users: int,
    output: str | Path,
    *,
    layout: Layout | None = None,
    user_ids: UserIds = "text",
    value_range: tuple[float, float] = (-1.0, 1.0),
    truth: str | Path | None = None,
    collection: str | Path | None = None,
    mechanism: str = "pckv-ue",
    epsilon: str = "1",
    overwrite: bool = False,
) -> dict[str, Any]:
    """Write the records of `users` people of a population, and on request the truth and a collection.

    Args:
        population: who the people are.
        users: how many, from none on; a user with no pair is written too.
        output: a file that ends in .parquet, .avro, .csv or .csv.gz.
        layout: "nested" (the default, except in CSV, which cannot nest) or "pairs".
        user_ids: "text" (user-000001) or "integer".
        value_range: raw units to which the values of [-1, 1] are mapped.
        truth: a CSV file to write with key, frequency and mean in raw units.
        collection: a TOML file to write with a collection definition that fits the records.
        mechanism: its mechanism.
        epsilon: its privacy budget, as decimal text.
        overwrite: whether files that exist may be replaced.

    Returns:
        What was written: path, layout, population, users, rows, pairs, and the other files, if any.

    Raises:
        InputError: for an ending, a size or a range that cannot be, or an output that exists.
    """
    path, layout = _checked_output(output, layout, users, value_range)
    beside = Beside(truth=truth, collection=collection, mechanism=mechanism, epsilon=epsilon, overwrite=overwrite)
    beside.check(path)
    known = Truth(keys=population.keys)
    batches = record_batches(population, users, layout=layout, user_ids=user_ids, value_range=value_range, truth=known)
    with _appearing(path) as partial:
        rows = _Writer(path, layout, user_ids).write(partial, batches)
    beside.write(population, known, value_range)
    return {
        "path": str(path),
        "layout": layout,
        "population": population.name,
        "seed": population.seed,
        "keys": population.keys,
        "users": users,
        "rows": rows,
        "pairs": int(known.holders.sum()),
        "truth": None if truth is None else str(truth),
        "collection": None if collection is None else str(collection),
    }


@dataclass(frozen=True, kw_only=True)
class Beside:
    """Files that a simulation writes beside the records.

    Attributes:
        truth: CSV file with the true figures, or None.
        collection: TOML file with a matching definition, or None.
        mechanism: its mechanism.
        epsilon: its privacy budget, as decimal text.
        overwrite: whether files that exist may be replaced.
    """

    truth: str | Path | None = None
    collection: str | Path | None = None
    mechanism: str = "pckv-ue"
    epsilon: str = "1"
    overwrite: bool = False

    def check(self, records: Path | None) -> None:
        """Refuse what cannot be written, before anything is; `records` is the file of records, if there is one.

        Raises:
            InputError: A file exists, or the definition would have to be guessed.
        """
        if self.collection is not None:
            _check_collection(self.mechanism)
        _check_targets(records, self.truth, self.collection, overwrite=self.overwrite)

    def write(self, population: Population, known: Truth, value_range: tuple[float, float]) -> None:
        """Write the files that were asked for."""
        if self.truth is not None:
            with _appearing(Path(self.truth)) as partial:
                _write_truth(partial, known, value_range)
        if self.collection is not None:
            text = collection_text(
                population,
                name=population.name,
                mechanism=self.mechanism,
                epsilon=self.epsilon,
                value_range=value_range,
            )
            with _appearing(Path(self.collection)) as partial:
                partial.write_text(text, encoding="utf-8")


def collection_text(
    population: Population,
    *,
    name: str,
    mechanism: str,
    epsilon: str,
    padding: int | None = None,
    value_range: tuple[float, float] = (-1.0, 1.0),
) -> str:
    """Return the text of a collection definition (TOML) that fits the records of a population.

    Args:
        population: whose records; gives the keys and, unless told otherwise, the padding.
        name: name of the collection.
        mechanism: its mechanism, for example "pckv-grr".
        epsilon: its privacy budget, as decimal text.
        padding: padding length; a user's number of pairs by default.
        value_range: raw units of the values.
    """
    low, high = value_range
    own = MECHANISM_FIELDS.get(mechanism, MECHANISM_FIELDS["pckv-ue"])
    text = f"name      = {json.dumps(name)}\nmechanism = {json.dumps(mechanism)}\nepsilon   = {epsilon}\n"
    if "padding" in own.fields:
        text += f"padding   = {population.pairs if padding is None else padding}\n"
    text += f"\n[keys]\ncount = {population.keys}\n"
    return text + (f"\n[values]\nrange = [{low!r}, {high!r}]\n" if own.has_values else "")


# -- checks ---------------------------------------------------------------------------------------------


def _check_collection(mechanism: str) -> None:
    """Refuse to write a definition of which a part that bears on privacy would have to be guessed."""
    own = MECHANISM_FIELDS.get(mechanism)
    if own is not None and ULDP_TABLE in own.fields:
        raise InputError(
            f"A definition for {mechanism} says in [{ULDP_TABLE}] what is sensitive, which nobody can guess. Leave out "
            "--collection-to and write it yourself."
        )


def _checked_output(
    output: str | Path, layout: Layout | None, users: int, value_range: tuple[float, float]
) -> tuple[Path, Layout]:
    path = Path(output)
    suffix = _suffix(path)
    if users < 0:
        raise InputError(f"A simulation has 0 users or more, not {users}.")
    low, high = value_range
    if not (np.isfinite([low, high]).all() and low < high):
        raise InputError(f"The value range must run from a lower to a higher finite number, not {low} to {high}.")
    if suffix.startswith(".csv") and layout == "nested":
        raise InputError(f"{path}: CSV cannot hold nested records; use layout 'pairs', or a .parquet or .avro file.")
    if layout not in (None, "nested", "pairs"):
        raise InputError(f"The layout of records is 'nested' or 'pairs', not {layout!r}.")
    return path, layout or ("pairs" if suffix.startswith(".csv") else "nested")


def _suffix(path: Path) -> str:
    for suffix in sorted(_SUFFIXES, key=len, reverse=True):
        if path.name.endswith(suffix) and path.name != suffix:
            return suffix
    raise InputError(f"{path}: the name of an output ends in one of {', '.join(_SUFFIXES)}.")


def _check_targets(*targets: str | Path | None, overwrite: bool) -> None:
    """Refuse outputs that stand in the way of one another or of what exists."""
    paths = [Path(target) for target in targets if target is not None]
    if len({path.resolve() for path in paths}) < len(paths):
        raise InputError(f"{', '.join(map(str, paths))}: records, truth and collection are different files.")
    for path in paths:
        _refuse_existing(path, overwrite)


def _refuse_existing(path: Path, overwrite: bool) -> None:
    if path.is_dir():
        raise InputError(f"{path} is a folder; name a file.")
    if path.exists() and not overwrite:
        raise InputError(f"{path} exists already; choose another name, or allow it to be overwritten.")


@contextmanager
def _appearing(path: Path) -> Iterator[Path]:
    """Give a temporary file beside `path`, and let it take that name only if all went well."""
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        handle, name = tempfile.mkstemp(prefix=f".{path.name}.", suffix=".partial", dir=path.parent)
    except OSError as error:
        raise InputError(f"{path} cannot be written: {error.strerror}.") from error
    os.close(handle)
    partial = Path(name)
    try:
        with swept(partial):
            yield partial
            partial.chmod(0o666 & ~_umask())
            partial.replace(path)
    finally:
        partial.unlink(missing_ok=True)


def _umask() -> int:
    """The process's mask; a temporary file is made private, its final name follows the mask."""
    mask = os.umask(0)
    os.umask(mask)
    return mask


# -- files ----------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class _Writer:
    """Writes batches of one layout in the format that the path's ending names."""

    path: Path
    layout: Layout
    user_ids: UserIds

    def write(self, partial: Path, batches: Iterator[pa.RecordBatch]) -> int:
        """Write all batches to the file `partial`; return the number of rows."""
        write = {".parquet": self._parquet, ".avro": self._avro}.get(_suffix(self.path), self._csv)
        return write(partial, batches)

    @property
    def schema(self) -> pa.Schema:
        """Arrow schema of the batches."""
        return records_schema(self.layout, self.user_ids)

    def _parquet(self, partial: Path, batches: Iterator[pa.RecordBatch]) -> int:
        rows = 0
        # A dictionary of ids that are all different is work for nothing.
        leaves = {"nested": "items.list.element.key", "pairs": "key"}
        with pq.ParquetWriter(partial, self.schema, use_dictionary=[leaves[self.layout]]) as writer:
            for batch in batches:
                writer.write_batch(batch, row_group_size=ROW_GROUP_USERS)
                rows += batch.num_rows
        return rows

    def _csv(self, partial: Path, batches: Iterator[pa.RecordBatch]) -> int:
        rows = 0
        with (
            partial.open("wb") as plain,
            self._maybe_gzip(plain) as stream,
            pa.csv.CSVWriter(stream, self.schema) as writer,
        ):
            for batch in batches:
                writer.write_batch(batch)
                rows += batch.num_rows
        return rows

    def _maybe_gzip(self, plain: IO[bytes]) -> AbstractContextManager[IO[bytes] | gzip.GzipFile]:
        if not self.path.name.endswith(".gz"):
            return nullcontext(plain)
        # Without name and time in the header the same records give the same bytes.
        return gzip.GzipFile(filename="", mode="wb", fileobj=plain, compresslevel=6, mtime=0)

    def _avro(self, partial: Path, batches: Iterator[pa.RecordBatch]) -> int:
        rows = 0

        def records() -> Iterator[dict[str, Any]]:
            nonlocal rows
            for batch in batches:
                rows += batch.num_rows
                yield from batch.to_pylist()

        with partial.open("wb") as stream:
            fastavro.writer(stream, self._avro_schema(), records(), codec="deflate")
        return rows

    def _avro_schema(self) -> dict[str, Any]:
        user = {"name": "user_id", "type": "string" if self.user_ids == "text" else "long"}
        if self.layout == "pairs":
            pair = [
                {"name": "key", "type": ["null", "string"]},
                {"name": "value", "type": ["null", "double"]},
            ]
            return {"type": "record", "name": "Pair", "fields": [user, *pair]}
        item = {
            "type": "record",
            "name": "Item",
            "fields": [{"name": "key", "type": "string"}, {"name": "value", "type": "double"}],
        }
        items = {"name": "items", "type": {"type": "array", "items": item}}
        return {"type": "record", "name": "User", "fields": [user, items]}


def _write_truth(path: Path, truth: Truth, value_range: tuple[float, float]) -> None:
    """Write key, frequency and mean (empty where nobody holds the key) of every key."""
    frequency, mean = truth.frequency(), truth.mean()
    table = pa.table(
        {
            "key": [str(k) for k in range(truth.keys)],
            "frequency": pa.array(frequency, mask=np.isnan(frequency)),
            "mean": pa.array(to_raw(mean, value_range), mask=np.isnan(mean)),
        }
    )
    pa.csv.write_csv(table, path)
