"""A folder of counts by day: `aggregate --counts-store`.

    STORE/_store.json                        under which definition all of it was counted
    STORE/date=2026-11-01/counts.parquet     the counts of a day

A day's file is replaced as a whole, by one rename, so that whoever reads meets the old counts or the new ones. Who
writes holds a lock for the moment of writing; counting itself happens before it. What a run that was killed leaves
behind has a hidden name and is swept away by the next one that writes.
"""

from __future__ import annotations

import fcntl
import json
import os
import socket
import time
import uuid
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, date, datetime
from pathlib import Path
from typing import Any, Final

from ..errors import InputError, RunError
from ..mechanisms import Counts
from ..schemas.counts_store import DAY_FILE, DayFile, StoredDay, day_of_folder, folder_of_day, read_day, write_day
from ..schemas.reports import FileHeader
from ..transforms.collection import Collection

__all__ = ["CountsStore", "CountsStoreDay"]

_IDENTITY: Final = "_store.json"
_FORMAT: Final = "1"
_LOCK: Final = ".lock"
_PARTIAL: Final = ".partial"
#: Writing a day takes well below a second; who waits so long waits for something that hangs.
_LOCK_SECONDS: Final = 60.0


@dataclass(frozen=True, kw_only=True, eq=False)
class CountsStoreDay:
    """The counts of a day and what they were counted from."""

    day: date
    counts: Counts
    source: StoredDay
    memoised: bool = False


