"""What the utility-optimised mechanisms share: an obfuscation of symbols, and the mechanism around it.

A *core* obfuscates one symbol a user. `URR` and `URAP` put a core around the keys themselves; `PUM` around the keys and
the tags that people give to what is sensitive to them.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from decimal import Decimal
from fractions import Fraction
from typing import ClassVar, Final

import numpy as np

from ...errors import ParameterError, did_you_mean
from ..categorical.base import has_layout, whole
from ..categorical.estimation import Supports, estimate_shares
from ..chunks import chunks
from ..data import F64, I32, I64, Bool, Counts, Estimates, Field, Prediction, Records, Reports
from ..pckv.sampling import check_records
from ..probability import EXACT, WORDS, log_up, parse_epsilon
from ..protocol import Mechanism
from ..randomness import U64, BlockSource, Stream
from .definition import SymbolSets, draw_symbols, sensitive_symbols, uldp_ratio
from .theory import Losses, expected_losses

__all__ = [
    "KEYS_MAX",
    "Core",
    "UtilityOptimised",
    "count_symbols",
    "parse_theta",
    "perturb_symbols",
    "threshold_share",
]

#: Largest number of symbols.
KEYS_MAX: Final = 1_000_000
#: A user's own blocks: item and silent draw; fate of the symbol and the other symbol.
_OWN_BLOCKS: Final = 2
#: Users that are perturbed together, and bytes of a plane of theirs: enough to hide the calls, small enough to cache.
_CHUNK_USERS: Final = 16_384
_PLANE_BYTES: Final = 1 << 18


class Core(ABC):
    """The obfuscation of one symbol of `sets` a user, by integer thresholds.

    Privacy:
        (sensitive symbols, protected outputs, epsilon)-ULDP as `mechanisms.uldp.definition` has it; `channel` gives the
        exact probabilities of a domain that is as bad as any.
    """

    sets: SymbolSets
    #: Names of the estimators, the default first.
    estimators: ClassVar[tuple[str, ...]]

    @abstractmethod
    def thresholds(self) -> Mapping[str, int]:
        """Integer thresholds that decide every random choice."""

    @abstractmethod
    def parameters(self) -> Mapping[str, float]:
        """The letters of the paper as floats."""

    @abstractmethod
    def channel(self) -> tuple[list[dict[object, Fraction]], list[int], list[object]]:
        """The exact law over at most two symbols of each kind; which inputs are sensitive, which outputs protected.

        What is left out has the same factor under every input, so the largest ratio is that of the whole domain.
        """

    @abstractmethod
    def layout(self) -> tuple[Field, ...]:
        """Arrays of a report."""

    @abstractmethod
    def obfuscate(self, symbols: I32, seeds: U64, words: U64, source: BlockSource, out: Reports) -> None:
        """Write the reports of the symbols, int32 (n,), to rows of `out`; `words` are two uniform words a user."""

    @abstractmethod
    def empty(self, n: int) -> Reports:
        """Room for n reports."""

    @abstractmethod
    def valid(self, reports: Reports) -> Bool:
        """Which reports, of the right types and shapes, an input can have caused."""

    @abstractmethod
    def add(self, reports: Reports, counts: I64) -> None:
        """Add the supporters of every symbol to int64 (size,)."""

    @abstractmethod
    def supports(self, n: int, counts: I64) -> Supports:
        """Counts with the probabilities behind them."""

    @abstractmethod
    def covariance(self, supports: Supports, shares: F64) -> tuple[F64, F64]:
        """Return v and a with Cov(estimated shares) = diag(v) - a a' / n if the true ones are `shares`."""

    @property
    def row_words(self) -> int:
        """Words of a row of bits that a user needs while she is perturbed."""
        return 1

    def exact_epsilon(self) -> float:
        """Check both conditions of the definition on the exact law, and return its epsilon, rounded up."""
        return log_up(uldp_ratio(*self.channel()))


def parse_theta(theta: Decimal | float | str | None) -> Decimal | None:
    """Return the probability that a set sensitive bit stays set, exact; None stands for the default.

    Raises:
        ParameterError: unless it is a number between 0 and 1.
    """
    if theta is None:
        return None
    try:
        if isinstance(theta, bool):
            raise ArithmeticError
        value = Decimal(repr(theta) if isinstance(theta, float) else theta)
        inside = Decimal("1e-9") <= value <= 1 - Decimal("1e-9")
    except (ArithmeticError, TypeError, ValueError):
        inside = False
    if not inside:
        raise ParameterError(
            f"theta is {theta!r}, but must be a number between 0 and 1 (1e-9 away from both): the probability that a "
            "sensitive bit that is set stays set. Leave it out for the default, e^(epsilon/2) / (e^(epsilon/2) + 1)."
        )
    return value


