"""The one protocol that every mechanism follows, client half and server half.

A mechanism is a frozen, picklable value: parameters and integer thresholds, no generator, no buffer.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from decimal import Decimal
from typing import TYPE_CHECKING, ClassVar

import numpy as np
import numpy.typing as npt

from .data import Counts, Estimates, Field, Prediction, Records, Reports

if TYPE_CHECKING:
    from .randomness import Stream

__all__ = ["Mechanism"]


class Mechanism(ABC):
    """A local-differential-privacy mechanism over a domain of `keys` keys, numbered 0 to keys - 1.

    Privacy:
        Each report satisfies `epsilon`-LDP for the user's whole record: for any two records S, S' and any
        report y, Pr[y | S] <= e^epsilon * Pr[y | S']. `exact_epsilon` computes the true bound from the
        integer thresholds that `perturb` uses; it is never above `epsilon`.
    """

    #: Name in the collection definition.
    name: ClassVar[str]
    #: Whether records carry values (and estimates carry means).
    has_values: ClassVar[bool]
    #: Whether estimates tell how many users hold a key; where not, their frequencies are NaN.
    has_frequency: ClassVar[bool] = True
    #: Names of the estimators, the default first.
    estimators: ClassVar[tuple[str, ...]]

    #: Declared privacy budget of one report, exact.
    epsilon: Decimal
    #: Size of the key domain.
    keys: int

    # -- both sides -------------------------------------------------------------------------------------

    @abstractmethod
    def thresholds(self) -> Mapping[str, int]:
        """Integer thresholds that decide every random choice; they enter the collection's fingerprint."""

    @abstractmethod
    def parameters(self) -> Mapping[str, float]:
        """Probabilities and budgets as floats, by name, for people (a, b, p, epsilon_1, epsilon_2, …)."""

    @abstractmethod
    def exact_epsilon(self) -> float:
        """The privacy loss over every pair of records and every report, from the integer thresholds."""

    @abstractmethod
    def layout(self) -> tuple[Field, ...]:
        """Type and width of every array of a report; the same for every user of the collection."""

    def predict(self, *, frequency: float, mean: float, users: int) -> Prediction:
        """Predict the errors for a key of the given frequency (above 0) and mean among so many users.

        Figures for which there is no closed form, or which the mechanism does not estimate, are NaN.
        """
        return Prediction(frequency_se=np.nan, mean_se=np.nan, mean_bias=np.nan)

    # -- client -----------------------------------------------------------------------------------------

    @abstractmethod
    def perturb(self, records: Records, stream: Stream) -> Reports:
        """Perturb a batch: one report a user, a pure function of the stream's secret and label."""

    # -- server -----------------------------------------------------------------------------------------

    @abstractmethod
    def valid(self, reports: Reports) -> npt.NDArray[np.bool_]:
        """Which reports this mechanism can have produced, bool (n,); the others must not be counted."""

    @abstractmethod
    def zero(self) -> Counts:
        """Counts of no reports."""

    @abstractmethod
    def count(self, reports: Reports, into: Counts | None = None) -> Counts:
        """Count valid reports.

        `into`, where given, is a counter of the caller's own: its arrays are updated in place and belong to
        the result.
        """

    @abstractmethod
    def estimate(self, counts: Counts, estimator: str | None = None) -> Estimates:
        """Estimate every key's frequency and mean with standard errors and 95 % intervals."""
