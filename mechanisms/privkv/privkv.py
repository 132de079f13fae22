"""PrivKV: frequencies and means of key-value data from one round, and virtual iterations of its estimator.

Source:
    Ye, Hu, Meng, Zheng: PrivKV: Key-Value Data Collection with Local Differential Privacy, IEEE S&P 2019.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from decimal import Decimal
from typing import ClassVar, Final

import numpy as np

from ...errors import ParameterError, did_you_mean
from ..data import Counts, Estimates
from ..probability import parse_epsilon
from .drawn import DrawnKey, check_keys
from .estimation import RoundCounts, clipped_frequency, publish, published_mean, virtual_mean
from .law import KeyLaw, check_allocation, split_budget, split_law

__all__ = ["ROUNDS_MAX", "PrivKV", "check_estimator", "check_rounds"]

#: Largest number of rounds, real or virtual.
ROUNDS_MAX: Final = 100


def check_rounds(name: str, what: str, given: object, least: int) -> int:
    """Return a number of rounds.

    Raises:
        ParameterError: unless it is a whole number from `least` to `ROUNDS_MAX`.
    """
    if isinstance(given, bool) or not isinstance(given, int | np.integer) or not least <= given <= ROUNDS_MAX:
        raise ParameterError(f"{what} of {name} is {given!r}, but must be a whole number from {least} to {ROUNDS_MAX}.")
    return int(given)


def check_estimator(given: str | None, allowed: tuple[str, ...]) -> str:
    """Return the name of an estimator, the first where none is given.

    Raises:
        ParameterError: for an unknown name.
    """
    if given is not None and given not in allowed:
        raise ParameterError(f"estimator is {given!r}. {did_you_mean(str(given), allowed)}")
    return allowed[0] if given is None else given


@dataclass(frozen=True, kw_only=True, init=False)
class PrivKV(DrawnKey):
    """PrivKV: a user draws a key in public, perturbs whether she holds it, then the sign of its value.

    Attributes:
        epsilon: privacy budget of one report.
        keys: number of keys of the domain.
        allocation: "naive" (as published: half of epsilon for the key, half for the sign) or "optimized".
        virtual_rounds: how many rounds the virtual estimators add to the real one.

    Privacy:
        epsilon-LDP for the whole record. The client draws the fake sign of a key that is not held itself, so the
        loss is max(epsilon_2, epsilon_1 + ln(2 / (1 + e^-epsilon_2))): less than the declared epsilon_1 + epsilon_2
        with the naive allocation, all of epsilon with the optimized one.

    Source:
        PrivKV, algorithms 1 to 3 (local perturbation, value perturbation, estimation).
    """

    name: ClassVar[str] = "privkv"
    estimators: ClassVar[tuple[str, ...]] = ("corrected", "baseline", "virtual-same-key", "virtual-half")

    epsilon: Decimal
    keys: int
    allocation: str
    virtual_rounds: int
    _law: KeyLaw = field(init=False, repr=False, compare=False)

    def __init__(
        self,
        *,
        epsilon: Decimal | int | float | str,
        keys: int,
        allocation: str = "naive",
        virtual_rounds: int = 5,
    ) -> None:
        """Check the parameters and compute the thresholds.

        Args:
            epsilon: privacy budget of one report, in [0.001, 20]; a float stands for its shortest text.
            keys: number of keys of the domain.
            allocation: "naive" (default) or "optimized".
            virtual_rounds: rounds that the virtual estimators add to the real one; 0 to 100.

        Raises:
            ParameterError: for a parameter outside what is allowed.
        """
        object.__setattr__(self, "epsilon", parse_epsilon(epsilon))
        object.__setattr__(self, "keys", check_keys(self.name, keys))
        check_allocation(allocation)
        object.__setattr__(self, "allocation", allocation)
        rounds = check_rounds(self.name, "virtual_rounds", virtual_rounds, 0)
        object.__setattr__(self, "virtual_rounds", rounds)
        object.__setattr__(self, "_law", split_law(*split_budget(self.epsilon, allocation)))

    @property
    def law(self) -> KeyLaw:
        """Thresholds of the answer."""
        return self._law

    def estimate(self, counts: Counts, estimator: str | None = None) -> Estimates:
        """Estimate every key's frequency and mean.

        Args:
            counts: counts of this mechanism.
            estimator: "corrected" (default): the published estimates, frequencies clipped to [1/n, 1], means to
                [-1, 1]. That mean is drawn towards 0 by the fake values of those who do not hold the key: its
                expectation is m a f / (a f + b (1 - f)). "virtual-same-key" and "virtual-half" take that back by
                `virtual_rounds` virtual rounds. "baseline": unclipped, and the mean unbiased to first order.

        Returns:
            Estimates in units of [-1, 1]; intervals belong to the raw figures, not to the shrunken mean.

        Raises:
            ParameterError: for an unknown estimator.

        Source:
            PrivKV, sections 4.2 and 5.3.
        """
        chosen = check_estimator(estimator, self.estimators)
        first = RoundCounts.of(self._law, counts)
        fresh = np.zeros(self.keys, dtype=np.bool_)
        if chosen == "baseline":
            return publish(counts.n, [first], stale=fresh)
        frequency = clipped_frequency(first, counts.n)
        mean = np.clip(published_mean(first), -1.0, 1.0)
        if chosen != "corrected":
            half = chosen == "virtual-half"
            mean = virtual_mean(mean, self._law, frequency, self.virtual_rounds, half=half)
        return publish(counts.n, [first], frequency, mean, stale=fresh)
