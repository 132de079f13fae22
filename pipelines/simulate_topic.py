"""`simulate --to kafka://…`: records of people who do not exist, at event times, into a topic; for demonstrations."""

from __future__ import annotations

import time
from typing import Any

from ..mechanisms.populations import Truth
from ..schemas.event_time import time_text
from ..schemas.kafka_config import KafkaAddress, KafkaConfig
from ..transforms.generate_stream import TimedPeople
from ..transforms.kafka_client import Sender
from ..transforms.record_messages import record_message
from .simulate import Beside

__all__ = ["simulate_to_topic"]


def simulate_to_topic(
    people: TimedPeople, address: KafkaAddress, config: KafkaConfig, beside: Beside
) -> dict[str, Any]:
    """Send the records of a population, at its rate, and wait until they have arrived.

    Args:
        people: who comes when.
        address: the topic.
        config: settings of librdkafka.
        beside: files to write beside; the true figures are those of all windows together.

    Returns:
        What was sent.

    Raises:
        RunError: A message did not arrive.
    """
    beside.check(None)
    began, messages, sent = time.monotonic(), 0, 0
    users, population = people.people.users, people.people.population
    with Sender(address, config) as sender:
        sender.require_contact()
        for _, batch in people.batches(0, users):
            sent += batch.num_rows
            if people.rate is not None:
                time.sleep(max(0.0, began + sent / people.rate - time.monotonic()))
            sender.send(record_message(batch))
            messages += 1
    known = Truth(keys=population.keys)
    if beside.truth is not None:
        for pairs in population.batches(users):
            known.add(pairs)
    beside.write(population, known, people.people.value_range)
    return {
        "topic": str(address),
        "population": population.name,
        "seed": population.seed,
        "keys": population.keys,
        "users": users,
        "messages": messages,
        "from": time_text(int(people.start)),
        "span_seconds": people.span,
        "seconds": round(time.monotonic() - began, 3),
        "truth": None if beside.truth is None else str(beside.truth),
        "collection": None if beside.collection is None else str(beside.collection),
    }
