"""`aggregate`, the server half: reports, or stored counts, → counts → estimates."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import apache_beam as beam
import pyarrow as pa
import pyarrow.parquet as pq

from ..errors import InputError, RunError
from ..mechanisms import Counts
from ..schemas.counts import COUNTS_COLUMNS, MAIN_GROUP, counts_from_table
from ..schemas.manifest import Manifest, Randomness
from ..schemas.reports import FileHeader
from ..transforms.collection import Collection
from ..transforms.count import BLOCK_COUNTS, AddCounts, CountBlock, CountReports, split_blocks
from ..transforms.estimate import EstimateCounts, GatherCounts
from ..transforms.paths import expand
from ..transforms.publish import WriteCounts, WriteEstimates
from ..transforms.report_files import ReadReports, ReportInputs, inspect_reports
from ..transforms.rows_read import WATCHED_ROWS
from ..transforms.summary import Summary, WriteSummary, read_summary
from .aggregate_rounds import aggregate_round, open_round
from .output import OutputFolder
from .results import finish_files, manifest_of, reports_counted, require_every_key
from .running import Clock, Engine, engine_pipeline

__all__ = ["aggregate"]

_SUMMARY = ".summary.json"


@dataclass(frozen=True)
class _CountsInputs:
    """Stored counts, read by the driver: a few integers a key."""

    counts: Counts
    private: bool
    periods: tuple[str, ...]


def aggregate(
    collection: Collection,
    patterns: Sequence[str],
    output: str | Path,
    *,
    format_: str = "parquet",
    engine: Engine | None = None,
    overwrite: bool = False,
    round_: int | None = None,
    state_folder: str | Path | None = None,
    server_secret: str | Path | None = None,
) -> Manifest:
    """Count reports (or add stored counts), estimate every key, publish.

    Args:
        collection: the definition under which the reports were made.
        patterns: report files or counts files, not both; paths, globs and folders.
        output: folder for estimates, counts and manifest.
        format_: format of the estimates.
        engine: where to run.
        overwrite: replace an earlier result.
        round_: collections in rounds: the open round, whose reports these are; see `aggregate_rounds`.
        state_folder: collections in rounds: the folder that the rounds share.
        server_secret: collections in rounds: file of the server's secret.

    Raises:
        InputError: A file was made under another definition or is no report or counts file.
        RunError: The run failed; nothing was published.
    """
    which = open_round(collection, round_, state_folder)
    if which is not None:
        return aggregate_round(
            collection,
            patterns,
            output,
            round_=which.number,
            state_folder=which.folder,
            server_secret=server_secret,
            format_=format_,
            engine=engine,
            overwrite=overwrite,
        )
    clock, engine = Clock(), engine or Engine()
    inputs = _inspect(expand(patterns), collection)
    period = inputs.periods[0] if len(inputs.periods) == 1 else ""
    with OutputFolder(output, overwrite=overwrite) as result:
        staging = result.staging
        with engine_pipeline(engine, writes_to=staging) as p:
            blocks, summaries = _counts(p, collection, inputs)  # ((round, group, block), Counts)
            counts = blocks | "Gather" >> GatherCounts(collection)  # ((round, group), Counts)
            estimates = counts | "Estimate" >> EstimateCounts(collection, private=inputs.private, period=period)
            summaries += [
                estimates | "WriteEstimates" >> WriteEstimates(str(staging / "estimates"), format_),
                counts
                | "WriteCounts"
                >> WriteCounts(collection, str(staging / "counts.parquet"), private=inputs.private, period=period),
            ]
            tuple(summaries) | "Summary" >> WriteSummary(str(staging / _SUMMARY))
        summary = read_summary(str(staging / _SUMMARY))
        reports = _checked(summary, inputs)
        files = finish_files(summary, result)
        require_every_key(files, len(collection.definition.keys))
        manifest = manifest_of(
            "aggregate",
            collection,
            Randomness(source="reports", private=inputs.private, period=", ".join(inputs.periods)),
            engine,
            clock,
            records=None,
            reports=reports,
            files=files,
            spends=False,
            warnings=_warnings(inputs),
        )
        manifest.write(result.staging)
        result.publish()
    return manifest


def _inspect(paths: list[str], collection: Collection) -> ReportInputs | _CountsInputs:
    kinds = {path: _kind(path) for path in paths}
    if set(kinds.values()) == {"counts"}:
        return _read_counts(paths, collection)
    if "counts" in kinds.values():
        mixed = next(path for path, kind in kinds.items() if kind == "counts")
        raise InputError(
            f"{mixed} holds counts and other inputs hold reports; a report must not be counted twice. Give one kind."
        )
    return inspect_reports(paths, collection)


def _kind(path: str) -> str:
    if not path.endswith(".parquet"):
        return "reports"
    try:
        metadata = pq.read_schema(path).metadata
    except (pa.ArrowException, OSError) as error:
        raise InputError(f"{path} cannot be read as Parquet: {error}. Is the file complete?") from error
    return FileHeader.read(metadata, path).kind


def _read_counts(paths: list[str], collection: Collection) -> _CountsInputs:
    total = collection.mechanism.zero()
    sizes = {name: len(cells) for name, cells in total.cells.items()}
    headers = []
    for path in paths:
        table = pq.read_table(path)
        header = FileHeader.read(table.schema.metadata, path)
        header.require(kind="counts", fingerprint=collection.fingerprint, path=path)
        if not table.schema.remove_metadata().equals(pa.schema(COUNTS_COLUMNS)):
            raise InputError(f"{path} has other columns than a counts file: {', '.join(table.schema.names)}.")
        try:
            groups = counts_from_table(table, sizes)
        except ValueError as error:
            raise InputError(f"{path} holds counts that cannot be: {error}.") from error
        if set(groups) - {(0, MAIN_GROUP)}:
            raise InputError(f"{path} holds the groups {sorted(groups)}; this mechanism has only the main one.")
        for n, cells in groups.values():
            total = total + Counts(n=n, cells=cells)
        headers.append(header)
    return _CountsInputs(total, all(h.private for h in headers), tuple(sorted({h.period for h in headers})))


def _counts(
    pipeline: beam.Pipeline, collection: Collection, inputs: ReportInputs | _CountsInputs
) -> tuple[beam.PCollection[tuple[CountBlock, Counts]], list[beam.PCollection[Summary]]]:
    if isinstance(inputs, ReportInputs):
        slices = pipeline | "Files" >> beam.Create(inputs.slices, reshuffle=False) | beam.Reshuffle()
        WATCHED_ROWS.begin(inputs.rows)
        reports = slices | "Reports" >> ReadReports(collection)
        blocks, counted = reports | "Count" >> CountReports(collection)
        return blocks, [counted]
    stored = list(_stored_blocks(inputs.counts))
    blocks = pipeline | "Stored" >> beam.Create(stored)
    blocks.element_type = BLOCK_COUNTS
    return blocks | "Add" >> beam.CombinePerKey(AddCounts()), []


def _stored_blocks(counts: Counts) -> Iterator[tuple[CountBlock, Counts]]:
    for block, part in split_blocks(counts):
        yield (0, MAIN_GROUP, block), part


def _checked(summary: dict[str, Any], inputs: ReportInputs | _CountsInputs) -> dict[str, int]:
    if isinstance(inputs, _CountsInputs):
        return {"counted": inputs.counts.n, "malformed": 0}
    reports = reports_counted(summary)
    if inputs.rows is not None and sum(reports.values()) != inputs.rows:
        raise RunError(
            f"The files hold {inputs.rows:,} reports; {reports['counted']:,} were counted and "
            f"{reports['malformed']:,} set aside as malformed. Nothing was published."
        )
    return reports


def _warnings(inputs: ReportInputs | _CountsInputs) -> list[str]:
    if inputs.private:
        return []
    return ["The randomness of these reports came from a seed: they are not private."]
