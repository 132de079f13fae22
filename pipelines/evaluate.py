"""`evaluate`: estimates beside the truth, in simulations and wherever the true records are at hand."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import apache_beam as beam
import fastavro
import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.csv as pacsv
import pyarrow.parquet as pq

from ..engines import temporary_folder
from ..errors import InputError
from ..mechanisms import Secret
from ..mechanisms.accuracy import Figures, correlation, frequency_figures, mean_figures, precision, top_keys
from ..mechanisms.uldp.pum import PUM
from ..schemas.collection import Definition
from ..schemas.keys import KeyDomain
from ..schemas.manifest import read_manifest
from ..transforms.collection import Collection
from ..transforms.summary import WriteSummary, read_summary
from ..transforms.truth import CountTruth, Truth
from .client import RecordSource, check_records, read_records, spill_folder
from .personalised_bound import bound_figures
from .running import Engine, engine_pipeline
from .stream_folder import latest_panes
from .window_choice import last_panes, one_window

__all__ = ["Evaluation", "evaluate", "read_estimates"]

F64 = npt.NDArray[np.float64]


@dataclass(frozen=True, kw_only=True, eq=False)
class Evaluation:
    """Estimates beside the truth, for the keys that are compared.

    Attributes:
        table: key, the true and the estimated figures with their intervals and flags, one row a key, the truly most
            frequent first.
        figures: errors and coverage by name, as `ldp_beam.mechanisms.accuracy` defines them; None where one does not
            exist.
        why_undefined: the reason for each None.
    """

    table: pa.Table
    figures: Mapping[str, float | int | None]
    why_undefined: Mapping[str, str] = field(default_factory=dict)


def evaluate(
    folder: str | Path,
    *,
    records: RecordSource | None = None,
    truth: str | Path | None = None,
    top: int | None = None,
    engine: Engine | None = None,
    window: str | None = None,
) -> Evaluation:
    """Compare the estimates in a result folder with the truth.

    Args:
        folder: what `collect` or `aggregate` left behind.
        records: the true records, read under the rules of the collection.
        truth: or a CSV or Parquet file with the columns key, frequency and (optionally) mean, in raw units.
        top: compare only the keys with the largest true frequency.
        engine: where to run, for `records`.
        window: start of the window to compare, of a result in windows; None for the last final one.

    Raises:
        InputError: No complete result, not exactly one source of truth, or keys that do not match.
    """
    if (records is None) == (truth is None):
        raise InputError("Give the truth once: --records with the true records, or --truth with a file of figures.")
    if top is not None and top < 1:
        raise InputError(f"--top {top}: it must be at least 1.")
    estimates = one_window(read_estimates(Path(folder)), folder, window)
    more: dict[str, float | int | None] = {}
    if records is not None:
        collection = _collection_of(Path(folder), estimates)
        frequency, mean = _true_figures(collection, records, engine or Engine(), Path(folder))
        if isinstance(collection.mechanism, PUM):
            more = bound_figures(collection, collection.mechanism, records, Path(folder), engine or Engine())
    else:
        frequency, mean = _read_truth(Path(str(truth)), estimates["key"])
    compared = _compare(estimates, frequency, mean, top)
    why = {name: "there are no users or no reports" for name, figure in more.items() if figure is None}
    return replace(compared, figures={**compared.figures, **more}, why_undefined={**compared.why_undefined, **why})


# -- reading what is compared -----------------------------------------------------------------------------


def read_estimates(folder: Path) -> pa.Table:
    """Read the estimates of a result folder in any of our formats; flags become a list in each.

    Raises:
        InputError: The folder holds no complete result.
    """
    manifest = read_manifest(folder)
    if "stream" in manifest:
        return _read_stream(folder)
    names = [f["name"] for f in manifest.get("files", []) if f.get("kind") == "estimates"]
    if len(names) != 1 or not (folder / names[0]).is_file():
        raise InputError(f"{folder} holds no estimates; give the --output folder of collect or aggregate.")
    path = folder / names[0]
    return last_panes(_READERS[path.suffix](path))


def _read_stream(folder: Path) -> pa.Table:
    """Read the last pane of every window of a stream."""
    files = [
        (pane.path / file["name"])
        for pane in latest_panes(folder)
        for file in pane.manifest["files"]
        if file["kind"] == "estimates"
    ]
    if not files:
        raise InputError(f"{folder}: this stream has published no window yet.")
    return last_panes(pa.concat_tables([_READERS[path.suffix](path) for path in files], promote_options="permissive"))


def _read_csv(path: Path) -> pa.Table:
    options = pacsv.ConvertOptions(
        column_types={"key": pa.string(), "flags": pa.string(), "mean": pa.float64()},
        strings_can_be_null=False,
    )
    table = pacsv.read_csv(path, convert_options=options)
    flags = [text.split(";") if text else [] for text in table["flags"].to_pylist()]
    lists = pa.array(flags, pa.list_(pa.string()))
    return table.set_column(table.schema.get_field_index("flags"), "flags", lists)


def _read_json(path: Path) -> pa.Table:
    import json

    with path.open(encoding="utf-8") as lines:
        return pa.Table.from_pylist([json.loads(line) for line in lines])


def _read_avro(path: Path) -> pa.Table:
    with path.open("rb") as file:
        return pa.Table.from_pylist(list(fastavro.reader(file)))


_READERS = {".parquet": pq.read_table, ".csv": _read_csv, ".json": _read_json, ".avro": _read_avro}


def _collection_of(folder: Path, estimates: pa.Table) -> Collection:
    """Return the collection of a result, from its manifest and the keys of its estimates."""
    public = read_manifest(folder)["collection"]
    return Collection.of(Definition.from_public(public, KeyDomain.of_texts(estimates["key"].to_pylist())))


def _true_figures(collection: Collection, source: RecordSource, engine: Engine, result: Path) -> tuple[F64, F64 | None]:
    inputs = source.inspect(collection)
    beside = None if engine.shares_disk else result.absolute().parent  # a cluster does not see our temporary folder
    with temporary_folder(".ldp-beam-", beside=beside) as folder, spill_folder(engine) as spill:
        truth_path, summary_path = f"{folder}/truth.npz", f"{folder}/summary.json"
        with engine_pipeline(engine, writes_to=[folder]) as p:
            # The digests only bring rows together here; the secret is forgotten afterwards.
            records, read = read_records(p, collection, source, inputs, Secret.new(), spill=spill)
            has_values = collection.definition.has_values
            sums = records | "Truth" >> CountTruth(collection.mechanism.keys, has_values=has_values)
            sums | "WriteTruth" >> beam.ParDo(_WriteTruth(truth_path))
            (read,) | "Summary" >> WriteSummary(summary_path)
        check_records(read_summary(summary_path), source, inputs, reports=None)
        with np.load(truth_path) as arrays:
            truth = Truth(int(arrays["n"]), arrays["holders"], arrays.get("high"), arrays.get("low"))
    mean = truth.mean()
    values = collection.definition.values
    if mean is not None and values is not None:
        low, high = float(values.low), float(values.high)
        mean = low + (mean + 1) * (high - low) / 2
    return truth.frequency(), mean


class _WriteTruth(beam.DoFn):
    def __init__(self, path: str) -> None:
        self._path = path

    def process(self, element: Truth) -> Iterator[str]:
        arrays: dict[str, Any] = {"n": element.n, "holders": element.holders}
        if element.high is not None and element.low is not None:
            arrays |= {"high": element.high, "low": element.low}
        np.savez(self._path, **arrays)
        yield self._path


def _read_truth(path: Path, keys: pa.ChunkedArray) -> tuple[F64, F64 | None]:
    if not path.is_file():
        raise InputError(f"--truth {path} does not exist.")
    try:
        if path.suffix == ".parquet":
            table = pq.read_table(path)
        else:
            table = pacsv.read_csv(
                path,
                convert_options=pacsv.ConvertOptions(column_types={"key": pa.string()}, strings_can_be_null=False),
            )
    except pa.ArrowException as error:
        raise InputError(f"--truth {path} cannot be read: {error}.") from error
    missing = {"key", "frequency"} - set(table.column_names)
    if missing:
        raise InputError(
            f"--truth {path} lacks the column {', '.join(sorted(missing))}; it must hold key, frequency and, where "
            "there are values, mean."
        )
    rows = pc.index_in(keys.combine_chunks(), value_set=table["key"].combine_chunks().cast(pa.string()))
    if rows.null_count:
        absent = keys.combine_chunks().filter(pc.is_null(rows))[0].as_py()
        raise InputError(f"--truth {path} has no row for the key {absent!r} (and {rows.null_count - 1} others).")
    frequency = _floats(table["frequency"].take(rows))
    return frequency, _floats(table["mean"].take(rows)) if "mean" in table.column_names else None


# -- comparing --------------------------------------------------------------------------------------------


def _compare(estimates: pa.Table, frequency: F64, mean: F64 | None, top: int | None) -> Evaluation:
    order = top_keys(frequency, top or len(frequency))
    columns: dict[str, Any] = {"key": estimates["key"].take(pa.array(order))}
    flagged = np.array(["few-holders" in flags for flags in estimates["flags"].to_pylist()], dtype=np.bool_)[order]
    known: dict[str, tuple[F64, F64]] = {}
    found = Figures(values={"keys": len(order), "n": _n(estimates)}, why_undefined={})
    for name, true, judge in (("frequency", frequency, frequency_figures), ("mean", mean, mean_figures)):
        if true is None or name not in estimates.column_names:
            continue
        estimate, low, high = (_floats(estimates[part])[order] for part in (name, f"{name}_low", f"{name}_high"))
        columns[f"true_{name}"] = _nullable(true[order])
        columns |= {name: _nullable(estimate), f"{name}_low": _nullable(low), f"{name}_high": _nullable(high)}
        known[name] = estimate, true[order]
        found |= judge(estimate, true[order], low, high, flagged)
    if top is not None and "frequency" in known:
        found |= _precision(_floats(estimates["frequency"]), frequency, top)
    if len(known) == 2:
        (frequencies, true_frequencies), (means, true_means) = known["frequency"], known["mean"]
        found |= correlation(frequencies, means, true_frequencies, true_means)
    columns["flags"] = estimates["flags"].take(pa.array(order))
    return Evaluation(table=pa.table(columns), figures=found.values, why_undefined=found.why_undefined)


def _precision(estimate: F64, truth: F64, top: int) -> Figures:
    """How many of the truly most frequent keys are among the most frequent by the estimates."""
    found = precision(estimate, truth, top)
    why = {} if found is not None else {"frequency_precision": f"there are fewer than {top} keys"}
    return Figures(values={"frequency_precision": found}, why_undefined=why)


def _nullable(array: F64) -> pa.Array:
    return pa.array(array, from_pandas=True)


def _n(estimates: pa.Table) -> int:
    return int(estimates["n"][0].as_py()) if estimates.num_rows else 0


def _floats(column: pa.ChunkedArray) -> F64:
    array: F64 = column.cast(pa.float64()).to_numpy(zero_copy_only=False)
    return array


def as_rows(evaluation: Evaluation) -> Sequence[dict[str, Any]]:
    """Return the table row by row."""
    rows: list[dict[str, Any]] = evaluation.table.to_pylist()
    return rows
