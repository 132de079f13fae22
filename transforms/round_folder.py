"""The folder through which a collection in rounds goes on, for days if need be: what each half leaves for the other.

    status.json                  which round is open; both halves read it, the server writes it last
    answers-round-R-….parquet    who answered round R; from the clients
    feedback-round-R.parquet     a sign for each user and key, for round R; from the server
    state-after-round-R.npz      the counts and means so far; the server's alone
    server-secret.hex            the server's secret, where no other was named; the server's alone

A round is open, and everything before it closed for good, as `status.json` says. Everything else is written before it
and may be written again with the same content, so a half that was stopped can be run again.
"""

from __future__ import annotations

import json
import os
import uuid
from dataclasses import asdict, dataclass
from pathlib import Path

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.parquet as pq

from ..errors import InputError, RunError
from ..mechanisms import MultiRound, State
from ..mechanisms.privkv.rounds import DrawnFeedback
from .answers import ANSWERS_SCHEMA
from .collection import Collection
from .report_files_checks import open_file

__all__ = ["FeedbackFile", "RoundFolder", "Status", "read_answers"]

U8 = npt.NDArray[np.uint8]
I64 = npt.NDArray[np.int64]
Bool = npt.NDArray[np.bool_]

_STATUS = "status.json"
_ROWS = 1 << 18


@dataclass(frozen=True, kw_only=True)
class Status:
    """What both halves may know.

    Attributes:
        fingerprint: fingerprint of the collection.
        period: period in which the first round was answered; the same for all rounds.
        private: False as soon as one report's randomness came from a seed.
        round: number of the open round; after the end, one more than were asked.
        done: whether the rounds have ended.
    """

    fingerprint: str
    period: str = ""
    private: bool = True
    round: int = 1
    done: bool = False


