"""What the report page shows of a result: its figures, window by window, and what the manifest says of them."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from ..errors import InputError
from ..schemas.estimates import FREQUENCY_COLUMNS, MEAN_COLUMNS
from ..schemas.manifest import read_manifest
from .evaluate import read_estimates

__all__ = ["Frame", "Result", "read_result"]

#: Digits of a figure on the page; more would only make it heavier.
_DIGITS = 7
_NOT_FIGURES = {"key", "flags", "n", "window_start", "window_end", "pane", "is_final"}
#: Columns that say what a key belongs to.
_LABELS = ("attribute", "coordinate")


@dataclass(frozen=True, kw_only=True, eq=False)
class Frame:
    """The estimates of all keys in one window, or in the only one there is.

    Attributes:
        label: the window as people read it; empty where the collection has no windows.
        n: reports that were counted.
        columns: figures by column name, (d,) each; NaN where there is none.
        flags: for each key a bit mask over the flag names of the result, int64 (d,).
    """

    label: str
    n: int
    columns: Mapping[str, npt.NDArray[np.float64]]
    flags: npt.NDArray[np.int64]


@dataclass(frozen=True, kw_only=True, eq=False)
class Result:
    """A result folder, read.

    Attributes:
        manifest: its manifest.
        keys: key texts in the order of the domain.
        frames: the windows in the order of time; one where there are no windows.
        flag_names: names of the flags that occur.
        labels: what each key belongs to, texts by column name.
        further: names of further figures of each key: "minimum", "maximum", and percentiles such as "p50", whose
            intervals stand in "p50_low" and "p50_high".
    """

    manifest: Mapping[str, Any]
    keys: Sequence[str]
    frames: Sequence[Frame]
    flag_names: Sequence[str]
    labels: Mapping[str, Sequence[str]]
    further: Sequence[str]

    @property
    def has_mean(self) -> bool:
        """Whether there are estimated means."""
        return "mean" in self.frames[-1].columns

    @property
    def has_frequency(self) -> bool:
        """Whether there are estimated frequencies, be it only the statement that no report came."""
        return not self.has_mean or not np.isnan(self.last.columns["frequency"]).all() or not self.last.n

    @property
    def last(self) -> Frame:
        """The latest window."""
        return self.frames[-1]

    def flagged(self, name: str) -> int:
        """Return how many keys carry a flag in the latest window."""
        return int(np.count_nonzero(self.last.flags >> list(self.flag_names).index(name) & 1))

    def as_json(self) -> str:
        """Return the figures for the page's script, safe inside an HTML element."""
        content = {
            "name": self.manifest["collection"].get("name", "estimates"),
            "keys": list(self.keys),
            "hasMean": self.has_mean,
            "hasFrequency": self.has_frequency,
            "flagNames": list(self.flag_names),
            "labels": {name: list(texts) for name, texts in self.labels.items()},
            "further": list(self.further),
            "windows": [{"label": frame.label} for frame in self.frames] if len(self.frames) > 1 else [],
            "frames": [
                {**{name: _rounded(column) for name, column in f.columns.items()}, "flags": f.flags.tolist()}
                for f in self.frames
            ],
        }
        text = json.dumps(content, ensure_ascii=False, allow_nan=False, separators=(",", ":"))
        return text.replace("<", "\\u003c").replace("\u2028", "\\u2028").replace("\u2029", "\\u2029")


def read_result(folder: Path) -> Result:
    """Read manifest and estimates of a result folder.

    Raises:
        InputError: The folder holds no complete result, or one without any key.
    """
    manifest, table = read_manifest(folder), read_estimates(folder)
    if not table.num_rows:
        raise InputError(f"{folder} holds estimates of no key at all, so there is nothing to report.")
    flag_names = sorted(set(pc.list_flatten(table["flags"]).to_pylist()) - {""})
    parts = _windows(table)
    return Result(
        manifest=manifest,
        keys=parts[0][1]["key"].to_pylist(),
        frames=[_frame(label, part, flag_names) for label, part in parts],
        flag_names=flag_names,
        labels={name: parts[0][1][name].to_pylist() for name in _LABELS if name in table.column_names},
        further=_further(table.schema),
    )


def _further(schema: pa.Schema) -> list[str]:
    """Name the figures of a key that only some mechanisms give: percentiles in rising order between the extremes."""
    floats = {field.name for field in schema if pa.types.is_floating(field.type)}
    percentiles = [name for name in floats if {f"{name}_low", f"{name}_high"} <= floats and name.startswith("p")]
    percentiles.sort(key=lambda name: float(name[1:]))
    ends = [name for name in ("minimum", "maximum") if name in floats]
    return [*ends[:1], *percentiles, *ends[1:]]


def _windows(table: pa.Table) -> list[tuple[str, pa.Table]]:
    """Take a table apart by window, keeping the last pane of each."""
    if "window_start" not in table.column_names:
        return [("", table)]
    starts = sorted(set(table["window_start"].to_pylist()))
    parts = []
    for start in starts:
        part = table.filter(pc.equal(table["window_start"], pa.scalar(start, table["window_start"].type)))
        if "pane" in part.column_names:
            part = part.filter(pc.equal(part["pane"], pc.max(part["pane"])))
        parts.append((_time_label(start), part))
    if len({part.num_rows for _, part in parts}) != 1:
        raise InputError("The windows of this result have different keys; report them one at a time.")
    return parts


def _time_label(start: Any) -> str:
    if not isinstance(start, datetime):
        return str(start)
    whole_day = (start.hour, start.minute, start.second) == (0, 0, 0)
    return start.strftime("%Y-%m-%d" if whole_day else "%Y-%m-%d %H:%M:%S")


def _frame(label: str, part: pa.Table, flag_names: Sequence[str]) -> Frame:
    known = (*FREQUENCY_COLUMNS, *MEAN_COLUMNS)
    support = [name for name in part.column_names if name not in known and name not in _NOT_FIGURES]
    names = [name for name in (*known, *support) if name in part.column_names]
    names = [name for name in names if _is_number(part.schema.field(name).type)]
    columns = {name: np.full(part.num_rows, np.nan) for name in FREQUENCY_COLUMNS}  # some mechanisms tell means alone
    columns |= {name: part[name].cast(pa.float64()).to_numpy(zero_copy_only=False) for name in names}
    bits = {name: 1 << place for place, name in enumerate(flag_names)}
    flags = np.array([sum(bits.get(f, 0) for f in held) for held in part["flags"].to_pylist()], dtype=np.int64)
    return Frame(label=label, n=int(part["n"][0].as_py()), columns=columns, flags=flags)


def _is_number(kind: pa.DataType) -> bool:
    return bool(pa.types.is_floating(kind) or pa.types.is_integer(kind) or pa.types.is_null(kind))


def _rounded(column: npt.NDArray[np.float64]) -> list[float | int | None]:
    """Return JSON numbers, null for NaN; whole numbers stay whole."""
    return [None if x != x else int(x) if x == int(x) else float(f"{x:.{_DIGITS}g}") for x in column.tolist()]
