"""`padding = "auto"` on the server: the length question's counts → the padding → the resolved definition.

Nothing here sees a record. Round 1 is the length question; when it is closed, the resolved definition lies in the
folder that both halves share, and round 2 is counted like any collection.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq

from ..engines import temporary_folder
from ..errors import InputError
from ..mechanisms import Counts
from ..mechanisms.padding.choice import Choice
from ..schemas.counts import MAIN_GROUP, counts_from_table
from ..schemas.manifest import MANIFEST_NAME, Manifest
from ..transforms.collection import Collection
from ..transforms.paths import is_local
from ..transforms.question_folder import QuestionFolder
from ..transforms.report_files_checks import open_file
from ..transforms.two_questions import length_collection, questions_of, resolved_collection
from .output_store import StoreFolder, local_copy

__all__ = ["aggregate_question", "open_question", "read_lengths", "with_choice"]


def open_question(collection: Collection, round_: int | None, state_folder: str | Path | None) -> QuestionFolder:
    """Return the folder of the two questions, in which a round is open.

    Raises:
        InputError: `--round` or `--state` is missing, or the round is not open.
    """
    asked = questions_of(collection)
    if round_ is None or state_folder is None:
        raise InputError(
            f'{asked.name} with padding = "auto" asks two questions: give --round 1 (the length question) or --round 2 '
            "(the main one) and --state DIR, the folder that both halves share; `ldp-beam collect` asks both at once."
        )
    folder = QuestionFolder(state_folder, collection)
    folder.require_open(round_)
    return folder


def read_lengths(path: str | Path, question: Collection) -> Counts:
    """Read the counts of the length question that a job left at `path`."""
    zero = question.mechanism.zero()
    with open_file(str(path)) as file:
        table = pq.read_table(file)
    groups = counts_from_table(table, {name: len(cells) for name, cells in zero.cells.items()})
    n, cells = groups[0, MAIN_GROUP]
    return Counts(n=n, cells=cells)


def with_choice(manifest: Manifest, asked: Collection, choice: Choice) -> Manifest:
    """Return a manifest that tells which padding was chosen and why, and warns where it could not be."""
    warnings = list(manifest.warnings)
    if not choice.trusted:
        warnings.append(f'padding = "auto": {choice.reason}')
    said = {"declared_fingerprint": asked.fingerprint, **choice.as_json()}
    exact = max(questions_of(asked).length.exact_epsilon(), manifest.epsilon["exact"])
    return replace(
        manifest,
        mechanism={**manifest.mechanism, "padding": said},
        epsilon={**manifest.epsilon, "exact": exact},
        warnings=warnings,
    )


def aggregate_question(
    collection: Collection,
    patterns: Sequence[str],
    output: str | Path,
    *,
    round_: int | None,
    state_folder: str | Path | None,
    **options: Any,
) -> Manifest:
    """Count the answers to the length question and choose the padding (round 1), or count the main one (round 2).

    Args:
        collection: the declared collection, with padding "auto".
        patterns: report files of the round.
        output: folder for estimates, counts and manifest; round 1: of the lengths.
        round_: 1 or 2.
        state_folder: the folder that both halves share; round 1 leaves the resolved definition there.
        **options: what `aggregate` takes besides.

    Raises:
        InputError: The round is not open, or a file is not one of its reports.
        RunError: The run failed; nothing was published and the round is still open.
    """
    from .aggregate import aggregate  # which calls this for collections with two questions

    folder, asked = open_question(collection, round_, state_folder), questions_of(collection)
    if round_ == 1:
        question = length_collection(collection)
        manifest = aggregate(question, patterns, output, **options)
        counts = read_lengths(local_copy(output) / "counts.parquet", question)
        choice = asked.choose(counts, collection.definition.estimator)
        told = with_choice(manifest, collection, choice)
        folder.resolve(choice, told.randomness)
    else:
        resolved = resolved_collection(collection, folder.padding())
        told = _choice_told(aggregate(resolved, patterns, output, **options), folder)
    _write_again(told, output)
    return told


def _write_again(manifest: Manifest, output: str | Path) -> None:
    """Replace the manifest of a published result."""
    folder = local_copy(output)
    with temporary_folder(".manifest-", beside=folder.absolute().parent) as other:
        manifest.write(Path(other))
        (Path(other) / MANIFEST_NAME).replace(folder / MANIFEST_NAME)
    if not is_local(str(output)):
        StoreFolder(str(output), "--output").send(folder / MANIFEST_NAME)


def _choice_told(manifest: Manifest, folder: QuestionFolder) -> Manifest:
    said = folder.choice()
    warnings = [*manifest.warnings]
    if not said["trusted"]:
        warnings.append(f'padding = "auto": {said["reason"]}')
    return replace(manifest, mechanism={**manifest.mechanism, "padding": said}, warnings=warnings)
