"""Frequency oracles: what all mechanisms share that estimate how many users hold each symbol of a domain.

One-item mechanisms ask each user for one symbol. A record with several keys gives one of them, drawn uniformly by the
user's own bits; a record without any gives a symbol drawn uniformly from the whole domain. So everybody sends a report
of one size, and the guarantee holds for every record: the law of a report is a mixture of those of single symbols.
The price is a bias: with a share e of empty records each share f appears as (1 - e) f + e / d. Where many users may
have nothing to tell, declare a key for that.

Item-set mechanisms (padding and sampling) draw one slot of the record padded to a length with dummies, and multiply
by that length.
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
from ..chunks import chunks
from ..data import F64, I32, I64, Bool, Counts, Estimates, Prediction, Records, Reports
from ..pckv.sampling import check_records
from ..probability import WORDS, parse_epsilon
from ..protocol import Mechanism
from ..randomness import U64, BlockSource, Stream, mulhi
from .estimation import COMPOSITE_ESTIMATORS, SET_ESTIMATORS, Supports, estimate_shares, joint_em

__all__ = ["FrequencyOracle", "SetOracle", "draw_share", "has_layout", "sample_padded", "sample_symbol", "whole"]

#: Users that are perturbed together.
CHUNK_USERS: Final = 65_536
#: Largest padding length.
PADDING_MAX: Final = 10_000


def whole(name: str, what: str, given: object, least: int, largest: int, advice: str = "") -> int:
    """Return a parameter that is a whole number.

    Raises:
        ParameterError: unless it lies between `least` and `largest`.
    """
    if isinstance(given, bool) or not isinstance(given, int | np.integer) or not least <= given <= largest:
        span = str(least) if least == largest else f"a whole number from {least} to {largest:,}"
        raise ParameterError(f"{what} of {name} is {given!r}, but must be {span}.{advice}")
    return int(given)


def sample_symbol(records: Records, keys: int, words: U64) -> I32:
    """Draw one symbol a user: one of the record's keys, or any symbol where the record is empty.

    Args:
        records: canonical records.
        keys: size of the domain.
        words: uniform words, (n,).

    Returns:
        int32 (n,).
    """
    if records.one_each:
        return records.keys
    sizes = records.sizes
    empty = sizes == 0
    slot = mulhi(words, np.where(empty, keys, sizes)).view(np.int64)
    symbol = slot.astype(np.int32)
    held = ~empty
    symbol[held] = records.keys[slot[held] + records.offsets[:-1][held]]
    return symbol


def sample_padded(records: Records, padding: int, words: U64) -> tuple[I32, Bool]:
    """Draw one slot of each record, padded to a length with dummies.

    Args:
        records: canonical records.
        padding: length to which short records are padded; of longer ones one key is drawn all the same.
        words: uniform words, (n,).

    Returns:
        The key, int32 (n,), any number where a dummy was drawn, and whether it is real, bool (n,).
    """
    sizes = records.sizes
    slot = mulhi(words, np.maximum(sizes, padding)).view(np.int64)
    real = slot < sizes
    if not len(records.keys):
        return np.zeros(records.n, dtype=np.int32), real
    slot += records.offsets[:-1]
    slot[~real] = 0
    return records.keys[slot], real


def draw_share(bound: int) -> tuple[Fraction, Fraction]:
    """Return the smallest and the largest probability of an outcome of a uniform draw of `bound` integers."""
    return Fraction(WORDS // bound, WORDS), Fraction(-(-WORDS // bound), WORDS)


def has_layout(mechanism: Mechanism, reports: Reports) -> bool:
    """Whether the arrays of the mechanism's reports are there with their types and shapes."""
    return all(
        part.name in reports.arrays
        and reports.arrays[part.name].dtype == np.dtype(part.dtype)
        and reports.arrays[part.name].shape == part.shape(reports.n)
        for part in mechanism.layout()
    )


