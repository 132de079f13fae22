"""The exact audit: what epsilon a mechanism really has, computed apart from the mechanism's own statement.

Up to three computations stand beside each other: the mechanism's own (`exact_epsilon`), the ratio of the law that
follows from its published thresholds (`law`), and, on small domains, the ratio of the distributions that its
client code produces when it is fed chosen words (`enumeration`).
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from decimal import Decimal
from fractions import Fraction
from typing import Any, Final

from ..probability import log_up
from ..protocol import Mechanism
from .enumeration import enumerated_ratio
from .law import Draw, Loss, ReportLaw, loss, loss_of_size
from .laws import law_of

__all__ = ["ExactAudit", "audit_exact"]

#: The logarithm of a ratio is rounded up to a float, the declared epsilon to the nearest.
_ROUNDING: Final = 1e-14


@dataclass(frozen=True, kw_only=True)
class ExactAudit:
    """What the exact audit found.

    Attributes:
        mechanism: name.
        declared: the declared epsilon.
        exact: the privacy loss over every pair of records and every report, rounded up.
        method: "factorised" (from the law of the thresholds) or "closed-form" (the mechanism's own statement).
        stated: what the mechanism itself computes.
        enumerated: the same from the client's code, word by word; None where the domain is too large.
        naive: what adding up the budgets of the steps would have charged; None where there is one step.
        steps: budget of each step on its own.
        rounds: number of rounds, whose losses add up.
        sizes: loss of pairs of which one record holds so many keys.
        worst: where the loss is attained; None without a law.
        draws: integers drawn from words, whose biases the exact figure includes.
    """

    mechanism: str
    declared: Decimal
    exact: float
    method: str
    stated: float
    enumerated: float | None = None
    naive: float | None = None
    steps: Mapping[str, float] = field(default_factory=dict)
    rounds: int = 1
    sizes: Mapping[int, float] = field(default_factory=dict)
    worst: Loss | None = None
    draws: tuple[Draw, ...] = ()

    @property
    def violations(self) -> list[str]:
        """Return what is wrong, in words; empty where the declared epsilon holds."""
        declared = float(self.declared) + _ROUNDING
        found = []
        for name, value in (("exact", self.exact), ("stated", self.stated), ("enumerated", self.enumerated)):
            if value is not None and value > declared:
                found.append(f"the {name} epsilon {value!r} is above the declared {self.declared}")
        if self.exact > self.stated + _ROUNDING:
            found.append(f"the law gives {self.exact!r}, more than the {self.stated!r} that the mechanism states")
        if self.enumerated is not None and self.enumerated > self.exact + _ROUNDING:
            found.append(f"the client's code gives {self.enumerated!r}, more than the {self.exact!r} of the law")
        return found

    def as_json(self) -> dict[str, Any]:
        """Return the figures for people and programs."""
        worst = self.worst
        return {
            "mechanism": self.mechanism,
            "declared_epsilon": float(self.declared),
            "exact_epsilon": self.exact,
            "method": self.method,
            "margin": float(self.declared) - self.exact,
            "stated_epsilon": self.stated,
            "enumerated_epsilon": self.enumerated,
            "naive_composition_epsilon": self.naive,
            "steps": dict(self.steps),
            "rounds": self.rounds,
            "epsilon_by_set_size": {str(size): value for size, value in self.sizes.items()},
            "worst_case": None if worst is None else {"report": worst.report, "records": list(worst.records)},
            "integer_draws": {draw.name: {"outcomes": draw.bound, "bias": draw.bias()} for draw in self.draws},
            "violations": self.violations,
        }


def audit_exact(mechanism: Mechanism, *, enumerate_reports: bool = True) -> ExactAudit:
    """Compute the exact privacy loss of a mechanism.

    Args:
        mechanism: any mechanism.
        enumerate_reports: also run the client over chosen words where the domain is small.

    Returns:
        The figures; `violations` lists what is wrong.

    Privacy:
        The loss is the largest log-ratio of the probabilities of one report under two records, over every pair
        of records (every number of keys from 0 to the whole domain, every value) and every report. Invalid
        pairs of a record are dropped before a mechanism sees it, so that such records are among these.
    """
    stated = mechanism.exact_epsilon()
    laws = law_of(mechanism)
    if not laws:
        return ExactAudit(
            mechanism=mechanism.name,
            declared=mechanism.epsilon,
            exact=stated,
            stated=stated,
            method="closed-form",
        )
    losses = [loss(law) for law in laws]
    enumerated = enumerated_ratio(mechanism) if enumerate_reports else None
    steps = _steps(laws)
    return ExactAudit(
        mechanism=mechanism.name,
        declared=mechanism.epsilon,
        exact=_log(math.prod((one.ratio for one in losses), start=Fraction(1))),
        method="factorised",
        stated=stated,
        enumerated=None if enumerated is None else _log(enumerated),
        naive=sum(steps.values()) if len(steps) > 1 else None,
        steps=steps,
        rounds=len(laws),
        sizes=_sizes(laws[0]) if len(laws) == 1 else {},
        worst=max(losses, key=lambda one: one.ratio),
        draws=tuple({draw.name: draw for law in laws for draw in law.draws}.values()),
    )


def _log(ratio: Fraction) -> float:
    return log_up(ratio) if ratio > 1 else 0.0


def _steps(laws: Sequence[ReportLaw]) -> dict[str, float]:
    """Budget of each step; the steps of several rounds are numbered."""
    if len(laws) == 1:
        return {name: _log(ratio) for name, ratio in laws[0].steps.items()}
    return {
        f"{name}, round {number}": _log(ratio)
        for number, law in enumerate(laws, start=1)
        for name, ratio in law.steps.items()
    }


def _sizes(law: ReportLaw) -> dict[int, float]:
    """Loss by size of one of the two records: few keys, as many as the padding, more, the whole domain."""
    if law.padding is None:
        return {}
    shown = {0, 1, law.padding - 1, law.padding, law.padding + 1, law.keys}
    return {size: _log(loss_of_size(law, size).ratio) for size in sorted(shown) if 0 <= size <= law.keys}
