"""The ledger: which collection spent how much epsilon on which population and period. One SQLite file.

A run reserves its epsilon before it makes the first report, and settles once the reports are there and before any
of them is published. A process that dies in between leaves its reservation behind, and a reservation counts like
a charge: the ledger may overstate what was spent, and never understates it.

Sums are exact: epsilons are kept as decimal text and added as fractions.
"""

from __future__ import annotations

import os
import sqlite3
import uuid
from collections.abc import Iterator, Sequence
from contextlib import closing, contextmanager, suppress
from dataclasses import dataclass
from datetime import UTC, datetime
from decimal import Context, Decimal, Inexact, InvalidOperation
from fractions import Fraction
from pathlib import Path
from typing import Any, Final

from ..errors import InputError, RunError

__all__ = ["EVERYBODY", "Entry", "Ledger", "Spend", "decimal_of"]

#: Name of the population where none is given.
EVERYBODY: Final = "everybody"

_APPLICATION: Final = 0x6C647062  # "ldpb"
_VERSION: Final = 1
_WAIT_SECONDS: Final = 60.0
_EXACT: Final = Context(prec=6000, Emin=-6000, Emax=6000, traps=[Inexact, InvalidOperation])
_SMALLEST_EXPONENT: Final = -2000
_SCHEMA: Final = """
CREATE TABLE spends (
    entry       INTEGER PRIMARY KEY AUTOINCREMENT,
    state       TEXT NOT NULL CHECK (state IN ('reserved', 'charged', 'repeated', 'released')),
    population  TEXT NOT NULL,
    collection  TEXT NOT NULL,
    fingerprint TEXT NOT NULL,
    mechanism   TEXT NOT NULL,
    period      TEXT NOT NULL,
    round       INTEGER NOT NULL,
    secret_id   TEXT NOT NULL,
    epsilon     TEXT NOT NULL,
    reports     INTEGER,
    digest      TEXT,
    started     TEXT NOT NULL,
    settled     TEXT
) STRICT;
CREATE TABLE budgets (
    entry       INTEGER PRIMARY KEY AUTOINCREMENT,
    population  TEXT NOT NULL,
    epsilon     TEXT NOT NULL,
    declared    TEXT NOT NULL
) STRICT;
"""


def decimal_of(text: Decimal | str | int, what: str = "epsilon") -> Decimal:
    """Return an epsilon as an exact decimal.

    Raises:
        InputError: It is no finite number above 0, or has digits beyond the 2,000th place.
    """
    try:
        value = Decimal(text)
    except InvalidOperation:
        value = Decimal("NaN")
    exponent = value.as_tuple().exponent
    if not value.is_finite() or value <= 0 or not isinstance(exponent, int) or exponent < _SMALLEST_EXPONENT:
        raise InputError(f"{what} is {text}, but must be a number above 0, for example 1.5.")
    return value


def _sum(epsilons: Sequence[str]) -> Decimal:
    total = sum((Fraction(Decimal(text)) for text in epsilons), Fraction(0))
    return _EXACT.divide(Decimal(total.numerator), Decimal(total.denominator))


@dataclass(frozen=True, kw_only=True)
class Spend:
    """What a run is about to spend on every member of a population.

    Attributes:
        population: whom the reports are about.
        collection: name of the collection.
        fingerprint: of its definition.
        mechanism: its name.
        period: name of the period.
        secret_id: of the clients' secret.
        epsilon: privacy budget of what each user sends in this run.
        round: number of the round; 0 for all rounds of a run, or where there are none.
    """

    population: str
    collection: str
    fingerprint: str
    mechanism: str
    period: str
    secret_id: str
    epsilon: Decimal
    round: int = 0


