"""What a collection would tell, before anything is collected: predicted errors, users needed, the best mechanism.

All figures come from closed forms: variances to first order in one over the number of users, who are taken to be a
random sample, for the raw (unbiased) estimates. The default estimators clip and do no worse.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from decimal import Decimal
from typing import Any, Final

import numpy as np

from ..errors import InputError, LdpBeamError
from ..mechanisms import MECHANISMS, Entry, Mechanism, make_mechanism

__all__ = ["Candidate", "Plan", "Question", "candidates", "make_plan"]

#: What `_kind` gives for key-value data.
_KEY_VALUE: Final = (True, True, False)
#: Fewer expected true reports of a key than this make the closed forms poor.
_FEW: Final = 30.0


@dataclass(frozen=True, kw_only=True)
class Question:
    """What is to be collected, and from whom.

    Attributes:
        epsilon: privacy budget of one report.
        users: number of users.
        keys: number of keys.
        padding: padding length, for mechanisms that have one.
        frequency: share of users who hold a typical key, in (0, 1].
        mean: mean of its values, in [-1, 1].
        allocation: split of the budget; None stands for each mechanism's own, and for PCKV-UE also the numerical one.
        minimise: "mean" or "frequency": whose predicted squared error decides between mechanisms.
    """

    epsilon: Decimal
    users: int
    keys: int
    padding: int = 1
    frequency: float = 0.1
    mean: float = 0.5
    allocation: str | None = None
    minimise: str = "mean"

    def __post_init__(self) -> None:
        if not 0.0 < self.frequency <= 1.0:
            raise InputError(f"--frequency {self.frequency:g}: it is a share of the users, above 0 and at most 1.")
        if not -1.0 <= self.mean <= 1.0:
            raise InputError(f"--mean {self.mean:g}: it is on the scale to which values are mapped, from -1 to 1.")

    def make(self, name: str, allocation: str | None) -> Mechanism:
        """Make a mechanism with what it needs of this question."""
        given: dict[str, Any] = {"padding": self.padding, "allocation": allocation}
        if allocation == "numerical":
            given |= {"prior_frequency": self.frequency, "prior_mean": self.mean, "prior_users": self.users}
            given["prior_mean_weight"] = 1 if self.minimise == "mean" else 0
        if name not in MECHANISMS:
            return make_mechanism(name)
        known = MECHANISMS[name].parameters
        if "sensitive" in known:
            raise InputError(
                f"{name}: what it errs depends on which keys are sensitive, for which plan has no option. In Python "
                f"`ldp_beam.mechanisms.make_mechanism({name!r}, …).predict(frequency=…, users=…)` predicts it."
            )
        named = {field: value for field, value in given.items() if value is not None and field in known}
        return make_mechanism(name, epsilon=self.epsilon, keys=self.keys, **named)


@dataclass(frozen=True, kw_only=True)
class Candidate:
    """A mechanism with its predicted errors; None where it does not estimate a figure, or has no closed form.

    Attributes:
        mechanism: its name.
        allocation: split of the budget, if it has one.
        parameters: probabilities and budgets by name.
        report_bytes: size of one report.
        frequency_se: standard error of the raw frequency.
        mean_se: standard error of the raw mean.
        mean_bias: bias of the raw mean.
        true_reports: expected number of reports that truly speak of the key; None where that is not known.
    """

    mechanism: str
    allocation: str | None
    parameters: Mapping[str, float]
    report_bytes: int
    frequency_se: float | None
    mean_se: float | None
    mean_bias: float | None
    true_reports: float | None

    @classmethod
    def of(cls, mechanism: Mechanism, question: Question) -> Candidate:
        """Predict the errors of a mechanism."""
        found = mechanism.predict(frequency=question.frequency, mean=question.mean, users=question.users)
        parameters = {name: float(value) for name, value in mechanism.parameters().items()}
        padding = getattr(mechanism, "padding", 1)
        true = question.users * parameters["a"] * question.frequency / padding if "a" in parameters else None
        return cls(
            mechanism=mechanism.name,
            allocation=getattr(mechanism, "allocation", None),
            parameters=parameters,
            report_bytes=sum(np.dtype(f.dtype).itemsize * max(1, f.width) for f in mechanism.layout()),
            frequency_se=_finite(found.frequency_se),
            mean_se=_finite(found.mean_se),
            mean_bias=_finite(found.mean_bias),
            true_reports=true,
        )

    @property
    def predicted(self) -> dict[str, float | None]:
        """Standard errors and mean squared errors of both figures."""
        f, m, bias = self.frequency_se, self.mean_se, self.mean_bias
        return {
            "frequency_se": f,
            "mean_se": m,
            "mean_bias": bias,
            "frequency_mse": None if f is None else f**2,
            "mean_mse": None if m is None else m**2 + (bias or 0.0) ** 2,
        }

    def error(self, minimise: str) -> float:
        """The squared error that decides; infinite where there is none."""
        found = self.predicted[f"{minimise}_mse"]
        return math.inf if found is None else found

    def as_json(self) -> dict[str, Any]:
        """Return what people compare."""
        return {
            "mechanism": self.mechanism,
            "allocation": self.allocation,
            "report_bytes": self.report_bytes,
            "predicted": self.predicted,
        }


def _finite(value: float) -> float | None:
    return float(value) if math.isfinite(value) else None


@dataclass(frozen=True, kw_only=True)
class Plan:
    """A mechanism for a question, beside the others that could answer it.

    Attributes:
        question: what was asked.
        chosen: the mechanism that was named, or the recommended one.
        others: every mechanism that fits, the smallest predicted error first.
        left_out: mechanisms that do not fit, and why.
        users_needed: for each wanted standard error, by name, the number of users that reaches it with `chosen`.
    """

    question: Question
    chosen: Candidate
    others: tuple[Candidate, ...]
    left_out: Mapping[str, str]
    users_needed: Mapping[str, int]

    @property
    def recommended(self) -> Candidate:
        """The mechanism with the smallest predicted error."""
        return self.others[0]

    def warnings(self) -> list[str]:
        """What to know before trusting the figures."""
        chosen, question = self.chosen, self.question
        found = []
        if chosen.true_reports is not None and chosen.true_reports < _FEW:
            found.append(
                f"About {chosen.true_reports:.0f} reports would truly speak of such a key; below {_FEW:.0f} the "
                "predictions are poor, and results are flagged few-holders."
            )
        if chosen.frequency_se is not None and chosen.frequency_se >= question.frequency:
            found.append(
                f"The standard error of the frequency, {chosen.frequency_se:.3g}, is not below the frequency itself: "
                "such a key will not be told from one that nobody holds. More users or a larger epsilon help."
            )
        return found

    def as_json(self) -> dict[str, Any]:
        """Return the plan as JSON-able fields."""
        question, best = self.question, self.recommended
        return {
            "mechanism": self.chosen.mechanism,
            "epsilon": float(question.epsilon),
            "users": question.users,
            "keys": question.keys,
            "padding": question.padding,
            "frequency": question.frequency,
            "mean": question.mean,
            "allocation": self.chosen.allocation,
            "parameters": {name: _finite(value) for name, value in self.chosen.parameters.items()},
            "predicted": self.chosen.predicted,
            "report_bytes": self.chosen.report_bytes,
            "users_needed": dict(self.users_needed),
            "recommendation": {**best.as_json(), "minimises": f"{question.minimise}_mse"},
            "candidates": [one.as_json() for one in self.others],
            "left_out": dict(self.left_out),
            "warnings": self.warnings(),
        }


def make_plan(question: Question, mechanism: str | None = None, wanted: Mapping[str, float] | None = None) -> Plan:
    """Predict errors and recommend a mechanism.

    Args:
        question: what is to be collected.
        mechanism: name of the mechanism; None stands for the recommended one of key-value data.
        wanted: standard errors to reach, by "frequency_se" or "mean_se".

    Raises:
        InputError: where no mechanism fits, or the named one has no closed form.
    """
    named = None if mechanism is None else _named(question, mechanism)
    if named is not None and named.mean_se is None:
        question = replace(question, minimise="frequency")
    found, left_out = candidates(question, like=mechanism)
    if named is not None and all(
        (one.mechanism, one.allocation) != (named.mechanism, named.allocation) for one in found
    ):
        found.append(named)
    found.sort(key=lambda one: one.error(question.minimise))
    if not found:
        reasons = "; ".join(f"{name}: {reason}" for name, reason in left_out.items())
        raise InputError(f"No mechanism fits. {reasons}")
    chosen = named or found[0]
    needed = {name: _users_needed(question, chosen, name, error) for name, error in (wanted or {}).items()}
    return Plan(question=question, chosen=chosen, others=tuple(found), left_out=left_out, users_needed=needed)


def _named(question: Question, name: str) -> Candidate:
    if question.allocation is not None and "allocation" not in getattr(MECHANISMS.get(name), "parameters", ()):
        raise InputError(f"--allocation {question.allocation}: {name} has no choice of allocation; leave it out.")
    found = Candidate.of(question.make(name, question.allocation), question)
    if found.frequency_se is None and found.mean_se is None:
        raise InputError(
            f"--mechanism {name}: its errors have no closed form here, so nothing can be predicted. `ldp-beam "
            "simulate`, `collect` and `evaluate` measure them on a synthetic population."
        )
    return found


def candidates(question: Question, like: str | None = None) -> tuple[list[Candidate], dict[str, str]]:
    """Return the mechanisms that can answer the question, and why the others cannot.

    Args:
        question: what is to be collected.
        like: only mechanisms for the same kind of records as this one; None stands for key-value data.
    """
    found, left_out = list[Candidate](), dict[str, str]()
    for name, allocation in _choices(question, like):
        try:
            one = Candidate.of(question.make(name, allocation), question)
        except LdpBeamError as error:
            left_out[name] = str(error)
            continue
        if math.isinf(one.error(question.minimise)):
            left_out[name] = f"its error of the {question.minimise} has no closed form"
        else:
            found.append(one)
    return found, left_out


def _choices(question: Question, like: str | None) -> Iterator[tuple[str, str | None]]:
    for name, entry in MECHANISMS.items():
        if _kind(entry) != (_KEY_VALUE if like is None else _kind(MECHANISMS[like])):
            continue
        yield name, question.allocation if "allocation" in entry.parameters else None
        if question.allocation is None and getattr(entry.mechanism, "numerical", False):
            yield name, "numerical"


def _kind(entry: Entry) -> tuple[bool, bool, bool]:
    """Whether records hold values; whether frequencies are estimated; whether they hold several keys without values."""
    values = entry.has_values
    return values, entry.mechanism.has_frequency, not values and "padding" in entry.parameters


def _users_needed(question: Question, chosen: Candidate, name: str, wanted: float) -> int:
    """Smallest number of users whose predicted standard error is at most the wanted one; errors fall as 1/sqrt(n)."""
    option = f"--wanted-{name.replace('_', '-')}"
    if not wanted > 0.0 or not math.isfinite(wanted):
        raise InputError(f"{option} {wanted:g}: it must be above 0.")
    error = chosen.predicted[name]
    if error is None:
        raise InputError(f"{option}: {chosen.mechanism} does not estimate that figure; leave it out.")
    return max(1, math.ceil(question.users * (error / wanted) ** 2 * (1.0 - 1e-12)))
