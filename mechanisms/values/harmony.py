"""Means of numeric values alone: each user holds one value for every key, the coordinates of her vector.

A coordinate that a record lacks counts as the middle of the range. It draws the mean there by the share of users who
lack it, which nobody can see from the reports; the manifest says how many were lacking. For data in which people hold
different keys use a key-value mechanism.

Source:
    Nguyen, Xiao, Yang, Hui, Shin, Shin: Collecting and Analyzing Data from Smart Device Users with Local Differential
    Privacy, arXiv 1606.05053 (Harmony).
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from decimal import Decimal
from fractions import Fraction
from typing import ClassVar, Final

import numpy as np
import numpy.typing as npt

from ...errors import ParameterError, did_you_mean
from ..categorical.base import has_layout, whole
from ..categorical.hadamard import sign_ratio, sign_threshold
from ..chunks import chunks
from ..data import F64, I32, I64, VALUE_ONE, Bool, Counts, Estimates, Field, Prediction, Records, Reports
from ..pckv.sampling import check_records
from ..probability import WORDS, log_up, parse_epsilon
from ..protocol import Mechanism
from ..randomness import U64, BlockSource, Stream, mulhi

__all__ = ["Harmony", "MeanMechanism", "positive_with_value", "values_at"]

_Z95: Final = 1.959963984540054
_FEW: Final = 30
#: A word's upper bits decide a value's sign with the resolution of the values, 2^41 steps from -1 to 1.
_VALUE_SHIFT: Final = np.uint64(64 - 41)


def positive_with_value(words: U64, values: I64) -> Bool:
    """Discretise values: true with probability (1 + v) / 2.

    Args:
        words: uniform words, any shape.
        values: fixed-point values of [-1, 1], the same shape.
    """
    positive: Bool = (words >> _VALUE_SHIFT).view(np.int64) < values + VALUE_ONE
    return positive


def values_at(records: Records, coordinate: I32) -> I64:
    """Return each user's value of one key, 0 where she does not hold it, int64 (n,).

    Args:
        records: canonical records with values.
        coordinate: a key for each user, int32 (n,).
    """
    result = np.zeros(records.n, dtype=np.int64)
    if records.values is not None:
        owner = np.repeat(np.arange(records.n), records.sizes)
        found = records.keys == coordinate[owner]
        result[owner[found]] = records.values[found]
    return result


@dataclass(frozen=True, kw_only=True, init=False)
class MeanMechanism(Mechanism):
    """A mechanism for the mean of every key's values, with signs as reports.

    Attributes:
        epsilon: privacy budget of one report.
        keys: number of coordinates.
    """

    has_values: ClassVar[bool] = True
    has_frequency: ClassVar[bool] = False
    estimators: ClassVar[tuple[str, ...]] = ("corrected", "baseline")
    #: Largest number of coordinates.
    keys_max: ClassVar[int]
    #: Blocks of random bits that are drawn once a user.
    own_blocks: ClassVar[int] = 2

    epsilon: Decimal
    keys: int

    def __init__(self, *, epsilon: Decimal | int | float | str, keys: int) -> None:
        """Check the parameters and compute the thresholds.

        Args:
            epsilon: privacy budget of one report, in [0.001, 20].
            keys: number of coordinates of a user's vector; 1 for one value.

        Raises:
            ParameterError: for a parameter outside what is allowed.
        """
        object.__setattr__(self, "epsilon", parse_epsilon(epsilon))
        object.__setattr__(self, "keys", whole(self.name, "keys", keys, 1, self.keys_max))
        self._prepare()

    @abstractmethod
    def _prepare(self) -> None:
        """Compute the thresholds and set them as attributes."""

    @property
    @abstractmethod
    def gain(self) -> Fraction:
        """Mean of a reported sign of a user whose value is 1: what the average of signs is divided by."""

    # -- client -----------------------------------------------------------------------------------------

    def _chunks(
        self, records: Records, stream: Stream, size: int
    ) -> Iterator[tuple[slice, Records, U64, U64, BlockSource]]:
        """Yield rows, records, seeds, own blocks and block function of parts of the batch."""
        check_records(records, self.keys)
        yield from chunks(records, stream, size=size, own_blocks=self.own_blocks)

    # -- server -----------------------------------------------------------------------------------------

    def valid(self, reports: Reports) -> npt.NDArray[np.bool_]:
        """Which reports this mechanism can have produced; none if a type or shape is wrong."""
        if not has_layout(self, reports):
            return np.zeros(reports.n, dtype=np.bool_)
        return self._plausible(reports)

    @abstractmethod
    def _plausible(self, reports: Reports) -> Bool:
        """Which reports, of the right types and shapes, hold allowed figures."""

    def zero(self) -> Counts:
        """Counts of no reports: n1 positive and n2 negative signs of every coordinate."""
        return Counts(n=0, cells={name: np.zeros(self.keys, dtype=np.int64) for name in ("n1", "n2")})

    @abstractmethod
    def _divisors(self, counts: Counts, *, corrected: bool) -> F64:
        """Return the number of reports on each coordinate, known or expected, float64 (d,)."""

    @abstractmethod
    def _variance(self, mean: npt.ArrayLike, reports: npt.ArrayLike, *, corrected: bool) -> F64:
        """Return the variance of the mean, the users being a sample, for so many reports on the coordinate."""

    def predict(self, *, frequency: float = 1.0, mean: float, users: int) -> Prediction:
        """Predict the standard error of a mean; `frequency` is not used.

        Args:
            frequency: ignored: every user holds every coordinate.
            mean: true mean in [-1, 1].
            users: number of users.
        """
        variance = self._variance(mean, self._share * users, corrected=True)
        return Prediction(frequency_se=np.nan, mean_se=float(np.sqrt(variance)), mean_bias=0.0)

    @property
    def _share(self) -> float:
        """Share of the reports that tell something of a given coordinate."""
        return 1.0

    def estimate(self, counts: Counts, estimator: str | None = None) -> Estimates:
        """Estimate every coordinate's mean.

        Args:
            counts: counts of this mechanism.
            estimator: "corrected" (default) divides by the reports on the coordinate and clips to [-1, 1];
                "baseline" gives the published, unclipped figure.

        Returns:
            Estimates in units of [-1, 1], all frequencies NaN. Flags: "no-reports"; "few-holders" for fewer than 30
            reports on the coordinate; "clipped".

        Raises:
            ParameterError: for an unknown estimator.
        """
        name = self.estimators[0] if estimator is None else estimator
        if name not in self.estimators:
            raise ParameterError(f"estimator is {name!r}. {did_you_mean(str(name), self.estimators)}")
        corrected = name == "corrected"
        positive, negative = counts.cells["n1"], counts.cells["n2"]
        reports = self._divisors(counts, corrected=corrected)
        with np.errstate(divide="ignore", invalid="ignore"):
            raw = np.where(reports > 0.0, (positive - negative) / float(self.gain) / reports, np.nan)
            error = np.sqrt(self._variance(np.clip(raw, -1.0, 1.0), reports, corrected=corrected))
        inside = np.clip(raw, -1.0, 1.0)
        nothing = np.full(self.keys, np.nan)
        low, high = (np.clip(raw + sign * _Z95 * error, -1.0, 1.0) for sign in (-1, 1))
        return Estimates(
            n=counts.n,
            frequency=nothing,
            frequency_se=nothing,
            frequency_low=nothing,
            frequency_high=nothing,
            frequency_raw=nothing,
            mean=inside if corrected else raw,
            mean_se=np.where(np.isnan(raw), np.nan, error),
            mean_low=low,
            mean_high=high,
            mean_raw=raw,
            support={"n1": positive, "n2": negative},
            flags={
                "no-reports": np.full(self.keys, counts.n == 0),
                "few-holders": (positive + negative < _FEW) & (counts.n > 0),
                "clipped": (inside != raw) & ~np.isnan(raw) & corrected,
            },
        )


class Harmony(MeanMechanism):
    """Harmony: one coordinate, drawn uniformly, and the noisy sign of its discretised value.

    Privacy:
        epsilon-LDP for the whole vector: the coordinate is drawn without it, the sign is randomised response.

    Source:
        Nguyen et al., arXiv 1606.05053, algorithm 1.
    """

    name: ClassVar[str] = "harmony"
    keys_max: ClassVar[int] = 1_000_000

    _kept: int

    def _prepare(self) -> None:
        object.__setattr__(self, "_kept", sign_threshold(self.epsilon))

    @property
    def gain(self) -> Fraction:
        """2 p - 1 for a sign that is kept with probability p."""
        return Fraction(2 * self._kept - WORDS, WORDS)

    def parameters(self) -> Mapping[str, float]:
        """Probability p of keeping the sign, and the factor that undoes its noise."""
        return {"p": self._kept / WORDS, "scale": float(self.keys / self.gain)}

    def thresholds(self) -> Mapping[str, int]:
        """Threshold of 2^64 below which the sign is kept, and the number of coordinates."""
        return {"kept": self._kept, "coordinates": self.keys}

    def exact_epsilon(self) -> float:
        """The loss over every pair of vectors and every report, rounded up; coordinates are drawn alike for all."""
        return log_up(sign_ratio(self._kept))

    def layout(self) -> tuple[Field, ...]:
        """`key`: the coordinate; `sign`: 1 or -1."""
        return Field(name="key", dtype="int32"), Field(name="sign", dtype="int8")

    def perturb(self, records: Records, stream: Stream) -> Reports:
        """Perturb a batch: one report a user.

        Args:
            records: canonical records with values; a missing coordinate counts as 0.
            stream: random bits of the collection.

        Returns:
            `key`, int32 (n,), and `sign`, int8 (n,).

        Privacy:
            epsilon-LDP for the whole vector; see the class.
        """
        key, sign = np.empty(records.n, dtype=np.int32), np.empty(records.n, dtype=np.int8)
        for rows, part, _, blocks, _ in self._chunks(records, stream, 16_384):
            key[rows] = mulhi(blocks[0, :, 0], self.keys)
            positive = positive_with_value(blocks[1, :, 0], values_at(part, key[rows]))
            positive ^= blocks[0, :, 1] >= np.uint64(self._kept)
            sign[rows] = 2 * positive.astype(np.int8) - 1
        return Reports(n=records.n, arrays={"key": key, "sign": sign})

    def _plausible(self, reports: Reports) -> Bool:
        key, sign = (np.asarray(reports.arrays[name]) for name in ("key", "sign"))
        good: Bool = (key >= 0) & (key < self.keys) & ((sign == 1) | (sign == -1))
        return good

    def count(self, reports: Reports, into: Counts | None = None) -> Counts:
        """Count the positive and negative signs of every coordinate.

        Args:
            reports: valid reports.
            into: a counter of the caller's own, updated in place.
        """
        total = self.zero() if into is None else into
        key = np.asarray(reports.arrays["key"], dtype=np.int64)
        place = key * 2 + (np.asarray(reports.arrays["sign"], dtype=np.int8) > 0)
        found = np.bincount(place, minlength=2 * self.keys)
        total.cells["n1"][...] += found[1::2]
        total.cells["n2"][...] += found[0::2]
        return Counts(n=total.n + reports.n, cells=total.cells)

    @property
    def _share(self) -> float:
        return 1.0 / self.keys

    def _divisors(self, counts: Counts, *, corrected: bool) -> F64:
        if corrected:
            return (counts.cells["n1"] + counts.cells["n2"]).astype(np.float64)
        return np.full(self.keys, counts.n / self.keys)

    def _variance(self, mean: npt.ArrayLike, reports: npt.ArrayLike, *, corrected: bool) -> F64:
        # Dividing by the expected number of reports adds its own variance.
        lost = np.square(mean) / (1.0 if corrected else self.keys)
        variance: F64 = (float(1 / self.gain**2) - lost) / np.asarray(reports, dtype=np.float64)
        return variance
