"""What flows into and out of a mechanism: records, reports, counts, estimates.

All are plain structures of NumPy arrays over a whole batch of users, so that a mechanism never loops over
people. They know nothing of files, Beam or Arrow.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property

import numpy as np
import numpy.typing as npt

__all__ = ["VALUE_ONE", "Counts", "Estimates", "Field", "Prediction", "Records", "Reports"]

#: A value v of [-1, 1] is held as the 64-bit integer round(v * VALUE_ONE), halves to even.
VALUE_ONE = 1 << 40

U8 = npt.NDArray[np.uint8]
I16 = npt.NDArray[np.int16]
I32 = npt.NDArray[np.int32]
I64 = npt.NDArray[np.int64]
F64 = npt.NDArray[np.float64]
Bool = npt.NDArray[np.bool_]


@dataclass(frozen=True, kw_only=True, eq=False)
class Records:
    """The canonical true records of a batch of n users, who hold m pairs together. Client side only.

    Attributes:
        users: keyed digests of the user ids, uint8 (n, 16).
        offsets: user i holds the pairs offsets[i] to offsets[i + 1], int64 (n + 1,), starting at 0.
        keys: indices into the key domain, int32 (m,); within a user strictly increasing.
        values: values of [-1, 1] times `VALUE_ONE`, int64 (m,); None where the collection has no values.
        tags: for each pair why its key is sensitive to the user, int16 (m,): 0 if it is not, 1 to the number of tags,
            -1 for a reason that the collection does not name; None where the collection has no tags.
    """

    users: U8
    offsets: I64
    keys: I32
    values: I64 | None = None
    tags: I16 | None = None

    def __post_init__(self) -> None:
        n = len(self.users)
        if self.users.dtype != np.uint8 or self.users.shape != (n, 16):
            raise ValueError(f"users must be uint8 (n, 16), not {self.users.dtype} {self.users.shape}")
        if self.offsets.dtype != np.int64 or self.offsets.shape != (n + 1,):
            raise ValueError(f"offsets must be int64 ({n + 1},), not {self.offsets.dtype} {self.offsets.shape}")
        m = len(self.keys)
        if self.keys.dtype != np.int32 or self.keys.shape != (m,):
            raise ValueError(f"keys must be int32 (m,), not {self.keys.dtype} {self.keys.shape}")
        if self.offsets[0] != 0 or self.offsets[-1] != m:
            raise ValueError(f"offsets must run from 0 to {m}, not {self.offsets[0]} to {self.offsets[-1]}")
        if self.values is not None and (self.values.dtype != np.int64 or self.values.shape != (m,)):
            raise ValueError(f"values must be int64 ({m},), not {self.values.dtype} {self.values.shape}")
        if self.tags is not None and (self.tags.dtype != np.int16 or self.tags.shape != (m,)):
            raise ValueError(f"tags must be int16 ({m},), not {self.tags.dtype} {self.tags.shape}")

    @property
    def n(self) -> int:
        """Number of users."""
        return len(self.users)

    @property
    def sizes(self) -> I64:
        """Pairs held by each user, int64 (n,)."""
        return np.diff(self.offsets)

    def __getstate__(self) -> dict[str, object]:
        return {name: value for name, value in self.__dict__.items() if name != "one_each"}

    @cached_property
    def one_each(self) -> bool:
        """Whether every user holds exactly one pair, the case that needs least work."""
        return len(self.keys) == self.n and bool((self.sizes == 1).all())

    def slice(self, start: int, stop: int) -> Records:
        """Return the users start to stop, without copying their pairs."""
        if start == 0 and stop == self.n:
            return self
        first, last = int(self.offsets[start]), int(self.offsets[stop])
        part = Records(
            users=self.users[start:stop],
            offsets=self.offsets[start : stop + 1] - first,
            keys=self.keys[first:last],
            values=None if self.values is None else self.values[first:last],
            tags=None if self.tags is None else self.tags[first:last],
        )
        if self.__dict__.get("one_each"):
            part.__dict__["one_each"] = True  # what holds for all is not looked at again
        return part

    def chunks(self, users: int) -> Iterator[Records]:
        """Yield the batch in slices of at most `users` users."""
        if self.n <= users:
            if self.n:
                yield self
            return
        for start in range(0, self.n, users):
            yield self.slice(start, min(start + users, self.n))


@dataclass(frozen=True, kw_only=True)
class Field:
    """One array of a report: `width` elements of `dtype` a report (width 0: one scalar)."""

    name: str
    dtype: str
    width: int = 0

    def shape(self, n: int) -> tuple[int, ...]:
        """Shape of the array for n reports."""
        return (n, self.width) if self.width else (n,)


@dataclass(frozen=True, kw_only=True, eq=False)
class Reports:
    """n reports as named arrays with one row a report; holds nothing that names a user.

    Rows may be strided views of wider rows: a kernel may keep planes wider than a report inside.
    """

    n: int
    arrays: Mapping[str, npt.NDArray[np.generic]]

    def __post_init__(self) -> None:
        for name, array in self.arrays.items():
            if len(array) != self.n:
                raise ValueError(f"report array {name!r} has {len(array)} rows, not {self.n}")

    def select(self, keep: Bool) -> Reports:
        """Return the reports where `keep`, bool (n,), is true."""
        return Reports(n=int(keep.sum()), arrays={name: array[keep] for name, array in self.arrays.items()})


@dataclass(frozen=True, kw_only=True, eq=False)
class Counts:
    """Additive counts of n reports: named int64 arrays over the cells of the mechanism.

    Counts form a commutative monoid under `+`: the counts of two disjoint sets of reports add up to the
    counts of their union, in any order.
    """

    n: int
    cells: Mapping[str, I64] = field(default_factory=dict)

    def __add__(self, other: Counts) -> Counts:
        if self.cells.keys() != other.cells.keys():
            raise ValueError(f"counts of {sorted(self.cells)} and {sorted(other.cells)} cannot be added")
        return Counts(n=self.n + other.n, cells={k: v + other.cells[k] for k, v in self.cells.items()})

    def equals(self, other: Counts) -> bool:
        """Whether every figure agrees."""
        return (
            self.n == other.n
            and self.cells.keys() == other.cells.keys()
            and all(np.array_equal(v, other.cells[k]) for k, v in self.cells.items())
        )


@dataclass(frozen=True, kw_only=True)
class Prediction:
    """Errors to expect for one key; NaN for a figure that the mechanism does not estimate.

    Attributes:
        frequency_se: standard error of the frequency.
        mean_se: standard error of the mean.
        mean_bias: bias of the baseline mean.
    """

    frequency_se: float
    mean_se: float
    mean_bias: float


@dataclass(frozen=True, kw_only=True, eq=False)
class Estimates:
    """Estimates per key, float64 (d,) each; NaN where a figure does not exist (written out as null).

    Attributes:
        n: reports that were counted.
        frequency: estimated share of users who hold the key, as the estimator gives it.
        frequency_se: its standard error, users being a sample of a population.
        frequency_low: lower 95 % bound, centred on the raw estimate, clipped to [0, 1].
        frequency_high: upper 95 % bound.
        frequency_raw: unbiased estimate, not clipped, may be negative.
        mean: estimated mean value among the holders, in [-1, 1] (or in raw units after `in_units`).
            This and the other mean columns are None where the mechanism has no values.
        mean_se: its standard error.
        mean_low: lower 95 % bound, centred on the raw mean, clipped to the possible range.
        mean_high: upper 95 % bound.
        mean_raw: the uncorrected ("baseline") mean, not clipped.
        further: more figures in the units of the values, by name (p50, minimum, …), float64 (d,) each.
        support: the counts behind the estimates (n1, n2, …), int64 (d,) each.
        flags: reasons not to trust a figure, bool (d,) each.
    """

    n: int
    frequency: F64
    frequency_se: F64
    frequency_low: F64
    frequency_high: F64
    frequency_raw: F64
    mean: F64 | None = None
    mean_se: F64 | None = None
    mean_low: F64 | None = None
    mean_high: F64 | None = None
    mean_raw: F64 | None = None
    further: Mapping[str, F64] = field(default_factory=dict)
    support: Mapping[str, I64] = field(default_factory=dict)
    flags: Mapping[str, Bool] = field(default_factory=dict)

    def columns(self) -> dict[str, npt.NDArray[np.generic]]:
        """Return all figures by name, (d,) each, as `pandas.DataFrame` and `pyarrow.table` take them.

        Row i is key i of the domain. Each flag is a column of its own, named "flag:…".
        """
        named: dict[str, npt.NDArray[np.generic]] = {}
        for part in ("frequency", "mean"):
            for suffix in ("", "_se", "_low", "_high", "_raw"):
                figure = getattr(self, part + suffix)
                if figure is not None:
                    named[part + suffix] = figure
        named |= self.support
        return named | {f"flag:{name}": held for name, held in self.flags.items()}

    def in_units(self, low: float, high: float) -> Estimates:
        """Map the means from [-1, 1] to the raw units [low, high] and scale their standard errors."""
        if self.mean is None:
            return self
        half = (high - low) / 2.0

        def place(x: F64 | None) -> F64 | None:
            return None if x is None else low + (x + 1.0) * half

        return replace(
            self,
            mean=place(self.mean),
            mean_low=place(self.mean_low),
            mean_high=place(self.mean_high),
            mean_raw=place(self.mean_raw),
            mean_se=None if self.mean_se is None else self.mean_se * half,
            further={name: low + (x + 1.0) * half for name, x in self.further.items()},
        )
