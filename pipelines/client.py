"""What `collect`, `perturb` and `evaluate` share on the client side: reading records under the rules."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import apache_beam as beam
import pyarrow as pa

from ..engines import temporary_folder
from ..errors import InputError, RunError
from ..mechanisms import Secret
from ..schemas.tally import INVALID_REASONS, REJECTED_ROWS, ROWS_READ, SET_ASIDE_REASONS, UNKNOWN_TAGS, USERS
from ..transforms.collection import Collection
from ..transforms.input_columns import columns_of
from ..transforms.inputs import Columns, FileSlice, RecordInputs, inspect_records, slices
from ..transforms.prepare import Preparer
from ..transforms.records import ReadRecords
from ..transforms.rows_read import WATCHED_ROWS
from ..transforms.summary import Summary
from .running import Engine

__all__ = ["RecordSource", "check_records", "read_records", "spill_folder"]

#: Nested input promises one row a user; a shortfall of distinct users beyond this share stops the run.
_DISTINCT_SHORTFALL = 0.01


@dataclass(frozen=True, kw_only=True)
class RecordSource:
    """Which records to read and how strictly.

    Attributes:
        patterns: paths, globs and folders.
        columns: names of the columns.
        strict: refuse a file at its first invalid pair instead of dropping the pair.
        merge_users: bring several nested rows of one user together.
        max_rejects: largest share of rows that may be rejected.
        sensitive_table: file that says which keys are sensitive to whom, for collections with tags; None where the
            records say so themselves.
    """

    patterns: Sequence[str]
    columns: Columns = field(default_factory=Columns)
    strict: bool = False
    merge_users: bool = False
    max_rejects: float = 1.0
    sensitive_table: str | None = None

    def inspect(self, collection: Collection) -> RecordInputs:
        """Check every file's schema before anything runs."""
        tags = collection.definition.tags
        if self.sensitive_table is not None and not tags:
            raise InputError(
                f"--sensitive-table {self.sensitive_table}: {collection.definition.mechanism} does not look at it. Use "
                'mechanism = "pum", or list under [uldp] what is sensitive to everybody.'
            )
        values = collection.definition.values
        return inspect_records(
            self.patterns,
            columns_of(collection.definition, self.columns),
            has_values=values is not None,
            with_times=values is not None and values.duplicates == "latest",
            has_tags=bool(tags),
            sensitive_table=self.sensitive_table,
        )


@contextmanager
def spill_folder(engine: Engine) -> Iterator[str | None]:
    """Yield a folder for bucket files that only this user can read, and delete it afterwards.

    None where workers may be on other machines: rows are shuffled there.
    """
    if not engine.shares_disk:
        yield None
        return
    with temporary_folder("ldp-beam-") as folder:
        yield folder


def read_records(
    pipeline: beam.Pipeline,
    collection: Collection,
    source: RecordSource,
    inputs: RecordInputs,
    secret: Secret,
    *,
    spill: str | None,
    rejects: str | None = None,
) -> tuple[beam.PCollection[pa.RecordBatch], beam.PCollection[Summary]]:
    """Apply the client side's entrance to a pipeline: canonical records, and summaries."""
    WATCHED_ROWS.begin(inputs.total_rows)
    preparer = Preparer(
        collection.definition,
        secret.users(),
        source.columns,
        strict=source.strict,
        keep_rejects=rejects is not None,
        sensitive_table=source.sensitive_table is not None,
    )
    parts = pipeline | "Files" >> beam.Create(slices(inputs), reshuffle=False)
    parts.element_type = FileSlice
    return (
        parts
        | "Spread" >> beam.Reshuffle()
        | "Records" >> ReadRecords(preparer, inputs, spill=spill, merge_users=source.merge_users, rejects=rejects)
    )


def check_records(summary: dict[str, Any], source: RecordSource, inputs: RecordInputs, *, reports: int | None) -> None:
    """Check conservation and limits after a run and before anything is published.

    Raises:
        RunError: Rows or reports were lost, too many rows were rejected, or users stand in several rows.
    """
    tally = dict(summary["tally"])
    rows, users = tally.get(ROWS_READ, 0), tally.get(USERS, 0)
    if inputs.total_rows is not None and rows != inputs.total_rows:
        raise RunError(f"The files hold {inputs.total_rows:,} rows and {rows:,} were read. Nothing was published.")
    if inputs.layout == "nested" and not source.merge_users and not inputs.sensitive:
        set_aside = sum(tally.get(reason, 0) for reason in SET_ASIDE_REASONS)
        if rows != users + set_aside:
            raise RunError(f"{rows:,} rows were read, {users:,} users and {set_aside:,} rows set aside came out.")
    if reports is not None and reports != users:
        raise RunError(f"{users:,} users took part and {reports:,} reports were counted. Nothing was published.")
    _check_distinct(summary, users)
    rejected = tally.get(REJECTED_ROWS, 0)
    if rows and rejected / rows > source.max_rejects:
        raise RunError(
            f"{rejected:,} of {rows:,} rows ({rejected / rows:.2%}) were rejected, more than --max-rejects "
            f"{source.max_rejects:g} allows: {_reasons(tally)}. Nothing was published; --rejects DIR keeps the rows."
        )


def _check_distinct(summary: dict[str, Any], users: int) -> None:
    distinct = summary["distinct_users"]
    if distinct is not None and distinct < (1 - _DISTINCT_SHORTFALL) * users:
        raise RunError(
            f"The input has {users:,} rows and only about {distinct:,.0f} different users. The nested layout promises "
            "one row a user, since every row sends a report and each report costs the user epsilon. Merge the rows "
            "of a user with --merge-users. Nothing was published."
        )


def _reasons(tally: dict[str, int]) -> str:
    found = [(name, tally[name]) for name in (*SET_ASIDE_REASONS, *INVALID_REASONS, UNKNOWN_TAGS) if tally.get(name)]
    return ", ".join(f"{name.replace('_', ' ')} {count:,}" for name, count in found)
