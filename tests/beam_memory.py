"""Lets Beam remember what it works out anew, hundreds of times for each small pipeline of a test.

Half of the time of a test that runs a small pipeline goes into two questions that have the same answer each time: which
options a class of options declares, and which states and timers a class of DoFn asks for. Tests on engines, and all
tests that start a command in a process of its own, run Beam as it is.
"""

from __future__ import annotations

import copy
import types
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any
from weakref import WeakKeyDictionary

from apache_beam.options.pipeline_options import PipelineOptions
from apache_beam.transforms import core, userstate


@contextmanager
def remembering() -> Iterator[None]:
    """Let Beam remember within the block."""
    before = PipelineOptions.__init__, userstate.get_dofn_specs
    PipelineOptions.__init__ = _options(PipelineOptions.__init__)
    userstate.get_dofn_specs = _specs(userstate.get_dofn_specs)
    try:
        yield
    finally:
        PipelineOptions.__init__, userstate.get_dofn_specs = before


def _options(plain: Callable[..., None]) -> Callable[..., None]:
    """Parse a list of flags once for each class of options."""
    parsed: dict[tuple[type, tuple[str, ...]], Any] = {}

    def init(self: PipelineOptions, flags: Any = None, **more: Any) -> None:
        if not isinstance(flags, list) or not all(isinstance(flag, str) for flag in flags):
            plain(self, flags, **more)
            return
        key = type(self), tuple(flags)
        if key not in parsed:
            plain(self, flags, **more)
            parsed[key] = copy.deepcopy(self._visible_options)
            return
        self._flags = flags
        self._visible_options = copy.deepcopy(parsed[key])
        self._all_options = more
        for name in self._visible_option_list():
            more.setdefault(name, getattr(self._visible_options, name))

    return init


def _specs(plain: Callable[[Any], Any]) -> Callable[[Any], Any]:
    """Inspect the methods of a class of DoFn once; where an object has methods of its own, those of the object."""
    seen: WeakKeyDictionary[Any, Any] = WeakKeyDictionary()

    def specs(dofn: Any) -> Any:
        own = any(isinstance(value, types.MethodType) for value in vars(dofn).values())
        key = dofn if own or isinstance(dofn, core.CallableWrapperDoFn) else type(dofn)
        if key not in seen:
            seen[key] = plain(dofn)
        states, timers = seen[key]
        return set(states), set(timers)

    return specs