class CountsStore:
    """The counts of a collection, day by day.

    Args:
        folder: the store; made by the first `put`.
        collection: under which everything in it was counted.

    Raises:
        InputError: The folder holds something else, or was counted under another definition.
    """

    def __init__(self, folder: str | Path, collection: Collection) -> None:
        if "://" in str(folder):
            raise InputError(
                f"--counts-store {folder}: a store needs renames that happen at once and locks, which object stores "
                "do not have; give a folder on a file system."
            )
        self.folder = Path(folder)
        self._collection = collection
        self._sizes = {name: len(cells) for name, cells in collection.mechanism.zero().cells.items()}
        self._check()

    # -- reading ----------------------------------------------------------------------------------------

    @property
    def private(self) -> bool | None:
        """Whether the randomness of what it holds was secret; None where nothing was put into it yet."""
        identity = self._identity()
        return None if identity is None else bool(identity["private"])

    def days(self) -> list[date]:
        """Return the days that have counts, in order."""
        if not self.folder.is_dir():
            return []
        found = ((day_of_folder(path.name), path) for path in self.folder.iterdir())
        return sorted(day for day, path in found if day is not None and (path / DAY_FILE).is_file())

    def source(self, day: date) -> StoredDay | None:
        """Return what a day was counted from; None where it was not."""
        path = self._path(day)
        return self._read(path).source if path.is_file() else None

    def get(self, day: date) -> CountsStoreDay:
        """Return a day's counts.

        Raises:
            InputError: The file is damaged, or was counted under another definition.
        """
        return self._read(self._path(day))

    def _path(self, day: date) -> Path:
        return self.folder / folder_of_day(day) / DAY_FILE

    def _read(self, path: Path) -> CountsStoreDay:
        content = read_day(path, self._sizes)
        header, day = content.header, day_of_folder(path.parent.name)
        header.require(kind="counts", fingerprint=self._collection.fingerprint, path=str(path))
        if day is None or header.period != day.isoformat():
            raise InputError(f"{path} holds the counts of {header.period!r}: somebody moved it. Move it back.")
        if header.private != self.private:
            raise InputError(f"{path} holds {_told(header.private)} reports in a store of {_told(not header.private)}.")
        self._require_within(content, path)
        counts = Counts(n=content.day.reports, cells=content.cells)
        return CountsStoreDay(day=day, counts=counts, source=content.day, memoised=header.memoised)

    def _require_within(self, content: DayFile, path: Path) -> None:
        answers = content.day.reports * getattr(self._collection.mechanism, "times", 1)  # several answers a report
        if any(len(cells) and int(cells.max()) > answers for cells in content.cells.values()):
            raise InputError(f"{path} holds a count that is larger than the number of its reports, {answers:,}.")

    # -- writing ----------------------------------------------------------------------------------------

    def put(self, day: CountsStoreDay, *, private: bool, replaces: StoredDay | None) -> None:
        """Put the counts of a day in place of what stands there.

        Args:
            day: the counts.
            private: whether the randomness of their reports was secret.
            replaces: what stood there when the counting began; None for nothing.

        Raises:
            InputError: The store holds reports of the other kind of randomness.
            RunError: Another run wrote the day meanwhile, or does not end writing.
        """
        with self._locked():
            self._identify(private)
            path = self._path(day.day)
            now = self.source(day.day)
            if now == day.source:
                return
            if now != replaces:
                raise RunError(
                    f"Another run has counted {day.day} from other files meanwhile. Its counts stand, these were not "
                    "written. Run this again with all files of that day."
                )
            header = self._collection.header(
                "counts", period=day.day.isoformat(), private=private, memoised=day.memoised
            )
            content = DayFile(header=header, day=day.source, cells=day.counts.cells)
            path.parent.mkdir(exist_ok=True)
            with self._replacing(path) as partial, partial.open("wb") as file:
                write_day(file, content)
                file.flush()
                os.fsync(file.fileno())

    @contextmanager
    def _replacing(self, path: Path) -> Iterator[Path]:
        """Yield a hidden file that takes the place of `path`, at once, when the block ends well."""
        partial = self.folder / f".{uuid.uuid4().hex}{_PARTIAL}"
        try:
            yield partial
            partial.replace(path)
            _sync_folder(path.parent)
            _sync_folder(self.folder)
        except OSError as error:
            partial.unlink(missing_ok=True)
            raise RunError(f"{path} cannot be written: {error.strerror}. What stood there still stands.") from error

    @contextmanager
    def _locked(self) -> Iterator[None]:
        """Hold the store's lock, which ends with this process whatever happens to it."""
        try:
            self.folder.mkdir(parents=True, exist_ok=True)
            descriptor = os.open(self.folder / _LOCK, os.O_RDWR | os.O_CREAT, 0o644)
        except OSError as error:
            raise InputError(f"--counts-store {self.folder} cannot be written: {error.strerror}.") from error
        with os.fdopen(descriptor, "r+", encoding="utf-8") as lock:
            self._wait_for(lock.fileno())
            lock.truncate()
            lock.write(json.dumps(_owner()))
            lock.flush()
            for left in self.folder.glob(f".*{_PARTIAL}"):
                left.unlink(missing_ok=True)
            yield

    def _wait_for(self, descriptor: int) -> None:
        end = time.monotonic() + _LOCK_SECONDS
        while True:
            try:
                fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                if time.monotonic() > end:
                    raise RunError(
                        f"{self.folder} is being written by another run ({(self.folder / _LOCK).read_text() or '?'}), "
                        f"which does not end. Nothing was written; look at that process."
                    ) from None
                time.sleep(0.05)
            else:
                return

    # -- what the store is ------------------------------------------------------------------------------

    def _check(self) -> None:
        if self.folder.exists() and not self.folder.is_dir():
            raise InputError(f"--counts-store {self.folder} is not a folder.")
        # Listed before the identity is read: another run may begin the store at this moment, identity first.
        names = sorted(path.name for path in self.folder.iterdir()) if self.folder.is_dir() else []
        identity = self._identity()
        if identity is None:
            foreign = [name for name in names if not name.startswith(".")]
            if foreign:
                raise InputError(
                    f"--counts-store {self.folder} is no counts store: it has no {_IDENTITY} and holds "
                    f"{', '.join(foreign[:3])}. Give a new folder; the first run fills it."
                )
            return
        if identity["fingerprint"] != self._collection.fingerprint:
            raise InputError(
                f"{self.folder} holds counts of another collection definition: its fingerprint is "
                f"{identity['fingerprint'][:16]}… (collection {identity['collection']!r}, mechanism "
                f"{identity['mechanism']!r}), the given definition has {self._collection.fingerprint[:16]}…. Counts of "
                "different definitions are never added: give each its own store."
            )

    def _identity(self) -> Mapping[str, Any] | None:
        path = self.folder / _IDENTITY
        try:
            found = json.loads(path.read_text(encoding="utf-8"))
            if found["format"] != _FORMAT:
                raise InputError(f"{path} has format {found['format']!r}; this ldp-beam reads format {_FORMAT}.")
            return {name: found[name] for name in ("fingerprint", "collection", "mechanism", "private")}
        except (FileNotFoundError, NotADirectoryError):
            return None
        except (OSError, ValueError, KeyError, TypeError) as error:
            if isinstance(error, InputError):
                raise
            raise InputError(f"{path} is not readable: {error}.") from error

    def _identify(self, private: bool) -> None:
        """Write down what the store is, or refuse what does not belong into it; the lock is held."""
        self._check()  # somebody else may have begun the store meanwhile
        known = self.private
        if known is not None:
            self.require_randomness(private)
            return
        header: FileHeader = self._collection.header("counts", private=private)
        identity = {
            "format": _FORMAT,
            "collection": header.collection,
            "mechanism": header.mechanism,
            "fingerprint": header.fingerprint,
            "private": private,
        }
        with self._replacing(self.folder / _IDENTITY) as partial, partial.open("w", encoding="utf-8") as file:
            file.write(json.dumps(identity, indent=2) + "\n")
            file.flush()
            os.fsync(file.fileno())

    def require_randomness(self, private: bool) -> None:
        """Refuse reports of the other kind of randomness: seeded and secret ones are never added.

        Raises:
            InputError: They are of the other kind.
        """
        known = self.private
        if known is not None and known != private:
            raise InputError(
                f"The store {self.folder} holds {_told(known)} reports and these are {_told(private)}. They are not "
                "added, since what is not private must be known as such: give these a store of their own."
            )


def _told(private: bool) -> str:
    return "private" if private else "seeded, not private,"


def _owner() -> dict[str, Any]:
    now = datetime.now(UTC).isoformat(timespec="seconds")
    return {"process": os.getpid(), "machine": socket.gethostname(), "since": now}


def _sync_folder(path: Path) -> None:
    """Make a rename last through a power failure."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
