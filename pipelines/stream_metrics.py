"""The engine's own counters of a stream: told where the engine tells them, and "unavailable" where it does not.

No estimate and no check depends on them: what was read, counted and set aside is counted in the data path too.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from apache_beam.metrics import MetricsFilter

__all__ = ["METRICS", "UNAVAILABLE", "checked_metrics", "read_metrics"]

UNAVAILABLE: Final = "unavailable"
#: Names of our counters, and what they count.
METRICS: Final = (
    "rows_read",
    "rows_rejected",
    "reports_sent",
    "reports_read",
    "reports_malformed",
    "late",
    "reports_counted",
)


def read_metrics(result: Any) -> dict[str, int | str]:
    """Return our counters by name; one that the engine does not know is unavailable, never 0."""
    try:
        counters = result.metrics().query(MetricsFilter().with_namespace("ldp_beam"))["counters"]
    except Exception:  # what a runner raises that has no metrics, or has gone, is of any type
        counters = []
    found: dict[str, int | str] = dict.fromkeys(METRICS, UNAVAILABLE)
    for counter in counters:
        name, value = counter.key.metric.name, counter.committed
        if name in found and value is not None:
            before = found[name]
            found[name] = int(value) + (before if isinstance(before, int) else 0)
    return found


def checked_metrics(found: Mapping[str, int | str], exact: Mapping[str, int]) -> dict[str, int | str]:
    """Return counters of a stream that has ended; one that lost a part, which some engines do, is unavailable.

    Args:
        found: the counters as the engine gave them.
        exact: what the stream counted itself, in its data, as far as it is known.
    """
    return {name: UNAVAILABLE if name in exact and value != exact[name] else value for name, value in found.items()}
