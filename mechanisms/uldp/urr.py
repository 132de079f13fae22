"""uRR, utility-optimised randomised response: other symbols are often sent as they are, sensitive ones never alone.

With probability c3 = (e^epsilon - 1) / (u + e^epsilon - 1), u being the number of sensitive symbols, the symbol itself
is sent, otherwise a uniformly drawn sensitive one: one sampler for both kinds of symbols.

Source:
    Murakami, Kawamoto: Utility-Optimized Local Differential Privacy Mechanisms for Distribution Estimation, USENIX
    Security 2019, section 4.1.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from decimal import Decimal
from fractions import Fraction
from typing import ClassVar

import numpy as np

from ..categorical.estimation import SINGLE_ESTIMATORS, Supports
from ..data import F64, I32, I64, Bool, Field, Reports
from ..probability import WORDS, budget_ratio, largest_threshold
from ..randomness import U64, BlockSource, mulhi
from .core import Core, UtilityOptimised, threshold_share
from .definition import SymbolSets

__all__ = ["URR", "ResponseCore"]


class ResponseCore(Core):
    """uRR over the symbols of `sets`: a report is one symbol."""

    estimators: ClassVar[tuple[str, ...]] = SINGLE_ESTIMATORS

    def __init__(self, sets: SymbolSets, epsilon: Decimal) -> None:
        """Find the largest threshold of 64 bits that epsilon allows."""
        self.sets = sets
        budget, fewest = budget_ratio(epsilon), WORDS // sets.number
        # A sensitive symbol is the other one for `fewest` words or one more: the loss is largest where there are few.
        self._sent = largest_threshold(1, WORDS - 1, lambda t: _ratio(t, fewest) <= budget)

    def thresholds(self) -> Mapping[str, int]:
        """Threshold of 2^64 for sending the symbol itself; the number of symbols to draw from otherwise."""
        return {"sent": self._sent, "sensitive": self.sets.number}

    def parameters(self) -> Mapping[str, float]:
        """c1, c2, c3 of the paper and the number of sensitive symbols."""
        c2, c3 = self._letters()
        return {"c1": c2 + c3, "c2": c2, "c3": c3, "sensitive": float(self.sets.number)}

    def _letters(self) -> tuple[float, float]:
        return threshold_share(WORDS - self._sent) / self.sets.number, threshold_share(self._sent)

    def channel(self) -> tuple[list[dict[object, Fraction]], list[int], list[object]]:
        """The law over two sensitive and two other symbols; the fewest and the most words stand for the draws."""
        u, some = self.sets.number, min(2, self.sets.size - self.sets.number)
        draws: dict[object, int] = {"s1": WORDS // u, **({"s2": -(-WORDS // u)} if u > 1 else {})}
        inputs: list[object] = [*draws, *(f"o{i}" for i in range(some))]
        other = {y: Fraction((WORDS - self._sent) * words, WORDS * WORDS) for y, words in draws.items()}
        rows = [{**other, x: other.get(x, Fraction(0)) + Fraction(self._sent, WORDS)} for x in inputs]
        return rows, list(range(len(draws))), list(draws)

    def layout(self) -> tuple[Field, ...]:
        """`symbol`: index of a symbol."""
        return (Field(name="symbol", dtype="int32"),)

    def empty(self, n: int) -> Reports:
        """Room for n reports."""
        return Reports(n=n, arrays={"symbol": np.empty(n, dtype=np.int32)})

    def obfuscate(self, symbols: I32, seeds: U64, words: U64, source: BlockSource, out: Reports) -> None:
        """Send each symbol itself or a sensitive one."""
        other = self.sets.sensitive[mulhi(words[:, 1], self.sets.number).view(np.int64)]
        out.arrays["symbol"][:] = np.where(words[:, 0] < np.uint64(self._sent), symbols, other)

    def valid(self, reports: Reports) -> Bool:
        """Which reports are symbols."""
        symbol = np.asarray(reports.arrays["symbol"], dtype=np.int32)
        good: Bool = (symbol >= 0) & (symbol < self.sets.size)
        return good

    def add(self, reports: Reports, counts: I64) -> None:
        """Add how often each symbol was sent."""
        symbol = np.asarray(reports.arrays["symbol"], dtype=np.int32)
        if self.sets.size <= reports.n:
            counts += np.bincount(symbol, minlength=self.sets.size)
        else:
            np.add.at(counts, symbol, 1)

    def supports(self, n: int, counts: I64) -> Supports:
        """A report supports the symbol that it is."""
        c2, c3 = self._letters()
        base = np.where(self.sets.place >= 0, c2, 0.0)
        return Supports(n=n, counts=counts, base=base, gain=np.full(self.sets.size, c3))

    def covariance(self, supports: Supports, shares: F64) -> tuple[F64, F64]:
        """The counts are multinomial."""
        sent = supports.base + supports.gain * shares
        return sent / (supports.n * supports.gain**2), sent / supports.gain


def _ratio(sent: int, fewest: int) -> Fraction:
    """Largest ratio at a protected output that `fewest` words draw."""
    return 1 + Fraction(sent * WORDS, (WORDS - sent) * fewest)


class URR(UtilityOptimised):
    """uRR: a report is one key; a sensitive one tells little, another one that its user holds it.

    Good for few sensitive keys and large epsilon; near to no privacy cost for the other keys at epsilon = ln(keys).

    Privacy:
        (sensitive keys, reports of sensitive keys, epsilon)-ULDP for the whole record: a user who holds a sensitive key
        enjoys epsilon-LDP; a user who holds none may reveal one of her keys, and that she holds no sensitive one.

    Source:
        Murakami and Kawamoto, section 4.1.
    """

    name: ClassVar[str] = "urr"
    estimators: ClassVar[tuple[str, ...]] = ResponseCore.estimators

    def __init__(self, *, epsilon: Decimal | int | float | str, keys: int, sensitive: Sequence[int]) -> None:
        """Check the parameters and compute the thresholds.

        Args:
            epsilon: privacy budget of one report, in [0.001, 20].
            keys: number of keys of the domain.
            sensitive: indices of the sensitive keys, at least one.

        Raises:
            ParameterError: for a parameter outside what is allowed.
        """
        sets = self._prepare(epsilon, keys, sensitive)
        object.__setattr__(self, "_core", ResponseCore(sets, self.epsilon))
