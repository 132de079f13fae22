"""Output folders that appear complete or not at all.

A run writes into a staging folder beside the wanted one; only when everything is there and checked does the
staging folder take the wanted name. An existing result is not replaced unless asked, and a folder that holds
anything but a result of ours is never touched. For object stores see `output_store`.

Workers write into `OutputFolder.parts`: the staging folder wherever they see it, and else a prefix in the store.
"""

from __future__ import annotations

import re
import shutil
import uuid
from collections.abc import Sequence
from contextlib import ExitStack
from pathlib import Path, PurePosixPath
from types import TracebackType

from apache_beam.io.filesystems import FileSystems

from ..engines import swept
from ..errors import InputError, RunError
from ..schemas.manifest import Manifest
from ..transforms.paths import is_local
from .output_store import StoreFolder, fetch, local_copy, size_of

__all__ = ["OutputFolder", "distinct_folders", "optional_folder", "parts_of", "publish"]

_OURS = re.compile(r"(estimates|counts|reports|rejects)[-0-9a-z]*\.(parquet|avro|csv|json)|manifest\.json")


class OutputFolder:
    """A folder that a run fills; use as a context manager and call `publish` at the end.

    Args:
        path: the wanted folder.
        overwrite: replace an earlier result.
        option: name of the option that gave the path, for messages.
        shared: whether every worker surely sees this machine's files.

    Raises:
        InputError: Something is in the way.
    """

    def __init__(
        self, path: str | Path, *, overwrite: bool = False, option: str = "--output", shared: bool = True
    ) -> None:
        #: What people call it.
        self.name = str(path)
        #: Where the result is sent to, of an object store.
        self.store = None if is_local(self.name) else StoreFolder(self.name, option)
        self.path = local_copy(path)
        self._check(overwrite, option)
        #: What this process writes.
        self.staging = self.path.absolute().parent / f".{self.path.name}.{uuid.uuid4().hex[:12]}.partial"
        #: Where workers write: a folder, or a prefix in the store.
        self.parts = str(self.staging) if self.store is None or shared else self.store.staging
        self._moved: dict[str, str] = {}
        self._swept = ExitStack()

    def _check(self, overwrite: bool, option: str) -> None:
        if self.path.is_symlink() or (self.path.exists() and not self.path.is_dir()):
            raise InputError(f"{option} {self.path} exists and is not a folder. Give the name of a new folder.")
        if self.store is None:
            present = sorted(p.name for p in self.path.iterdir()) if self.path.is_dir() else []
        else:
            present = self.store.names()
        foreign = [name for name in present if not _OURS.fullmatch(name)]
        if foreign:
            raise InputError(
                f"{option} {self.name} holds files that ldp-beam did not write ({', '.join(foreign[:3])}"
                f"{', …' if len(foreign) > 3 else ''}). Give the name of a new folder."
            )
        if present and not overwrite:
            raise InputError(
                f"{option} {self.name} exists and holds a result. Give another folder, or --overwrite to replace it."
            )

    def __enter__(self) -> OutputFolder:
        try:
            self.staging.mkdir(parents=True)
        except OSError as error:
            raise InputError(f"{self.path}: the output folder cannot be made: {error.strerror}.") from error
        if self.store is not None:
            self.store.require_writable()
        self._swept.enter_context(swept(self.staging))
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        shutil.rmtree(self.staging, ignore_errors=True)
        self._swept.close()
        if self.store is not None and not is_local(self.parts):
            self.store.clear_staging()

    def part(self, name: str) -> str:
        """Return the path of a file that one worker writes."""
        return f"{self.parts}/{name}"

    def settle(self, path: str, name: str, *, bring: bool = True) -> None:
        """Let a worker's file be the file `name` of the result.

        Args:
            path: as the worker told it.
            name: its final name.
            bring: let a file in a store pass through this machine, instead of moving it there when all is published.

        Raises:
            RunError: The file cannot be seen from here.
        """
        try:
            if is_local(path):
                Path(path).rename(self.staging / name)
            elif bring:
                fetch(path, self.staging / name)
            else:
                size_of(path)
                self._moved[name] = path
        except Exception as error:  # what clients of stores raise is of any type
            raise RunError(
                f"A worker reported the file {path.rpartition('/')[2]}, which cannot be seen from here: {error}."
            ) from error

    def discard(self, *names: str) -> None:
        """Delete files that workers wrote and that are no part of the result."""
        FileSystems.delete([self.part(name) for name in names])

    def publish(self) -> None:
        """Give the staging folder the wanted name, replacing an earlier result, and send it to its store if it has one.

        Raises:
            RunError: The file system refused, and the earlier result is still in place; or the store did.
        """
        retired = self.staging.with_suffix(".replaced")
        try:
            if self.path.exists():
                self.path.rename(retired)
            try:
                self.staging.rename(self.path)
            except OSError:
                if retired.exists():
                    retired.rename(self.path)
                raise
        except OSError as error:
            raise RunError(f"{self.path}: the result could not be put in place: {error}.") from error
        shutil.rmtree(retired, ignore_errors=True)
        if self.store is not None:
            self.store.replace(self.path, self._moved)


def optional_folder(
    stack: ExitStack, path: str | Path | None, overwrite: bool, option: str, *, shared: bool = True
) -> OutputFolder | None:
    """Open a folder that may not have been asked for."""
    if path is None:
        return None
    return stack.enter_context(OutputFolder(path, overwrite=overwrite, option=option, shared=shared))


def parts_of(*folders: OutputFolder | None) -> Sequence[str]:
    """Return where workers write."""
    return [folder.parts for folder in folders if folder is not None]


def distinct_folders(*folders: OutputFolder | None) -> None:
    """Refuse folders of which one is, or lies in, another.

    Raises:
        InputError: Two folders share files.
    """
    paths = [
        folder.path.absolute() if folder.store is None else PurePosixPath(folder.store.url)
        for folder in folders
        if folder is not None
    ]
    for i, path in enumerate(paths):
        for other in paths[i + 1 :]:
            if path == other or path in other.parents or other in path.parents:
                raise InputError(f"{path} and {other}: outputs need folders of their own, not one inside another.")


def publish(manifest: Manifest, *folders: OutputFolder | None) -> None:
    """Write the manifest into the first folder and put all of them in place, the first one last."""
    present = [folder for folder in folders if folder is not None]
    manifest.write(present[0].staging)
    for folder in reversed(present):  # where the result with its manifest stands, all stands
        folder.publish()
