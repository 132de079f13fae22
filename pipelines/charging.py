"""Charging a run to a ledger: reserved before the first report is made, settled before any is published."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import apache_beam as beam
import pyarrow as pa

from ..errors import LdpBeamError
from ..transforms.report_digest import DigestReports
from ..transforms.summary import Summary
from .ledger import Ledger, Spend

if TYPE_CHECKING:
    from .collect import ClientRun

__all__ = ["Charge", "charging"]


class Charge:
    """The spend of one run; without a ledger, nothing is kept.

    Args:
        run: what is run; the epsilon is that of its collection's mechanism.
    """

    def __init__(self, run: ClientRun) -> None:
        self._run = run
        self._ledger: Ledger | None = None
        self._entry = 0

    def reserve(self) -> None:
        """Reserve the epsilon, durably.

        Raises:
            InputError: The lifetime budget does not allow it, or the ledger is damaged.
        """
        run = self._run
        if run.ledger is None:
            return
        self._ledger = Ledger(run.ledger, create=True)
        self._entry = self._ledger.reserve(
            Spend(
                population=run.population,
                collection=run.collection.definition.name,
                fingerprint=run.collection.fingerprint,
                mechanism=run.collection.definition.mechanism,
                period=run.randomness.period,
                secret_id=run.randomness.secret_id or "",
                epsilon=run.collection.mechanism.epsilon,
                round=run.collection.round,
            ),
            tentative=run.memo is not None,
        )

    def digests(self, reports: beam.PCollection[pa.RecordBatch]) -> list[beam.PCollection[Summary]]:
        """Return summaries with the reports' digest, to be merged with the others; none without a ledger."""
        if self._ledger is None:
            return []
        return [reports | "DigestReports" >> DigestReports(self._run.collection)]

    def settle(self, summary: Mapping[str, Any], reports: int) -> dict[str, Any] | None:
        """Charge for the reports that were made, and return what the manifest says of it.

        Args:
            summary: of the run, with the digest.
            reports: reports that were made.

        Raises:
            RunError: The budget does not allow it after all.
        """
        if self._ledger is None:
            return None
        memo = self._run.memo
        # states of runs that failed or were not charged count as well: this run may have sent their reports
        fresh = reports if memo is None else memo.uncharged()
        entry = self._ledger.settle(self._entry, reports=reports, digest=summary["digest"], fresh=fresh)
        if memo is not None:
            memo.mark_charged()
        said = entry.as_json()
        spent = self._ledger.spent(entry.spend.population)
        shown = ("entry", "state", "population", "period", "charged", "reports")
        return {
            "spent_per_user": said["charged"],
            "ledger": {**{name: said[name] for name in shown}, "spent_so_far": format(spent.normalize(), "f")},
        }

    def failed(self, error: BaseException) -> str:
        """Decide what a failed run costs, and return it in words."""
        if self._ledger is None:
            return ""
        if self._run.engine.name == "direct":
            self._ledger.release(self._entry)  # its reports were in the staging folder only, which is gone
            return " The ledger charged nothing."
        return (
            f" The ledger charged epsilon {self._run.collection.mechanism.epsilon} (entry {self._entry}): reports may "
            "have left this machine."
        )


@contextmanager
def charging(run: ClientRun) -> Iterator[Charge]:
    """Yield the charge of a run; on an error the message says what was charged."""
    charge = Charge(run)
    charge.reserve()
    try:
        yield charge
    except LdpBeamError as error:
        raise type(error)(f"{error}{charge.failed(error)}") from error
    except BaseException as error:
        charge.failed(error)
        raise
