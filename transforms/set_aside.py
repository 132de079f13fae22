"""What a stream does not count, counted and kept: one file a batch, and one JSON file with the totals of each reason.

The numbers of the files come from the state of the step, so that a bundle that is tried again writes the same files
again instead of more of them.
"""

from __future__ import annotations

import json
import uuid
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import apache_beam as beam
import pyarrow as pa
import pyarrow.parquet as pq
from apache_beam.coders import PickleCoder
from apache_beam.transforms.userstate import ReadModifyWriteStateSpec

__all__ = ["KeepSetAside", "SetAside", "read_set_aside", "replace_file"]


@dataclass(frozen=True)
class SetAside:
    """Rows that are not counted.

    Attributes:
        reason: why, in a few characters that a file name may have.
        rows: how many; 0 where that cannot be known.
        time: start of their slice in seconds since 1970, or None.
        batch: the rows, or None where they are not kept.
        missed: how many windows they missed, of those that come too late.
        note: more about the reason, for people.
        raw: bytes of what cannot be read as rows at all, or None.
    """

    reason: str
    rows: int
    time: int | None = None
    batch: pa.RecordBatch | None = None
    missed: int = 0
    note: str = ""
    raw: bytes | None = None


class KeepSetAside(beam.PTransform):
    """`SetAside`s → files in a folder and totals by reason.

    Args:
        folder: an existing folder that all workers see.
    """

    def __init__(self, folder: str) -> None:
        super().__init__()
        self._folder = folder

    def expand(self, aside: beam.PCollection[SetAside]) -> beam.PCollection[tuple[str, int]]:
        return (
            aside
            | "ByReason" >> beam.Map(_by_reason).with_output_types(beam.typehints.KV[str, Any])
            | "Keep" >> beam.ParDo(_Keep(self._folder)).with_output_types(beam.typehints.KV[str, int])
        )


def _by_reason(one: SetAside) -> tuple[str, SetAside]:
    return one.reason, one


_TOTALS: Final = beam.DoFn.StateParam(ReadModifyWriteStateSpec("totals", PickleCoder()))


class _Keep(beam.DoFn):
    def __init__(self, folder: str) -> None:
        self._folder = Path(folder)

    def process(self, element: tuple[str, SetAside], state: Any = _TOTALS) -> Iterator[tuple[str, int]]:
        reason, one = element
        totals = state.read() or {"rows": 0, "batches": 0, "windows_missed": 0}
        number = totals["batches"]
        totals["rows"] += one.rows
        totals["batches"] += 1
        totals["windows_missed"] += one.rows * one.missed
        _write(self._folder / f"{reason}-{number:08d}", one)
        text = json.dumps({"reason": reason, **totals, "last_note": one.note}, ensure_ascii=False)
        replace_file(self._folder / f"{reason}.json", text.encode())
        state.write(totals)
        yield reason, totals["rows"]


def _write(path: Path, one: SetAside) -> None:
    if one.raw is not None:
        replace_file(path.with_suffix(".bin"), one.raw)
    if one.batch is not None:
        facts = {"set_aside.reason": one.reason, "set_aside.time": str(one.time), "set_aside.note": one.note}
        schema = one.batch.schema.with_metadata({**(one.batch.schema.metadata or {}), **facts})
        sink = pa.BufferOutputStream()
        pq.write_table(pa.Table.from_batches([one.batch.replace_schema_metadata(schema.metadata)]), sink)
        replace_file(path.with_suffix(".parquet"), sink.getvalue().to_pybytes())


def replace_file(path: Path, content: bytes) -> None:
    """Write a file that is there as a whole or not at all, in place of an earlier one."""
    part = path.with_name(f".{path.name}.{uuid.uuid4().hex[:12]}.partial")
    part.write_bytes(content)
    part.replace(path)


def read_set_aside(folder: Path) -> dict[str, dict[str, Any]]:
    """Return the totals by reason that `KeepSetAside` left in a folder."""
    totals = (json.loads(path.read_text()) for path in sorted(folder.glob("*.json")))
    return {one["reason"]: one for one in totals}
