"""The inputs of a counts store: which files belong to which day, and the counts of days that have to be counted."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, date, datetime
from functools import partial
from typing import Any, Final

import apache_beam as beam
import pyarrow.parquet as pq
from apache_beam.io.filesystems import FileSystems

from ..errors import InputError, RunError
from ..mechanisms import Counts
from ..schemas.counts import MAIN_GROUP, counts_from_table
from ..schemas.counts_store import StoredDay, parse_day
from ..schemas.reports import FileHeader
from ..schemas.tally import REPORTS_COUNTED, REPORTS_DUPLICATE, REPORTS_MALFORMED, REPORTS_UNREADABLE, Tally
from ..transforms.collection import Collection
from ..transforms.count_days import CountDays, counts_of_day, summaries_of_days
from ..transforms.report_files import ReportSlice, inspect_report_file
from ..transforms.report_files_checks import COPY_ROWS, digest_of, open_file
from ..transforms.rows_read import WATCHED_ROWS
from ..transforms.run_metrics import run_figures
from ..transforms.summary import read_summary
from .aggregate_counts import counts_header, kind_of_file, read_counts
from .aggregate_store import CountsStoreDay
from .results import told_metrics
from .running import Engine, engine_pipeline
from .stream_metrics import UNAVAILABLE

__all__ = ["CountedDay", "DayInputs", "InputFile", "count_days", "inspect_days", "missing_files"]

_DIGEST: Final = 32  # hexadecimal digits: 128 bits
_DAY_SECONDS: Final = 86_400


@dataclass(frozen=True, kw_only=True)
class InputFile:
    """A file of reports or counts of one day.

    Attributes:
        path: the file.
        digest: of its bytes.
        header: what it says of itself.
        slices: parts to read in parallel; none for counts.
        rows: reports in it; None where the format does not tell beforehand.
    """

    path: str
    digest: str
    header: FileHeader
    slices: tuple[ReportSlice, ...] = ()
    rows: int | None = None


@dataclass(kw_only=True)
class DayInputs:
    """The files of a day."""

    day: date
    files: list[InputFile] = field(default_factory=list)

    @property
    def memoised(self) -> bool:
        """Whether an unchanged record repeats its report on other days."""
        return any(file.header.memoised for file in self.files)

    @property
    def rows(self) -> int | None:
        """Reports in all files, or None where a format does not tell beforehand."""
        known = [file.rows for file in self.files if file.rows is not None]
        return sum(known) if len(known) == len(self.files) else None

    def digests(self, without: Sequence[str] = ()) -> tuple[str, ...]:
        """Return the digests of the files, sorted, without those of some paths."""
        return tuple(sorted(file.digest for file in self.files if file.path not in without))


@dataclass(frozen=True, kw_only=True)
class CountedDay:
    """A day that was counted now.

    Attributes:
        source: what it was counted from.
        refused: files of which a part was lost, each with the reason.
        read: returns its counts, which are many where the days or the keys are.
    """

    source: StoredDay
    refused: tuple[tuple[str, str], ...]
    read: Callable[[], CountsStoreDay]


# -- which file belongs to which day --------------------------------------------------------------------------


def inspect_days(
    paths: Sequence[str], collection: Collection, *, private: bool | None, period: str | None
) -> tuple[list[DayInputs], list[tuple[str, str]]]:
    """Sort files by day; those that are wrong are refused one by one, since reports come from strangers.

    Args:
        paths: files of reports, or of counts.
        collection: under which they must have been made.
        private: what the store knows of the randomness; None decides by the files.
        period: the only day that is counted; files without a period of their own belong to it.

    Returns:
        The days in order, and the refused files with reasons.

    Raises:
        InputError: No file is left, or files of reports and of counts are mixed.
    """
    kinds = {path: kind_of_file(path) for path in paths}
    if len(set(kinds.values())) > 1:
        mixed = next(path for path, kind in kinds.items() if kind == "counts")
        raise InputError(
            f"{mixed} holds counts and other inputs hold reports; a report must not be counted twice. Give one kind."
        )
    wanted = None if period is None else parse_day(period, "--period")
    found, refused = _inspected(kinds, collection, wanted)
    if private is None and found:
        private = any(file.header.private for _, file in found)
    days: dict[date, DayInputs] = {}
    seen: dict[tuple[date, str], str] = {}
    for day, file in found:
        try:
            _require_kind_of_randomness(file, private)
            _require_new(day, file, seen)
        except InputError as error:
            refused.append((file.path, str(error)))
        else:
            days.setdefault(day, DayInputs(day=day)).files.append(file)
    if not days:
        raise InputError(refused[0][1])
    return [days[day] for day in sorted(days)], sorted(refused)


def _inspected(
    kinds: Mapping[str, str], collection: Collection, wanted: date | None
) -> tuple[list[tuple[date, InputFile]], list[tuple[str, str]]]:
    found: list[tuple[date, InputFile]] = []
    refused: list[tuple[str, str]] = []
    for path, kind in kinds.items():
        try:
            file = _inspect_counts(path, collection) if kind == "counts" else _inspect_reports(path, collection)
            found.append((_day_of(file, wanted), file))
        except InputError as error:
            refused.append((path, str(error)))
    return found, refused


def _inspect_reports(path: str, collection: Collection) -> InputFile:
    header, slices, rows = inspect_report_file(path, collection)
    return InputFile(path=path, digest=_digest(path), header=header, slices=tuple(slices), rows=rows)


def _inspect_counts(path: str, collection: Collection) -> InputFile:
    return InputFile(path=path, digest=_digest(path), header=counts_header(path, collection))


def _digest(path: str) -> str:
    try:
        return digest_of(path).hex()[:_DIGEST]
    except OSError as error:
        raise InputError(f"{path} cannot be read: {error}.") from error


def _day_of(file: InputFile, wanted: date | None) -> date:
    """Return the day of a file's reports: its slice of time, its period, or else the one that is wanted."""
    header, path = file.header, file.path
    start = header.event_time()
    if start is not None:
        if (start % _DAY_SECONDS) + header.window_seconds > _DAY_SECONDS:
            raise InputError(f"{path} holds reports of a slice of time that does not lie within one day (UTC).")
        day = datetime.fromtimestamp(start, UTC).date()
    elif header.period:
        day = parse_day(header.period, f"{path} belongs to the period")
    elif wanted is not None:
        return wanted
    else:
        raise InputError(
            f"{path} names no period, so its day is not known. Say which day it is with --period DATE, or make the "
            "reports with `ldp-beam perturb --period DATE`."
        )
    if wanted is not None and day != wanted:
        raise InputError(f"{path} holds reports of {day}, but {wanted} is counted.")
    return day


