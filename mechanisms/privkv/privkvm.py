"""PrivKVM and PrivKVM+: PrivKV in rounds, in which the mean of the round before takes the place of the fake value.

The first round spends half of epsilon on the key and a part of the rest on the sign; later rounds spend on the sign
alone. Somebody who does not hold the drawn key answers with a perturbed sign that the server drew from its estimate,
so that the fake values pull the mean less with every round: E m(c) = m (1 - (1 - alpha) (1 - f)^(c - 1)), where
alpha = p1 f / (p1 f + (1 - p1) (1 - f)).

Source:
    Ye, Hu, Meng, Zheng: PrivKV, IEEE S&P 2019, algorithms 4 (PrivKVM) and 5 (PrivKVM+).
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass
from decimal import Decimal, InvalidOperation
from fractions import Fraction
from functools import lru_cache
from typing import ClassVar, Final

import numpy as np

from ...errors import ParameterError
from ..data import F64, Counts, Estimates
from ..probability import EXACT, parse_epsilon
from .drawn import check_keys
from .estimation import RoundCounts, clipped_frequency, publish, published_mean
from .law import KeyLaw, as_decimal, split_law
from .privkv import check_estimator, check_rounds
from .rounds import MultiRound, Round, State

__all__ = ["PrivKVM", "PrivKVMHarmony", "PrivKVMMeanEst", "PrivKVMPlus"]

_ONE: Final = Decimal(1)


def _number(name: str, what: str, given: object, low: Decimal, high: Decimal, *, open_low: bool = False) -> Decimal:
    """Return a parameter that is a number of [low, high], or of (low, high]; a float stands for its shortest text."""
    try:
        if isinstance(given, bool) or not isinstance(given, Decimal | int | float | str):
            raise InvalidOperation
        value = Decimal(repr(float(given)) if isinstance(given, float) else given)
    except InvalidOperation:
        value = Decimal("NaN")
    if not value.is_finite() or not low <= value <= high or (open_low and value == low):
        bounds = f"above {low} and at most {high}" if open_low else f"from {low} to {high}"
        raise ParameterError(f"{what} of {name} is {given!r}, but must be a number {bounds}.")
    return value


class _InRounds(MultiRound):
    """What PrivKVM and PrivKVM+ share; see the module."""

    has_values: ClassVar[bool] = True
    estimators: ClassVar[tuple[str, ...]] = ("corrected", "baseline")
    #: Whether a later round's mean outside [-1, 1] gives way to that of the round before (else it is clipped).
    keeps_earlier: ClassVar[bool] = True

    initial_value: Decimal

    @abstractmethod
    def sign_budget(self, number: int) -> Fraction:
        """Budget of the sign in a round."""

    @abstractmethod
    def ended(self, means: tuple[F64, ...]) -> bool:
        """Whether no further round is to be asked after these means."""

    def budgets(self, number: int) -> tuple[Fraction, Fraction]:
        """Half of epsilon for the key in the first round, nothing later; and the sign's budget."""
        return Fraction(self.epsilon) / 2 if number == 1 else Fraction(0), self.sign_budget(number)

    def round(self, number: int) -> Round:
        """Return the mechanism of a round; it follows from the definition alone.

        Raises:
            ParameterError: for a number outside 1 to `rounds_max`.
        """
        if not 1 <= number <= self.rounds_max:
            raise ParameterError(f"{self.name} has no round {number}: there are rounds 1 to {self.rounds_max}.")
        return _round_of(self, number)

    def law(self, number: int) -> KeyLaw:
        """Thresholds of a round."""
        key, sign = (EXACT.exp(as_decimal(budget)) for budget in self.budgets(number))
        if number == 1:
            return split_law(key, sign, initial=self.initial_value)
        return split_law(_ONE, sign, fed=True)

    def parameters(self) -> Mapping[str, float]:
        """Probabilities and budgets of the first round, the last round's p, and the number of rounds."""
        last = self.round(self.rounds_max)
        return {
            **self.round(1).parameters(),
            "p_last": last.law.p,
            "epsilon_2_last": last.law.epsilon_2,
            "rounds": float(self.rounds_max),
        }

    def advance(self, state: State, counts: Counts) -> State:
        """Return the state after the open round brought `counts`.

        The mean of a key is recorded as published: clipped in the first round; later, where it is outside
        [-1, 1] or no answer has a sign, that of the round before stays. That is judged before anything is clipped.

        Raises:
            ParameterError: if no round is open.
        """
        found = published_mean(RoundCounts.of(self.for_round(state).law, counts))
        if state.means:
            if self.keeps_earlier:
                found = np.where(np.abs(found) > 1.0, np.nan, found)
            found = np.where(np.isnan(found), state.means[-1], found)
        means = (*state.means, np.clip(found, -1.0, 1.0))
        return State(counts=(*state.counts, counts), means=means, done=self.ended(means))

    def fed_back(self, state: State) -> F64:
        """The recorded means; the initial fake value where there is none yet."""
        initial = float(self.initial_value)
        return np.full(self.keys, initial) if not state.means else np.nan_to_num(state.means[-1], nan=initial)

    def estimate_state(self, state: State, estimator: str | None = None) -> Estimates:
        """Estimate every key's frequency and mean from all finished rounds.

        Args:
            state: at least one finished round; none gives estimates of no reports.
            estimator: "corrected" (default): the published estimates, frequency of the first round clipped to
                [1/n, 1], mean as recorded after the last. "baseline": unclipped; the mean is solved from all rounds
                together and unbiased to first order.

        Raises:
            ParameterError: for an unknown estimator.
        """
        chosen = check_estimator(estimator, self.estimators)
        if not state.counts:
            state = State(counts=(self.zero(),), means=(np.full(self.keys, np.nan),))
        rounds = [self._round_counts(state, number) for number in range(1, len(state.counts) + 1)]
        n = state.counts[0].n
        if chosen == "baseline":
            return publish(n, rounds, stale=np.zeros(self.keys, dtype=np.bool_))
        last = published_mean(rounds[-1])
        stale = np.isnan(last) | ((np.abs(last) > 1.0) & self.keeps_earlier)
        stale &= ~np.isnan(state.means[-1]) & (len(rounds) > 1)
        return publish(n, rounds, clipped_frequency(rounds[0], n), state.means[-1], stale=stale)

    def _round_counts(self, state: State, number: int) -> RoundCounts:
        before = State(counts=state.counts[: number - 1], means=state.means[: number - 1])
        fake = self.fed_back(before) if number > 1 else None
        return RoundCounts.of(self.round(number).law, state.counts[number - 1], fake)


