"""The server's half of a collection in rounds: count the open round, advance the state, draw what is fed back.

Nothing here sees a record. Between rounds the server owes every user who answered the first round one sign for each
key; it draws them from a secret of its own.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from pathlib import Path
from typing import Any

import apache_beam as beam
import pyarrow.parquet as pq

from ..errors import InputError, ParameterError, RunError
from ..mechanisms import Counts, MultiRound, Secret, State
from ..mechanisms.privkv.rounds import DrawnFeedback, budget_text
from ..schemas.counts import MAIN_GROUP, counts_from_table, counts_schema
from ..schemas.manifest import Manifest, Randomness
from ..schemas.reports import FileHeader
from ..transforms.collection import Collection
from ..transforms.count import CountReports
from ..transforms.count_distinct import DistinctReports
from ..transforms.estimate import GatherCounts, estimates_batch
from ..transforms.paths import expand
from ..transforms.publish import WriteCounts, write_counts
from ..transforms.report_files import ReadReports, ReportInputs, inspect_reports
from ..transforms.report_files_checks import open_file
from ..transforms.round_folder import RoundFolder
from ..transforms.summary import WriteSummary, read_summary
from ..transforms.table_files import write_table
from .output import OutputFolder, parts_of
from .randomness_options import new_secret_file, read_secret_file
from .results import manifest_of, reports_counted
from .running import Clock, Engine, engine_pipeline

__all__ = [
    "OpenRound",
    "aggregate_round",
    "estimate_stored",
    "feedback_for",
    "open_round",
    "protocol_of",
    "read_round",
    "rounds_epsilon",
    "write_state",
]


def protocol_of(collection: Collection) -> MultiRound:
    """Return the mechanism of a collection in rounds.

    Raises:
        ParameterError: The collection asks once.
    """
    if not isinstance(collection.mechanism, MultiRound):
        raise ParameterError(
            f"{collection.mechanism.name} asks once, so --round and --state mean nothing to it. Leave them out."
        )
    return collection.mechanism


@dataclass(frozen=True, kw_only=True)
class OpenRound:
    """Which round is meant, and the folder that all rounds share."""

    number: int
    folder: str | Path


def open_round(collection: Collection, round_: int | None, state_folder: str | Path | None) -> OpenRound | None:
    """Return the round that options mean; None for collections that ask once.

    Raises:
        InputError: A collection in rounds without `--round` and `--state`, or one that asks once with either.
    """
    if not isinstance(collection.mechanism, MultiRound) and round_ is None and state_folder is None:
        return None
    protocol = protocol_of(collection)
    if round_ is None or state_folder is None:
        raise InputError(
            f"{protocol.name} asks in rounds: give --round R (1 to {protocol.rounds_max}) and --state DIR, the folder "
            "that all rounds share; `ldp-beam collect` runs all rounds at once."
        )
    return OpenRound(number=round_, folder=state_folder)


def feedback_for(
    collection: Collection, protocol: MultiRound, state: State, server: Secret, period: str
) -> DrawnFeedback | None:
    """Return the signs that the server feeds back for the open round; None for the first."""
    if state.round == 1:
        return None
    label = f"feedback of {collection.fingerprint}"
    return DrawnFeedback(server.stream(fingerprint=label, period=period, round=state.round), protocol.fed_back(state))


def read_round(path: str, one: Collection) -> Counts:
    """Read the counts of one round that a job left at `path`."""
    zero = one.mechanism.zero()
    with open_file(path) as file:
        table = pq.read_table(file)
    groups = counts_from_table(table, {name: len(cells) for name, cells in zero.cells.items()})
    n, cells = groups[one.round, MAIN_GROUP]
    return Counts(n=n, cells=cells)


def rounds_epsilon(protocol: MultiRound, state: State, *, spends: bool) -> dict[str, Any]:
    """What the manifest says of privacy: spent and unspent, and what each round took."""
    done = len(state.counts)
    spent = protocol.spent(done)
    rounds = []
    for number, counts in enumerate(state.counts, start=1):
        key, sign = protocol.budgets(number)
        rounds.append(
            {
                "round": number,
                "epsilon_1": budget_text(key),
                "epsilon_2": budget_text(sign),
                "exact": protocol.round(number).exact_epsilon(),
                "reports": counts.n,
            }
        )
    return {
        "exact_of_rounds": protocol.exact_after(done),
        "spent_per_user": budget_text(spent) if spends else "0",
        "unspent": budget_text(max(Fraction(0), Fraction(protocol.epsilon) - spent)),
        "ended": state.done,
        "rounds": rounds,
    }


def write_state(
    collection: Collection, state: State, staging: Path, *, format_: str, private: bool, period: str
) -> list[dict[str, Any]]:
    """Write estimates and the counts of all finished rounds into a folder, and list the files."""
    estimates = protocol_of(collection).estimate_state(state, collection.definition.estimator)
    batch = estimates_batch(collection, estimates, private=private, period=period)
    name = f"estimates.{format_}"
    rows = write_table(str(staging / name), batch, format_, name="estimates")
    schema = counts_schema(collection.header("counts", private=private, period=period))
    groups = [((number, MAIN_GROUP), counts) for number, counts in enumerate(state.counts, start=1)]
    written = write_counts(str(staging / "counts.parquet"), schema, groups)
    return [
        {"kind": "counts", "name": "counts.parquet", "rows": written.rows},
        {"kind": "estimates", "name": name, "rows": rows},
    ]


def aggregate_round(
    collection: Collection,
    patterns: Sequence[str],
    output: str | Path,
    *,
    round_: int,
    state_folder: str | Path,
    server_secret: str | Path | None = None,
    format_: str = "parquet",
    engine: Engine | None = None,
    overwrite: bool = False,
) -> Manifest:
    """Count all reports of the open round, close it, and open the next one if there is to be one.

    Args:
        collection: the definition under which the rounds are asked.
        patterns: files of all reports of the round.
        output: folder for the estimates so far, the counts of all rounds so far, and the manifest.
        round_: number of the round; it must be the open one.
        state_folder: what `RoundFolder` describes.
        server_secret: file of the server's secret; None for one in the state folder, made when it is needed.
        format_: format of the estimates.
        engine: where to run.
        overwrite: replace an earlier result.

    Raises:
        InputError: The round is not open, or a file is not one of its reports.
        RunError: The run failed; nothing was published and the round is still open.
    """
    clock, engine, protocol = Clock(), engine or Engine(), protocol_of(collection)
    folder = RoundFolder(state_folder, collection)
    folder.require_open(round_, protocol)
    state = folder.load_state(protocol)
    one = collection.for_round(protocol.for_round(state))
    inputs = inspect_reports(expand(patterns), one)
    if inputs.refused:  # a round is closed once, with all of its reports
        raise InputError(inputs.refused[0][1])
    period = _one_period(inputs, folder)
    server = _server_secret(folder, server_secret)
    private = inputs.private and folder.status.private
    with OutputFolder(output, overwrite=overwrite, shared=engine.shares_disk) as result:
        counts, reports = _count(one, inputs, engine, result)
        users = folder.answered(1)
        _check_answers(folder, round_, reports["counted"] + reports["malformed"])
        state = protocol.advance(state, counts)
        files = write_state(collection, state, result.staging, format_=format_, private=private, period=period)
        manifest = manifest_of(
            "aggregate",
            collection,
            Randomness(source="reports", private=private, period=period),
            engine,
            clock,
            records=None,
            reports=reports,
            files=files,
            spends=False,
            warnings=[] if private else ["The randomness of these reports came from a seed: they are not private."],
            epsilon=rounds_epsilon(protocol, state, spends=False),
        )
        manifest.write(result.staging)
        feedback = None if state.done else feedback_for(collection, protocol, state, server, period)
        if feedback is not None:
            folder.put_feedback(state.round, users, feedback, protocol.keys)
        folder.put_state(state)
        result.publish()
        folder.close_round(state, period=period, private=private)
    return manifest


def estimate_stored(
    collection: Collection,
    paths: Sequence[str],
    output: str | Path,
    *,
    format_: str = "parquet",
    overwrite: bool = False,
) -> Manifest:
    """Estimate anew from the counts file of a collection in rounds.

    Args:
        collection: the definition under which the rounds were asked; its estimator may be another one.
        paths: one counts file. Counts of two runs cannot be added: different signs were fed back.
        output: folder for estimates, counts and manifest.
        format_: format of the estimates.
        overwrite: replace an earlier result.

    Raises:
        InputError: There are several files, or one that no run in rounds left behind.
    """
    clock, protocol = Clock(), protocol_of(collection)
    if len(paths) != 1:
        raise InputError(
            f"{len(paths)} counts files were given; counts of collections in rounds cannot be added, since what was "
            "fed back between rounds differs. Give one counts.parquet."
        )
    header, state = _stored_state(collection, protocol, paths[0])
    with OutputFolder(output, overwrite=overwrite) as result:
        files = write_state(
            collection, state, result.staging, format_=format_, private=header.private, period=header.period
        )
        manifest = manifest_of(
            "aggregate",
            collection,
            Randomness(source="reports", private=header.private, period=header.period),
            Engine(),
            clock,
            records=None,
            reports={"counted": sum(counts.n for counts in state.counts), "malformed": 0},
            files=files,
            spends=False,
            epsilon=rounds_epsilon(protocol, state, spends=False),
        )
        manifest.write(result.staging)
        result.publish()
    return manifest


def _stored_state(collection: Collection, protocol: MultiRound, path: str) -> tuple[FileHeader, State]:
    """Advance through the rounds of a counts file."""
    with open_file(path) as file:
        table = pq.read_table(file)
    header = FileHeader.read(table.schema.metadata, path)
    header.require(kind="counts", fingerprint=collection.fingerprint, path=path)
    sizes = {name: len(cells) for name, cells in protocol.zero().cells.items()}
    try:
        groups = counts_from_table(table, sizes)
    except ValueError as error:
        raise InputError(f"{path} holds counts that cannot be: {error}.") from error
    state = protocol.initial()
    for round_, group in sorted(groups):
        if (round_, group) != (state.round, MAIN_GROUP) or state.done:
            raise InputError(f"{path} holds counts of round {round_}, group {group!r}, which cannot be there.")
        n, cells = groups[round_, group]
        state = protocol.advance(state, Counts(n=n, cells=cells))
    return header, state


def _one_period(inputs: ReportInputs, folder: RoundFolder) -> str:
    """All rounds belong to one period: their reports would otherwise be those of several collections."""
    known = {folder.status.period} if folder.status.round > 1 else set()
    periods = sorted({*inputs.periods, *known})
    if len(periods) != 1:
        raise InputError(
            f"The reports and rounds belong to the periods {', '.join(map(repr, periods))}. All rounds of a collection "
            "are answered under one --period; give the reports of that one."
        )
    return periods[0]


def _server_secret(folder: RoundFolder, path: str | Path | None) -> Secret:
    if path is not None:
        return read_secret_file(Path(path))
    if folder.secret_file.exists():
        return read_secret_file(folder.secret_file)
    folder.make()
    return new_secret_file(folder.secret_file)


def _count(
    one: Collection, inputs: ReportInputs, engine: Engine, result: OutputFolder
) -> tuple[Counts, Mapping[str, int]]:
    """Run the job of one round."""
    names = [".round.parquet", ".summary.json"]
    counts_file, summary_file = map(result.part, names)
    with engine_pipeline(engine, writes_to=parts_of(result)) as p:
        slices = p | "Files" >> beam.Create(inputs.slices, reshuffle=False) | beam.Reshuffle()
        reports = slices | "Reports" >> ReadReports(one)  # record batches of reports
        summaries = []
        if one.definition.report_ids:
            reports, repeated = reports | "Distinct" >> DistinctReports(one)
            summaries.append(repeated)
        blocks, counted = reports | "Count" >> CountReports(one)  # ((round, group, block), Counts)
        counts = blocks | "Gather" >> GatherCounts(one)  # ((round, group), Counts)
        written = counts | "WriteCounts" >> WriteCounts(one, counts_file)
        (*summaries, counted, written) | "Summary" >> WriteSummary(summary_file)
    summary = read_summary(summary_file)
    found = read_round(counts_file, one)
    result.discard(*names)
    reports_found = reports_counted(summary)
    if inputs.rows is not None and sum(reports_found.values()) != inputs.rows:
        raise RunError(
            f"The files hold {inputs.rows:,} reports; {reports_found['counted']:,} were counted and "
            f"{reports_found['malformed']:,} set aside as malformed. Nothing was published."
        )
    return found, reports_found


def _check_answers(folder: RoundFolder, round_: int, reports: int) -> None:
    """A report more than there were answers has been sent twice, or by nobody."""
    answers = len(folder.answered(round_))
    if answers == 0 and reports:
        raise InputError(
            f"--state {folder.path} does not say who answered round {round_}, so the server could feed nothing back. "
            "Give the folder in which `perturb --round --state` noted it."
        )
    if reports > answers:
        raise InputError(
            f"There are {reports:,} reports of round {round_}, but {answers:,} users answered it: some reports stand "
            "twice. Each file must be given once. Nothing was counted."
        )
