"""Mechanisms that ask in rounds: one protocol for the server that steers them and the clients that answer.

A round's question may depend on what the rounds before brought. The server keeps a `State`; between rounds each user
gets a freshly drawn sign for each key, never an estimate. All rounds have one report layout and one set of counts.
"""

from __future__ import annotations

import io
import json
import zipfile
from abc import abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass, replace
from decimal import ROUND_CEILING, Context, Decimal
from fractions import Fraction
from typing import ClassVar, Final

import numpy as np
import numpy.typing as npt

from ...errors import InputError, ParameterError
from ..data import F64, I64, U8, Bool, Counts, Estimates, Field, Prediction, Records, Reports
from ..probability import log_up
from ..protocol import Mechanism
from ..randomness import U64, Stream
from .drawn import DrawnKey, Feedback
from .estimation import RoundCounts, clipped_frequency, publish, published_mean
from .law import KeyLaw
from .privkv import check_estimator
from .theory import predict_errors

__all__ = ["DrawnFeedback", "MultiRound", "Round", "State", "budget_text"]

_WORD: Final = np.dtype("<u8")
#: Words of feedback that are drawn together.
_WORDS: Final = 1 << 22
_UP: Final = Context(prec=60, rounding=ROUND_CEILING)
#: Budgets that are no finite decimals are rounded up to so many digits behind the point.
_DIGITS: Final = Decimal("1e-24")


def _rounded_up(budget: Fraction) -> Decimal:
    exact = _UP.divide(Decimal(budget.numerator), Decimal(budget.denominator))
    return exact.quantize(_DIGITS, context=_UP)


def budget_text(budget: Fraction) -> str:
    """Return a budget as plain decimal text, rounded up to 24 digits where it is no finite decimal."""
    text = format(_rounded_up(budget), "f")
    return text.rstrip("0").rstrip(".")


