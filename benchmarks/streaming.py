"""How many reports a second a stream takes, and how long after its end a window is published.

    python -m benchmarks.streaming [--engines prism,flink] [--cases 0,1,2,3] [--smoke] [--json FILE]

Reports lie in a topic of Kafka with two partitions, thousands in a message, over slices of a second and windows of ten.
*Sustained rate*: the topic is read to its end (`--drain`) with a small and a large number of reports; the rate is the
difference of the numbers through the difference of the seconds, so that start-up is left out. *Delay*: somebody sends
half that rate live, each slice's messages when the slice is over, or half of what one core takes where that is less (a
difference of few seconds may flatter the rate, and the sender wants a core, too); a window's delay is from its end to
the moment at which its result is in its folder. Until the first window is published a single message a slice comes, so
that start-up leaves no backlog; then comes the load, and the windows of it are measured, less those of its first
seconds. Of reports with ids every tenth message is delivered twice then. *One core without an engine*: what decoding,
checking and counting messages take alone, and what the gate does, which is one task however many workers there are:
take batches out of the engine's bytes and count them, or cut them into shards where reports carry ids. The smoke run
measures only this, unless `--engines` names some: then also tiny topics on those.

Broker, sender and engine share the machine's two cores.
"""

from __future__ import annotations

import json
import math
import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
from ldp_beam.mechanisms import Secret, make_records
from ldp_beam.schemas.event_time import parse_time, time_text
from ldp_beam.schemas.messages import decode_message, packed_headers, packed_message
from ldp_beam.schemas.reports import REPORT_ID, REPORT_ID_BYTES, FileHeader
from ldp_beam.transforms.batches import ArrowBatchCoder, batch_to_reports, reports_to_batch
from ldp_beam.transforms.collection import Collection
from ldp_beam.transforms.count_once import Rows, by_shard, shard_bounds, shard_rows

from benchmarks import harness

IN_MESSAGE = 8192
WINDOW, SLICES = 10, 10
PARTITIONS = 2
MEASURED, SETTLING_SECONDS = 3, 10
START_SECONDS, END_SECONDS = 180, 60  # at most until the first window is published, and the last one
REPEATED = 10  # of reports with ids each tenth message is delivered twice
SMOKE_MILLIONS = (0.05, 0.1)
DEFINITION = """
name      = "{name}"
mechanism = "{mechanism}"
epsilon   = 1
padding   = 1
{more}
[keys]
count = 100
[values]
range = [-1, 1]
"""


@dataclass(frozen=True)
class Case:
    """A collection, and how many reports the two runs of its rate take, in millions."""

    name: str
    mechanism: str
    ids: bool
    small: float
    large: float


CASES = (
    Case("pckv-grr", "pckv-grr", False, 4, 64),
    Case("pckv-ue", "pckv-ue", False, 1, 8),
    Case("pckv-grr, each id once", "pckv-grr", True, 0.5, 8),
    Case("pckv-ue, each id once", "pckv-ue", True, 0.5, 4),
)


@dataclass(frozen=True)
class Effort:
    """How much is measured.

    Attributes:
        windows: how many are measured.
        settling: seconds of the load before the first of them begins.
        tiny: a smoke run.
    """

    windows: int = MEASURED
    settling: int = SETTLING_SECONDS
    tiny: bool = False

    def millions(self, case: Case) -> tuple[float, float]:
        """Return the reports of the two runs of a case's rate."""
        return SMOKE_MILLIONS if self.tiny else (case.small, case.large)

    def load(self, sustained: float) -> float:
        """Return the rate at which reports are sent live."""
        return float(IN_MESSAGE) if self.tiny else sustained / 2


