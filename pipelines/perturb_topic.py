"""`perturb` for a server that counts windows of time: reports of one slice, in files or in a topic of Kafka."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

from ..engines import temporary_folder
from ..errors import InputError, NotAvailableError, RunError
from ..mechanisms import AutoPadding, MultiRound
from ..schemas.event_time import parse_time, time_text
from ..schemas.event_windows import parse_duration
from ..schemas.kafka_config import KafkaAddress, KafkaConfig
from ..transforms.kafka_client import Sender, require_kafka
from ..transforms.kafka_reports import send_report_files
from ..transforms.slice_records import slice_period
from .collect import ClientRun, perturb

__all__ = ["in_window", "perturb_to_topic"]


def in_window(run: ClientRun, start: str | None, length: str | None) -> ClientRun:
    """Return a run whose reports belong to one slice of time.

    Privacy:
        The slice is part of the label of the users' random bits, as a period is: each slice costs a user who takes part
        in it the collection's epsilon, and gives fresh reports.

    Args:
        run: the run.
        start: --window-start, a time; None for reports of no slice.
        length: --window, a duration.

    Raises:
        InputError: One is given without the other, or is none.
    """
    if start is None and length is None:
        return run
    if start is None or length is None:
        raise InputError("--window-start and --window belong together: when the slice starts, and how long it is.")
    if isinstance(run.collection.mechanism, (MultiRound, AutoPadding)):
        raise NotAvailableError.of("--window-start for a collection that asks several questions")
    seconds, length_seconds = parse_time(start), parse_duration(length, "--window")
    if seconds % length_seconds:
        raise InputError(
            f"--window-start {start}: slices of {length} start at multiples of their length since 1970, such as "
            f"{time_text(seconds - seconds % length_seconds)}."
        )
    randomness = replace(run.randomness, period=slice_period(run.randomness.period, seconds))
    return replace(run, randomness=randomness, window_start=time_text(seconds), window_seconds=length_seconds)


def perturb_to_topic(run: ClientRun, address: KafkaAddress, config: KafkaConfig) -> dict[str, Any]:
    """Perturb, check what came out, and only then send the reports of a slice to a topic.

    A run that fails while it perturbs has sent nothing. One that fails while it sends has spent the epsilon; the same
    run again sends the same reports, those that had arrived a second time.

    Returns:
        The manifest, and under "sent" the topic and the numbers of reports and messages.

    Raises:
        InputError: The reports belong to no slice, or something given is wrong.
        RunError: The run failed, or a message did not arrive.
    """
    require_kafka()
    if not run.window_start:
        raise InputError(
            f"--output {address}: a message holds the reports of one slice of time. Say which: --window-start "
            "2026-11-30T13:00:00Z --window 1h."
        )
    Sender(address, config).require_contact()  # refuses settings before anything is spent
    with temporary_folder("ldp-beam-") as folder:
        made = Path(folder, "reports")
        manifest = perturb(run, made)
        files = sorted(map(str, made.glob("reports*.*")))
        try:
            with Sender(address, config) as sender:
                reports, messages = send_report_files(sender, run.collection, files)
        except (RunError, KeyboardInterrupt) as error:
            raise RunError(
                f"The reports were made and not all of them sent: {error or 'interrupted'} Their epsilon is spent, and "
                "some may have arrived. The same command sends the same reports again; those that arrived then come "
                "twice, which the server knows where the collection has report_ids = true."
            ) from error
    sent = {"topic": str(address), "reports": reports, "messages": messages}
    return {**manifest.as_json(), "files": [], "sent": sent}
