"""An unbounded source over Kafka: one splittable element a partition, exact about what it has read.

Why our own: Beam's cross-language source lost messages on the engines that we run on. Here a partition is a range of
offsets that an engine may interrupt and resume anywhere, never divide. Offsets are committed nowhere: what has been
read is part of the engine's own checkpoint, and a new run reads again from the first message that an unpublished
window may need, into a sink that writes the same files again.
"""

from __future__ import annotations

import time
import uuid
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any, Final, Protocol

import apache_beam as beam
import pyarrow as pa
from apache_beam.io.restriction_trackers import OffsetRange, OffsetRestrictionTracker
from apache_beam.transforms.core import RestrictionProvider
from apache_beam.transforms.window import TimestampedValue
from apache_beam.utils.timestamp import Duration, Timestamp

from ..errors import RunError
from ..schemas.event_time import time_text
from ..schemas.kafka_config import KafkaAddress, KafkaConfig
from ..schemas.messages import TOO_LATE, MessageHeaders, RefusedMessage, Reject
from .event_clock import EventClock, EventClockProvider, Pace, shared_clock
from .gathered import Gathered
from .kafka_client import Partition, make_consumer, partition_limits, require_kafka

__all__ = ["Decoded", "Decoder", "KafkaOutputs", "ReadKafka", "ReadProgress"]

#: Stands for "no end" in a range of offsets; Kafka's own offsets stay below it.
_ENDLESS: Final = (1 << 63) - 1
#: A turn ends after so many seconds, messages or bytes, so that checkpoints come through.
_TURN_SECONDS: Final = 0.5
_TURN_MESSAGES: Final = 20_000
_TURN_BYTES: Final = 1 << 26
_POLL_SECONDS: Final = 0.1
_POLL_MESSAGES: Final = 2_000
_PAUSE: Final = Duration(micros=50_000)
#: Flink takes whole seconds of a pause, none of less, and emits the watermark of a stage only between its bundles;
#: where the next turn follows at once there is no such moment before the next checkpoint. What arrives meanwhile waits,
#: so that there is a pause only where a window may end.
_FLINK_PAUSE: Final = Duration(micros=1_050_000)
#: How much of a message that is set aside is kept.
_PAYLOAD_BYTES: Final = 1 << 20


@dataclass(frozen=True)
class Decoded:
    """What one message gave.

    Attributes:
        parts: (event time in seconds since 1970, batch), one for each slice of time in the message.
        rejects: what was set aside in it: (reason, how many, one sentence).
    """

    parts: Sequence[tuple[float, pa.RecordBatch]]
    rejects: Sequence[tuple[str, int, str]] = ()


class Decoder(Protocol):
    """Turns a message into batches; raises `RefusedMessage` and nothing else."""

    def __call__(self, value: bytes | None, headers: MessageHeaders, now: float) -> Decoded:
        """Return what a message holds; `now` is the latest time, in seconds since 1970, that it may tell of."""


@dataclass(frozen=True)
class ReadProgress:
    """How far a partition has been read, and where in it the messages of each event time begin.

    The least offset of a slice is what a later run needs to read the slice again, see `kafka_offsets`.

    Attributes:
        partition: number of the partition.
        first: (event time in seconds since 1970, offset of its first message) of one turn.
        position: offset of the message after the last of this turn.
    """

    partition: int
    first: tuple[tuple[float, int], ...]
    position: int


@dataclass(frozen=True)
class KafkaOutputs:
    """What `ReadKafka` gives.

    Attributes:
        batches: record batches whose Beam timestamps are their event times.
        rejects: `Reject`s, at the time at which they were read.
        progress: `ReadProgress` of each turn.
    """

    batches: beam.PCollection[pa.RecordBatch]
    rejects: beam.PCollection[Reject]
    progress: beam.PCollection[ReadProgress]


