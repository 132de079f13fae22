"""PCKV-UE and PCKV-GRR: frequencies and means of key-value data from one report a user.

Source:
    Gu, Li, Cheng, Xiong, Cao: PCKV: Locally Differentially Private Correlated Key-Value Data Collection with
    Optimized Utility, USENIX Security 2020.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from decimal import Decimal
from typing import ClassVar, Final

import numpy as np
import numpy.typing as npt

from ...errors import ParameterError, did_you_mean
from .. import compiled
from ..chunks import chunks
from ..data import Bool, Counts, Estimates, Field, Prediction, Records, Reports
from ..probability import log_up, parse_epsilon
from ..protocol import Mechanism
from ..randomness import U64, BlockSource, Stream, mulhi
from ..unary import cell_noise, column_sums, row_words, set_cells, wide_rows
from . import consistency, empirical_bayes
from .budget import NUMERICAL, Law, check_allocation, grr_law, grr_ratio, ue_law, ue_law_of_share, ue_ratio
from .estimation import estimate
from .numerical import Prior, best_share
from .sampling import Sample, check_records, has_no_choice, sample
from .theory import Probabilities, factors, frequency_variance, mean_bias, mean_variance

__all__ = ["PADDING_MAX", "PCKV", "PCKVGRR", "PCKVUE"]

#: Largest padding length.
PADDING_MAX: Final = 10_000
_UE_KEYS: Final = 100_000
_GRR_KEYS: Final = 1_000_000
#: Users that are sampled together, and bytes of a plane of theirs: enough to hide the calls, small enough to cache.
_CHUNK_USERS: Final = 65_536
_PLANE_BYTES: Final = 1 << 19
#: Says to the compiled loops that nobody's sampled pair is a dummy.
_ALL: Final = np.empty(0, dtype=np.bool_)


@dataclass(frozen=True, kw_only=True, init=False)
class PCKV(Mechanism):
    """What both PCKV mechanisms share: parameters, laws, estimators.

    Attributes:
        epsilon: privacy budget of one report.
        keys: number of keys of the domain.
        padding: records of fewer keys are padded with dummy keys to this length; of longer ones one pair is
            drawn uniformly all the same, but then frequencies are underestimated.
        allocation: "optimized", "non-optimized" or "naive" split of the budget between key and sign.
    """

    has_values: ClassVar[bool] = True
    estimators: ClassVar[tuple[str, ...]] = ("corrected", "baseline", "empirical-bayes", "norm-sub", "base-cut")
    #: Largest domain.
    keys_max: ClassVar[int]
    #: Whether there is the allocation "numerical".
    numerical: ClassVar[bool] = False

    epsilon: Decimal
    keys: int
    padding: int
    allocation: str
    _law: Law = field(init=False, repr=False, compare=False)

    def __init__(
        self,
        *,
        epsilon: Decimal | int | float | str,
        keys: int,
        padding: int,
        allocation: str = "optimized",
    ) -> None:
        """Check the parameters and compute the thresholds.

        Args:
            epsilon: privacy budget of one report, in [0.001, 20]; a float stands for its shortest text.
            keys: number of keys of the domain.
            padding: padding length, at least 1: about the number of keys that most people hold at most.
            allocation: "optimized" (default), "non-optimized" or "naive".

        Raises:
            ParameterError: for a parameter outside what is allowed.
        """
        object.__setattr__(self, "epsilon", parse_epsilon(epsilon))
        object.__setattr__(self, "keys", self._whole("keys", keys, self.keys_max))
        object.__setattr__(self, "padding", self._whole("padding", padding, PADDING_MAX))
        check_allocation(allocation, numerical=self.numerical)
        object.__setattr__(self, "allocation", allocation)
        object.__setattr__(self, "_law", self._make_law())

    def _whole(self, what: str, given: object, largest: int) -> int:
        if what == "padding" and given == "auto":
            raise ParameterError(
                'padding of a mechanism is a whole number. "auto" asks two questions: `make_mechanism` and a '
                "collection definition take it."
            )
        if isinstance(given, bool) or not isinstance(given, int | np.integer) or not 1 <= given <= largest:
            raise ParameterError(
                f"{what} of {self.name} is {given!r}, but must be a whole number from 1 to {largest:,}."
                + self._advice(what)
            )
        return int(given)

    @classmethod
    def _advice(cls, what: str) -> str:
        return ""

    @abstractmethod
    def _make_law(self) -> Law:
        """Thresholds for the parameters."""

    # -- both sides -------------------------------------------------------------------------------------

    @property
    def probabilities(self) -> Probabilities:
        """The letters a, b, p of the paper, as the thresholds give them."""
        return Probabilities.of(self._law)

    def parameters(self) -> Mapping[str, float]:
        """Probabilities a, b, p, budgets epsilon_1, epsilon_2, and the variance factors g, h."""
        law = self.probabilities
        g, h = factors(law)
        budgets = {"epsilon_1": self._law.epsilon_1, "epsilon_2": self._law.epsilon_2}
        return {"a": law.a, "b": law.b, "p": law.p, **budgets, "g": g, "h": h}

    def predict(self, *, frequency: float, mean: float, users: int) -> Prediction:
        """Predict the errors for a key of the given frequency (above 0) and mean among so many users."""
        law = self.probabilities
        return Prediction(
            frequency_se=float(np.sqrt(frequency_variance(law, self.padding, frequency, users))),
            mean_se=float(np.sqrt(mean_variance(law, self.padding, frequency, mean, users))),
            mean_bias=float(mean_bias(law, self.padding, frequency, mean, users)),
        )

    # -- client -----------------------------------------------------------------------------------------

    def _chunks(
        self, records: Records, stream: Stream, size: int, own_blocks: int = 2
    ) -> Iterator[tuple[slice, Records, U64, U64, BlockSource]]:
        """Yield rows, records, seeds, own blocks and block function of parts of the batch."""
        check_records(records, self.keys)
        yield from chunks(records, stream, size=size, own_blocks=own_blocks)

    # -- server -----------------------------------------------------------------------------------------

    def zero(self) -> Counts:
        """Counts of no reports: n1 and n2 of every key."""
        return Counts(n=0, cells={name: np.zeros(self.keys, dtype=np.int64) for name in ("n1", "n2")})

    def estimate(self, counts: Counts, estimator: str | None = None) -> Estimates:
        """Estimate every key's frequency and mean.

        Args:
            counts: counts of this mechanism.
            estimator: "corrected" (default) clips frequencies to [1/n, 1] and means to [-1, 1]; "baseline"
                gives unclipped figures and no mean where the frequency is not positive; "empirical-bayes" draws
                the corrected figures towards a prior that all keys together reveal; "norm-sub" makes the
                frequencies sum to the padding at most; "base-cut" sets those to 0 that may be mere noise.

        Returns:
            Estimates in units of [-1, 1]. Frequencies are unbiased if nobody holds more keys than the
            padding. Standard errors and intervals are those of the raw figures, whatever the estimator.

        Raises:
            ParameterError: for an unknown estimator.

        Source:
            PCKV, sections 4.3 and 4.4.
        """
        name = self.estimators[0] if estimator is None else estimator
        if name not in self.estimators:
            raise ParameterError(f"estimator is {name!r}. {did_you_mean(str(name), self.estimators)}")
        positive, negative = counts.cells["n1"], counts.cells["n2"]
        law = self.probabilities
        found = estimate(law, self.padding, counts.n, positive, negative, corrected=name != "baseline")
        if name == "empirical-bayes":
            return empirical_bayes.shrink(law, self.padding, found)
        if name == "norm-sub":
            return consistency.norm_sub(self.padding, found)
        return consistency.base_cut(law, self.padding, found) if name == "base-cut" else found


def _prior(allocation: str, given: Mapping[str, Decimal | int | float | str]) -> Prior | None:
    """Return the prior, which the allocation "numerical" needs and no other has."""
    if allocation != NUMERICAL:
        if given:
            raise ParameterError(f"A prior acts on allocation {NUMERICAL!r} alone, but allocation is {allocation!r}.")
        return None
    missing = [name for name in ("frequency", "mean", "users") if name not in given]
    if missing:
        raise ParameterError(
            f"allocation {NUMERICAL!r} needs a prior, of which {', '.join(missing)} is missing: what you believe of a "
            "typical key before anything is collected."
        )
    return Prior(**given)


def _has_layout(reports: Reports, layout: tuple[Field, ...]) -> bool:
    """Whether the arrays of `layout` are there with their types and shapes."""
    return all(
        part.name in reports.arrays
        and reports.arrays[part.name].dtype == np.dtype(part.dtype)
        and reports.arrays[part.name].shape == part.shape(reports.n)
        for part in layout
    )


@dataclass(frozen=True, kw_only=True, init=False)
class PCKVUE(PCKV):
    """PCKV-UE: a report has a cell +1, -1 or 0 for every key, as two bit planes.

    Best for domains up to some thousand keys. The cells of the dummy keys are never made: leaving them out
    depends on nothing secret and the server has no use for them.

    Attributes:
        prior: what the allocation "numerical" is best for; None with any other.

    Privacy:
        epsilon-LDP for the whole record, whatever the padding, with
        epsilon = max(epsilon_2, epsilon_1 + ln(2 / (1 + e^-epsilon_2))).

    Source:
        PCKV, algorithm 2 and theorem 2.
    """

    name: ClassVar[str] = "pckv-ue"
    keys_max: ClassVar[int] = _UE_KEYS
    numerical: ClassVar[bool] = True

    prior: Prior | None

    def __init__(
        self,
        *,
        epsilon: Decimal | int | float | str,
        keys: int,
        padding: int,
        allocation: str = "optimized",
        prior_frequency: Decimal | int | float | str | None = None,
        prior_mean: Decimal | int | float | str | None = None,
        prior_users: Decimal | int | float | str | None = None,
        prior_mean_weight: Decimal | int | float | str | None = None,
    ) -> None:
        """Check the parameters and compute the thresholds.

        Args:
            epsilon: privacy budget of one report, in [0.001, 20]; a float stands for its shortest text.
            keys: number of keys of the domain.
            padding: padding length, at least 1: about the number of keys that most people hold at most.
            allocation: "optimized" (default), "non-optimized", "naive" or "numerical".
            prior_frequency: with "numerical": frequency of a typical key.
            prior_mean: its mean, in [-1, 1].
            prior_users: about how many users will report.
            prior_mean_weight: 1 (default) minimises the error of means, 0 that of frequencies.

        Raises:
            ParameterError: for a parameter outside what is allowed.

        Privacy:
            The prior must be a constant or come from published estimates, never from the records.
        """
        given = {
            "frequency": prior_frequency,
            "mean": prior_mean,
            "users": prior_users,
            "mean_weight": prior_mean_weight,
        }
        object.__setattr__(self, "prior", _prior(allocation, {k: v for k, v in given.items() if v is not None}))
        super().__init__(epsilon=epsilon, keys=keys, padding=padding, allocation=allocation)

    @classmethod
    def _advice(cls, what: str) -> str:
        return " A report would grow beyond 25 KB; use pckv-grr for more keys." if what == "keys" else ""

    def _make_law(self) -> Law:
        if self.prior is None:
            return ue_law(self.epsilon, self.allocation)
        return ue_law_of_share(self.epsilon, best_share(self.epsilon, self.padding, self.prior))

    def thresholds(self) -> Mapping[str, int]:
        """Thresholds of 2^64: sampled key kept with its sign; kept at all; another key's cell set."""
        return {"kept_with_sign": self._law.same, "kept": self._law.kept, "other": self._law.other}

    def exact_epsilon(self) -> float:
        """The loss over every pair of records and every report, from the integer thresholds, rounded up.

        Attained by domains of at least twice as many keys as the padding; a bound for smaller ones.
        """
        return log_up(ue_ratio(self._law.same, self._law.kept, self._law.other))

    def layout(self) -> tuple[Field, ...]:
        """Planes `plus` and `minus`: ceil(keys / 8) bytes each, little bit order, padding bits 0."""
        width = -(-self.keys // 8)
        return Field(name="plus", dtype="uint8", width=width), Field(name="minus", dtype="uint8", width=width)

    def perturb(self, records: Records, stream: Stream) -> Reports:
        """Perturb a batch: one report a user.

        Args:
            records: canonical records; keys strictly increasing within a user.
            stream: random bits of the collection.

        Returns:
            Planes `plus` and `minus`, uint8 (n, ceil(keys / 8)), as views of rows of whole 16-byte blocks.

        Privacy:
            epsilon-LDP for the whole record; see the class.
        """
        words = row_words(self.keys)
        plus, minus = (np.empty((records.n, words), dtype="<u8") for _ in range(2))
        size = max(64, min(_CHUNK_USERS, _PLANE_BYTES // (8 * words)))
        own = 1 if has_no_choice(records, self.padding) else 2
        for rows, part, seeds, blocks, source in self._chunks(records, stream, size, own):
            drawn = sample(part, self.padding, self._law, blocks, coins=False)
            self._perturb_chunk(drawn, seeds, source, plus[rows], minus[rows])
        width = -(-self.keys // 8)
        return Reports(
            n=records.n,
            arrays={"plus": plus.view(np.uint8)[:, :width], "minus": minus.view(np.uint8)[:, :width]},
        )

    def _perturb_chunk(self, drawn: Sample, seeds: U64, source: BlockSource, plus: U64, minus: U64) -> None:
        cells, signs = cell_noise(seeds, self._law.other, self.keys, source)
        if (loops := compiled.loops(len(seeds))) is not None:
            real = _ALL if drawn.real is None else drawn.real
            loops.split(cells, signs, drawn.key, real, drawn.kept, drawn.plus, self.keys, plus, minus)
            return
        users = np.arange(len(seeds)) if drawn.real is None else np.flatnonzero(drawn.real)
        chosen = slice(None) if drawn.real is None else users
        key = drawn.key[chosen]
        set_cells(users, key, (cells, drawn.kept[chosen]), (signs, drawn.plus[chosen]))
        if self.keys % 64:
            cells[:, self.keys // 64] &= np.uint64((1 << self.keys % 64) - 1)
        np.bitwise_and(cells, signs, out=plus)
        np.bitwise_xor(cells, plus, out=minus)

    def valid(self, reports: Reports) -> Bool:
        """Which reports have no cell in both planes and no padding bit; none if types or widths are wrong."""
        if not _has_layout(reports, self.layout()):
            return np.zeros(reports.n, dtype=np.bool_)
        plus, minus = (np.asarray(reports.arrays[name], dtype=np.uint8) for name in ("plus", "minus"))
        both = plus & minus
        good: Bool = np.ones(reports.n, dtype=np.bool_)
        if both.any():
            good &= ~both.any(axis=1)
        if self.keys % 8:
            padding = np.uint8(0xFF << self.keys % 8 & 0xFF)
            good &= ((plus[:, -1] | minus[:, -1]) & padding) == 0
        return good

    def count(self, reports: Reports, into: Counts | None = None) -> Counts:
        """Count the supporters n1 and n2 of every key.

        Args:
            reports: valid reports.
            into: a counter of the caller's own, updated in place.
        """
        total = self.zero() if into is None else into
        planes = [np.asarray(reports.arrays[name], dtype=np.uint8) for name in ("plus", "minus")]
        sums = column_sums(*(wide_rows(plane, self.keys) for plane in planes))
        for name, sum_ in zip(("n1", "n2"), sums, strict=True):
            total.cells[name][...] += sum_[: self.keys]
        return Counts(n=total.n + reports.n, cells=total.cells)


class PCKVGRR(PCKV):
    """PCKV-GRR: a report is one key and one sign; all dummy keys are written as index `keys`.

    Reports of five bytes whatever the domain; better than PCKV-UE for small domains, large epsilon or large
    padding, from which it gains privacy.

    Privacy:
        epsilon-LDP for the whole record, with half = (e^epsilon_2 + 1) / 2,
        lambda = (padding - 1) half, and
        epsilon = ln((e^(epsilon_1 + epsilon_2) + lambda) / (min(e^epsilon_1, half) + lambda)).

    Source:
        PCKV, algorithm 3 and theorem 3.
    """

    name: ClassVar[str] = "pckv-grr"
    keys_max: ClassVar[int] = _GRR_KEYS

    def _make_law(self) -> Law:
        return grr_law(self.epsilon, self.keys, self.padding, self.allocation)

    def thresholds(self) -> Mapping[str, int]:
        """Thresholds of 2^64: sampled key kept with its sign; kept at all. And the number of other keys."""
        others = self.keys + self.padding - 1
        return {"kept_with_sign": self._law.same, "kept": self._law.kept, "other_keys": others}

    def exact_epsilon(self) -> float:
        """The loss over every pair of records and every report, from the integer draws, rounded up."""
        return log_up(grr_ratio(self._law.same, self._law.kept, self.keys, self.padding))

    def layout(self) -> tuple[Field, ...]:
        """`key`: 0 to keys, where keys stands for every dummy; `sign`: 1 or -1."""
        return Field(name="key", dtype="int32"), Field(name="sign", dtype="int8")

    def perturb(self, records: Records, stream: Stream) -> Reports:
        """Perturb a batch: one report a user.

        Args:
            records: canonical records; keys strictly increasing within a user.
            stream: random bits of the collection.

        Returns:
            `key`, int32 (n,), and `sign`, int8 (n,).

        Privacy:
            epsilon-LDP for the whole record; see the class.
        """
        key, sign = np.empty(records.n, dtype=np.int32), np.empty(records.n, dtype=np.int8)
        for rows, part, _, blocks, _ in self._chunks(records, stream, _CHUNK_USERS):
            self._perturb_chunk(part, blocks, key[rows], sign[rows])
        return Reports(n=records.n, arrays={"key": key, "sign": sign})

    def _perturb_chunk(
        self,
        part: Records,
        blocks: U64,
        key: npt.NDArray[np.int32],
        sign: npt.NDArray[np.int8],
    ) -> None:
        others, loops = self.keys + self.padding - 1, compiled.loops(part.n)
        if loops is not None and part.values is not None and has_no_choice(part, self.padding):
            own, values = np.ascontiguousarray(part.keys), np.ascontiguousarray(part.values)
            law = np.uint64(self._law.same), np.uint64(self._law.kept)
            loops.one_pair(own, values, blocks, *law, np.uint64(others), np.int32(self.keys), key, sign)
            return
        drawn = sample(part, self.padding, self._law, blocks)
        assert drawn.coin is not None
        if loops is not None:
            real, top = _ALL if drawn.real is None else drawn.real, np.int32(self.keys)
            fate = drawn.kept, drawn.plus, drawn.coin
            loops.others(drawn.key, real, *fate, blocks[1], np.uint64(others), top, key, sign)
            return
        # Dummies are alike to the server, so a sampled one may be taken for the last key of all.
        own = drawn.key if drawn.real is None else np.where(drawn.real, drawn.key, np.int32(others))
        other = mulhi(blocks[1, :, 1], others).astype(np.int32)
        other += other >= own
        np.copyto(other, own, where=drawn.kept)
        np.minimum(other, np.int32(self.keys), out=key)
        positive = np.where(drawn.kept, drawn.plus, drawn.coin)
        np.multiply(positive, 2, out=sign, dtype=np.int8, casting="unsafe")
        sign -= 1

    def valid(self, reports: Reports) -> Bool:
        """Which reports have a key from 0 to keys and a sign of 1 or -1; none if a type or shape is wrong."""
        if not _has_layout(reports, self.layout()):
            return np.zeros(reports.n, dtype=np.bool_)
        key, sign = reports.arrays["key"], np.asarray(reports.arrays["sign"], dtype=np.int8)
        index = np.asarray(key, dtype=np.int32)
        good: Bool = (index >= 0) & (index <= self.keys) & ((sign == 1) | (sign == -1))
        return good

    def count(self, reports: Reports, into: Counts | None = None) -> Counts:
        """Count the supporters n1 and n2 of every key; dummies count towards n alone.

        Args:
            reports: valid reports.
            into: a counter of the caller's own, updated in place.
        """
        total = self.zero() if into is None else into
        key = np.asarray(reports.arrays["key"], dtype=np.int32)
        sign = np.asarray(reports.arrays["sign"], dtype=np.int8)
        loops = compiled.loops(reports.n)
        if loops is not None:
            loops.tally(np.ascontiguousarray(key), np.ascontiguousarray(sign), total.cells["n1"], total.cells["n2"])
        elif 2 * self.keys <= reports.n:
            # one cell for each key and sign: (key, -1) at 2 key, (key, +1) at 2 key + 1
            cell = key.astype(np.int64)
            cell <<= 1
            cell += sign > 0
            pairs = np.bincount(cell, minlength=2 * self.keys + 2)
            total.cells["n1"][...] += pairs[1 : 2 * self.keys : 2]
            total.cells["n2"][...] += pairs[0 : 2 * self.keys : 2]
        else:
            real = key < self.keys
            np.add.at(total.cells["n1"], key[real & (sign > 0)], 1)
            np.add.at(total.cells["n2"], key[real & (sign < 0)], 1)
        return Counts(n=total.n + reports.n, cells=total.cells)