@lru_cache(maxsize=1024)
def _round_of(mechanism: _InRounds, number: int) -> Round:
    """The mechanism of a round, kept: its budgets are fractions and exponentials of 80 digits."""
    answer = mechanism.law(number)
    return Round(epsilon=mechanism.charge(number), keys=mechanism.keys, number=number, answer=answer)


@dataclass(frozen=True, kw_only=True, init=False)
class PrivKVM(_InRounds):
    """PrivKVM: a fixed number of rounds, among which the sign's half of the budget is shared evenly.

    Attributes:
        epsilon: privacy budget of all rounds together.
        keys: number of keys of the domain.
        rounds_max: number of rounds.
        initial_value: expected fake value of the first round.

    Privacy:
        epsilon-LDP for the whole record over all rounds. Where the client draws the first fake sign itself (initial
        value 0), the loss is epsilon/2 + ln(2 / (1 + e^(-epsilon/2c))) + (c - 1) epsilon/2c, less than epsilon; with
        the fixed initial value 1 it is epsilon.

    Source:
        PrivKV, algorithm 4.
    """

    name: ClassVar[str] = "privkvm"

    epsilon: Decimal
    keys: int
    rounds_max: int
    initial_value: Decimal

    def __init__(
        self,
        *,
        epsilon: Decimal | int | float | str,
        keys: int,
        rounds: int = 6,
        initial: Decimal | int | float | str = 0,
    ) -> None:
        """Check the parameters.

        Args:
            epsilon: privacy budget of all rounds together, in [0.001, 20]; a float stands for its shortest text.
            keys: number of keys of the domain.
            rounds: number of rounds, 1 to 100.
            initial: expected fake value of the first round, -1 to 1. 0: the client draws a fair sign.

        Raises:
            ParameterError: for a parameter outside what is allowed.
        """
        object.__setattr__(self, "epsilon", parse_epsilon(epsilon))
        object.__setattr__(self, "keys", check_keys(self.name, keys))
        object.__setattr__(self, "rounds_max", check_rounds(self.name, "rounds", rounds, 1))
        object.__setattr__(self, "initial_value", _number(self.name, "initial", initial, -_ONE, _ONE))

    def sign_budget(self, number: int) -> Fraction:
        """An equal share of half of epsilon."""
        return Fraction(self.epsilon) / (2 * self.rounds_max)

    def ended(self, means: tuple[F64, ...]) -> bool:
        """Whether all rounds are over."""
        return len(means) == self.rounds_max


class PrivKVMHarmony(PrivKVM):
    """PrivKVM with Harmony as the value step: sampling and rounds of PrivKVM, values by Harmony for one value.

    Harmony's client rounds a value to a sign and keeps it with probability e^epsilon / (e^epsilon + 1), which is the
    value step of PrivKV; its server takes the unbiased average, which is clipped to [-1, 1] here and in every round,
    instead of giving way to an earlier round's.

    Source:
        The comparison in PrivKV, section 6; Harmony: Nguyên et al., arXiv 1606.05053.
    """

    name: ClassVar[str] = "privkvm-harmony"
    keeps_earlier: ClassVar[bool] = False


