"""Talking to Kafka through librdkafka: clients, partitions, and what goes wrong in our words.

The package is an extra; it is imported when a topic is named, and not before.
"""

from __future__ import annotations

import functools
import importlib
import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from types import TracebackType
from typing import Any, Final, Self

from ..errors import InputError, LdpBeamError, RunError
from ..schemas.kafka_config import KafkaAddress, KafkaConfig

__all__ = [
    "Partition",
    "Sender",
    "contact",
    "make_consumer",
    "make_producer",
    "partition_limits",
    "read_all",
    "require_kafka",
    "send",
    "topic_partitions",
]

_CONTACT_SECONDS: Final = 15.0
_TRY_SECONDS: Final = 1.5
_QUIET: Final[Mapping[str, Any]] = {"log_level": 2}
_CONSUMER: Final[Mapping[str, Any]] = {
    "allow.auto.create.topics": False,
    # Where to read is decided by us, partition by partition: nothing is committed, and no other reader takes part.
    "group.id": "ldp-beam",
    "enable.auto.commit": False,
    "enable.auto.offset.store": False,
    "enable.partition.eof": True,
    # Messages that were deleted before we read them are an error, never passed over.
    "auto.offset.reset": "error",
    "fetch.wait.max.ms": 100,
    "queued.max.messages.kbytes": 32768,
    "reconnect.backoff.max.ms": 1000,
}
_PRODUCER: Final[Mapping[str, Any]] = {
    # A retried send is not a second message.
    "enable.idempotence": True,
    "linger.ms": 20,
    "compression.type": "zstd",
    "delivery.timeout.ms": 120_000,
    "reconnect.backoff.max.ms": 1000,
}


#: Values of settings that may be shown; they are words of librdkafka's own sentences, too.
_NO_SECRETS: Final = ("PLAINTEXT", "SASL_PLAINTEXT", "SASL_SSL", "PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512")


@dataclass(frozen=True)
class Partition:
    """A part of a topic, and what is to be read of it.

    Attributes:
        number: of the partition.
        start: offset of the first message.
        stop: offset after the last message; None to read for ever.
        known: offset up to which an earlier run has read.
    """

    number: int
    start: int
    stop: int | None = None
    known: int = 0


def require_kafka() -> Any:
    """Return the package confluent_kafka.

    Raises:
        InputError: It is not installed.
    """
    try:
        return importlib.import_module("confluent_kafka")
    except ImportError as error:
        raise InputError(
            "Kafka needs the package confluent-kafka, which is not installed here. Install it with "
            "pip install 'ldp-beam[kafka]'; on a cluster also for the workers."
        ) from error


def make_consumer(address: KafkaAddress, config: KafkaConfig) -> Any:
    """Return a consumer that is assigned to nothing yet.

    Raises:
        InputError: The package is absent, or librdkafka refuses a setting.
    """
    return _client("Consumer", {**_QUIET, **_CONSUMER}, address, config)


def make_producer(address: KafkaAddress, config: KafkaConfig) -> Any:
    """Return a producer.

    Raises:
        InputError: The package is absent, or librdkafka refuses a setting.
    """
    return _client("Producer", {**_QUIET, **_PRODUCER}, address, config)


def _client(kind: str, ours: Mapping[str, Any], address: KafkaAddress, config: KafkaConfig) -> Any:
    kafka = require_kafka()
    settings = {**ours, **config.settings, "bootstrap.servers": address.servers}
    # What librdkafka would print on standard error comes back to us as errors of calls.
    heard: list[Any] = []
    settings["error_cb"], settings["throttle_cb"] = heard.append, _ignore
    try:
        client = _listening(getattr(kafka, kind))(settings)
        client.heard, client.config = heard, config
        return client
    except (kafka.KafkaException, ValueError, TypeError) as error:
        raise InputError(
            f"The settings for Kafka are refused: {_said(_refusal(error), config)}. Look at --kafka-config."
        ) from error


