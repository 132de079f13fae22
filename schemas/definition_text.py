"""A definition as TOML text: what resolving a definition leaves behind for both sides."""

from __future__ import annotations

import json
from collections.abc import Mapping
from decimal import Decimal
from typing import Any

from .collection import Definition
from .values import decimal_text

__all__ = ["KEYS_INLINE", "declared_keys", "definition_text"]

#: More keys than this do not stand in the definition itself.
KEYS_INLINE = 200


def definition_text(definition: Definition, *, keys_file: str | None = None, comment: str = "") -> str:
    """Return TOML that `Definition.from_text` reads as the same definition.

    Args:
        definition: what to write.
        keys_file: name of a CSV file that holds the keys; None to list them.
        comment: text for the first lines.
    """
    lines = [f"# {line}".rstrip() for line in comment.splitlines()]
    fields: dict[str, Any] = {
        "name": definition.name,
        "mechanism": definition.mechanism,
        "epsilon": definition.epsilon,
        "estimator": definition.estimator,
        **{name: value for name, value in definition.parameters.items() if not isinstance(value, Mapping)},
    }
    lines += [f"{name} = {_toml(value)}" for name, value in fields.items()]
    keys = {"list": declared_keys(definition)} if keys_file is None else {"file": keys_file}
    tables: dict[str, Mapping[str, Any]] = {"keys": keys}
    if definition.values is not None:
        values = definition.values
        tables["values"] = {
            "range": [values.low, values.high],
            "duplicates": values.duplicates,
            "outside": values.outside,
            **({"coordinates": values.coordinates} if values.coordinates else {}),
        }
    tables |= {name: value for name, value in definition.parameters.items() if isinstance(value, Mapping)}
    for name, table in tables.items():
        lines += ["", f"[{name}]", *(f"{field} = {_toml(value)}" for field, value in table.items())]
    return "\n".join(lines) + "\n"


def declared_keys(definition: Definition) -> list[str]:
    """Return the keys as a definition lists them: where values are vectors, without their coordinates."""
    texts: list[str] = definition.keys.texts().to_pylist()
    names = definition.coordinates
    return [text.removesuffix(f"/{names[0]}") for text in texts[:: len(names)]] if names else texts


def _toml(value: Any) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, Decimal):
        return decimal_text(value)
    if isinstance(value, (list, tuple)):
        return f"[{', '.join(map(_toml, value))}]"
    # what JSON escapes in a text, TOML's basic strings escape alike, but for DEL
    return json.dumps(value, ensure_ascii=False).replace("\x7f", "\\u007F") if isinstance(value, str) else str(value)
