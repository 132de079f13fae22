"""`compare`: is this year different from last year? A test of two independent estimates of the same key.

Source:
    The two-sample z-test: under equal true figures (x2 - x1) / sqrt(se1² + se2²) is about standard normal. The
    unclipped estimates are compared, since clipping would bias the difference; p-values are adjusted by Holm's
    method (Scandinavian Journal of Statistics, 1979) over all tests that are made.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from ..errors import InputError
from ..schemas.manifest import read_manifest
from .evaluate import read_estimates
from .window_choice import bounds_of, one_window, require_apart

__all__ = ["Comparison", "compare", "holm", "two_sided"]

F64 = npt.NDArray[np.float64]

_FIGURES: Final = ("frequency", "mean")


@dataclass(frozen=True, kw_only=True, eq=False)
class Comparison:
    """Differences of two results, the surest first.

    Attributes:
        rows: one a key and figure: key, figure, first, second, difference, difference_low and difference_high (95 %),
            z, p, p_adjusted, differs (adjusted p below the level).
        level: chance of at least one false "differs" among all rows.
        tests: number of tests made.
        left_out: tests not made because a mean rests on few holders.
        warnings: what a reader must know.
    """

    rows: Sequence[Mapping[str, Any]]
    level: float
    tests: int
    left_out: int
    warnings: Sequence[str]

    def as_json(self) -> dict[str, Any]:
        """Return everything as one JSON object."""
        return {
            "level": self.level,
            "tests": self.tests,
            "left_out": self.left_out,
            "differing": sum(bool(row["differs"]) for row in self.rows),
            "warnings": list(self.warnings),
            "rows": [dict(row) for row in self.rows],
        }


def compare(
    first: str | Path, second: str | Path, *, level: float = 0.05, windows: tuple[str | None, str | None] = (None, None)
) -> Comparison:
    """Test every key's frequency and mean for a difference between two results.

    People who took part both times make the test cautious, not wrong: their part of the sampling error cancels in
    the difference, and the test does not take that off.

    Args:
        first: result folder of `collect` or `aggregate`.
        second: another, with the same keys and value range.
        level: chance of at least one false difference among all tests.
        windows: of results in windows, the start of the window to compare of each; None for the last final one.

    Raises:
        InputError: The results cannot be compared: other keys or range, or the very same reports.
    """
    if not 0 < level < 1:
        raise InputError(f"--level {level:g}: it is a probability between 0 and 1, for example 0.05.")
    manifests = [read_manifest(Path(folder)) for folder in (first, second)]
    tables = [
        one_window(read_estimates(Path(folder)), folder, window)
        for folder, window in zip((first, second), windows, strict=True)
    ]
    bounds = [bounds_of(table) for table in tables]
    warnings = _check(manifests, [str(first), str(second)], bounds)
    tables[1] = _same_order(tables[0], tables[1], str(second))
    rows: list[dict[str, Any]] = []
    left_out = 0
    for figure in _FIGURES:
        if all(figure in table.column_names for table in tables):
            made, missing = _differences(figure, tables)
            rows += made
            left_out += missing
    adjusted = holm(np.array([row["p"] for row in rows]))
    for row, p in zip(rows, adjusted.tolist(), strict=True):
        row |= {"p_adjusted": p, "differs": p < level}
    rows.sort(key=lambda row: (row["p"], row["figure"], row["key"]))
    return Comparison(rows=rows, level=level, tests=len(rows), left_out=left_out, warnings=warnings)


def _check(
    manifests: Sequence[Mapping[str, Any]], names: Sequence[str], bounds: Sequence[tuple[Any, Any] | None]
) -> list[str]:
    one, two = manifests
    ranges = [(m["collection"].get("values") or {}).get("range") for m in manifests]
    if ranges[0] != ranges[1]:
        raise InputError(
            f"{names[0]} has values in {ranges[0]}, {names[1]} in {ranges[1]}: their means are on different scales. "
            "Compare results of collections with the same range."
        )
    sources = [(m["fingerprint"], m.get("source")) for m in manifests]
    if sources[0] == sources[1] and sources[0][1] is not None:  # windows of one stream
        require_apart(bounds[0], bounds[1], (names[0], names[1]))
    labels = [
        (m["fingerprint"], m["randomness"].get("secret_id"), m["randomness"].get("period"), bound)
        for m, bound in zip(manifests, bounds, strict=True)
    ]
    if labels[0] == labels[1] and labels[0][1] is not None:
        raise InputError(
            f"{names[0]} and {names[1]} come from the same secret and period: an unchanged record sent the same report "
            "twice, so the two are not independent and the test would be wrong. Use another --period each time."
        )
    warnings = []
    for field in ("mechanism", "padding", "epsilon"):
        values = [m["collection"].get(field) for m in (one, two)]
        if values[0] != values[1]:
            warnings.append(f"The collections differ in {field} ({values[0]} and {values[1]}).")
    if one["collection"].get("padding") != two["collection"].get("padding"):
        warnings.append("Where people hold more keys than the padding, another padding alone makes a difference.")
    return warnings


def _same_order(first: pa.Table, second: pa.Table, name: str) -> pa.Table:
    keys = first["key"].combine_chunks()
    places = pc.index_in(keys, value_set=second["key"].combine_chunks())
    if places.null_count or first.num_rows != second.num_rows:
        raise InputError(f"{name} has other keys than the first result. Compare collections over the same keys.")
    return second.take(places)


def _differences(figure: str, tables: Sequence[pa.Table]) -> tuple[list[dict[str, Any]], int]:
    """Return the tests of one figure, and how many were left out."""
    raw = [_floats(table[f"{figure}_raw"]) for table in tables]
    errors = [_floats(table[f"{figure}_se"]) for table in tables]
    error = np.hypot(*errors)
    usable = np.isfinite(raw[0]) & np.isfinite(raw[1]) & np.isfinite(error) & (error > 0)
    if figure == "mean":  # a ratio over few holders is far from normal
        usable &= ~(_flagged(tables[0]) | _flagged(tables[1]))
    difference = raw[1] - raw[0]
    keys = tables[0]["key"].to_pylist()
    rows = []
    for i in np.flatnonzero(usable).tolist():
        z = float(difference[i] / error[i])
        rows.append(
            {
                "key": keys[i],
                "figure": figure,
                "first": float(raw[0][i]),
                "second": float(raw[1][i]),
                "difference": float(difference[i]),
                "difference_low": float(difference[i] - 1.959964 * error[i]),
                "difference_high": float(difference[i] + 1.959964 * error[i]),
                "z": z,
                "p": two_sided(z),
            }
        )
    return rows, len(keys) - len(rows)


def _floats(column: pa.ChunkedArray) -> F64:
    array: F64 = column.cast(pa.float64()).to_numpy(zero_copy_only=False)
    return array


def _flagged(table: pa.Table) -> npt.NDArray[np.bool_]:
    return np.array(["few-holders" in flags for flags in table["flags"].to_pylist()], dtype=bool)


def two_sided(z: float) -> float:
    """Return the probability that a standard normal figure is farther from 0 than z."""
    return math.erfc(abs(z) / math.sqrt(2))


def holm(p: F64) -> F64:
    """Return p-values adjusted by Holm's step-down method, in the given order.

    Args:
        p: float64 (m,).
    """
    order = np.argsort(p, kind="stable")
    stepped = np.maximum.accumulate(p[order] * np.arange(len(p), 0, -1))
    adjusted = np.empty_like(p)
    adjusted[order] = np.minimum(stepped, 1.0)
    return adjusted
