"""What a stream notes of the offsets that it has read, so that a later run reads again what is not published yet.

Nothing is committed to Kafka: an offset would say that a message was read, not that the window which counts it was
published. In the stream's own folder stands, for each partition, how far it has been read, and for each slice of time
the offset of its first message. A run begins at the first message of a slice that some window still needs, and passes
over the messages of slices whose windows are all final.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from pathlib import Path
from typing import Final

import apache_beam as beam

from ..errors import InputError
from ..schemas.event_time import time_text
from ..schemas.kafka_config import KafkaAddress, KafkaConfig
from .kafka_client import Partition, make_consumer, partition_limits, topic_partitions
from .kafka_source import ReadProgress
from .set_aside import replace_file

__all__ = ["KeepOffsets", "next_partitions"]

_POSITION: Final = "position"


class KeepOffsets(beam.PTransform):
    """`ReadProgress` → small files in a folder: "PARTITION-START" for each slice, "PARTITION-position".

    A file only ever takes a lower first offset, or a higher position, so that bundles that run again change nothing.

    Args:
        folder: an existing folder that all workers see.
        slice_seconds: length of the slices that windows are made of.
    """

    def __init__(self, folder: str, slice_seconds: int) -> None:
        super().__init__()
        self._keep = _Keep(folder, slice_seconds)

    def expand(self, progress: beam.PCollection[ReadProgress]) -> beam.PCollection[int]:
        return progress | "Keep" >> beam.ParDo(self._keep).with_output_types(int)


class _Keep(beam.DoFn):
    def __init__(self, folder: str, slice_seconds: int) -> None:
        self._folder, self._slice = folder, slice_seconds

    def setup(self) -> None:
        self._known: dict[str, int] = {}

    def process(self, element: ReadProgress) -> None:
        for event_time, offset in element.first:
            start = int(event_time // self._slice) * self._slice
            self._note(f"{element.partition}-{start}", offset, lower=True)
        # Last, so that no position stands beyond a slice that is not noted.
        self._note(f"{element.partition}-{_POSITION}", element.position, lower=False)

    def _note(self, name: str, offset: int, *, lower: bool) -> None:
        path = Path(self._folder, name)
        known = self._known.get(name)
        if known is None and path.exists():
            known = int(path.read_text())
        if known is None or (offset < known if lower else offset > known):
            replace_file(path, str(offset).encode())
            known = offset
        self._known[name] = known


def next_partitions(
    address: KafkaAddress, config: KafkaConfig, folder: str, *, done: Collection[int]
) -> list[Partition]:
    """Return the partitions of a topic, each from the first message on that a window may still need.

    Args:
        address: the topic.
        config: settings of librdkafka.
        folder: where `KeepOffsets` of earlier runs kept its files; made where it is absent.
        done: starts of the slices whose windows are all final.

    Raises:
        InputError: The broker has deleted messages that windows need.
        RunError: No broker answers.
    """
    kept = Path(folder)
    kept.mkdir(parents=True, exist_ok=True)
    consumer = make_consumer(address, config)
    try:
        partitions = []
        for number in topic_partitions(consumer, address):
            earliest, _ = partition_limits(consumer, address, number)
            noted = _noted(kept, number)
            _forget(kept, number, noted, done)
            start = _begin(address, number, earliest, noted, done)
            partitions.append(Partition(number, start, known=noted.get(_POSITION, earliest)))
            if _POSITION not in noted:
                replace_file(kept / f"{number}-{_POSITION}", str(earliest).encode())
        return partitions
    finally:
        consumer.close()


def _noted(kept: Path, number: int) -> dict[str, int]:
    """Return what is noted of a partition: offsets by slice, and the position."""
    return {path.name.partition("-")[2]: int(path.read_text()) for path in kept.glob(f"{number}-*")}


def _forget(kept: Path, number: int, noted: Mapping[str, int], done: Collection[int]) -> None:
    for name in noted:
        if name != _POSITION and int(name) in done:
            (kept / f"{number}-{name}").unlink(missing_ok=True)


def _begin(address: KafkaAddress, number: int, earliest: int, noted: Mapping[str, int], done: Collection[int]) -> int:
    if _POSITION not in noted:
        return earliest
    needed = {int(name): at for name, at in noted.items() if name != _POSITION and int(name) not in done}
    lost = sorted(start for start, at in needed.items() if at < earliest)
    position = noted[_POSITION]
    if lost or position < earliest:
        which = (
            f"the slice that starts at {time_text(lost[0])}, whose window is not final yet,"
            if lost
            else "what comes next"
        )
        first = min([position, *needed.values()])
        raise InputError(
            f"Partition {number} of {address}: the broker has deleted the messages from offset {first} to "
            f"{earliest - 1}, and {which} began there. Results without them would be wrong. Let the topic keep its "
            "messages longer (retention.ms), and start again with another --output folder from what is left."
        )
    return min([position, *needed.values()])