@functools.cache
def _listening(kind: Any) -> Any:
    """Return a class of clients that have attributes: what one heard about its connections says why it has none."""
    return type(f"Listening{kind.__name__}", (kind,), {})


def _ignore(event: object) -> None:
    """Clients connect again by themselves; what cannot be repaired is the error of a call."""


def _refusal(error: Exception) -> str:
    first = error.args[0] if error.args else error
    return str(first.str() if hasattr(first, "str") else first)


def _said(said: str, config: KafkaConfig) -> str:
    """Return what librdkafka said, without any value of a setting that it may have repeated."""
    for name, value in config.settings.items():
        if len(value) > 3 and value in said and value not in name and value.upper() not in _NO_SECRETS:
            said = said.replace(value, "…")
    return said.rstrip(".")


def contact(client: Any, address: KafkaAddress) -> Any:
    """Return what the brokers say of a topic, the first time that they are asked something.

    Args:
        client: a consumer or producer, as `make_consumer` and `make_producer` give them.
        address: the topic.

    Raises:
        InputError: The broker does not let us in, or is not who it should be.
        RunError: No broker answers within 15 seconds.
    """
    kafka, deadline = require_kafka(), time.monotonic() + _CONTACT_SECONDS
    decided = {kafka.KafkaError._AUTHENTICATION, kafka.KafkaError._SSL}
    while True:
        try:
            return client.list_topics(address.topic, timeout=_TRY_SECONDS).topics[address.topic]
        except kafka.KafkaException as error:
            client.poll(0)  # hands over what was heard meanwhile
            if time.monotonic() > deadline or decided & {one.code() for one in client.heard}:
                raise _no_contact(kafka.KafkaError, client, address, error.args[0]) from error


def _no_contact(codes: Any, client: Any, address: KafkaAddress, error: Any) -> LdpBeamError:
    """Say why no broker answers: what was heard about the connections tells more than that the time is over."""
    heard = {one.code(): _said(one.str(), client.config) for one in (error, *client.heard)}
    security = client.config.settings.get("security.protocol", "plaintext").lower()
    if codes._AUTHENTICATION in heard:
        return InputError(
            f"The broker of {address} refuses the login ({heard[codes._AUTHENTICATION]}). Look at sasl.mechanisms, "
            "sasl.username and sasl.password in --kafka-config."
        )
    if codes._SSL in heard:
        return InputError(
            f"No secure connection to {address}: {heard[codes._SSL]}. Look at --kafka-config: ssl.ca.location names "
            "the certificates of who has signed the broker's, which has to be made out to the host in the address; and "
            "the port has to be one for TLS."
        )
    said = next((heard[code] for code in (codes._RESOLVE, codes._TRANSPORT, codes._BAD_MSG) if code in heard), None)
    if said is not None and ("refused" in said or codes._RESOLVE in heard):
        return RunError(f"No broker of {address} answers ({said}). Is it running and reachable?")
    return RunError(
        f"Nothing at {address} answers as a broker does ({said or heard[error.code()]}). If one runs there, its port "
        f"takes something else than security.protocol={security}, with which we came: say in --kafka-config what it "
        "takes, for example SASL_SSL."
    )


def topic_partitions(consumer: Any, address: KafkaAddress) -> list[int]:
    """Return the numbers of a topic's partitions.

    Raises:
        InputError: There is no such topic, or the broker does not let us in.
        RunError: No broker answers.
    """
    found = contact(consumer, address)
    if found.error is not None or not found.partitions:
        reason = "there is no such topic" if found.error is None else found.error.str()
        raise InputError(f"{address} cannot be read: {reason}. Make the topic first, or look at its name.")
    return sorted(found.partitions)


def partition_limits(
    consumer: Any, address: KafkaAddress, number: int, *, seconds: float = _CONTACT_SECONDS
) -> tuple[int, int]:
    """Return the earliest offset that a partition still holds and the one after its last message.

    Raises:
        RunError: The broker does not answer.
    """
    kafka = require_kafka()
    try:
        low, high = consumer.get_watermark_offsets(
            kafka.TopicPartition(address.topic, number), timeout=seconds, cached=False
        )
    except kafka.KafkaException as error:
        raise RunError(f"Partition {number} of {address} does not answer: {error.args[0].str()}.") from error
    return int(low), int(high)


