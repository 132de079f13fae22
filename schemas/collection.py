"""The collection definition: one TOML file that both sides read, checked strictly and fingerprinted."""

from __future__ import annotations

import hashlib
import json
import tomllib
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from decimal import Decimal
from pathlib import Path
from typing import Any

from ..errors import InputError, NotAvailableError, did_you_mean
from .keys import KeyDomain
from .values import ValueRange, decimal_text

__all__ = ["FINGERPRINT_VERSION", "Definition"]

#: Version of the canonical form that the fingerprint covers.
FINGERPRINT_VERSION = 1

_EPSILON_LOW, _EPSILON_HIGH = Decimal("0.001"), Decimal(20)
_MECHANISMS = ("pckv-grr", "pckv-ue")
_LATER_MECHANISMS = (
    "auto", "grr", "hadamard", "harmony", "mean-est", "olh", "oue", "privkv", "privkvm", "privkvm-plus",
    "psfo", "pum", "rappor", "rr", "shist", "subset-selection", "sue", "urap", "urr",
)  # fmt: skip
_ALLOCATIONS = ("optimized", "naive", "non-optimized")
_LATER_ALLOCATIONS = ("numerical",)
_ESTIMATORS = ("corrected", "baseline")
_LATER_ESTIMATORS = (
    "base-cut", "clip", "em", "empirical", "empirical-bayes", "norm-sub", "thresholded", "virtual-half",
    "virtual-same-key",
)  # fmt: skip
_FIELDS = ("name", "mechanism", "epsilon", "padding", "allocation", "estimator", "keys", "values")
_LATER_TABLES = ("auto", "prior", "privkv", "uldp")
_KEY_SOURCES = ("file", "list", "count", "range")
_VALUE_FIELDS = ("range", "duplicates", "outside")
_LONGEST_NAME = 200
_PUBLIC_KEYS = 1_000


@dataclass(frozen=True, kw_only=True)
class Definition:
    """What a collection asks of its users and how, as both sides know it.

    Attributes:
        name: name of the collection.
        mechanism: name of the mechanism.
        epsilon: privacy budget of one report, exact.
        keys: the key domain.
        values: the range of values and its rules; None where the mechanism collects no values.
        padding: number of pairs that every user's record is padded to.
        allocation: how epsilon is shared between key and value.
        estimator: the server's estimator; not part of the fingerprint.
    """

    name: str
    mechanism: str
    epsilon: Decimal
    keys: KeyDomain
    values: ValueRange | None
    padding: int
    allocation: str = "optimized"
    estimator: str = "corrected"

    @classmethod
    def load(cls, path: str | Path) -> Definition:
        """Read a TOML file; `keys.file` is relative to its folder.

        Raises:
            InputError: The file cannot be read, or a field is wrong, missing or unknown.
            NotAvailableError: It asks for a feature that this version does not have.
        """
        file = Path(path)
        try:
            text = file.read_bytes().decode("utf-8-sig")
        except OSError as error:
            raise InputError(f"The collection definition {file} cannot be read: {error.strerror}.") from error
        except UnicodeDecodeError as error:
            raise InputError(f"The collection definition {file} is not UTF-8 text: {error}.") from error
        return cls.from_text(text, folder=file.parent, where=str(file))

    @classmethod
    def from_text(
        cls, text: str, *, folder: str | Path = ".", where: str = "the collection definition"
    ) -> Definition:
        """Parse TOML text.

        Args:
            text: the definition.
            folder: what `keys.file` is relative to.
            where: how messages call the text.
        """
        try:
            # Decimals keep epsilon and the range exactly as they were written.
            data = tomllib.loads(text, parse_float=Decimal)
        except (tomllib.TOMLDecodeError, ValueError, ArithmeticError) as error:
            raise InputError(f"{where} is not valid TOML: {error}.") from error
        try:
            return cls(**_parse(data, Path(folder)))
        except NotAvailableError:
            raise
        except InputError as error:
            raise InputError(f"{where}: {error}") from error

    @property
    def has_values(self) -> bool:
        """Whether records carry values."""
        return self.values is not None

    def canonical(self, thresholds: Mapping[str, int]) -> str:
        """Return the client-side fields as canonical JSON: sorted names, every number as decimal text.

        Args:
            thresholds: the integer thresholds of the mechanism, which decide every random choice.
        """
        values = self.values
        fields: dict[str, Any] = {
            "version": str(FINGERPRINT_VERSION),
            "name": self.name,
            "mechanism": self.mechanism,
            "epsilon": decimal_text(self.epsilon),
            "padding": str(self.padding),
            "keys": self.keys.texts().to_pylist(),
            "range": [decimal_text(values.low), decimal_text(values.high)] if values else None,
            "outside": values.outside if values else None,
            "duplicates": values.duplicates if values else None,
            "thresholds": {name: str(int(number)) for name, number in thresholds.items()},
        }
        return json.dumps(fields, sort_keys=True, ensure_ascii=False, separators=(",", ":"))

    def fingerprint(self, thresholds: Mapping[str, int]) -> str:
        """Return the SHA-256 (hex) of the canonical form; two definitions that ask alike share it."""
        return hashlib.sha256(self.canonical(thresholds).encode()).hexdigest()

    def public(self) -> dict[str, Any]:
        """Return the definition as JSON-able fields for people; a long key list becomes size and digest."""
        values = self.values
        return {
            "name": self.name,
            "mechanism": self.mechanism,
            "epsilon": float(self.epsilon),
            "padding": self.padding,
            "allocation": self.allocation,
            "estimator": self.estimator,
            "keys": _public_keys(self.keys),
            "values": None
            if values is None
            else {"range": list(values.bounds), "outside": values.outside, "duplicates": values.duplicates},
        }