def _require_kind_of_randomness(file: InputFile, private: bool | None) -> None:
    if file.header.private == private:
        return
    theirs, ours = ("private", "from a seed, not private") if file.header.private else ("from a seed", "private")
    raise InputError(f"{file.path} is {theirs}, the others of this store are {ours}; the two are never added.")


def _require_new(day: date, file: InputFile, seen: dict[tuple[date, str], str]) -> None:
    """Refuse a copy; small files of reports may be equal by chance."""
    first = seen.setdefault((day, file.digest), file.path)
    if first != file.path and (file.rows is None or file.rows >= COPY_ROWS):
        raise InputError(f"{file.path} is a copy of {first}; a report is never counted twice.")


# -- counting -----------------------------------------------------------------------------------------------


def count_days(
    days: Sequence[DayInputs], collection: Collection, engine: Engine, folder: str, metrics: dict[str, int | str]
) -> list[CountedDay]:
    """Count days, all of them in one job.

    Args:
        days: at least one; all of reports, or all of counts.
        collection: under which they were made.
        engine: where to run.
        folder: for what passes between the job and here; it exists, and is needed until all days are read.
        metrics: is filled with what the engine's counters say, where an engine runs.

    Raises:
        RunError: The run failed, or lost a report.
    """
    if days[0].files[0].header.kind == "counts":
        metrics.update(dict.fromkeys(run_figures({}, client=False, server=True), UNAVAILABLE))
        return [_added(day, collection) for day in days]
    slices = [(day.day, part) for day in days for file in day.files for part in file.slices]
    rows = [day.rows for day in days]
    WATCHED_ROWS.begin(None if None in rows else sum(number for number in rows if number is not None))
    found: dict[str, int | str] = {}
    with engine_pipeline(engine, writes_to=[folder], metrics=found) as p:
        _ = p | "Files" >> beam.Create(slices, reshuffle=False) | CountDays(collection, folder)
    summaries = read_summary(f"{folder}/{summaries_of_days()}")
    tally = sum((Tally(one["tally"]) for one in summaries.values()), Tally())
    metrics.update(told_metrics(found, {"tally": tally}))
    return [_counted(day, collection, folder, summaries.get(day.day.isoformat())) for day in days]


