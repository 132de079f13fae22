"""From what a run summarised to what it publishes: final file names and the manifest."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ..errors import RunError
from ..mechanisms import Mechanism
from ..schemas.manifest import Manifest, Randomness
from ..schemas.tally import (
    INVALID_REASONS,
    KEPT_PAIRS,
    REPORTS_COUNTED,
    REPORTS_DUPLICATE,
    REPORTS_MALFORMED,
    SET_ASIDE_REASONS,
    USERS,
)
from ..transforms.collection import Collection
from ..transforms.run_metrics import run_figures
from .output import OutputFolder
from .running import Clock, Engine, versions
from .stream_metrics import UNAVAILABLE

if TYPE_CHECKING:
    from .collect import ClientRun

__all__ = [
    "describe",
    "finish_files",
    "manifest_of",
    "mechanism_figures",
    "reports_counted",
    "require_every_key",
    "require_few_rejects",
    "told_metrics",
]

#: What grows with the keys and not with the people.
_SMALL = ("estimates", "counts")
_REPORT_TALLIES = (REPORTS_COUNTED, REPORTS_DUPLICATE, REPORTS_MALFORMED)


def reports_counted(summary: Mapping[str, Any]) -> dict[str, int]:
    """Return how many reports were counted, how many were malformed, and how many were repeated, where any were."""
    tally = summary["tally"]
    found = {"counted": tally.get(REPORTS_COUNTED, 0), "malformed": tally.get(REPORTS_MALFORMED, 0)}
    repeated = tally.get(REPORTS_DUPLICATE, 0)
    return found | ({"duplicate": repeated} if repeated else {})


def finish_files(
    summary: Mapping[str, Any],
    result: OutputFolder,
    reports: OutputFolder | None = None,
    rejects: OutputFolder | None = None,
) -> list[dict[str, Any]]:
    """Check that every listed file exists, name the parts, and remove what is not part of the result.

    Files of failed attempts are in a folder and not in the summary: they are deleted.

    Raises:
        RunError: A file that a worker wrote cannot be seen from here.
    """
    folders = {"estimates": result, "counts": result, "reports": reports, "rejects": rejects}
    listed: list[dict[str, Any]] = []
    kept: set[Path] = set()
    by_kind: dict[str, list[tuple[str, int]]] = {}
    for kind, path, rows in summary["files"]:
        by_kind.setdefault(kind, []).append((path, rows))
    for kind, files in by_kind.items():
        folder = folders[kind]
        if folder is None:
            raise RunError(f"A worker wrote {kind} where none were asked for.")
        for number, (path, rows) in enumerate(sorted(files, key=lambda file: (-file[1], file[0]))):
            final = _final_name(kind, Path(path), number, len(files))
            folder.settle(path, final, bring=kind in _SMALL)
            kept.add(folder.staging / final)
            listed.append({"kind": kind, "name": final, "rows": rows})
    for folder in {f for f in folders.values() if f is not None}:
        for path in folder.staging.iterdir():
            if path not in kept:
                path.unlink()
    return listed


def require_every_key(files: Sequence[Mapping[str, Any]], keys: int) -> None:
    """Check that the estimates hold a row (in some collections several) for each key, whatever the engine said.

    Raises:
        RunError: They do not.
    """
    rows = sum(file["rows"] for file in files if file["kind"] == "estimates")
    if rows < keys or rows % keys:
        raise RunError(
            f"The engine reported success; the estimates hold {rows:,} rows for {keys:,} keys. Nothing was published."
        )


def require_few_rejects(reports: Mapping[str, int], refused: Sequence[tuple[str, str]], limit: float) -> None:
    """Stop where too many reports cannot be counted.

    Args:
        reports: numbers of reports counted, malformed and unreadable.
        refused: files that were refused, each with the reason.
        limit: the largest share of malformed and unreadable reports; 0 also forbids refused files.

    Raises:
        RunError: The limit is passed.
    """
    rejected = reports["malformed"] + reports.get("unreadable", 0)
    seen = reports["counted"] + rejected
    if rejected > limit * seen or (limit == 0 and refused):
        raise RunError(
            f"{rejected:,} of {seen:,} reports are malformed or unreadable and {len(refused):,} files are refused; "
            f"--max-rejects {limit:g} allows less. Nothing was stored or published."
            + (f" The first refused file: {refused[0][1]}" if refused else "")
        )


def _final_name(kind: str, path: Path, number: int, total: int) -> str:
    if kind in ("estimates", "counts"):
        return path.name
    return f"{kind}-{number:05d}-of-{total:05d}{path.suffix}"


def mechanism_figures(mechanism: Mechanism) -> dict[str, Any]:
    """Return name and parameters of a mechanism for the manifest."""
    return {"name": mechanism.name, "keys": mechanism.keys, "parameters": dict(mechanism.parameters())}


def manifest_of(
    verb: str,
    collection: Collection,
    randomness: Randomness,
    engine: Engine,
    clock: Clock,
    *,
    records: Mapping[str, Any] | None,
    reports: Mapping[str, int] | None,
    files: Sequence[Mapping[str, Any]],
    spends: bool,
    warnings: Sequence[str] = (),
    epsilon: Mapping[str, Any] | None = None,
    counts_store: Mapping[str, Any] | None = None,
    metrics: Mapping[str, int | str] | None = None,
) -> Manifest:
    """Put a manifest together; `epsilon` adds to, or replaces, what is said of a report's privacy."""
    mechanism = collection.mechanism
    declared = format(mechanism.epsilon.normalize(), "f")
    return Manifest(
        verb=verb,
        definition=collection.definition.public(),
        fingerprint=collection.fingerprint,
        mechanism=mechanism_figures(mechanism),
        epsilon={
            "declared": declared,
            "exact": mechanism.exact_epsilon(),
            "spent_per_user": declared if spends else "0",
            **(epsilon or {}),
        },
        randomness=randomness,
        records=records,
        reports=reports,
        engine=engine.as_json(),
        versions=versions(),
        files=files,
        started=clock.started,
        seconds=clock.seconds(),
        warnings=warnings,
        counts_store=counts_store,
        metrics=metrics,
    )


