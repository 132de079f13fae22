"""Results in object stores: made on this machine, then sent, the manifest last.

A store has no folders that could be renamed at once. So the manifest is the mark of a complete result: an earlier one
is deleted before anything else is sent, and the new one is sent when all other files are there.
"""

from __future__ import annotations

import atexit
import shutil
import tempfile
import uuid
from pathlib import Path

from apache_beam.io.filesystem import BeamIOError, CompressionTypes
from apache_beam.io.filesystems import FileSystems

from ..errors import InputError, RunError
from ..schemas.manifest import MANIFEST_NAME
from ..transforms.paths import is_local, store_hint

__all__ = ["StoreFolder", "local_copy"]

_copies: dict[str, Path] = {}


def local_copy(path: str | Path) -> Path:
    """Return where the files of a result lie on this machine: the folder itself, or until the end what a store gets."""
    if is_local(str(path)):
        return Path(path)
    where = str(path).rstrip("/")
    if where not in _copies:
        folder = tempfile.mkdtemp(prefix="ldp-beam-result-")
        atexit.register(shutil.rmtree, folder, ignore_errors=True)
        _copies[where] = Path(folder) / "result"
    return _copies[where]


class StoreFolder:
    """The objects under one prefix of a store.

    Args:
        url: the prefix, such as "s3://bucket/result".
        option: name of the option that gave it, for messages.
    """

    def __init__(self, url: str, option: str) -> None:
        self.url = url.rstrip("/")
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

    def replace(self, folder: Path) -> None:
        """Send the files of a local folder, the manifest last, instead of whatever is there.

        Raises:
            RunError: The store refused; without a manifest what is there is not a result.
        """
        names = sorted(path.name for path in folder.iterdir())
        try:
            before = self.names()
            self._delete([MANIFEST_NAME] if MANIFEST_NAME in before else [])
            for name in sorted(names, key=lambda one: one == MANIFEST_NAME):
                self._send(folder / name)
            self._delete([name for name in before if name not in names])
        except Exception as error:  # what clients of stores raise is of any type
            raise RunError(
                f"{self.url}: the result could not be sent ({type(error).__name__}: {error}). Without its manifest "
                "what is there does not count as a result; run again with --overwrite."
            ) from error

    def _send(self, path: Path) -> None:
        target = f"{self.url}/{path.name}"
        with (
            path.open("rb") as source,
            FileSystems.create(target, compression_type=CompressionTypes.UNCOMPRESSED) as to,
        ):
            shutil.copyfileobj(source, to, 1 << 20)

    def _delete(self, names: list[str]) -> None:
        if names:
            FileSystems.delete([f"{self.url}/{name}" for name in names])
