"""The folder through which the two questions of `padding = "auto"` are asked, for days if need be.

    asked-PERIOD-SECRET.json   the length question was asked under this period and secret (its id); from the clients
    choice.json                the padding that was chosen, and why; from the server
    resolved.toml              the definition with that padding, for both halves; from the server, written last
    keys.csv                   its keys, where they are many

Round 1, the length question, is open until `resolved.toml` is there, and round 2 from then on.
"""

from __future__ import annotations

import hashlib
import json
import uuid
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.csv as pa_csv

from ..errors import InputError, RunError
from ..mechanisms.padding.choice import Choice
from ..schemas.definition_text import KEYS_INLINE, declared_keys, definition_text
from ..schemas.manifest import Randomness
from .collection import Collection

__all__ = ["QuestionFolder"]

_CHOICE, _RESOLVED, _KEYS = "choice.json", "resolved.toml", "keys.csv"


class QuestionFolder:
    """The state folder of one collection with padding "auto".

    Args:
        path: the folder; made by whoever writes first.
        collection: the declared collection.

    Raises:
        InputError: The path is no folder, or belongs to another collection.
    """

    def __init__(self, path: str | Path, collection: Collection) -> None:
        if "://" in str(path):
            raise InputError(f"--state {path}: object stores are not available yet; give a local folder.")
        self.path, self._collection = Path(path), collection
        self._fingerprint = collection.fingerprint
        if self.path.exists() and not self.path.is_dir():
            raise InputError(f"--state {path} is not a folder. Give the folder that both halves share.")
        for file in (self.path / _CHOICE, *self.path.glob("asked-*.json")):
            self._require_ours(file)

    def _require_ours(self, file: Path) -> None:
        if file.exists() and (found := self._read(file).get("declared_fingerprint")) != self._fingerprint:
            raise InputError(
                f"--state {self.path} belongs to another collection definition: its fingerprint is {str(found)[:16]}…, "
                f"the given one has {self._fingerprint[:16]}…. Give the definition with which the length question "
                "was asked, or a new folder."
            )

    @property
    def resolved(self) -> bool:
        """Whether the padding is known."""
        return (self.path / _RESOLVED).exists()

    def require_open(self, round_: int) -> None:
        """Refuse any round but the open one.

        Raises:
            InputError: The round is closed, not open yet, or does not exist.
        """
        if round_ not in (1, 2):
            raise InputError(f"--round {round_}: round 1 is the length question and round 2 the main one.")
        if round_ == 1 and self.resolved:
            raise InputError(
                f"--round 1 is closed: the padding {self.padding()} was chosen and stands in {self.path / _RESOLVED}. "
                "Go on with --round 2."
            )
        if round_ == 2 and not self.resolved:
            raise InputError(
                "--round 2 is not open yet: let people answer the length question, then aggregate it with --round 1."
            )

    # -- the clients ------------------------------------------------------------------------------------

    def begin(self, secret_id: str, period: str) -> None:
        """Note that the length question was asked under a secret and a period."""
        said = {"declared_fingerprint": self._fingerprint, "secret_id": secret_id, "period": period}
        self._put(self._asked_file(secret_id, period), json.dumps(said, indent=1) + "\n")

    def require_begun(self, secret_id: str, period: str) -> None:
        """Refuse the main question under another secret or period: some users would answer both questions.

        Raises:
            InputError: The length question was not asked under them.
        """
        if not (self.path / self._asked_file(secret_id, period)).exists():
            raise InputError(
                f"--state {self.path}: the length question was asked under another secret or period. Give the "
                "--secret-file and --period of round 1: they decide who answers which question."
            )

    @staticmethod
    def _asked_file(secret_id: str, period: str) -> str:
        return f"asked-{hashlib.sha256(period.encode()).hexdigest()[:12]}-{secret_id}.json"

    # -- the server -------------------------------------------------------------------------------------

    def resolve(self, choice: Choice, randomness: Randomness) -> None:
        """Write the choice and the resolved definition."""
        definition = self._collection.definition.with_padding(choice.padding)
        said = {
            "declared_fingerprint": self._fingerprint,
            **choice.as_json(),
            "private": randomness.private,
            "period": randomness.period,
        }
        self._put(_CHOICE, json.dumps(said, indent=1, allow_nan=False) + "\n")
        many = len(definition.keys) > KEYS_INLINE
        if many:
            sink = pa.BufferOutputStream()
            pa_csv.write_csv(pa.table({"key": pa.array(declared_keys(definition), pa.string())}), sink)
            self._put(_KEYS, sink.getvalue().to_pybytes().decode())
        comment = f'Resolved from padding = "auto": {choice.padding}. {choice.reason}\nThe length group is not asked.'
        self._put(_RESOLVED, definition_text(definition, keys_file=_KEYS if many else None, comment=comment))

    def padding(self) -> int:
        """Return the padding that was chosen.

        Raises:
            InputError: The resolved definition is damaged, or that of another collection.
        """
        found = Collection.load(self.path / _RESOLVED)
        padding = found.definition.parameters.get("padding")
        if not isinstance(padding, int) or found.fingerprint != _resolved_fingerprint(self._collection, padding):
            raise InputError(
                f"{self.path / _RESOLVED} is not what the given definition resolves to; it, or the definition, was "
                "changed since the padding was chosen."
            )
        return padding

    def choice(self) -> dict[str, Any]:
        """Return what is to be said of the choice."""
        return self._read(self.path / _CHOICE)

    @staticmethod
    def _read(file: Path) -> dict[str, Any]:
        try:
            content = json.loads(file.read_text(encoding="utf-8"))
        except (OSError, ValueError) as error:
            raise InputError(f"{file} is not readable: {error}.") from error
        if not isinstance(content, dict):
            raise InputError(f"{file} is not what ldp-beam wrote.")
        return content

    def _put(self, name: str, content: str) -> None:
        """Write a file that appears complete or not at all."""
        partial = self.path / f".{name}.{uuid.uuid4().hex[:8]}.partial"
        try:
            self.path.mkdir(parents=True, exist_ok=True)
            partial.write_text(content, encoding="utf-8")
            partial.replace(self.path / name)
        except OSError as error:
            partial.unlink(missing_ok=True)
            raise RunError(f"{self.path / name} cannot be written: {error}. The round is still open.") from error


def _resolved_fingerprint(collection: Collection, padding: int) -> str:
    return Collection.of(collection.definition.with_padding(padding)).fingerprint
