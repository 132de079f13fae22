"""`padding = "auto"`: some users tell only how many keys they hold, the others are asked the main question.

Who is asked what is a pseudo-random function of the clients' secret, the collection's name and the user: nothing of a
record bears on it, and everybody answers one question with the whole epsilon. The main question waits until the server
has read a padding length off the answers to the length question.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from decimal import Decimal
from fractions import Fraction
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from ...errors import ParameterError, did_you_mean
from ..categorical.base import FrequencyOracle, whole
from ..data import U8, Bool, Counts, Estimates, Field, Records, Reports
from ..probability import WORDS, parse_epsilon
from ..protocol import Mechanism
from ..randomness import Secret, Stream
from .choice import RULES, Choice, choose
from .lengths import CAP_MAX, length_oracle, length_symbols, lengths_of, of_sizes

__all__ = ["AutoPadding", "Group"]

#: Estimators that leave negative frequencies as they are.
_UNCLIPPED: Final = ("baseline", "empirical")


@dataclass(frozen=True, kw_only=True)
class Group:
    """The users who are asked one of the two questions. Picklable; holds keys that follow from the clients' secret.

    Attributes:
        stream: random bits that decide, from a user's digest alone.
        threshold: a word below it means the length question.
        cap: what a record's size is recorded as at most; None for the users of the main question.
    """

    stream: Stream
    threshold: int
    cap: int | None

    def asks_length(self, users: U8) -> Bool:
        """Whether users are asked for their length, for digests uint8 (n, 16)."""
        seeds = np.ascontiguousarray(users).view(np.dtype("<u8"))
        words = self.stream.blocks(seeds, 0, 1)[0, :, 0]
        asked: Bool = words < np.uint64(self.threshold)
        return asked

    def of(self, records: Records) -> Records:
        """Return what the group's members have to say: their sizes as symbols, or their records as they are."""
        asked = self.asks_length(records.users)
        if self.cap is not None:
            return of_sizes(_only(records, asked), self.cap)
        return _only(records, ~asked)


def _only(records: Records, keep: Bool) -> Records:
    """Return the records of the users where `keep` is true."""
    sizes = records.sizes
    pairs = np.repeat(keep, sizes)
    offsets = np.zeros(int(keep.sum()) + 1, dtype=np.int64)
    np.cumsum(sizes[keep], out=offsets[1:])
    return Records(
        users=records.users[keep],
        offsets=offsets,
        keys=records.keys[pairs],
        values=None if records.values is None else records.values[pairs],
        tags=None if records.tags is None else records.tags[pairs],
    )


