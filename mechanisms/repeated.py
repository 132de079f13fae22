"""Several reports of one user in one question: t answers at epsilon / t each, sent together as one row.

Each answer has random bits of its own, draws its own key or pair, and stands under the names of the mechanism's report
arrays with the number of the answer behind them. Counts are those of the mechanism, over all answers.

It seldom pays: one report at epsilon tells more of one thing than t at epsilon / t. It does where a report tells of one
drawn key only, people hold many, and epsilon is large.

Privacy:
    Sequential composition: t times the loss of one answer, at most epsilon.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from decimal import ROUND_FLOOR, Context, Decimal
from fractions import Fraction
from typing import Final

import numpy as np
import numpy.typing as npt

from ..errors import ParameterError
from .categorical.base import whole
from .data import F64, Counts, Estimates, Field, Prediction, Records, Reports
from .probability import EPSILON_MIN, parse_epsilon
from .protocol import Mechanism
from .randomness import Stream

__all__ = ["REPORTS_MAX", "Repeated", "each_epsilon"]

#: Largest number of reports of a user.
REPORTS_MAX: Final = 100
_Z95: Final = 1.959963984540054
_DOWN: Final = Context(prec=40, rounding=ROUND_FLOOR)
#: Taken off each answer's budget, so that t times its loss, rounded up to a float, stays within the declared one.
_MARGIN: Final = 1 - Decimal(2) ** -50


def each_epsilon(epsilon: Decimal, reports: int) -> Decimal:
    """Return the budget of each of several reports.

    Raises:
        ParameterError: where it is below the smallest budget.
    """
    each = _DOWN.multiply(_DOWN.divide(epsilon, Decimal(reports)), _MARGIN)
    if each < EPSILON_MIN:
        raise ParameterError(
            f"{reports} reports share an epsilon of {epsilon}, which leaves less than {EPSILON_MIN} for each; ask for "
            "fewer reports or a larger epsilon."
        )
    return each


@dataclass(frozen=True, init=False)
class Repeated(Mechanism):
    """A mechanism that each user answers several times within one report row.

    Attributes:
        inner: the mechanism of one answer.
        times: number of answers.
        epsilon: privacy budget of all together.
        keys: number of keys.

    Privacy:
        epsilon-LDP for the whole record by sequential composition.
    """

    inner: Mechanism
    times: int
    epsilon: Decimal
    keys: int

    def __init__(self, make: Callable[[Decimal], Mechanism], *, epsilon: Decimal | int | float | str, reports: int):
        """Make the mechanism of one answer.

        Args:
            make: makes a mechanism from its budget.
            epsilon: privacy budget of all answers together.
            reports: number of answers, at least 1.

        Raises:
            ParameterError: for a number or a budget outside what is allowed.
        """
        object.__setattr__(self, "epsilon", parse_epsilon(epsilon))
        object.__setattr__(self, "times", whole("this collection", "reports", reports, 1, REPORTS_MAX))
        inner = make(each_epsilon(self.epsilon, self.times))
        object.__setattr__(self, "inner", inner)
        object.__setattr__(self, "keys", inner.keys)
        # to all who read a mechanism's description it is the inner one
        for name in ("name", "has_values", "has_frequency", "estimators"):
            object.__setattr__(self, name, getattr(inner, name))

    # -- both sides -------------------------------------------------------------------------------------

    def thresholds(self) -> Mapping[str, int]:
        """Thresholds of one answer, and the number of answers."""
        return {**self.inner.thresholds(), "reports": self.times}

    def parameters(self) -> Mapping[str, float]:
        """Parameters of one answer, the number of answers and the budget of each."""
        return {**self.inner.parameters(), "reports": float(self.times), "epsilon_each": float(self.inner.epsilon)}

    def exact_epsilon(self) -> float:
        """The number of answers times the loss of one, rounded up."""
        exact = Fraction(self.inner.exact_epsilon()) * self.times
        nearest = float(exact)
        return nearest if Fraction(nearest) >= exact else float(np.nextafter(nearest, np.inf))

    def layout(self) -> tuple[Field, ...]:
        """The arrays of each answer: `key_1`, `key_2` and so on."""
        return tuple(
            replace(part, name=f"{part.name}_{number}")
            for number in range(1, self.times + 1)
            for part in self.inner.layout()
        )

    def predict(self, *, frequency: float, mean: float, users: int) -> Prediction:
        """Predict the errors of a key."""
        one = self.inner.predict(frequency=frequency, mean=mean, users=users * self.times)
        people, values = self._people(np.array(frequency), np.array(mean), users)
        return Prediction(
            frequency_se=float(np.sqrt(one.frequency_se**2 + people)),
            mean_se=float(np.sqrt(one.mean_se**2 + values)),
            mean_bias=one.mean_bias,
        )

    # -- client -----------------------------------------------------------------------------------------

    def perturb(self, records: Records, stream: Stream) -> Reports:
        """Perturb a batch: all answers of a user in one row.

        Args:
            records: canonical records.
            stream: random bits of the collection.

        Privacy:
            epsilon-LDP for the whole record; see the class.
        """
        arrays: dict[str, npt.NDArray[np.generic]] = {}
        for number in range(1, self.times + 1):
            answer = self.inner.perturb(records, stream.answer(number))
            arrays |= {f"{name}_{number}": array for name, array in answer.arrays.items()}
        return Reports(n=records.n, arrays=arrays)

    # -- server -----------------------------------------------------------------------------------------

    def _answers(self, reports: Reports) -> list[Reports]:
        """Return the answers of each number; an array that is missing is missing in its answer."""
        names = [part.name for part in self.inner.layout()]
        return [
            Reports(
                n=reports.n,
                arrays={
                    name: reports.arrays[f"{name}_{number}"] for name in names if f"{name}_{number}" in reports.arrays
                },
            )
            for number in range(1, self.times + 1)
        ]

    def valid(self, reports: Reports) -> npt.NDArray[np.bool_]:
        """Rows in which every answer is one that the mechanism can have produced."""
        good = np.ones(reports.n, dtype=np.bool_)
        for answer in self._answers(reports):
            good &= self.inner.valid(answer)
        return good

    def zero(self) -> Counts:
        """Counts of no reports."""
        return self.inner.zero()

    def count(self, reports: Reports, into: Counts | None = None) -> Counts:
        """Count all answers; n counts rows, that is, users.

        Args:
            reports: valid reports.
            into: a counter of the caller's own, updated in place.
        """
        total = self.zero() if into is None else into
        counted = total
        for answer in self._answers(reports):
            counted = self.inner.count(answer, counted)
        return Counts(n=total.n + reports.n, cells=counted.cells)

    def estimate(self, counts: Counts, estimator: str | None = None) -> Estimates:
        """Estimate every key as from answers of different people, and widen the errors.

        The answers of one user speak of one record: their noise is independent, what differs between people is not
        averaged out. That is exact for frequencies, also where each answer draws a key anew; for means it is a bound.

        Args:
            counts: counts of this mechanism.
            estimator: one of `estimators`.

        Raises:
            ParameterError: for an unknown estimator.
        """
        one = self.inner.estimate(Counts(n=counts.n * self.times, cells=counts.cells), estimator)
        if counts.n == 0:
            return one
        share = np.clip(one.frequency_raw, 1.0 / counts.n, 1.0) if self.has_frequency else np.ones(self.keys)
        middle = None if one.mean_raw is None else np.clip(one.mean_raw, -1.0, 1.0)
        people, values = self._people(share, np.zeros(self.keys) if middle is None else middle, counts.n)
        error = np.sqrt(np.square(one.frequency_se) + people)
        low, high = _interval(one.frequency_raw, error, 0.0)
        wider = replace(one, n=counts.n, frequency_se=error, frequency_low=low, frequency_high=high)
        if one.mean_raw is None or one.mean_se is None:
            return wider
        mean_error = np.sqrt(np.square(one.mean_se) + values)
        mean_low, mean_high = _interval(one.mean_raw, mean_error, -1.0)
        return replace(wider, mean_se=mean_error, mean_low=mean_low, mean_high=mean_high)

    def _people(self, share: F64, mean: F64, users: int) -> tuple[F64, F64]:
        """Variances between people of a frequency and a mean that several answers do not average out."""
        kept = 1.0 - 1.0 / self.times
        holders = share if self.has_frequency else 1.0
        return kept * share * (1.0 - share) / users, kept * (1.0 - np.square(mean)) / (users * holders)


def _interval(centre: F64, error: F64, lowest: float) -> tuple[F64, F64]:
    """95 % interval, clipped to [lowest, 1]; the full range where there is no centre."""
    low = np.clip(centre - _Z95 * error, lowest, 1.0)
    high = np.clip(centre + _Z95 * error, lowest, 1.0)
    missing = np.isnan(centre)
    return np.where(missing, lowest, low), np.where(missing, 1.0, high)
