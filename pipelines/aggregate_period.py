"""`aggregate --counts-store`: count the days that are new, keep their counts, estimate any period from what is kept."""

from __future__ import annotations

import shutil
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from datetime import UTC, date, datetime, time, timedelta
from pathlib import Path
from typing import Any, Final

import numpy as np

from ..errors import InputError, did_you_mean
from ..mechanisms import AutoPadding, Counts, MultiRound
from ..schemas.counts import MAIN_GROUP, counts_schema
from ..schemas.counts_store import StoredDay
from ..schemas.manifest import Manifest, Randomness
from ..schemas.windows import in_window
from ..transforms.collection import Collection
from ..transforms.estimate import estimate_counts
from ..transforms.paths import expand, is_local
from ..transforms.publish import write_counts
from ..transforms.run_metrics import run_figures
from ..transforms.table_files import TableWriter
from .aggregate_days import CountedDay, DayInputs, count_days, inspect_days, missing_files
from .aggregate_store import CountsStore, CountsStoreDay
from .output import OutputFolder
from .results import manifest_of, require_few_rejects
from .running import Clock, Engine

__all__ = ["PERIODS", "Limits", "StoreRun", "aggregate_store", "spans_text"]

#: What `--by` takes.
PERIODS: Final = ("total", "day", "week", "month")
_READERS: Final = 4
#: So many refused files are named one by one.
_REASONS: Final = 20
_DAY: Final = timedelta(days=1)


@dataclass(frozen=True, kw_only=True)
class Limits:
    """Where a run stops instead of going on.

    Attributes:
        rejects: largest share of reports that may be malformed or unreadable; 0 also forbids refused files.
        gaps: largest number of days without counts in the period; None for any. Beyond it the result is published.
    """

    rejects: float = 1.0
    gaps: int | None = None


@dataclass(frozen=True, kw_only=True)
class StoreRun:
    """What a run on a counts store is asked to do.

    Attributes:
        folder: the store.
        patterns: files of reports or counts; none to estimate from what is there.
        since: first day that the run is about; None for the first that has counts.
        until: last day; None for the last that has counts.
        by: "total", or estimates for every "day", "week" or "month".
        period: the only day that is counted; files without a period of their own belong to it.
        recount: count the days of the input anew, and let the input alone say what belongs to them.
        limits: see `Limits`.
    """

    folder: str | Path
    patterns: Sequence[str] = ()
    since: date | None = None
    until: date | None = None
    by: str = "total"
    period: str | None = None
    recount: bool = False
    limits: Limits = field(default_factory=Limits)


@dataclass
class _Done:
    """What a run did to the store."""

    counted: list[date] = field(default_factory=list)
    replaced: list[date] = field(default_factory=list)
    unchanged: list[date] = field(default_factory=list)
    left_alone: list[date] = field(default_factory=list)
    refused: list[tuple[str, str]] = field(default_factory=list)
    late: int | None = 0
    metrics: dict[str, int | str] = field(default_factory=dict)


@dataclass
class _Total:
    """What the counts of a period were counted from."""

    reports: int = 0
    malformed: int = 0
    unreadable: int = 0

    def add(self, day: CountsStoreDay) -> None:
        self.reports += day.source.reports
        self.malformed += day.source.malformed
        self.unreadable += day.source.unreadable


def aggregate_store(
    collection: Collection,
    run: StoreRun,
    output: str | Path,
    *,
    format_: str = "parquet",
    engine: Engine | None = None,
    overwrite: bool = False,
) -> Manifest:
    """Bring a counts store up to date, and estimate a period from it.

    A day whose files were all counted before is not counted again. Where further files of a day have come, the day
    is counted again from all of them, and its counts are replaced.

    Args:
        collection: the definition under which everything was made; its estimator may change.
        run: what to do.
        output: folder for estimates, counts of the period (where they are one sum) and manifest.
        format_: format of the estimates.
        engine: where to count.
        overwrite: replace an earlier result.

    Raises:
        InputError: The store or the files belong to something else, files of a day are missing, or the period has no
            counts.
        RunError: The run failed; the store holds what it held, or whole new days.
    """
    _require_sense(collection, run)
    clock, engine = Clock(), engine or Engine()
    store, done = CountsStore(run.folder, collection), _Done()
    with OutputFolder(output, overwrite=overwrite, shared=engine.shares_disk) as result:
        if run.patterns:
            _bring_up_to_date(store, collection, run, engine, result.part(".days"), done)
        days, gaps = _period(store, run)
        total, files = _estimate(store, collection, days, run.by, result.staging, format_)
        manifest = manifest_of(
            "aggregate",
            collection,
            Randomness(source="reports", private=bool(store.private), period=_span(days[0], days[-1])),
            engine,
            clock,
            records=None,
            reports={
                "counted": total.reports,
                "malformed": total.malformed,
                "unreadable": total.unreadable,
                "refused_files": len(done.refused),
            },
            files=files,
            spends=False,
            warnings=_warnings(store, done, gaps),
            counts_store=_what_was_done(done, days, gaps, run),
            metrics=_metrics(done),
        )
        manifest.write(result.staging)
        result.publish()
    return manifest


