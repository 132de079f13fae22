"""Results in windows, for those who look at one of them: the last one, or the one that somebody names."""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from ..errors import InputError

__all__ = ["bounds_of", "last_panes", "one_window", "require_apart"]

_TIME = pa.timestamp("us", tz="UTC")


def last_panes(table: pa.Table) -> pa.Table:
    """Return estimates with times as times, whatever the file format, and of each window the last pane alone.

    Each pane restates its window, so panes are never added up.
    """
    if "window_start" not in table.column_names:
        return table
    for name in {"window_start", "window_end"} & set(table.column_names):
        times = table[name]
        if pa.types.is_string(times.type):
            times = pa.chunked_array([pa.array([datetime.fromisoformat(text) for text in times.to_pylist()], _TIME)])
        table = table.set_column(table.schema.get_field_index(name), name, times.cast(_TIME))
    if "pane" not in table.column_names:
        return table
    latest = table.group_by("window_start").aggregate([("pane", "max")])
    places = pc.index_in(table["window_start"], value_set=latest["window_start"].combine_chunks())
    return table.filter(pc.equal(table["pane"], latest["pane_max"].take(places)))


def one_window(table: pa.Table, folder: Path | str, wanted: str | None = None) -> pa.Table:
    """Return the estimates of one window; those of a result without windows as they are.

    Args:
        table: estimates.
        folder: where they come from, for messages.
        wanted: start of the window, ISO 8601 (without a zone: UTC), or its beginning, such as "2026-11-30"; None for
            the last window that is final, or the last one if none is.

    Raises:
        InputError: There is no such window, or several.
    """
    if "window_start" not in table.column_names:
        if wanted is not None:
            raise InputError(f"{folder} is a result without windows; leave the choice of the window {wanted} out.")
        return table
    table = last_panes(table)
    starts = table["window_start"]
    if wanted is None:
        final = starts.filter(table["is_final"]) if "is_final" in table.column_names else starts
        return table.filter(pc.equal(starts, pc.max(final if len(final) else starts)))
    found = [start for start in pc.unique(starts).to_pylist() if _matches(start, wanted)]
    if len(found) != 1:
        shown = ", ".join(_text(start) for start in sorted(pc.unique(starts).to_pylist())[-3:])
        raise InputError(
            f"{folder} has {len(found) or 'no'} windows that start at {wanted}; its last ones start at {shown} (UTC)."
        )
    return table.filter(pc.equal(starts, pa.scalar(found[0], _TIME)))


def _matches(start: datetime, wanted: str) -> bool:
    try:
        time = datetime.fromisoformat(wanted)
    except ValueError:
        return False
    if time.tzinfo is not None:
        return start == time
    return start == time.replace(tzinfo=UTC) or _text(start).startswith(wanted.replace(" ", "T"))


def _text(time: datetime) -> str:
    return time.astimezone(UTC).isoformat().replace("+00:00", "Z")


def bounds_of(table: pa.Table) -> tuple[datetime, datetime] | None:
    """Return the bounds of the window that all rows belong to; None without windows."""
    if not {"window_start", "window_end"} <= set(table.column_names) or not table.num_rows:
        return None
    return table["window_start"][0].as_py(), table["window_end"][0].as_py()


def require_apart(first: Any, second: Any, names: tuple[str, str]) -> None:
    """Refuse two windows of one stream that share reports, since estimates of them are not independent.

    Args:
        first: bounds of a window, or None.
        second: bounds of another.
        names: of the results, for the message.

    Raises:
        InputError: They overlap.
    """
    if first is not None and second is not None and first[0] < second[1] and second[0] < first[1]:
        raise InputError(
            f"{names[0]} and {names[1]}: the windows {_text(first[0])} to {_text(first[1])} and {_text(second[0])} to "
            f"{_text(second[1])} overlap and count the same reports, so they are not independent and the test would be "
            "wrong. Compare windows that lie apart."
        )
