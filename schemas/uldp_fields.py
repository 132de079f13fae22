"""The table [uldp] of a collection definition: what is sensitive, and for pum the tags, the base and the background.

Files are read once and become part of the definition, so that what was asked does not change with a file:

* `sensitive`: a list of keys, or the path of a CSV file with a column `key`. Never left out; for urr and urap never
  empty.
* `tags` (pum): a list of names.
* `base` (pum): "urr" (default) or "urap".
* `theta` (urap, or pum over it): a number between 0 and 1.
* `background` (pum): the path of a CSV file with the columns `tag`, `key` and `probability`, "proportional", or "drop"
  (default). The server alone uses it, so the fingerprint does not cover it.
"""

from __future__ import annotations

import unicodedata
from collections.abc import Mapping, Sequence
from decimal import Decimal, InvalidOperation
from pathlib import Path
from typing import Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.csv as pa_csv

from ..errors import InputError, did_you_mean
from .fields import choice, integer, number, refuse_unknown, required, table, wrong
from .keys import KeyDomain

__all__ = ["TABLE", "inline_files", "read_pum", "read_urap", "read_urr", "resolve"]

#: Name of the table.
TABLE: Final = "uldp"

_NO_BACKGROUND: Final = ("drop", "proportional")
_SENSITIVE: Final = 'a list of keys, or the path of a CSV file with a column "key"'
_TAGS: Final = 'a list of at least one name, such as ["home", "workplace"]'
_BACKGROUND: Final = '"drop", "proportional", or the path of a CSV file with the columns "tag", "key" and "probability"'
_THETA: Final = "a number between 0 and 1"


def inline_files(data: Mapping[str, Any], folder: Path) -> Mapping[str, Any]:
    """Replace the paths in [uldp], relative to `folder`, by what the files hold.

    Raises:
        InputError: a file cannot be read or lacks a column.
    """
    given = data.get(TABLE)
    if not isinstance(given, Mapping):
        return data
    inlined = dict(given)
    if isinstance(given.get("sensitive"), str):
        inlined["sensitive"] = _read_csv(folder / given["sensitive"], "sensitive", ("key",))[0]
    background = given.get("background")
    if isinstance(background, str) and background not in _NO_BACKGROUND:
        path = folder / background
        if not path.suffix:
            raise wrong(f"{TABLE}.background", background, f"{_BACKGROUND}. {did_you_mean(background, _NO_BACKGROUND)}")
        columns = _read_csv(path, "background", ("tag", "key", "probability"))
        inlined["background"] = [list(row) for row in zip(*columns, strict=True)]
    return {**data, TABLE: inlined}


def _read_csv(path: Path, field: str, columns: tuple[str, ...]) -> list[list[str | None]]:
    """Read columns of a CSV file as text."""
    where = f"[{TABLE}] {field}: the file {path}"
    if not path.is_file():
        raise InputError(f"{where} does not exist. Paths are relative to the collection definition.")
    convert = pa_csv.ConvertOptions(
        column_types={name: pa.string() for name in columns},
        include_columns=list(columns),
        null_values=[""],
        strings_can_be_null=True,
        quoted_strings_can_be_null=False,
    )
    try:
        found = pa_csv.read_csv(
            str(path), convert_options=convert, parse_options=pa_csv.ParseOptions(newlines_in_values=True)
        )
    except (pa.ArrowInvalid, pa.ArrowKeyError, OSError) as error:
        raise InputError(f"{where} cannot be read as CSV with {', '.join(columns)} as columns: {error}.") from error
    return [found[name].to_pylist() for name in columns]


# -- reading the table ------------------------------------------------------------------------------------


def _table(data: Mapping[str, Any], allowed: tuple[str, ...]) -> Mapping[str, Any]:
    given = table(data, TABLE, "the field sensitive, which says which keys are sensitive")
    refuse_unknown(given, allowed, f"{TABLE}.")
    return given


def read_urr(data: Mapping[str, Any]) -> dict[str, Any]:
    """Read [uldp] sensitive."""
    return {TABLE: {"sensitive": _sensitive(_table(data, ("sensitive",)))}}


def read_urap(data: Mapping[str, Any]) -> dict[str, Any]:
    """Read [uldp] sensitive and theta."""
    given = _table(data, ("sensitive", "theta"))
    return {TABLE: {"sensitive": _sensitive(given), **_theta(given)}}


def read_pum(data: Mapping[str, Any]) -> dict[str, Any]:
    """Read [uldp] sensitive (those of everybody, may be empty), tags, base, theta and background."""
    given = _table(data, ("sensitive", "tags", "base", "theta", "background"))
    base = choice(given, "base", ("urr", "urap"), default="urr", prefix=f"{TABLE}.")
    if "theta" in given and base != "urap":
        raise InputError(f"the field '{TABLE}.theta' belongs to base = \"urap\"; leave it out with base = {base!r}.")
    return {
        TABLE: {
            "sensitive": _sensitive(given, may_be_empty=True),
            "tags": _names(required(given, "tags", _TAGS, f"{TABLE}."), "tags", _TAGS),
            "base": base,
            **_theta(given),
            "background": _background(given.get("background", "drop")),
        }
    }


