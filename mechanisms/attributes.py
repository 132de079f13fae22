"""Several attributes of each user with one mechanism each: the budget is split, or each user tells of one attribute.

The keys of the domain are the values of the attributes, one attribute behind the other.

* ``split``: every attribute is answered, each with epsilon / m of m attributes.
* ``sampled``: one attribute is drawn uniformly, whatever the record, and answered with the whole epsilon. A row has
  arrays for all attributes, zeros for those that were not drawn, so that all rows are of one size.

For attributes of about one size sampling has the smaller errors, since noise grows faster with a smaller epsilon than
with fewer people. A third way is one domain of all combinations, for which no mechanism of its own is needed.

Source:
    Murakami, Kawamoto, USENIX Security 2019, section 6 (combinations of census attributes); Nguyen et al., arXiv
    1606.05053 (sampling one attribute).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from decimal import Decimal
from fractions import Fraction
from typing import Final

import numpy as np
import numpy.typing as npt

from ..errors import ParameterError, did_you_mean
from .categorical.base import has_layout
from .data import I32, I64, Bool, Counts, Estimates, Field, Records, Reports
from .pckv.sampling import check_records
from .probability import parse_epsilon
from .protocol import Mechanism
from .randomness import Stream, mulhi
from .repeated import each_epsilon

__all__ = ["MODES", "Attributes", "one_attribute"]

#: How a budget is spent on several attributes.
MODES: Final = ("split", "sampled")
#: Bits of the drawn attribute come from an answer that no attribute has.
_DRAW: Final = 0


def one_attribute(records: Records, first: int, keys: int) -> Records:
    """Return the records with the keys first to first + keys - 1 alone, numbered from 0."""
    inside = (records.keys >= first) & (records.keys < first + keys)
    before = np.zeros(len(records.keys) + 1, dtype=np.int64)
    np.cumsum(inside, out=before[1:])
    return Records(
        users=records.users,
        offsets=before[records.offsets],
        keys=(records.keys[inside] - np.int32(first)).astype(np.int32),
    )


@dataclass(frozen=True, init=False)
class Attributes(Mechanism):
    """One mechanism for each of several attributes, within one report row.

    Attributes:
        inner: the mechanisms, in the order of the attributes.
        mode: "split" or "sampled".
        epsilon: privacy budget of the whole row.
        keys: number of values of all attributes together.

    Privacy:
        epsilon-LDP for the whole record: by sequential composition where the budget is split; where one attribute is
        drawn, because the draw is the same for every record.
    """

    inner: tuple[Mechanism, ...]
    mode: str
    epsilon: Decimal
    keys: int

    def __init__(
        self,
        make: Callable[[Decimal, int], Mechanism],
        *,
        epsilon: Decimal | int | float | str,
        mode: str,
        sizes: Sequence[int],
    ) -> None:
        """Make the mechanisms of the attributes.

        Args:
            make: makes a mechanism from its budget and its number of keys.
            epsilon: privacy budget of the whole row.
            mode: "split" or "sampled".
            sizes: number of values of each attribute.

        Raises:
            ParameterError: for a parameter outside what is allowed.
        """
        if mode not in MODES:
            raise ParameterError(f"mode of the attributes is {mode!r}. {did_you_mean(str(mode), MODES)}")
        if not sizes:
            raise ParameterError("There are no attributes; name at least one.")
        total = parse_epsilon(epsilon)
        each = each_epsilon(total, len(sizes)) if mode == "split" else total
        inner = tuple(make(each, size) for size in sizes)
        object.__setattr__(self, "inner", inner)
        object.__setattr__(self, "mode", mode)
        object.__setattr__(self, "epsilon", total)
        object.__setattr__(self, "keys", sum(sizes))
        for name in ("name", "has_values", "has_frequency", "estimators"):
            object.__setattr__(self, name, getattr(inner[0], name))

    def _numbered(self) -> Iterator[tuple[int, int, Mechanism]]:
        """Yield number from 1, first key and mechanism of each attribute."""
        first = 0
        for number, mechanism in enumerate(self.inner, start=1):
            yield number, first, mechanism
            first += mechanism.keys

    # -- both sides -------------------------------------------------------------------------------------

    def thresholds(self) -> Mapping[str, int]:
        """Thresholds of every attribute's mechanism, by name and number, and the number that is answered."""
        every = {f"{k}_{number}": v for number, _, inner in self._numbered() for k, v in inner.thresholds().items()}
        return {**every, "answered": len(self.inner) if self.mode == "split" else 1}

    def parameters(self) -> Mapping[str, float]:
        """Parameters of every attribute's mechanism, by name and number."""
        return {f"{k}_{number}": v for number, _, inner in self._numbered() for k, v in inner.parameters().items()}

    def exact_epsilon(self) -> float:
        """The sum (split) or the largest (sampled) of the attributes' losses, rounded up."""
        losses = [inner.exact_epsilon() for inner in self.inner]
        if self.mode == "sampled":
            return max(losses)
        exact = sum((Fraction(loss) for loss in losses), Fraction(0))
        nearest = float(exact)
        return nearest if Fraction(nearest) >= exact else float(np.nextafter(nearest, np.inf))

    def layout(self) -> tuple[Field, ...]:
        """The arrays of each attribute with its number; sampled: `attribute`, 1 to m, before them."""
        parts = [
            replace(part, name=f"{part.name}_{number}")
            for number, _, inner in self._numbered()
            for part in inner.layout()
        ]
        return (*([Field(name="attribute", dtype="int32")] if self.mode == "sampled" else []), *parts)

    # -- client -----------------------------------------------------------------------------------------

    def perturb(self, records: Records, stream: Stream) -> Reports:
        """Perturb a batch: one row a user.

        Args:
            records: canonical records; a user without a value of an attribute gives a uniformly drawn one.
            stream: random bits of the collection.

        Privacy:
            epsilon-LDP for the whole record; see the class.
        """
        check_records(records, self.keys, has_values=False)
        arrays: dict[str, npt.NDArray[np.generic]] = {}
        drawn = None
        if self.mode == "sampled":
            words = stream.answer(_DRAW).blocks(stream.seeds(records), 0, 1)[0, :, 0]
            drawn = (mulhi(words, len(self.inner)) + np.uint64(1)).astype(np.int32)
            arrays["attribute"] = drawn
        for number, first, inner in self._numbered():
            answer = inner.perturb(one_attribute(records, first, inner.keys), stream.answer(number))
            for name, array in answer.arrays.items():
                arrays[f"{name}_{number}"] = array if drawn is None else _only(array, drawn == number)
        return Reports(n=records.n, arrays=arrays)

    # -- server -----------------------------------------------------------------------------------------

    def _answer(self, reports: Reports, number: int, inner: Mechanism) -> Reports:
        names = [part.name for part in inner.layout()]
        return Reports(n=reports.n, arrays={name: reports.arrays[f"{name}_{number}"] for name in names})

    def valid(self, reports: Reports) -> npt.NDArray[np.bool_]:
        """Rows in which every given answer is possible, and what was not drawn is zero."""
        if not has_layout(self, reports):
            return np.zeros(reports.n, dtype=np.bool_)
        good: Bool = np.ones(reports.n, dtype=np.bool_)
        drawn: I32 | None = None
        if self.mode == "sampled":
            drawn = np.asarray(reports.arrays["attribute"], dtype=np.int32)
            good &= (drawn >= 1) & (drawn <= len(self.inner))
        for number, _, inner in self._numbered():
            answer = self._answer(reports, number, inner)
            possible = inner.valid(answer)
            good &= possible if drawn is None else np.where(drawn == number, possible, _is_zero(answer))
        return good

    def zero(self) -> Counts:
        """Counts of no reports: those of every attribute with its number; sampled: how many drew each."""
        cells = {f"{k}_{number}": v for number, _, inner in self._numbered() for k, v in inner.zero().cells.items()}
        if self.mode == "sampled":
            cells["drawn"] = np.zeros(len(self.inner), dtype=np.int64)
        return Counts(n=0, cells=cells)

    def count(self, reports: Reports, into: Counts | None = None) -> Counts:
        """Count each attribute's answers.

        Args:
            reports: valid reports.
            into: a counter of the caller's own, updated in place.
        """
        total = self.zero() if into is None else into
        drawn = None
        if self.mode == "sampled":
            drawn = np.asarray(reports.arrays["attribute"], dtype=np.int64)
            total.cells["drawn"][...] += np.bincount(drawn - 1, minlength=len(self.inner))
        for number, _, inner in self._numbered():
            answer = self._answer(reports, number, inner)
            inner.count(answer if drawn is None else answer.select(drawn == number), self._of(total, number, inner))
        return Counts(n=total.n + reports.n, cells=total.cells)

    def _of(self, counts: Counts, number: int, inner: Mechanism) -> Counts:
        """Return the counts of one attribute; the arrays are the same."""
        n = counts.n if self.mode == "split" else int(counts.cells["drawn"][number - 1])
        return Counts(n=n, cells={name: counts.cells[f"{name}_{number}"] for name in inner.zero().cells})

    def estimate(self, counts: Counts, estimator: str | None = None) -> Estimates:
        """Estimate every value's share, attribute by attribute.

        Args:
            counts: counts of this mechanism.
            estimator: one of `estimators`; where shares are to add up to 1 they do within each attribute.

        Returns:
            Estimates over all keys; `support` also holds how many reports told of the key's attribute.

        Raises:
            ParameterError: for an unknown estimator.
        """
        parts = [(self._of(counts, number, inner), inner) for number, _, inner in self._numbered()]
        estimates = [inner.estimate(part, estimator) for part, inner in parts]
        told: list[I64] = [np.full(inner.keys, part.n, dtype=np.int64) for part, inner in parts]
        support = {name: np.concatenate([e.support[name] for e in estimates]) for name in estimates[0].support}
        return Estimates(
            n=counts.n,
            frequency=np.concatenate([e.frequency for e in estimates]),
            frequency_se=np.concatenate([e.frequency_se for e in estimates]),
            frequency_low=np.concatenate([e.frequency_low for e in estimates]),
            frequency_high=np.concatenate([e.frequency_high for e in estimates]),
            frequency_raw=np.concatenate([e.frequency_raw for e in estimates]),
            support={**support, "reports": np.concatenate(told)},
            flags={name: np.concatenate([e.flags[name] for e in estimates]) for name in estimates[0].flags},
        )


def _only(array: npt.NDArray[np.generic], rows: Bool) -> npt.NDArray[np.generic]:
    """Return the array with zeros in all other rows."""
    kept = np.zeros(array.shape, dtype=array.dtype)
    kept[rows] = array[rows]
    return kept


def _is_zero(reports: Reports) -> Bool:
    """Which rows hold nothing."""
    nothing: Bool = np.ones(reports.n, dtype=np.bool_)
    for array in reports.arrays.values():
        nothing &= ~(np.asarray(array) != 0).reshape(reports.n, -1).any(axis=1) if reports.n else nothing
    return nothing