class RoundFolder:
    """The state folder of one collection.

    Args:
        path: the folder; made by whoever writes first.
        collection: a collection in rounds.

    Raises:
        InputError: The path is no folder, or belongs to another collection.
    """

    def __init__(self, path: str | Path, collection: Collection) -> None:
        if "://" in str(path):
            raise InputError(f"--state {path}: object stores are not available yet; give a local folder.")
        self.path = Path(path)
        self._fingerprint = collection.fingerprint
        if self.path.exists() and not self.path.is_dir():
            raise InputError(f"--state {path} is not a folder. Give the folder that the rounds share.")
        self.status = self._read_status()

    def _read_status(self) -> Status:
        file = self.path / _STATUS
        if not file.exists():
            return Status(fingerprint=self._fingerprint)
        try:
            status = Status(**json.loads(file.read_text(encoding="utf-8")))
        except (OSError, ValueError, TypeError) as error:
            raise InputError(f"{file} is not readable: {error}.") from error
        if status.fingerprint != self._fingerprint:
            raise InputError(
                f"--state {self.path} belongs to another collection definition: its fingerprint is "
                f"{status.fingerprint[:16]}…, the given one has {self._fingerprint[:16]}…. Give the definition with "
                "which the rounds began, or a new folder."
            )
        return status

    def require_open(self, round_: int, protocol: MultiRound) -> None:
        """Refuse any round but the open one.

        Raises:
            InputError: The round is closed, not open yet, or does not exist.
        """
        status = self.status
        if not 1 <= round_ <= protocol.rounds_max:
            raise InputError(f"--round {round_}: {protocol.name} has rounds 1 to {protocol.rounds_max}.")
        if status.done:
            raise InputError(
                f"--round {round_}: the rounds of this collection have ended after round {status.round - 1}; a round "
                "is answered and counted once."
            )
        if round_ < status.round:
            raise InputError(
                f"--round {round_} is closed: its reports have been counted, and a client answers each round once. "
                f"The open round is {status.round}."
            )
        if round_ > status.round:
            raise InputError(
                f"--round {round_} is not open yet. The open round is {status.round}: let people answer it, then "
                f"aggregate it with --round {status.round}."
            )

    def make(self) -> None:
        """Make the folder if there is none.

        Raises:
            InputError: It cannot be made.
        """
        try:
            self.path.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise InputError(f"--state {self.path}: the folder cannot be made: {error.strerror}.") from error

    # -- who answered -----------------------------------------------------------------------------------

    def answered(self, round_: int) -> U8:
        """Digests of everybody who answered a round, sorted, uint8 (n, 16)."""
        return read_answers([str(file) for file in self.path.glob(f"answers-round-{round_}-*.parquet")])

    def add_answers(self, round_: int, users: U8) -> None:
        """Note who answered a round, uint8 (n, 16)."""
        table = pa.table([_binary(users)], schema=ANSWERS_SCHEMA)
        self._put(f"answers-round-{round_}-{uuid.uuid4().hex[:12]}.parquet", _parquet(table))

    # -- what is fed back -------------------------------------------------------------------------------

    def feedback_path(self, round_: int) -> Path:
        """The file of signs for a round."""
        return self.path / f"feedback-round-{round_}.parquet"

    def put_feedback(self, round_: int, users: U8, feedback: DrawnFeedback, keys: int) -> None:
        """Write the signs of a round for users, whose digests are sorted, uint8 (n, 16)."""
        says = {"kind": "feedback", "fingerprint": self._fingerprint, "round": str(round_)}
        width = -(-keys // 8)
        schema = pa.schema(
            [
                pa.field("user", pa.binary(16), nullable=False),
                pa.field("signs", pa.binary(width), nullable=False),
            ],
            metadata={f"ldp_beam.{name}": text for name, text in says.items()},
        )
        sink = pa.BufferOutputStream()
        with pq.ParquetWriter(sink, schema, compression="zstd") as writer:
            for start in range(0, max(len(users), 1), _ROWS):
                some = users[start : start + _ROWS]
                writer.write_table(pa.table([_binary(some), _binary(feedback.bits(some))], schema=schema))
        self._put(self.feedback_path(round_).name, sink.getvalue().to_pybytes())

    # -- the server's own -------------------------------------------------------------------------------

    def load_state(self, protocol: MultiRound) -> State:
        """Read the state before the open round.

        Raises:
            InputError: The file is missing or damaged.
        """
        if self.status.round == 1:
            return protocol.initial()
        file = self._state_file(self.status.round - 1)
        try:
            data = file.read_bytes()
        except OSError as error:
            raise InputError(f"{file} cannot be read: {error.strerror}. The rounds cannot go on without it.") from error
        return State.from_bytes(data, self._fingerprint, where=str(file))

    def put_state(self, state: State) -> None:
        """Write the state, readable for its owner alone."""
        self._put(self._state_file(state.round - 1).name, state.to_bytes(self._fingerprint), mode=0o600)

    def _state_file(self, finished: int) -> Path:
        return self.path / f"state-after-round-{finished}.npz"

    def close_round(self, state: State, *, period: str, private: bool) -> None:
        """Say which round is open now. Written last: until then, the round can be run again."""
        self.status = Status(
            fingerprint=self._fingerprint,
            period=period,
            private=private and self.status.private,
            round=state.round,
            done=state.done,
        )
        self._put(_STATUS, (json.dumps(asdict(self.status), indent=1) + "\n").encode())

    @property
    def secret_file(self) -> Path:
        """Where the server's secret lies if no other file was named."""
        return self.path / "server-secret.hex"

    def _put(self, name: str, content: bytes, *, mode: int = 0o644) -> None:
        """Write a file that appears complete or not at all."""
        self.make()
        partial = self.path / f".{name}.{uuid.uuid4().hex[:8]}.partial"
        try:
            with partial.open("wb") as file:
                os.fchmod(file.fileno(), mode)
                file.write(content)
            partial.replace(self.path / name)
        except OSError as error:
            partial.unlink(missing_ok=True)
            raise RunError(f"{self.path / name} cannot be written: {error}. The round is still open.") from error


class FeedbackFile:
    """The signs that users received for a round, looked up by digest. Only the path is pickled.

    Args:
        path: what `RoundFolder.put_feedback` wrote.
    """

    def __init__(self, path: str | Path) -> None:
        self._path = str(path)
        self._loaded: tuple[npt.NDArray[np.uint64], npt.NDArray[np.uint64], U8] | None = None

    def __getstate__(self) -> str:
        return self._path

    def __setstate__(self, path: str) -> None:
        self._path, self._loaded = path, None

    def plus(self, users: U8, keys: I64) -> Bool:
        """Whether +1 was fed back to each user, uint8 (n, 16), about its key, int64 (n,).

        Raises:
            InputError: A user has no signs: she did not answer the first round.
        """
        first, second, signs = self._load()
        words = np.ascontiguousarray(users).view(">u8").astype(np.uint64)
        low, high = (np.searchsorted(first, words[:, 0], side=side) for side in ("left", "right"))
        found = np.minimum(low, max(len(first) - 1, 0))
        for row in np.flatnonzero(high - low > 1):  # digests that share 64 bits: as good as never
            found[row] = low[row] + np.searchsorted(second[low[row] : high[row]], words[row, 1])
        known = (high > low) & (second[found] == words[:, 1]) if len(first) else np.zeros(len(users), np.bool_)
        if not known.all():
            missing = int(np.count_nonzero(~known))
            raise InputError(
                f"At least {missing:,} users have no signs in {self._path}: they did not answer the first round. All "
                "rounds ask the same users, with the same secret; leave newcomers out, or begin a new collection."
            )
        plus: Bool = (signs[found, keys >> 3] >> (keys & 7).astype(np.uint8)) & np.uint8(1) == 1
        return plus

    def _load(self) -> tuple[npt.NDArray[np.uint64], npt.NDArray[np.uint64], U8]:
        if self._loaded is None:
            try:
                table = pq.read_table(self._path)
            except (pa.ArrowException, OSError) as error:
                raise InputError(f"{self._path} cannot be read: {error}. The server writes it.") from error
            words = digests_of(table["user"]).view(">u8").astype(np.uint64)
            self._loaded = words[:, 0].copy(), words[:, 1].copy(), digests_of(table["signs"])
        return self._loaded


def read_answers(files: list[str]) -> U8:
    """Digests in files of answers, sorted, uint8 (n, 16)."""
    parts = [digests_of(_answers_in(file)["user"]) for file in files]
    return _sorted(np.concatenate([np.empty((0, 16), np.uint8), *parts]))


def _answers_in(path: str) -> pa.Table:
    with open_file(path) as file:
        return pq.read_table(file, schema=ANSWERS_SCHEMA)


def digests_of(column: pa.ChunkedArray) -> U8:
    """Return fixed-size binary as bytes, uint8 (n, width)."""
    width = column.type.byte_width
    parts = [
        np.frombuffer(chunk.buffers()[1], np.uint8)[chunk.offset * width : (chunk.offset + len(chunk)) * width]
        for chunk in column.chunks
        if len(chunk)
    ]
    return np.concatenate([np.empty(0, np.uint8), *parts]).reshape(-1, width)


def _binary(rows: U8) -> pa.Array:
    data = np.ascontiguousarray(rows)
    return pa.Array.from_buffers(pa.binary(rows.shape[1]), len(rows), [None, pa.py_buffer(data)])


def _sorted(users: U8) -> U8:
    words = users.view(">u8")
    return users[np.lexsort((words[:, 1], words[:, 0]))] if len(users) else users


def _parquet(table: pa.Table) -> bytes:
    sink = pa.BufferOutputStream()
    pq.write_table(table, sink, compression="zstd")
    return bytes(sink.getvalue().to_pybytes())
