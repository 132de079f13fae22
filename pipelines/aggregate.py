"""`aggregate`, the server half: reports, or stored counts, → counts → estimates."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import apache_beam as beam
import numpy as np
import numpy.typing as npt
import pyarrow as pa

from ..errors import InputError, RunError
from ..mechanisms import AutoPadding, Counts, MultiRound
from ..mechanisms.audit.poisoning import FALSE_ALARM, Finding
from ..schemas.counts import MAIN_GROUP
from ..schemas.manifest import Manifest, Randomness
from ..schemas.tally import REPORTS_UNREADABLE
from ..transforms.collection import Collection
from ..transforms.count import BLOCK_COUNTS, AddCounts, CountBlock, CountReports, split_blocks
from ..transforms.count_distinct import DistinctReports
from ..transforms.count_poisoning import CountSuspicious, read_findings, require_unary
from ..transforms.estimate import EstimateCounts, GatherCounts
from ..transforms.estimate_joint import joint_frequencies, require_joint
from ..transforms.paths import expand
from ..transforms.publish import WriteCounts, WriteEstimates
from ..transforms.report_files import AcceptReports, ReportInputs, inspect_reports
from ..transforms.rows_read import WATCHED_ROWS
from ..transforms.summary import Summary, WriteSummary, read_summary
from .aggregate_counts import CountsInputs, kind_of_file, read_counts
from .aggregate_rounds import aggregate_round, estimate_stored, open_round
from .output import OutputFolder, parts_of
from .results import finish_files, manifest_of, reports_counted, require_every_key, require_few_rejects, told_metrics
from .running import Clock, Engine, engine_pipeline

__all__ = ["aggregate"]

_SUMMARY = ".summary.json"
_SUSPECTS = ".suspects.npz"
#: So many refused files are named one by one.
_REASONS = 20


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
    joint_em: bool = False,
    max_rejects: float = 1.0,
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
        joint_em: let `frequency` hold the joint EM estimate of the reports; see `estimate_joint`.
        max_rejects: largest share of reports that may be malformed or unreadable; 0 also forbids refused files.

    Raises:
        InputError: Every file was made under another definition or is no report or counts file.
        RunError: The run failed; nothing was published.
    """
    if isinstance(collection.mechanism, AutoPadding):
        from .aggregate_questions import aggregate_question  # which calls this for each of the two

        return aggregate_question(
            collection,
            patterns,
            output,
            round_=round_,
            state_folder=state_folder,
            format_=format_,
            engine=engine,
            overwrite=overwrite,
            period=period,
            detect_poisoning=detect_poisoning,
            max_rejects=max_rejects,
            joint_em=joint_em,
        )
    if detect_poisoning:
        require_unary(collection)
    if joint_em:
        require_joint(collection)
    if isinstance(collection.mechanism, MultiRound) and round_ is None and state_folder is None:
        paths = expand(patterns)
        if all(kind_of_file(path) == "counts" for path in paths):
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
    shares = _joint(collection, inputs) if joint_em else None
    with OutputFolder(output, overwrite=overwrite, shared=engine.shares_disk) as result:
        told: dict[str, int | str] = {}
        with engine_pipeline(engine, writes_to=parts_of(result), metrics=told) as p:
            suspects = result.part(_SUSPECTS) if detect_poisoning else None
            blocks, summaries = _counts(p, collection, inputs, suspects)  # ((round, group, block), Counts)
            counts = blocks | "Gather" >> GatherCounts(collection)  # ((round, group), Counts)
            estimates = counts | "Estimate" >> EstimateCounts(
                collection, private=inputs.private, period=period, shares=shares
            )
            summaries += [
                estimates | "WriteEstimates" >> WriteEstimates(result.part("estimates"), format_),
                counts
                | "WriteCounts"
                >> WriteCounts(
                    collection,
                    result.part("counts.parquet"),
                    private=inputs.private,
                    period=period,
                    memoised=inputs.memoised,
                ),
            ]
            tuple(summaries) | "Summary" >> WriteSummary(result.part(_SUMMARY))
        summary = read_summary(result.part(_SUMMARY))
        refused = [*inputs.refused, *map(tuple, summary["refused"])]
        reports = _checked(summary, inputs) | {"refused_files": len(refused)}
        require_few_rejects(reports, refused, max_rejects)
        findings = read_findings(collection, result.part(_SUSPECTS)) if detect_poisoning else []
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
            warnings=[*_warnings(inputs, refused, joint_em), *_suspicions(collection, findings)],
            metrics=told_metrics(told, summary) if isinstance(inputs, ReportInputs) else None,
        )
        manifest.write(result.staging)
        result.publish()
    return manifest


