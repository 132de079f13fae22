"""The sink of a stream: panes → one folder for each window and pane, complete or not there at all.

    windows/20261130T130000Z--20261130T140000Z/pane-000/{estimates.parquet, counts.parquet, manifest.json}

Engines may run a bundle again, and a stream that was stopped may be read from its beginning again, so a pane may arrive
more than once. What is on the disk decides: a pane that says what the last one says is not written again, one that
knows of fewer reports than the last is a repetition that is still under way and is left out, and a window that is final
stays as it is. A final result with reports that the published one lacks is put beside it, as `conflict-…`, and told of.
"""

from __future__ import annotations

import hashlib
import json
import shutil
import uuid
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Final

import apache_beam as beam
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from apache_beam.metrics import Metrics

from ..errors import RunError
from ..mechanisms import Counts
from ..schemas.counts import MAIN_GROUP, counts_from_table, counts_schema
from ..schemas.event_time import time_text
from ..schemas.event_windows import Windows
from ..schemas.manifest import MANIFEST_NAME, Randomness
from ..schemas.windows import in_window
from .collection import Collection
from .count_windows import Pane
from .estimate import estimate_counts
from .publish import write_counts
from .table_files import write_table

__all__ = [
    "WINDOWS_FOLDER",
    "PaneFolder",
    "PaneWriter",
    "PublishPanes",
    "Published",
    "last_pane",
    "pane_folders",
]

#: Folder of the windows within the output of a stream.
WINDOWS_FOLDER: Final = "windows"
_PANE: Final = "pane-"
_CONFLICT: Final = "conflict-"
_COUNTS: Final = "counts.parquet"


@dataclass(frozen=True)
class Published:
    """What became of a pane.

    Attributes:
        outcome: "written", "same" (it was there), "behind" (a later one was there) or "conflict" (the window was final
            with another result, which stays).
        folder: where it is, or what stands in its place.
        estimates: what it says; None where something else stays in its place.
    """

    outcome: str
    folder: str
    estimates: pa.RecordBatch | None = None


@dataclass(frozen=True)
class PaneFolder:
    """A pane on the disk: its number, its folder and its manifest."""

    number: int
    path: Path
    manifest: Mapping[str, Any]

    @property
    def window(self) -> Mapping[str, Any]:
        """What the manifest says of window and pane."""
        return dict(self.manifest["window"])


def pane_folders(window: Path) -> list[PaneFolder]:
    """Return the panes in a window's folder, the latest last."""
    return [_read_pane(window, number) for number in _pane_numbers(window)]


def last_pane(window: Path) -> PaneFolder | None:
    """Return the latest pane in a window's folder, or None."""
    numbers = _pane_numbers(window)
    return _read_pane(window, numbers[-1]) if numbers else None


def _pane_numbers(window: Path) -> list[int]:
    return sorted(int(path.name.removeprefix(_PANE)) for path in window.glob(f"{_PANE}*"))


def _pane_name(number: int) -> str:
    return f"{_PANE}{number:03d}"


def _read_pane(window: Path, number: int) -> PaneFolder:
    path = window / _pane_name(number)
    return PaneFolder(number, path, json.loads((path / MANIFEST_NAME).read_text("utf-8")))


class PublishPanes(beam.PTransform):
    """`Pane`s keyed by the start of their window → folders, and `Published`s.

    Args:
        writer: what writes them.
    """

    def __init__(self, writer: PaneWriter) -> None:
        super().__init__()
        self._writer = writer

    def expand(self, panes: beam.PCollection[tuple[int, Pane]]) -> beam.PCollection[Published]:
        return panes | "Write" >> beam.ParDo(_Publish(self._writer)).with_output_types(Published)


class _Publish(beam.DoFn):
    def __init__(self, writer: PaneWriter) -> None:
        self._writer = writer
        self._counted = Metrics.counter("ldp_beam", "reports_counted")

    def process(self, element: tuple[int, Pane]) -> Iterator[Published]:
        pane = element[1]
        published = self._writer.write(pane)
        if pane.is_final and published.outcome == "written":
            self._counted.inc(pane.counts.n)
        yield published


