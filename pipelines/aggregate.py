"""`aggregate`, the server half: reports, or stored counts, → counts → estimates."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import apache_beam as beam
import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from ..errors import InputError, RunError
from ..mechanisms import Counts, MultiRound
from ..mechanisms.audit.poisoning import FALSE_ALARM, Finding
from ..schemas.counts import COUNTS_COLUMNS, MAIN_GROUP, counts_from_table
from ..schemas.manifest import Manifest, Randomness
from ..schemas.reports import FileHeader
from ..schemas.tally import REPORTS_UNREADABLE
from ..transforms.collection import Collection
from ..transforms.count import BLOCK_COUNTS, AddCounts, CountBlock, CountReports, split_blocks
from ..transforms.count_poisoning import CountSuspicious, read_findings, require_unary
from ..transforms.estimate import EstimateCounts, GatherCounts
from ..transforms.paths import expand
from ..transforms.publish import WriteCounts, WriteEstimates
from ..transforms.report_files import AcceptReports, ReportInputs, inspect_reports
from ..transforms.report_files_checks import copies, open_file
from ..transforms.rows_read import WATCHED_ROWS
from ..transforms.summary import Summary, WriteSummary, read_summary
from .aggregate_rounds import aggregate_round, estimate_stored, open_round
from .output import OutputFolder
from .results import finish_files, manifest_of, reports_counted, require_every_key
from .running import Clock, Engine, engine_pipeline

__all__ = ["aggregate"]

_SUMMARY = ".summary.json"
#: No honest count is larger.
_LARGEST_COUNT = 1 << 50
_SUSPECTS = ".suspects.npz"
#: So many refused files are named one by one.
_REASONS = 20


@dataclass(frozen=True)
class _CountsInputs:
    """Stored counts, read by the driver: a few integers a key."""

    counts: Counts
    private: bool
    periods: tuple[str, ...]
    memoised: bool = False
    refused: tuple[tuple[str, str], ...] = ()


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
    period: str | None = None,
    detect_poisoning: bool = False,
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
        period: count reports of this period only; files of another are refused.
        detect_poisoning: look for reports that no honest crowd sends; see `mechanisms.audit.poisoning`.

    Raises:
        InputError: Every file was made under another definition or is no report or counts file.
        RunError: The run failed; nothing was published.
    """
    if detect_poisoning:
        require_unary(collection)
    if isinstance(collection.mechanism, MultiRound) and round_ is None and state_folder is None:
        paths = expand(patterns)
        if all(_kind(path) == "counts" for path in paths):
            return estimate_stored(collection, paths, output, format_=format_, overwrite=overwrite)
    which = open_round(collection, round_, state_folder)
    if which is not None:
        if period is not None:
            raise InputError("--period and --round exclude each other: the folder of --state knows its period.")
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
    inputs = _inspect(expand(patterns, any_file=True), collection, period)
    _require_independent(inputs)
    period = inputs.periods[0] if len(inputs.periods) == 1 else ""
    with OutputFolder(output, overwrite=overwrite) as result:
        staging = result.staging
        with engine_pipeline(engine, writes_to=staging) as p:
            suspects = staging / _SUSPECTS if detect_poisoning else None
            blocks, summaries = _counts(p, collection, inputs, suspects)  # ((round, group, block), Counts)
            counts = blocks | "Gather" >> GatherCounts(collection)  # ((round, group), Counts)
            estimates = counts | "Estimate" >> EstimateCounts(collection, private=inputs.private, period=period)
            summaries += [
                estimates | "WriteEstimates" >> WriteEstimates(str(staging / "estimates"), format_),
                counts
                | "WriteCounts"
                >> WriteCounts(
                    collection,
                    str(staging / "counts.parquet"),
                    private=inputs.private,
                    period=period,
                    memoised=inputs.memoised,
                ),
            ]
            tuple(summaries) | "Summary" >> WriteSummary(str(staging / _SUMMARY))
        summary = read_summary(str(staging / _SUMMARY))
        refused = [*inputs.refused, *map(tuple, summary["refused"])]
        reports = _checked(summary, inputs) | {"refused_files": len(refused)}
        findings = read_findings(collection, str(staging / _SUSPECTS)) if detect_poisoning else []
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
            warnings=[*_warnings(inputs, refused), *_suspicions(collection, findings)],
        )
        manifest.write(result.staging)
        result.publish()
    return manifest


def _inspect(paths: list[str], collection: Collection, period: str | None) -> ReportInputs | _CountsInputs:
    kinds = {path: _kind(path) for path in paths}
    if set(kinds.values()) == {"counts"}:
        return _read_counts(paths, collection)
    if "counts" in kinds.values():
        mixed = next(path for path, kind in kinds.items() if kind == "counts")
        raise InputError(
            f"{mixed} holds counts and other inputs hold reports; a report must not be counted twice. Give one kind."
        )
    return inspect_reports(paths, collection, period=period)


def _kind(path: str) -> str:
    """Return "counts" or "reports"; what cannot be read is refused with the reports."""
    if not path.endswith(".parquet"):
        return "reports"
    try:
        with open_file(path) as file:
            return FileHeader.read(pq.read_schema(file).metadata, path).kind
    except Exception:  # a stranger's file: what the reader raises is of any type, and it is refused later
        return "reports"