class Messages:
    """Messages of a case: valid reports; ids, where there are any, are new in each message."""

    def __init__(self, case: Case, folder: Path) -> None:
        self.definition = folder / f"{case.name.replace(', ', '-').replace(' ', '-')}.toml"
        more = "report_ids = true" if case.ids else ""
        text = DEFINITION.format(name=case.mechanism, mechanism=case.mechanism, more=more)
        self.definition.write_text(text, encoding="utf-8")
        self.collection = Collection.load(self.definition)
        self.ids, self._random = case.ids, np.random.default_rng(1)
        secret = Secret.from_seed(1)
        people = [{i % 100: (i % 9 - 4) / 4} for i in range(IN_MESSAGE)]
        records = make_records(secret.users(), list(range(IN_MESSAGE)), people)
        stream = secret.stream(fingerprint=self.collection.fingerprint, period="", round=0)
        reports = self.collection.mechanism.perturb(records, stream)
        schema = self.collection.report_schema()
        plain = pa.schema([field for field in schema if field.name != REPORT_ID])
        self._plain, self._schema = reports_to_batch(reports, plain), schema
        self._same = packed_message(self._plain)

    def value(self) -> bytes:
        """Return the value of one message."""
        if not self.ids:
            return self._same
        raw = self._random.bytes(IN_MESSAGE * REPORT_ID_BYTES)
        ids = pa.Array.from_buffers(pa.binary(REPORT_ID_BYTES), IN_MESSAGE, [None, pa.py_buffer(raw)])
        batch = pa.RecordBatch.from_arrays([*self._plain.columns, ids], schema=self._schema)
        return packed_message(batch)

    def headers(self, start: int) -> list[tuple[str, bytes]]:
        """Return the headers of messages of the slice that starts at a second."""
        header: FileHeader = self.collection.header(
            "reports", private=False, window_start=time_text(start), window_seconds=WINDOW // SLICES
        )
        return packed_headers(header)


class Topic:
    """A topic of a broker, and what writes into it."""

    def __init__(self, address: str, name: str) -> None:
        from confluent_kafka import Producer
        from confluent_kafka.admin import AdminClient, NewTopic

        admin = AdminClient({"bootstrap.servers": address})
        for future in admin.create_topics([NewTopic(name, PARTITIONS, 1)]).values():
            future.result()
        self.source, self._name = f"kafka://{address}/{name}", name
        self._producer = Producer(
            {"bootstrap.servers": address, "linger.ms": 5, "queue.buffering.max.messages": 500_000}
        )
        self._sent = 0

    def send(self, value: bytes, headers: list[tuple[str, bytes]]) -> None:
        """Send a message; partitions take turns."""
        while True:
            try:
                self._producer.produce(self._name, value, headers=headers, partition=self._sent % PARTITIONS)
            except BufferError:
                self._producer.poll(0.1)
            else:
                self._sent += 1
                self._producer.poll(0)
                return

    def flush(self) -> None:
        """Wait until everything is there."""
        self._producer.flush()


def command(messages: Messages, topic: Topic, output: Path, engine: str, *more: str) -> list[str]:
    """Return the command line of a stream."""
    return [
        *(sys.executable, "-m", "ldp_beam.pipelines", "stream", "--collection", str(messages.definition)),
        *("--source", topic.source, "--window", f"{WINDOW}s", "--slide", f"{WINDOW}s", "--allowed-lateness", "0s"),
        *("--engine", engine, "--workers", "2", "--output", str(output), "--no-status", "--json", *more),
    ]


# -- sustained rate -----------------------------------------------------------------------------------------


