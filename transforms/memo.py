"""Memoised collection: which record states each user has already reported on, kept by the client. Client side only.

Without a period in the label a user whose data do not change sends the same report again, so that averaging over
periods gains nothing; a user whose data do change spends epsilon again. The memo counts the states of each user and
stops at a cap: from then on the last admitted report is repeated, whatever the record says.

The file holds keyed digests and reports, no records. It is as sensitive as the secret's other traces: mode 0600.
"""

from __future__ import annotations

import os
import sqlite3
from collections.abc import Iterator
from contextlib import closing, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import numpy as np

from ..errors import InputError, RunError
from ..mechanisms import Mechanism, Reports
from ..mechanisms.data import U8
from ..mechanisms.randomness import U64

__all__ = ["MEMOISED_PERIOD", "Memo"]

#: Stands in the label for all periods of a memoised collection; no period that a person names equals it.
MEMOISED_PERIOD: Final = "\x00memoised"

_APPLICATION: Final = 0x6C64706D  # "ldpm"
_WAIT_SECONDS: Final = 60.0
_SCHEMA: Final = f"""
PRAGMA application_id = {_APPLICATION};
CREATE TABLE collection (fingerprint TEXT NOT NULL, secret_id TEXT NOT NULL) STRICT;
CREATE TABLE states (
    user BLOB NOT NULL, state BLOB NOT NULL, charged INTEGER NOT NULL DEFAULT 0, PRIMARY KEY (user, state)
) STRICT, WITHOUT ROWID;
CREATE TABLE last (user BLOB PRIMARY KEY, report BLOB NOT NULL) STRICT, WITHOUT ROWID;
"""


@dataclass(frozen=True)
class Memo:
    """The memo of one collection under one secret.

    Attributes:
        path: its file; made by `open` where it does not exist.
        cap: largest number of different record states that a user ever reports on.

    Privacy:
        All reports of a user together, over any number of periods, satisfy (cap * epsilon)-LDP; while her record
        stays the same, all of them are one report and satisfy epsilon-LDP. A memoised report is a pseudonym: who
        sees two periods can link the two, and sees when a user's record changed.
    """

    path: str
    cap: int

    def open(self, *, fingerprint: str, secret_id: str) -> None:
        """Make the file, or check that it belongs to this collection and secret.

        Raises:
            InputError: It cannot be made, is damaged, or belongs to something else.
        """
        if self.cap < 1:
            raise InputError(f"--memoise-states {self.cap}: a user reports on at least 1 state.")
        try:
            if not Path(self.path).exists():
                os.close(os.open(self.path, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o600))
                with self._connect() as connection:
                    connection.executescript(_SCHEMA)
                    connection.execute("INSERT INTO collection VALUES (?, ?)", (fingerprint, secret_id))
            with self._connect() as connection:
                ours = connection.execute("PRAGMA application_id").fetchone()[0] == _APPLICATION
                row = connection.execute("SELECT fingerprint, secret_id FROM collection").fetchone() if ours else None
        except (OSError, sqlite3.Error) as error:
            raise InputError(f"The memo {self.path} cannot be used: {error}.") from error
        if row != (fingerprint, secret_id):
            raise InputError(
                f"{self.path} is not the memo of this collection definition and secret; each pair has a file of its "
                "own."
            )

    def uncharged(self) -> int:
        """Return how many states have been reported on, or may have been, without a ledger having charged them."""
        with self._connect() as connection:
            return int(connection.execute("SELECT count(*) FROM states WHERE charged = 0").fetchone()[0])

    def mark_charged(self) -> None:
        """Note that a ledger has charged all states so far."""
        with self._connect() as connection:
            connection.execute("UPDATE states SET charged = 1 WHERE charged = 0")

    def admit(self, mechanism: Mechanism, users: U8, states: U64, reports: Reports) -> Reports:
        """Note the states of a batch, and repeat the last report of users who are at their cap.

        Args:
            mechanism: whose reports they are.
            users: digests, uint8 (n, 16).
            states: digests of users with their records, uint64 (n, 2).
            reports: what the users would send.
        """
        who = [row.tobytes() for row in np.ascontiguousarray(users)]
        what = [row.tobytes() for row in np.ascontiguousarray(states)]
        sent = _packed(mechanism, reports)
        try:
            with self._connect() as connection:
                connection.execute("BEGIN IMMEDIATE")
                connection.executemany(
                    "INSERT OR IGNORE INTO states (user, state) SELECT ?1, ?2 WHERE"
                    " (SELECT count(*) FROM states WHERE user = ?1) < ?3",
                    [(user, state, self.cap) for user, state in zip(who, what, strict=True)],
                )
                seen = "SELECT 1 FROM states WHERE user = ? AND state = ?"
                admitted = [
                    connection.execute(seen, pair).fetchone() is not None for pair in zip(who, what, strict=True)
                ]
                connection.executemany(
                    "INSERT OR REPLACE INTO last VALUES (?, ?)",
                    [(user, sent[i].tobytes()) for i, user in enumerate(who) if admitted[i]],
                )
                for i, user in enumerate(who):
                    if not admitted[i]:
                        report = connection.execute("SELECT report FROM last WHERE user = ?", (user,)).fetchone()[0]
                        sent[i] = np.frombuffer(report, dtype=np.uint8)
                connection.execute("COMMIT")
        except sqlite3.Error as error:
            raise RunError(f"The memo {self.path} cannot be used: {error}. Nothing was published.") from error
        return reports if all(admitted) else _unpacked(mechanism, sent)

    @contextmanager
    def _connect(self) -> Iterator[sqlite3.Connection]:
        with closing(sqlite3.connect(self.path, timeout=_WAIT_SECONDS, isolation_level=None)) as connection:
            yield connection


def _packed(mechanism: Mechanism, reports: Reports) -> U8:
    """Return reports as rows of bytes, uint8 (n, size)."""
    parts = [
        np.ascontiguousarray(reports.arrays[part.name]).view(np.uint8).reshape(reports.n, -1)
        for part in mechanism.layout()
    ]
    return np.concatenate(parts, axis=1)


def _unpacked(mechanism: Mechanism, rows: U8) -> Reports:
    arrays, start = {}, 0
    for part in mechanism.layout():
        dtype = np.dtype(part.dtype)
        stop = start + dtype.itemsize * max(part.width, 1)
        arrays[part.name] = np.ascontiguousarray(rows[:, start:stop]).view(dtype).reshape(part.shape(len(rows)))
        start = stop
    return Reports(n=len(rows), arrays=arrays)
