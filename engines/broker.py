"""A Kafka of one process on this machine: broker and controller in one (KRaft), for demonstrations and tests.

A real Kafka is somebody else's; `kafka://host:port/topic` names it in the same way.
"""

from __future__ import annotations

import base64
import socket
import uuid
from collections.abc import Mapping
from pathlib import Path
from types import TracebackType
from typing import Self

from ..errors import InputError
from .java import java_command
from .processes import Process, free_port, wait_until
from .resolve import resolve

__all__ = ["KAFKA", "KafkaBroker", "kafka_answers"]

#: Name of the engine.
KAFKA = "kafka"
#: The port at which people expect a broker.
USUAL_PORT = 9092

_START_SECONDS = 120.0
#: Where a request of Kafka's protocol for its versions starts and what is asked: key 18, version 0, number 1.
_VERSIONS_REQUEST = bytes.fromhex("0000000a00120000000000010000")


class KafkaBroker:
    """A broker with its data in a folder; may be stopped and started again, and then still holds its messages.

    Args:
        folder: takes configuration, messages and logs.
        port: where it listens; None for the usual one, or a free one where that is taken.
        partitions: of topics that are made by their first use.
        listeners: further ones by name, "HOST:PORT" each, such as one with TLS beside the plain one; `settings` says
            how they work.
        settings: further settings of the broker.
        guarded: end it when this process ends, however that happens; False for one that stays.
    """

    def __init__(
        self,
        folder: Path,
        *,
        port: int | None = None,
        partitions: int = 2,
        listeners: Mapping[str, str] | None = None,
        settings: Mapping[str, object] | None = None,
        guarded: bool = True,
    ) -> None:
        self.folder, self._guarded = folder, guarded
        self.port = _port(port)
        self.address = f"localhost:{self.port}"
        self._jars = resolve(KAFKA)
        self._configure(partitions, listeners or {}, settings or {})
        self.process = self.start()

    def _configure(self, partitions: int, listeners: Mapping[str, str], settings: Mapping[str, object]) -> None:
        controller, data = free_port(), self.folder / "data"
        clients = ",".join(f"{name}://{at}" for name, at in {"PLAINTEXT": self.address, **listeners}.items())
        data.mkdir(parents=True, exist_ok=True)
        self._write(
            "server.properties",
            {
                "process.roles": "broker,controller",
                "node.id": 1,
                "controller.quorum.voters": f"1@localhost:{controller}",
                "listeners": f"{clients},CONTROLLER://localhost:{controller}",
                "advertised.listeners": clients,
                "listener.security.protocol.map": "CONTROLLER:PLAINTEXT,PLAINTEXT:PLAINTEXT,SSL:SSL,SASL_SSL:SASL_SSL",
                "controller.listener.names": "CONTROLLER",
                "log.dirs": data,
                "num.partitions": partitions,
                "offsets.topic.replication.factor": 1,
                "transaction.state.log.replication.factor": 1,
                "transaction.state.log.min.isr": 1,
                "group.initial.rebalance.delay.ms": 0,
                # A message may hold a batch of reports as large as is read: 16 MiB.
                "message.max.bytes": 17_000_000,
                "replica.fetch.max.bytes": 17_000_000,
                "controlled.shutdown.enable": "false",
                **settings,
            },
        )
        # What Kafka's own tool would write with a Java of its own.
        cluster = base64.urlsafe_b64encode(uuid.uuid4().bytes).rstrip(b"=").decode()
        self._write("data/meta.properties", {"version": 1, "cluster.id": cluster, "node.id": 1})

    def _write(self, name: str, settings: Mapping[str, object]) -> None:
        lines = [f"{name}={value}\n" for name, value in settings.items()]
        (self.folder / name).write_text("".join(lines), encoding="utf-8")

    def start(self) -> Process:
        """Start it, again after a `stop`, and wait until it answers.

        Raises:
            RunError: It does not, within two minutes.
        """
        arguments = [str(self.folder / "server.properties")]
        command = java_command(
            self._jars, "kafka.Kafka", arguments, scratch=self.folder, options=["-Xmx512m", "-Xms128m"]
        )
        process = Process(
            "the broker of Kafka",
            command,
            log=self.folder / "broker.log",
            folder=self.folder,
            guarded=self._guarded,
        )
        try:
            wait_until(lambda: kafka_answers(self.address), "Kafka", [process], seconds=_START_SECONDS)
        except BaseException:
            process.stop()
            raise
        self.process = process
        return process

    def stop(self) -> None:
        """End it; its messages stay in the folder."""
        self.process.stop()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()


def _port(wanted: int | None) -> int:
    if wanted is None:
        return USUAL_PORT if _is_free(USUAL_PORT) else free_port()
    if not _is_free(wanted):
        raise InputError(f"--port {wanted}: something listens there already. Give another, or leave it out.")
    return wanted


def _is_free(port: int) -> bool:
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind(("localhost", port))
        except OSError:
            return False
    return True


def kafka_answers(address: str, *, seconds: float = 2.0) -> bool:
    """Return whether a broker answers at host:port: it is asked which requests it knows."""
    host, _, port = address.rpartition(":")
    try:
        with socket.create_connection((host, int(port)), timeout=seconds) as connection:
            connection.sendall(_VERSIONS_REQUEST)
            connection.settimeout(seconds)
            answer = connection.recv(10)
    except (OSError, ValueError):
        return False
    # Length, the number of our request, no error.
    return len(answer) == 10 and answer[4:10] == b"\0\0\0\1\0\0"
