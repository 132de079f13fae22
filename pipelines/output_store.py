"""Results in object stores, the manifest last.

A store has no folders that could be renamed at once. So the manifest is the mark of a complete result: an earlier one
is deleted before anything else is put there, and the new one is sent when all other files are there.

Where workers see this machine's files, a result is made here and then sent. Workers on other machines write into the
store themselves, under a prefix that no reader looks into and that is gone when the run is over; what belongs to the
result is given its name within the store, and what is small passes through this machine.
"""

from __future__ import annotations

import atexit
import logging
import shutil
import uuid
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from pathlib import Path
from typing import Final

from apache_beam.io.filesystem import BeamIOError, CompressionTypes
from apache_beam.io.filesystems import FileSystems

from ..engines import temporary_folder
from ..errors import InputError, RunError
from ..schemas.manifest import MANIFEST_NAME
from ..transforms.paths import STAGING, is_local, store_hint
from ..transforms.report_files_checks import open_file
from ..transforms.store_clients import share_clients

__all__ = ["StoreFolder", "fetch", "local_copy", "size_of"]

_copies: dict[str, Path] = {}
_until_the_end = ExitStack()
atexit.register(_until_the_end.close)
#: Objects that one request of a thread moves, and how many threads there are: a move is a copy, which takes its time.
_BATCH: Final = 50
_THREADS: Final = 8
#: Larger objects are not copied by S3 in one request.
_LARGEST_COPY: Final = 5_000_000_000


def local_copy(path: str | Path) -> Path:
    """Return where the files of a result lie on this machine: the folder itself, or until the end what a store gets."""
    if is_local(str(path)):
        return Path(path)
    where = str(path).rstrip("/")
    if where not in _copies:
        folder = _until_the_end.enter_context(temporary_folder("ldp-beam-result-", ignore_errors=True))
        _copies[where] = Path(folder) / "result"
    return _copies[where]


class StoreFolder:
    """The objects under one prefix of a store.

    Args:
        url: the prefix, such as "s3://bucket/result".
        option: name of the option that gave it, for messages.
    """

    def __init__(self, url: str, option: str) -> None:
        share_clients(url)
        self.url = url.rstrip("/")
        #: Where workers that do not see this machine's files write.
        self.staging = f"{self.url}/{STAGING}{uuid.uuid4().hex[:12]}"
        self._option = option

    def names(self) -> list[str]:
        """Return the names of the objects under the prefix, sorted.

        Raises:
            InputError: The store cannot be reached, or what it needs is not installed.
        """
        try:
            (match,) = FileSystems.match([f"{self.url}/*"])
        except (BeamIOError, ValueError, OSError) as error:
            reason = f"{error}.{store_hint(self.url)}"
            raise InputError(f"{self._option} {self.url} cannot be listed: {reason}") from error
        return sorted(entry.path.removeprefix(f"{self.url}/") for entry in match.metadata_list)

    def require_writable(self) -> None:
        """Send an empty object and delete it again, before anything is spent.

        Raises:
            InputError: The store does not take it.
        """
        probe = f"_probe-{uuid.uuid4().hex[:12]}"
        try:
            with FileSystems.create(f"{self.url}/{probe}", compression_type=CompressionTypes.UNCOMPRESSED) as to:
                to.write(b"ldp-beam")
            self._delete([probe])
        except Exception as error:  # what clients of stores raise is of any type
            raise InputError(
                f"{self._option} {self.url} cannot be written to ({type(error).__name__}: {error}). Check that the "
                "bucket exists and that you may write there."
            ) from error

    def replace(self, folder: Path, parts: Mapping[str, str] | None = None) -> None:
        """Send the files of a local folder, the manifest last, instead of whatever is there.

        Args:
            folder: what was made here.
            parts: what workers left in the staging prefix, by the name that it gets.

        Raises:
            RunError: The store refused; without a manifest what is there is not a result.
        """
        names, parts = sorted(path.name for path in folder.iterdir()), parts or {}
        try:
            before = self.names()
            self._delete([MANIFEST_NAME] if MANIFEST_NAME in before else [])
            self._move(parts)
            for name in sorted(names, key=lambda one: one == MANIFEST_NAME):
                self.send(folder / name)
            self._delete([name for name in before if name not in names and name not in parts])
        except Exception as error:  # what clients of stores raise is of any type
            raise RunError(
                f"{self.url}: the result could not be sent ({type(error).__name__}: {error}). Without its manifest "
                "what is there does not count as a result; run again with --overwrite."
            ) from error

    def send(self, path: Path) -> None:
        """Send one file, under its name."""
        target = f"{self.url}/{path.name}"
        with (
            path.open("rb") as source,
            FileSystems.create(target, compression_type=CompressionTypes.UNCOMPRESSED) as to,
        ):
            shutil.copyfileobj(source, to, 1 << 20)

    def _move(self, parts: Mapping[str, str]) -> None:
        """Give objects of the staging prefix their names; their bytes do not pass through this machine."""
        pairs = [(source, f"{self.url}/{name}") for name, source in parts.items()]
        sizes = {source: size_of(source) for source, _ in pairs}
        for source, target in pairs:
            if sizes[source] > _LARGEST_COPY:
                _stream(source, target)
        small = [pair for pair in pairs if sizes[pair[0]] <= _LARGEST_COPY]
        with ThreadPoolExecutor(_THREADS) as threads:
            list(threads.map(_rename, _batches(small)))

    def clear_staging(self) -> None:
        """Delete what workers left; what cannot be deleted is told, and is no part of any result."""
        try:
            (match,) = FileSystems.match([f"{self.staging}/**"])
            left = [entry.path for entry in match.metadata_list]
            if left:
                FileSystems.delete(left)
        except Exception as error:  # what clients of stores raise is of any type, and the run's own end matters more
            logging.getLogger(__name__).warning("%s could not be deleted: %s", self.staging, error)

    def _delete(self, names: list[str]) -> None:
        if names:
            FileSystems.delete([f"{self.url}/{name}" for name in names])


def size_of(path: str) -> int:
    """Return the bytes of an object.

    Raises:
        FileNotFoundError: It is not there.
    """
    (match,) = FileSystems.match([path])
    if not match.metadata_list:
        raise FileNotFoundError(f"{path} is not there")
    return int(match.metadata_list[0].size_in_bytes)


def fetch(path: str, to: Path) -> None:
    """Bring an object to this machine."""
    with open_file(path) as source, to.open("wb") as file:
        shutil.copyfileobj(source, file, 1 << 20)


def _stream(source: str, target: str) -> None:
    with (
        open_file(source) as file,
        FileSystems.create(target, compression_type=CompressionTypes.UNCOMPRESSED) as to,
    ):
        shutil.copyfileobj(file, to, 1 << 24)


def _batches(pairs: Sequence[tuple[str, str]]) -> Iterator[Sequence[tuple[str, str]]]:
    for start in range(0, len(pairs), _BATCH):
        yield pairs[start : start + _BATCH]


def _rename(pairs: Sequence[tuple[str, str]]) -> None:
    FileSystems.rename([source for source, _ in pairs], [target for _, target in pairs])
