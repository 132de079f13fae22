"""The command line: `ldp-beam VERB …`. Turns options into calls, and errors into exit codes; does nothing else.

Exit codes: 0 done, 1 the run failed, 2 wrong usage or input. With `--json` one object goes to standard output
and nothing else does; everything for people goes to standard error.
"""

from __future__ import annotations

import json
import logging
import sys
import time
import traceback
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, TypeVar

from . import quiet  # isort: skip  # noqa: F401, RUF100 - before anything that imports Beam

import click

from ..errors import InputError, LdpBeamError, did_you_mean
from ..mechanisms import MECHANISMS
from ..mechanisms.populations import POPULATIONS, Population
from ..schemas.event_time import parse_time
from ..schemas.event_windows import parse_duration
from ..schemas.kafka_config import KafkaAddress, KafkaConfig, is_kafka
from ..schemas.records import Columns
from ..transforms.collection import Collection
from ..transforms.generate_stream import TimedPeople
from ..transforms.generated import Generated
from ..transforms.table_files import FORMATS
from .aggregate import aggregate as run_aggregate
from .aggregate_period import aggregate_store
from .beam_options import parse_beam_options, tell_file_systems
from .cli_audit import audit
from .cli_compare import compare
from .cli_engine import doctor, engine
from .cli_ledger import ledger, ledger_arguments, ledger_options
from .cli_plan import plan
from .cli_report import report
from .cli_store import GAPS_EXIT_CODE, beyond_gaps, store_line, store_options, store_run
from .cli_stream import run_stream, stream_options
from .client import RecordSource
from .collect import ClientRun
from .collect import collect as run_collect
from .collect import perturb as run_perturb
from .evaluate import as_rows
from .evaluate import evaluate as run_evaluate
from .evaluate_plot import plot_evaluation
from .heap import share_heap
from .perturb_topic import in_window, perturb_to_topic
from .plot_file import check_plot_file
from .randomness_options import choose_secret, new_secret_file, read_secret_file
from .running import Engine, engine_session
from .show import Screen
from .simulate import Beside
from .simulate import simulate as run_simulate
from .simulate_topic import simulate_to_topic

__all__ = ["main"]

F = TypeVar("F", bound=Callable[..., Any])

_BEAM_ARGUMENTS = "ldp_beam.beam_arguments"


