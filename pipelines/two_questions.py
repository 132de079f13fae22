"""`padding = "auto"`: `collect` asks both questions, `perturb` and `aggregate` one each.

The length question is a job of its own, which must end before the main one can begin: the server reads the padding off
its counts. With files, the two halves share a folder, as collections in rounds do: round 1 is the length question, and
when it is closed the resolved definition lies there, under which round 2 is answered and counted like any collection.
"""

from __future__ import annotations

from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from ..errors import InputError
from ..mechanisms import Counts
from ..schemas.manifest import Manifest
from ..transforms.count import CountReports
from ..transforms.estimate import GatherCounts
from ..transforms.perturb import PerturbRecords
from ..transforms.publish import WriteCounts
from ..transforms.report_files import WriteReports
from ..transforms.summary import WriteSummary, read_summary
from ..transforms.two_questions import length_collection, questions_of, resolved_collection
from .aggregate_questions import open_question, read_lengths
from .charging import Charge, charging
from .client import read_records, spill_folder
from .collect import collect_once, perturb_once
from .length_answers import LengthAnswers
from .output import OutputFolder, optional_folder, parts_of
from .results import finish_files, reports_counted
from .running import engine_pipeline, engine_session

if TYPE_CHECKING:
    from .collect import ClientRun

__all__ = ["collect_two_questions", "perturb_question"]


def collect_two_questions(
    run: ClientRun, output: str | Path, *, format_: str = "parquet", keep_reports: str | Path | None = None
) -> Manifest:
    """Ask some users for their length, choose the padding, and ask the others the main question.

    Privacy:
        Each user answers one question with the collection's epsilon. The padding is a function of reports.

    Args:
        run: collection with padding "auto", records, secret, engine.
        output: folder for estimates, counts and manifest, all of the main question.
        format_: format of the estimates.
        keep_reports: folder for the reports of the main question; those of the length question go beside it, into a
            folder of that name with "-length".

    Raises:
        InputError: Something given is wrong; found before anything runs.
        RunError: The run failed; nothing was published.
    """
    _refuse_memo(run)
    asked = questions_of(run.collection)
    run.source.inspect(run.collection)
    with ExitStack() as stack:
        stack.enter_context(engine_session())
        shared = run.engine.shares_disk
        scratch = stack.enter_context(OutputFolder(output, overwrite=run.overwrite, shared=shared))
        beside = None if keep_reports is None else f"{str(keep_reports).rstrip('/')}-length"
        reports_to = optional_folder(stack, beside, run.overwrite, "--keep-reports", shared=shared)
        charge = stack.enter_context(charging(run))
        counts = _ask_lengths(run, scratch, reports_to, charge)
        choice = asked.choose(counts, run.collection.definition.estimator)
        main = replace(
            run,
            collection=resolved_collection(run.collection, choice.padding),
            group=asked.group(run.secret, run.collection.definition.name, length=False),
        )
        answers = LengthAnswers(asked=run.collection, answers=counts.n, choice=choice, charge=charge)
        manifest = collect_once(main, output, format_=format_, keep_reports=keep_reports, before=answers)
        if reports_to is not None:
            reports_to.publish()
    return manifest


def _refuse_memo(run: ClientRun) -> None:
    if run.memo is not None:
        raise InputError(
            'A collection with padding = "auto" cannot be memoised: the padding, and with it every report, may change '
            "from period to period. Memoise the resolved definition, which has a fixed padding."
        )


def _ask_lengths(run: ClientRun, scratch: OutputFolder, reports_to: OutputFolder | None, charge: Charge) -> Counts:
    """Run the job of the length question, records → reports → counts."""
    question, asked = length_collection(run.collection), questions_of(run.collection)
    private, period = run.randomness.private, run.randomness.period
    counts_file, summary_file = scratch.part(".length.parquet"), scratch.part(".summary.json")
    group = asked.group(run.secret, run.collection.definition.name, length=True)
    inputs = run.source.inspect(run.collection)
    with spill_folder(run.engine) as spill, engine_pipeline(run.engine, writes_to=parts_of(scratch, reports_to)) as p:
        records, read = read_records(p, run.collection, run.source, inputs, run.secret, spill=spill)
        reports = records | "Perturb" >> PerturbRecords(question, run.secret, period=period, group=group)
        # ---- the boundary: from here on there are no records, only reports ----
        blocks, counted = reports | "Count" >> CountReports(question)  # ((round, group, block), Counts)
        counts = blocks | "Gather" >> GatherCounts(question)  # ((round, group), Counts)
        summaries = [read, counted, counts | "WriteCounts" >> WriteCounts(question, counts_file)]
        if reports_to is not None:
            keep = WriteReports(question, reports_to.parts, period=period, private=private)
            summaries.append(reports | "WriteReports" >> keep)
        (*summaries, *charge.digests(reports, question)) | "Summary" >> WriteSummary(summary_file)
    summary = read_summary(summary_file)
    charge.add(summary, reports_counted(summary)["counted"])
    found = read_lengths(counts_file, question)
    summary["files"] = [file for file in summary["files"] if file[0] == "reports"]
    finish_files(summary, scratch, reports_to)
    return found


# -- the client's half alone --------------------------------------------------------------------------------


def perturb_question(
    run: ClientRun, output: str | Path, *, round_: int | None, state_folder: str | Path | None, format_: str = "parquet"
) -> Manifest:
    """Answer the length question (round 1) or the main one (round 2): records → report files.

    Privacy:
        Each user answers one of the two; which one follows from the secret, the collection's name and the user.

    Args:
        run: collection with padding "auto", records, secret, engine.
        output: folder for the reports and the manifest.
        round_: 1 or 2; it must be the open one.
        state_folder: the folder that both halves share.
        format_: "parquet" or "avro".

    Raises:
        InputError: The round is not open, or it would be answered under another secret or period.
        RunError: The run failed; nothing was published.
    """
    _refuse_memo(run)
    asked, collection = questions_of(run.collection), run.collection
    folder = open_question(collection, round_, state_folder)
    if run.randomness.source == "fresh secret":
        raise InputError(
            "The two questions need --secret-file with --period (or --seed, for tests): under a fresh secret other "
            "users would be asked each time, and some would answer both."
        )
    question = length_collection(collection)
    secret_id, period = run.randomness.secret_id or "", run.randomness.period
    group = asked.group(run.secret, collection.definition.name, length=round_ == 1)
    if round_ == 1:
        one = replace(run, collection=question, reads=collection, group=group)
        folder.begin(secret_id, period)
        return perturb_once(one, output, format_=format_)
    folder.require_begun(secret_id, period)
    one = replace(run, collection=resolved_collection(collection, folder.padding()), group=group)
    return perturb_once(one, output, format_=format_, paid_with=question.fingerprint)
