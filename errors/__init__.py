"""The one error tree of ldp-beam.

Every error that a person can cause or act upon derives from `LdpBeamError`. Its message says what was
given, where, what is allowed, and what to do. The command line maps the tree to exit codes:
`InputError` (wrong usage or input, found before anything was lost) is 2, `RunError` is 1.

This package imports nothing of ours, so that every other package may use it.
"""

from __future__ import annotations

import difflib
from collections.abc import Iterable

__all__ = ["InputError", "LdpBeamError", "NotAvailableError", "ParameterError", "RunError", "did_you_mean"]


class LdpBeamError(Exception):
    """Base of all errors of ldp-beam; its text is one paragraph for people."""

    exit_code: int = 1


class InputError(LdpBeamError, ValueError):
    """A wrong definition, option, file or column, found before anything was lost."""

    exit_code = 2


class ParameterError(InputError):
    """A parameter of a mechanism that is outside what the mechanism allows."""


class NotAvailableError(InputError):
    """A name that is reserved for a feature which this version does not have."""

    @classmethod
    def of(cls, what: str, *, instead: str = "") -> NotAvailableError:
        """Say that `what` is not available yet, and what to use `instead`."""
        return cls(f"{what} is not available yet." + (f" {instead}" if instead else ""))


class RunError(LdpBeamError, RuntimeError):
    """A run that started and could not be completed; it leaves no output."""

    exit_code = 1


def did_you_mean(given: str, allowed: Iterable[str]) -> str:
    """Return a sentence that suggests the nearest of the `allowed` names, or lists them all."""
    names = sorted(allowed)
    near = difflib.get_close_matches(given, names, n=1, cutoff=0.6)
    if near:
        return f"Did you mean {near[0]!r}?"
    return "Allowed: " + ", ".join(names) + "." if names else ""
