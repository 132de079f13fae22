"""The table [prior] of a collection definition: what is believed of a typical key before anything is collected.

The allocation "numerical" is best for these figures. They are declared constants, or come from published estimates of
an earlier collection; taken from the records themselves they would break the guarantee.
"""

from __future__ import annotations

from collections.abc import Mapping
from decimal import Decimal, InvalidOperation
from typing import Any

from ..errors import InputError
from .fields import number, refuse_unknown, required, table, wrong
from .keys import KeyDomain

__all__ = ["TABLE", "prior_arguments", "read_prior"]

#: Name of the table.
TABLE = "prior"

#: Field → lowest, highest, what it is.
_FIELDS = {
    "frequency": (0, 1, "a number above 0, at most 1: the share of users who hold a typical key"),
    "mean": (-1, 1, "a number from -1 to 1: a typical key's mean, where -1 and 1 are the ends of values.range"),
    "users": (1, 10**12, "a number of at least 1: about how many users will report"),
    "mean_weight": (0, 1, "a number from 0 to 1: 1 minimises the error of means, 0 that of frequencies"),
}


def read_prior(data: Mapping[str, Any], allocation: str) -> dict[str, Any]:
    """Read [prior] frequency, mean, users and mean_weight (default 1), which the allocation "numerical" needs."""
    if allocation != "numerical":
        if TABLE in data:
            raise InputError(
                f"the table [{TABLE}] acts on allocation = 'numerical' alone, but the allocation is {allocation!r}. "
                "Leave the table out, or change the allocation."
            )
        return {}
    given = table(data, TABLE, "frequency, mean and users: what you believe of a typical key beforehand")
    refuse_unknown(given, tuple(_FIELDS), f"{TABLE}.")
    return {TABLE: {name: _figure({"mean_weight": 1, **given}, name) for name in _FIELDS}}


def _figure(given: Mapping[str, Any], name: str) -> Decimal:
    low, high, what = _FIELDS[name]
    value = required(given, name, what, f"{TABLE}.")
    if isinstance(value, str):  # as a manifest has it
        try:
            value = Decimal(value)
        except InvalidOperation:
            raise wrong(f"{TABLE}.{name}", value, what) from None
    exact = number(value, f"{TABLE}.{name}", what)
    if not exact.is_finite() or not low <= exact <= high or (name == "frequency" and not exact):
        raise InputError(f"the field '{TABLE}.{name}' is {exact}; it must be {what}.")
    return exact


def prior_arguments(parameters: Mapping[str, Any], keys: KeyDomain) -> dict[str, Any]:
    """Name the fields of [prior] as the mechanism does; `keys` is not used."""
    return {f"{TABLE}_{name}" if name in _FIELDS else name: value for name, value in parameters.items()}
