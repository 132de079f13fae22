"""The exact audit of `padding = "auto"`: both questions, for every padding that may be chosen.

A user answers one of two questions, and which one follows from the secret, the collection's name and the user alone. So
the loss is the larger one of the two: of the length question, whose input is the number of keys, from 0 to the cap
(every larger set counts as the cap), and of the main question with the worst padding.
"""

from __future__ import annotations

from dataclasses import replace
from fractions import Fraction

from ..padding.auto import AutoPadding
from ..probability import log_up
from .audit import ExactAudit, audit_exact
from .law import loss_of_size
from .laws import law_of

__all__ = ["audit_two_questions"]


def audit_two_questions(mechanism: AutoPadding) -> tuple[ExactAudit, ExactAudit, ExactAudit, int]:
    """Audit both questions.

    Args:
        mechanism: a mechanism with padding "auto".

    Returns:
        The audit of both together, of the length question, of the main question with the worst padding, and that
        padding. In the first, `sizes` gives the loss of pairs of which one record holds so many keys, from 0 to the
        whole domain.
    """
    length = audit_exact(mechanism.length)
    audits = {padding: audit_exact(mechanism.main(padding), enumerate_reports=False) for padding in mechanism.paddings}
    worst = max(audits, key=lambda padding: audits[padding].exact)
    main = audit_exact(mechanism.main(worst))
    larger = max(length, main, key=lambda one: one.exact)
    both = replace(
        larger,
        mechanism=mechanism.name,
        declared=mechanism.epsilon,
        stated=mechanism.exact_epsilon(),
        method=larger.method if length.method == main.method else "closed-form",
        enumerated=max((e for e in (length.enumerated, main.enumerated) if e is not None), default=None),
        naive=length.exact + main.exact,
        steps={"length question": length.exact, "main question": main.exact},
        sizes=_sizes(mechanism, length, worst),
        draws=(*length.draws, *main.draws),
    )
    return both, length, main, worst


def _sizes(mechanism: AutoPadding, length: ExactAudit, padding: int) -> dict[int, float]:
    """Loss by size of one of the two records; in the length question any size differs from some other one."""
    (law,) = law_of(mechanism.main(padding))
    around = {0, 1, padding - 1, padding, padding + 1, mechanism.cap - 1, mechanism.cap, mechanism.cap + 1}
    shown = sorted(size for size in {*around, mechanism.keys} if 0 <= size <= mechanism.keys)
    return {size: max(length.exact, log_up(max(loss_of_size(law, size).ratio, Fraction(1)))) for size in shown}
