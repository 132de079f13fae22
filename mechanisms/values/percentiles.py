"""Medians, percentiles and extremes of each key's values: the range of values is cut into bins.

A pair of key and value becomes one symbol, the key together with the bin of its value, and goes through a frequency
oracle over all keys and bins. The server reads everything off each key's estimated histogram:

* the share of users who hold the key, as the sum over its bins;
* the mean, from the bins' middles (which differs from the mean of the values by half a bin at most);
* percentiles, by linear interpolation in the histogram without its negative bins;
* the minimum and the maximum, as the outer edges of the outermost bins whose share exceeds the significance threshold
  among the key's bins. They bound the extremes that the noise lets one see: values that fewer users hold may lie
  beyond them, and a bin that nobody holds is taken for an extreme in 5 % of all keys at most.

Error bars take the bins' estimates as independent, which leaves out covariances of the order of the shares themselves.

Source:
    Ye, Hu, Meng, Zheng: PrivKV, IEEE S&P 2019, section 7, names the extension; the details are ours.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from decimal import Decimal
from typing import ClassVar, Final

import numpy as np
import numpy.typing as npt

from ...errors import ParameterError, did_you_mean
from ..categorical.base import FrequencyOracle, whole
from ..categorical.estimation import Supports
from ..categorical.grr import GRR, PSFOGRR
from ..categorical.hadamard import HadamardResponse, SHist
from ..categorical.local_hashing import OLH
from ..categorical.unary_encoding import OUE, PSFOOUE, SUE
from ..data import F64, I64, VALUE_ONE, Counts, Estimates, Field, Prediction, Records, Reports
from ..pckv.sampling import check_records
from ..protocol import Mechanism
from ..randomness import Stream

__all__ = ["ORACLES", "Percentiles", "bins_of"]

#: Oracles that may carry keys and bins; those for sets take a padding, the others one pair a user.
ORACLES: Final[Mapping[str, type[FrequencyOracle]]] = {
    kind.name: kind for kind in (PSFOOUE, PSFOGRR, GRR, SUE, OUE, OLH, SHist, HadamardResponse)
}
_SETS: Final = ("psfo-oue", "psfo-grr")
_BINS_MAX: Final = 1_000
_Z95: Final = 1.959963984540054
_FEW: Final = 30.0


def bins_of(values: I64, bins: int) -> I64:
    """Return the bin of each fixed-point value; bins are equally wide and the last one holds the upper end."""
    numbers: I64 = np.minimum((values + VALUE_ONE) * bins >> 41, bins - 1)
    return numbers


@dataclass(frozen=True, kw_only=True, init=False)
class Percentiles(Mechanism):
    """Percentiles and extremes of each key's values, from a histogram of bins.

    Attributes:
        epsilon: privacy budget of one report.
        keys: number of keys of the domain.
        bins: number of bins.
        oracle: name of the frequency oracle over keys and bins.
        padding: padding length of an oracle for sets; None for others, to which each user gives one pair.
        percentiles: what to estimate, numbers between 0 and 100.

    Privacy:
        That of the oracle, for the whole record: it sees nothing else of the record.
    """

    name: ClassVar[str] = "percentiles"
    has_values: ClassVar[bool] = True
    estimators: ClassVar[tuple[str, ...]] = ("empirical",)
    keys_max: ClassVar[int] = 5_000

    epsilon: Decimal
    keys: int
    bins: int
    oracle: str
    padding: int | None
    percentiles: tuple[Decimal, ...] = field(compare=False)
    _inner: FrequencyOracle = field(init=False, repr=False, compare=False)

    def __init__(
        self,
        *,
        epsilon: Decimal | int | float | str,
        keys: int,
        bins: int = 16,
        oracle: str = "psfo-oue",
        padding: int | None = None,
        percentiles: Sequence[Decimal | int | float] = (25, 50, 75),
    ) -> None:
        """Check the parameters and make the oracle.

        Args:
            epsilon: privacy budget of one report, in [0.001, 20].
            keys: number of keys.
            bins: number of equally wide bins of the range of values, at least 2.
            oracle: a name of `ORACLES`.
            padding: padding length, for "psfo-oue" and "psfo-grr", which need one; others have none.
            percentiles: numbers between 0 and 100, each once; 50 is the median.

        Raises:
            ParameterError: for a parameter outside what is allowed.
        """
        if oracle not in ORACLES:
            raise ParameterError(f"oracle of percentiles is {oracle!r}. {did_you_mean(str(oracle), ORACLES)}")
        if (padding is not None) != (oracle in _SETS):
            needs = "needs a padding" if oracle in _SETS else "asks for one pair a user and has no padding"
            raise ParameterError(f"The oracle {oracle} {needs}; padding is {padding!r}.")
        object.__setattr__(self, "keys", whole(self.name, "keys", keys, 1, self.keys_max))
        object.__setattr__(self, "bins", whole(self.name, "bins", bins, 2, _BINS_MAX))
        object.__setattr__(self, "oracle", oracle)
        object.__setattr__(self, "padding", padding)
        object.__setattr__(self, "percentiles", _checked(percentiles))
        if self.keys * self.bins > ORACLES[oracle].keys_max:
            raise ParameterError(
                f"{self.keys:,} keys of {self.bins} bins are {self.keys * self.bins:,} symbols, but {oracle} takes "
                f"{ORACLES[oracle].keys_max:,} at most; use fewer bins, or an oracle such as psfo-grr or shist."
            )
        more = {} if padding is None else {"padding": padding}
        inner = ORACLES[oracle](epsilon=epsilon, keys=self.keys * self.bins, **more)
        object.__setattr__(self, "_inner", inner)
        object.__setattr__(self, "epsilon", inner.epsilon)

    # -- both sides -------------------------------------------------------------------------------------

    def thresholds(self) -> Mapping[str, int]:
        """Thresholds of the oracle, and the number of bins."""
        return {**self._inner.thresholds(), "bins": self.bins}

    def parameters(self) -> Mapping[str, float]:
        """Probabilities of the oracle."""
        return self._inner.parameters()

    def exact_epsilon(self) -> float:
        """The oracle's loss, rounded up."""
        return self._inner.exact_epsilon()

    def layout(self) -> tuple[Field, ...]:
        """The oracle's report."""
        return self._inner.layout()

    def predict(self, *, frequency: float, mean: float, users: int) -> Prediction:
        """Predict the errors of a key's share and of its mean, the values being spread evenly over the bins.

        Args:
            frequency: true share, above 0.
            mean: true mean in [-1, 1]; only its distance from the bins counts.
            users: number of users.
        """
        error = float(self._supports(np.zeros(1, dtype=np.int64), users).error(frequency / self.bins)[0])
        edges = np.linspace(-1.0, 1.0, self.bins + 1)
        distance = (edges[1:] + edges[:-1]) / 2.0 - mean
        return Prediction(
            frequency_se=error * float(np.sqrt(self.bins)),
            mean_se=error * float(np.sqrt(np.square(distance).sum())) / frequency,
            mean_bias=np.nan,
        )

    # -- client -----------------------------------------------------------------------------------------

    def perturb(self, records: Records, stream: Stream) -> Reports:
        """Perturb a batch: one report a user, about one pair's key and bin.

        Args:
            records: canonical records with values.
            stream: random bits of the collection.

        Privacy:
            epsilon-LDP for the whole record; see the class.
        """
        check_records(records, self.keys)
        values = np.zeros(0, dtype=np.int64) if records.values is None else records.values
        symbols = (records.keys * np.int64(self.bins) + bins_of(values, self.bins)).astype(np.int32)
        # the exact values stay in the label of the random bits, so that every changed record gets fresh ones
        inner = Records(users=records.users, offsets=records.offsets, keys=symbols, values=records.values)
        return self._inner.perturb(inner, stream)

    # -- server -----------------------------------------------------------------------------------------

    def valid(self, reports: Reports) -> npt.NDArray[np.bool_]:
        """Which reports the oracle can have produced."""
        return self._inner.valid(reports)

    def zero(self) -> Counts:
        """Counts of no reports: those of the oracle, over keys and bins."""
        return self._inner.zero()

    def count(self, reports: Reports, into: Counts | None = None) -> Counts:
        """Count as the oracle does."""
        return self._inner.count(reports, into)

    def estimate(self, counts: Counts, estimator: str | None = None) -> Estimates:
        """Estimate every key's share, mean, percentiles and extremes.

        Args:
            counts: counts of this mechanism.
            estimator: "empirical".

        Returns:
            Estimates with the further figures "minimum", "maximum" and, for each percentile such as 25, "p25",
            "p25_low" and "p25_high": a 95 % interval between edges of bins.

        Raises:
            ParameterError: for an unknown estimator.
        """
        if estimator not in (None, *self.estimators):
            raise ParameterError(f"estimator is {estimator!r}. {did_you_mean(str(estimator), self.estimators)}")
        supporters = self._inner.supporters(counts)
        shape = (self.keys, self.bins)
        if counts.n == 0:
            histogram = _Histogram(np.full(shape, np.nan), np.full(shape, np.nan), np.full(shape, np.nan))
        else:
            supports = self._supports(supporters, counts.n)
            raw = supports.raw()
            parts = (raw, supports.error(np.clip(raw, 0.0, 1.0)), supports.error(0.0))
            histogram = _Histogram(*(part.reshape(shape) for part in parts))
        return self._publish(histogram, counts.n, supporters.reshape(shape).sum(axis=1))

    def _supports(self, supporters: I64, n: int) -> Supports:
        inner = self._inner
        return Supports.alike(n, supporters, float(inner.own), float(inner.other), scale=float(inner.scale))

    def _publish(self, histogram: _Histogram, n: int, supports: I64) -> Estimates:
        share, error = histogram.total, histogram.total_error
        mean, mean_error = histogram.mean()
        lowest, highest = histogram.extremes()
        further: dict[str, F64] = {"minimum": lowest, "maximum": highest}
        for percentile in self.percentiles:
            name = f"p{percentile.normalize():f}"
            further[name] = histogram.percentile(float(percentile) / 100.0)
            further[f"{name}_low"], further[f"{name}_high"] = histogram.bounds(float(percentile) / 100.0)
        with np.errstate(invalid="ignore"):
            few = (n * float(self._inner.own) * share / self._inner.scale < _FEW) | (np.abs(share) <= error)
        return Estimates(
            n=n,
            frequency=share,
            frequency_se=error,
            frequency_low=np.clip(share - _Z95 * error, 0.0, 1.0),
            frequency_high=np.clip(share + _Z95 * error, 0.0, 1.0),
            frequency_raw=share,
            mean=mean,
            mean_se=mean_error,
            mean_low=np.clip(mean - _Z95 * mean_error, -1.0, 1.0),
            mean_high=np.clip(mean + _Z95 * mean_error, -1.0, 1.0),
            mean_raw=mean,
            further=further,
            support={"supports": supports},
            flags={"no-reports": np.full(self.keys, n == 0), "few-holders": few & (n > 0)},
        )


