"""The output folder of a stream: windows with their panes, what was set aside, and one manifest over all of it.

manifest.json                      what the stream is, and what it has published so far
windows/START--END/pane-NNN/       one complete result for each pane; the last one holds
rejects/REASON.json, REASON-*.parquet, REASON-*.bin
clients/                           exact tallies of raw data, where the stream simulates clients
"""

from __future__ import annotations

import fcntl
import json
import os
import shutil
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from types import TracebackType
from typing import Any, Final

from ..errors import InputError
from ..schemas.event_time import parse_time
from ..schemas.event_windows import Windows
from ..schemas.manifest import MANIFEST_NAME
from ..schemas.tally import INVALID_REASONS, REJECTED_ROWS, ROWS_READ, SET_ASIDE_REASONS, USERS
from ..transforms.count_windows import MALFORMED, MEMOISED
from ..transforms.gate import TOO_LATE
from ..transforms.publish_panes import WINDOWS_FOLDER, PaneFolder, last_pane
from ..transforms.set_aside import read_set_aside, replace_file
from .stream_metrics import checked_metrics

__all__ = ["CHECK_FOLDER", "CLIENTS_FOLDER", "REJECTS_FOLDER", "TALLY", "EarlierRuns", "StreamFolder", "latest_panes"]

REJECTS_FOLDER: Final = "rejects"
CLIENTS_FOLDER: Final = "clients"
#: File of the exact tallies of raw data; no reason for setting aside has this name.
TALLY: Final = "tally"
#: What is kept in memory of the manifest of a pane.
_OF_A_PANE: Final = ("window", "files", "epsilon", "reports", "randomness", "warnings")
#: Folder in which workers on other machines show that they see the output, for the time of the check.
CHECK_FOLDER: Final = ".check"
_LOCK: Final = ".lock"
_OFFSETS: Final = ".offsets"
_END: Final = ".end"
_OURS: Final = {
    MANIFEST_NAME, WINDOWS_FOLDER, REJECTS_FOLDER, CLIENTS_FOLDER, _LOCK, _OFFSETS, _END, CHECK_FOLDER
}  # fmt: skip


def latest_panes(folder: Path) -> list[PaneFolder]:
    """Return the last pane of each window in the output folder of a stream, in the order of the windows."""
    windows = sorted(path for path in (folder / WINDOWS_FOLDER).glob("*--*") if path.is_dir())
    return [pane for pane in map(last_pane, windows) if pane is not None]


@dataclass(frozen=True)
class _Seen:
    """A window's folder as it was last read: when it changed, its last pane, and conflicting results in it."""

    changed: int
    last: PaneFolder
    published: float
    conflicts: int


@dataclass(frozen=True)
class EarlierRuns:
    """What a source needs to know of earlier runs of the same stream.

    Attributes:
        offsets: folder for notes of the source.
        slice_seconds: length of the slices that windows are made of.
        done: starts of the slices whose windows are all final.
    """

    offsets: str
    slice_seconds: int
    done: frozenset[int]


