"""Charging a run to a ledger: reserved before the first report is made, settled before any is published."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import apache_beam as beam
import pyarrow as pa

from ..errors import LdpBeamError
from ..transforms.report_digest import DigestReports
from ..transforms.summary import DIGEST_MODULUS, Summary
from .ledger import Ledger, Spend

if TYPE_CHECKING:
    from ..transforms.collection import Collection
    from .collect import ClientRun

__all__ = ["Charge", "charging"]


class Charge:
    """The spend of one run; without a ledger, nothing is kept.

    Args:
        run: what is run; the epsilon is that of its collection's mechanism.
        paid_with: fingerprint of another question, asked of other members of the population, whose entry has
            already charged everybody: a member answers one of the two. The run is free then, the first time.
    """

    def __init__(self, run: ClientRun, *, paid_with: str | None = None) -> None:
        self._run, self._paid_with = run, paid_with
        self._paid: set[str] | None = None
        self._reports, self._digest = 0, 0
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
        self._paid = self._already_paid()
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
            tentative=run.memo is not None or self._paid is not None,
        )

    def _already_paid(self) -> set[str] | None:
        """Digests of this question's reports so far, if the other question was charged to everybody; else None."""
        if self._paid_with is None or self._ledger is None:
            return None
        run = self._run
        about = (run.population, run.randomness.period, run.randomness.secret_id or "")
        same = [
            entry
            for entry in self._ledger.entries()
            if (entry.spend.population, entry.spend.period, entry.spend.secret_id) == about
            and entry.state in ("charged", "repeated")
        ]
        if self._paid_with not in {entry.spend.fingerprint for entry in same}:
            return None
        return {entry.digest or "" for entry in same if entry.spend.fingerprint == run.collection.fingerprint}

    def digests(
        self, reports: beam.PCollection[pa.RecordBatch], collection: Collection | None = None
    ) -> list[beam.PCollection[Summary]]:
        """Return summaries with the reports' digest, to be merged with the others; none without a ledger.

        Args:
            reports: reports of the run.
            collection: what they answer, where it is not the collection that is charged.
        """
        if self._ledger is None:
            return []
        return [reports | "DigestReports" >> DigestReports(collection or self._run.collection)]

    def add(self, summary: Mapping[str, Any], reports: int) -> None:
        """Note the reports of a part of the run, to be settled with the rest."""
        self._reports += reports
        self._digest = (self._digest + int(summary["digest"], 16)) % DIGEST_MODULUS

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
        self.add(summary, reports)
        digest = f"{self._digest:032x}"
        paid = self._paid is not None and (not self._paid or digest in self._paid)
        # states of runs that failed or were not charged count as well: this run may have sent their reports
        fresh = (0 if paid else self._reports) if memo is None else memo.uncharged()
        entry = self._ledger.settle(self._entry, reports=self._reports, digest=digest, fresh=fresh)
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
def charging(run: ClientRun, *, paid_with: str | None = None) -> Iterator[Charge]:
    """Yield the charge of a run; on an error the message says what was charged. For the arguments see `Charge`."""
    charge = Charge(run, paid_with=paid_with)
    charge.reserve()
    try:
        yield charge
    except LdpBeamError as error:
        raise type(error)(f"{error}{charge.failed(error)}") from error
    except BaseException as error:
        charge.failed(error)
        raise
