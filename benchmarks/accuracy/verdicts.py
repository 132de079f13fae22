"""Claims whose reason is told only where they do not hold, or not everywhere."""

from __future__ import annotations

from .figures import Claim

__all__ = ["judged"]


def judged(*, paper: str, found: str, agrees: bool, why: str = "", exception: str = "") -> Claim:
    """Return a claim.

    Args:
        paper: what the paper says.
        found: what was measured.
        agrees: whether both are the same.
        why: what makes the difference, should there be one.
        exception: where a claim that agrees does not hold all the same; empty where there is no such place.
    """
    return Claim(paper=paper, found=found, agrees=bool(agrees), why=exception if agrees else why)