def _inspect(paths: list[str], collection: Collection, period: str | None) -> ReportInputs | CountsInputs:
    kinds = {path: kind_of_file(path) for path in paths}
    if set(kinds.values()) == {"counts"}:
        return read_counts(paths, collection)
    if "counts" in kinds.values():
        mixed = next(path for path, kind in kinds.items() if kind == "counts")
        raise InputError(
            f"{mixed} holds counts and other inputs hold reports; a report must not be counted twice. Give one kind."
        )
    return inspect_reports(paths, collection, period=period)


def _require_independent(inputs: ReportInputs | CountsInputs) -> None:
    if inputs.memoised and len(inputs.periods) > 1:
        raise InputError(
            f"These files hold memoised reports of {len(inputs.periods)} periods: a user whose data did not change "
            "sent the same report in each, so that they are not independent and the standard errors would be too "
            "small. Aggregate one period at a time, for example with --period."
        )


def _counts(
    pipeline: beam.Pipeline, collection: Collection, inputs: ReportInputs | CountsInputs, suspects: str | None
) -> tuple[beam.PCollection[tuple[CountBlock, Counts]], list[beam.PCollection[Summary]]]:
    if isinstance(inputs, ReportInputs):
        slices = pipeline | "Files" >> beam.Create(inputs.slices, reshuffle=False) | beam.Reshuffle()
        WATCHED_ROWS.begin(inputs.rows)
        reports, read = slices | "Reports" >> AcceptReports(collection)
        summaries = [read]
        if collection.definition.report_ids:
            reports, repeated = reports | "Distinct" >> DistinctReports(collection)
            summaries.append(repeated)
        blocks, counted = reports | "Count" >> CountReports(collection)
        if suspects is not None:
            reports | "Suspicious" >> CountSuspicious(collection, suspects)
        return blocks, [*summaries, counted]
    if suspects is not None:
        raise InputError("--detect-poisoning needs reports; these inputs are counts.")
    stored = list(_stored_blocks(inputs.counts))
    blocks = pipeline | "Stored" >> beam.Create(stored)
    blocks.element_type = BLOCK_COUNTS
    return blocks | "Add" >> beam.CombinePerKey(AddCounts()), []


def _stored_blocks(counts: Counts) -> Iterator[tuple[CountBlock, Counts]]:
    for block, part in split_blocks(counts):
        yield (0, MAIN_GROUP, block), part


def _checked(summary: dict[str, Any], inputs: ReportInputs | CountsInputs) -> dict[str, int]:
    if isinstance(inputs, CountsInputs):
        return {"counted": inputs.counts.n, "malformed": 0}
    reports = reports_counted(summary) | {"unreadable": summary["tally"].get(REPORTS_UNREADABLE, 0)}
    if inputs.rows is not None and sum(reports.values()) != inputs.rows:
        raise RunError(
            f"The files hold {inputs.rows:,} reports; {reports['counted']:,} were counted, {reports['malformed']:,} "
            f"set aside as malformed, {reports.get('duplicate', 0):,} as repeated, and "
            f"{reports['unreadable']:,} could not be read. Nothing was published."
        )
    return reports


def _joint(collection: Collection, inputs: ReportInputs | CountsInputs) -> npt.NDArray[np.float64]:
    if not isinstance(inputs, ReportInputs):
        raise InputError("--joint-em needs reports; these inputs are counts, which do not tell what each report held.")
    return joint_frequencies(collection, inputs.slices)


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


def _warnings(inputs: ReportInputs | CountsInputs, refused: Sequence[tuple[str, str]], joint_em: bool) -> list[str]:
    found = [f"Refused: {reason}" for _, reason in refused[:_REASONS]]
    if len(refused) > _REASONS:
        found.append(f"{len(refused):,} files were refused in all.")
    if len(inputs.periods) > 1:
        named = ", ".join(repr(period) for period in inputs.periods)
        found.append(f"The reports of several periods ({named}) were counted together; n counts reports, not people.")
    if joint_em:
        found.append(
            "The column frequency holds the joint EM estimate of the reports (--joint-em), not the estimator's."
        )
    if not inputs.private:
        found.append("The randomness of these reports came from a seed: they are not private.")
    return found
