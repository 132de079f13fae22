"""`stream`: reports, or raw records of simulated clients, of an unbounded source → results for each window of time.

server only:          reports → windows → panes → folders
clients and server:   records → one report a user and slice → windows → panes → folders
"""

from __future__ import annotations

import threading
import time
from collections.abc import Mapping, Sequence
from contextlib import ExitStack, suppress
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Final, Protocol

import apache_beam as beam
import pyarrow as pa

from ..errors import InputError, NotAvailableError
from ..mechanisms import AutoPadding, MultiRound
from ..schemas.event_windows import Windows
from ..schemas.manifest import Randomness
from ..schemas.messages import Reject
from ..transforms.collection import Collection
from ..transforms.count_windows import CountInWindows
from ..transforms.publish_panes import PaneWriter, Published, PublishPanes
from ..transforms.set_aside import KeepSetAside, SetAside
from ..transforms.slice_records import Clients, ReportSlices
from ..transforms.stream_end import MarkEnd
from .engine_target import Target, target_of, without
from .failures import WorkerErrors, translated
from .quiet_end import QuietEnd
from .results import manifest_of
from .running import Clock, Engine
from .runtime import Runtime, own_runtime
from .stream_cluster import check_placement, fit_workers, job_name, on_cluster
from .stream_folder import CLIENTS_FOLDER, REJECTS_FOLDER, TALLY, EarlierRuns, StreamFolder
from .stream_metrics import read_metrics

__all__ = ["Follower", "StreamRun", "StreamSource", "stream"]

#: Beam options of a stream where the user gave none: small bundles, checkpoints, and an end of trying again.
_FLINK_OPTIONS: Final = {
    "checkpointing_interval": "5000",
    "max_bundle_time_mills": "100",
    "max_bundle_size": "1000",
    "number_of_execution_retries": "3",
    "execution_retry_delay": "2000",
}
#: A switch of Flink's. Without it what a bundle puts out while a checkpoint is taken is kept aside, and the end of the
#: stream overtakes it: reports would be lost without a word.
_FLUSH: Final = "finish_bundle_before_checkpointing"
#: A switch of Prism's. Without it a bundle that is slow is divided, also between two elements of one key: both halves
#: then run at once, each with the key's state as it was, and what one of them has counted is lost without a word.
_WHOLE_BUNDLES: Final = "--experiments=prism_disable_sdf_split"
_POLL_SECONDS: Final = 0.5
_CANCEL_SECONDS: Final = 10.0
#: Seconds for which an engine may take notice by itself that its job is over.
_END_SECONDS: Final = 5.0
#: Seconds between two versions of the manifest while a stream runs.
_TELL_SECONDS: Final = 2.0


class StreamSource(Protocol):
    """Where batches come from."""

    @property
    def name(self) -> str:
        """What people call it, without secrets."""

    def read(
        self, pipeline: beam.Pipeline, earlier: EarlierRuns
    ) -> tuple[beam.PCollection[pa.RecordBatch], beam.PCollection[Reject] | None]:
        """Return batches whose timestamps are their event times, and what the source sets aside, if anything."""


class Sink(Protocol):
    """Takes results beside the files."""

    def write(self, published: beam.PCollection[Published]) -> Any:
        """Write what was newly published."""


class Follower(Protocol):
    """Is told, while a stream runs, what it has published."""

    def update(self, folder: StreamFolder) -> None:
        """Look at the folder."""


@dataclass(frozen=True, kw_only=True)
class StreamRun:
    """What `stream` is given.

    Attributes:
        collection: what is collected.
        source: where reports, or records, come from.
        windows: windows and lateness.
        early: seconds between early panes, in processing time, or None.
        engine: where to run.
        clients: secret, columns and ledger of simulated clients, where the source gives raw records; None where it
            gives reports.
        randomness: what the manifest says of the clients' secret; None where the source gives reports.
        format_: format of the estimates.
        sink: where results go beside the files, or None.
        overwrite: replace an earlier result.
        ledger: the ledger's path, for the manifest.
    """

    collection: Collection
    source: StreamSource
    windows: Windows
    early: int | None = None
    engine: Engine = field(default_factory=lambda: Engine(name="prism"))
    clients: Clients | None = None
    randomness: Randomness | None = None
    format_: str = "parquet"
    sink: Sink | None = None
    overwrite: bool = False