@dataclass(frozen=True, kw_only=True)
class PaneWriter:
    """Writes panes into the output folder of a stream; small and picklable.

    Attributes:
        collection: what is collected.
        windows: the windows.
        folder: output folder of the stream, which all workers see.
        format_: format of the estimates.
        manifest: what the manifest of every window says alike.
        period: name of the period, for the headers.
    """

    collection: Collection
    windows: Windows
    folder: str
    format_: str
    manifest: Mapping[str, Any]
    period: str = ""

    def write(self, pane: Pane) -> Published:
        """Write a pane, unless what is on the disk stands against it.

        Raises:
            RunError: The file system refuses.
        """
        window = Path(self.folder, WINDOWS_FOLDER, self.windows.name(pane.start))
        last = last_pane(window)
        digest = _digest(pane.counts)
        outcome = "written" if last is None else _outcome(last.window, pane, digest)
        if last is not None and outcome == "conflict" and self._is_part(pane.counts, last.path / _COUNTS):
            outcome = "behind"
        if last is not None and outcome == "same":
            # It is told again, since whoever else takes results may not have heard of it when the engine stopped.
            pane = replace(pane, timing=str(last.window["timing"]))
            return Published(outcome, str(last.path), self.estimates(pane, last.number))
        if last is not None and outcome == "behind":
            return Published(outcome, str(last.path))
        number = 0 if last is None else last.number + 1
        name = _pane_name(number) if outcome == "written" else f"{_CONFLICT}{digest[:12]}"
        path = window / name
        if outcome == "conflict" and path.exists():
            return Published(outcome, str(path))
        estimates = self._into(path, number, pane, digest)
        return Published(outcome, str(path), estimates)

    def _is_part(self, counts: Counts, published: Path) -> bool:
        """Whether counts hold no report that the published lack: those of a stream that began in the middle."""
        sizes = {name: len(cells) for name, cells in self.collection.mechanism.zero().cells.items()}
        (found,) = counts_from_table(pq.read_table(published), sizes).values()
        n, cells = found
        return counts.n <= n and all(bool((part <= cells[name]).all()) for name, part in counts.cells.items())

    def _into(self, path: Path, number: int, pane: Pane, digest: str) -> pa.RecordBatch:
        staging = path.parent / f".{path.name}.{uuid.uuid4().hex[:12]}.partial"
        try:
            staging.mkdir(parents=True)
            try:
                estimates = self._fill(staging, number, pane, digest)
                staging.rename(path)
            finally:
                shutil.rmtree(staging, ignore_errors=True)
        except OSError as error:
            raise RunError(f"{path}: the results of a window cannot be written: {error}.") from error
        return estimates

    def _fill(self, folder: Path, number: int, pane: Pane, digest: str) -> pa.RecordBatch:
        estimates = self.estimates(pane, number)
        name = f"estimates.{self.format_}"
        rows = write_table(str(folder / name), estimates, self.format_, name="estimates")
        schema = counts_schema(self._header("counts", pane))
        counts = write_counts(str(folder / _COUNTS), schema, [((self.collection.round, MAIN_GROUP), pane.counts)])
        files = [
            {"kind": "estimates", "name": name, "rows": rows},
            {"kind": "counts", "name": _COUNTS, "rows": counts.rows},
        ]
        manifest = self._manifest(pane, number, digest) | {"files": files}
        text = json.dumps(manifest, indent=2, ensure_ascii=False, allow_nan=False)
        (folder / MANIFEST_NAME).write_text(text + "\n", encoding="utf-8")
        return estimates

    def _header(self, kind: str, pane: Pane) -> Any:
        return self.collection.header(
            kind,
            period=self.period,
            private=pane.private,
            memoised=pane.memoised,
            window_start=time_text(pane.start),
            window_seconds=self.windows.size,
        )

    def estimates(self, pane: Pane, number: int) -> pa.RecordBatch:
        """Return what a pane says of every key, with the bounds of its window."""
        batch = estimate_counts(self.collection, pane.counts, private=pane.private, period=self.period)
        header = self._header("estimates", pane)
        bounds = [datetime.fromtimestamp(time, UTC) for time in (pane.start, self.windows.end(pane.start))]
        table = in_window(batch, *bounds, pane=number, is_final=pane.is_final)
        return table.replace_schema_metadata(header.metadata())

    def _manifest(self, pane: Pane, number: int, digest: str) -> dict[str, Any]:
        epsilon = self.collection.mechanism.epsilon
        warnings = [] if pane.private else ["The randomness of these reports came from a seed: they are not private."]
        return {
            **self.manifest,
            "window": {
                "start": time_text(pane.start),
                "end": time_text(self.windows.end(pane.start)),
                "pane": number,
                "timing": pane.timing,
                "is_final": pane.is_final,
                "n": pane.counts.n,
                "counts_digest": digest,
            },
            "reports": {"counted": pane.counts.n, "malformed": 0, "repeated": pane.repeated},
            "epsilon": {
                **self.manifest["epsilon"],
                "of": "each report; a user sends one report a slice, however many windows it is counted in",
                "slices": {time_text(time): n for time, n in sorted(pane.slices.items())},
                "spent_in_window_at_most": format((epsilon * len(pane.slices)).normalize(), "f"),
                "spent_so_far_at_most": format((epsilon * pane.met).normalize(), "f"),
            },
            "randomness": self._randomness(pane),
            "warnings": [*self.manifest["warnings"], *warnings],
        }

    def _randomness(self, pane: Pane) -> dict[str, Any]:
        """What is known of the randomness: on the server's side the reports say it of themselves."""
        told = dict(self.manifest.get("randomness", {}))
        if not pane.private:
            told |= Randomness(source=told.get("source", "reports"), private=False).as_json() | {
                name: told[name] for name in ("secret_id", "period") if name in told
            }
        return told


def _outcome(last: Mapping[str, Any], pane: Pane, digest: str) -> str:
    """Decide what becomes of a pane after the last one on the disk."""
    same = last["counts_digest"] == digest
    if last["is_final"]:
        if same:
            return "same"
        return "conflict" if pane.is_final else "behind"
    if pane.is_final:
        return "written"
    if same:
        return "same"
    return "behind" if pane.counts.n < last["n"] else "written"


def _digest(counts: Counts) -> str:
    """Return a digest of counts: equal ones have equal digests on every machine."""
    digest = hashlib.sha256(str(counts.n).encode())
    for name, cells in sorted(counts.cells.items()):
        digest.update(f" {name} {len(cells)} ".encode())
        digest.update(np.ascontiguousarray(cells, dtype="<i8").tobytes())
    return digest.hexdigest()