class ReadKafka(beam.PTransform):
    """A pipeline's root: the messages of a topic → record batches at their event times, and what was set aside.

    Partitions that are added to the topic later are not read; the next run reads them. A message that the broker
    deletes before it was read fails the run. While no broker answers nothing is read and no watermark moves.

    Args:
        address: the topic.
        partitions: what to read of it, see `kafka_client.Partition`; with ends the source is bounded.
        decode: what the messages hold, for example a `ReportDecoder`.
        pace: how event time passes.
        config: settings of librdkafka; they travel in the pickled stage to the workers.
        until_idle: stop a partition once it has been read to its end and nothing arrived for so many seconds; None to
            go on for ever.
        passed_over: starts of slices of `pace.slice_seconds` whose messages are left out, since all windows that hold
            them are final; what no earlier run has read of them is set aside as too late.
        one_process: whether all partitions are read in one process, as in a stream of ours; their watermark is then
            the earliest of all, which Prism does not see to itself.
        pauses: whether the engine learns how far a partition is read only from a pause of reading, as Flink does; there
            is one where windows may end.

    Returns (from `expand`): `KafkaOutputs`.
    """

    def __init__(
        self,
        address: KafkaAddress,
        partitions: Sequence[Partition],
        decode: Decoder,
        pace: Pace,
        *,
        config: KafkaConfig | None = None,
        until_idle: float | None = None,
        passed_over: Collection[int] = (),
        one_process: bool = False,
        pauses: bool = False,
    ) -> None:
        super().__init__()
        require_kafka()
        self._partitions = list(partitions)
        numbers = tuple(partition.number for partition in partitions)
        together = (uuid.uuid4().hex, numbers) if one_process else None
        self._read = _ReadPartition(
            address, config or KafkaConfig(), decode, pace, until_idle, frozenset(passed_over), together, pauses
        )

    def expand(self, begin: beam.pvalue.PBegin) -> KafkaOutputs:
        read = beam.ParDo(self._read).with_outputs("rejects", "progress", main="batches")
        found = begin | "Partitions" >> beam.Create(self._partitions, reshuffle=True) | "Read" >> read
        found.batches.element_type, found.rejects.element_type = pa.RecordBatch, Reject
        found.progress.element_type = ReadProgress
        return KafkaOutputs(found.batches, found.rejects, found.progress)


# -- the range of offsets ---------------------------------------------------------------------------------


class PartitionTracker(OffsetRestrictionTracker):
    """Claims offsets one after the other; can be interrupted, but not divided, since its end is not known."""

    def try_split(self, fraction_of_remainder: float) -> tuple[OffsetRange, OffsetRange] | None:
        """Stop here and leave the rest for later; any other fraction is refused."""
        return super().try_split(0) if fraction_of_remainder == 0 else None

    def is_bounded(self) -> bool:
        """Return whether the range has an end."""
        return bool(self._range.stop < _ENDLESS)


class _Offsets(RestrictionProvider):
    def initial_restriction(self, element: Partition) -> OffsetRange:
        stop = _ENDLESS if element.stop is None else element.stop
        return OffsetRange(min(element.start, stop), stop)

    def create_tracker(self, restriction: OffsetRange) -> PartitionTracker:
        return PartitionTracker(restriction)

    def restriction_size(self, element: Partition, restriction: OffsetRange) -> float:
        return 1.0 if restriction.stop >= _ENDLESS else float(max(1, restriction.stop - restriction.start))


_OFFSETS: Final = beam.DoFn.RestrictionParam(_Offsets())
_CLOCK: Final = beam.DoFn.WatermarkEstimatorParam(EventClockProvider())


# -- one partition at one consumer ------------------------------------------------------------------------


