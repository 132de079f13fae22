"""Laws of the mechanisms that ask about one publicly drawn key, read off their published integer thresholds.

The drawn key is independent of the record, so a report's law is that of the answer about it. In rounds in which the
server feeds signs back, an answer is looked at together with the sign: whatever was fed back, with probability 1/2
here, divides out of every ratio.
"""

from __future__ import annotations

from collections.abc import Mapping
from fractions import Fraction
from typing import Final

from ..privkv.rounds import MultiRound
from ..probability import WORDS
from ..protocol import Mechanism
from .law import Channel, Draw, ReportLaw, span

__all__ = ["drawn_key_law", "rounds_law"]

_ANSWERS: Final = ("+1", "-1", "0")
_FED: Final = ("+1 fed back", "-1 fed back")


def drawn_key_law(mechanism: Mechanism) -> tuple[ReportLaw, ...]:
    """Law of a mechanism that asks once."""
    return (_law(mechanism.thresholds(), mechanism.keys, fed=False),)


def rounds_law(mechanism: Mechanism) -> tuple[ReportLaw, ...]:
    """Law of each round that may be asked; from the second on, signs are fed back."""
    thresholds = mechanism.thresholds()
    rounds = mechanism.rounds_max if isinstance(mechanism, MultiRound) else 0
    laws = []
    for number in range(1, rounds + 1):
        prefix = f"round_{number}_"
        own = {name.removeprefix(prefix): t for name, t in thresholds.items() if name.startswith(prefix)}
        laws.append(_law(own, mechanism.keys, fed=number > 1))
    return tuple(laws)


def _law(thresholds: Mapping[str, int], keys: int, *, fed: bool) -> ReportLaw:
    names = ("kept_with_sign", "kept", "other", "other_plus")
    same, kept, other, plus = (Fraction(thresholds[name], WORDS) for name in names)
    held = {"a key with +1": (same, kept - same, 1 - kept), "a key with -1": (kept - same, same, 1 - kept)}
    absent = [(plus, other - plus, 1 - other)]
    if fed:
        absent.append((other - plus, plus, 1 - other))
    given = len(absent)
    rows = {name: law * given for name, law in held.items()}
    rows["no such key"] = tuple(share for law in absent for share in law)
    columns = _ANSWERS if not fed else tuple(f"{answer}, {sign}" for sign in _FED for answer in _ANSWERS)
    key = max(kept / other, (1 - other) / (1 - kept))
    return ReportLaw(
        form=Channel(
            columns=columns,
            rows={name: tuple(span(share / given) for share in law) for name, law in rows.items()},
            sizes=(1,) * len(columns),
        ),
        keys=keys,
        steps={"key": key, "value": same / (kept - same)} if key > 1 else {"value": same / (kept - same)},
        draws=(Draw(name="drawn key", bound=keys),),
    )