class _BeamCommand(click.Command):
    """Passes options of Beam through, and stops at an option that nobody knows before it misses another."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.context_settings = {"ignore_unknown_options": True, "allow_extra_args": True}

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """Check what is left over first, since a misspelled option is also a missing one."""
        _, rest, _ = self.make_parser(ctx).parse_args(args=list(args))
        ours = [name for parameter in self.get_params(ctx) for name in parameter.opts]
        ctx.meta[_BEAM_ARGUMENTS] = parse_beam_options(rest, ours)
        return super().parse_args(ctx, args)


class _Verbs(click.Group):
    """Suggests the nearest verb where an unknown one is given."""

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        name = args[0]
        if not name.startswith("-") and name not in self.commands:
            raise InputError(f"Unknown verb {name!r}. {did_you_mean(name, self.commands)}")
        return super().resolve_command(ctx, args)


@click.group(cls=_Verbs, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(package_name="ldp-beam")
def cli() -> None:
    r"""Key-value statistics under local differential privacy, as Apache Beam pipelines.

    \b
    Example:
      ldp-beam simulate --population uniform --users 100000 --keys 20 --seed 1 \
          --output records.parquet --collection-to c.toml
      ldp-beam collect --collection c.toml --input records.parquet --output result
    """


# -- options that several verbs share ---------------------------------------------------------------------


def _options(*decorators: Callable[[F], F]) -> Callable[[F], F]:
    def apply(function: F) -> F:
        for decorator in reversed(decorators):
            function = decorator(function)
        return function

    return apply


_collection = click.option(
    "--collection", "definition", required=True, metavar="FILE.toml", help="Collection definition."
)
_input = click.option(
    "--input",
    "patterns",
    required=True,
    multiple=True,
    metavar="GLOB…",
    help="Files, globs, folders; several.",
)
_further_input = click.option(
    "--input", "patterns", multiple=True, metavar="GLOB…", help="Files, globs, folders; with --counts-store optional."
)
_output = click.option("--output", required=True, metavar="DIR", help="Folder for the result; must not exist.")
_json = click.option("--json", "as_json", is_flag=True, help="Print one JSON object on standard output.")
_overwrite = click.option("--overwrite", is_flag=True, help="Replace an earlier result.")
_traceback = click.option("--traceback", "with_traceback", is_flag=True, help="On an error, show where it arose.")
_engine = _options(
    click.option("--engine", default="direct", show_default=True, metavar="NAME", help="direct, prism, flink, spark."),
    click.option("--job-server-jar", metavar="FILE", help="A ready-made job server of Flink or Spark."),
    click.option(
        "--workers", type=click.IntRange(1), default=1, show_default=True, help="Threads, or tasks at a time."
    ),
)
_columns = _options(
    click.option("--user-column", default="user_id", show_default=True, help="Column of user ids."),
    click.option("--key-column", default="key", show_default=True, help="Column or item field of keys."),
    click.option("--tag-column", default="tag", show_default=True, help="Column or item field of tags (pum)."),
    click.option("--value-column", default="value", show_default=True, help="Column or item field of values."),
    click.option("--items-column", default="items", show_default=True, help="Column of lists (nested layout)."),
    click.option(
        "--time-column", default="timestamp", show_default=True, help='Column of times (duplicates="latest").'
    ),
)
_secret = _options(
    click.option("--secret-file", metavar="FILE", help="Secret made by `ldp-beam secret new`; needs --period."),
    click.option("--period", metavar="TEXT", help="Name of this period; another one gives fresh reports."),
    click.option("--seed", type=int, help="Derive the secret from a number: for tests, NOT PRIVATE."),
)
_sensitive_table = click.option(
    "--sensitive-table", metavar="FILE", help="user_id, key, tag: what is sensitive to whom (pum)."
)
_server_secret = click.option(
    "--server-secret-file", metavar="FILE", help="Secret of the server's draws between rounds (privkvm)."
)
_round = _options(
    click.option("--round", "round_", type=int, metavar="R", help="The open round (privkvm, padding auto)."),
    click.option("--state", metavar="DIR", help="Folder that all rounds share (privkvm, padding auto)."),
)
_max_rejects = click.option(
    "--max-rejects", type=float, default=1.0, show_default=True, metavar="SHARE", help="Stop beyond this share."
)
_kafka_config = click.option("--kafka-config", metavar="FILE", help="Settings of librdkafka: TLS, SASL.")
_slice = _options(
    click.option("--window-start", metavar="TIME", help="The reports belong to the slice of time that starts then."),
    click.option("--window", metavar="TIME", help="Length of that slice: 10m, 1h, 1d."),
    _kafka_config,
)
_records = _options(
    _sensitive_table,
    click.option("--strict", is_flag=True, help="Refuse a file at its first invalid pair."),
    click.option("--merge-users", is_flag=True, help="Merge several nested rows of one user."),
    click.option("--rejects", metavar="DIR", help="Keep rejected rows there (raw data)."),
    _max_rejects,
)


# -- verbs ------------------------------------------------------------------------------------------------


@cli.command(cls=_BeamCommand)
@_collection
@_input
@_output
@click.option("--format", "format_", default="parquet", show_default=True, metavar="|".join(FORMATS))
@click.option("--keep-reports", metavar="DIR", help="Keep the reports there.")
@_server_secret
@click.option("--state", metavar="DIR", help="Keep the state there between rounds, to go on if stopped (privkvm).")
@_secret
@_records
@_columns
@_engine
@_overwrite
@ledger_options
@_json
@_traceback
@click.pass_context
def collect(ctx: click.Context, /, **options: Any) -> None:
    r"""Records → reports → counts → estimates, in one job.

    Any other option of Beam passes through.

    \b
    Example:
      ldp-beam collect --collection gss.toml --input 'gss/*.parquet' --output result
    """
    screen = Screen(quiet=options["as_json"])
    run = _client_run(ctx, options, screen)
    _require_format(options["format_"], FORMATS)
    server_secret = options["server_secret_file"]
    with screen.progress():
        manifest = run_collect(
            run,
            options["output"],
            format_=options["format_"],
            keep_reports=options["keep_reports"],
            server=None if server_secret is None else read_secret_file(Path(server_secret)),
            state_folder=options["state"],
        ).as_json()
    if options["as_json"]:
        _print_json(manifest)
    screen.result(options["output"], manifest)


@cli.command(cls=_BeamCommand)
@_collection
@_input
@_output
@click.option("--format", "format_", default="parquet", show_default=True, metavar="parquet|avro")
@_secret
@_records
@_columns
@_engine
@_overwrite
@ledger_options
@_round
@_slice
@_json
@_traceback
@click.pass_context
def perturb(ctx: click.Context, /, **options: Any) -> None:
    r"""The client half: records → reports.

    With --window-start and --window the reports belong to a slice of time, for a server that runs `ldp-beam stream`.

    \b
    Example:
      ldp-beam secret new secret.hex
      ldp-beam perturb --collection gss.toml --input 'gss/*.parquet' --output reports \
          --secret-file secret.hex --period 2026-11
    """
    screen = Screen(quiet=options["as_json"])
    run = in_window(_client_run(ctx, options, screen), options["window_start"], options["window"])
    if is_kafka(options["output"]):
        _perturb_to_topic(run, options, screen)
        return
    with screen.progress():
        manifest = run_perturb(
            run,
            options["output"],
            format_=options["format_"],
            round_=options["round_"],
            state_folder=options["state"],
        ).as_json()
    if options["as_json"]:
        _print_json(manifest)
    screen.reports(options["output"], manifest)


@cli.command(cls=_BeamCommand)
@_collection
@_further_input
@_output
@click.option("--format", "format_", default="parquet", show_default=True, metavar="|".join(FORMATS))
@_engine
@_overwrite
@store_options
@_max_rejects
@_round
@_server_secret
@click.option("--period", metavar="TEXT", help="Count reports of this period only.")
@click.option("--joint-em", is_flag=True, help="Frequencies by EM over the reports themselves (one symbol a user).")
@click.option("--detect-poisoning", is_flag=True, help="Warn of reports that no honest crowd sends (unary reports).")
@_json
@_traceback
@click.pass_context
def aggregate(ctx: click.Context, /, **options: Any) -> None:
    r"""The server half: reports, or stored counts → counts → estimates.

    With --counts-store the counts of each day are kept, and estimates of any period come from adding them.

    \b
    Example:
      ldp-beam aggregate --collection gss.toml --input 'reports/*.parquet' --output result
      ldp-beam aggregate --collection gss.toml --input 'reports/*.parquet' --counts-store store --output result
    """
    screen, store = Screen(quiet=options["as_json"]), store_run(options)
    engine, definition = _engine_of(ctx, options), options["definition"]
    _require_format(options["format_"], FORMATS)
    _require_share(options["max_rejects"])
    common = {"format_": options["format_"], "engine": engine, "overwrite": options["overwrite"]}
    with screen.progress():
        if store is not None:
            made = aggregate_store(Collection.load(definition), store, options["output"], **common)
        else:
            made = run_aggregate(
                Collection.load(definition),
                options["patterns"],
                options["output"],
                round_=options["round_"],
                state_folder=options["state"],
                server_secret=options["server_secret_file"],
                period=options["period"],
                detect_poisoning=options["detect_poisoning"],
                joint_em=options["joint_em"],
                max_rejects=options["max_rejects"],
                **common,
            )
    manifest = made.as_json()
    for warning in manifest["warnings"]:
        screen.warn(warning)
    if options["as_json"]:
        _print_json(manifest)
    screen.result(options["output"], manifest)
    if store is not None:
        screen.say(store_line(manifest))
        if beyond_gaps(store, manifest):
            ctx.exit(GAPS_EXIT_CODE)


@cli.command(cls=_BeamCommand)
@_collection
@stream_options
@_secret
@_columns
@_overwrite
@ledger_options
@_json
@_traceback
@click.pass_context
def stream(ctx: click.Context, /, **options: Any) -> None:
    r"""Reports of an unbounded source → results for each window of time, until it is stopped.

    With --records the source holds raw records of simulated clients, who send one report a slice of time each.

    \b
    Example:
      ldp-beam stream --collection c.toml --source kafka://localhost:9092/reports \
          --window 1h --allowed-lateness 10m --output live
    """
    run_stream(options, _engine_of(ctx, options), _columns_of(options))


@cli.command()
@click.option("--population", required=True, metavar="NAME", help=", ".join(POPULATIONS))
@click.option("--users", type=click.IntRange(0), required=True, help="Number of users.")
@click.option("--keys", type=click.IntRange(1), default=100, show_default=True, help="Size of the key domain.")
@click.option("--pairs-per-user", type=click.IntRange(1), help="Pairs that each user holds.")
@click.option("--seed", type=int, default=0, show_default=True, help="Another seed gives other people.")
@click.option("--output", metavar="FILE", help=".parquet, .avro, .csv or .csv.gz")
@click.option("--to", metavar="kafka://…", help="Or a topic: records at event times, for `stream --records`.")
@_kafka_config
@click.option("--rate", type=click.FloatRange(0, min_open=True), help="Users a second (--to).")
@click.option("--start", metavar="TIME", help="Event time of the first user (--to).")
@click.option("--span", metavar="TIME", help="Event time from the first user to the last (--to).")
@click.option("--layout", type=click.Choice(["nested", "pairs"]), help="Default: nested, pairs for CSV.")
@click.option("--user-ids", type=click.Choice(["text", "integer"]), default="text", show_default=True)
@click.option("--range", "value_range", type=float, nargs=2, default=(-1.0, 1.0), show_default=True, help="Raw units.")
@click.option("--truth", metavar="FILE.csv", help="Write the true figures there.")
@click.option("--collection-to", metavar="FILE.toml", help="Write a matching collection definition there.")
@click.option("--mechanism", default="pckv-ue", show_default=True, help="Mechanism of that definition.")
@click.option("--epsilon", default="1", show_default=True, help="Privacy budget of that definition.")
@_overwrite
@_json
@_traceback
def simulate(**options: Any) -> None:
    r"""Synthetic records of a population.

    With --to they go to a topic of Kafka, each user with an event time: at --rate they happen as they are sent, without
    it they are spread over the --span (an hour) that ends now.

    \b
    Example:
      ldp-beam simulate --population gauss --users 100000 --keys 50 --output records.parquet --truth truth.csv
    """
    population = Population(
        name=options["population"],
        keys=options["keys"],
        pairs_per_user=options["pairs_per_user"] or 0,
        seed=options["seed"],
    )
    if (options["to"] is None) == (options["output"] is None):
        raise InputError("Give either --output FILE or --to kafka://HOST:PORT/TOPIC.")
    if options["to"] is not None:
        summary = _simulate_to_topic(population, options)
        if options["as_json"]:
            _print_json(summary)
        else:
            Screen().say(f"{summary['users']:,} users in {summary['messages']:,} messages to {summary['topic']}")
        return
    summary = run_simulate(
        population,
        options["users"],
        options["output"],
        layout=options["layout"],
        user_ids=options["user_ids"],
        value_range=options["value_range"],
        truth=options["truth"],
        overwrite=options["overwrite"],
        collection=options["collection_to"],
        mechanism=options["mechanism"],
        epsilon=options["epsilon"],
    )
    if options["as_json"]:
        _print_json(summary)
    else:
        Screen().say(f"{summary['users']:,} users, {summary['pairs']:,} pairs in {summary['path']}")


@cli.command(cls=_BeamCommand)
@click.option("--estimates", required=True, metavar="DIR", help="What collect or aggregate left behind.")
@click.option("--records", "patterns", multiple=True, metavar="GLOB…", help="The true records.")
@click.option("--truth", metavar="FILE", help="Or a file with key, frequency, mean.")
@click.option("--top", type=click.IntRange(1), metavar="K", help="Only the K most frequent keys.")
@click.option("--window", metavar="TIME", help="Of a result in windows: start of the window; the last final one.")
@click.option("--plot", metavar="FILE", help="Also draw it, into a .png, .svg or .pdf file.")
@click.option("--merge-users", is_flag=True, help="Merge several nested rows of one user.")
@_sensitive_table
@_columns
@_engine
@_json
@_traceback
@click.pass_context
def evaluate(ctx: click.Context, /, **options: Any) -> None:
    r"""Estimates beside the truth: errors, and how often the intervals hold it.

    \b
    Example:
      ldp-beam evaluate --estimates result --records records.parquet
    """
    engine, screen = _engine_of(ctx, options), Screen(quiet=options["as_json"])
    if options["plot"]:
        check_plot_file(options["plot"])
    source = None
    if options["patterns"]:
        source = RecordSource(
            patterns=options["patterns"],
            columns=_columns_of(options),
            merge_users=options["merge_users"],
            sensitive_table=options["sensitive_table"],
        )
    with screen.progress():
        evaluation = run_evaluate(
            options["estimates"],
            records=source,
            truth=options["truth"],
            top=options["top"],
            engine=engine,
            window=options["window"],
        )
    if options["plot"]:
        plot_evaluation(evaluation, options["plot"])
    if options["as_json"]:
        undefined = dict(evaluation.why_undefined)
        _print_json({"figures": dict(evaluation.figures), "undefined": undefined, "keys": as_rows(evaluation)})
    else:
        screen.evaluation(evaluation)


@cli.command()
@_json
@_traceback
def mechanisms(**options: Any) -> None:
    r"""The mechanisms: what each estimates, its guarantee, its source.

    \b
    Example:
      ldp-beam mechanisms --json
    """
    described = [
        {
            "name": entry.name,
            "estimates": entry.estimates,
            "parameters": list(entry.parameters),
            "report_size": entry.report_size,
            "guarantee": entry.guarantee,
            "source": entry.source,
            "use": entry.use,
        }
        for entry in MECHANISMS.values()
    ]
    if options["as_json"]:
        _print_json({"mechanisms": described})
        return
    for entry in described:
        click.echo(f"{entry['name']}")
        for field, text in entry.items():
            if field != "name":
                shown = ", ".join(text) if isinstance(text, list) else text
                click.echo(f"  {field.replace('_', ' ')}: {shown}")


@cli.group(cls=click.Group)
def secret() -> None:
    """Secrets of clients: whoever holds one can test guesses about the records behind the reports."""


@secret.command("new")
@click.argument("file")
@_json
@_traceback
def secret_new(**options: Any) -> None:
    r"""Make a new secret in FILE, which only its owner can read.

    \b
    Example:
      ldp-beam secret new secret.hex
    """
    made = new_secret_file(Path(options["file"]))
    if options["as_json"]:
        _print_json({"file": options["file"], "secret_id": made.id})
    else:
        Screen().say(f"A new secret (id {made.id}) is in {options['file']}. Keep it as safely as the raw data.")


cli.add_command(report)
cli.add_command(compare)
cli.add_command(engine)
cli.add_command(doctor)
cli.add_command(audit)
cli.add_command(plan)
cli.add_command(ledger)


# -- topics ---------------------------------------------------------------------------------------------


def _perturb_to_topic(run: ClientRun, options: dict[str, Any], screen: Screen) -> None:
    if options["round_"] is not None or options["state"] is not None or options["format_"] != "parquet":
        raise InputError("--round, --state and --format belong to reports in files: leave them out with a topic.")
    with screen.progress():
        manifest = perturb_to_topic(
            run, KafkaAddress.parse(options["output"]), KafkaConfig.given(options["kafka_config"])
        )
    if options["as_json"]:
        _print_json(manifest)
    sent = manifest["sent"]
    screen.say(f"{sent['reports']:,} reports in {sent['messages']:,} messages to {sent['topic']}")


def _simulate_to_topic(population: Population, options: dict[str, Any]) -> dict[str, Any]:
    if options["layout"] == "pairs":
        raise InputError("--layout pairs: messages hold one row a user (nested). Leave --layout out with --to.")
    people = Generated(
        population=population,
        users=options["users"],
        user_ids=options["user_ids"],
        value_range=options["value_range"],
    )
    timed = TimedPeople.over(
        people,
        rate=options["rate"],
        span=None if options["span"] is None else float(parse_duration(options["span"], "--span")),
        start=None if options["start"] is None else float(parse_time(options["start"])),
        now=time.time(),
    )
    beside = Beside(
        truth=options["truth"],
        collection=options["collection_to"],
        mechanism=options["mechanism"],
        epsilon=options["epsilon"],
        overwrite=options["overwrite"],
    )
    return simulate_to_topic(
        timed, KafkaAddress.parse(options["to"]), KafkaConfig.given(options["kafka_config"]), beside
    )


# -- from options to arguments ----------------------------------------------------------------------------


def _client_run(ctx: click.Context, options: dict[str, Any], screen: Screen) -> ClientRun:
    engine = _engine_of(ctx, options)
    _require_share(options["max_rejects"])
    collection = Collection.load(options["definition"])
    secret_, randomness = choose_secret(
        secret_file=options["secret_file"], seed=options["seed"], period=options["period"]
    )
    if not randomness.private:
        screen.warn("--seed makes the run repeatable and NOT PRIVATE: whoever knows the number can undo it.")
    return ClientRun(
        collection=collection,
        source=RecordSource(
            patterns=options["patterns"],
            columns=_columns_of(options),
            strict=options["strict"],
            merge_users=options["merge_users"],
            max_rejects=options["max_rejects"],
            sensitive_table=options["sensitive_table"],
        ),
        secret=secret_,
        randomness=randomness,
        engine=engine,
        rejects=options["rejects"],
        overwrite=options["overwrite"],
        **ledger_arguments(options, collection, randomness),
    )


def _columns_of(options: dict[str, Any]) -> Columns:
    names = ("user", "key", "tag", "value", "items", "time")
    return Columns(**{name: options[f"{name}_column"] for name in names})


def _engine_of(ctx: click.Context, options: dict[str, Any]) -> Engine:
    beam_arguments = tuple(ctx.meta[_BEAM_ARGUMENTS])
    engine = Engine(
        name=options["engine"],
        workers=options["workers"],
        beam_arguments=beam_arguments,
        job_server_jar=options["job_server_jar"],
    )
    engine.target()  # refuses what contradicts itself, before anything is read
    tell_file_systems(beam_arguments)
    return engine


def _require_format(given: str, allowed: Sequence[str]) -> None:
    if given not in allowed:
        raise InputError(f"--format {given}: it must be one of {', '.join(allowed)}. {did_you_mean(given, allowed)}")


def _require_share(max_rejects: float) -> None:
    if not 0 <= max_rejects <= 1:
        raise InputError(f"--max-rejects {max_rejects:g}: it is a share of the rows, from 0 to 1.")


def _print_json(value: dict[str, Any]) -> None:
    click.echo(json.dumps(value, ensure_ascii=False, allow_nan=False))


def _keep_examples(command: click.Command) -> None:
    r"""Make Click's mark for lines that stay as they are out of the `\b` that docstrings hold as two characters."""
    command.help = (command.help or "").replace("\\b\n", "\b\n")
    for inner in command.commands.values() if isinstance(command, click.Group) else ():
        _keep_examples(inner)


