"""The server's first step where reports of many days are counted at once: each day is a window of one job."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from datetime import date
from typing import Any, Final

import apache_beam as beam
from apache_beam.io.filesystem import CompressionTypes
from apache_beam.io.filesystems import FileSystems
from apache_beam.transforms.window import BoundedWindow, FixedWindows, GlobalWindows, TimestampedValue

from ..mechanisms import Counts
from ..schemas.counts import counts_schema
from .collection import Collection
from .count import CountReports
from .count_distinct import DistinctReports
from .estimate import GatherCounts
from .publish import write_counts
from .report_files import AcceptReports, ReportSlice
from .run_metrics import TellEngine
from .summary import MergeSummaries, Summary

__all__ = ["CountDays", "DaySlice", "counts_of_day", "summaries_of_days"]

_DAY_SECONDS: Final = 86_400
_EPOCH: Final = date(1970, 1, 1).toordinal()

#: A part of a report file, and the day to which its reports belong.
DaySlice = tuple[date, ReportSlice]


def counts_of_day(day: date) -> str:
    """Return the name of the file that holds the counts of a day, where it had any report."""
    return f"counts-{day.isoformat()}.parquet"


def summaries_of_days() -> str:
    """Return the name of the file that tells of all days, see `Summary.as_json`."""
    return ".summaries.json"


class CountDays(beam.PTransform):
    """`DaySlice`s → a file of counts for each day, and one file of what was read, accepted and counted.

    Args:
        collection: under which the reports were made; where they have ids, each id counts once a day.
        folder: an existing folder for the files.
    """

    def __init__(self, collection: Collection, folder: str) -> None:
        super().__init__()
        self._collection, self._folder = collection, folder

    def expand(self, slices: beam.PCollection[DaySlice]) -> tuple[beam.PCollection[str], beam.PCollection[str]]:
        collection = self._collection
        by_day = (
            slices
            | "Stamp" >> beam.MapTuple(_stamped).with_output_types(ReportSlice)
            | "Days" >> beam.WindowInto(FixedWindows(_DAY_SECONDS))
            | beam.Reshuffle()
        )
        reports, read = by_day | "Reports" >> AcceptReports(collection)
        summaries = [read]
        if collection.definition.report_ids:
            reports, repeated = reports | "Distinct" >> DistinctReports(collection)
            summaries.append(repeated)
        blocks, counted = reports | "Count" >> CountReports(collection)
        summaries.append(counted)
        write = beam.ParDo(_WriteDay(self._folder, counts_schema(collection.header("counts"))))
        written = blocks | "Gather" >> GatherCounts(collection) | "Write" >> write.with_output_types(str)
        return written, tuple(summaries) | "Summaries" >> _WriteSummaries(self._folder)


def _stamped(day: date, part: ReportSlice) -> TimestampedValue:
    return TimestampedValue(part, (day.toordinal() - _EPOCH) * _DAY_SECONDS)


def _day_of(window: Any) -> date:
    return date.fromordinal(_EPOCH + window.start.micros // (_DAY_SECONDS * 1_000_000))


class _WriteDay(beam.DoFn):
    def __init__(self, folder: str, schema: Any) -> None:
        self._folder, self._schema = folder, schema

    def process(
        self, element: tuple[tuple[int, str], Counts], window: BoundedWindow = beam.DoFn.WindowParam
    ) -> Iterator[str]:
        path = FileSystems.join(self._folder, counts_of_day(_day_of(window)))
        yield write_counts(path, self._schema, [element]).path


class _WriteSummaries(beam.PTransform):
    """PCollections of `Summary` in windows of days → one JSON object, summaries by date."""

    def __init__(self, folder: str) -> None:
        super().__init__()
        self._path = FileSystems.join(folder, summaries_of_days())

    def expand(self, summaries: tuple[beam.PCollection[Summary], ...]) -> beam.PCollection[str]:
        return (
            summaries
            | beam.Flatten()
            | "Tell" >> beam.ParDo(TellEngine()).with_output_types(Summary)
            | "ByDay" >> beam.ParDo(_ByDay()).with_output_types(beam.typehints.KV[str, Summary])
            | "Together" >> beam.WindowInto(GlobalWindows())
            | "Merge" >> beam.CombinePerKey(MergeSummaries())
            | "All" >> beam.combiners.ToList()
            | "Write" >> beam.Map(_write, self._path).with_output_types(str)
        )


class _ByDay(beam.DoFn):
    def process(self, element: Summary, window: BoundedWindow = beam.DoFn.WindowParam) -> Iterator[tuple[str, Summary]]:
        yield _day_of(window).isoformat(), element


def _write(summaries: Iterable[tuple[str, Summary]], path: str) -> str:
    with FileSystems.create(path, compression_type=CompressionTypes.UNCOMPRESSED) as file:
        file.write(json.dumps({day: summary.as_json() for day, summary in sorted(summaries)}).encode())
    return path
