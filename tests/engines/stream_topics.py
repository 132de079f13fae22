"""What tests of streams over a topic share: clients that know what they sent, the verb, and what it published."""

import contextlib
import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pyarrow as pa
from ldp_beam.schemas.event_time import time_text
from ldp_beam.schemas.messages import arrow_message, packed_headers, packed_message
from ldp_beam.transforms.collection import Collection
from ldp_beam.transforms.kafka_client import Sender

START = 1_700_000_000  # long past, and a multiple of 10
WINDOW = 10


class Clients:
    """Sends reports of slices; knows what it has sent."""

    def __init__(self, definition, topic, window=WINDOW):
        self.collection, self.window = Collection.load(definition), window
        self._topic, self.sender, self.sent = topic, Sender(topic), {}

    def report(self, start, n, *, partition=0, packed=False, times=1):
        """Send `n` reports of a slice, `times` times over."""
        header = self.collection.header("reports", window_start=time_text(start), window_seconds=self.window)
        schema = self.collection.report_schema()
        first = sum(self.sent.values())
        columns = [pa.array(np.arange(n) % 3, pa.int32()), pa.array(np.ones(n), pa.int8())]
        if self.collection.definition.report_ids:
            columns.append(pa.array([(first + i).to_bytes(16, "big") for i in range(n)], pa.binary(16)))
        batch = pa.RecordBatch.from_arrays(columns, schema=schema)
        for _ in range(times):
            if packed:
                self.sender.send(packed_message(batch), headers=packed_headers(header), partition=partition)
            else:
                self.sender.send(arrow_message(batch, header), partition=partition)
        self.sent[time_text(start)] = self.sent.get(time_text(start), 0) + n

    def done(self):
        self.sender.flush()
        return self.sent


def arguments(definition, topic, output, *more, window=f"{WINDOW}s", lateness="1h"):
    return [
        *("stream", "--collection", definition, "--source", topic, "--window", window),
        *("--allowed-lateness", lateness, "--output", output, *more),
    ]


def counted(output):
    """{start of a window: reports in its last pane}."""
    found = {}
    for window in sorted(Path(output, "windows").glob("*--*")):
        for pane in sorted(window.glob("pane-*/manifest.json")):
            about = json.loads(pane.read_text())["window"]
            found[about["start"]] = about["n"]
    return found


def content(output):
    """What the last panes say, byte by byte."""
    panes = [sorted(window.glob("pane-*"))[-1] for window in Path(output, "windows").glob("*--*")]
    return {(pane.parent.name, file.name): file.read_bytes() for pane in panes for file in pane.glob("*.parquet")}


@contextlib.contextmanager
def running(scratch, *given):
    """Run the verb in a process of its own; nothing that it started stays."""
    scratch.mkdir()
    process = subprocess.Popen(
        [sys.executable, "-m", "ldp_beam.pipelines", *map(str, given), "--json"],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env={**os.environ, "TMPDIR": str(scratch)},
        # A shell lets what it starts in the background ignore interrupts, and that would be inherited here.
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),
    )
    try:
        yield process
    finally:
        process.kill()
        process.communicate()
        left = subprocess.run(["pgrep", "-f", str(scratch)], capture_output=True, text=True, check=False)
        for pid in left.stdout.split():
            with contextlib.suppress(ProcessLookupError):
                os.kill(int(pid), signal.SIGKILL)


def eventually(true, process, seconds=400):
    deadline = time.monotonic() + seconds
    while not true():
        assert process.poll() is None, process.communicate()[1]
        assert time.monotonic() < deadline
        time.sleep(0.2)
