"""The two collections of `padding = "auto"`: the length question, and the main one once the padding is known.

Each is a collection of its own, with its own fingerprint and reports. Nothing here knows a record.
"""

from __future__ import annotations

from ..errors import InputError, ParameterError
from ..mechanisms import AutoPadding
from ..mechanisms.padding.lengths import length_symbols
from ..schemas.collection import REPORT_IDS, Definition
from ..schemas.keys import KeyDomain
from .collection import Collection

__all__ = ["length_collection", "questions_of", "resolved_collection"]

_LONGEST_NAME = 200
_LENGTH = ":length"


def questions_of(collection: Collection) -> AutoPadding:
    """Return the two questions of a collection.

    Raises:
        ParameterError: Its padding is a number.
    """
    if not isinstance(collection.mechanism, AutoPadding):
        raise ParameterError(f"{collection.mechanism.name} has a fixed padding and asks one question.")
    return collection.mechanism


def length_collection(collection: Collection) -> Collection:
    """Return the collection that asks for lengths: its keys are the smallest length of each symbol.

    The last key is the cap, which means "or more".

    Raises:
        InputError: The name leaves no room.
    """
    asked = questions_of(collection)
    name = collection.definition.name + _LENGTH
    if len(name) > _LONGEST_NAME:
        raise InputError(f"the field 'name' is too long for padding = \"auto\": with {_LENGTH!r} it must fit into 200.")
    definition = Definition(
        name=name,
        mechanism=asked.length.name,
        epsilon=collection.definition.epsilon,
        keys=KeyDomain.of_texts([str(start) for start in length_symbols(asked.cap)]),
        values=None,
        parameters={REPORT_IDS: True} if collection.definition.report_ids else {},
        estimator="empirical",
    )
    return Collection.of(definition)


def resolved_collection(collection: Collection, padding: int) -> Collection:
    """Return the main collection with the padding that was chosen."""
    return Collection.of(collection.definition.with_padding(padding))