def _require_sense(collection: Collection, run: StoreRun) -> None:
    if isinstance(collection.mechanism, AutoPadding):
        raise InputError(
            'padding = "auto" asks two questions, of which the second depends on the answers to the first, so that its '
            "counts do not belong to one definition. Let `ldp-beam collect` or `aggregate` find the padding once, and "
            "keep counts under the definition with that number."
        )
    if isinstance(collection.mechanism, MultiRound):
        raise InputError(
            f"{collection.mechanism.name} asks in rounds: what is asked next depends on the counts so far, so that "
            "counts of different days cannot be added. Its counts lie in the folder of --state."
        )
    if run.by not in PERIODS:
        raise InputError(f"--by {run.by}: it must be one of {', '.join(PERIODS)}. {did_you_mean(run.by, PERIODS)}")
    if run.since is not None and run.until is not None and run.since > run.until:
        raise InputError(f"--since {run.since} lies after --until {run.until}.")


# -- counting what is new -------------------------------------------------------------------------------------


def _bring_up_to_date(
    store: CountsStore, collection: Collection, run: StoreRun, engine: Engine, folder: str, done: _Done
) -> None:
    paths = expand(run.patterns, any_file=True)
    found, refused = inspect_days(paths, collection, private=store.private, period=run.period)
    done.refused += refused
    before: dict[date, StoredDay | None] = {}
    for inputs in found:
        if _is_outside(inputs.day, run):
            done.left_alone.append(inputs.day)
        elif _is_new(inputs, source := store.source(inputs.day), recount=run.recount):
            before[inputs.day] = source
        else:
            done.unchanged.append(inputs.day)
    todo = [inputs for inputs in found if inputs.day in before]
    if not todo:
        _require_few_rejects([], done, run.limits)
        return
    if is_local(folder):
        Path(folder).mkdir()
    counted = count_days(todo, collection, engine, folder, done.metrics)
    done.refused += [reason for one in counted for reason in one.refused]
    _require_few_rejects(counted, done, run.limits)
    for one, inputs in zip(counted, todo, strict=True):
        source = before[inputs.day]
        store.put(one.read(), private=inputs.files[0].header.private, replaces=source)
        _note(done, inputs, one.source, source)
    if is_local(folder):
        shutil.rmtree(folder)


def _is_outside(day: date, run: StoreRun) -> bool:
    return (run.since is not None and day < run.since) or (run.until is not None and day > run.until)


def _is_new(inputs: DayInputs, source: StoredDay | None, *, recount: bool) -> bool:
    """Whether a day has to be counted.

    Raises:
        InputError: Files that it was counted from are missing now.
    """
    if source is None or recount:
        return True
    missing = missing_files(source, inputs)
    if missing:
        raise InputError(
            f"{inputs.day} was counted from {len(source.files):,} files, of which {missing:,} are not among the "
            "inputs. The counts of a day are replaced as a whole, so that theirs would be lost. Give all files of that "
            "day, none of them, or --recount if the day shall consist of the given ones only. Nothing was changed."
        )
    return inputs.digests() != tuple(sorted(source.files))


def _note(done: _Done, inputs: DayInputs, now: StoredDay, before: StoredDay | None) -> None:
    if before is None:
        done.counted.append(inputs.day)
    elif before == now:
        done.unchanged.append(inputs.day)
    else:
        done.replaced.append(inputs.day)
        if missing_files(before, inputs):  # files were taken away as well: what is late is not known
            done.late = None
        elif done.late is not None:
            done.late += now.reports - before.reports


def _require_few_rejects(counted: Sequence[CountedDay], done: _Done, limits: Limits) -> None:
    sources = [one.source for one in counted]
    reports = {
        "counted": sum(source.reports for source in sources),
        "malformed": sum(source.malformed for source in sources),
        "unreadable": sum(source.unreadable for source in sources),
    }
    require_few_rejects(reports, done.refused, limits.rejects)


# -- the period -------------------------------------------------------------------------------------------------


def _period(store: CountsStore, run: StoreRun) -> tuple[list[date], list[date]]:
    """Return the days of the period that have counts, and those that have none.

    Raises:
        InputError: None has.
    """
    stored = store.days()
    days = [day for day in stored if not _is_outside(day, run)]
    if not days:
        holds = f"its days are {_span(stored[0], stored[-1])}" if stored else "it is empty"
        about = " in the period" if run.since or run.until else ""
        raise InputError(f"The store {store.folder} holds no counts{about}; {holds}.")
    since, until = run.since or days[0], run.until or days[-1]
    held = set(days)
    every = (since + _DAY * i for i in range((until - since).days + 1))
    return days, [day for day in every if day not in held]


def _span(since: date, until: date) -> str:
    return since.isoformat() if since == until else f"{since}/{until}"


