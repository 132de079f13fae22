"""Collections in rounds: `collect` runs a job per round, `perturb` answers the open round.

A round's question depends on the counts of the round before, so each round is a job of its own, between which the
driver advances the state: a few arrays over the keys. Every round reads the same records again.
"""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import ExitStack
from dataclasses import dataclass, replace
from fractions import Fraction
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from ..errors import InputError, RunError
from ..mechanisms import Counts, MultiRound, Secret, State
from ..mechanisms.privkv.drawn import Feedback
from ..mechanisms.privkv.rounds import budget_text
from ..schemas.manifest import Manifest
from ..schemas.tally import USERS
from ..transforms.answers import WriteAnswers
from ..transforms.collection import Collection
from ..transforms.count import CountReports
from ..transforms.estimate import GatherCounts
from ..transforms.inputs import RecordInputs
from ..transforms.perturb import PerturbRecords
from ..transforms.publish import WriteCounts
from ..transforms.report_files import WriteReports
from ..transforms.round_folder import FeedbackFile, RoundFolder, read_answers
from ..transforms.summary import WriteSummary, read_summary
from .aggregate_rounds import feedback_for, protocol_of, read_round, rounds_epsilon, write_state
from .charging import Charge, charging
from .client import check_records, read_records, spill_folder
from .output import OutputFolder, distinct_folders, optional_folder, parts_of, publish
from .results import describe, finish_files, reports_counted
from .running import Clock, engine_pipeline, engine_session

if TYPE_CHECKING:
    from .collect import ClientRun

__all__ = ["collect_rounds", "perturb_round"]


# -- both halves in one run ---------------------------------------------------------------------------------


@dataclass(frozen=True, kw_only=True)
class _Folders:
    result: OutputFolder
    reports: OutputFolder | None
    rejects: OutputFolder | None


def collect_rounds(
    run: ClientRun,
    output: str | Path,
    *,
    format_: str = "parquet",
    keep_reports: str | Path | None = None,
    server: Secret | None = None,
    state_folder: str | Path | None = None,
) -> Manifest:
    """Ask all rounds of a collection, one job each, and publish what they bring together.

    Privacy:
        All rounds together satisfy the collection's epsilon for each user. Clients get signs, never estimates.

    Args:
        run: collection, records, secret, engine.
        output: folder for estimates, counts and manifest.
        format_: format of the estimates.
        keep_reports: folder for the reports of all rounds, or None not to keep them.
        server: secret from which the server draws what it feeds back; None for the clients' one under a label of its
            own, since both halves belong to one run here.
        state_folder: where the state is kept between rounds, so that a run that was stopped goes on after the last
            complete round; None to keep it in memory.

    Raises:
        InputError: Something given is wrong; found before anything runs.
        RunError: The run failed; nothing was published.
    """
    clock, protocol = Clock(), protocol_of(run.collection)
    _refuse_memo(run)
    inputs = run.source.inspect(run.collection)
    private, period = run.randomness.private, run.randomness.period
    kept = None if state_folder is None else _resume(run, state_folder, protocol)
    state = protocol.initial() if kept is None else kept.load_state(protocol)
    with ExitStack() as stack:
        stack.enter_context(engine_session())
        folders = _open_folders(stack, run, output, keep_reports)
        reports: list[dict[str, Any]] = []
        summary: dict[str, Any] = {"tally": {}, "files": []}
        charged: dict[str, Any] = {}
        while not state.done:
            feedback = feedback_for(run.collection, protocol, state, server or run.secret, period)
            counts, summary, charged = _ask(run, inputs, protocol, state, feedback, folders)
            reports += _settle_reports(summary, folders.reports, state.round)
            _same_users(state, counts)
            state = protocol.advance(state, counts)
            if kept is not None:
                kept.put_state(state)
                kept.close_round(state, period=period, private=private)
        files = write_state(
            run.collection, state, folders.result.staging, format_=format_, private=private, period=period
        )
        epsilon = charged | rounds_epsilon(protocol, state, spends=True)
        manifest = describe("collect", run, summary, clock, [*files, *reports], epsilon=epsilon)
        manifest = replace(manifest, reports={"counted": sum(c.n for c in state.counts), "malformed": 0})
        publish(manifest, folders.result, folders.reports, folders.rejects)
    return manifest


def _resume(run: ClientRun, folder: str | Path, protocol: MultiRound) -> RoundFolder:
    """Open a state folder at its open round, which must have been begun with the same secret and period."""
    kept = RoundFolder(folder, run.collection)
    kept.require_open(kept.status.round, protocol) if not kept.status.done else kept.require_open(1, protocol)
    if run.randomness.source == "fresh secret":
        raise InputError("--state needs --secret-file or --seed: a run that goes on must ask with the same secret.")
    if kept.status.round > 1 and kept.status.period != run.randomness.period:
        raise InputError(
            f"--state {folder} was begun in the period {kept.status.period!r}, not {run.randomness.period!r}."
        )
    return kept


