"""The table [attributes] of a collection definition: several columns of one row a user, and how they are asked."""

from __future__ import annotations

import itertools
import math
from collections.abc import Mapping
from typing import Any, Final

from ..errors import InputError
from .fields import choice, integer, refuse_unknown, required, table, wrong

__all__ = ["COMPOSITE", "TABLE", "attribute_keys", "attribute_sizes", "read_attributes"]

TABLE: Final = "attributes"
COMPOSITE: Final = "composite"
_MODES: Final = (COMPOSITE, "split", "sampled")
_ONE_SYMBOL: Final = ("rr", "grr", "sue", "oue", "olh", "subset-selection", "shist", "hadamard")
#: Mechanisms that may be asked about combinations alone: what is sensitive is listed as combinations.
_COMBINATIONS_ONLY: Final = ("urr", "urap")
_COMBINATIONS_MAX: Final = 1_000_000


def read_attributes(data: Mapping[str, Any]) -> dict[str, Any]:
    """Return the table by its name, checked, or nothing where there is none.

    Args:
        data: a definition, of which the mechanism's name has been checked.

    Raises:
        InputError: a field of the table is wrong, or the mechanism cannot ask about attributes.
    """
    if TABLE not in data:
        return {}
    given = table(data, TABLE, "the fields mode, columns and values")
    refuse_unknown(given, ("mode", "columns", "values"), f"{TABLE}.")
    mode = choice(given, "mode", _MODES, prefix=f"{TABLE}.")
    _require_mechanism(str(data["mechanism"]), mode)
    columns = _texts(required(given, "columns", "a list of column names", f"{TABLE}."), "columns")
    values = required(given, "values", "a list with the list of values of each column", f"{TABLE}.")
    if not isinstance(values, list) or len(values) != len(columns):
        raise wrong(f"{TABLE}.values", values, f"a list of {len(columns)} lists, the values of each column")
    read = {
        "mode": mode,
        "columns": columns,
        "values": [_texts(one, f"values of {columns[i]!r}") for i, one in enumerate(values)],
    }
    combinations = math.prod(attribute_sizes(read))
    if mode == COMPOSITE and combinations > _COMBINATIONS_MAX:
        raise InputError(
            f"[{TABLE}] has {combinations:,} combinations of values, more than {_COMBINATIONS_MAX:,}. Use fewer "
            'columns or values, or mode = "sampled".'
        )
    return {TABLE: read}


def _require_mechanism(mechanism: str, mode: str) -> None:
    if mechanism in _ONE_SYMBOL or (mechanism in _COMBINATIONS_ONLY and mode == COMPOSITE):
        return
    what = "asks about attributes in no mode" if mechanism not in _COMBINATIONS_ONLY else f"knows no mode {mode!r}"
    raise InputError(
        f"[{TABLE}]: {mechanism} {what}. Use one of {', '.join(_ONE_SYMBOL)}, or, for combinations, "
        f"{' or '.join(_COMBINATIONS_ONLY)}."
    )


def _texts(given: Any, what: str) -> list[str]:
    if not isinstance(given, list) or not given:
        raise wrong(f"{TABLE}.{what}", given, "a list of at least one text or integer")
    texts = [one if isinstance(one, str) else str(integer(one, f"{TABLE}.{what}", "text or integers")) for one in given]
    repeated = {one for one in texts if texts.count(one) > 1}
    if repeated:
        raise InputError(f"{TABLE}.{what} holds {sorted(repeated)[0]!r} more than once.")
    return texts


def attribute_sizes(attributes: Mapping[str, Any]) -> tuple[int, ...]:
    """Return the number of values of each column."""
    return tuple(len(values) for values in attributes["values"])


def attribute_keys(attributes: Mapping[str, Any]) -> list[str]:
    """Return the texts of the keys: column=value, or all combinations of them joined by commas."""
    each = [
        [f"{column}={value}" for value in values]
        for column, values in zip(attributes["columns"], attributes["values"], strict=True)
    ]
    if attributes["mode"] == COMPOSITE:
        return [",".join(parts) for parts in itertools.product(*each)]
    return list(itertools.chain.from_iterable(each))
