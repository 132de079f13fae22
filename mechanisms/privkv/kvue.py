"""KVUE: one drawn key, and randomised response over the three answers "+1", "-1" and "not held".

Source:
    Sun, Zhao, Ye, Feng, Wang, Bai: Conditional Analysis for Key-Value Data with Local Differential Privacy,
    arXiv 1907.05014, in the form that PCKV (USENIX Security 2020) compares itself with.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from decimal import Decimal
from typing import ClassVar

import numpy as np

from ..data import Counts, Estimates
from ..probability import parse_epsilon
from .drawn import DrawnKey, check_keys
from .estimation import RoundCounts, publish
from .law import KeyLaw, kvue_law
from .privkv import check_estimator

__all__ = ["KVUE"]


@dataclass(frozen=True, kw_only=True, init=False)
class KVUE(DrawnKey):
    """KVUE: a user draws a key in public and answers +1, -1 or 0 through randomised response over three states.

    Attributes:
        epsilon: privacy budget of one report.
        keys: number of keys of the domain.

    Privacy:
        epsilon-LDP for the whole record, exactly: p = e^epsilon / (e^epsilon + 2) against (1 - p) / 2.
    """

    name: ClassVar[str] = "kvue"
    estimators: ClassVar[tuple[str, ...]] = ("corrected", "baseline")

    epsilon: Decimal
    keys: int
    _law: KeyLaw = field(init=False, repr=False, compare=False)

    def __init__(self, *, epsilon: Decimal | int | float | str, keys: int) -> None:
        """Check the parameters and compute the thresholds.

        Args:
            epsilon: privacy budget of one report, in [0.001, 20]; a float stands for its shortest text.
            keys: number of keys of the domain.

        Raises:
            ParameterError: for a parameter outside what is allowed.
        """
        object.__setattr__(self, "epsilon", parse_epsilon(epsilon))
        object.__setattr__(self, "keys", check_keys(self.name, keys))
        object.__setattr__(self, "_law", kvue_law(self.epsilon))

    @property
    def law(self) -> KeyLaw:
        """Thresholds of the answer."""
        return self._law

    def estimate(self, counts: Counts, estimator: str | None = None) -> Estimates:
        """Estimate every key's frequency and mean.

        Args:
            counts: counts of this mechanism.
            estimator: "corrected" (default): holders of either sign clipped to [0, N], N users who drew the key;
                the mean is 0 where both are 0 and missing where nobody answered with a sign. "baseline": unclipped.

        Raises:
            ParameterError: for an unknown estimator.
        """
        chosen = check_estimator(estimator, self.estimators)
        first = RoundCounts.of(self._law, counts)
        stale = np.zeros(self.keys, dtype=np.bool_)
        if chosen == "baseline":
            return publish(counts.n, [first], stale=stale)
        # q = (1 - p) / 2 is half of b, and (3p - 1) / 2 = p - q is the gap
        law, drawn = self._law, first.drawn
        plus, minus = (np.clip((c - drawn * law.b / 2) / law.gap, 0.0, drawn) for c in (first.plus, first.minus))
        holders = plus + minus
        frequency = np.full(self.keys, np.nan)
        mean = np.where(first.given > 0, 0.0, np.nan)
        np.divide(holders, drawn, out=frequency, where=drawn > 0)
        np.divide(plus - minus, holders, out=mean, where=holders > 0)
        return publish(counts.n, [first], np.minimum(frequency, 1.0), mean, stale=stale)
