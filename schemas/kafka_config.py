"""Where a Kafka topic is, and the file of settings for getting to it. Contacts nobody and prints no secret."""

from __future__ import annotations

import re
import tomllib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from ..errors import InputError

__all__ = ["KafkaAddress", "KafkaConfig", "is_kafka"]

_SCHEME: Final = "kafka://"
_TOPIC: Final = re.compile(r"[A-Za-z0-9._-]{1,249}")
_SERVER: Final = re.compile(r"(\[[0-9A-Fa-f:]+\]|[A-Za-z0-9._-]+)(:[0-9]{1,5})?")
#: Settings that decide whether reports are lost or counted twice; they are ours.
_OURS: Final = (
    "bootstrap.servers",
    "metadata.broker.list",
    "enable.auto.commit",
    "enable.auto.offset.store",
    "enable.partition.eof",
    "auto.offset.reset",
    "enable.idempotence",
    "acks",
    "request.required.acks",
    "isolation.level",
)


def is_kafka(address: str) -> bool:
    """Return whether an input or output names a Kafka topic rather than a file."""
    return address.startswith(_SCHEME)


@dataclass(frozen=True)
class KafkaAddress:
    """A topic.

    Attributes:
        servers: "host:port", several separated by commas.
        topic: its name.
    """

    servers: str
    topic: str

    @classmethod
    def parse(cls, address: str) -> KafkaAddress:
        """Read "kafka://host:port/topic"; several hosts are separated by commas, the port is 9092 by default.

        Raises:
            InputError: It is written in another way.
        """
        hosts, slash, topic = address.removeprefix(_SCHEME).partition("/")
        servers = [_with_port(server) for server in hosts.split(",")]
        if not is_kafka(address) or not slash or None in servers or not _TOPIC.fullmatch(topic) or topic in (".", ".."):
            raise InputError(
                f"{address!r} names no topic of Kafka. Write kafka://HOST:PORT/TOPIC, such as "
                "kafka://localhost:9092/reports; several hosts are separated by commas."
            )
        return cls(",".join(server for server in servers if server), topic)

    def __str__(self) -> str:
        return f"{_SCHEME}{self.servers}/{self.topic}"


def _with_port(server: str) -> str | None:
    found = _SERVER.fullmatch(server)
    return None if found is None else found[1] + (found[2] or ":9092")


@dataclass(frozen=True)
class KafkaConfig:
    """Settings of librdkafka by name, such as "security.protocol"; never shown, since some are secrets.

    Attributes:
        settings: names and values.
    """

    settings: Mapping[str, str] = field(default_factory=dict, repr=False)

    @classmethod
    def given(cls, path: str | None) -> KafkaConfig:
        """Return the settings of a --kafka-config, or none where none was given."""
        return cls() if path is None else cls.load(path)

    @classmethod
    def load(cls, path: str | Path) -> KafkaConfig:
        """Read a file: TOML where its name ends in .toml, otherwise a line `name=value` for each setting.

        Raises:
            InputError: It cannot be read, is written in another way, or holds a setting that is ours.
        """
        try:
            text = Path(path).read_text(encoding="utf-8")
        except (OSError, UnicodeDecodeError) as error:
            raise InputError(
                f"--kafka-config {path} cannot be read: {getattr(error, 'strerror', None) or error}."
            ) from error
        settings = _from_toml(text, path) if str(path).endswith(".toml") else _from_properties(text, path)
        taken = [name for name in settings if name in _OURS]
        if taken:
            raise InputError(
                f"--kafka-config {path} sets {taken[0]!r}, which ldp-beam sets itself: it decides where messages come "
                "from and whether they may be lost or repeated. Take the line out."
            )
        return cls(settings)


def _from_properties(text: str, path: str | Path) -> dict[str, str]:
    settings = {}
    for number, line in enumerate(text.splitlines(), 1):
        stripped = line.strip()
        if not stripped or stripped[0] in "#!":
            continue
        name, equals, value = stripped.partition("=")
        if not equals or not name.strip():
            raise InputError(f"--kafka-config {path}, line {number}: a line is `name=value`, a comment starts with #.")
        settings[name.strip()] = value.strip()
    return settings


def _from_toml(text: str, path: str | Path) -> dict[str, str]:
    try:
        return dict(_flat(tomllib.loads(text), ""))
    except tomllib.TOMLDecodeError as error:
        raise InputError(f"--kafka-config {path} is no TOML: {error}.") from error
    except TypeError as error:
        raise InputError(f"--kafka-config {path}: {error}.") from error


def _flat(table: Mapping[str, Any], prefix: str) -> Iterator[tuple[str, str]]:
    """Yield names and values; in TOML `ssl.ca.location = …` is a table in a table."""
    for name, value in table.items():
        if isinstance(value, Mapping):
            yield from _flat(value, f"{prefix}{name}.")
        elif isinstance(value, bool):
            yield prefix + name, "true" if value else "false"
        elif isinstance(value, (str, int)):
            yield prefix + name, str(value)
        else:
            raise TypeError(f"the setting {prefix + name!r} is neither text, a whole number, true nor false")