def _public_keys(keys: KeyDomain) -> dict[str, Any]:
    if len(keys) <= _PUBLIC_KEYS:
        return {"count": len(keys), "list": keys.texts().to_pylist()}
    return {"count": len(keys), "sha256": keys.digest()}


def _parse(data: Mapping[str, Any], folder: Path) -> dict[str, Any]:
    for table in _LATER_TABLES:
        if table in data:
            raise NotAvailableError.of(f"The table [{table}] of a collection definition")
    _refuse_unknown(data, _FIELDS, "")
    mechanism = _choice(data, "mechanism", _MECHANISMS, _LATER_MECHANISMS)
    return {
        "name": _name(data),
        "mechanism": mechanism,
        "epsilon": _epsilon(data),
        "padding": _padding(data),
        "allocation": _choice(data, "allocation", _ALLOCATIONS, _LATER_ALLOCATIONS, default="optimized"),
        "estimator": _choice(data, "estimator", _ESTIMATORS, _LATER_ESTIMATORS, default="corrected"),
        "keys": _keys(_table(data, "keys", 'an input such as count = 100 or file = "keys.csv"'), folder),
        "values": _values(_table(data, "values", "the field range = [low, high]")),
    }


def _refuse_unknown(table: Mapping[str, Any], allowed: tuple[str, ...], prefix: str) -> None:
    for field in table:
        if field not in allowed:
            raise InputError(f"the field {prefix + field!r} is unknown. {did_you_mean(field, allowed)}")


def _required(table: Mapping[str, Any], field: str, what: str, prefix: str = "") -> Any:
    if field not in table:
        raise InputError(f"the field {prefix + field!r} is missing; it must be {what} and has no default.")
    return table[field]


def _wrong(field: str, given: Any, what: str) -> InputError:
    return InputError(f"the field {field!r} is {_show(given)}; it must be {what}.")


def _show(given: Any) -> str:
    if isinstance(given, bool):
        return "true" if given else "false"
    if isinstance(given, dict):
        return "a table"
    if isinstance(given, list):
        return f"a list of {len(given)}"
    return str(given) if isinstance(given, (int, Decimal)) else repr(given)


def _text(table: Mapping[str, Any], field: str, what: str, prefix: str = "") -> str:
    given = _required(table, field, what, prefix)
    if not isinstance(given, str):
        raise _wrong(prefix + field, given, what)
    return given


def _name(data: Mapping[str, Any]) -> str:
    what = f"a text of 1 to {_LONGEST_NAME} printable characters"
    name = _text(data, "name", what)
    if not name.strip() or len(name) > _LONGEST_NAME or not name.isprintable():
        raise _wrong("name", name, what)
    return name


def _choice(
    table: Mapping[str, Any],
    field: str,
    allowed: tuple[str, ...],
    later: tuple[str, ...] = (),
    *,
    default: str | None = None,
    prefix: str = "",
) -> str:
    what = "one of " + ", ".join(map(repr, sorted(allowed)))
    if default is not None and field not in table:
        return default
    given = _text(table, field, what, prefix)
    if given in later:
        raise NotAvailableError.of(f"{prefix}{field} = {given!r}", instead=f"It must be {what}.")
    if given not in allowed:
        raise InputError(
            f"the field {prefix + field!r} is {given!r}; it must be {what}. {_near(given, allowed + later)}"
        )
    return given


