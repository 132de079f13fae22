"""`collect`, the main job: records → reports → counts → estimates. And `perturb`, its client half."""

from __future__ import annotations

from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path

from ..errors import InputError
from ..mechanisms import AutoPadding, MultiRound, Secret
from ..mechanisms.padding.auto import Group
from ..schemas.manifest import Manifest, Randomness
from ..transforms.collection import Collection
from ..transforms.count import CountReports
from ..transforms.estimate import EstimateCounts, GatherCounts
from ..transforms.memo import Memo
from ..transforms.perturb import PerturbRecords
from ..transforms.publish import WriteCounts, WriteEstimates
from ..transforms.report_files import REPORT_FORMATS, WriteReports
from ..transforms.summary import WriteSummary, read_summary
from .aggregate_rounds import open_round
from .charging import charging
from .client import RecordSource, check_records, read_records, spill_folder
from .ledger import EVERYBODY
from .length_answers import LengthAnswers
from .output import OutputFolder, distinct_folders, optional_folder, parts_of, publish
from .results import describe, finish_files, reports_counted, require_every_key
from .running import Clock, Engine, engine_pipeline

__all__ = ["ClientRun", "collect", "collect_once", "perturb", "perturb_once"]

_SUMMARY = ".summary.json"


@dataclass(frozen=True, kw_only=True)
class ClientRun:
    """What `collect` and `perturb` are given, apart from where the result goes.

    Attributes:
        collection: what is collected.
        source: the records.
        secret: the clients' secret.
        randomness: what the manifest says of it.
        engine: where to run.
        rejects: folder for rejected rows (raw data), or None.
        overwrite: replace earlier results.
        ledger: file that the epsilon is charged to, or None.
        population: whom the reports are about, in the ledger.
        memo: memoised collection, or None.
        group: padding "auto": who answers, and with what; None for everybody.
        reads: the collection under whose rules records are read, where it is another one than `collection`.
        window_start: start of the slice of time that the reports belong to, see `perturb_topic.in_window`; or "".
        window_seconds: its length.
    """

    collection: Collection
    source: RecordSource
    secret: Secret
    randomness: Randomness
    engine: Engine = field(default_factory=Engine)
    rejects: str | None = None
    overwrite: bool = False
    ledger: str | None = None
    population: str = EVERYBODY
    memo: Memo | None = None
    group: Group | None = None
    reads: Collection | None = None
    window_start: str = ""
    window_seconds: int = 0

    @property
    def records_of(self) -> Collection:
        """The collection under whose rules records are read."""
        return self.reads or self.collection


def collect(
    run: ClientRun,
    output: str | Path,
    *,
    format_: str = "parquet",
    keep_reports: str | Path | None = None,
    server: Secret | None = None,
    state_folder: str | Path | None = None,
) -> Manifest:
    """Collect: perturb every user's record, count the reports, estimate every key, publish.

    Privacy:
        What is published of the reports is a function of the reports alone. The manifest's `records` part
        holds exact tallies of the input and belongs to whoever holds the records.

    Args:
        run: collection, records, secret, engine.
        output: folder for estimates, counts and manifest.
        format_: format of the estimates.
        keep_reports: folder for the reports, or None not to keep them.
        server: collections in rounds: the secret from which the server draws; see `rounds.collect_rounds`.
        state_folder: collections in rounds: where the state is kept between rounds.

    Returns:
        The manifest, also written into `output`.

    Raises:
        InputError: Something given is wrong; found before anything runs.
        RunError: The run failed; nothing was published.
    """
    if isinstance(run.collection.mechanism, MultiRound) or server is not None or state_folder is not None:
        from .rounds import collect_rounds  # which builds on this module

        return collect_rounds(
            run, output, format_=format_, keep_reports=keep_reports, server=server, state_folder=state_folder
        )
    if isinstance(run.collection.mechanism, AutoPadding):
        from .two_questions import collect_two_questions  # which builds on this module

        return collect_two_questions(run, output, format_=format_, keep_reports=keep_reports)
    return collect_once(run, output, format_=format_, keep_reports=keep_reports)


