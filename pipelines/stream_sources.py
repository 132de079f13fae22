"""From `--source` to what a stream reads: a topic of Kafka, a watched folder, or people who do not exist."""

from __future__ import annotations

import time
from dataclasses import dataclass, field
from pathlib import Path

import apache_beam as beam
import pyarrow as pa
from apache_beam.options.pipeline_options import PortableOptions

from ..errors import InputError
from ..schemas.kafka_config import KafkaAddress, KafkaConfig, is_kafka
from ..schemas.messages import Reject
from ..schemas.records import Columns
from ..transforms.collection import Collection
from ..transforms.event_clock import Pace
from ..transforms.generate_stream import GenerateStream, TimedPeople
from ..transforms.generated import is_generated
from ..transforms.kafka_offsets import KeepOffsets, next_partitions
from ..transforms.kafka_source import Decoder, ReadKafka
from ..transforms.record_messages import RecordDecoder, RecordFiles
from ..transforms.report_messages import ReportDecoder, ReportFiles
from ..transforms.watch_folder import FileDecoder, WatchFolder
from .stream import StreamSource
from .stream_folder import EarlierRuns

__all__ = ["FolderSource", "GeneratedSource", "KafkaSource", "open_source"]

#: Seconds without a message after which a topic that is drained has ended.
_IDLE_SECONDS = 5.0

Read = tuple[beam.PCollection[pa.RecordBatch], beam.PCollection[Reject] | None]


@dataclass(frozen=True, kw_only=True)
class KafkaSource:
    """Reports, or records of simulated clients, in a topic.

    Attributes:
        address: the topic.
        decode: what its messages hold.
        pace: how event time passes.
        config: settings of librdkafka.
        drain: end when nothing has come for a while.
        engine: what reads it. Prism is told the earliest watermark of all partitions, since it takes any partition's
            for that of all; Flink finds it itself, a turn of reading earlier than we could, but needs pauses for it.
    """

    address: KafkaAddress
    decode: Decoder
    pace: Pace
    config: KafkaConfig = field(default_factory=KafkaConfig)
    drain: bool = False
    engine: str = "prism"

    @property
    def name(self) -> str:
        """The topic's address."""
        return str(self.address)

    def read(self, pipeline: beam.Pipeline, earlier: EarlierRuns) -> Read:
        """Read what windows that are not final yet may need, of earlier runs too.

        Records are read from the first message on: one message may tell of several slices.
        """
        done = earlier.done if self.pace.slice_seconds else frozenset[int]()
        found = pipeline | "Source" >> ReadKafka(
            self.address,
            next_partitions(self.address, self.config, earlier.offsets, done=done),
            self.decode,
            self.pace,
            config=self.config,
            until_idle=_IDLE_SECONDS if self.drain else None,
            passed_over=done,
            one_process=self.engine != "flink" and _one_process(pipeline),
            pauses=self.engine == "flink",
        )
        found.progress | "Offsets" >> KeepOffsets(earlier.offsets, earlier.slice_seconds)
        return found.batches, found.rejects


def _one_process(pipeline: beam.Pipeline) -> bool:
    """Whether all workers are this process, which Prism's are."""
    return pipeline.options.view_as(PortableOptions).environment_type == "LOOPBACK"


@dataclass(frozen=True, kw_only=True)
class FolderSource:
    """Files of reports, or of raw records, that appear in a folder.

    Attributes:
        folder: the folder.
        decode: what its files hold.
        pace: how event time passes.
        drain: read what is there and end.
    """

    folder: str
    decode: FileDecoder
    pace: Pace
    drain: bool = False

    @property
    def name(self) -> str:
        """The folder's path."""
        return self.folder

    def read(self, pipeline: beam.Pipeline, earlier: EarlierRuns) -> Read:
        """Read each file once."""
        watch = WatchFolder(self.folder, self.decode, self.pace, drain=self.drain)
        found = pipeline | "Source" >> watch
        return found.batches, found.rejects


@dataclass(frozen=True, kw_only=True)
class GeneratedSource:
    """Raw records of people who do not exist.

    Attributes:
        name: as it was given.
        people: who comes when.
        pace: how event time passes.
    """

    name: str
    people: TimedPeople
    pace: Pace

    def read(self, pipeline: beam.Pipeline, earlier: EarlierRuns) -> Read:
        """Make them up; the source ends with the last of them."""
        return pipeline | "Source" >> GenerateStream(self.people, self.pace), None


def open_source(
    text: str,
    collection: Collection,
    pace: Pace,
    *,
    columns: Columns | None = None,
    kafka_config: str | None = None,
    drain: bool = False,
    engine: str = "prism",
) -> StreamSource:
    """Return the source that `--source` names.

    Args:
        text: what was given.
        collection: what is collected.
        pace: how event time passes.
        columns: columns of raw records, where the source holds such; None where it holds reports.
        kafka_config: file with settings of librdkafka, or None.
        drain: end when the source has been read to its end.
        engine: what will read it.

    Raises:
        InputError: It names nothing that can be read.
    """
    if is_generated(text):
        if columns is None:
            raise InputError(f"--source {text} makes up raw records: give --records, which simulates their clients.")
        return GeneratedSource(name=text, people=TimedPeople.parse(text, now=time.time()), pace=pace)
    if is_kafka(text):
        config = KafkaConfig() if kafka_config is None else KafkaConfig.load(kafka_config)
        decode = (
            ReportDecoder.of(collection, slice_seconds=pace.slice_seconds)
            if columns is None
            else RecordDecoder(columns)
        )
        address = KafkaAddress.parse(text)
        return KafkaSource(address=address, decode=decode, pace=pace, config=config, drain=drain, engine=engine)
    if not Path(text).is_dir():
        raise InputError(
            f"--source {text} is no folder. Give the folder that files of reports appear in, a topic "
            "(kafka://HOST:PORT/TOPIC), or with --records people who do not exist (simulate:gauss,users=100000,…)."
        )
    files = ReportFiles(collection, pace.slice_seconds) if columns is None else RecordFiles(columns)
    return FolderSource(folder=str(Path(text).absolute()), decode=files, pace=pace, drain=drain)
