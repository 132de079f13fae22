"""The client and the counts of the mechanisms in which a user answers about one key that was drawn in public.

A report is the drawn key and the answer +1, -1 or 0: five bytes, whatever the domain. The server counts, for each
key, who drew it and how many answered +1 and -1.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Mapping
from typing import ClassVar, Final, Protocol

import numpy as np
import numpy.typing as npt

from ...errors import ParameterError
from ..data import I64, U8, VALUE_ONE, Bool, Counts, Field, Prediction, Records, Reports
from ..pckv.sampling import check_records
from ..probability import log_up
from ..protocol import Mechanism
from ..randomness import U64, BlockSource, Stream, mulhi
from .law import KeyLaw
from .theory import predict_errors

__all__ = ["CELLS", "KEYS_MAX", "DrawnKey", "Feedback", "check_keys"]

#: Statistics that are counted for each key.
CELLS: Final = ("n1", "n2", "n_drawn")
#: Largest domain.
KEYS_MAX: Final = 1_000_000

_CHUNK_USERS: Final = 16_384
#: A word's upper bits decide a value's sign with the resolution of the values, 2^41 steps from -1 to 1.
_VALUE_SHIFT: Final = np.uint64(64 - 41)


class Feedback(Protocol):
    """What the server fed back to each user about each key: +1 or -1, and never an estimate."""

    def plus(self, users: U8, keys: I64) -> Bool:
        """Whether +1 was fed back to each user about its key.

        Args:
            users: digests of users, uint8 (n, 16).
            keys: one key index a user, int64 (n,).
        """
        ...


def check_keys(name: str, keys: object) -> int:
    """Return the size of a domain.

    Raises:
        ParameterError: unless it is a whole number from 1 to `KEYS_MAX`.
    """
    if isinstance(keys, bool) or not isinstance(keys, int | np.integer) or not 1 <= keys <= KEYS_MAX:
        raise ParameterError(f"keys of {name} is {keys!r}, but must be a whole number from 1 to {KEYS_MAX:,}.")
    return int(keys)


class DrawnKey(Mechanism):
    """A user draws one key uniformly, in public, and answers about that key alone.

    Privacy:
        The drawn key does not depend on the record, so the loss is that of the answer; see `KeyLaw.ratio`.
    """

    has_values: ClassVar[bool] = True

    @property
    @abstractmethod
    def law(self) -> KeyLaw:
        """Thresholds of the answer."""

    @property
    def feedback(self) -> Feedback | None:
        """Where the fake signs come from, in rounds in which the server feeds them back."""
        return None

    # -- both sides -------------------------------------------------------------------------------------

    def thresholds(self) -> Mapping[str, int]:
        """Thresholds of 2^64 by name: see `KeyLaw`."""
        return self.law.thresholds()

    def parameters(self) -> Mapping[str, float]:
        """Probabilities a, b of an answer with a sign, p of a kept sign, and both budgets."""
        law = self.law
        return {"a": law.a, "b": law.b, "p": law.p, "epsilon_1": law.epsilon_1, "epsilon_2": law.epsilon_2}

    def exact_epsilon(self) -> float:
        """The loss over every pair of records and every report, from the integer thresholds, rounded up."""
        return log_up(self.law.ratio())

    def layout(self) -> tuple[Field, ...]:
        """`key`: the drawn key; `sign`: 1, -1, or 0 for "not held"."""
        return Field(name="key", dtype="int32"), Field(name="sign", dtype="int8")

    def predict(self, *, frequency: float, mean: float, users: int) -> Prediction:
        """Predict the errors of the raw figures for a key of the given frequency (above 0) and mean.

        Raises:
            ValueError: for a round in which the server feeds back, which says nothing by itself.
        """
        if self.law.fed:
            raise ValueError("a later round alone predicts nothing; ask the mechanism of all rounds")
        return predict_errors([self.law], users / self.keys, frequency, mean)

    # -- client -----------------------------------------------------------------------------------------

    def perturb(self, records: Records, stream: Stream) -> Reports:
        """Perturb a batch: one report a user.

        The key is drawn under a label without the feedback; what was fed back about that key enters the label of
        the other draws, as the number of their block.

        Args:
            records: canonical records; keys strictly increasing within a user.
            stream: random bits of the collection, period and round.

        Privacy:
            See the class.
        """
        check_records(records, self.keys)
        if self.law.fed and self.feedback is None:
            raise ValueError("this round needs what the server fed back; bind it with `answering`")
        keys, signs = np.empty(records.n, dtype=np.int32), np.empty(records.n, dtype=np.int8)
        source = stream.source()
        for start in range(0, records.n, _CHUNK_USERS):
            part = records.slice(start, min(start + _CHUNK_USERS, records.n))
            rows = slice(start, start + part.n)
            keys[rows], signs[rows] = self._answers(part, stream.seeds(part), source)
        return Reports(n=records.n, arrays={"key": keys, "sign": signs})

    def _answers(
        self, part: Records, seeds: U64, source: BlockSource
    ) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.int8]]:
        drawn = _block(seeds, np.zeros(part.n, dtype=np.uint64), source)[:, 0]
        key = mulhi(drawn, self.keys).view(np.int64)
        fed = None if self.feedback is None or not self.law.fed else self.feedback.plus(part.users, key)
        label = np.ones(part.n, dtype=np.uint64) if fed is None else np.where(fed, np.uint64(2), np.uint64(3))
        words = _block(seeds, label, source)
        held, value = _look_up(part, key, self.keys)
        return key, _answer(self.law, held, value, words[:, 0], words[:, 1], fed)

    # -- server -----------------------------------------------------------------------------------------

    def valid(self, reports: Reports) -> Bool:
        """Which reports have a key of the domain and an answer of -1, 0 or 1; none if types or widths are wrong."""
        for part in self.layout():
            array = reports.arrays.get(part.name)
            if array is None or array.dtype != np.dtype(part.dtype) or array.shape != part.shape(reports.n):
                return np.zeros(reports.n, dtype=np.bool_)
        key, sign = (np.asarray(reports.arrays[name], dtype=np.int64) for name in ("key", "sign"))
        good: Bool = (key >= 0) & (key < self.keys) & (np.abs(sign) <= 1)
        return good

    def zero(self) -> Counts:
        """Counts of no reports."""
        return Counts(n=0, cells={name: np.zeros(self.keys, dtype=np.int64) for name in CELLS})

    def count(self, reports: Reports, into: Counts | None = None) -> Counts:
        """Count, for each key, who drew it and who answered +1 (n1) and -1 (n2).

        Args:
            reports: valid reports.
            into: a counter of the caller's own, updated in place.
        """
        total = self.zero() if into is None else into
        key, sign = reports.arrays["key"], reports.arrays["sign"]
        for name, chosen in (("n1", key[sign == 1]), ("n2", key[sign == -1]), ("n_drawn", key)):
            total.cells[name][...] += np.bincount(np.asarray(chosen, dtype=np.int64), minlength=self.keys)
        return Counts(n=total.n + reports.n, cells=total.cells)


def _block(seeds: U64, numbers: U64, source: BlockSource) -> U64:
    """Block number `numbers` of every seed: two words a user, uint64 (n, 2), in memory of the caller's own."""
    blocks = np.empty(seeds.shape, dtype="<u8")
    np.bitwise_xor(seeds, numbers[:, None], out=blocks)
    source.fill(blocks, blocks)
    return blocks