def _require_independent(inputs: ReportInputs | _CountsInputs) -> None:
    if inputs.memoised and len(inputs.periods) > 1:
        raise InputError(
            f"These files hold memoised reports of {len(inputs.periods)} periods: a user whose data did not change "
            "sent the same report in each, so that they are not independent and the standard errors would be too "
            "small. Aggregate one period at a time, for example with --period."
        )


def _read_counts(paths: list[str], collection: Collection) -> _CountsInputs:
    total = collection.mechanism.zero()
    sizes = {name: len(cells) for name, cells in total.cells.items()}
    headers = []
    for path, first in copies(paths).items():
        raise InputError(f"{path} is a copy of {first}; a report is never counted twice.")
    for path in paths:
        table = _counts_rows(path)
        header = FileHeader.read(table.schema.metadata, path)
        header.require(kind="counts", fingerprint=collection.fingerprint, path=path)
        if not table.schema.remove_metadata().equals(pa.schema(COUNTS_COLUMNS)):
            raise InputError(f"{path} has other columns than a counts file: {', '.join(table.schema.names)}.")
        try:
            _require_plausible(table)
            groups = counts_from_table(table, sizes)
            for n, cells in groups.values():
                _require_within(n * getattr(collection.mechanism, "times", 1), cells)  # several answers a report
        except ValueError as error:
            raise InputError(f"{path} holds counts that cannot be: {error}.") from error
        if set(groups) - {(0, MAIN_GROUP)}:
            raise InputError(f"{path} holds the groups {sorted(groups)}; this mechanism has only the main one.")
        for n, cells in groups.values():
            total = total + Counts(n=n, cells=cells)
        headers.append(header)
    return _CountsInputs(
        total,
        all(h.private for h in headers),
        tuple(sorted({h.period for h in headers})),
        any(h.memoised for h in headers),
    )


def _require_plausible(table: pa.Table) -> None:
    """Refuse counts whose sums might not fit into 64 bits."""
    if table.num_rows and pc.max(table["count"]).as_py() > _LARGEST_COUNT:
        raise ValueError(f"a count is above {_LARGEST_COUNT:,}")


def _require_within(answers: int, cells: Mapping[str, npt.NDArray[np.int64]]) -> None:
    """Refuse counts above the number of answers, of which each adds 1 to a cell at most."""
    if any(len(counts) and int(counts.max()) > answers for counts in cells.values()):
        raise ValueError(f"a count is larger than the number of reports, {answers:,}")


def _counts_rows(path: str) -> pa.Table:
    try:
        with open_file(path) as file:
            return pq.read_table(file)
    except Exception as error:  # what the reader raises for a damaged file is of any type
        raise InputError(f"{path} cannot be read as Parquet: {error}. Is the file complete?") from error


def _counts(
    pipeline: beam.Pipeline, collection: Collection, inputs: ReportInputs | _CountsInputs, suspects: Path | None
) -> tuple[beam.PCollection[tuple[CountBlock, Counts]], list[beam.PCollection[Summary]]]:
    if isinstance(inputs, ReportInputs):
        slices = pipeline | "Files" >> beam.Create(inputs.slices, reshuffle=False) | beam.Reshuffle()
        WATCHED_ROWS.begin(inputs.rows)
        reports, read = slices | "Reports" >> AcceptReports(collection)
        blocks, counted = reports | "Count" >> CountReports(collection)
        if suspects is not None:
            reports | "Suspicious" >> CountSuspicious(collection, str(suspects))
        return blocks, [read, counted]
    if suspects is not None:
        raise InputError("--detect-poisoning needs reports; these inputs are counts.")
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
    reports = reports_counted(summary) | {"unreadable": summary["tally"].get(REPORTS_UNREADABLE, 0)}
    if inputs.rows is not None and sum(reports.values()) != inputs.rows:
        raise RunError(
            f"The files hold {inputs.rows:,} reports; {reports['counted']:,} were counted, {reports['malformed']:,} "
            f"set aside as malformed and {reports['unreadable']:,} could not be read. Nothing was published."
        )
    return reports


def _suspicions(collection: Collection, findings: Sequence[Finding]) -> list[str]:
    found = []
    for one in findings:
        names = collection.definition.keys.texts().take(pa.array(one.keys[:_REASONS], pa.int64())).to_pylist()
        about = f" ({', '.join(map(repr, names))}{', …' if len(one.keys) > _REASONS else ''})" if names else ""
        found.append(
            f"Poisoning is suspected: {one.what}{about}; about {one.fakes:,} fake reports would explain it. An honest "
            f"crowd gives such a warning in {FALSE_ALARM:g} of all runs at most."
        )
    return found


def _warnings(inputs: ReportInputs | _CountsInputs, refused: Sequence[tuple[str, str]]) -> list[str]:
    found = [f"Refused: {reason}" for _, reason in refused[:_REASONS]]
    if len(refused) > _REASONS:
        found.append(f"{len(refused):,} files were refused in all.")
    if len(inputs.periods) > 1:
        named = ", ".join(repr(period) for period in inputs.periods)
        found.append(f"The reports of several periods ({named}) were counted together; n counts reports, not people.")
    if not inputs.private:
        found.append("The randomness of these reports came from a seed: they are not private.")
    return found