def _refuse_memo(run: ClientRun) -> None:
    if run.memo is not None:
        raise InputError(
            "A collection in rounds cannot be memoised: what a client answers depends on the signs fed back, which "
            "differ from period to period. Leave the memo out."
        )


def _open_folders(stack: ExitStack, run: ClientRun, output: str | Path, keep_reports: str | Path | None) -> _Folders:
    shared = run.engine.shares_disk
    result = stack.enter_context(OutputFolder(output, overwrite=run.overwrite, shared=shared))
    reports = optional_folder(stack, keep_reports, run.overwrite, "--keep-reports", shared=shared)
    rejects = optional_folder(stack, run.rejects, run.overwrite, "--rejects", shared=shared)
    distinct_folders(result, reports, rejects)
    return _Folders(result=result, reports=reports, rejects=rejects)


def _ask(
    run: ClientRun,
    inputs: RecordInputs,
    protocol: MultiRound,
    state: State,
    feedback: Feedback | None,
    folders: _Folders,
) -> tuple[Counts, dict[str, Any], dict[str, Any]]:
    """Run the job of one round, records → reports → counts; with its summary and what the ledger charged."""
    asked = protocol.for_round(state)
    one, answering = run.collection.for_round(asked), run.collection.for_round(asked.answering(feedback))
    private, period = run.randomness.private, run.randomness.period
    # Names of their own: an attempt of an earlier round that somehow still runs writes into none of these.
    names = [f".round-{state.round}.parquet", f".summary-{state.round}.json"]
    counts_file, summary_file = map(folders.result.part, names)
    writes_to = parts_of(folders.result, folders.reports, folders.rejects)
    rejects = folders.rejects.parts if folders.rejects is not None and state.round == 1 else None
    with charging(replace(run, collection=one)) as charge:
        with spill_folder(run.engine) as spill, engine_pipeline(run.engine, writes_to=writes_to) as p:
            records, read = read_records(
                p, run.collection, run.source, inputs, run.secret, spill=spill, rejects=rejects
            )  # record batches of canonical records; summaries
            reports = records | "Perturb" >> PerturbRecords(answering, run.secret, period=period)
            # ---- the boundary: from here on there are no records, only reports ----
            blocks, counted = reports | "Count" >> CountReports(one)  # ((round, group, block), Counts)
            counts = blocks | "Gather" >> GatherCounts(one)  # ((round, group), Counts)
            summaries = [read, counted, counts | "WriteCounts" >> WriteCounts(one, counts_file)]
            if folders.reports is not None:
                keep = WriteReports(one, folders.reports.parts, period=period, private=private)
                summaries.append(reports | "WriteReports" >> keep)
            (*summaries, *charge.digests(reports)) | "Summary" >> WriteSummary(summary_file)
        summary = read_summary(summary_file)
        sent = reports_counted(summary)["counted"]
        check_records(summary, run.source, inputs, reports=sent)
        charged = charge.settle(summary, sent) or {}
    found = read_round(counts_file, one)
    folders.result.discard(*names)
    return found, summary, charged


def _settle_reports(summary: Mapping[str, Any], folder: OutputFolder | None, round_: int) -> list[dict[str, Any]]:
    """Give the report files of a round their final names."""
    files = sorted((-rows, path) for kind, path, rows in summary["files"] if kind == "reports")
    listed = []
    for number, (rows, path) in enumerate(files):
        if folder is None:
            raise RunError("A worker wrote reports where none were asked for.")
        name = f"reports-round-{round_}-{number:05d}-of-{len(files):05d}{Path(path).suffix}"
        folder.settle(path, name, bring=False)
        listed.append({"kind": "reports", "name": name, "rows": -rows, "round": round_})
    return listed


def _same_users(state: State, counts: Counts) -> None:
    if state.counts and counts.n != state.counts[0].n:
        raise RunError(
            f"Round 1 had {state.counts[0].n:,} users and round {state.round} has {counts.n:,}: the records changed "
            "between rounds, but all rounds ask the same users. Nothing was published."
        )


# -- the client's half alone ----------------------------------------------------------------------------------