def perturb_symbols(
    core: Core, records: Records, stream: Stream, symbols_of: Callable[[Records], I32], keys: int
) -> Reports:
    """Draw each record's symbol and obfuscate it, in parts that fit the cache.

    Args:
        core: the obfuscation.
        records: canonical records.
        stream: random bits of the collection.
        symbols_of: gives the symbol of every item, -1 for one that must not be told.
        keys: size of the key domain.
    """
    check_records(records, keys, has_values=False)
    reports = core.empty(records.n)
    size = max(64, min(_CHUNK_USERS, _PLANE_BYTES // (8 * core.row_words)))
    for rows, part, seeds, blocks, source in chunks(records, stream, size=size, own_blocks=_OWN_BLOCKS):
        symbols = draw_symbols(part, symbols_of(part), core.sets, blocks[0])
        out = Reports(n=part.n, arrays={name: array[rows] for name, array in reports.arrays.items()})
        core.obfuscate(symbols, seeds, blocks[1], source, out)
    return reports


def count_symbols(core: Core, reports: Reports, total: Counts) -> Counts:
    """Add valid reports to a counter, in place."""
    core.add(reports, total.cells["supports"])
    return Counts(n=total.n + reports.n, cells=total.cells)


def threshold_share(threshold: int) -> float:
    """Return threshold / 2^64, rounded once."""
    return float(EXACT.divide(Decimal(threshold), Decimal(WORDS)))


@dataclass(frozen=True, kw_only=True, init=False)
class UtilityOptimised(Mechanism):
    """A core around the keys: what `URR` and `URAP` share.

    Attributes:
        epsilon: privacy budget of one report.
        keys: number of keys of the domain.
        sensitive: indices of the sensitive keys, increasing.
    """

    has_values: ClassVar[bool] = False
    #: Smallest and largest domain.
    keys_min: ClassVar[int] = 2
    keys_max: ClassVar[int] = KEYS_MAX

    epsilon: Decimal
    keys: int
    sensitive: tuple[int, ...]
    _core: Core = field(init=False, repr=False, compare=False)

    def _prepare(self, epsilon: Decimal | int | float | str, keys: int, sensitive: object) -> SymbolSets:
        """Set the fields that both have, and return the sets of symbols."""
        object.__setattr__(self, "epsilon", parse_epsilon(epsilon))
        object.__setattr__(self, "keys", whole(self.name, "keys", keys, self.keys_min, self.keys_max))
        object.__setattr__(self, "sensitive", sensitive_symbols(self.name, sensitive, self.keys))
        return SymbolSets.of(self.keys, self.sensitive)

    # -- both sides -------------------------------------------------------------------------------------

    def thresholds(self) -> Mapping[str, int]:
        """Thresholds of 2^64 for every random choice, and the number of sensitive keys."""
        return self._core.thresholds()

    def parameters(self) -> Mapping[str, float]:
        """The letters of the paper as floats, and the number of sensitive keys."""
        return self._core.parameters()

    def exact_epsilon(self) -> float:
        """The epsilon of the ULDP definition, whose two conditions are checked on the exact law; rounded up."""
        return self._core.exact_epsilon()

    def layout(self) -> tuple[Field, ...]:
        """Arrays of a report, alike for sensitive and other keys."""
        return self._core.layout()

    def expected_losses(self, distribution: F64, users: int) -> Losses:
        """Predict the losses of the empirical estimates.

        Args:
            distribution: share of each key, float64 (keys,); adds up to 1.
            users: number of users.

        Source:
            Murakami and Kawamoto, section 4.3; here from the variances themselves, so for any theta.
        """
        supports = self._core.supports(users, np.zeros(self.keys, dtype=np.int64))
        return expected_losses(supports, distribution)

    def predict(self, *, frequency: float, users: int, mean: float = 0.0, sensitive: bool = True) -> Prediction:
        """Predict the standard error of a key's share.

        Args:
            frequency: true share.
            users: number of users.
            mean: not used, keys have no values.
            sensitive: whether the key is a sensitive one.
        """
        error = self._core.supports(users, np.zeros(self.keys, dtype=np.int64)).error(frequency)
        which = (self._core.sets.place >= 0) == sensitive
        return Prediction(
            frequency_se=float(error[which][0]) if which.any() else np.nan, mean_se=np.nan, mean_bias=np.nan
        )

    # -- client -----------------------------------------------------------------------------------------

    def perturb(self, records: Records, stream: Stream) -> Reports:
        """Perturb a batch: one report a user, about the symbol that `mechanisms.uldp.definition` draws from her record.

        Args:
            records: canonical records; keys strictly increasing within a user. Values and tags are not looked at.
            stream: random bits of the collection.

        Privacy:
            See the class.
        """
        return perturb_symbols(self._core, records, stream, lambda part: part.keys, self.keys)

    # -- server -----------------------------------------------------------------------------------------

    def valid(self, reports: Reports) -> Bool:
        """Which reports this mechanism can have produced; none if a type or shape is wrong."""
        if not has_layout(self, reports):
            return np.zeros(reports.n, dtype=np.bool_)
        return self._core.valid(reports)

    def zero(self) -> Counts:
        """Counts of no reports: the supporters of every key."""
        return Counts(n=0, cells={"supports": np.zeros(self.keys, dtype=np.int64)})

    def count(self, reports: Reports, into: Counts | None = None) -> Counts:
        """Count the supporters of every key; `into` is a counter of the caller's own, updated in place."""
        return count_symbols(self._core, reports, self.zero() if into is None else into)

    def estimate(self, counts: Counts, estimator: str | None = None) -> Estimates:
        """Estimate every key's share, with standard errors and intervals of the unbiased figures.

        Args:
            counts: counts of this mechanism.
            estimator: one of `estimators`, "empirical" by default; see `mechanisms.categorical.estimation`.

        Raises:
            ParameterError: for an unknown estimator.
        """
        name = self.estimators[0] if estimator is None else estimator
        if name not in self.estimators:
            raise ParameterError(f"estimator is {name!r}. {did_you_mean(str(name), self.estimators)}")
        held = counts.cells["supports"]
        return estimate_shares(self._core.supports(counts.n, held), name, {"supports": held})
