"""Where the results of a stream go beside its folder."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import apache_beam as beam
import pyarrow as pa

from ..schemas.kafka_config import KafkaAddress, KafkaConfig
from ..transforms.kafka_client import Sender
from ..transforms.kafka_results import WriteResultsToKafka
from ..transforms.publish_panes import Published

__all__ = ["TopicSink"]


@dataclass(frozen=True)
class TopicSink:
    """A topic that takes the estimates of every pane, at least once, keyed by window.

    Attributes:
        address: the topic.
        config: settings of librdkafka.
        format: "json" or "arrow".

    Raises:
        InputError: confluent-kafka is not installed, or a setting or the login is refused.
        RunError: No broker answers.
    """

    address: KafkaAddress
    config: KafkaConfig = field(default_factory=KafkaConfig)
    format: str = "json"

    def __post_init__(self) -> None:
        Sender(self.address, self.config).require_contact()

    def write(self, published: beam.PCollection[Published]) -> Any:
        """Send what stands on the disk now; what was left out or set beside it is not sent."""
        return (
            published
            | "Standing" >> beam.FlatMap(_standing).with_output_types(pa.RecordBatch)
            | "Topic" >> WriteResultsToKafka(self.address, self.config, self.format)
        )


def _standing(published: Published) -> list[pa.RecordBatch]:
    wanted = published.outcome in ("written", "same") and published.estimates is not None
    return [published.estimates] if wanted else []