class _Reader:
    """A consumer of one partition, kept between turns so that what it has fetched is not fetched again."""

    def __init__(self, address: KafkaAddress, config: KafkaConfig, number: int) -> None:
        self._kafka = require_kafka()
        self._consumer = make_consumer(address, config)
        self._address, self._number = address, number
        self._position = -1
        self._at_end = False
        self._returned: list[Any] = []

    def move_to(self, offset: int) -> None:
        if offset != self._position:
            self._consumer.assign([self._kafka.TopicPartition(self._address.topic, self._number, offset)])
            self._position, self._at_end, self._returned = offset, False, []

    def give_back(self, messages: list[Any]) -> None:
        """Take messages back that nobody claimed: a turn was interrupted, and the next starts with them."""
        self._returned = messages + self._returned
        self._position = messages[0].offset()

    def poll(self) -> list[Any]:
        """Return messages, none where none came in time."""
        messages: list[Any] = []
        if self._returned:
            messages, self._returned = self._returned, []
            self._position = messages[-1].offset() + 1
            return messages
        for message in self._consumer.consume(_POLL_MESSAGES, _POLL_SECONDS):
            if message.error() is None:
                messages.append(message)
                self._position, self._at_end = message.offset() + 1, False
            elif message.error().code() == self._kafka.KafkaError._PARTITION_EOF:
                # Behind the last message may lie marks of transactions, which nobody is shown.
                self._position, self._at_end = max(self._position, message.offset()), True
            else:
                self._check(message.error())
        return messages

    def _check(self, error: Any) -> None:
        """Pass over what repairs itself.

        Raises:
            RunError: Messages are lost, or the topic is out of reach for good.
        """
        kafka = self._kafka.KafkaError
        if error.code() in (kafka._AUTO_OFFSET_RESET, kafka.OFFSET_OUT_OF_RANGE):
            raise RunError(
                f"Partition {self._number} of {self._address}: the broker has deleted messages from offset "
                f"{self._position} on before they were read ({error.str()}). What was published stays as it is; make "
                "the topic keep its messages longer (retention.ms) than a window takes to close."
            )
        passing = (
            kafka._TRANSPORT,
            kafka._ALL_BROKERS_DOWN,
            kafka._TIMED_OUT,
            kafka._RESOLVE,
            kafka._MAX_POLL_EXCEEDED,
        )
        if error.fatal() or not (error.retriable() or error.code() in passing):
            raise RunError(f"Partition {self._number} of {self._address} cannot be read: {error.str()}.")

    @property
    def position(self) -> int:
        """Offset of the next message."""
        return self._position

    def has_all(self) -> bool:
        """Return whether the broker says, now, that there is nothing beyond our position."""
        if not self._at_end or self._returned:
            return False
        try:
            _, high = partition_limits(self._consumer, self._address, self._number, seconds=1.0)
        except RunError:
            return False
        return self._position >= high

    def close(self) -> None:
        self._consumer.close()


@dataclass
class _Turn:
    """What one turn has seen."""

    gathered: Gathered = field(default_factory=Gathered)
    latest: float | None = None
    first: dict[float, int] = field(default_factory=dict)
    messages: int = 0
    bytes: int = 0
    position: int = 0
    at_end: bool = False


