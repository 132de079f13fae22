"""The collection definition: one TOML file that both sides read, checked strictly and fingerprinted."""

from __future__ import annotations

import hashlib
import json
import tomllib
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from decimal import Decimal
from pathlib import Path
from typing import Any

from ..errors import InputError, NotAvailableError
from .attribute_fields import COMPOSITE, attribute_keys, attribute_sizes, read_attributes
from .attribute_fields import TABLE as ATTRIBUTES
from .auto_fields import AUTO
from .auto_fields import TABLE as AUTO_TABLE
from .fields import choice, integer, number, refuse_unknown, required, table, text, wrong
from .keys import KeyDomain
from .mechanism_fields import LATER_ESTIMATORS, LATER_MECHANISMS, LATER_TABLES, MECHANISM_FIELDS
from .uldp_fields import TABLE as ULDP_TABLE
from .values import ValueRange, decimal_text

__all__ = ["FINGERPRINT_VERSION", "REPORT_IDS", "Definition"]

#: Version of the canonical form that the fingerprint covers.
FINGERPRINT_VERSION = 1

#: Field that gives every report an opaque id.
REPORT_IDS = "report_ids"

_EPSILON_LOW, _EPSILON_HIGH = Decimal("0.001"), Decimal(20)
_COMMON_FIELDS = ("name", "mechanism", "epsilon", "estimator", "keys", "reports", REPORT_IDS, ATTRIBUTES)
_KEY_SOURCES = ("file", "list", "count", "range")
_VALUE_FIELDS = ("range", "duplicates", "outside", "coordinates")
_LONGEST_NAME = 200
_PUBLIC_KEYS = 1_000


