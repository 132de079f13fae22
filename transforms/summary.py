"""What a run did, as data beside the counts: tallies, files written, distinct users.

Engine metrics cannot carry conservation (some engines lose them or report none), so every stage emits a
`Summary` for each bundle as an ordinary element. Summaries form a commutative monoid; the driver reads the
one that results.
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any, Final

import apache_beam as beam
from apache_beam.io.filesystem import BeamIOError, CompressionTypes
from apache_beam.io.filesystems import FileSystems

from ..errors import RunError
from ..schemas.tally import Tally
from .distinct import DistinctUsers
from .run_metrics import TellEngine

__all__ = ["DIGEST_MODULUS", "MergeSummaries", "Summary", "WriteSummary", "WrittenFile", "read_summary"]

#: Digests of reports are added modulo this.
DIGEST_MODULUS: Final = 1 << 128


@dataclass(frozen=True, order=True)
class WrittenFile:
    """A complete file that a bundle wrote: what it holds, where, how many rows."""

    kind: str
    path: str
    rows: int


@dataclass(frozen=True)
class Summary:
    """Additive facts about a part of a run.

    Attributes:
        tally: named counters.
        files: complete files; files of failed attempts are never listed.
        distinct: sketch of the distinct users of nested input, where it was asked for.
        digest: digest of reports, where it was asked for, see `report_digest`.
        refused: files that were not read to their end, each with the reason.
    """

    tally: Tally = field(default_factory=Tally)
    files: tuple[WrittenFile, ...] = ()
    distinct: DistinctUsers | None = None
    digest: int = 0
    refused: tuple[tuple[str, str], ...] = ()

    def __add__(self, other: Summary) -> Summary:
        distinct = self.distinct if other.distinct is None else other.distinct
        if self.distinct is not None and other.distinct is not None:
            distinct = self.distinct.merge(other.distinct)
        digest = (self.digest + other.digest) % DIGEST_MODULUS
        return Summary(
            self.tally + other.tally, self.files + other.files, distinct, digest, self.refused + other.refused
        )

    def as_json(self) -> dict[str, Any]:
        """Return the figures for `read_summary`; the sketch is reduced to its estimate."""
        return {
            "tally": dict(self.tally),
            "files": [[f.kind, f.path, f.rows] for f in sorted(self.files)],
            "distinct_users": None if self.distinct is None else self.distinct.estimate(),
            "digest": f"{self.digest:032x}",
            "refused": sorted([path, reason] for path, reason in self.refused),
        }


class MergeSummaries(beam.CombineFn):
    """Adds summaries."""

    def create_accumulator(self) -> Summary:
        """Return the summary of nothing."""
        return Summary()

    def add_input(self, accumulator: Summary, element: Summary) -> Summary:
        """Add one summary."""
        return accumulator + element

    def merge_accumulators(self, accumulators: Iterable[Summary]) -> Summary:
        """Add several."""
        return sum(accumulators, Summary())

    def extract_output(self, accumulator: Summary) -> Summary:
        """Return the sum."""
        return accumulator


class WriteSummary(beam.PTransform):
    """PCollections of `Summary` → one JSON file at `path`."""

    def __init__(self, path: str) -> None:
        super().__init__()
        self.path = path

    def expand(self, summaries: tuple[beam.PCollection[Summary], ...]) -> beam.PCollection[str]:
        return (
            summaries
            | beam.Flatten()
            | "Tell" >> beam.ParDo(TellEngine()).with_output_types(Summary)
            | "Merge" >> beam.CombineGlobally(MergeSummaries())
            | "Write" >> beam.Map(_write, self.path).with_output_types(str)
        )


def _write(summary: Summary, path: str) -> str:
    with FileSystems.create(path, compression_type=CompressionTypes.UNCOMPRESSED) as file:
        file.write(json.dumps(summary.as_json()).encode())
    return path


def read_summary(path: str) -> dict[str, Any]:
    """Read the file that `WriteSummary` wrote.

    Raises:
        RunError: It is not there, or not whole.
    """
    try:
        with FileSystems.open(path, compression_type=CompressionTypes.UNCOMPRESSED) as file:
            return dict(json.loads(file.read()))
    except (OSError, ValueError, BeamIOError) as error:
        raise RunError(
            f"The engine reported success, and what it wrote cannot be seen from this machine ({path}). Give an "
            "output folder on a file system that all machines share. Nothing was published."
        ) from error