def _added(day: DayInputs, collection: Collection) -> CountedDay:
    counts = read_counts([file.path for file in day.files], collection).counts
    source = StoredDay(files=day.digests(), reports=counts.n)
    content = CountsStoreDay(day=day.day, counts=counts, source=source, memoised=day.memoised)
    return CountedDay(source=source, refused=(), read=lambda: content)


def _counted(day: DayInputs, collection: Collection, folder: str, summary: Mapping[str, Any] | None) -> CountedDay:
    """Put together what the job said of a day, and check that nothing was lost on the way."""
    tally = {} if summary is None else dict(summary["tally"])
    refused = () if summary is None else tuple((path, reason) for path, reason in summary["refused"])
    malformed, unreadable = tally.get(REPORTS_MALFORMED, 0), tally.get(REPORTS_UNREADABLE, 0)
    duplicate, n = tally.get(REPORTS_DUPLICATE, 0), tally.get(REPORTS_COUNTED, 0)
    if day.rows is not None and n + malformed + unreadable + duplicate != day.rows:
        raise RunError(
            f"The files of {day.day} hold {day.rows:,} reports; {n:,} were counted, {malformed:,} malformed, "
            f"{duplicate:,} repeated and {unreadable:,} unreadable. Some were lost or counted twice. Nothing "
            "was stored."
        )
    digests = day.digests(without=[path for path, _ in refused])
    source = StoredDay(files=digests, reports=n, malformed=malformed, unreadable=unreadable)
    return CountedDay(source=source, refused=refused, read=partial(_content, day, collection, folder, source))


def _content(day: DayInputs, collection: Collection, folder: str, source: StoredDay) -> CountsStoreDay:
    """Read the counts that the job left; a day without any report leaves none.

    Raises:
        RunError: They are not those of which the job told.
    """
    path, counts = f"{folder}/{counts_of_day(day.day)}", collection.mechanism.zero()
    if FileSystems.exists(path):
        sizes = {name: len(cells) for name, cells in counts.cells.items()}
        with open_file(path) as file:
            n, cells = counts_from_table(pq.read_table(file), sizes)[collection.round, MAIN_GROUP]
        counts = Counts(n=n, cells=cells)
    if counts.n != source.reports:
        raise RunError(
            f"The counts of {day.day} are those of {counts.n:,} reports, and the job told of {source.reports:,}. They "
            "were not stored."
        )
    return CountsStoreDay(day=day.day, counts=counts, source=source, memoised=day.memoised)


def missing_files(source: StoredDay, inputs: DayInputs) -> int:
    """Return how many files that a day was counted from are not among its inputs now."""
    return sum((Counter(source.files) - Counter(inputs.digests())).values())
