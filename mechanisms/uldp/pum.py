"""PUM, the personalised utility-optimised mechanism: what is sensitive differs from person to person.

Everybody tags what is sensitive to her ("home", "workplace") with one of a few public tags. A user's preprocessor,
which never leaves her client, turns a tagged key into the tag and leaves other keys alone; the result goes through uRR
or uRAP over keys and tags, where all tags are sensitive, and with them the keys that are sensitive to everybody.

Source:
    Murakami, Kawamoto: Utility-Optimized Local Differential Privacy Mechanisms for Distribution Estimation, USENIX
    Security 2019, section 5.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from decimal import Decimal
from typing import ClassVar, Final

import numpy as np

from ...errors import ParameterError, did_you_mean
from ..categorical.base import has_layout, whole
from ..categorical.estimation import COMPOSITE_ESTIMATORS, SINGLE_ESTIMATORS, Supports, adjusted, estimate_shares
from ..data import F64, I32, Bool, Counts, Estimates, Field, Prediction, Records, Reports
from ..probability import parse_epsilon
from ..protocol import Mechanism
from ..randomness import Stream
from .core import KEYS_MAX, Core, count_symbols, parse_theta, perturb_symbols
from .definition import SymbolSets, expected_symbols, sensitive_symbols
from .pum_estimation import DROP, Background, BoundTerms, bound_terms, parse_background
from .urap import BitsCore
from .urr import ResponseCore

__all__ = ["PUM", "TAGS_MAX"]

#: Most tags: each costs accuracy.
TAGS_MAX: Final = 1_000
_BASES: Final = ("urr", "urap")
_Z95: Final = 1.959963984540054


@dataclass(frozen=True, kw_only=True, init=False)
class PUM(Mechanism):
    """Personalised ULDP with semantic tags: shares of keys of which each user hides her own sensitive ones.

    Attributes:
        epsilon: privacy budget of one report.
        keys: number of keys of the domain.
        tags: names of the tags.
        sensitive: indices of the keys that are sensitive to everybody, increasing; may be none.
        base: "urr" or "urap", the obfuscation of keys and tags.
        theta: see `URAP`; None unless base is "urap".
        background: what the server assumes of the keys behind the tags: (tag, key, probability), numbers from 0, for
            some of the tags, the others being spread in proportion; "proportional"; or "drop".

    Privacy:
        (sensitive keys and tags, protected reports, epsilon)-ULDP for the whole record: whoever tells of a key that is
        sensitive to her, or to everybody, enjoys epsilon-LDP, also for what is sensitive to her; whoever does not may
        reveal one of her keys, and that she considers it not sensitive.

    Source:
        Murakami and Kawamoto, section 5.
    """

    name: ClassVar[str] = "pum"
    has_values: ClassVar[bool] = False
    #: Those of both bases; an instance has those of its own.
    estimators: ClassVar[tuple[str, ...]] = tuple(dict.fromkeys(SINGLE_ESTIMATORS + COMPOSITE_ESTIMATORS))

    epsilon: Decimal
    keys: int
    tags: tuple[str, ...]
    sensitive: tuple[int, ...]
    base: str
    theta: Decimal | None
    background: tuple[tuple[int, int, float], ...] | str
    _core: Core = field(init=False, repr=False, compare=False)
    _background: Background = field(init=False, repr=False, compare=False)

    def __init__(
        self,
        *,
        epsilon: Decimal | int | float | str,
        keys: int,
        tags: Sequence[str],
        sensitive: Sequence[int],
        base: str = "urr",
        theta: Decimal | float | str | None = None,
        background: Sequence[tuple[int, int, float]] | str = DROP,
    ) -> None:
        """Check the parameters and compute the thresholds.

        Args:
            epsilon: privacy budget of one report, in [0.001, 20].
            keys: number of keys of the domain.
            tags: names of the tags, at least one.
            sensitive: indices of the keys that are sensitive to everybody; may be empty.
            base: "urr" or "urap".
            theta: probability that the own bit of a sensitive symbol is set, for base "urap" alone.
            background: (tag, key, probability), "proportional" or "drop" (default). Only the server uses it.

        Raises:
            ParameterError: for a parameter outside what is allowed.
        """
        if base not in _BASES:
            raise ParameterError(f"base of pum is {base!r}. {did_you_mean(str(base), _BASES)}")
        if theta is not None and base != "urap":
            raise ParameterError(f"theta of pum is {theta!r}, but base is {base!r}; only urap has a theta.")
        size = whole(self.name, "keys", keys, 1, KEYS_MAX)
        fields = {
            "epsilon": parse_epsilon(epsilon),
            "keys": size,
            "tags": _tag_names(tags),
            "sensitive": sensitive_symbols(self.name, sensitive, size, may_be_empty=True),
            "base": base,
            "theta": parse_theta(theta),
            "background": parse_background(background, len(tags), size),
        }
        for name, value in fields.items():
            object.__setattr__(self, name, value)
        own = [*self.sensitive, *range(size, size + len(self.tags))]
        sets = SymbolSets.of(size + len(self.tags), own)
        core = ResponseCore(sets, self.epsilon) if base == "urr" else BitsCore(sets, self.epsilon, self.theta)
        object.__setattr__(self, "_core", core)
        object.__setattr__(self, "estimators", core.estimators)
        spread = Background.of(self.background, tags=len(self.tags), keys=size, sensitive=self.sensitive)
        object.__setattr__(self, "_background", spread)

    # -- both sides -------------------------------------------------------------------------------------

    def thresholds(self) -> Mapping[str, int]:
        """Thresholds of 2^64 of the base, and the number of its sensitive symbols, tags included."""
        return self._core.thresholds()

    def parameters(self) -> Mapping[str, float]:
        """The letters of the base as floats, and the number of its sensitive symbols, tags included."""
        return self._core.parameters()

    def exact_epsilon(self) -> float:
        """The epsilon of the ULDP definition, whose two conditions are checked on the base's exact law; rounded up."""
        return self._core.exact_epsilon()

    def layout(self) -> tuple[Field, ...]:
        """Arrays of a report of the base; symbol `keys` + k stands for tag number k, counted from 0."""
        return self._core.layout()

    def predict(self, *, frequency: float, users: int, mean: float = 0.0, sensitive: bool = False) -> Prediction:
        """Predict the standard error of the share of users who hold a key without a tag, or (`sensitive`) of a tag.

        Args:
            frequency: true share.
            users: number of users.
            mean: not used, keys have no values.
            sensitive: whether it is the share of a tag, or of a key that is sensitive to everybody.
        """
        error = self._supports(self.zero(), users).error(frequency)
        which = (self._core.sets.place >= 0) == sensitive
        return Prediction(
            frequency_se=float(error[which][0]) if which.any() else np.nan, mean_se=np.nan, mean_bias=np.nan
        )

    # -- client -----------------------------------------------------------------------------------------

    def perturb(self, records: Records, stream: Stream) -> Reports:
        """Preprocess and perturb a batch: one report a user.

        Args:
            records: canonical records with tags: 0 for a key that is not sensitive to its user, 1 to the number of tags
                otherwise, -1 for a sensitive key without a tag, which makes the report tell of a random symbol.
            stream: random bits of the collection.

        Raises:
            ValueError: for records without tags, or a tag that does not exist.

        Privacy:
            See the class.
        """
        return perturb_symbols(self._core, records, stream, self._symbols, self.keys)

    def _symbols(self, records: Records) -> I32:
        """The preprocessor: the symbol of every item, int32 (m,)."""
        tags = records.tags
        if tags is None:
            raise ValueError("records of a personalised collection need tags; without them nothing would be hidden")
        if len(tags) and (int(tags.min()) < -1 or int(tags.max()) > len(self.tags)):
            raise ValueError(f"tags must lie in -1 to {len(self.tags)}, not {int(tags.min())} to {int(tags.max())}")
        tagged = np.where(tags > 0, tags.astype(np.int32) + np.int32(self.keys - 1), records.keys)
        return np.where(tags < 0, np.int32(-1), tagged).astype(np.int32)

    def true_shares(self, records: Records) -> tuple[F64, F64]:
        """Sum up what the users of a batch tell of, for comparisons with estimates. Client side only.

        Args:
            records: canonical records with tags.

        Returns:
            Users by tag (row 0: no tag) and key, float64 (tags + 1, keys); and users who tell of a symbol that they do
            not hold, because they hold none, by symbol, float64 (keys + tags,). Of a user with several items each
            counts by its chance to be told.
        """
        tags = records.tags
        symbols = self._symbols(records)
        assert tags is not None  # `_symbols` refuses them
        weight, silent = expected_symbols(records, symbols, self._core.sets)
        joint = np.zeros((len(self.tags) + 1, self.keys))
        np.add.at(joint, (np.maximum(tags, 0), records.keys), weight)
        untold = np.zeros(self._core.sets.size)
        untold[self._core.sets.sensitive] = silent.sum() / self._core.sets.number
        return joint, untold

    # -- server -----------------------------------------------------------------------------------------

    def valid(self, reports: Reports) -> Bool:
        """Which reports this mechanism can have produced; none if a type or shape is wrong."""
        if not has_layout(self, reports):
            return np.zeros(reports.n, dtype=np.bool_)
        return self._core.valid(reports)

    def zero(self) -> Counts:
        """Counts of no reports: the supporters of every key, and behind them of every tag."""
        return Counts(n=0, cells={"supports": np.zeros(self._core.sets.size, dtype=np.int64)})

    def count(self, reports: Reports, into: Counts | None = None) -> Counts:
        """Count the supporters of every key and tag; `into` is a counter of the caller's own, updated in place."""
        return count_symbols(self._core, reports, self.zero() if into is None else into)

    def _supports(self, counts: Counts, n: int) -> Supports:
        return self._core.supports(n, counts.cells["supports"])

    def symbol_shares(self, counts: Counts, estimator: str | None = None) -> F64:
        """Estimate the shares of keys without a tag and, behind them, of tags: float64 (keys + tags,).

        Raises:
            ParameterError: for an unknown estimator.
        """
        return adjusted(self._supports(counts, counts.n), self._estimator(estimator))

    def _estimator(self, given: str | None) -> str:
        name = self.estimators[0] if given is None else given
        if name not in self.estimators:
            raise ParameterError(
                f"estimator is {name!r}; with base {self.base!r} it must be one of {', '.join(self.estimators)}."
            )
        return name

    def estimate(self, counts: Counts, estimator: str | None = None) -> Estimates:
        """Estimate every key's share, the mass of the tags being spread by the background knowledge.

        Args:
            counts: counts of this mechanism.
            estimator: of keys and tags; one of `estimators`, "empirical" by default.

        Returns:
            Estimates whose standard errors, by the delta method, take the background knowledge for true. Flag
            "few-holders" speaks of users who hold the key without a tag.

        Raises:
            ParameterError: for an unknown estimator.
        """
        name = self._estimator(estimator)
        supports = self._supports(counts, counts.n)
        symbols = estimate_shares(supports, name, {"supports": counts.cells["supports"]})
        first = slice(0, self.keys)
        support = {"supports": counts.cells["supports"][first]}
        flags = {flag: where[first] for flag, where in symbols.flags.items()}
        if counts.n == 0:
            nothing = symbols.frequency[first]
            return Estimates(
                n=0,
                frequency=nothing,
                frequency_se=nothing,
                frequency_low=nothing,
                frequency_high=nothing,
                frequency_raw=nothing,
                support=support,
                flags=flags,
            )
        raw = self._background.spread(symbols.frequency_raw)
        shares = np.clip(symbols.frequency_raw, 0.0, 1.0)
        error = self._background.errors(shares, *self._core.covariance(supports, shares), counts.n)
        return Estimates(
            n=counts.n,
            frequency=self._background.spread(symbols.frequency),
            frequency_se=error,
            frequency_low=np.clip(raw - _Z95 * error, 0.0, 1.0),
            frequency_high=np.clip(raw + _Z95 * error, 0.0, 1.0),
            frequency_raw=raw,
            support=support,
            flags=flags,
        )

    def bound_terms(self, counts: Counts, joint: F64, untold: F64, estimator: str | None = None) -> BoundTerms:
        """Both terms of theorem 1 for these counts, where the truth is known.

        Args:
            counts: counts of this mechanism, at least one report.
            joint: `true_shares` of all users divided by their number.
            untold: likewise.
            estimator: as for `estimate`.

        Source:
            Murakami and Kawamoto, theorem 1.
        """
        return bound_terms(self._background, self.symbol_shares(counts, estimator), joint, untold)


def _tag_names(given: object) -> tuple[str, ...]:
    if isinstance(given, str) or not isinstance(given, Sequence) or not 1 <= len(given) <= TAGS_MAX:
        raise ParameterError(f"tags of pum is {given!r}, but must be a list of 1 to {TAGS_MAX:,} names.")
    for name in given:
        if not isinstance(name, str) or not name:
            raise ParameterError(f"tags of pum holds {name!r}, but every tag must be a text of at least one character.")
    if len(set(given)) != len(given):
        raise ParameterError("tags of pum names a tag twice; list every tag once.")
    return tuple(given)