@dataclass(frozen=True, kw_only=True)
class Entry:
    """One line of the ledger; see `Spend`.

    Attributes:
        entry: its number.
        state: "reserved" (a run that has not ended, or died: it counts), "charged", "repeated" (the same reports
            as an earlier entry: free) or "released" (a run that failed before any report could leave: free).
        spend: what it is about.
        reports: reports produced; None while reserved.
        digest: order-independent digest of the reports; None while reserved.
        started: when it was reserved.
        settled: when it was settled.
    """

    entry: int
    state: str
    spend: Spend
    reports: int | None
    digest: str | None
    started: str
    settled: str | None

    @property
    def counts(self) -> bool:
        """Whether its epsilon is spent."""
        return self.state in ("reserved", "charged")

    def as_json(self) -> dict[str, Any]:
        """Return the line for programs; epsilons are decimal text."""
        spend = self.spend
        return {
            "entry": self.entry,
            "state": self.state,
            "population": spend.population,
            "collection": spend.collection,
            "fingerprint": spend.fingerprint,
            "mechanism": spend.mechanism,
            "period": spend.period,
            "round": spend.round,
            "secret_id": spend.secret_id,
            "epsilon": _text(spend.epsilon),
            "charged": _text(spend.epsilon) if self.counts else "0",
            "reports": self.reports,
            "digest": self.digest,
            "started": self.started,
            "settled": self.settled,
        }