def _sensitive(given: Mapping[str, Any], *, may_be_empty: bool = False) -> tuple[str, ...]:
    found = required(given, "sensitive", _SENSITIVE, f"{TABLE}.")
    if isinstance(found, list) and not found:
        if may_be_empty:
            return ()
        raise InputError(
            f"the field '{TABLE}.sensitive' is empty; every key would be sent as it is, without any privacy. List the "
            "sensitive keys; if people differ in what is sensitive to them, use pum, and if you cannot tell, list all."
        )
    # In one order, so that definitions that ask alike share their fingerprint.
    return tuple(sorted(_names(found, "sensitive", _SENSITIVE)))


def _names(given: Any, field: str, what: str) -> tuple[str, ...]:
    if not isinstance(given, list | tuple) or not given:
        raise wrong(f"{TABLE}.{field}", given, what)
    names = tuple(_text(one, field, what) for one in given)
    if len(set(names)) != len(names):
        twice = next(name for place, name in enumerate(names) if name in names[:place])
        raise InputError(f"the field '{TABLE}.{field}' names {twice!r} twice; list each once.")
    return names


def _text(given: Any, field: str, what: str) -> str:
    """Return a key or tag in NFC; integers stand for their decimal text."""
    if isinstance(given, str) and given:
        return unicodedata.normalize("NFC", given)
    if given is None or isinstance(given, str):
        raise InputError(f"the field '{TABLE}.{field}' holds an empty text; it must be {what}.")
    return str(integer(given, f"{TABLE}.{field}", what))


def _theta(given: Mapping[str, Any]) -> dict[str, Decimal]:
    """Return theta where it is given; a manifest holds it as text."""
    if "theta" not in given:
        return {}
    theta = _decimal(given["theta"], "theta", _THETA)
    if not 0 < theta < 1:
        raise wrong(f"{TABLE}.theta", theta, _THETA)
    return {"theta": theta}


def _decimal(given: Any, field: str, what: str) -> Decimal:
    if isinstance(given, str):
        try:
            return Decimal(given.strip())
        except InvalidOperation:
            raise wrong(f"{TABLE}.{field}", given, what) from None
    return number(given, f"{TABLE}.{field}", what)


def _background(given: Any) -> tuple[tuple[str, str, Decimal], ...] | str:
    if isinstance(given, str) and given in _NO_BACKGROUND:
        return given
    if not isinstance(given, list | tuple) or not all(isinstance(row, list | tuple) and len(row) == 3 for row in given):
        raise wrong(f"{TABLE}.background", given, _BACKGROUND)
    if not given:
        raise InputError(
            f'the background of [{TABLE}] holds no row; use "proportional" or "drop" where nothing is known.'
        )
    what = "probabilities from 0 to 1"
    rows = tuple((_text(t, "background", what), _text(k, "background", what), p) for t, k, p in given)
    return tuple((tag, key, _decimal(p, "background", what)) for tag, key, p in rows)


# -- from texts to indices ----------------------------------------------------------------------------------


def resolve(arguments: Mapping[str, Any], keys: KeyDomain) -> dict[str, Any]:
    """Return the mechanism's arguments: keys and tags by index instead of by text.

    Raises:
        InputError: a key is not in the domain, or a tag not among the tags.
    """
    resolved = dict(arguments)
    resolved["sensitive"] = tuple(_indices(arguments["sensitive"], keys, "sensitive"))
    if isinstance(arguments.get("background"), tuple):
        tags = arguments["tags"]
        rows = arguments["background"]
        for tag in {tag for tag, _, _ in rows} - set(tags):
            raise InputError(f"the background of [{TABLE}] holds the tag {tag!r}. {did_you_mean(tag, tags)}")
        found = _indices([key for _, key, _ in rows], keys, "background")
        resolved["background"] = tuple(
            (tags.index(tag), key, float(p)) for (tag, _, p), key in zip(rows, found, strict=True)
        )
    return resolved


def _indices(texts: Sequence[str], keys: KeyDomain, field: str) -> list[int]:
    where = f"[{TABLE}] {field}"
    found = keys.index(pa.array(texts, pa.string()), where=where)
    if (found < 0).any():
        text = texts[int(np.flatnonzero(found < 0)[0])]
        raise InputError(
            f"{where} holds the key {text!r}, which is not among the {len(keys):,} keys of the collection. Add it to "
            f"[keys], or remove it here. {_near(text, keys)}".rstrip()
        )
    return [int(index) for index in found]


def _near(text: str, keys: KeyDomain) -> str:
    """Return a suggestion for a key of a small domain."""
    if len(keys) > 1_000:
        return ""
    hint = did_you_mean(text, pc.fill_null(keys.texts(), "").to_pylist())
    return hint if hint.startswith("Did") else ""
