"""Beam options that pass through our command line.

Beam ignores an option that it does not know; we stop and suggest the nearest name.
"""

from __future__ import annotations

import argparse
from collections.abc import Iterable, Iterator, Sequence
from typing import Any, Final

from apache_beam.io.filesystems import FileSystems
from apache_beam.options.pipeline_options import PipelineOptions

from ..errors import InputError, did_you_mean
from .engine_options import add_runner_options
from .engine_target import target_of

__all__ = ["local_options", "parse_beam_options", "parsed_options", "tell_file_systems", "without_secrets"]


#: Words in the names of options whose values are nobody's business.
_SECRETS: Final = ("secret", "token", "password", "access_key")


def parse_beam_options(arguments: Sequence[str], ours: Iterable[str]) -> list[str]:
    """Check that Beam knows every one of `arguments`, and return them.

    Args:
        arguments: what was left of the command line after our own options were taken.
        ours: our own option names, for the suggestion.

    Raises:
        InputError: Neither we nor Beam know an option; or a value without an option.
        NotAvailableError: A runner that this version does not support.
    """
    if not arguments:
        return []
    parser = _beam_parser()
    normal = [_underscored(argument) for argument in arguments]
    try:
        _, unknown = parser.parse_known_args(normal)
    except argparse.ArgumentError as error:
        raise InputError(f"Beam refuses an option: {error}.") from error
    if unknown:
        raise InputError(_unknown(unknown[0], parser, ours))
    given = parsed_options(normal)
    if "runner" in given:
        target_of("direct", given)
    return normal


def parsed_options(arguments: Sequence[str]) -> dict[str, Any]:
    """Return the values that checked `arguments` give to Beam's options, and nothing that was not given."""
    parser = _beam_parser()
    for action in parser._actions:  # no public list exists
        action.default = argparse.SUPPRESS
    return vars(parser.parse_known_args(list(arguments))[0])


def _underscored(argument: str) -> str:
    """Beam spells its options with underscores; accept hyphens for our users' sake."""
    if not argument.startswith("--"):
        return argument
    name, equals, value = argument.partition("=")
    return "--" + name[2:].replace("-", "_") + equals + value


def _unknown(argument: str, parser: argparse.ArgumentParser, ours: Iterable[str]) -> str:
    if not argument.startswith("-"):
        return f"Unexpected argument {argument!r}: every value follows the option that it belongs to."
    name = argument.partition("=")[0]
    beam = {option for action in parser._actions for option in action.option_strings}  # no public list exists
    hint = did_you_mean(name, {*ours, *beam})
    near = hint + " " if hint.startswith("Did") else ""
    return f"Unknown option {name}: neither ldp-beam nor Beam has it. {near}--help lists ours; Beam documents its own."


class _Parser(argparse.ArgumentParser):
    """Raises instead of ending the process, and never takes an abbreviation for an option."""

    def __init__(self) -> None:
        super().__init__(add_help=False, allow_abbrev=False, conflict_handler="resolve")

    def error(self, message: str) -> None:  # type: ignore[override]  # argparse declares NoReturn
        raise InputError(f"Beam refuses an option: {message}.")


def _beam_parser() -> argparse.ArgumentParser:
    parser = _Parser()
    for option_class in _subclasses(PipelineOptions):
        add = option_class.__dict__.get("_add_argparse_args")
        if add is not None:
            option_class._add_argparse_args(parser)  # Beam's own way to declare options
    add_runner_options(parser)
    return parser


def _subclasses(cls: Any) -> Iterator[Any]:
    for sub in cls.__subclasses__():
        if sub.__module__.startswith("apache_beam."):
            yield sub
            yield from _subclasses(sub)


def tell_file_systems(arguments: Sequence[str]) -> None:
    """Give Beam's file systems their options, such as the endpoint of a store, before anything is looked at.

    Beam does so when it makes a pipeline, and by then inputs and outputs have been checked.
    """
    FileSystems.set_options(PipelineOptions(list(arguments)))  # without any they refuse to make a client


def without_secrets(arguments: Sequence[str]) -> list[str]:
    """Return `arguments` for a manifest: the values of credentials are left out."""
    told: list[str] = []
    hidden = False
    for argument in arguments:
        name, equals, _ = argument.partition("=")
        if not argument.startswith("--"):
            told.append("…" if hidden else argument)
            continue
        hidden = any(word in name for word in _SECRETS)
        told.append(f"{name}=…" if hidden and equals else argument)
    return told


def local_options(workers: int, beam_arguments: Sequence[str]) -> PipelineOptions:
    """Return the options of a local run on `workers` threads (or processes, where Beam is told so)."""
    arguments = list(beam_arguments)
    if not any(a.startswith("--direct_num_workers") for a in arguments):
        arguments.append(f"--direct_num_workers={workers}")
    if workers > 1 and not any(a.startswith("--direct_running_mode") for a in arguments):
        arguments.append("--direct_running_mode=multi_threading")
    return PipelineOptions(arguments)