def _checked(percentiles: Sequence[Decimal | int | float]) -> tuple[Decimal, ...]:
    try:
        numbers = tuple(Decimal(str(one)) for one in percentiles)
    except (ArithmeticError, TypeError) as error:
        raise ParameterError(f"percentiles is {percentiles!r}, but must be a list of numbers.") from error
    if not numbers or len(set(numbers)) < len(numbers) or not all(0 < one < 100 for one in numbers):
        raise ParameterError(
            f"percentiles is {[str(one) for one in numbers]}, but must be numbers between 0 and 100, each once."
        )
    return numbers


@dataclass(frozen=True, eq=False)
class _Histogram:
    """Unbiased shares of each key's bins with their errors, float64 (d, h) each; NaN without reports.

    Attributes:
        share: shares of all users.
        error: standard errors.
        error_at_zero: standard errors of a share of 0.
    """

    share: F64
    error: F64
    error_at_zero: F64

    @property
    def edges(self) -> F64:
        """The ends of the bins in [-1, 1], float64 (h + 1,)."""
        return np.linspace(-1.0, 1.0, self.share.shape[1] + 1)

    @property
    def total(self) -> F64:
        """Shares of the keys."""
        total: F64 = self.share.sum(axis=1)
        return total

    @property
    def total_error(self) -> F64:
        """Their standard errors."""
        error: F64 = np.sqrt(np.square(self.error).sum(axis=1))
        return error

    def mean(self) -> tuple[F64, F64]:
        """Means of the bins' middles, without negative bins, and their errors; NaN where no bin is positive."""
        middles = (self.edges[1:] + self.edges[:-1]) / 2.0
        positive = np.maximum(self.share, 0.0)
        total = positive.sum(axis=1)
        with np.errstate(invalid="ignore", divide="ignore"):
            mean = np.where(total > 0.0, positive @ middles / total, np.nan)
            distance = middles - mean[:, None]
            error = np.sqrt(np.square(distance * self.error).sum(axis=1)) / total
        return mean, error

    def percentile(self, q: float) -> F64:
        """Where a share q of each key's positive bins lies below, by linear interpolation."""
        positive = np.maximum(self.share, 0.0)
        below = np.concatenate([np.zeros((len(positive), 1)), np.cumsum(positive, axis=1)], axis=1)
        result = np.full(len(positive), np.nan)
        for key in np.flatnonzero(below[:, -1] > 0.0):
            rising = np.concatenate([[True], np.diff(below[key]) > 0.0])
            # where empty bins precede, the interpolation starts at the end of the last of them
            start = np.flatnonzero(rising)[1:] - 1
            wanted = q * below[key, -1]
            at = start[min(int(np.searchsorted(below[key, start + 1], wanted)), len(start) - 1)]
            part = (wanted - below[key, at]) / (below[key, at + 1] - below[key, at])
            result[key] = self.edges[at] + part * (self.edges[at + 1] - self.edges[at])
        return result

    def bounds(self, q: float) -> tuple[F64, F64]:
        """The last edge that is surely below the percentile and the first that is surely above, at 95 %.

        At an edge the sum over the bins of (1 - q) times those below and -q times those above is tested for its sign.
        """
        h = self.share.shape[1]
        weights = np.tri(h + 1, h, -1) - q  # row j: bins below edge j
        excess = self.share @ weights.T
        error = np.sqrt(np.square(self.error) @ np.square(weights.T))
        with np.errstate(invalid="ignore"):
            below, above = excess + _Z95 * error < 0.0, excess - _Z95 * error > 0.0
        low = np.where(below.any(axis=1), self.edges[h - np.argmax(below[:, ::-1], axis=1)], -1.0)
        high = np.where(above.any(axis=1), self.edges[np.argmax(above, axis=1)], 1.0)
        return low, high

    def extremes(self) -> tuple[F64, F64]:
        """Outer edges of the outermost significant bins; NaN where none is."""
        h = self.share.shape[1]
        with np.errstate(invalid="ignore"):
            seen = self.share > Supports.quantile(h) * self.error_at_zero
        some = seen.any(axis=1)
        lowest = np.where(some, self.edges[np.argmax(seen, axis=1)], np.nan)
        highest = np.where(some, self.edges[h - np.argmax(seen[:, ::-1], axis=1)], np.nan)
        return lowest, highest