def filled(topic: Topic, messages: Messages, reports: int) -> int:
    """Fill a topic with whole windows of the past; return how many reports there are."""
    begin = (int(time.time()) // WINDOW - 60) * WINDOW
    count = max(SLICES, round(reports / IN_MESSAGE))
    headers = [messages.headers(begin + number) for number in range(SLICES)]
    for number in range(count):
        topic.send(messages.value(), headers[number * SLICES // count])
    topic.flush()
    return count * IN_MESSAGE


def drained(broker: Any, messages: Messages, engine: str, folder: Path, name: str, reports: int) -> dict[str, Any]:
    """Read a topic to its end; return what that took."""
    topic = Topic(broker.address, name)
    sent = filled(topic, messages, reports)
    output = folder / name
    seconds, processor, _ = harness.run_measured(command(messages, topic, output, engine, "--drain"))
    told = json.loads((output / "manifest.json").read_text(encoding="utf-8"))
    if told["reports"]["counted_in_windows"] != sent:
        raise SystemExit(f"{sent} reports were sent and {told['reports']} is what became of them")
    return {"reports": sent, "seconds": round(seconds, 2), "processor_seconds": round(processor, 2)}


def sustained(broker: Any, case: Case, messages: Messages, engine: str, folder: Path, effort: Effort) -> dict[str, Any]:
    """Measure the rate of a case."""
    label = f"{engine}-{CASES.index(case)}"
    small, large = (
        drained(broker, messages, engine, folder, f"{label}-{size}", int(millions * 1e6))
        for size, millions in zip(("small", "large"), effort.millions(case), strict=True)
    )
    more = large["reports"] - small["reports"]
    rate = more / max(large["seconds"] - small["seconds"], 1e-9)
    processor = max(large["processor_seconds"] - small["processor_seconds"], 1e-9)
    return {
        "reports_per_second": round(rate),
        "reports_per_processor_second": round(more / processor),
        "small": small,
        "large": large,
    }


# -- delay ----------------------------------------------------------------------------------------------------


def live(topic: Topic, messages: Messages, rate: float, until: Callable[[int], bool]) -> list[float]:
    """Send until a time that `until` knows, each slice when it is over; return how late each was sent, in seconds."""
    in_slice, start, late = max(1, round(rate / IN_MESSAGE)), int(time.time()) + 1, []
    while not until(start):
        values = [messages.value() for _ in range(in_slice)]
        if messages.ids:
            values += values[::REPEATED]
        headers = messages.headers(start)
        time.sleep(max(0.0, start + 1 - time.time()))
        for value in values:
            topic.send(value, headers)
        topic.flush()
        late.append(time.time() - start - 1)
        start += 1
    return late


def delays(output: Path, begin: float, end: float = math.inf) -> list[float]:
    """Return the seconds from end to result of the windows between two moments."""
    found = []
    for path in sorted(output.glob("windows/*/pane-*/manifest.json")):
        window = json.loads(path.read_text(encoding="utf-8"))["window"]
        if window["is_final"] and parse_time(window["start"]) >= begin and parse_time(window["end"]) <= end:
            found.append(path.parent.stat().st_mtime - parse_time(window["end"]))
    return found


def delayed(
    broker: Any, case: Case, messages: Messages, engine: str, folder: Path, rate: float, effort: Effort
) -> dict[str, Any]:
    """Measure the delay of a case at a load."""
    label = f"{engine}-{CASES.index(case)}-live"
    topic, output = Topic(broker.address, label), folder / label
    process = subprocess.Popen(command(messages, topic, output, engine), stdout=subprocess.DEVNULL)
    try:
        latest = time.time() + START_SECONDS
        live(topic, messages, 0, lambda now: now > latest or bool(delays(output, 0)))
        begin = -(-int(time.time() + effort.settling) // WINDOW) * WINDOW
        end = begin + effort.windows * WINDOW

        def is_over(now: int) -> bool:
            return now > end and (now > end + END_SECONDS or len(delays(output, begin, end)) == effort.windows)

        late = live(topic, messages, rate, is_over)
    finally:
        process.send_signal(signal.SIGTERM)
        process.wait(timeout=120)
    seconds = delays(output, begin, end)
    return {
        "load": max(1, round(rate / IN_MESSAGE)) * IN_MESSAGE,
        "windows": len(seconds),
        "seconds": [round(one, 2) for one in seconds],
        "largest": round(max(seconds), 2) if seconds else None,
        "sent_late_at_most": round(max(late), 2),
    }


# -- without an engine ------------------------------------------------------------------------------------------


def on_one_core(case: Case, messages: Messages, repeats: int) -> dict[str, Any]:
    """Time decoding, checking and counting messages, one after the other, in this process."""
    mechanism, schema = messages.collection.mechanism, messages.collection.report_schema()
    value, headers = messages.value(), messages.headers(0)
    spent = dict.fromkeys(("decode", "check", "count"), 0.0)
    counts, coder, at_gate = None, ArrowBatchCoder(), 0.0
    for _ in range(repeats):
        start = time.process_time()
        batch = decode_message(value, headers, expected=schema, fingerprint=messages.collection.fingerprint).batch
        decoded = time.process_time()
        reports = batch_to_reports(batch, mechanism.layout())
        if not mechanism.valid(reports).all():
            raise SystemExit(f"{case.name}: valid reports are refused")
        passed = by_shard(batch) if case.ids else batch
        checked = time.process_time()
        counts = mechanism.count(reports, into=counts)
        counted = time.process_time()
        sent = coder.encode(passed)
        arrives = time.process_time()
        taken = coder.decode(sent)
        if case.ids:  # the reports go on, cut into shards of their window
            list(shard_rows([taken], [shard_bounds(taken)], Rows(time=0, n=0, columns={})))
        else:
            mechanism.count(batch_to_reports(taken, mechanism.layout()))
        at_gate += time.process_time() - arrives
        for name, seconds in zip(spent, (decoded - start, checked - decoded, counted - checked), strict=True):
            spent[name] += seconds
    done = repeats * IN_MESSAGE
    rates = {name: round(done / seconds) for name, seconds in spent.items()}
    return {"reports_per_second": round(done / sum(spent.values())), **rates, "gate": round(done / at_gate)}


def main(argv: Sequence[str] | None = None) -> int:
    """Measure, print and write the results."""
    parser = harness.options(__doc__)
    parser.add_argument(
        "--engines", help="prism, flink, separated by commas; or none. By default both, and none in a smoke run"
    )
    parser.add_argument("--cases", help="numbers of cases, from 0, separated by commas; all by default")
    given = parser.parse_args(argv)
    chosen = [CASES[int(number)] for number in given.cases.split(",")] if given.cases else list(CASES)
    results: dict[str, Any] = {"reports_in_a_message": IN_MESSAGE, "window_seconds": WINDOW, "cases": {}}
    before: dict[str, Any] = {}
    if given.json is not None and given.json.exists() and not given.smoke:
        before = json.loads(given.json.read_text(encoding="utf-8"))["cases"]
    with tempfile.TemporaryDirectory(prefix="ldp-beam-bench-") as temporary:
        folder = Path(temporary)
        made = {case.name: Messages(case, folder) for case in chosen}
        for case in chosen:
            alone = on_one_core(case, made[case.name], 2 if given.smoke else 200)
            results["cases"][case.name] = {"one core without an engine": alone}
            print(f"{case.name}, one core without an engine: {alone['reports_per_second']:,} reports a second")
        engines = given.engines or ("none" if given.smoke else "prism,flink")
        if engines != "none":
            effort = Effort(windows=1, settling=0, tiny=True) if given.smoke else Effort()
            for _ in _on_engines(chosen, made, engines.split(","), folder, results["cases"], effort):
                harness.write(given.json, results | {"cases": _joined(before, results["cases"])})
    harness.write(given.json, results | {"cases": _joined(before, results["cases"])})
    return 0


def _joined(before: dict[str, Any], cases: dict[str, Any]) -> dict[str, Any]:
    """Keep what was measured before and is not measured now."""
    names = [case.name for case in CASES if case.name in before or case.name in cases]
    return {name: before.get(name, {}) | cases.get(name, {}) for name in names}


def _on_engines(
    chosen: Sequence[Case],
    made: dict[str, Messages],
    engines: Sequence[str],
    folder: Path,
    results: dict[str, Any],
    effort: Effort,
) -> Iterator[None]:
    """Add results; stop after each of them, for what calls to keep them."""
    from ldp_beam.engines import KafkaBroker, free_port

    with KafkaBroker(folder / "broker", port=free_port()) as broker:
        for engine in engines:
            for case in chosen:
                began = time.monotonic()
                rate = sustained(broker, case, made[case.name], engine, folder, effort)
                print(f"{case.name}, {engine}: {rate['reports_per_second']:,} reports a second", flush=True)
                load = effort.load(min(rate["reports_per_second"], rate["reports_per_processor_second"]))
                delay = delayed(broker, case, made[case.name], engine, folder, load, effort)
                busy = {"load_avg_1min": round(os.getloadavg()[0], 2)}
                results[case.name][engine] = {"sustained": rate, "delay": delay, "machine": busy}
                print(
                    f"{case.name}, {engine}: at {delay['load']:,} a second a result {delay['largest']} s after the end "
                    f"of its window; all of it took {time.monotonic() - began:.0f} s",
                    flush=True,
                )
                yield


if __name__ == "__main__":
    sys.exit(main())
