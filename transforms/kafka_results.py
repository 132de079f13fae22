"""Results of windows → messages of a topic, beside the files.

A message has the window as its key, so that a compacted topic keeps the last word on each window. Delivery is at
least once: a bundle that is run again, and a stream that is read again from its beginning, send the same panes again
under the same keys. Who reads takes, for each key, the message with the highest pane; equal panes are equal messages.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from datetime import datetime
from typing import Any, Final

import apache_beam as beam
import pyarrow as pa

from ..schemas.event_time import time_text
from ..schemas.kafka_config import KafkaAddress, KafkaConfig
from .kafka_client import Sender, require_kafka

__all__ = ["TOPIC_FORMATS", "WriteResultsToKafka", "result_messages"]

#: Forms of the value of a message, and how many keys of the collection a message holds at most: well below 1 MB.
TOPIC_FORMATS: Final = {"json": 1000, "arrow": 2000}
_WINDOW: Final = ("window_start", "window_end", "pane", "is_final")


def result_messages(estimates: pa.RecordBatch, format_: str) -> Iterator[tuple[bytes, bytes, list[tuple[str, bytes]]]]:
    """Yield key, value and Kafka headers of the messages of a pane.

    The key is the window, "2026-11-30T13:00:00Z/2026-11-30T14:00:00Z"; from the second message of a large domain on
    with "#2" and so on behind it. The headers tell window, pane, whether it is final, part and parts.

    Args:
        estimates: of one pane, with the columns `window_start`, `window_end`, `pane` and `is_final`.
        format_: "json" (one object, with the estimates as a list) or "arrow" (an Arrow IPC stream of one batch).
    """
    if not estimates.num_rows:
        return
    first = {name: estimates.column(name)[0].as_py() for name in _WINDOW}
    bounds = [_text(first[name]) for name in ("window_start", "window_end")]
    rows = TOPIC_FORMATS[format_]
    parts = -(-estimates.num_rows // rows)
    about = {
        "window_start": bounds[0],
        "window_end": bounds[1],
        "pane": int(first["pane"]),
        "is_final": bool(first["is_final"]),
        **_collection(estimates.schema),
        "parts": parts,
    }
    for part in range(parts):
        piece = estimates.slice(part * rows, rows)
        told = {**about, "part": part + 1}
        value = _json(piece, told) if format_ == "json" else _arrow(piece)
        key = "/".join(bounds) + (f"#{part + 1}" if part else "")
        yield key.encode(), value, [(name, json.dumps(what).strip('"').encode()) for name, what in told.items()]


def _collection(schema: pa.Schema) -> dict[str, str]:
    metadata = schema.metadata or {}
    names = ("collection", "fingerprint")
    return {name: metadata[key].decode() for name in names if (key := f"ldp_beam.{name}".encode()) in metadata}


def _text(moment: datetime) -> str:
    return time_text(int(moment.timestamp()))


def _json(estimates: pa.RecordBatch, about: dict[str, Any]) -> bytes:
    rows = estimates.drop_columns(list(_WINDOW)).to_pylist()
    return json.dumps({**about, "estimates": rows}, ensure_ascii=False, allow_nan=False).encode()


def _arrow(estimates: pa.RecordBatch) -> bytes:
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, estimates.schema) as writer:
        writer.write_batch(estimates)
    return bytes(sink.getvalue())


class WriteResultsToKafka(beam.PTransform):
    """Record batches of estimates, each of one pane → messages, and for each pane the number of its messages.

    A bundle ends when the broker has taken its messages.

    Args:
        address: the topic.
        config: settings of librdkafka; they travel in the pickled stage to the workers.
        format_: "json" or "arrow".
    """

    def __init__(self, address: KafkaAddress, config: KafkaConfig | None = None, format_: str = "json") -> None:
        super().__init__()
        require_kafka()
        self._send = _Send(address, config or KafkaConfig(), format_)

    def expand(self, estimates: beam.PCollection[pa.RecordBatch]) -> beam.PCollection[int]:
        return estimates | "Send" >> beam.ParDo(self._send).with_output_types(int)


class _Send(beam.DoFn):
    def __init__(self, address: KafkaAddress, config: KafkaConfig, format_: str) -> None:
        self._address, self._config, self._format = address, config, format_

    def setup(self) -> None:
        self._sender = Sender(self._address, self._config)

    def process(self, element: pa.RecordBatch) -> Iterator[int]:
        messages = 0
        for key, value, headers in result_messages(element, self._format):
            self._sender.send(value, key=key, headers=headers)
            messages += 1
        yield messages

    def finish_bundle(self) -> None:
        self._sender.flush()