@dataclass(frozen=True, init=False)
class AutoPadding(Mechanism):
    """A mechanism with padding whose length is not known yet: two questions, to disjoint groups of users.

    `length` is the mechanism of the first question, `main(padding)` that of the second. This object itself can neither
    perturb nor estimate.

    Attributes:
        epsilon: privacy budget of each user, who answers one question.
        keys: number of keys of the domain.
        share: share of the users who are asked for their length.
        cap: a record's number of keys is recorded as this at most; also the largest padding that is chosen.
        rule: "error" or "percentile".
        fallback: padding to take where too few users answered.
        exponent: of the power law that frequencies are believed to follow.
        frequencies: frequencies from earlier published estimates, instead of the power law; None without.
        length: the oracle of the length question.

    Privacy:
        epsilon-LDP for the whole record: a user answers one question, and which one does not depend on her record.
        The chosen length is a function of reports.

    Source:
        PCKV, section 6, leaves the choice of the length open; Wang, Li, Jha, IEEE S&P 2018, section 5 asks a group of
        users for the length.
    """

    epsilon: Decimal
    keys: int
    share: Decimal
    cap: int
    rule: str
    fallback: int
    exponent: float
    frequencies: tuple[float, ...] | None
    length: FrequencyOracle

    #: Number of questions, one after the other.
    rounds_max = 2

    def __init__(
        self,
        make: Callable[[int], Mechanism],
        *,
        share: Decimal | float | str = Decimal("0.1"),
        cap: int = CAP_MAX,
        rule: str = RULES[0],
        fallback: int = 1,
        exponent: Decimal | float = 1.0,
        frequencies: Sequence[float] | None = None,
    ) -> None:
        """Check the parameters and make the mechanism of the length question.

        Args:
            make: makes the main question's mechanism from its padding length; must be picklable.
            share: share of the users who are asked for their length, between 0 and 1.
            cap: largest number of keys that is told apart from more, 1 to 1,000; no more than there are keys count.
            rule: "error" (default) takes the length with the smallest predicted error, "percentile" the one that 90 %
                of the users do not exceed.
            fallback: padding to take where too few users answered, at least 1.
            exponent: of the power law that frequencies are believed to follow, at least 0.
            frequencies: frequencies of all keys from earlier published estimates, instead of the power law.

        Raises:
            ParameterError: for a parameter outside what is allowed.
        """
        inner = make(1)
        for name, value in {
            "share": _between(share),
            "cap": min(inner.keys, whole("the length question", "cap", cap, 1, CAP_MAX)),
            "fallback": whole("the length question", "fallback", fallback, 1, CAP_MAX),
            "exponent": _exponent(exponent),
            "rule": _rule(rule),
            "frequencies": _frequencies(frequencies, inner.keys),
            "epsilon": parse_epsilon(inner.epsilon),
            "keys": inner.keys,
            "_make": make,
            **{name: getattr(inner, name) for name in ("name", "has_values", "has_frequency", "estimators")},
        }.items():
            object.__setattr__(self, name, value)
        object.__setattr__(self, "length", length_oracle(self.epsilon, self.cap))

    # -- the two questions ------------------------------------------------------------------------------

    def main(self, padding: int) -> Mechanism:
        """Return the mechanism of the main question for a padding length."""
        make: Callable[[int], Mechanism] = vars(self)["_make"]
        return make(padding)

    @property
    def paddings(self) -> list[int]:
        """Every padding length that may be chosen."""
        # a symbol of several lengths stands for their middle
        starts = length_symbols(self.cap)
        middles = (int(middle) for middle in (starts[1:-1] + starts[2:] - 1) / 2.0)
        return sorted({*middles, self.cap, self.fallback})

    @property
    def group_threshold(self) -> int:
        """A user whose word is below it is asked for her length."""
        return int(Fraction(self.share) * WORDS)

    def group(self, secret: Secret, collection: str, *, length: bool) -> Group:
        """Return who is asked a question.

        Args:
            secret: the clients' secret.
            collection: name of the collection.
            length: whether the length question is meant.
        """
        stream = secret.stream(fingerprint=f"length question of {collection}")
        return Group(stream=stream, threshold=self.group_threshold, cap=self.cap if length else None)

    def choose(self, counts: Counts, estimator: str | None = None) -> Choice:
        """Choose the padding length from the counts of the length question.

        Args:
            counts: counts of `length`.
            estimator: estimator of the main question; it decides whether negative frequencies count as 0.
        """
        share = float(self.share)
        return choose(
            self.main,
            lengths_of(self.length, counts, self.cap),
            keys=self.keys,
            users=round(counts.n * (1.0 - share) / share),
            rule=self.rule,
            fallback=self.fallback,
            exponent=self.exponent,
            frequency=self.frequencies,
            clipped=(estimator or self.estimators[0]) not in _UNCLIPPED,
        )

    # -- both questions together ------------------------------------------------------------------------

    def thresholds(self) -> Mapping[str, int]:
        """Thresholds of the length question and of the draw of its group; the main ones follow from its answers."""
        return {**{f"length_{k}": v for k, v in self.length.thresholds().items()}, "length_group": self.group_threshold}

    def parameters(self) -> Mapping[str, float]:
        """Probabilities of the length question."""
        return {f"length_{name}": value for name, value in self.length.parameters().items()}

    def exact_epsilon(self) -> float:
        """The largest loss of the length question and of the main one with any padding length, rounded up."""
        return max(self.length.exact_epsilon(), *(self.main(padding).exact_epsilon() for padding in self.paddings))

    def _refuse(self, what: str) -> ParameterError:
        return ParameterError(
            f'{self.name} with padding = "auto" asks two questions, so it cannot {what} by itself. Run `ldp-beam '
            "collect`, or `perturb` and `aggregate` with --round 1 and --state DIR, and then use the resolved "
            "definition, which holds the padding that was chosen."
        )

    def layout(self) -> tuple[Field, ...]:
        """Refuse: the two questions have reports of their own."""
        raise self._refuse("lay out a report")

    def perturb(self, records: Records, stream: Stream) -> Reports:
        """Refuse: see `length` and `main`."""
        raise self._refuse("perturb")

    def valid(self, reports: Reports) -> npt.NDArray[np.bool_]:
        """Refuse: see `length` and `main`."""
        raise self._refuse("check reports")

    def zero(self) -> Counts:
        """Refuse: see `length` and `main`."""
        raise self._refuse("count")

    def count(self, reports: Reports, into: Counts | None = None) -> Counts:
        """Refuse: see `length` and `main`."""
        raise self._refuse("count")

    def estimate(self, counts: Counts, estimator: str | None = None) -> Estimates:
        """Refuse: see `length` and `main`."""
        raise self._refuse("estimate")


def _between(share: Any) -> Decimal:
    try:
        exact = Decimal(str(share))
    except ArithmeticError:
        exact = Decimal("NaN")
    if not exact.is_finite() or not 0 < exact < 1:
        raise ParameterError(f"share of the length question is {share!r}, but must be a number between 0 and 1.")
    return exact


def _exponent(given: Any) -> float:
    value = float(given)
    if not 0.0 <= value <= 10.0:
        raise ParameterError(f"exponent of the believed frequencies is {given!r}, but must lie from 0 to 10.")
    return value


def _rule(given: str) -> str:
    if given not in RULES:
        raise ParameterError(f"rule of the length question is {given!r}. {did_you_mean(str(given), RULES)}")
    return given


def _frequencies(given: Sequence[float] | None, keys: int) -> tuple[float, ...] | None:
    if given is None:
        return None
    found = tuple(float(value) for value in given)
    if len(found) != keys or not all(0.0 <= value <= 1.0 for value in found):
        raise ParameterError(f"frequencies must be {keys:,} numbers from 0 to 1, one for each key.")
    return found