@dataclass(frozen=True, kw_only=True, init=False)
class FrequencyOracle(Mechanism):
    """A mechanism for one symbol a user over a declared domain.

    Attributes:
        epsilon: privacy budget of one report.
        keys: number of symbols.
    """

    has_values: ClassVar[bool] = False
    estimators: ClassVar[tuple[str, ...]] = COMPOSITE_ESTIMATORS
    #: Smallest and largest domain.
    keys_min: ClassVar[int] = 2
    keys_max: ClassVar[int]
    #: Blocks of random bits that are drawn once a user.
    own_blocks: ClassVar[int] = 2

    epsilon: Decimal
    keys: int

    def __init__(self, *, epsilon: Decimal | int | float | str, keys: int) -> None:
        """Check the parameters and compute the thresholds.

        Args:
            epsilon: privacy budget of one report, in [0.001, 20]; a float stands for its shortest text.
            keys: number of symbols of the domain.

        Raises:
            ParameterError: for a parameter outside what is allowed.
        """
        object.__setattr__(self, "epsilon", parse_epsilon(epsilon))
        object.__setattr__(self, "keys", whole(self.name, "keys", keys, self.keys_min, self.keys_max, self._advice()))
        self._prepare()

    @classmethod
    def _advice(cls) -> str:
        return ""

    @abstractmethod
    def _prepare(self) -> None:
        """Compute the thresholds and set them as attributes."""

    # -- the law ----------------------------------------------------------------------------------------

    @property
    @abstractmethod
    def own(self) -> Fraction:
        """Probability that a report supports the symbol that was drawn."""

    @property
    @abstractmethod
    def other(self) -> Fraction:
        """Probability that a report supports a given other symbol."""

    @property
    def scale(self) -> int:
        """Padding length of item sets, 1 for single symbols."""
        return 1

    def parameters(self) -> Mapping[str, float]:
        """Probabilities p and q that a report supports the drawn symbol and a given other one."""
        return {"p": float(self.own), "q": float(self.other)}

    def predict(self, *, frequency: float, users: int, mean: float = 0.0) -> Prediction:
        """Predict the standard error of a symbol's share; `mean` is not used.

        Args:
            frequency: true share.
            users: number of users.
            mean: ignored.
        """
        supports = self._supports(np.zeros(1, dtype=np.int64), users)
        return Prediction(frequency_se=float(supports.error(frequency)[0]), mean_se=np.nan, mean_bias=np.nan)

    # -- client -----------------------------------------------------------------------------------------

    def _chunks(
        self, records: Records, stream: Stream, size: int = CHUNK_USERS, own_blocks: int | None = None
    ) -> Iterator[tuple[slice, Records, U64, U64, BlockSource]]:
        """Yield rows, records, seeds, own blocks and block function of parts of the batch."""
        check_records(records, self.keys, has_values=False)
        yield from chunks(records, stream, size=size, own_blocks=own_blocks or self.own_blocks)

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
        """Counts of no reports: supporters of every symbol."""
        return Counts(n=0, cells={"supports": np.zeros(self.keys, dtype=np.int64)})

    def supporters(self, counts: Counts) -> I64:
        """Return how many reports support each symbol, int64 (keys,)."""
        return counts.cells["supports"]

    @abstractmethod
    def supported(self, reports: Reports) -> Bool:
        """Return which symbols each report supports, bool (n, keys): what `joint_em` takes."""

    def likelihoods(self) -> tuple[float, float]:
        """Return a report's likelihood for a symbol that it supports and for another, up to a common factor."""
        return float(self.own / self.other), float((1 - self.own) / (1 - self.other))

    def joint_shares(self, reports: Reports, *, iterations: int = 10_000, tolerance: float = 1e-9) -> F64:
        """The joint EM estimate, which needs the reports and not only their counts.

        Args:
            reports: all valid reports of the collection.
            iterations: largest number of iterations.
            tolerance: stop when no share changes by more in one iteration.

        Returns:
            Shares that add up to 1, float64 (keys,).

        Raises:
            ParameterError: The users hold sets, whose shares do not add up to 1.
        """
        if self.scale != 1:
            raise ParameterError(f"{self.name} asks about sets; the joint EM estimate is one of single symbols.")
        return joint_em(self.supported(reports), *self.likelihoods(), iterations=iterations, tolerance=tolerance)

    def _supports(self, supporters: I64, n: int) -> Supports:
        return Supports.alike(n, supporters, float(self.own), float(self.other), scale=float(self.scale))

    def estimate(self, counts: Counts, estimator: str | None = None) -> Estimates:
        """Estimate every symbol's share.

        Args:
            counts: counts of this mechanism.
            estimator: one of `estimators`; see `estimation`.

        Raises:
            ParameterError: for an unknown estimator.
        """
        name = self.estimators[0] if estimator is None else estimator
        if name not in self.estimators:
            raise ParameterError(f"estimator is {name!r}. {did_you_mean(str(name), self.estimators)}")
        supporters = self.supporters(counts)
        return estimate_shares(self._supports(supporters, counts.n), name, {"supports": supporters})


@dataclass(frozen=True, kw_only=True, init=False)
class SetOracle(FrequencyOracle):
    """A mechanism for sets of items: one slot of the padded set goes through a frequency oracle.

    Attributes:
        epsilon: privacy budget of one report.
        keys: number of items of the domain.
        padding: sets of fewer items are padded with dummies to this length; of larger ones one item is drawn
            uniformly all the same, but then shares are underestimated.

    Source:
        Wang, Li, Jha: Locally Differentially Private Frequent Itemset Mining, IEEE S&P 2018.
    """

    estimators: ClassVar[tuple[str, ...]] = SET_ESTIMATORS
    keys_min: ClassVar[int] = 1

    padding: int

    def __init__(self, *, epsilon: Decimal | int | float | str, keys: int, padding: int) -> None:
        """Check the parameters and compute the thresholds.

        Args:
            epsilon: privacy budget of one report, in [0.001, 20].
            keys: number of items of the domain.
            padding: padding length, about the number of items that most people hold at most.

        Raises:
            ParameterError: for a parameter outside what is allowed.
        """
        object.__setattr__(self, "padding", whole(self.name, "padding", padding, 1, PADDING_MAX))
        super().__init__(epsilon=epsilon, keys=keys)

    @property
    def scale(self) -> int:
        """Padding length."""
        return self.padding