def stream(run: StreamRun, output: str | Path, *, follow: Sequence[Follower] = ()) -> dict[str, Any]:
    """Run a stream until its source ends, or until it is interrupted, which is how streams usually end.

    Privacy:
        On the server side nothing is spent. With clients each slice of time costs each user who takes part in it the
        collection's epsilon once, however many windows hold the slice and however many panes a window has.

    Args:
        run: what to run.
        output: folder for the results; that of an earlier run of the same stream goes on.
        follow: told what is new while the stream runs.

    Returns:
        The manifest, also written into `output`.

    Raises:
        InputError: Something given is wrong; found before anything runs.
        RunError: The job failed. What was published is complete and stays.
    """
    _check(run)
    clock, engine = Clock(), streaming_engine(run.engine, output)
    with ExitStack() as stack:
        ending = stack.enter_context(QuietEnd())
        folder = stack.enter_context(StreamFolder(output, _identity(run), overwrite=run.overwrite))
        runtime = stack.enter_context(own_runtime(engine))
        fit_workers(runtime, folder.path)
        stack.enter_context(on_cluster(runtime.target, str(engine.known()["job_name"])))
        workers = stack.enter_context(WorkerErrors())
        job = _Job(_pipeline(run, engine, folder, runtime, clock), ending, workers)
        told = _Teller(run, engine, folder, clock, follow)
        state = "failed"
        try:
            told.tell("running")
            state = job.wait(told.tick, folder.end)
        except KeyboardInterrupt:
            job.cancel()
            state = "stopped"
        finally:
            manifest = told.tell(state, job.metrics())
    return manifest


def streaming_engine(engine: Engine, output: str | Path) -> Engine:
    """Return an engine with the options that a stream needs where none were given, and a job server of its own.

    Args:
        engine: where to run.
        output: the stream's folder, which names its job.
    """
    known = engine.known()
    name = job_name(known.get("job_name"), Path(output).absolute())
    arguments = [*without(engine.beam_arguments, ("job_name",)), f"--job_name={name}"]
    if "streaming" not in known:
        arguments.append("--streaming")
    if engine.target().engine == "flink":
        arguments += [f"--{name}={value}" for name, value in _FLINK_OPTIONS.items() if name not in known]
        arguments += [] if _FLUSH in known else [f"--{_FLUSH}"]
    elif engine.target().engine == "prism":
        arguments.append(_WHOLE_BUNDLES)
    return _OwnEngine(
        name=engine.name,
        workers=engine.workers,
        beam_arguments=tuple(arguments),
        job_server_jar=engine.job_server_jar,
    )


class _OwnEngine(Engine):
    """An engine that never uses a job server that was started before: stopping it is what surely stops the job."""

    def target(self) -> Target:
        """Return what this means."""
        return replace(target_of(self.name, self.known(), jar=self.job_server_jar), service=False)


def _check(run: StreamRun) -> None:
    engine = run.engine.target().engine
    if engine == "direct":
        raise InputError(
            "--engine direct: Beam's runner inside this process does not run streams: it reads a folder or a topic to "
            "an end that does not come, or publishes nothing at all. Give --engine prism (one machine) or "
            "--engine flink."
        )
    if engine == "spark":
        raise NotAvailableError.of("stream --engine spark", instead="Give --engine prism or --engine flink.")
    check_placement(run.engine.target(), run.clients)
    if isinstance(run.collection.mechanism, MultiRound):
        raise NotAvailableError.of(
            f"stream with {run.collection.definition.mechanism}, which asks in rounds,",
            instead="Collect each period with `ldp-beam collect`.",
        )
    if isinstance(run.collection.mechanism, AutoPadding):
        raise NotAvailableError.of(
            'stream with padding = "auto"', instead="Use the resolved definition, which holds a number."
        )
    if run.clients is not None and run.clients.memo is not None and run.windows.slices > 1:
        raise InputError(
            "--memoise with sliding windows: a user whose data do not change sends the same report in each slice of a "
            "window, so that the standard errors of the sum would be too small. Give fixed windows (leave --slide out)."
        )


def _identity(run: StreamRun) -> dict[str, Any]:
    """What must be the same for a run to go on in an earlier run's folder."""
    return {
        "fingerprint": run.collection.fingerprint,
        "windows": run.windows.as_json(),
        "format": run.format_,
        "clients": run.clients is not None,
        "estimator": run.collection.definition.estimator,
    }


# -- the pipeline -------------------------------------------------------------------------------------------------