class Sender:
    """Sends messages and knows whether all of them arrived; a context manager.

    Args:
        address: the topic.
        config: settings of librdkafka.
    """

    def __init__(self, address: KafkaAddress, config: KafkaConfig | None = None) -> None:
        self._address = address
        self._kafka = require_kafka()
        self._producer = make_producer(address, config or KafkaConfig())
        self._failed: list[str] = []

    def require_contact(self) -> None:
        """Ask the brokers for the topic, so that a wrong setting is told at once and not when messages time out.

        Raises:
            InputError: The broker does not let us in, or is not who it should be.
            RunError: No broker answers.
        """
        contact(self._producer, self._address)

    def send(
        self,
        value: bytes,
        *,
        key: bytes | None = None,
        headers: Sequence[tuple[str, bytes]] = (),
        partition: int | None = None,
    ) -> None:
        """Send a message; it is on its way when this returns, and there after `flush`.

        Raises:
            RunError: An earlier message did not arrive, or this one is too large.
        """
        more = {} if partition is None else {"partition": partition}
        while True:
            self._raise_failed()
            try:
                self._producer.produce(
                    self._address.topic, value, key=key, headers=list(headers), on_delivery=self._delivered, **more
                )
            except BufferError:  # what waits to be sent fills the buffer
                self._producer.poll(0.1)
                continue
            except self._kafka.KafkaException as error:
                raise self._refused(error.args[0]) from error
            self._producer.poll(0)
            return

    def flush(self) -> None:
        """Wait until everything has arrived.

        Raises:
            RunError: Something did not, within librdkafka's delivery.timeout.ms.
        """
        while self._producer.flush(1.0) and not self._failed:
            pass
        self._raise_failed()

    def _delivered(self, error: Any, message: Any) -> None:
        if error is not None:
            self._failed.append(error.str())

    def _raise_failed(self) -> None:
        if self._failed:
            raise RunError(f"{self._address} did not take a message: {self._failed[0]}. Is the broker reachable?")

    def _refused(self, error: Any) -> RunError:
        more = ""
        if error.code() == self._kafka.KafkaError.MSG_SIZE_TOO_LARGE:
            more = " Make the messages smaller, or allow larger ones (message.max.bytes) here and at the broker."
        return RunError(f"{self._address} does not take a message: {error.str()}.{more}")

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if error is None:
            self.flush()


def send(address: KafkaAddress, values: Iterable[bytes], config: KafkaConfig | None = None) -> None:
    """Send a few messages and wait until they have arrived.

    Raises:
        RunError: They did not.
    """
    with Sender(address, config) as sender:
        for value in values:
            sender.send(value)


def read_all(address: KafkaAddress, config: KafkaConfig | None = None) -> list[bytes]:
    """Return the values of all messages that a topic holds now, partition by partition; for small topics.

    Raises:
        RunError: The broker stops answering.
    """
    kafka, values = require_kafka(), list[bytes]()
    consumer = make_consumer(address, config or KafkaConfig())
    try:
        for number in topic_partitions(consumer, address):
            low, high = partition_limits(consumer, address, number)
            consumer.assign([kafka.TopicPartition(address.topic, number, low)])
            deadline, ended = time.monotonic() + _CONTACT_SECONDS, low >= high
            while not ended:
                if time.monotonic() > deadline:
                    raise RunError(f"Partition {number} of {address} stopped answering.")
                for message in consumer.consume(1000, 0.2):
                    error = message.error()
                    if error is None:
                        values.append(bytes(message.value() or b""))
                    at_end = error is not None and error.code() == kafka.KafkaError._PARTITION_EOF
                    ended = ended or at_end or (error is None and message.offset() + 1 >= high)
    finally:
        consumer.close()
    return values
