"""All answers of one user in all rounds as one report, so that the statistical audit attacks what she tells in all.

Rounds are answered through the real client code, each with the random bits of its own round. The server of the attack
is a malicious one: it feeds the same sign back to everybody, whatever the answers were. Later rounds and their bits can
so be examined, which the law of a first round alone would not show.

The thresholds of an answer do not depend on the size of the domain, so that large domains are narrowed: records can
then hold every key, and differ in whatever key is drawn.
"""

from __future__ import annotations

import copy
from collections.abc import Iterator
from decimal import Decimal
from typing import Final

import numpy as np
import numpy.typing as npt

from ..data import I64, U8, Bool, Field, Records, Reports
from ..privkv.rounds import MultiRound
from ..randomness import Secret, Stream

__all__ = ["Transcript"]

#: Domains of more keys are narrowed to so many.
_KEYS: Final = 16
#: Rounds whose answers are looked at all together: 3^6 outcomes.
_TOGETHER: Final = 6


class _Always:
    """Feeds +1 back to everybody about every key."""

    def plus(self, users: U8, keys: I64) -> Bool:
        """+1, always."""
        return np.ones(len(keys), dtype=np.bool_)


class Transcript:
    """A mechanism that asks in rounds, as a client that answers all of them at once.

    Attributes:
        epsilon: declared budget of all rounds together.
        keys: size of the domain, narrowed.
        padding: size of the largest records that are worth comparing: all keys.
        has_values: records have values.
    """

    has_values: Final = True

    def __init__(self, mechanism: MultiRound) -> None:
        """Narrow the domain and draw a fresh secret of clients."""
        narrow = copy.copy(mechanism)
        object.__setattr__(narrow, "keys", min(mechanism.keys, _KEYS))
        self.epsilon: Decimal = mechanism.epsilon
        self.keys = self.padding = narrow.keys
        self._rounds = [narrow.round(number) for number in range(1, narrow.rounds_max + 1)]
        self._secret = Secret.new()

    def layout(self) -> tuple[Field, ...]:
        """The fields of every round, numbered."""
        return tuple(
            Field(name=f"{part.name}_{one.number}", dtype=part.dtype, width=part.width)
            for one in self._rounds
            for part in one.layout()
        )

    def perturb(self, records: Records, stream: Stream) -> Reports:
        """Answer all rounds.

        Args:
            records: canonical records.
            stream: not used; every round has a stream of its own, as for real clients.
        """
        arrays: dict[str, npt.NDArray[np.generic]] = {}
        for one in self._rounds:
            client = one.answering(_Always() if one.law.fed else None)
            own = self._secret.stream(fingerprint="statistical audit", round=one.number)
            reports = client.perturb(records, own)
            arrays |= {f"{name}_{one.number}": array for name, array in reports.arrays.items()}
        return Reports(n=records.n, arrays=arrays)

    def features(self, reports: Reports) -> Iterator[tuple[str, I64]]:
        """Yield what an observer may look at, as integers, (n,) each."""
        signs = [reports.arrays[f"sign_{one.number}"].astype(np.int64) for one in self._rounds]
        keys = [reports.arrays[f"key_{one.number}"].astype(np.int64) for one in self._rounds]
        for one, key, sign in zip(self._rounds, keys, signs, strict=True):
            yield f"the answer of round {one.number}", 3 * key + sign + 1
        together = np.zeros(reports.n, dtype=np.int64)
        for sign in signs[:_TOGETHER]:
            together = 3 * together + sign + 1
        yield f"the signs of rounds 1 to {min(len(signs), _TOGETHER)}", together
        later = np.sum(signs[1:], axis=0, dtype=np.int64) if len(signs) > 1 else np.zeros(reports.n, dtype=np.int64)
        yield "the first sign and the sum of the others", (signs[0] + 1) * 1024 + later + 512
        yield "how many rounds draw the first round's key", np.sum([key == keys[0] for key in keys], axis=0)
