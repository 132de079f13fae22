"""Counters of the engine, for its own pages and for whoever watches it: the figures of a run's tallies, once more.

No estimate and no check depends on them. Some engines do not tell them after a run, some lose a part.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, Final

import apache_beam as beam
from apache_beam.metrics import Metrics

from ..schemas.tally import (
    REJECTED_ROWS,
    REPORTS_COUNTED,
    REPORTS_DUPLICATE,
    REPORTS_MALFORMED,
    REPORTS_UNREADABLE,
    ROWS_READ,
    USERS,
)

__all__ = ["TellEngine", "run_figures"]

_NAMESPACE: Final = "ldp_beam"
_CLIENT: Final = {"rows_read": (ROWS_READ,), "rows_rejected": (REJECTED_ROWS,), "reports_sent": (USERS,)}
_READ: Final = (REPORTS_COUNTED, REPORTS_DUPLICATE, REPORTS_MALFORMED, REPORTS_UNREADABLE)
_SERVER: Final = {
    "reports_read": _READ,
    "reports_malformed": (REPORTS_MALFORMED,),
    "reports_counted": (REPORTS_COUNTED,),
}


def run_figures(tally: Mapping[str, int], *, client: bool, server: bool) -> dict[str, int]:
    """Return what the counters should come to.

    Args:
        tally: of a run, or of a part of it.
        client: whether it read records.
        server: whether it counted reports.
    """
    sums = (_CLIENT if client else {}) | (_SERVER if server else {})
    return {name: sum(tally.get(part, 0) for part in parts) for name, parts in sums.items()}


class TellEngine(beam.DoFn):
    """Adds the tallies of `Summary`s to the engine's counters and passes the summaries on."""

    def process(self, element: Any) -> Iterator[Any]:
        for name, count in run_figures(element.tally, client=True, server=True).items():
            if count:
                Metrics.counter(_NAMESPACE, name).inc(count)
        yield element