def spans_text(days: Sequence[date]) -> str:
    """Return days in words: runs of days as one."""
    runs: list[tuple[date, date]] = []
    for day in days:
        if runs and day - runs[-1][1] == _DAY:
            runs[-1] = (runs[-1][0], day)
        else:
            runs.append((day, day))
    return ", ".join(f"{first}" if first == last else f"{first} to {last}" for first, last in runs)


# -- estimating ---------------------------------------------------------------------------------------------------


def _estimate(
    store: CountsStore, collection: Collection, days: Sequence[date], by: str, folder: Path, format_: str
) -> tuple[_Total, list[dict[str, Any]]]:
    """Write the estimates, and what the sum of the counts is where there is one."""
    private, total = bool(store.private), _Total()
    period, path = _span(days[0], days[-1]), folder / f"estimates.{format_}"
    files: list[dict[str, Any]] = []
    writer: TableWriter | None = None
    try:
        for group in _groups(days, by):
            counts, memoised = _sum(store, collection, group, total)
            batch = estimate_counts(collection, counts, private=private, period=period)
            if by != "total":
                batch = in_window(batch, _midnight(group[0]), _midnight(group[-1] + _DAY))
            if writer is None:
                writer = TableWriter(str(path), batch.schema, format_, name="estimates")
            writer.write(batch)
            if by == "total":
                header = collection.header("counts", period=period, private=private, memoised=memoised)
                groups = [((0, MAIN_GROUP), counts)]
                written = write_counts(str(folder / "counts.parquet"), counts_schema(header), groups)
                files.append({"kind": "counts", "name": "counts.parquet", "rows": written.rows})
    finally:
        if writer is not None:
            writer.close()
    rows = 0 if writer is None else writer.rows
    return total, [{"kind": "estimates", "name": path.name, "rows": rows}, *files]


def _groups(days: Sequence[date], by: str) -> list[list[date]]:
    found: dict[object, list[date]] = {}
    for day in days:
        week = day.isocalendar()
        label = {"total": None, "day": day, "week": (week.year, week.week), "month": (day.year, day.month)}[by]
        found.setdefault(label, []).append(day)
    return list(found.values())


def _midnight(day: date) -> datetime:
    return datetime.combine(day, time(), UTC)


def _sum(store: CountsStore, collection: Collection, days: Sequence[date], total: _Total) -> tuple[Counts, bool]:
    """Add the counts of days.

    Raises:
        InputError: They are memoised, so that their sum would be taken for more than it is.
    """
    zero = collection.mechanism.zero()
    n, cells, memoised = 0, {name: np.array(part) for name, part in zero.cells.items()}, False
    for day in _read(store, days):
        memoised = memoised or day.memoised
        if memoised and len(days) > 1:
            raise InputError(
                f"These are memoised reports of {len(days)} days: a user whose data did not change sent the same "
                "report on each, so that the days are not independent and the standard errors of their sum would be "
                "too small. Estimate the days one by one with --by day, or one of them with --since and --until."
            )
        n += day.counts.n
        for name, part in day.counts.cells.items():
            np.add(cells[name], part, out=cells[name])
        total.add(day)
    return Counts(n=n, cells=cells), memoised


def _read(store: CountsStore, days: Sequence[date]) -> Iterator[CountsStoreDay]:
    """Read days, a few at a time."""
    with ThreadPoolExecutor(_READERS) as pool:
        for start in range(0, len(days), _READERS):
            yield from pool.map(store.get, days[start : start + _READERS])


# -- what is said of it -------------------------------------------------------------------------------------------


def _what_was_done(done: _Done, days: Sequence[date], gaps: Sequence[date], run: StoreRun) -> Mapping[str, Any]:
    def texts(some: Sequence[date]) -> list[str]:
        return [day.isoformat() for day in some]

    return {
        "since": (run.since or days[0]).isoformat(),
        "until": (run.until or days[-1]).isoformat(),
        "by": run.by,
        "days": len(days),
        "gaps": texts(gaps),
        "counted": texts(done.counted),
        "replaced": texts(done.replaced),
        "unchanged": texts(done.unchanged),
        "outside": texts(done.left_alone),
    }


def _metrics(done: _Done) -> dict[str, int | str]:
    """Return the engine's counters, and the late reports; nothing was read where no engine ran."""
    read = done.metrics or run_figures({}, client=False, server=True)
    return {**read, "late": "unavailable" if done.late is None else done.late}


def _warnings(store: CountsStore, done: _Done, gaps: Sequence[date]) -> list[str]:
    found = [f"Refused: {reason}" for _, reason in done.refused[:_REASONS]]
    if len(done.refused) > _REASONS:
        found.append(f"{len(done.refused):,} files were refused in all.")
    if gaps:
        found.append(f"The period has {len(gaps):,} days without counts: {spans_text(gaps)}.")
    if not store.private:
        found.append("The randomness of these reports came from a seed: they are not private.")
    return found
