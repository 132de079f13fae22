"""Windows of event time: which of them a slice of time belongs to, when they end and when they close.

Slices and windows are aligned to 1970-01-01T00:00:00Z and measured in whole seconds, so that nothing depends on the
time zone of a machine.
"""

from __future__ import annotations

import math
import re
from dataclasses import dataclass
from typing import Any

from ..errors import InputError
from .event_time import time_text

__all__ = ["Windows", "parse_duration"]

_UNITS = {"s": 1, "m": 60, "h": 3600, "d": 86_400, "w": 604_800}
_DURATION = re.compile(r"(\d{1,9})\s*([smhdw])")


def parse_duration(text: str, option: str, *, zero: bool = False) -> int:
    """Return the seconds of a duration such as "30s", "10m", "1h", "7d" or "2w".

    Args:
        text: what was given; "0" stands for "0s".
        option: that gave it, for messages.
        zero: whether 0 is allowed.

    Raises:
        InputError: It is no duration.
    """
    if "session" in text.lower():
        raise InputError(
            f"{option} {text}: session windows are refused. A session is a user's own, but reports carry no user, so "
            "the sessions of different people that overlap would merge into one window; and a user whose report stood "
            "in a window that depends on her data would tell something by its bounds. Give fixed windows (--window 1h) "
            "or sliding ones (--window 1h --slide 10m)."
        )
    found = _DURATION.fullmatch("0s" if text.strip() == "0" else text.strip().lower())
    seconds = int(found.group(1)) * _UNITS[found.group(2)] if found else -1
    if seconds < 0 or (seconds == 0 and not zero):
        raise InputError(
            f"{option} {text}: it must be a whole number of seconds, minutes, hours, days or weeks, for example 30s, "
            "10m, 1h, 7d or 2w."
        )
    return seconds


@dataclass(frozen=True, kw_only=True)
class Windows:
    """Fixed windows (slide = size), sliding ones (slide < size), or windows with gaps between them (slide > size).

    Attributes:
        size: length of a window in seconds.
        slide: seconds from the start of a window to the start of the next.
        lateness: seconds for which a window takes late reports after its end; then it is closed.
    """

    size: int
    slide: int
    lateness: int = 0

    def __post_init__(self) -> None:
        if self.size < 1 or self.slide < 1 or self.lateness < 0:
            raise InputError("A window and its slide last at least a second, and lateness is not negative.")
        if self.slide < self.size and self.size % self.slide:
            raise InputError(
                f"--window of {self.size} s and --slide of {self.slide} s: a window must be made of whole slices, "
                "since each user sends one report a slice and the server adds slices. Give a window that is a multiple "
                "of the slide."
            )

    @property
    def slices(self) -> int:
        """How many slides a window is made of."""
        return max(1, self.size // self.slide)

    @property
    def slice(self) -> int:
        """Length in seconds of the slices in which users are asked: a window is made of whole ones."""
        return min(self.size, self.slide)

    @property
    def grid(self) -> int:
        """Seconds of which all times are multiples at which a window ends or closes."""
        return math.gcd(self.size, self.slide, self.lateness)

    def starts(self, time: int) -> list[int]:
        """Return the starts of all windows that hold a time, in order; none where windows leave gaps.

        Args:
            time: seconds since 1970.
        """
        last = time - time % self.slide
        first = last - (self.slices - 1) * self.slide
        return [start for start in range(first, last + 1, self.slide) if time < self.end(start)]

    def end(self, start: int) -> int:
        """Return where the window that starts at `start` ends, itself excluded."""
        return start + self.size

    def closes(self, start: int) -> int:
        """Return the time at which the window that starts at `start` takes no more reports."""
        return start + self.size + self.lateness

    def name(self, start: int) -> str:
        """Return the name of a window's folder: its bounds without characters that file systems refuse."""
        return "--".join(time_text(time).replace("-", "").replace(":", "") for time in (start, self.end(start)))

    def as_json(self) -> dict[str, Any]:
        """Return the fields for the manifest."""
        return {
            "kind": "fixed" if self.slide == self.size else "sliding" if self.slide < self.size else "with gaps",
            "size_seconds": self.size,
            "slide_seconds": self.slide,
            "allowed_lateness_seconds": self.lateness,
        }