class DrawnFeedback:
    """The signs that the server feeds back in one round, drawn from its own secret; holds no estimate of a user.

    Sign of user u and key k = +1 where a pseudo-random word of (u, k) is below (1 + mean of k) / 2.

    Privacy:
        The estimates come from reports, so feeding them back costs nothing. A user gets one sign a key, not the
        estimate itself: answers to it do not depend on how exactly the server knows the mean.
    """

    __slots__ = ("_stream", "_thresholds")

    def __init__(self, stream: Stream, means: F64) -> None:
        """Take the random bits and the means to feed back.

        Args:
            stream: bits of the *server's* secret for the collection, period and the round that is to be answered.
            means: means in [-1, 1], (d,).
        """
        self._stream = stream
        share = np.rint((1.0 + np.clip(means, -1.0, 1.0)) * 2.0**52).astype(np.uint64)  # of 2^53
        whole = share >= np.uint64(1 << 53)
        share <<= np.uint64(11)
        share[whole] = np.uint64(0xFFFFFFFFFFFFFFFF)
        self._thresholds: U64 = share

    def plus(self, users: U8, keys: I64) -> Bool:
        """Whether +1 is fed back to each user, uint8 (n, 16), about its key, int64 (n,)."""
        blocks = np.ascontiguousarray(users).view(_WORD) ^ (keys >> 1).astype(np.uint64)[:, None]
        self._stream.source().fill(blocks, blocks)
        signs: Bool = blocks[np.arange(len(keys)), keys & 1] < self._thresholds[keys]
        return signs

    def bits(self, users: U8) -> U8:
        """All signs of each user as bits, 1 for +1.

        Args:
            users: digests, uint8 (n, 16).

        Returns:
            uint8 (n, ceil(d / 8)), little bit order, padding bits 0.
        """
        d = len(self._thresholds)
        out = np.empty((len(users), -(-d // 8)), dtype=np.uint8)
        step = max(1, _WORDS // d)
        for start in range(0, len(users), step):
            seeds = np.ascontiguousarray(users[start : start + step]).view(_WORD)
            words = self._stream.blocks(seeds, 0, -(-d // 2)).transpose(1, 0, 2).reshape(len(seeds), -1)
            out[start : start + step] = np.packbits(words[:, :d] < self._thresholds, axis=1, bitorder="little")
        return out


@dataclass(frozen=True, kw_only=True, eq=False)
class State:
    """What the server knows after some rounds. It follows from the rounds' counts alone.

    Attributes:
        counts: counts of each finished round.
        means: means recorded after each finished round, float64 (d,); NaN where no answer had a sign.
        done: whether no further round is to be asked.
    """

    counts: tuple[Counts, ...] = ()
    means: tuple[F64, ...] = ()
    done: bool = False

    @property
    def round(self) -> int:
        """Number of the round that is open, from 1; after the end, one more than were asked."""
        return len(self.counts) + 1

    def to_bytes(self, fingerprint: str) -> bytes:
        """Return the state as the bytes of an .npz file.

        Args:
            fingerprint: fingerprint of the collection, which `from_bytes` asks for again.
        """
        header = {"fingerprint": fingerprint, "done": self.done, "n": [counts.n for counts in self.counts]}
        text = np.frombuffer(json.dumps(header).encode(), dtype=np.uint8)
        arrays: dict[str, npt.NDArray[np.generic]] = {"header": text}
        for number, (counts, means) in enumerate(zip(self.counts, self.means, strict=True), start=1):
            arrays[f"mean.{number}"] = means
            arrays |= {f"count.{number}.{name}": cells for name, cells in counts.cells.items()}
        buffer = io.BytesIO()
        np.savez(buffer, **arrays)  # type: ignore[arg-type]  # the stub takes array names for its one option
        return buffer.getvalue()

    @classmethod
    def from_bytes(cls, data: bytes, fingerprint: str, *, where: str = "the state") -> State:
        """Read what `to_bytes` returned.

        Raises:
            InputError: The bytes are no state, or belong to another collection.
        """
        try:
            with np.load(io.BytesIO(data), allow_pickle=False) as file:
                arrays = {name: file[name] for name in file.files}
            header = json.loads(arrays.pop("header").tobytes())
            state = cls._of_arrays(header, arrays)
        except (ValueError, KeyError, TypeError, OSError, EOFError, zipfile.BadZipFile) as error:
            raise InputError(f"{where} is no state of a collection in rounds, or damaged: {error}.") from error
        if header["fingerprint"] != fingerprint:
            raise InputError(
                f"{where} belongs to another collection definition: its fingerprint is {header['fingerprint'][:16]}…, "
                f"the given one has {fingerprint[:16]}…. Give the definition with which the rounds began."
            )
        return state

    @classmethod
    def _of_arrays(cls, header: Mapping[str, object], arrays: Mapping[str, F64]) -> State:
        sizes = header["n"]
        if not isinstance(sizes, list):
            raise TypeError("n is no list")
        counts, means = [], []
        for number, n in enumerate(sizes, start=1):
            prefix = f"count.{number}."
            cells = {name.removeprefix(prefix): a for name, a in arrays.items() if name.startswith(prefix)}
            counts.append(Counts(n=int(n), cells={name: a.astype(np.int64) for name, a in cells.items()}))
            means.append(arrays[f"mean.{number}"])
        return cls(counts=tuple(counts), means=tuple(means), done=bool(header["done"]))


@dataclass(frozen=True, kw_only=True)
class Round(DrawnKey):
    """One round of a mechanism that asks in rounds: a mechanism for its clients and for the server's counts.

    Attributes:
        epsilon: what the round adds to what a user has spent; see `MultiRound.charge`.
        keys: size of the domain.
        number: number of the round, from 1.
        answer: thresholds.
        fed: where the signs that the server fed back come from; None on the server, and in a first round.
    """

    name: ClassVar[str] = "round"
    estimators: ClassVar[tuple[str, ...]] = ("corrected", "baseline")

    epsilon: Decimal
    keys: int
    number: int
    answer: KeyLaw
    fed: Feedback | None = None

    @property
    def law(self) -> KeyLaw:
        """Thresholds of the answer."""
        return self.answer

    @property
    def feedback(self) -> Feedback | None:
        """Where the fake signs come from."""
        return self.fed

    def answering(self, feedback: Feedback | None) -> Round:
        """Return the same round for clients who received `feedback`."""
        return replace(self, fed=feedback)

    def estimate(self, counts: Counts, estimator: str | None = None) -> Estimates:
        """Estimate from a first round alone, as PrivKV does; see `MultiRound.estimate_state` for all rounds.

        Raises:
            ParameterError: for a later round, which asks nothing about keys, or an unknown estimator.
        """
        if self.law.fed:
            raise ParameterError(f"Round {self.number} alone estimates nothing; estimate from the state of all rounds.")
        first, stale = RoundCounts.of(self.law, counts), np.zeros(self.keys, dtype=np.bool_)
        if check_estimator(estimator, self.estimators) == "baseline":
            return publish(counts.n, [first], stale=stale)
        mean = np.clip(published_mean(first), -1.0, 1.0)
        return publish(counts.n, [first], clipped_frequency(first, counts.n), mean, stale=stale)


class MultiRound(Mechanism):
    """A mechanism that asks the same users in several rounds.

    Its thresholds, parameters and exact epsilon are those of all rounds together. It can neither perturb nor
    estimate by itself: `for_round` gives the mechanism of a round, `estimate_state` the estimates after some rounds.

    Privacy:
        All rounds together satisfy `epsilon`-LDP for the user's whole record, if a client answers each round once:
        two answers to different feedback are two reports.
    """

    #: Most rounds that may be asked.
    rounds_max: int

    # -- what a protocol decides ------------------------------------------------------------------------

    @abstractmethod
    def budgets(self, number: int) -> tuple[Fraction, Fraction]:
        """Budgets of the key and of the sign in a round; they do not depend on any report."""

    @abstractmethod
    def round(self, number: int) -> Round:
        """Return the mechanism of a round; it follows from the definition alone.

        Raises:
            ParameterError: for a number outside 1 to `rounds_max`.
        """

    @abstractmethod
    def advance(self, state: State, counts: Counts) -> State:
        """Return the state after the open round brought `counts`."""

    @abstractmethod
    def fed_back(self, state: State) -> F64:
        """Means of which signs are to be drawn for the open round, float64 (d,)."""

    @abstractmethod
    def estimate_state(self, state: State, estimator: str | None = None) -> Estimates:
        """Estimate every key's frequency and mean from all finished rounds."""

    # -- what follows from that -------------------------------------------------------------------------

    def initial(self) -> State:
        """Return the state before the first round."""
        return State()

    def for_round(self, state: State) -> Round:
        """Return the mechanism of the open round.

        Raises:
            ParameterError: if no round is open.
        """
        if state.done:
            raise ParameterError(f"{self.name} has ended after {len(state.counts)} rounds; no round is open.")
        return self.round(state.round)

    def spent(self, rounds: int) -> Fraction:
        """Budget that a user has spent who answered the first `rounds` rounds."""
        return sum((sum(self.budgets(number), Fraction(0)) for number in range(1, rounds + 1)), Fraction(0))

    def charge(self, number: int) -> Decimal:
        """What a round adds to what a user has spent, as a decimal.

        Sums over rounds are rounded up, not the rounds themselves, so that all rounds together charge no more than
        `epsilon`, and any first ones no less than they spend.
        """
        before, after = (Fraction(_rounded_up(self.spent(n))) for n in (number - 1, number))
        return Decimal(budget_text(after - before))

    def unspent(self, state: State) -> Fraction:
        """Budget that is left: for good where the rounds have ended, else for the rounds to come."""
        return Fraction(self.epsilon) - self.spent(len(state.counts))

    def exact_after(self, rounds: int) -> float:
        """The loss of the first `rounds` rounds together, over records, reports and feedback, rounded up.

        The drawn keys are public and may differ from round to round, so the worst records differ in every one of
        them: the ratios multiply. Attained by domains of at least as many keys as rounds; a bound for smaller ones.
        """
        product = Fraction(1)
        for number in range(1, rounds + 1):
            product *= self.round(number).law.ratio()
        return log_up(product) if rounds else 0.0

    def exact_epsilon(self) -> float:
        """The loss of all rounds together, if as many are asked as may be, rounded up."""
        return self.exact_after(self.rounds_max)

    def predict(self, *, frequency: float, mean: float, users: int) -> Prediction:
        """Predict the errors of the raw figures after all rounds, for a key of the given frequency (above 0) and mean.

        The published mean has smaller standard errors and is biased towards the fake values, which these are not.
        """
        laws = [self.round(number).law for number in range(1, self.rounds_max + 1)]
        return predict_errors(laws, users / self.keys, frequency, mean)

    def thresholds(self) -> Mapping[str, int]:
        """Thresholds of every round that may be asked, by round and name."""
        return {
            f"round_{number}_{name}": threshold
            for number in range(1, self.rounds_max + 1)
            for name, threshold in self.round(number).thresholds().items()
        }

    def layout(self) -> tuple[Field, ...]:
        """Layout of the reports of every round."""
        return self.round(1).layout()

    def valid(self, reports: Reports) -> Bool:
        """Which reports a client of any round can have sent."""
        return self.round(1).valid(reports)

    def zero(self) -> Counts:
        """Counts of no reports of a round."""
        return self.round(1).zero()

    def count(self, reports: Reports, into: Counts | None = None) -> Counts:
        """Count the reports of one round."""
        return self.round(1).count(reports, into)

    def perturb(self, records: Records, stream: Stream) -> Reports:
        """Refuse: a client answers rounds; see `for_round`."""
        raise ParameterError(f"{self.name} asks in rounds: perturb with the mechanism of a round, `for_round(state)`.")

    def estimate(self, counts: Counts, estimator: str | None = None) -> Estimates:
        """Refuse: estimates come from the counts of all rounds; see `estimate_state`."""
        raise ParameterError(f"{self.name} asks in rounds: estimate from a state, `estimate_state(state)`.")