class _ReadPartition(beam.DoFn):
    def __init__(
        self,
        address: KafkaAddress,
        config: KafkaConfig,
        decode: Decoder,
        pace: Pace,
        until_idle: float | None,
        passed_over: frozenset[int],
        together: tuple[str, tuple[int, ...]] | None,
        pauses: bool,
    ) -> None:
        self._address, self._config, self._decode = address, config, decode
        self._pauses = pauses
        self._pace, self._until_idle, self._passed_over = pace, until_idle, passed_over
        self._together = together

    def setup(self) -> None:
        self._readers: dict[int, _Reader] = {}
        self._told: dict[int, int] = {}
        self._shared = None if self._together is None else shared_clock(*self._together)

    def teardown(self) -> None:
        for reader in self._readers.values():
            reader.close()
        self._readers = {}

    @beam.DoFn.unbounded_per_element()  # type: ignore[untyped-decorator]  # Beam's decorator has no types
    def process(
        self,
        element: Partition,
        tracker: Any = _OFFSETS,
        clock: Any = _CLOCK,
    ) -> Iterator[Any]:
        reader = self._reader(element.number)
        given = tracker.current_restriction()
        if self._shared is not None:
            clock.share(self._shared, element.number)
        if given.start >= given.stop:
            self._end(element)
            return
        reader.move_to(given.start)
        turn, ends = _Turn(), time.monotonic() + _TURN_SECONDS
        while time.monotonic() < ends and turn.messages < _TURN_MESSAGES and turn.bytes < _TURN_BYTES:
            messages = reader.poll()
            for number, message in enumerate(messages):
                if not tracker.try_claim(message.offset()):
                    reader.give_back(messages[number:])
                    yield from self._finish(element, turn, clock)
                    return
                yield from self._outputs(element, message, turn)
            if not messages:
                break
        yield from self._finish(element, turn, clock)
        if self._is_over(reader, tracker, clock, given.stop, turn):
            self._end(element)
            return
        tracker.defer_remainder(self._pause(element.number, turn, clock))

    def _pause(self, partition: int, turn: _Turn, clock: EventClock) -> Duration:
        complete = clock.complete_until()
        if self._pauses and turn.at_end and complete is not None:
            ended = complete // self._pace.grid
            if ended != self._told.get(partition):
                self._told[partition] = ended
                return _FLINK_PAUSE
        return _PAUSE if turn.messages == 0 else Duration(0)

    def _end(self, partition: Partition) -> None:
        if self._shared is not None:
            self._shared.end(partition.number)

    def _reader(self, number: int) -> _Reader:
        if number not in self._readers:
            self._readers[number] = _Reader(self._address, self._config, number)
        return self._readers[number]

    def _outputs(self, partition: Partition, message: Any, turn: _Turn) -> Iterator[Any]:
        now, value = time.time(), message.value()
        turn.messages, turn.bytes = turn.messages + 1, turn.bytes + len(value or b"")
        turn.position = message.offset() + 1
        where = f"{self._address.topic}/{partition.number}@{message.offset()}"
        try:
            found = self._decode(value, message.headers() or (), self._pace.latest(now))
        except RefusedMessage as error:
            kept = bytes(value or b"")[:_PAYLOAD_BYTES]
            yield _aside(Reject(error.reason, 1, where, str(error), kept), now)
            return
        for reason, count, detail in found.rejects:
            yield _aside(Reject(reason, count, where, detail), now)
        for event_time, batch in found.parts:
            if self._pace.slice_of(event_time) in self._passed_over:
                if message.offset() >= partition.known:  # nobody has counted it
                    detail = f"all windows of the slice from {time_text(int(event_time))} on are final"
                    yield _aside(Reject(TOO_LATE, batch.num_rows, where, detail, bytes(value)[:_PAYLOAD_BYTES]), now)
                continue
            turn.first.setdefault(event_time, message.offset())
            turn.latest = event_time if turn.latest is None else max(turn.latest, event_time)
            yield from turn.gathered.add(event_time, batch)

    def _finish(self, partition: Partition, turn: _Turn, clock: EventClock) -> Iterator[Any]:
        yield from turn.gathered.flush()
        if turn.messages:
            progress = ReadProgress(partition.number, tuple(turn.first.items()), turn.position)
            yield beam.pvalue.TaggedOutput("progress", TimestampedValue(progress, Timestamp(time.time())))
            clock.arrived(turn.latest, self._pace)

    def _is_over(self, reader: _Reader, tracker: Any, clock: EventClock, stop: int, turn: _Turn) -> bool:
        """Advance the clock where everything has been read; return whether the partition's end is reached."""
        if stop < _ENDLESS and reader.position >= stop:
            return not tracker.try_claim(stop)
        if not reader.has_all():
            return False
        turn.at_end = True
        clock.caught_up(self._pace)
        if self._until_idle is not None and clock.quiet_seconds() >= self._until_idle:
            return not tracker.try_claim(stop)
        return False


def _aside(reject: Reject, now: float) -> Any:
    return beam.pvalue.TaggedOutput("rejects", TimestampedValue(reject, Timestamp(now)))
