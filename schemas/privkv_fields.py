"""The table [privkv] of a collection definition: what PrivKV, PrivKVM and PrivKVM+ add, with documented defaults."""

from __future__ import annotations

from collections.abc import Mapping
from decimal import Decimal, InvalidOperation
from typing import Any

from ..errors import InputError
from .fields import choice, integer, number, refuse_unknown, wrong

__all__ = ["TABLE", "read_privkv", "read_privkvm", "read_privkvm_plus"]

#: Name of the table.
TABLE = "privkv"

_ROUNDS = "a whole number from {least} to 100"


def _table(data: Mapping[str, Any], allowed: tuple[str, ...]) -> Mapping[str, Any]:
    given = data.get(TABLE, {})
    if not isinstance(given, Mapping):
        raise wrong(TABLE, given, f"a table [{TABLE}]")
    refuse_unknown(given, allowed, f"{TABLE}.")
    return given


def _rounds(given: Mapping[str, Any], field: str, default: int, least: int) -> int:
    what = _ROUNDS.format(least=least)
    rounds = integer(given.get(field, default), f"{TABLE}.{field}", what, least=least)
    if rounds > 100:
        raise wrong(f"{TABLE}.{field}", rounds, what)
    return rounds


def _number(given: Mapping[str, Any], field: str, default: str, low: str, high: str, *, above: bool = False) -> Decimal:
    """Return a number of [low, high], or of (low, high]; a manifest holds it as text."""
    what = f"a number {'above' if above else 'from'} {low} {'and at most' if above else 'to'} {high}"
    value = given.get(field, Decimal(default))
    if isinstance(value, str):
        try:
            value = Decimal(value)
        except InvalidOperation:
            raise wrong(f"{TABLE}.{field}", value, what) from None
    exact = number(value, f"{TABLE}.{field}", what)
    inside = exact.is_finite() and Decimal(low) <= exact <= Decimal(high) and not (above and exact == Decimal(low))
    if not inside:
        raise InputError(f"the field '{TABLE}.{field}' is {exact}; it must be {what}.")
    return exact


def read_privkv(data: Mapping[str, Any]) -> dict[str, Any]:
    """Read `allocation` and [privkv] virtual_rounds: how many rounds the virtual estimators add (default 5)."""
    allocations = ("naive", "optimized")
    later = ("non-optimized", "numerical")
    return {
        "allocation": choice(data, "allocation", allocations, later, default="naive"),
        TABLE: {"virtual_rounds": _rounds(_table(data, ("virtual_rounds",)), "virtual_rounds", 5, 0)},
    }


def read_privkvm(data: Mapping[str, Any]) -> dict[str, Any]:
    """Read [privkv] rounds (default 6) and initial, the fake value of the first round (default 0)."""
    given = _table(data, ("rounds", "initial"))
    return {TABLE: {"rounds": _rounds(given, "rounds", 6, 1), "initial": _number(given, "initial", "0", "-1", "1")}}


def read_privkvm_plus(data: Mapping[str, Any]) -> dict[str, Any]:
    """Read [privkv] A0 (default 0.05), t (2), decay (0), initial (0) and max_rounds (6)."""
    given = _table(data, ("A0", "t", "decay", "initial", "max_rounds"))
    return {
        TABLE: {
            "A0": _number(given, "A0", "0.05", "0", "2"),
            "t": _number(given, "t", "2", "1", "100", above=True),
            "decay": _number(given, "decay", "0", "0", "0.99"),
            "initial": _number(given, "initial", "0", "-1", "1"),
            "max_rounds": _rounds(given, "max_rounds", 6, 1),
        }
    }