def describe(
    verb: str,
    run: ClientRun,
    summary: Mapping[str, Any],
    clock: Clock,
    files: Sequence[Mapping[str, Any]],
    *,
    epsilon: Mapping[str, Any] | None = None,
    metrics: Mapping[str, int | str] | None = None,
) -> Manifest:
    """Return the manifest of a run that read records."""
    tally = {name: count for name, count in summary["tally"].items() if name not in _REPORT_TALLIES}
    reasons = (*SET_ASIDE_REASONS, *INVALID_REASONS)
    records = {**tally, "rejected": {name: tally[name] for name in reasons if tally.get(name)}}
    if not run.collection.mechanism.has_frequency:  # everybody has a value for every key; those lacking count as 0
        records["missing_values"] = tally.get(USERS, 0) * run.collection.mechanism.keys - tally.get(KEPT_PAIRS, 0)
    warnings = [] if run.randomness.private else ["The randomness came from a seed: this run is not private."]
    return manifest_of(
        verb,
        run.collection,
        run.randomness,
        run.engine,
        clock,
        records=records,
        reports=reports_counted(summary) if verb == "collect" else None,
        files=files,
        spends=True,
        warnings=warnings,
        epsilon=epsilon,
        metrics=None if metrics is None else _client_metrics(verb, run, summary, metrics),
    )


def _client_metrics(
    verb: str, run: ClientRun, summary: Mapping[str, Any], found: Mapping[str, int | str]
) -> dict[str, int | str]:
    told = told_metrics(found, summary, client=True, server=verb == "collect")
    if run.group is not None:  # of two questions each user answers one, so that not all who were read sent a report
        told["reports_sent"] = UNAVAILABLE
    return told


def told_metrics(
    found: Mapping[str, int | str], summary: Mapping[str, Any], *, client: bool = False, server: bool = True
) -> dict[str, int | str]:
    """Return what the engine's counters say of a run, for its manifest; never a 0 that is none.

    Args:
        found: the counters as the engine gave them.
        summary: what the run itself counted, in its data.
        client: whether it read records.
        server: whether it counted reports.
    """
    figures = run_figures(summary["tally"], client=client, server=server)
    tells = any(isinstance(found.get(name), int) for name in figures)
    told: dict[str, int | str] = {}
    for name, exact in figures.items():
        silent = 0 if tells and not exact else UNAVAILABLE  # counters start at 0, and some engines leave those out
        value = found.get(name, UNAVAILABLE)
        told[name] = silent if value == UNAVAILABLE or (value == 0 and exact) else value
    return told
