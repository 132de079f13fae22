"""What the length question brought, for the main question of the same run."""

from __future__ import annotations

from dataclasses import dataclass, replace

from ..mechanisms.padding.choice import Choice
from ..schemas.manifest import Manifest
from ..transforms.collection import Collection
from .aggregate_questions import with_choice
from .charging import Charge

__all__ = ["LengthAnswers"]


@dataclass(frozen=True, kw_only=True)
class LengthAnswers:
    """The answers to the length question.

    Attributes:
        asked: the collection as it was declared, with both questions.
        answers: how many users answered.
        choice: the padding that was chosen.
        charge: the spend of both questions together: each user answers one.
    """

    asked: Collection
    answers: int
    choice: Choice
    charge: Charge

    def told_in(self, manifest: Manifest) -> Manifest:
        """Return the manifest of the main question with what is to be said of both."""
        reports = manifest.reports
        told = with_choice(manifest, self.asked, self.choice)
        return told if reports is None else replace(told, reports={**reports, "length_question": self.answers})
