"""The files that paths, folders and globs mean, on any file system that Beam knows. Says nothing of their content."""

from __future__ import annotations

import os
from collections.abc import Iterable
from pathlib import Path

from apache_beam.io.filesystem import BeamIOError
from apache_beam.io.filesystems import FileSystems

from ..errors import InputError
from ..schemas.manifest import MANIFEST_NAME as _MANIFEST
from .store_clients import share_clients

__all__ = ["FORMATS", "STAGING", "expand", "format_of", "is_local", "store_hint"]

#: Formats by extension.
FORMATS = {".parquet": "parquet", ".avro": "avro", ".csv": "csv", ".csv.gz": "csv"}


#: How the prefix begins under which workers write into an object store, until what they wrote belongs to a result.
STAGING = ".staging-"
#: Object stores and the extra of ours that brings what Beam needs for them.
_STORES = {"gs://": "gcs", "s3://": "aws"}


def is_local(path: str) -> bool:
    """Whether a path lies on the local file system."""
    return "://" not in path


def expand(patterns: Iterable[str], *, any_file: bool = False) -> list[str]:
    """Find the files that paths, folders and globs mean, on any file system that Beam knows.

    A folder means its files, without those whose names start with "_" or "."; so does a glob.

    Args:
        patterns: paths, globs and folders.
        any_file: also return files that are empty or of an unknown extension, which the caller refuses one by one.

    Returns:
        Paths, sorted, each once; local ones absolute.

    Raises:
        InputError: A pattern matches nothing, a file is empty, or its extension tells no format.
    """
    given = list(patterns)
    if not given:
        raise InputError("No input was given. Give at least one file, folder or pattern.")
    found: dict[str, str] = {}
    for pattern in given:
        for path in _match(pattern, any_file):
            found.setdefault(os.path.realpath(path) if is_local(path) else path, path)
    return sorted(found.values())


def _match(pattern: str, any_file: bool) -> list[str]:
    if is_local(pattern) and Path(pattern).is_file():
        # Taken literally, since names may hold the characters of globs.
        matched = [(str(Path(pattern).absolute()), Path(pattern).stat().st_size)]
    else:
        matched = [entry for entry in _list(pattern) if not _is_hidden(entry[0])]
    if not matched:
        raise InputError(_nothing(pattern))
    for path, size in matched:
        if any_file:
            continue
        _require_format(path)
        if size == 0:
            raise InputError(f"The input file {path} is empty (0 bytes). Remove it or write it again.")
    return [path for path, _ in matched]


def _list(pattern: str) -> list[tuple[str, int]]:
    local = is_local(pattern)
    if pattern.endswith("/") or (local and Path(pattern).is_dir()):
        pattern = FileSystems.join(pattern, "*")
    if local:
        pattern = str(Path(pattern).absolute())
    share_clients(pattern)
    try:
        matches = FileSystems.match([pattern])
    except (BeamIOError, ValueError, OSError) as error:
        raise InputError(f"The input {pattern} cannot be listed: {error}.{store_hint(pattern)}") from error
    found = [(entry.path, int(entry.size_in_bytes)) for match in matches for entry in match.metadata_list]
    return [(path, size) for path, size in found if not (local and Path(path).is_dir())]


def store_hint(pattern: str) -> str:
    """Return a sentence that says which extra the store of a path needs; empty for other paths."""
    extra = next((name for scheme, name in _STORES.items() if pattern.startswith(scheme)), None)
    return f" Paths of this store need the extra {extra}: pip install 'ldp-beam[{extra}]'." if extra else ""


def _nothing(pattern: str) -> str:
    if is_local(pattern) and Path(pattern).is_dir():
        return (
            f"The input folder {pattern} holds no data file (names that start with '_' or '.' and folders do "
            "not count; for files in subfolders give a pattern such as FOLDER/*/*.parquet)."
        )
    return f"The input {pattern} matches no file. Check the path or the pattern."


def _is_hidden(path: str) -> bool:
    name = path.rsplit("/", 1)[-1]
    return name.startswith(("_", ".")) or name == _MANIFEST or f"/{STAGING}" in path


def _require_format(path: str) -> None:
    if format_of(path) is None:
        raise InputError(f"The extension of the input file {path} tells no format; known are {', '.join(FORMATS)}.")


def format_of(path: str) -> str | None:
    """Return the format that a path's extension names, or None."""
    name = path.lower()
    return next((kind for extension, kind in FORMATS.items() if name.endswith(extension)), None)