def _look_up(part: Records, key: I64, keys: int) -> tuple[Bool, I64]:
    """Whether each user holds its drawn key, and the value (anything where it does not)."""
    if not len(part.keys) or part.values is None:
        return np.zeros(part.n, dtype=np.bool_), np.zeros(part.n, dtype=np.int64)
    if len(part.keys) == part.n and bool((part.sizes == 1).all()):
        return part.keys == key, part.values
    # Keys increase within a user, so user * keys + key increases over all pairs.
    place = np.repeat(np.arange(part.n, dtype=np.int64) * keys, part.sizes)
    place += part.keys
    wanted = np.arange(part.n, dtype=np.int64) * keys + key
    at = np.minimum(np.searchsorted(place, wanted), len(place) - 1)
    return place[at] == wanted, part.values[at]


def _answer(law: KeyLaw, held: Bool, value: I64, signs: U64, fates: U64, fed: Bool | None) -> npt.NDArray[np.int8]:
    """The answers +1, -1 and 0, int8 (n,)."""
    plus = (signs >> _VALUE_SHIFT).view(np.int64) < value + VALUE_ONE
    plus ^= fates >= np.uint64(law.same)
    fake = fates < np.uint64(law.fake_plus)
    if fed is not None:
        fake = np.where(fed, fake, fates < np.uint64(law.other - law.fake_plus))
    plus = np.where(held, plus, fake)
    given = fates < np.where(held, np.uint64(law.kept), np.uint64(law.other))
    answer: npt.NDArray[np.int8] = np.where(given, np.where(plus, 1, -1), 0).astype(np.int8)
    return answer
