"""`audit`: what epsilon a mechanism really has, exactly and by attack."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from ..errors import InputError
from ..mechanisms import AutoPadding, Mechanism, MultiRound
from ..mechanisms.audit.attack import CONFIDENCE, attack
from ..mechanisms.audit.audit import audit_exact
from ..mechanisms.audit.report_ids import id_violations
from ..mechanisms.audit.transcript import Transcript
from ..mechanisms.audit.two_questions import audit_two_questions
from ..schemas.reports import REPORT_ID, REPORT_ID_BYTES

__all__ = ["audit"]


def audit(
    mechanism: Mechanism,
    *,
    reports: int | None = None,
    confidence: float | None = None,
    report_ids: bool = False,
) -> dict[str, Any]:
    """Audit one mechanism.

    Args:
        mechanism: with the parameters of a collection.
        reports: also attack the client's code with so many reports a record.
        confidence: of the attack's lower bound.
        report_ids: whether the collection's reports carry ids, which are then audited too.

    Returns:
        The object that `ldp-beam audit --json` prints; `violations` is empty where the declared epsilon holds.

    Raises:
        InputError: for a confidence outside (0.5, 1), or one without reports.
    """
    if confidence is not None and reports is None:
        raise InputError("--confidence belongs to the statistical audit; give --reports N as well.")
    if confidence is not None and not 0.5 < confidence < 1:
        raise InputError(f"--confidence {confidence:g}: it must lie between 0.5 and 1, for example 0.99999.")
    if isinstance(mechanism, AutoPadding):
        return _two_questions(mechanism, reports=reports, confidence=confidence, report_ids=report_ids)
    exact = audit_exact(mechanism)
    result = {
        **exact.as_json(),
        "keys": mechanism.keys,
        "parameters": dict(mechanism.parameters()),
        "report": _report(mechanism, report_ids),
        "statistical": None,
    }
    if report_ids:
        result["violations"] = [*result["violations"], *id_violations()]
    if reports is not None:
        attacked = Transcript(mechanism) if isinstance(mechanism, MultiRound) else mechanism
        found = attack(attacked, reports, confidence=CONFIDENCE if confidence is None else confidence)
        result["statistical"] = {**found.as_json(), "declared_epsilon": found.declared}
        if found.violation:
            result["violations"] = [
                *result["violations"],
                f"the attack shows an epsilon of at least {found.epsilon_low:.6g} (confidence {found.confidence}), "
                f"above the declared {found.declared:g}",
            ]
    return result


def _two_questions(
    mechanism: AutoPadding, *, reports: int | None, confidence: float | None, report_ids: bool
) -> dict[str, Any]:
    """Audit both questions of padding "auto"; the attacks go at each of them, the main one with the worst padding."""
    both, _, _, padding = audit_two_questions(mechanism)
    questions = {"length_question": mechanism.length, "main_question": mechanism.main(padding)}
    parts = {
        name: audit(asked, reports=reports, confidence=confidence, report_ids=report_ids)
        for name, asked in questions.items()
    }
    violations = [*both.violations, *(found for part in parts.values() for found in part["violations"])]
    return {
        **both.as_json(),
        "keys": mechanism.keys,
        "parameters": dict(mechanism.parameters()),
        "padding": padding,
        "report": {name: part["report"] for name, part in parts.items()},
        "statistical": parts["main_question"]["statistical"],
        "questions": parts,
        "violations": violations,
    }


def _report(mechanism: Mechanism, report_ids: bool) -> Mapping[str, Any]:
    """Say what a report holds: its size is the same for everybody, and no field names a user."""
    fields = {part.name: np.dtype(part.dtype).itemsize * max(part.width, 1) for part in mechanism.layout()}
    if report_ids:
        fields[REPORT_ID] = REPORT_ID_BYTES
    return {"fields": fields, "bytes": sum(fields.values()), "holds_user_id": False}