def collect_once(
    run: ClientRun,
    output: str | Path,
    *,
    format_: str = "parquet",
    keep_reports: str | Path | None = None,
    before: LengthAnswers | None = None,
) -> Manifest:
    """Collect with a mechanism that asks one question; `before` tells of the length question of the same run."""
    clock, collection = Clock(), run.collection
    inputs = run.source.inspect(run.records_of)
    private, period, memoised = run.randomness.private, run.randomness.period, run.memo is not None
    with ExitStack() as stack:
        shared = run.engine.shares_disk
        result = stack.enter_context(OutputFolder(output, overwrite=run.overwrite, shared=shared))
        reports_to = optional_folder(stack, keep_reports, run.overwrite, "--keep-reports", shared=shared)
        rejects_to = optional_folder(stack, run.rejects, run.overwrite, "--rejects", shared=shared)
        distinct_folders(result, reports_to, rejects_to)
        spill = stack.enter_context(spill_folder(run.engine))
        charge = stack.enter_context(charging(run)) if before is None else before.charge
        told: dict[str, int | str] = {}
        with engine_pipeline(run.engine, writes_to=parts_of(result, reports_to, rejects_to), metrics=told) as p:
            records, read = read_records(
                p, run.records_of, run.source, inputs, run.secret, spill=spill, rejects=_path(rejects_to)
            )  # record batches of canonical records; summaries
            reports = records | "Perturb" >> PerturbRecords(
                collection, run.secret, period=period, memo=run.memo, group=run.group
            )
            # ---- the boundary: from here on there are no records, only reports ----
            blocks, counted = reports | "Count" >> CountReports(collection)  # ((round, group, block), Counts)
            counts = blocks | "Gather" >> GatherCounts(collection)  # ((round, group), Counts)
            estimates = counts | "Estimate" >> EstimateCounts(collection, private=private, period=period)
            summaries = [
                read,
                counted,
                estimates | "WriteEstimates" >> WriteEstimates(result.part("estimates"), format_),
                counts
                | "WriteCounts"
                >> WriteCounts(
                    collection, result.part("counts.parquet"), private=private, period=period, memoised=memoised
                ),
            ]
            if reports_to is not None:
                keep = WriteReports(collection, reports_to.parts, period=period, private=private, memoised=memoised)
                summaries.append(reports | "WriteReports" >> keep)
            summaries += charge.digests(reports, collection)
            tuple(summaries) | "Summary" >> WriteSummary(result.part(_SUMMARY))
        summary = read_summary(result.part(_SUMMARY))
        counted_now = reports_counted(summary)["counted"]
        check_records(summary, run.source, inputs, reports=counted_now + (before.answers if before else 0))
        spent = charge.settle(summary, counted_now)
        files = finish_files(summary, result, reports_to, rejects_to)
        require_every_key(files, len(collection.definition.keys))
        manifest = describe("collect", run, summary, clock, files, epsilon=spent, metrics=told)
        if before is not None:
            manifest = before.told_in(manifest)
        publish(manifest, result, reports_to, rejects_to)
    return manifest


def perturb(
    run: ClientRun,
    output: str | Path,
    *,
    format_: str = "parquet",
    round_: int | None = None,
    state_folder: str | Path | None = None,
) -> Manifest:
    """The client half of `collect`: records → report files, one report a user.

    Privacy:
        The report files satisfy the collection's epsilon for each user. Hand over the report files, not the
        manifest's `records` part.

    Args:
        run: collection, records, secret, engine.
        output: folder for the reports and the manifest.
        format_: "parquet" or "avro".
        round_: collections in rounds: the open round, which is answered.
        state_folder: collections in rounds: the folder that the rounds share.

    Raises:
        InputError: Something given is wrong; found before anything runs.
        RunError: The run failed; nothing was published.
    """
    if format_ not in REPORT_FORMATS:
        raise InputError(f"--format {format_}: reports exist as {' and '.join(REPORT_FORMATS)} only.")
    if isinstance(run.collection.mechanism, AutoPadding):
        from .two_questions import perturb_question  # which builds on this module

        return perturb_question(run, output, round_=round_, state_folder=state_folder, format_=format_)
    which = open_round(run.collection, round_, state_folder)
    if which is not None:
        from .rounds import perturb_round  # which builds on this module

        return perturb_round(run, output, round_=which.number, state_folder=which.folder, format_=format_)
    return perturb_once(run, output, format_=format_)


def perturb_once(
    run: ClientRun, output: str | Path, *, format_: str = "parquet", paid_with: str | None = None
) -> Manifest:
    """Perturb for a mechanism that asks one question; `paid_with` is the fingerprint of the other question, if any."""
    clock, collection = Clock(), run.collection
    inputs = run.source.inspect(run.records_of)
    private, period = run.randomness.private, run.randomness.period
    with ExitStack() as stack:
        shared = run.engine.shares_disk
        result = stack.enter_context(OutputFolder(output, overwrite=run.overwrite, shared=shared))
        rejects_to = optional_folder(stack, run.rejects, run.overwrite, "--rejects", shared=shared)
        distinct_folders(result, rejects_to)
        spill = stack.enter_context(spill_folder(run.engine))
        charge = stack.enter_context(charging(run, paid_with=paid_with))
        told: dict[str, int | str] = {}
        with engine_pipeline(run.engine, writes_to=parts_of(result, rejects_to), metrics=told) as p:
            records, read = read_records(
                p, run.records_of, run.source, inputs, run.secret, spill=spill, rejects=_path(rejects_to)
            )
            reports = records | "Perturb" >> PerturbRecords(
                collection, run.secret, period=period, memo=run.memo, group=run.group
            )
            written = reports | "WriteReports" >> WriteReports(
                collection,
                result.parts,
                format_,
                period=period,
                private=private,
                memoised=run.memo is not None,
                window_start=run.window_start,
                window_seconds=run.window_seconds,
            )
            (read, written, *charge.digests(reports)) | "Summary" >> WriteSummary(result.part(_SUMMARY))
        summary = read_summary(result.part(_SUMMARY))
        sent = sum(rows for kind, _, rows in summary["files"] if kind == "reports")
        # of two questions each user answers one, so that a part of the users sent these
        check_records(summary, run.source, inputs, reports=sent if run.group is None else None)
        spent = charge.settle(summary, sent)
        files = finish_files(summary, result, result, rejects_to)
        manifest = describe("perturb", run, summary, clock, files, epsilon=spent, metrics=told)
        publish(manifest, result, rejects_to)
    return manifest


def _path(folder: OutputFolder | None) -> str | None:
    return None if folder is None else folder.parts