_keep_examples(cli)


# -- entry ------------------------------------------------------------------------------------------------


def _spread_inputs(arguments: Sequence[str]) -> list[str]:
    """Write `--input a b c` as `--input a --input b --input c`, as a shell glob without quotes gives it."""
    many, spread, current = {"--input", "--records"}, list[str](), ""
    fresh = False
    for argument in arguments:
        if argument.startswith("-"):
            current, fresh = (argument, True) if argument in many else ("", False)
            spread.append(argument)
        elif current and not fresh:
            spread += [current, argument]
        else:
            spread.append(argument)
            fresh = False
    return spread


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command line and end the process with its exit code."""
    share_heap()
    given = _spread_inputs(sys.argv[1:] if arguments is None else arguments)
    if "--traceback" not in given:  # Beam logs every error of a worker at length; ours say the same in a paragraph
        logging.getLogger("apache_beam").setLevel(logging.CRITICAL)
    try:
        with engine_session():
            code = cli.main(args=given, prog_name="ldp-beam", standalone_mode=False)
    except click.exceptions.Exit as error:
        code = error.exit_code
    except click.exceptions.NoArgsIsHelpError as error:
        click.echo(error.format_message(), err=True)
        code = 2
    except click.UsageError as error:
        Screen().error(f"{error.format_message()} See ldp-beam --help.")
        code = 2
    except click.Abort:
        Screen().error("Interrupted; nothing was published.")
        code = 130
    except LdpBeamError as error:
        if "--traceback" in given:
            traceback.print_exc()
        Screen().error(str(error))
        code = error.exit_code
    raise SystemExit(code if isinstance(code, int) else 0)
