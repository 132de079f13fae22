"""`ldp-beam stream`: attached to the command line by `cli`."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import click

from ..errors import InputError
from ..schemas.event_windows import Windows, parse_duration
from ..schemas.kafka_config import KafkaAddress, KafkaConfig, is_kafka
from ..schemas.manifest import Randomness
from ..schemas.records import Columns
from ..transforms.collection import Collection
from ..transforms.event_clock import Pace
from ..transforms.kafka_results import TOPIC_FORMATS
from ..transforms.memo import Memo
from ..transforms.slice_records import Clients
from ..transforms.table_files import FORMATS
from .ledger import EVERYBODY
from .randomness_options import choose_secret
from .running import Engine
from .show import Screen
from .stream import StreamRun, stream
from .stream_charging import LedgerCharge
from .stream_sinks import TopicSink
from .stream_sources import open_source
from .stream_status import StatusLine

__all__ = ["run_stream", "stream_options"]

_CLIENT_OPTIONS = ("secret_file", "seed", "period", "ledger", "population", "memoise", "memoise_states")


def stream_options(function: Any) -> Any:
    """Add the options that only `stream` has."""
    for option in (
        click.option("--workers", type=click.IntRange(1), default=1, show_default=True, help="Tasks at a time."),
        click.option("--job-server-jar", metavar="FILE", help="A ready-made job server of Flink."),
        click.option("--engine", default="prism", show_default=True, metavar="NAME", help="prism, flink."),
        click.option("--format", "format_", default="parquet", show_default=True, metavar="|".join(FORMATS)),
        click.option("--output", required=True, multiple=True, metavar="DIR", help="Folder; also kafka://… beside it."),
        click.option("--status/--no-status", default=True, help="Tell of the latest window while it runs."),
        click.option("--disorder", default="0s", show_default=True, metavar="TIME", help="Of slices in a partition."),
        click.option(
            "--arrival-delay", default="5s", show_default=True, metavar="TIME", help="Until a slice has all arrived."
        ),
        click.option("--drain", is_flag=True, help="End when the source has been read to its end; for replays."),
        click.option(
            "--topic-format",
            type=click.Choice(list(TOPIC_FORMATS)),
            default="json",
            show_default=True,
            help="Of results in a topic.",
        ),
        click.option("--kafka-config", metavar="FILE", help="Settings of librdkafka: TLS, SASL."),
        click.option("--early", metavar="TIME", help="Publish open windows this often, too."),
        click.option(
            "--allowed-lateness", metavar="TIME", required=True, help="How long a window takes late reports; 0s: none."
        ),
        click.option("--slide", metavar="TIME", help="Sliding windows: from one start to the next; users' slices."),
        click.option("--window", metavar="TIME", required=True, help="Length of a window: 30s, 10m, 1h, 7d."),
        click.option("--records", "from_records", is_flag=True, help="The source holds raw records: simulate clients."),
        click.option(
            "--source",
            required=True,
            metavar="DIR|kafka://…",
            help="Reports; with --records raw records, also simulate:…",
        ),
    ):
        function = option(function)
    return function


def run_stream(options: dict[str, Any], engine: Engine, columns: Columns) -> None:
    """Run the verb."""
    screen = Screen(quiet=options["as_json"])
    folder, topic = _outputs(options["output"])
    if options["format_"] not in FORMATS:
        raise InputError(f"--format {options['format_']}: it must be one of {', '.join(FORMATS)}.")
    collection = Collection.load(options["definition"])
    windows = _windows(options)
    early = None if options["early"] is None else parse_duration(options["early"], "--early")
    clients, randomness = _clients(options, collection, columns, screen)
    source = open_source(
        options["source"],
        collection,
        _pace(options, windows),
        columns=None if clients is None else clients.columns,
        kafka_config=options["kafka_config"],
        drain=options["drain"],
        engine=engine.target().engine,
    )
    sink = None
    if topic is not None:
        sink = TopicSink(KafkaAddress.parse(topic), KafkaConfig.given(options["kafka_config"]), options["topic_format"])
    job = StreamRun(
        collection=collection,
        source=source,
        windows=windows,
        early=early,
        engine=engine,
        clients=clients,
        randomness=randomness,
        format_=options["format_"],
        sink=sink,
        overwrite=options["overwrite"],
    )
    with StatusLine(quiet=options["as_json"] or not options["status"]) as status:
        manifest = stream(job, folder, follow=[status])
    for warning in manifest["warnings"]:
        screen.warn(warning)
    if options["as_json"]:
        click.echo(json.dumps(manifest, ensure_ascii=False, allow_nan=False))
    state, done = manifest["stream"]["state"], manifest["stream"]["windows"]
    screen.say(f"The stream {'ended' if state == 'ended' else 'was stopped'}; {done:,} windows are in {folder}.")


def _outputs(given: tuple[str, ...]) -> tuple[str, str | None]:
    folders = [text for text in given if not is_kafka(text)]
    topics = [text for text in given if is_kafka(text)]
    if len(folders) != 1 or len(topics) > 1:
        raise InputError(
            "Give one --output DIR, and beside it one --output kafka://HOST:PORT/TOPIC if results are to go there too: "
            "the folder is what knows which results have been published."
        )
    return folders[0], topics[0] if topics else None


def _windows(options: dict[str, Any]) -> Windows:
    size = parse_duration(options["window"], "--window")
    slide = size if options["slide"] is None else parse_duration(options["slide"], "--slide")
    lateness = parse_duration(options["allowed_lateness"], "--allowed-lateness", zero=True)
    return Windows(size=size, slide=slide, lateness=lateness)


def _pace(options: dict[str, Any], windows: Windows) -> Pace:
    return Pace(
        slice_seconds=0 if options["from_records"] else windows.slice,
        grid=windows.grid,
        disorder=float(parse_duration(options["disorder"], "--disorder", zero=True)),
        arrival_delay=None
        if options["drain"]
        else float(parse_duration(options["arrival_delay"], "--arrival-delay", zero=True)),
    )


def _clients(
    options: dict[str, Any], collection: Collection, columns: Columns, screen: Screen
) -> tuple[Clients | None, Randomness | None]:
    if not options["from_records"]:
        given = [name for name in _CLIENT_OPTIONS if options[name] is not None]
        if given:
            raise InputError(
                f"--{given[0].replace('_', '-')} belongs to clients, and this source holds reports, which clients have "
                "made already: the server spends nothing. Leave it out, or give --records with a source of raw records."
            )
        return None, None
    secret, randomness = choose_secret(
        secret_file=options["secret_file"], seed=options["seed"], period=options["period"]
    )
    if not randomness.private:
        screen.warn("--seed makes the run repeatable and NOT PRIVATE: whoever knows the number can undo it.")
    if options["population"] is not None and options["ledger"] is None:
        raise InputError("--population names whom a ledger charges; give --ledger FILE as well.")
    memo = _memo(options, collection, randomness)
    charge = None
    if options["ledger"] is not None:
        charge = LedgerCharge(
            path=str(Path(options["ledger"]).absolute()),
            collection=collection.definition.name,
            fingerprint=collection.fingerprint,
            mechanism=collection.definition.mechanism,
            epsilon=collection.mechanism.epsilon,
            secret_id=randomness.secret_id or "",
            population=options["population"] or EVERYBODY,
            memo=memo,
        )
    clients = Clients(
        secret=secret,
        period=randomness.period,
        columns=columns,
        memo=memo,
        charge=charge,
        shards=1 if charge is not None else options["workers"],
    )
    return clients, randomness


def _memo(options: dict[str, Any], collection: Collection, randomness: Randomness) -> Memo | None:
    path, states = options["memoise"], options["memoise_states"]
    if path is None and states is None:
        return None
    if path is None or states is None:
        raise InputError("--memoise FILE and --memoise-states N belong together; see `ldp-beam collect --help`.")
    if randomness.source != "secret file":
        raise InputError("--memoise needs --secret-file: only the same secret repeats a report in a later slice.")
    memo = Memo(path=str(Path(path).absolute()), cap=states)
    memo.open(fingerprint=collection.fingerprint, secret_id=randomness.secret_id or "")
    return memo