class PrivKVMMeanEst(PrivKVM):
    """PrivKVM with MeanEst as the value step: sampling and rounds of PrivKVM, values by MeanEst for one value.

    For one value, MeanEst sends B or -B, B = (e^epsilon + 1) / (e^epsilon - 1), the former with probability
    1/2 + v (e^epsilon - 1) / (2 (e^epsilon + 1)). That is the law of Harmony's two steps, and a report holds the
    sign of what MeanEst sends, so the two baselines differ for vectors only.

    Source:
        The comparison in PrivKV, section 6; MeanEst: Duchi, Jordan, Wainwright, JASA 2018.
    """

    name: ClassVar[str] = "privkvm-meanest"
    keeps_earlier: ClassVar[bool] = False


@dataclass(frozen=True, kw_only=True, init=False)
class PrivKVMPlus(_InRounds):
    """PrivKVM+: as many rounds as pay; each takes a part of what is left of the sign's half of the budget.

    After each round from the second on, the rounds end if the recorded means moved by no more than the cost of a
    round on average, or if `max_rounds` have been asked. What is not spent then is reported as unspent.

    Attributes:
        epsilon: privacy budget of all rounds together, at most.
        keys: number of keys of the domain.
        A0: cost of a round, in units of the mean's error.
        t: a round takes 1 / t of what is left; the last allowed round takes everything.
        decay: makes t smaller with every round: t_r = 1 + (t - 1) (1 - decay)^(r - 1).
        initial_value: expected fake value of the first round.
        rounds_max: most rounds that are asked.

    Privacy:
        epsilon-LDP for the whole record over all rounds; when to end depends on published estimates alone.

    Source:
        PrivKV, algorithm 5. The published algorithm begins with the fake value 1; the default here is 0, which
        pulls towards the middle of the range and lets the client draw the first fake sign itself.
    """

    name: ClassVar[str] = "privkvm+"

    epsilon: Decimal
    keys: int
    A0: Decimal
    t: Decimal
    decay: Decimal
    initial_value: Decimal
    rounds_max: int

    def __init__(
        self,
        *,
        epsilon: Decimal | int | float | str,
        keys: int,
        A0: Decimal | int | float | str = "0.05",
        t: Decimal | int | float | str = 2,
        decay: Decimal | int | float | str = 0,
        initial: Decimal | int | float | str = 0,
        max_rounds: int = 6,
    ) -> None:
        """Check the parameters.

        Args:
            epsilon: privacy budget of all rounds together, in [0.001, 20]; a float stands for its shortest text.
            keys: number of keys of the domain.
            A0: cost of a round, 0 to 2.
            t: above 1, at most 100.
            decay: 0 to 0.99.
            initial: expected fake value of the first round, -1 to 1. The published algorithm has 1.
            max_rounds: most rounds, 1 to 100.

        Raises:
            ParameterError: for a parameter outside what is allowed.
        """
        object.__setattr__(self, "epsilon", parse_epsilon(epsilon))
        object.__setattr__(self, "keys", check_keys(self.name, keys))
        object.__setattr__(self, "A0", _number(self.name, "A0", A0, Decimal(0), Decimal(2)))
        object.__setattr__(self, "t", _number(self.name, "t", t, _ONE, Decimal(100), open_low=True))
        object.__setattr__(self, "decay", _number(self.name, "decay", decay, Decimal(0), Decimal("0.99")))
        object.__setattr__(self, "initial_value", _number(self.name, "initial", initial, -_ONE, _ONE))
        object.__setattr__(self, "rounds_max", check_rounds(self.name, "max_rounds", max_rounds, 1))

    def sign_budget(self, number: int) -> Fraction:
        """1 / t_r of what the rounds before left of half of epsilon; everything in the last allowed round."""
        left = Fraction(self.epsilon) / 2
        for earlier in range(1, number):
            left -= left / self._divisor(earlier)
        return left if number == self.rounds_max else left / self._divisor(number)

    def _divisor(self, number: int) -> Fraction:
        return 1 + (Fraction(self.t) - 1) * (1 - Fraction(self.decay)) ** (number - 1)

    def ended(self, means: tuple[F64, ...]) -> bool:
        """Whether another round would cost more than the last one moved the means, or none is allowed."""
        if len(means) == self.rounds_max:
            return True
        if len(means) < 2:
            return False
        before, now = (np.nan_to_num(one, nan=float(self.initial_value)) for one in means[-2:])
        return bool(float(self.A0) - float(np.mean(np.abs(now - before))) >= 0.0)