def perturb_round(
    run: ClientRun, output: str | Path, *, round_: int, state_folder: str | Path, format_: str = "parquet"
) -> Manifest:
    """Answer the open round: records → report files, one report a user, and a note of who answered.

    Privacy:
        A client answers each round once: who answered this one already is refused, whatever was fed back.

    Args:
        run: collection, records, secret, engine.
        output: folder for the reports and the manifest.
        round_: number of the round; it must be the open one.
        state_folder: what `RoundFolder` describes; the signs to answer with lie there from the second round on.
        format_: "parquet" or "avro".

    Raises:
        InputError: The round is not open, or a user cannot answer it.
        RunError: The run failed; nothing was published.
    """
    clock, protocol = Clock(), protocol_of(run.collection)
    folder = RoundFolder(state_folder, run.collection)
    folder.require_open(round_, protocol)
    _refuse_memo(run)
    _same_randomness(run, folder)
    one = _answering(run.collection, protocol, folder, round_)
    inputs = run.source.inspect(run.collection)
    with ExitStack() as stack:
        shared = run.engine.shares_disk
        result = stack.enter_context(OutputFolder(output, overwrite=run.overwrite, shared=shared))
        rejects_to = optional_folder(stack, run.rejects, run.overwrite, "--rejects", shared=shared)
        distinct_folders(result, rejects_to)
        charge = stack.enter_context(charging(replace(run, collection=one)))
        summary = _answer(run, inputs, one, result, rejects_to, folder, format_, charge)
        sent = sum(rows for kind, _, rows in summary["files"] if kind == "reports")
        check_records(summary, run.source, inputs, reports=sent)
        users = _new_answers(summary, folder, round_)
        charged = charge.settle(summary, sent) or {}
        summary["files"] = [file for file in summary["files"] if file[0] != "answers"]
        files = finish_files(summary, result, result, rejects_to)
        budget = budget_text(Fraction(one.mechanism.epsilon))
        epsilon = {"spent_per_user": budget, **charged, "round": round_, "round_exact": one.mechanism.exact_epsilon()}
        manifest = describe("perturb", run, summary, clock, files, epsilon=epsilon)
        publish(manifest, result, rejects_to)
        folder.add_answers(round_, users)
    return manifest


def _same_randomness(run: ClientRun, folder: RoundFolder) -> None:
    if run.randomness.source == "fresh secret":
        raise InputError(
            "Rounds need --secret-file with --period (or --seed, for tests): a fresh secret would make every user a "
            "new one in the next round."
        )
    if folder.status.round > 1 and folder.status.period != run.randomness.period:
        raise InputError(
            f"The rounds were begun in the period {folder.status.period!r}, but --period is {run.randomness.period!r}. "
            "All rounds are answered under one period."
        )


def _answering(collection: Collection, protocol: MultiRound, folder: RoundFolder, round_: int) -> Collection:
    feedback: Feedback | None = None
    if round_ > 1:
        path = folder.feedback_path(round_)
        if not path.exists():
            raise InputError(f"{path} is missing: the server writes it when it closes round {round_ - 1}.")
        feedback = FeedbackFile(path.absolute())
    return collection.for_round(protocol.round(round_).answering(feedback))


def _answer(
    run: ClientRun,
    inputs: RecordInputs,
    one: Collection,
    result: OutputFolder,
    rejects: OutputFolder | None,
    folder: RoundFolder,
    format_: str,
    charge: Charge,
) -> dict[str, Any]:
    """Run the job: records → report files and files of digests, in the staging folder."""
    private, period = run.randomness.private, run.randomness.period
    summary_file = result.part(".summary.json")
    writes_to = [*parts_of(result, rejects), *([str(folder.path)] if one.round > 1 else [])]  # the signs are read there
    rejects_to = None if rejects is None else rejects.parts
    with spill_folder(run.engine) as spill, engine_pipeline(run.engine, writes_to=writes_to) as p:
        records, read = read_records(p, run.collection, run.source, inputs, run.secret, spill=spill, rejects=rejects_to)
        reports = records | "Perturb" >> PerturbRecords(one, run.secret, period=period)
        summaries = (
            read,
            records | "WriteAnswers" >> WriteAnswers(result.parts),
            reports | "WriteReports" >> WriteReports(one, result.parts, format_, period=period, private=private),
            *charge.digests(reports),
        )
        summaries | "Summary" >> WriteSummary(summary_file)
    return read_summary(summary_file)


def _new_answers(summary: dict[str, Any], folder: RoundFolder, round_: int) -> np.ndarray[Any, np.dtype[np.uint8]]:
    """Digests of who answered now; nobody twice, and nobody who answered before."""
    users = read_answers([path for kind, path, _ in summary["files"] if kind == "answers"])
    if len(users) != summary["tally"].get(USERS, 0):
        raise RunError(f"{len(users):,} users were noted, but {summary['tally'].get(USERS, 0):,} took part.")
    before = folder.answered(round_)
    everybody = np.concatenate([before, users]).view("V16").reshape(-1)
    twice = len(everybody) - len({row.tobytes() for row in everybody})
    if twice:
        raise InputError(
            f"{twice:,} of these {len(users):,} users have answered round {round_} already, or stand in the input "
            "twice. A client answers each round once; the reports were thrown away."
        )
    return users