class StreamFolder:
    """The output folder of one running stream; a context manager that holds the only right to write.

    Args:
        path: the folder.
        identity: what an earlier run must have in common with this one to be gone on with.
        overwrite: delete an earlier result.

    Raises:
        InputError: Something is in the way.
    """

    def __init__(self, path: str | Path, identity: Mapping[str, Any], *, overwrite: bool = False) -> None:
        if "://" in str(path):
            raise InputError(f"--output {path}: object stores are not available yet; give a local folder.")
        self.path = Path(path).absolute()
        self._identity, self._overwrite = dict(identity), overwrite
        self._windows: dict[str, _Seen] = {}
        self._rejects: dict[str, dict[str, Any]] = {}
        self._clients: dict[str, dict[str, Any]] = {}

    @property
    def end(self) -> Path:
        """File that appears when everything that the source gave is published."""
        return self.path / _END

    def __enter__(self) -> StreamFolder:
        self._check()
        try:
            self.path.mkdir(parents=True, exist_ok=True)
            self._lock = os.open(self.path / _LOCK, os.O_CREAT | os.O_RDWR, 0o600)
        except OSError as error:
            raise InputError(f"{self.path}: the output folder cannot be made: {error.strerror}.") from error
        try:
            fcntl.flock(self._lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            os.close(self._lock)
            raise InputError(f"--output {self.path}: another stream writes there. Give another folder.") from None
        if self._overwrite:
            for name in _OURS - {_LOCK}:
                _remove(self.path / name)
        for name in (WINDOWS_FOLDER, REJECTS_FOLDER, *([CLIENTS_FOLDER] if self._identity["clients"] else [])):
            (self.path / name).mkdir(exist_ok=True)
        self.end.unlink(missing_ok=True)
        for name in (REJECTS_FOLDER, CLIENTS_FOLDER):  # a run counts from its own beginning
            _set_earlier_apart(self.path / name)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        os.close(self._lock)

    def _check(self) -> None:
        if self.path.is_symlink() or (self.path.exists() and not self.path.is_dir()):
            raise InputError(f"--output {self.path} exists and is not a folder. Give the name of a new folder.")
        present = {path.name for path in self.path.iterdir()} if self.path.is_dir() else set()
        foreign = sorted(present - _OURS)
        if foreign:
            raise InputError(
                f"--output {self.path} holds files that no stream of ldp-beam wrote ({', '.join(foreign[:3])}). Give "
                "the name of a new folder."
            )
        if MANIFEST_NAME not in present or self._overwrite:
            return
        earlier = json.loads((self.path / MANIFEST_NAME).read_text(encoding="utf-8")).get("stream", {}).get("identity")
        if earlier != self._identity:
            different = [name for name in self._identity if (earlier or {}).get(name) != self._identity[name]]
            raise InputError(
                f"--output {self.path} holds the results of another stream: it differs in {', '.join(different)}. Give "
                "another folder, or --overwrite to replace them."
            )

    # -- reading what was written -----------------------------------------------------------------------

    def look(self) -> None:
        """Read what is new."""
        with os.scandir(self.path / WINDOWS_FOLDER) as entries:
            for entry in entries:
                changed = entry.stat().st_mtime_ns
                seen = self._windows.get(entry.name)
                if seen is None or seen.changed != changed:
                    self._read_window(Path(entry.path), changed)
        self._rejects = read_set_aside(self.path / REJECTS_FOLDER)
        if self._identity["clients"]:
            self._clients = read_set_aside(self.path / CLIENTS_FOLDER)

    def _read_window(self, window: Path, changed: int) -> None:
        last = last_pane(window)
        if last is not None:
            conflicts = len(list(window.glob("conflict-*")))
            published = (last.path / MANIFEST_NAME).stat().st_mtime
            kept = {name: last.manifest[name] for name in _OF_A_PANE}  # a stream may have many thousands of windows
            self._windows[window.name] = _Seen(changed, replace(last, manifest=kept), published, conflicts)

    def earlier(self, windows: Windows) -> EarlierRuns:
        """Return what earlier runs have left here."""
        self.look()
        final = {parse_time(pane.window["start"]) for pane in self.panes() if pane.window["is_final"]}
        slices = {time for start in final for time in range(start, windows.end(start), windows.slice)}
        done = frozenset(time for time in slices if final.issuperset(windows.starts(time)))
        return EarlierRuns(str(self.path / _OFFSETS), windows.slice, done)

    def version(self) -> Any:
        """Return something that changes when there is something new."""
        rows = tuple(sorted((name, one["rows"]) for name, one in (self._rejects | self._clients).items()))
        return sum(seen.changed for seen in self._windows.values()), rows

    def panes(self) -> list[PaneFolder]:
        """Return the last pane of each window, in the order of the windows."""
        return [self._windows[name].last for name in sorted(self._windows)]

    def lag(self) -> float | None:
        """Return how many seconds after its end the latest window was published; None before the first."""
        if not self._windows:
            return None
        from datetime import datetime

        seen = self._windows[max(self._windows)]
        return seen.published - datetime.fromisoformat(seen.last.window["end"]).timestamp()

    def rejected(self) -> dict[str, int]:
        """Return rows set aside by reason."""
        return {reason: one["rows"] for reason, one in sorted((self._rejects | self._clients).items())}

    # -- the manifest -----------------------------------------------------------------------------------

    def manifest(
        self, base: Mapping[str, Any], state: str, metrics: Mapping[str, int | str] | None, *, seconds: float
    ) -> dict[str, Any]:
        """Return the manifest of the stream."""
        panes = self.panes()
        conflicts = sum(seen.conflicts for seen in self._windows.values())
        warnings = list(dict.fromkeys([*base["warnings"], *(w for pane in panes for w in pane.manifest["warnings"])]))
        not_private = [p.manifest["randomness"] for p in panes if not p.manifest["randomness"].get("private", True)]
        if conflicts:
            warnings.append(
                f"{conflicts} final results differ from what had been published as final and stand beside it "
                "(windows/…/conflict-…): reports that had come in time once came too late, or the other way round."
            )
        slices = sorted({time for pane in panes for time in pane.manifest["epsilon"]["slices"]})
        return {
            **base,
            "epsilon": {**base["epsilon"], "slices": len(slices)},
            "randomness": (not_private or [base["randomness"]])[0],
            "records": self._records(),
            "reports": {
                "counted_in_windows": sum(pane.window["n"] for pane in panes),
                "repeated": sum(pane.manifest["reports"]["repeated"] for pane in panes),
                "rejected": {reason: one["rows"] for reason, one in sorted(self._rejects.items())},
            },
            "files": [_file(self.path, pane, base) for pane in panes],
            "warnings": warnings,
            "seconds": round(seconds, 3),
            "stream": {
                "identity": self._identity,
                "state": state,
                "windows": len(panes),
                "final_windows": sum(pane.window["is_final"] for pane in panes),
                "conflicts": conflicts,
                "metrics": None if metrics is None else self._metrics(metrics, state),
            },
        }

    def _metrics(self, found: Mapping[str, int | str], state: str) -> dict[str, int | str]:
        if state != "ended":  # what the engine and the data tell are then of different moments
            return dict(found)
        rejected = self.rejected()
        exact = {
            "late": rejected.get(TOO_LATE, 0) + rejected.get("late_records", 0),
            "reports_malformed": rejected.get(MALFORMED, 0) + rejected.get(MEMOISED, 0),
            "reports_counted": sum(pane.window["n"] for pane in self.panes()),
        }
        records = self._records()
        if records is not None:
            users = records.get(USERS, 0)
            exact |= {"rows_read": records.get(ROWS_READ, 0), "rows_rejected": records.get(REJECTED_ROWS, 0)}
            exact |= {"reports_sent": users, "reports_read": users}
        return checked_metrics(found, exact)

    def _records(self) -> dict[str, Any] | None:
        path = self.path / CLIENTS_FOLDER / TALLY
        if not self._identity["clients"]:
            return None
        tally = json.loads(path.read_text()) if path.exists() else {}
        late = self._clients.get("late_records", {}).get("rows", 0)
        reasons = (*SET_ASIDE_REASONS, *INVALID_REASONS)
        rejected = {name: tally[name] for name in reasons if tally.get(name)}
        return {**tally, "late_records": late, "rejected": rejected}

    def write_manifest(self, manifest: Mapping[str, Any]) -> None:
        """Put the manifest in the place of the last one."""
        text = json.dumps(manifest, indent=2, ensure_ascii=False, allow_nan=False) + "\n"
        replace_file(self.path / MANIFEST_NAME, text.encode())


def _file(root: Path, pane: PaneFolder, base: Mapping[str, Any]) -> dict[str, Any]:
    (estimates,) = [file for file in pane.manifest["files"] if file["kind"] == "estimates"]
    name = (pane.path / estimates["name"]).relative_to(root)
    return {"kind": "estimates", "name": str(name), "rows": estimates["rows"], **pane.window}


def _set_earlier_apart(folder: Path) -> None:
    """Move what an earlier run has left into a folder of its own; it is kept."""
    files = [path for path in folder.glob("*") if path.is_file()]
    if files:
        earlier = folder / f"earlier-{len(list(folder.glob('earlier-*'))):03d}"
        earlier.mkdir()
        for file in files:
            file.rename(earlier / file.name)


def _remove(path: Path) -> None:
    if path.is_dir():
        shutil.rmtree(path)
    else:
        path.unlink(missing_ok=True)
