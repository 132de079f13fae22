"""From `--source` to what a stream reads: a topic of Kafka, a watched folder, or a generator."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import apache_beam as beam
import pyarrow as pa

from ..errors import InputError
from ..schemas.kafka_config import KafkaAddress, KafkaConfig, is_kafka
from ..schemas.messages import Reject
from ..transforms.collection import Collection
from ..transforms.event_clock import Pace
from ..transforms.kafka_client import Partition, make_consumer, partition_limits, topic_partitions
from ..transforms.kafka_source import ReadKafka
from ..transforms.report_messages import ReportDecoder
from .stream import StreamSource

__all__ = ["KafkaReports", "open_source"]


@dataclass(frozen=True, kw_only=True)
class KafkaReports:
    """Reports in a topic.

    Attributes:
        address: the topic.
        collection: whose reports they are.
        pace: how event time passes.
        config: settings of librdkafka.
        until_idle: end when nothing has come for so many seconds, or None.
    """

    address: KafkaAddress
    collection: Collection
    pace: Pace
    config: KafkaConfig = field(default_factory=KafkaConfig)
    until_idle: float | None = None

    @property
    def name(self) -> str:
        """The topic's address."""
        return str(self.address)

    def read(self, pipeline: beam.Pipeline) -> tuple[beam.PCollection[pa.RecordBatch], beam.PCollection[Reject] | None]:
        """Read all partitions from their first message on; the sink writes the same windows again."""
        found = pipeline | "Source" >> ReadKafka(
            self.address,
            self._partitions(),
            ReportDecoder.of(self.collection),
            self.pace,
            config=self.config,
            until_idle=self.until_idle,
        )
        return found.batches, found.rejects

    def _partitions(self) -> list[Partition]:
        consumer = make_consumer(self.address, self.config)
        try:
            numbers = topic_partitions(consumer, self.address)
            return [Partition(one, partition_limits(consumer, self.address, one)[0]) for one in numbers]
        finally:
            consumer.close()


def open_source(
    text: str, collection: Collection, pace: Pace, *, records: bool, kafka_config: str | None, until_idle: float | None
) -> StreamSource:
    """Return the source that `--source` names.

    Args:
        text: what was given.
        collection: what is collected.
        pace: how event time passes.
        records: whether it holds raw records instead of reports.
        kafka_config: file with settings of librdkafka, or None.
        until_idle: end when nothing has come for so many seconds, or None to go on for ever.

    Raises:
        InputError: It names nothing that can be read.
    """
    settings: dict[str, Any] = {"pace": pace, "until_idle": until_idle}
    if is_kafka(text):
        if records:
            raise InputError(
                f"--source {text} with --records: topics hold reports, which clients have perturbed; raw records are "
                "read from a folder or made by a generator."
            )
        config = KafkaConfig() if kafka_config is None else KafkaConfig.load(kafka_config)
        return KafkaReports(address=KafkaAddress.parse(text), collection=collection, config=config, **settings)
    raise InputError(f"--source {text}: give a topic (kafka://HOST:PORT/TOPIC).")