@dataclass(frozen=True, kw_only=True)
class Definition:
    """What a collection asks of its users and how, as both sides know it.

    Attributes:
        name: name of the collection.
        mechanism: name of the mechanism.
        epsilon: privacy budget of one report, exact.
        keys: the key domain; where values are vectors, key/coordinate for every key and coordinate.
        values: the range of values and its rules; None where the mechanism collects no values.
        parameters: what the mechanism adds, by name: padding, allocation, …
        estimator: the server's estimator; not part of the fingerprint.
    """

    name: str
    mechanism: str
    epsilon: Decimal
    keys: KeyDomain
    values: ValueRange | None
    parameters: Mapping[str, Any]
    estimator: str

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
    def from_text(cls, text: str, *, folder: str | Path = ".", where: str = "the collection definition") -> Definition:
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

    @classmethod
    def from_public(cls, public: Mapping[str, Any], keys: KeyDomain) -> Definition:
        """Return the definition that a manifest describes, with the keys of its estimates.

        Args:
            public: what `public` returned.
            keys: the key domain, in order.
        """
        own = MECHANISM_FIELDS[public["mechanism"]]
        data = {**public, "epsilon": Decimal(public["epsilon"])}
        values = public["values"]
        ends = None if values is None else [Decimal(end) for end in values["range"]]
        return cls(
            name=public["name"],
            mechanism=public["mechanism"],
            epsilon=data["epsilon"],
            parameters=own.read(data) | _reports(data) | read_attributes(data),
            estimator=public["estimator"],
            keys=keys,
            values=None if values is None else _values({**values, "range": ends}),
        )

    @property
    def has_values(self) -> bool:
        """Whether records carry values."""
        return self.values is not None

    @property
    def coordinates(self) -> tuple[str, ...]:
        """Names of the coordinates where values are vectors."""
        return () if self.values is None else self.values.coordinates

    @property
    def labels(self) -> dict[str, list[str]]:
        """What the estimates say of every key besides its text: its coordinate, or the attribute it belongs to."""
        if self.coordinates:
            return {"coordinate": list(self.coordinates) * (len(self.keys) // len(self.coordinates))}
        given = self.parameters.get(ATTRIBUTES)
        if given is None or given["mode"] == COMPOSITE:
            return {}
        sizes = attribute_sizes(given)
        return {"attribute": [name for name, size in zip(given["columns"], sizes, strict=True) for _ in range(size)]}

    @property
    def report_ids(self) -> bool:
        """Whether every report carries an opaque id, by which the server knows a repeated delivery."""
        return bool(self.parameters.get(REPORT_IDS, False))

    @property
    def tags(self) -> tuple[str, ...]:
        """Names of the tags that say why a key is sensitive to its user; none in most collections."""
        names: tuple[str, ...] = self.parameters.get(ULDP_TABLE, {}).get("tags", ())
        return names

    @property
    def attributes(self) -> dict[str, Any] | None:
        """The columns that are a user's record, and whether they are one item; None where there are no attributes."""
        given = self.parameters.get(ATTRIBUTES)
        if given is None:
            return None
        return {"attributes": tuple(given["columns"]), "composite": given["mode"] == COMPOSITE}

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
            **{name: _plain(value) for name, value in _asked(self.parameters).items()},
            "keys": self.keys.texts().to_pylist(),
            "range": [decimal_text(values.low), decimal_text(values.high)] if values else None,
            "outside": values.outside if values else None,
            "duplicates": values.duplicates if values else None,
            "thresholds": {name: str(int(number)) for name, number in thresholds.items()},
        }
        if self.coordinates:
            fields["coordinates"] = list(self.coordinates)
        return json.dumps(fields, sort_keys=True, ensure_ascii=False, separators=(",", ":"))

    def fingerprint(self, thresholds: Mapping[str, int]) -> str:
        """Return the SHA-256 (hex) of the canonical form; two definitions that ask alike share it."""
        return hashlib.sha256(self.canonical(thresholds).encode()).hexdigest()

    def with_padding(self, padding: int) -> Definition:
        """Return the resolved definition: the same with a fixed padding, and without the table of how it was chosen.

        Args:
            padding: in pairs, of which a key has one for each coordinate.
        """
        kept = {name: value for name, value in self.parameters.items() if name != AUTO_TABLE}
        return replace(self, parameters={**kept, "padding": -(-padding // max(1, len(self.coordinates)))})

    def public(self) -> dict[str, Any]:
        """Return the definition as JSON-able fields for people; a long key list becomes size and digest."""
        values = self.values
        return {
            "name": self.name,
            "mechanism": self.mechanism,
            "epsilon": decimal_text(self.epsilon),
            **{name: _plain(value, text=False) for name, value in self.parameters.items()},
            "estimator": self.estimator,
            "keys": _public_keys(self.keys),
            "values": None
            if values is None
            else {
                "range": [decimal_text(values.low), decimal_text(values.high)],
                "outside": values.outside,
                "duplicates": values.duplicates,
                **({"coordinates": list(values.coordinates)} if values.coordinates else {}),
            },
        }


def _asked(parameters: Mapping[str, Any]) -> dict[str, Any]:
    """Parameters that clients answer to, tables included.

    An allocation and its prior act through the thresholds alone; virtual rounds and background knowledge are the
    server's.
    """
    return {
        name: _asked(value) if isinstance(value, Mapping) else value
        for name, value in parameters.items()
        if name not in ("allocation", "prior", "virtual_rounds", "background", "percentiles")
    }


def _public_keys(keys: KeyDomain) -> dict[str, Any]:
    if len(keys) <= _PUBLIC_KEYS:
        return {"count": len(keys), "list": keys.texts().to_pylist()}
    return {"count": len(keys), "sha256": keys.digest()}


def _plain(value: Any, *, text: bool = True) -> Any:
    """Return a parameter as JSON: numbers as decimal text where `text`, else as numbers where that is exact."""
    if isinstance(value, Mapping):
        return {str(name): _plain(item, text=text) for name, item in value.items()}
    if isinstance(value, (tuple, list)):
        return [_plain(item, text=text) for item in value]
    if isinstance(value, Decimal):
        return decimal_text(value)
    if isinstance(value, int) and not isinstance(value, bool):
        return str(value) if text else value
    return value


def _parse(data: Mapping[str, Any], folder: Path) -> dict[str, Any]:
    mechanism = choice(data, "mechanism", tuple(MECHANISM_FIELDS), LATER_MECHANISMS)
    own = MECHANISM_FIELDS[mechanism]
    if own.inline is not None:
        data = own.inline(data, folder)
    for later in LATER_TABLES:
        if later in data and later not in own.fields:
            raise NotAvailableError.of(f"The table [{later}] of a collection definition")
    attributes = read_attributes(data)
    refuse_unknown(data, _COMMON_FIELDS + own.fields + (("values",) if own.has_values else ()))
    values = _values(table(data, "values", "the field range = [low, high]")) if own.has_values else None
    if values is not None and values.coordinates and data.get("padding") == AUTO:
        raise NotAvailableError.of('padding = "auto" with values.coordinates', instead="Give an integer.")
    return {
        "name": _name(data),
        "mechanism": mechanism,
        "epsilon": _epsilon(data),
        "parameters": own.read(data) | _reports(data) | attributes,
        "estimator": choice(data, "estimator", own.estimators, LATER_ESTIMATORS, default=own.estimators[0]),
        "keys": _domain(data, folder, attributes, values),
        "values": values,
    }


def _domain(
    data: Mapping[str, Any], folder: Path, attributes: Mapping[str, Any], values: ValueRange | None
) -> KeyDomain:
    if attributes:
        return _attribute_domain(data, attributes[ATTRIBUTES])
    keys = _keys(table(data, "keys", 'an input such as count = 100 or file = "keys.csv"'), folder)
    if values is None or not values.coordinates:
        return keys
    texts = [f"{key}/{name}" for key in keys.texts().to_pylist() for name in values.coordinates]
    return KeyDomain.of_texts(texts, where="[keys] with values.coordinates")


def _attribute_domain(data: Mapping[str, Any], attributes: Mapping[str, Any]) -> KeyDomain:
    if "keys" in data:
        raise InputError("[keys] and [attributes] are both given; the values of the attributes are the keys.")
    return KeyDomain.of_texts(attribute_keys(attributes))


def _reports(data: Mapping[str, Any]) -> dict[str, Any]:
    """Return the number of reports of each user where it is not 1, and whether reports carry ids where they do."""
    given = integer(data.get("reports", 1), "reports", "an integer of at least 1 (reports of each user)", least=1)
    ids = data.get(REPORT_IDS, False)
    if not isinstance(ids, bool):
        raise wrong(REPORT_IDS, ids, "true or false")
    return ({} if given == 1 else {"reports": given}) | ({REPORT_IDS: True} if ids else {})


def _name(data: Mapping[str, Any]) -> str:
    what = f"a text of 1 to {_LONGEST_NAME} printable characters"
    name = text(data, "name", what)
    if not name.strip() or len(name) > _LONGEST_NAME or not name.isprintable():
        raise wrong("name", name, what)
    return name


def _epsilon(data: Mapping[str, Any]) -> Decimal:
    what = f"a number from {_EPSILON_LOW} to {_EPSILON_HIGH}"
    given = number(required(data, "epsilon", what), "epsilon", what)
    if given.is_finite() and _EPSILON_LOW <= given <= _EPSILON_HIGH:
        return given
    reason = "it is the privacy budget of one report"
    if given.is_finite() and given > _EPSILON_HIGH:
        reason = "above that the truth would be sent nearly always"
    elif given.is_finite() and given > 0:
        reason = "below that nothing could be learnt from the reports"
    raise InputError(f"the field 'epsilon' is {given}; it must be {what}: {reason}.")


def _keys(given: Mapping[str, Any], folder: Path) -> KeyDomain:
    refuse_unknown(given, _KEY_SOURCES, "keys.")
    if len(given) != 1:
        found = " and ".join(given) or "none"
        raise InputError(f"[keys] must hold exactly one of {', '.join(_KEY_SOURCES)}; found: {found}.")
    (source,) = given
    readers: dict[str, Callable[[], KeyDomain]] = {
        "file": lambda: KeyDomain.of_file(folder / text(given, "file", "a path as text", "keys.")),
        "list": lambda: KeyDomain.of_texts(_key_list(given["list"])),
        "count": lambda: KeyDomain.of_count(integer(given["count"], "keys.count", "an integer of at least 1")),
        "range": lambda: KeyDomain.of_range(*_key_range(given["range"])),
    }
    return readers[source]()


def _key_list(given: Any) -> list[str]:
    if not isinstance(given, list):
        raise wrong("keys.list", given, "a list of texts or integers")
    return [_key_text(key, place) for place, key in enumerate(given, start=1)]


def _key_text(key: Any, place: int) -> str:
    if isinstance(key, str):
        return key
    what = 'text or an integer, such as "a" or 7; quote it to make it text'
    return str(integer(key, f"keys.list number {place}", what))


def _key_range(given: Any) -> tuple[int, int]:
    what = "a list of two integers [first, last]"
    if not isinstance(given, list) or len(given) != 2:
        raise wrong("keys.range", given, what)
    return integer(given[0], "keys.range", what), integer(given[1], "keys.range", what)


def _values(data: Mapping[str, Any]) -> ValueRange:
    refuse_unknown(data, _VALUE_FIELDS, "values.")
    what = "a list of two numbers [low, high]"
    given = required(data, "range", what, "values.")
    if not isinstance(given, list) or len(given) != 2:
        raise wrong("values.range", given, what)
    return ValueRange(
        low=number(given[0], "values.range", what),
        high=number(given[1], "values.range", what),
        outside=choice(data, "outside", ("drop", "clip"), default="drop", prefix="values."),
        duplicates=choice(data, "duplicates", ("mean", "latest"), default="mean", prefix="values."),
        coordinates=_coordinates(data.get("coordinates", [])),
    )


def _coordinates(given: Any) -> tuple[str, ...]:
    what = 'a list of distinct names, such as ["x", "y"]'
    if not isinstance(given, list) or not all(isinstance(name, str) and name.strip() for name in given):
        raise wrong("values.coordinates", given, what)
    if len(set(given)) < len(given):
        raise wrong("values.coordinates", given, what)
    return tuple(given)
