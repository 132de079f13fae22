"""Charging a stream to a ledger, slice by slice: each report costs epsilon once, however many windows count it."""

from __future__ import annotations

from dataclasses import dataclass
from decimal import Decimal

from ..transforms.memo import Memo
from .ledger import EVERYBODY, Ledger, Spend

__all__ = ["LedgerCharge"]


@dataclass(frozen=True, kw_only=True)
class LedgerCharge:
    """What `transforms.slice_records` charges with; picklable, opens the ledger for each slice.

    A slice that is perturbed again, after a failure or in a replay with the same secret and period, gives the same
    reports and is free.

    Attributes:
        path: the ledger.
        collection: name of the collection.
        fingerprint: of its definition.
        mechanism: its name.
        epsilon: of one report.
        secret_id: of the clients' secret.
        population: whom the reports are about.
        memo: memoised collection, or None.
    """

    path: str
    collection: str
    fingerprint: str
    mechanism: str
    epsilon: Decimal
    secret_id: str
    population: str = EVERYBODY
    memo: Memo | None = None

    def reserve(self, period: str) -> int:
        """Reserve the epsilon of a slice.

        Raises:
            InputError: The lifetime budget does not allow it.
        """
        spend = Spend(
            population=self.population,
            collection=self.collection,
            fingerprint=self.fingerprint,
            mechanism=self.mechanism,
            period=period,
            secret_id=self.secret_id,
            epsilon=self.epsilon,
        )
        return Ledger(self.path, create=True).reserve(spend, tentative=self.memo is not None)

    def settle(self, entry: int, *, reports: int, digest: int) -> None:
        """Charge for the reports that were made.

        Raises:
            RunError: They were expected to repeat paid ones and do not, and the budget does not suffice.
        """
        fresh = reports if self.memo is None else self.memo.uncharged()
        Ledger(self.path).settle(entry, reports=reports, digest=f"{digest:032x}", fresh=fresh)
        if self.memo is not None:
            self.memo.mark_charged()