def _near(given: str, names: tuple[str, ...]) -> str:
    hint = did_you_mean(given, names)
    return hint if hint.startswith("Did") else ""


def _epsilon(data: Mapping[str, Any]) -> Decimal:
    what = f"a number from {_EPSILON_LOW} to {_EPSILON_HIGH}"
    given = _number(_required(data, "epsilon", what), "epsilon", what)
    if given.is_finite() and _EPSILON_LOW <= given <= _EPSILON_HIGH:
        return given
    reason = "it is the privacy budget of one report"
    if given.is_finite() and given > _EPSILON_HIGH:
        reason = "above that the truth would be sent nearly always"
    elif given.is_finite() and given > 0:
        reason = "below that nothing could be learnt from the reports"
    raise InputError(f"the field 'epsilon' is {given}; it must be {what}: {reason}.")


def _number(given: Any, field: str, what: str) -> Decimal:
    if isinstance(given, bool) or not isinstance(given, (int, Decimal)):
        raise _wrong(field, given, what)
    return Decimal(given)


def _integer(given: Any, field: str, what: str) -> int:
    if isinstance(given, bool) or not isinstance(given, int):
        raise _wrong(field, given, what)
    return given


def _padding(data: Mapping[str, Any]) -> int:
    what = "an integer of at least 1 (the number of pairs that a record is padded to)"
    given = _required(data, "padding", what)
    if given == "auto":
        raise NotAvailableError.of('padding = "auto"', instead="Give an integer.")
    padding = _integer(given, "padding", what)
    if padding < 1:
        raise _wrong("padding", padding, what)
    return padding


def _table(data: Mapping[str, Any], field: str, what: str) -> Mapping[str, Any]:
    if field not in data:
        raise InputError(f"the table [{field}] is missing; it must hold {what} and has no default.")
    if not isinstance(data[field], dict):
        raise _wrong(field, data[field], f"a table [{field}] with {what}")
    table: Mapping[str, Any] = data[field]
    return table


def _keys(table: Mapping[str, Any], folder: Path) -> KeyDomain:
    _refuse_unknown(table, _KEY_SOURCES, "keys.")
    if len(table) != 1:
        found = " and ".join(table) or "none"
        raise InputError(f"[keys] must hold exactly one of {', '.join(_KEY_SOURCES)}; found: {found}.")
    (source,) = table
    readers: dict[str, Callable[[], KeyDomain]] = {
        "file": lambda: KeyDomain.of_file(folder / _text(table, "file", "a path as text", "keys.")),
        "list": lambda: KeyDomain.of_texts(_key_list(table["list"])),
        "count": lambda: KeyDomain.of_count(
            _integer(table["count"], "keys.count", "an integer of at least 1")
        ),
        "range": lambda: KeyDomain.of_range(*_key_range(table["range"])),
    }
    return readers[source]()


def _key_list(given: Any) -> list[str]:
    if not isinstance(given, list):
        raise _wrong("keys.list", given, "a list of texts or integers")
    return [_key_text(key, number) for number, key in enumerate(given, start=1)]


def _key_text(key: Any, number: int) -> str:
    if isinstance(key, str):
        return key
    what = 'text or an integer, such as "a" or 7; quote it to make it text'
    return str(_integer(key, f"keys.list number {number}", what))


def _key_range(given: Any) -> tuple[int, int]:
    what = "a list of two integers [first, last]"
    if not isinstance(given, list) or len(given) != 2:
        raise _wrong("keys.range", given, what)
    return _integer(given[0], "keys.range", what), _integer(given[1], "keys.range", what)


def _values(table: Mapping[str, Any]) -> ValueRange:
    _refuse_unknown(table, _VALUE_FIELDS, "values.")
    what = "a list of two numbers [low, high]"
    given = _required(table, "range", what, "values.")
    if not isinstance(given, list) or len(given) != 2:
        raise _wrong("values.range", given, what)
    return ValueRange(
        low=_number(given[0], "values.range", what),
        high=_number(given[1], "values.range", what),
        outside=_choice(table, "outside", ("drop", "clip"), default="drop", prefix="values."),
        duplicates=_choice(table, "duplicates", ("mean", "latest"), default="mean", prefix="values."),
    )
