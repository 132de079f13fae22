"""Reading the fields of a TOML table strictly: every fault names the field, what was given, what is allowed."""

from __future__ import annotations

from collections.abc import Mapping
from decimal import Decimal
from typing import Any

from ..errors import InputError, NotAvailableError, did_you_mean

__all__ = ["choice", "integer", "number", "refuse_unknown", "required", "table", "text", "wrong"]


def refuse_unknown(data: Mapping[str, Any], allowed: tuple[str, ...], prefix: str = "") -> None:
    """Refuse a field that is not among `allowed`."""
    for field in data:
        if field not in allowed:
            raise InputError(f"the field {prefix + field!r} is unknown. {did_you_mean(field, allowed)}")


def required(data: Mapping[str, Any], field: str, what: str, prefix: str = "") -> Any:
    """Return a field that has no default."""
    if field not in data:
        raise InputError(f"the field {prefix + field!r} is missing; it must be {what} and has no default.")
    return data[field]


def wrong(field: str, given: Any, what: str) -> InputError:
    """Return the error for a field of a wrong type or value."""
    return InputError(f"the field {field!r} is {_show(given)}; it must be {what}.")


def _show(given: Any) -> str:
    if isinstance(given, bool):
        return "true" if given else "false"
    if isinstance(given, dict):
        return "a table"
    if isinstance(given, list):
        return f"a list of {len(given)}"
    return str(given) if isinstance(given, (int, Decimal)) else repr(given)


def text(data: Mapping[str, Any], field: str, what: str, prefix: str = "") -> str:
    """Return a required field that is text."""
    given = required(data, field, what, prefix)
    if not isinstance(given, str):
        raise wrong(prefix + field, given, what)
    return given


def choice(
    data: Mapping[str, Any],
    field: str,
    allowed: tuple[str, ...],
    later: tuple[str, ...] = (),
    *,
    default: str | None = None,
    prefix: str = "",
) -> str:
    """Return a field that is one of a few texts; names of `later` versions are refused as such."""
    what = "one of " + ", ".join(map(repr, sorted(allowed)))
    if default is not None and field not in data:
        return default
    given = text(data, field, what, prefix)
    if given in later:
        raise NotAvailableError.of(f"{prefix}{field} = {given!r}", instead=f"It must be {what}.")
    if given not in allowed:
        hint = did_you_mean(given, allowed + later)
        near = f" {hint}" if hint.startswith("Did") else ""
        raise InputError(f"the field {prefix + field!r} is {given!r}; it must be {what}.{near}")
    return given


def number(given: Any, field: str, what: str) -> Decimal:
    """Return a number, exact as it was written."""
    if isinstance(given, bool) or not isinstance(given, (int, Decimal)):
        raise wrong(field, given, what)
    return Decimal(given)


def integer(given: Any, field: str, what: str, *, least: int | None = None) -> int:
    """Return an integer, at least `least`."""
    if isinstance(given, bool) or not isinstance(given, int) or (least is not None and given < least):
        raise wrong(field, given, what)
    return given


def table(data: Mapping[str, Any], field: str, what: str) -> Mapping[str, Any]:
    """Return a required table."""
    if field not in data:
        raise InputError(f"the table [{field}] is missing; it must hold {what} and has no default.")
    if not isinstance(data[field], dict):
        raise wrong(field, data[field], f"a table [{field}] with {what}")
    found: Mapping[str, Any] = data[field]
    return found