class Ledger:
    """One ledger file.

    Every change is one transaction that is on the disk before the call returns; several processes may use the
    same file at once. On a network file system SQLite's locks may not hold: keep the ledger on a local disk.

    Args:
        path: the file.
        create: make it where it does not exist.

    Raises:
        InputError: It is absent (and not to be made), damaged, or no ledger.
    """

    def __init__(self, path: str | Path, *, create: bool = False) -> None:
        self.path = Path(path)
        if create and not self.path.exists():
            self._create()
        if not self.path.is_file():
            raise InputError(
                f"The ledger {self.path} does not exist. A run with --ledger, or `ldp-beam ledger set-budget`, makes "
                "one; a missing ledger is not an empty one."
            )
        with self._open() as connection:
            self._check(connection)

    # -- spending ---------------------------------------------------------------------------------------

    def reserve(self, spend: Spend, *, tentative: bool = False) -> int:
        """Reserve a spend before the first report is made.

        A run that may turn out to repeat an earlier one (same secret, definition, period and round) may reserve
        beyond the budget; `settle` then refuses it unless the reports are the same.

        Args:
            spend: what is about to be spent.
            tentative: the run may also be free for another reason (memoised reports).

        Returns:
            Number of the entry.

        Raises:
            InputError: It would exceed the population's lifetime budget.
        """
        decimal_of(spend.epsilon)
        with self._change() as connection:
            repeat = tentative or bool(self._earlier(connection, spend))
            if not repeat:
                self._afford(connection, spend)
            state = "released" if repeat and self._short(connection, spend) else "reserved"
            cursor = connection.execute(
                "INSERT INTO spends (state, population, collection, fingerprint, mechanism, period, round, secret_id,"
                " epsilon, started) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?)",
                (
                    state,
                    spend.population,
                    spend.collection,
                    spend.fingerprint,
                    spend.mechanism,
                    spend.period,
                    spend.round,
                    spend.secret_id,
                    str(spend.epsilon),
                    _now(),
                ),
            )
            return int(cursor.lastrowid or 0)

    def settle(self, number: int, *, reports: int, digest: str, fresh: int | None = None) -> Entry:
        """Charge a reservation for the reports that were produced, before any of them is published.

        It is free where no report was made, and where an earlier entry has the same secret, definition, period,
        round and digest, for then every report repeats one that was paid for.

        Args:
            number: what `reserve` returned.
            reports: reports produced.
            digest: order-independent digest of them.
            fresh: how many of them are new, where the client knows (memoised collection); all by default.

        Raises:
            RunError: The run was expected to repeat an earlier one and did not, and the budget does not suffice.
        """
        with self._change() as connection:
            entry = self._entry(connection, number)
            repeats = (reports if fresh is None else fresh) == 0 or any(
                (one.digest, one.reports) == (digest, reports) for one in self._earlier(connection, entry.spend)
            )
            state = "repeated" if repeats else "charged"
            if state == "charged" and entry.state == "released":
                try:
                    self._afford(connection, entry.spend)
                except InputError as error:
                    raise RunError(
                        f"{error} The run was let through because an earlier one has the same secret and period, but "
                        "its reports are different ones. Nothing was published."
                    ) from None
            connection.execute(
                "UPDATE spends SET state = ?, reports = ?, digest = ?, settled = ? WHERE entry = ?",
                (state, reports, digest, _now(), number),
            )
            return self._entry(connection, number)

    def release(self, number: int) -> None:
        """Take a reservation back: the run failed and none of its reports can have left."""
        with self._change() as connection:
            connection.execute(
                "UPDATE spends SET state = 'released', settled = ? WHERE entry = ? AND state = 'reserved'",
                (_now(), number),
            )

    # -- budgets ----------------------------------------------------------------------------------------

    def set_budget(self, epsilon: Decimal | str, population: str = EVERYBODY) -> None:
        """Declare the lifetime budget of a population; earlier declarations stay in the file."""
        exact = decimal_of(epsilon, "The budget")
        with self._change() as connection:
            connection.execute(
                "INSERT INTO budgets (population, epsilon, declared) VALUES (?, ?, ?)", (population, str(exact), _now())
            )

    def budget(self, population: str = EVERYBODY) -> Decimal | None:
        """Return the lifetime budget of a population; None where none was declared."""
        with self._open() as connection:
            return self._budget(connection, population)

    def spent(self, population: str = EVERYBODY) -> Decimal:
        """Return what was spent on each member of a population, reservations included."""
        with self._open() as connection:
            return self._spent(connection, population)

    def entries(self) -> list[Entry]:
        """Return all entries in order."""
        with self._open() as connection:
            return [_entry(row) for row in connection.execute("SELECT * FROM spends ORDER BY entry")]

    def as_json(self) -> dict[str, Any]:
        """Return everything for programs: populations with their totals, and entries."""
        entries = self.entries()
        with self._open() as connection:
            budgeted = {row["population"] for row in connection.execute("SELECT DISTINCT population FROM budgets")}
        names = sorted({entry.spend.population for entry in entries} | budgeted)
        return {
            "ledger": str(self.path),
            "populations": [self._population(name) for name in names],
            "entries": [entry.as_json() for entry in entries],
        }

    def _population(self, name: str) -> dict[str, Any]:
        spent, budget = self.spent(name), self.budget(name)
        remaining = None if budget is None else max(Decimal(0), _EXACT.subtract(budget, spent))
        return {
            "population": name,
            "spent": _text(spent),
            "budget": None if budget is None else _text(budget),
            "remaining": None if remaining is None else _text(remaining),
        }

    # -- inside a transaction ---------------------------------------------------------------------------

    def _afford(self, connection: sqlite3.Connection, spend: Spend) -> None:
        budget = self._budget(connection, spend.population)
        if budget is None or not self._short(connection, spend):
            return
        spent = self._spent(connection, spend.population)
        raise InputError(
            f"The ledger {self.path} refuses this run: {_text(spent)} of the lifetime budget {_text(budget)} of "
            f"population {spend.population!r} is spent, and the run would spend {_text(spend.epsilon)} more on "
            "everybody. Nothing was charged. See `ldp-beam ledger show`."
        )

    def _short(self, connection: sqlite3.Connection, spend: Spend) -> bool:
        budget = self._budget(connection, spend.population)
        total = Fraction(self._spent(connection, spend.population)) + Fraction(spend.epsilon)
        return budget is not None and total > Fraction(budget)

    @staticmethod
    def _budget(connection: sqlite3.Connection, population: str) -> Decimal | None:
        row = connection.execute(
            "SELECT epsilon FROM budgets WHERE population = ? ORDER BY entry DESC LIMIT 1", (population,)
        ).fetchone()
        return None if row is None else Decimal(row["epsilon"])

    @staticmethod
    def _spent(connection: sqlite3.Connection, population: str) -> Decimal:
        rows = connection.execute(
            "SELECT epsilon FROM spends WHERE population = ? AND state IN ('reserved', 'charged')", (population,)
        )
        return _sum([row["epsilon"] for row in rows])

    @staticmethod
    def _earlier(connection: sqlite3.Connection, spend: Spend) -> list[Entry]:
        """Return charged entries of the same people, secret, definition, period and round."""
        rows = connection.execute(
            "SELECT * FROM spends WHERE state = 'charged' AND population = ? AND secret_id = ? AND fingerprint = ?"
            " AND period = ? AND round = ? AND epsilon = ?",
            (spend.population, spend.secret_id, spend.fingerprint, spend.period, spend.round, str(spend.epsilon)),
        )
        return [_entry(row) for row in rows]

    def _entry(self, connection: sqlite3.Connection, number: int) -> Entry:
        row = connection.execute("SELECT * FROM spends WHERE entry = ?", (number,)).fetchone()
        if row is None:
            raise RunError(f"The ledger {self.path} has lost its entry {number}. Nothing was published.")
        return _entry(row)

    # -- the file ---------------------------------------------------------------------------------------

    def _create(self) -> None:
        """Make a complete file under another name and link it, so that two runs never see half of one."""
        made = self.path.parent / f".{self.path.name}.{uuid.uuid4().hex[:12]}"
        try:
            os.close(os.open(made, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o600))
            with closing(sqlite3.connect(made, isolation_level=None)) as connection:
                connection.executescript(
                    f"PRAGMA application_id = {_APPLICATION}; PRAGMA user_version = {_VERSION}; {_SCHEMA}"
                )
            with suppress(FileExistsError):
                self.path.hardlink_to(made)
        except (OSError, sqlite3.Error) as error:
            raise InputError(f"The ledger {self.path} cannot be made: {error}.") from error
        finally:
            made.unlink(missing_ok=True)

    @contextmanager
    def _open(self) -> Iterator[sqlite3.Connection]:
        try:
            with closing(
                sqlite3.connect(
                    f"file:{_quoted(self.path)}?mode=rw", uri=True, timeout=_WAIT_SECONDS, isolation_level=None
                )
            ) as connection:
                connection.row_factory = sqlite3.Row
                connection.execute("PRAGMA synchronous = EXTRA")
                yield connection
        except sqlite3.OperationalError as error:
            raise RunError(f"The ledger {self.path} cannot be used: {error}. Nothing was charged.") from error
        except sqlite3.DatabaseError as error:
            raise self._damaged(str(error)) from error

    @contextmanager
    def _change(self) -> Iterator[sqlite3.Connection]:
        """One transaction, which holds the only right to write from its first statement on."""
        with self._open() as connection:
            connection.execute("BEGIN IMMEDIATE")
            try:
                yield connection
            except BaseException:
                connection.execute("ROLLBACK")
                raise
            connection.execute("COMMIT")

    def _check(self, connection: sqlite3.Connection) -> None:
        if self.path.stat().st_size == 0:
            raise self._damaged("it is empty")
        application = connection.execute("PRAGMA application_id").fetchone()[0]
        version = connection.execute("PRAGMA user_version").fetchone()[0]
        if application != _APPLICATION:
            raise InputError(f"{self.path} is a SQLite file but no ledger of ldp-beam.")
        if version != _VERSION:
            raise InputError(f"The ledger {self.path} has version {version}; this ldp-beam reads version {_VERSION}.")
        found = [row[0] for row in connection.execute("PRAGMA integrity_check(3)")]
        if found != ["ok"]:
            raise self._damaged("; ".join(found))
        try:
            for entry in map(_entry, connection.execute("SELECT * FROM spends")):
                decimal_of(entry.spend.epsilon)
        except (InvalidOperation, InputError, IndexError) as error:
            raise self._damaged(f"an entry holds no epsilon ({error})") from error

    def _damaged(self, what: str) -> InputError:
        return InputError(
            f"The ledger {self.path} is damaged ({what}). It is not taken for an empty one, since what was spent would "
            "be forgotten: restore it from a copy, or declare everything spent and begin a new one."
        )


def _entry(row: sqlite3.Row) -> Entry:
    spend = Spend(
        population=row["population"],
        collection=row["collection"],
        fingerprint=row["fingerprint"],
        mechanism=row["mechanism"],
        period=row["period"],
        round=row["round"],
        secret_id=row["secret_id"],
        epsilon=Decimal(row["epsilon"]),
    )
    return Entry(
        entry=row["entry"],
        state=row["state"],
        spend=spend,
        reports=row["reports"],
        digest=row["digest"],
        started=row["started"],
        settled=row["settled"],
    )


def _text(value: Decimal) -> str:
    """Return a decimal without an exponent where that is short."""
    plain = format(value.normalize(_EXACT), "f")
    return plain if len(plain) <= 40 else str(value.normalize(_EXACT))


def _quoted(path: Path) -> str:
    return str(path.absolute()).replace("%", "%25").replace("?", "%3f").replace("#", "%23")


def _now() -> str:
    return datetime.now(UTC).isoformat(timespec="seconds")