def _pipeline(run: StreamRun, engine: Engine, folder: StreamFolder, runtime: Runtime, clock: Clock) -> beam.Pipeline:
    pipeline = beam.Pipeline(runner=runtime.runner, options=runtime.options())
    batches, refused = run.source.read(
        pipeline, folder.earlier(run.windows)
    )  # record batches at their event times; `Reject`s
    batches = batches | "Global" >> beam.WindowInto(beam.window.GlobalWindows())
    aside = []
    if refused is not None:
        aside.append(
            refused
            | "GlobalRejects" >> beam.WindowInto(beam.window.GlobalWindows())
            | "Refused" >> beam.Map(_set_aside).with_output_types(SetAside)
        )
    if run.clients is not None:
        clients = folder.path / CLIENTS_FOLDER
        tally = str(clients / TALLY)
        batches, late = batches | "Clients" >> ReportSlices(run.collection, run.clients, run.windows, tally_to=tally)
        late | "KeepRecords" >> KeepSetAside(str(clients))
    # ---- the boundary: from here on there are no records, only reports ----
    panes, not_counted = batches | "Count" >> CountInWindows(run.collection, run.windows, early=run.early)
    kept = (*aside, not_counted) | "Aside" >> beam.Flatten() | "Keep" >> KeepSetAside(str(folder.path / REJECTS_FOLDER))
    writer = PaneWriter(
        collection=run.collection,
        windows=run.windows,
        folder=str(folder.path),
        format_=run.format_,
        manifest=_base(run, engine, clock),
        period="" if run.randomness is None else run.randomness.period,
    )
    published = panes | "Publish" >> PublishPanes(writer)
    (published, kept) | "End" >> MarkEnd(str(folder.end))
    if run.sink is not None:
        run.sink.write(published)
    return pipeline


def _set_aside(one: Reject) -> SetAside:
    return SetAside(one.reason, one.count, note=f"{one.where}: {one.detail}", raw=one.payload or None)


def _base(run: StreamRun, engine: Engine, clock: Clock) -> dict[str, Any]:
    """Return what the manifests of all windows say alike."""
    randomness = run.randomness or Randomness(source="reports", private=True)
    manifest = manifest_of(
        "stream",
        run.collection,
        randomness,
        engine,
        clock,
        records=None,
        reports=None,
        files=[],
        spends=run.clients is not None,
    ).as_json()
    del manifest["seconds"]
    return manifest | {"windows": run.windows.as_json(), "source": run.source.name}


# -- running ------------------------------------------------------------------------------------------------------


class _Job:
    """A running job."""

    def __init__(self, pipeline: beam.Pipeline, ending: QuietEnd, workers: WorkerErrors) -> None:
        self._ending, self._workers = ending, workers
        try:
            self._result = pipeline.run()
        except Exception as error:
            raise translated(error, workers) from error
        self._failure: list[BaseException] = []
        self._waiting = threading.Thread(target=self._wait, daemon=True)
        self._waiting.start()

    def _wait(self) -> None:
        try:
            self._result.wait_until_finish()
        except BaseException as error:
            self._failure.append(error)

    def wait(self, tick: Any, end: Path) -> str:
        """Wait for the end and call `tick` meanwhile; return "ended".

        Args:
            tick: what to do now and then.
            end: file that appears when everything is published; an engine may keep its job up beyond that.

        Raises:
            RunError: The job failed.
        """
        while self._waiting.is_alive():
            self._waiting.join(_POLL_SECONDS)
            tick()
            if end.exists():
                self._waiting.join(_END_SECONDS)
                if self._waiting.is_alive():
                    self.cancel()
                    return "ended"
        if self._failure:
            error = self._failure[0]
            if isinstance(error, KeyboardInterrupt):
                raise error
            raise translated(error, self._workers) from error
        return "ended"

    def cancel(self) -> None:
        """Ask the engine to end the job; its job server, which is ours alone, is stopped afterwards in any case."""

        def ask() -> None:
            with suppress(Exception):
                self._result.cancel()

        self._ending.begin()
        asking = threading.Thread(target=ask, daemon=True)
        asking.start()
        asking.join(_CANCEL_SECONDS)

    def metrics(self) -> dict[str, int | str]:
        """Return the engine's own counters, "unavailable" where it does not tell."""
        return read_metrics(self._result)


class _Teller:
    """Writes the manifest of the stream as it goes on, and tells the followers."""

    def __init__(
        self, run: StreamRun, engine: Engine, folder: StreamFolder, clock: Clock, follow: Sequence[Follower]
    ) -> None:
        self._run, self._engine, self._folder, self._clock, self._follow = run, engine, folder, clock, follow
        self._base = _base(run, engine, clock)
        self._seen: Any = None
        self._told = 0.0

    def tick(self) -> None:
        self._folder.look()
        for follower in self._follow:
            follower.update(self._folder)
        seen = self._folder.version()
        if seen != self._seen and time.monotonic() - self._told >= _TELL_SECONDS:
            self._seen, self._told = seen, time.monotonic()
            self.tell("running")

    def tell(self, state: str, metrics: Mapping[str, int | str] | None = None) -> dict[str, Any]:
        self._folder.look()
        manifest = self._folder.manifest(self._base, state, metrics, seconds=self._clock.seconds())
        self._folder.write_manifest(manifest)
        return manifest
