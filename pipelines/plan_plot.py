"""The picture of a plan: predicted error against the number of users and against epsilon."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import replace
from decimal import Decimal
from pathlib import Path
from typing import Any

from ..errors import LdpBeamError
from .plan import Candidate, Plan, Question
from .plan_holdings import DomainPlan
from .plot_file import check_plot_file, new_canvas, save_plot

__all__ = ["plot_domain_plan", "plot_plan"]

#: Decades of users around the planned number, and budgets of the other panel.
_USERS = [10.0 ** (j / 4) for j in range(-8, 9)]
_EPSILONS = ("0.1", "0.25", "0.5", "1", "1.5", "2", "3", "4", "5", "6", "8")


def plot_plan(plan: Plan, path: str | Path) -> None:
    """Draw the predicted root mean squared error of every candidate; the planned point is marked.

    Args:
        plan: what to draw.
        path: a file ending in .png, .svg or .pdf.

    Raises:
        InputError: matplotlib is not installed, or the file cannot be written.
    """
    file = check_plot_file(path)
    question, figure = plan.question, new_canvas(10, 4.2)
    by_users, by_epsilon = figure.subplots(1, 2, sharey=True)
    users = sorted({max(1, round(question.users * factor)) for factor in _USERS})
    _panel(by_users, plan, users, lambda n: replace(question, users=n))
    _panel(by_epsilon, plan, [float(e) for e in _EPSILONS], lambda e: replace(question, epsilon=Decimal(str(e))))
    by_users.set(xscale="log", xlabel="users", ylabel=f"predicted error of the {question.minimise} (root of the MSE)")
    by_epsilon.set(xlabel="epsilon")
    by_users.set_title(f"epsilon {question.epsilon}", loc="left", fontsize=10)
    by_epsilon.set_title(f"{question.users:,} users", loc="left", fontsize=10)
    by_users.axvline(question.users, color="0.7", linewidth=0.8)
    by_epsilon.axvline(float(question.epsilon), color="0.7", linewidth=0.8)
    by_users.legend(frameon=False, fontsize=8)
    figure.suptitle(
        f"{question.keys:,} keys, padding {question.padding}, a key of frequency {question.frequency:g} and mean "
        f"{question.mean:g}",
        fontsize=10,
    )
    save_plot(figure, file)


def plot_domain_plan(plan: DomainPlan, path: str | Path) -> None:
    """Draw the expected error of every mechanism against the padding; the recommended one is marked.

    Args:
        plan: what to draw.
        path: a file ending in .png, .svg or .pdf.

    Raises:
        InputError: matplotlib is not installed, or the file cannot be written.
    """
    file = check_plot_file(path)
    question, best, figure = plan.question, plan.recommended, new_canvas(6.5, 4.2)
    axes = figure.subplots()
    for label, errors in plan.by_padding().items():
        points = {padding: error for padding, error in errors.items() if padding is not None}
        if points:
            axes.plot(list(points), list(points.values()), marker=".", linewidth=1.2, label=label)
        else:
            axes.axhline(errors[None], linewidth=1.0, linestyle=":", color="0.4", label=label)
    if best.padding is not None:
        axes.axvline(best.padding, color="0.7", linewidth=0.8)
    what = "squared error of the means" if question.minimise == "mean" else "squared error of all frequencies"
    axes.set(yscale="log", xlabel="padding", ylabel=f"expected {what}")
    axes.set_title(
        f"epsilon {question.epsilon}, {question.users:,} users, {question.keys:,} keys", loc="left", fontsize=10
    )
    axes.grid(alpha=0.25)
    axes.spines[["top", "right"]].set_visible(False)
    axes.legend(frameon=False, fontsize=8)
    save_plot(figure, file)


def _panel(axes: Any, plan: Plan, points: Sequence[float], at: Callable[[Any], Question]) -> None:
    for one in plan.others:
        errors = [_error(one, at(point), plan.question.minimise) for point in points]
        label = one.mechanism if one.allocation in (None, "optimized") else f"{one.mechanism}, {one.allocation}"
        axes.plot(points, errors, marker=".", linewidth=1.2, label=label)
    axes.set_yscale("log")
    axes.grid(alpha=0.25)
    axes.spines[["top", "right"]].set_visible(False)


def _error(one: Candidate, question: Question, minimise: str) -> float:
    try:
        found = Candidate.of(question.make(one.mechanism, one.allocation), question)
    except LdpBeamError:
        return math.nan
    return math.sqrt(found.error(minimise))
