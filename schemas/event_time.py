"""Event times as they stand in headers: the start of a slice of time, as UTC text of whole seconds.

A report carries no time of its own. All reports of a file or message belong to one slice, the window in which their
clients were asked; its start and its length stand in the header.
"""

from __future__ import annotations

from datetime import UTC, datetime

from ..errors import InputError

__all__ = ["parse_time", "time_text"]


def time_text(seconds: int) -> str:
    """Return a time as text, such as "2026-11-30T13:00:00Z".

    Args:
        seconds: since 1970-01-01T00:00:00Z.

    Raises:
        InputError: The time lies outside the years 1 to 9999.
    """
    try:
        moment = datetime.fromtimestamp(seconds, UTC)
    except (ValueError, OverflowError, OSError) as error:
        raise InputError(f"{seconds} seconds since 1970 lie outside the years 1 to 9999.") from error
    return f"{moment.replace(tzinfo=None).isoformat(timespec='seconds')}Z"


def parse_time(text: str) -> int:
    """Return the seconds since 1970-01-01T00:00:00Z of an ISO 8601 text; a time without a zone is UTC.

    Raises:
        InputError: It is no such text, or holds a fraction of a second.
    """
    try:
        moment = datetime.fromisoformat(text)
        if moment.tzinfo is None:
            moment = moment.replace(tzinfo=UTC)
        since = moment - datetime(1970, 1, 1, tzinfo=UTC)
    except (ValueError, OverflowError) as error:
        raise InputError(f"{text[:60]!r} is no time; write it as 2026-11-30T13:00:00Z.") from error
    if since.microseconds:
        raise InputError(f"{text[:60]!r} holds a fraction of a second; slices of time start at whole seconds.")
    return since.days * 86_400 + since.seconds
