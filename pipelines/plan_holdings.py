"""Plan for a whole domain, given how many keys people hold: which mechanism, and with which padding, errs least.

The errors are those of what is published, expected under the law of the counts (`mechanisms.expectation`): of all
frequencies together, and of the means on average over the keys. Mechanisms that ask in rounds are left out, since their
errors have no such law; `simulate`, `collect` and `evaluate` measure them.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from decimal import Decimal
from typing import Any, Final

import numpy as np

from ..errors import InputError, LdpBeamError
from ..mechanisms import Mechanism, make_mechanism
from ..mechanisms.expectation import Expected, Holdings, expected_errors

__all__ = ["DomainCandidate", "DomainPlan", "DomainQuestion", "lengths_from_text", "make_domain_plan", "paddings_for"]

#: Every padding up to this one is tried, and above it some.
_EACH: Final = 16
_MORE: Final = 24
_LONGEST: Final = 10_000
#: Mechanisms and allocations; those with a padding are tried with each.
_PADDED: Final = (("pckv-ue", "optimized"), ("pckv-ue", "numerical"), ("pckv-grr", "optimized"))
_OTHERS: Final = (("privkv", "naive"), ("privkv", "optimized"), ("kvue", None))
#: A prior's mean where the means are spread over the whole range: the root of their mean square.
_TYPICAL_MEAN: Final = 0.577


@dataclass(frozen=True, kw_only=True)
class DomainQuestion:
    """What is to be collected, from whom, and what is believed of them.

    Attributes:
        epsilon: privacy budget of one report.
        users: number of users.
        keys: number of keys.
        lengths: share of the users who hold 0, 1, 2, … keys, adding up to 1.
        exponent: of the power law of the weights with which people draw their keys; 0 for keys that are all alike.
        mean: mean of every key on the scale from -1 to 1; None for means that are spread over all of it.
        minimise: "mean" or "frequency": whose expected squared error decides.
    """

    epsilon: Decimal
    users: int
    keys: int
    lengths: tuple[float, ...]
    exponent: float = 1.0
    mean: float | None = None
    minimise: str = "mean"

    def __post_init__(self) -> None:
        if len(self.lengths) > self.keys + 1:
            raise InputError(f"--pairs-per-user: nobody can hold {len(self.lengths) - 1} of {self.keys} keys.")
        if self.mean is not None and not -1.0 <= self.mean <= 1.0:
            raise InputError(f"--mean {self.mean:g}: it is on the scale to which values are mapped, from -1 to 1.")
        if not 0.0 <= self.exponent <= 10.0:
            raise InputError(f"--exponent {self.exponent:g}: it must lie from 0 to 10.")

    @property
    def holdings(self) -> Holdings:
        """The population, as far as predictions depend on it."""
        return Holdings.of(np.array(self.lengths), self.keys, exponent=self.exponent, mean=self.mean)

    @property
    def pairs(self) -> float:
        """Mean number of keys that a user holds."""
        return float(np.array(self.lengths) @ np.arange(len(self.lengths)))

    def make(self, name: str, allocation: str | None, padding: int | None) -> Mechanism:
        """Make a mechanism for this question."""
        given: dict[str, Any] = {"epsilon": self.epsilon, "keys": self.keys}
        given |= {} if allocation is None else {"allocation": allocation}
        given |= {} if padding is None else {"padding": padding}
        if allocation == "numerical":
            given["prior_frequency"] = min(1.0, self.pairs / self.keys)
            given["prior_mean"] = _TYPICAL_MEAN if self.mean is None else self.mean
            given["prior_users"] = self.users
            given["prior_mean_weight"] = 1 if self.minimise == "mean" else 0
        return make_mechanism(name, **given)


@dataclass(frozen=True, kw_only=True)
class DomainCandidate:
    """A mechanism with a padding (None where it has none), and what it would err."""

    mechanism: str
    allocation: str | None
    padding: int | None
    report_bytes: int
    expected: Expected

    def error(self, minimise: str) -> float:
        """The squared error that decides."""
        return self.expected.mean if minimise == "mean" else self.expected.frequency

    @property
    def label(self) -> str:
        """Mechanism and allocation in words."""
        return self.mechanism if self.allocation in (None, "optimized") else f"{self.mechanism} ({self.allocation})"

    def as_json(self) -> dict[str, Any]:
        """Return what people compare."""
        return {
            "mechanism": self.mechanism,
            "allocation": self.allocation,
            "padding": self.padding,
            "report_bytes": self.report_bytes,
            "expected": {"frequency_error": self.expected.frequency, "mean_mse": self.expected.mean},
        }


@dataclass(frozen=True, kw_only=True)
class DomainPlan:
    """All candidates, the smallest expected error first.

    Attributes:
        question: what was asked.
        candidates: every mechanism with every padding that was tried.
        left_out: mechanisms that do not fit, and why.
    """

    question: DomainQuestion
    candidates: tuple[DomainCandidate, ...]
    left_out: Mapping[str, str]

    @property
    def recommended(self) -> DomainCandidate:
        """The one that errs least."""
        return self.candidates[0]

    def by_padding(self) -> dict[str, dict[int | None, float]]:
        """Errors against the padding, for every mechanism; None is the padding of those that have none."""
        found: dict[str, dict[int | None, float]] = {}
        for one in sorted(self.candidates, key=lambda one: one.padding or 0):
            found.setdefault(one.label, {})[one.padding] = one.error(self.question.minimise)
        return found

    def as_json(self) -> dict[str, Any]:
        """Return the plan as JSON-able fields."""
        question = self.question
        return {
            **self.recommended.as_json(),
            "epsilon": float(question.epsilon),
            "users": question.users,
            "keys": question.keys,
            "pairs_per_user": question.pairs,
            "exponent": question.exponent,
            "mean": question.mean,
            "minimises": "mean_mse" if question.minimise == "mean" else "frequency_error",
            "candidates": [one.as_json() for one in self.candidates],
            "left_out": dict(self.left_out),
        }


def make_domain_plan(question: DomainQuestion, mechanism: str | None = None) -> DomainPlan:
    """Compare all mechanisms with all paddings.

    Args:
        question: what is to be collected.
        mechanism: only this one; None for all.

    Raises:
        InputError: No mechanism fits.
    """
    choices = [(*one, padding) for one in _PADDED for padding in paddings_for(question.lengths)]
    choices += [(*one, None) for one in _OTHERS]
    holdings, found, left_out = question.holdings, list[DomainCandidate](), dict[str, str]()
    for name, allocation, padding in choices:
        if mechanism not in (None, name):
            continue
        try:
            made = question.make(name, allocation, padding)
        except LdpBeamError as error:
            left_out[name] = str(error)
            continue
        expected = expected_errors(made, holdings, question.users)
        if expected is not None:
            found.append(_candidate(made, allocation, padding, expected))
    if not found:
        reasons = "; ".join(f"{name}: {reason}" for name, reason in left_out.items())
        raise InputError(f"No mechanism fits. {reasons or f'{mechanism}: its errors have no law here.'}")
    found.sort(key=lambda one: one.error(question.minimise))
    return DomainPlan(question=question, candidates=tuple(found), left_out=left_out)


def _candidate(made: Mechanism, allocation: str | None, padding: int | None, expected: Expected) -> DomainCandidate:
    size = sum(np.dtype(part.dtype).itemsize * max(1, part.width) for part in made.layout())
    return DomainCandidate(
        mechanism=made.name, allocation=allocation, padding=padding, report_bytes=size, expected=expected
    )


def paddings_for(lengths: Sequence[float]) -> list[int]:
    """Return the paddings to try: up to the largest number of keys that anybody holds."""
    longest = max(1, int(np.flatnonzero(np.asarray(lengths)).max(initial=1)))
    if longest <= _EACH:
        return list(range(1, longest + 1))
    more = np.geomspace(_EACH, longest, _MORE).round().astype(int)
    return sorted({*range(1, _EACH + 1), *map(int, more)})


def lengths_from_text(text: str) -> tuple[float, ...]:
    """Read how many keys people hold: a number, or shares as in "0:0.2,1:0.5,7:0.3".

    Raises:
        InputError: It is neither.
    """
    wrong = InputError(
        f"--pairs-per-user {text}: give a whole number that everybody holds, or shares that add up to 1, such as "
        "0:0.2,1:0.5,7:0.3 (a fifth of the users holds nothing, half of them one key, the others seven)."
    )
    shares: dict[int, float] = {}
    for part in text.split(","):
        length, colon, share = part.partition(":")
        try:
            number, weight = int(length), float(share) if colon else 1.0
        except ValueError:
            raise wrong from None
        if number in shares or not 0 <= number <= _LONGEST or not 0.0 <= weight <= 1.0:
            raise wrong
        shares[number] = weight
    if not math.isclose(sum(shares.values()), 1.0, abs_tol=1e-6) or not any(shares):
        raise wrong
    lengths = np.zeros(max(shares) + 1)
    lengths[list(shares)] = list(shares.values())
    return tuple(lengths.tolist())
