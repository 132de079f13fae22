"""The table [auto] of a collection definition: how `padding = "auto"` asks for lengths and chooses from the answers."""

from __future__ import annotations

from collections.abc import Mapping
from decimal import Decimal, InvalidOperation
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.csv as pa_csv

from ..errors import InputError
from .fields import choice, integer, number, refuse_unknown, text, wrong
from .keys import KeyDomain

__all__ = ["AUTO", "TABLE", "auto_arguments", "inline_frequencies", "read_padding"]

#: The padding that the users' answers decide.
AUTO = "auto"
#: Name of the table.
TABLE = "auto"
#: Largest number of keys that is told apart from more.
CAP_MAX = 1_000

_FIELDS = ("share", "cap", "rule", "fallback", "exponent", "frequencies")
_PADDING = 'an integer of at least 1 (the number of pairs that a record is padded to), or "auto"'


def read_padding(data: Mapping[str, Any]) -> dict[str, Any]:
    """Read `padding`, and with "auto" the table [auto], whose fields all have defaults.

    Raises:
        InputError: a field is missing, wrong or unknown, or the table stands beside a fixed padding.
    """
    if "padding" not in data:
        raise InputError(f"the field 'padding' is missing; it must be {_PADDING} and has no default.")
    if data["padding"] == AUTO:
        return {"padding": AUTO, TABLE: _read(data.get(TABLE, {}))}
    if TABLE in data:
        raise InputError(
            f'the table [{TABLE}] acts on padding = "auto" alone, but the padding is {data["padding"]!r}. Leave the '
            "table out, or change the padding."
        )
    return {"padding": integer(data["padding"], "padding", _PADDING, least=1)}


def _read(given: Any) -> dict[str, Any]:
    if not isinstance(given, Mapping):
        raise wrong(TABLE, given, f"a table [{TABLE}] with {', '.join(_FIELDS)}")
    refuse_unknown(given, _FIELDS, f"{TABLE}.")
    share = _decimal(given.get("share", Decimal("0.1")), "share", "a number between 0 and 1 (of the users)")
    if not 0 < share < 1:
        raise InputError(f"the field '{TABLE}.share' is {share}; it must be a number between 0 and 1 (of the users).")
    exponent = _decimal(given.get("exponent", 1), "exponent", "a number from 0 to 10 (of a power law)")
    if not 0 <= exponent <= 10:
        raise InputError(f"the field '{TABLE}.exponent' is {exponent}; it must be a number from 0 to 10.")
    read: dict[str, Any] = {
        "share": share,
        "cap": _length(given, "cap", CAP_MAX),
        "rule": choice(given, "rule", ("error", "percentile"), default="error", prefix=f"{TABLE}."),
        "fallback": _length(given, "fallback", 1),
        "exponent": exponent,
    }
    return read | ({"frequencies": _frequencies(given["frequencies"])} if "frequencies" in given else {})


def _length(given: Mapping[str, Any], field: str, default: int) -> int:
    what = f"an integer from 1 to {CAP_MAX:,}"
    found = integer(given.get(field, default), f"{TABLE}.{field}", what, least=1)
    if found > CAP_MAX:
        raise wrong(f"{TABLE}.{field}", found, what)
    return found


def _decimal(given: Any, field: str, what: str) -> Decimal:
    if isinstance(given, str):  # as a manifest has it
        try:
            given = Decimal(given)
        except InvalidOperation:
            raise wrong(f"{TABLE}.{field}", given, what) from None
    found = number(given, f"{TABLE}.{field}", what)
    if not found.is_finite():
        raise wrong(f"{TABLE}.{field}", found, what)
    return found


# -- frequencies of an earlier collection -------------------------------------------------------------------


def inline_frequencies(data: Mapping[str, Any], folder: Path) -> Mapping[str, Any]:
    """Replace the path in [auto] frequencies, relative to `folder`, by the keys and frequencies of the CSV file.

    Raises:
        InputError: the file cannot be read, or lacks a column.
    """
    given = data.get(TABLE)
    if not isinstance(given, Mapping) or not isinstance(given.get("frequencies"), str):
        return data
    path = folder / text(given, "frequencies", "a path as text", f"{TABLE}.")
    where = f"[{TABLE}] frequencies: the file {path}"
    if not path.is_file():
        raise InputError(f"{where} does not exist. Paths are relative to the collection definition.")
    convert = pa_csv.ConvertOptions(
        column_types={"key": pa.string(), "frequency": pa.float64()}, include_columns=["key", "frequency"]
    )
    try:
        found = pa_csv.read_csv(str(path), convert_options=convert)
    except (pa.ArrowInvalid, pa.ArrowKeyError, OSError) as error:
        raise InputError(f"{where} cannot be read as CSV with the columns key and frequency: {error}.") from error
    rows = [
        [key, Decimal(repr(frequency or 0.0))]
        for key, frequency in zip(found["key"].to_pylist(), found["frequency"].to_pylist(), strict=True)
    ]
    return {**data, TABLE: {**given, "frequencies": rows}}


def _frequencies(given: Any) -> tuple[tuple[str, Decimal], ...]:
    what = "a CSV file with the columns key and frequency (published estimates), or a list of [key, frequency]"
    if not isinstance(given, (list, tuple)):
        raise wrong(f"{TABLE}.frequencies", given, what)
    read = []
    for row in given:
        if not isinstance(row, (list, tuple)) or len(row) != 2 or not isinstance(row[0], str):
            raise wrong(f"{TABLE}.frequencies", row, what)
        frequency = _decimal(row[1], "frequencies", what)
        read.append((row[0], min(max(frequency, Decimal(0)), Decimal(1))))
    return tuple(read)


def auto_arguments(parameters: Mapping[str, Any], keys: KeyDomain) -> dict[str, Any]:
    """Turn the keys of [auto] frequencies into an array over the domain; a key that is not named has 0.

    Raises:
        InputError: none of the keys is in the domain.
    """
    if "frequencies" not in parameters:
        return dict(parameters)
    named = dict(parameters["frequencies"])
    found = [float(named.get(key, 0)) for key in keys.texts().to_pylist()]
    if not any(found):
        raise InputError(f"[{TABLE}] frequencies names no key of the collection with a frequency above 0.")
    return {**parameters, "frequencies": tuple(found)}
