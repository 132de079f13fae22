"""The end of a stream: a file that appears once everything that the source gave has been published.

Some engines keep a job up although its source is over. Whoever runs the job can then end it by this sign.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any, Final

import apache_beam as beam
from apache_beam.transforms.timeutil import TimeDomain
from apache_beam.transforms.userstate import TimerSpec, on_timer
from apache_beam.transforms.window import GlobalWindow

__all__ = ["MarkEnd"]

_END: Final = TimerSpec("end", TimeDomain.WATERMARK)
_END_TIMER: Final = beam.DoFn.TimerParam(_END)


class MarkEnd(beam.PTransform):
    """PCollections of anything → an empty file at `path` when the watermark of all of them has reached the end of time.

    Args:
        path: the file.
    """

    def __init__(self, path: str) -> None:
        super().__init__()
        self._path = path

    def expand(self, everything: tuple[beam.PCollection[Any], ...]) -> beam.PCollection[str]:
        watched = [
            one | f"Watch{number}" >> beam.Filter(_none).with_output_types(bytes)
            for number, one in enumerate(everything)
        ]
        # Flink's fusion loses inputs of a union with a bare impulse.
        begin = everything[0].pipeline | "Begin" >> beam.Impulse() | "Pass" >> beam.Map(_same).with_output_types(bytes)
        return (
            (begin, *watched)
            | "Together" >> beam.Flatten()
            | "Key" >> beam.Map(_keyed).with_output_types(beam.typehints.KV[int, bytes])
            | "Mark" >> beam.ParDo(_Mark(self._path)).with_output_types(str)
        )


def _none(element: Any) -> bool:
    """Only the watermark matters."""
    return False


def _same(element: bytes) -> bytes:
    return element


def _keyed(element: bytes) -> tuple[int, bytes]:
    return 0, element


class _Mark(beam.DoFn):
    def __init__(self, path: str) -> None:
        self._path = path

    def process(self, element: tuple[int, bytes], end: Any = _END_TIMER) -> None:
        end.set(GlobalWindow().max_timestamp())

    @on_timer(_END)  # type: ignore[untyped-decorator]  # Beam's decorator has no types
    def mark(self) -> None:
        """Leave the sign."""
        Path(self._path).touch()
