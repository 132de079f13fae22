"""Utility-optimised local differential privacy: its definition, and the one symbol that a record tells of.

Some symbols are sensitive, the others are not. Outputs fall into *protected* ones and those that reveal one symbol.

    (1) For every protected output y and every two symbols x, x':  Pr[y | x] <= e^epsilon Pr[y | x'].
    (2) Every other output can stem from one symbol only, and that symbol is not sensitive.

Records hold sets of keys, the definition speaks of single symbols. So that it holds for whole records, a record with a
sensitive key tells of one of its *sensitive* keys, drawn uniformly; a record of other keys alone tells of one of them;
and a record of no key tells of a uniformly drawn sensitive symbol. Then, whatever a record holds besides,

* its loss at protected outputs is at most epsilon towards every other record, since a mixture of inputs cannot exceed
  the largest of their ratios;
* an output that is not protected stems only from records without any sensitive key, which hold the key it shows.

Had a key been drawn among all of them, a record {sensitive, other} would show "other" half as often as {other} alone,
a loss of ln 2 however small epsilon is; and an empty record that told of a key without being sensitive would break (2).

Source:
    Murakami, Kawamoto: Utility-Optimized Local Differential Privacy Mechanisms for Distribution Estimation, USENIX
    Security 2019, definition 2. Its records are single symbols; the rule for others is ours.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction

import numpy as np

from ...errors import ParameterError
from ..data import F64, I32, I64, Bool, Records
from ..randomness import U64, mulhi

__all__ = ["SymbolSets", "draw_symbols", "expected_symbols", "sensitive_symbols", "uldp_ratio"]


@dataclass(frozen=True, kw_only=True, eq=False)
class SymbolSets:
    """Which of the symbols 0 to size - 1 are sensitive.

    Attributes:
        size: number of symbols.
        sensitive: the sensitive ones, increasing, int32 (u,), u >= 1.
        place: number of each symbol among the sensitive ones, -1 for the others, int32 (size,).
    """

    size: int
    sensitive: I32
    place: I32

    @classmethod
    def of(cls, size: int, sensitive: Sequence[int] | I32) -> SymbolSets:
        """Return the sets for the given sensitive symbols, which increase."""
        chosen = np.asarray(sensitive, dtype=np.int32)
        place = np.full(size, -1, dtype=np.int32)
        place[chosen] = np.arange(len(chosen), dtype=np.int32)
        return cls(size=size, sensitive=chosen, place=place)

    @property
    def number(self) -> int:
        """Number of sensitive symbols."""
        return len(self.sensitive)

    @property
    def others(self) -> I64:
        """The symbols that are not sensitive, increasing."""
        return np.flatnonzero(self.place < 0)


def sensitive_symbols(name: str, given: object, keys: int, *, may_be_empty: bool = False) -> tuple[int, ...]:
    """Check the indices of sensitive keys, and return them in increasing order.

    Raises:
        ParameterError: unless they are distinct whole numbers from 0 to keys - 1, at least one unless `may_be_empty`.
    """
    if isinstance(given, str | bytes) or not isinstance(given, Sequence | np.ndarray | set | frozenset):
        raise ParameterError(f"sensitive of {name} is {given!r}, but must be a list of key indices.")
    found = list(given)
    for one in found:
        if isinstance(one, bool) or not isinstance(one, int | np.integer) or not 0 <= one < keys:
            raise ParameterError(
                f"sensitive of {name} holds {one!r}, but every sensitive key is an index from 0 to {keys - 1}."
            )
    if len(set(found)) != len(found):
        raise ParameterError(f"sensitive of {name} names a key twice; list every sensitive key once.")
    if not found and not may_be_empty:
        raise ParameterError(
            f"sensitive of {name} is empty: every key would then be sent as it is, without any privacy. List the "
            "sensitive keys; if people differ in what is sensitive to them, use pum, and if you cannot tell, list all."
        )
    return tuple(sorted(int(one) for one in found))


def _eligible(records: Records, sensitive: Bool) -> tuple[Bool, I64]:
    """Which items a record may tell of: its sensitive ones, or all where it has none.

    Args:
        records: canonical records of n users with m items.
        sensitive: which items are sensitive, bool (m,).

    Returns:
        bool (m,), and how many each user has, int64 (n,).
    """
    counts = _within(records, sensitive)
    allowed = sensitive | (np.repeat(counts, records.sizes) == 0)
    return allowed, np.where(counts > 0, counts, records.sizes)


def _within(records: Records, items: Bool) -> I64:
    """How many of the marked items each user holds, int64 (n,)."""
    before = np.zeros(len(items) + 1, dtype=np.int64)
    np.cumsum(items, out=before[1:])
    result: I64 = before[records.offsets[1:]] - before[records.offsets[:-1]]
    return result


def draw_symbols(records: Records, symbols: I32, sets: SymbolSets, words: U64) -> I32:
    """Draw the symbol that each record tells of.

    Args:
        records: canonical records of n users with m items.
        symbols: symbol of each item, int32 (m,); -1 for an item that is sensitive and must not be told.
        sets: which symbols are sensitive.
        words: uniform words, uint64 (n, 2): for the item, and for the symbol of a record that tells of none.

    Returns:
        int32 (n,).

    Privacy:
        Keeps the guarantee of whatever is applied to the symbol; see the module.
    """
    sizes = records.sizes
    if len(symbols) == records.n and bool((sizes == 1).all()):
        drawn = symbols
    else:
        allowed, counts = _eligible(records, (symbols < 0) | (sets.place[symbols] >= 0))
        first = np.zeros(records.n, dtype=np.int64)
        np.cumsum(counts[:-1], out=first[1:])
        chosen = first + mulhi(words[:, 0], counts).view(np.int64)
        drawn = np.full(records.n, -1, dtype=np.int32)
        held = counts > 0
        drawn[held] = symbols[allowed][chosen[held]]
    silent = drawn < 0
    if silent.any():
        some = sets.sensitive[mulhi(words[silent, 1], sets.number).view(np.int64)]
        drawn = drawn.copy() if drawn is symbols else drawn
        drawn[silent] = some
    return drawn


def expected_symbols(records: Records, symbols: I32, sets: SymbolSets) -> tuple[F64, F64]:
    """How much of each user's report each of her items makes up, for comparisons with the truth.

    Returns:
        Weight of each item, float64 (m,), and of the uniform draw, float64 (n,); a user's weights add up to 1.
    """
    allowed, counts = _eligible(records, (symbols < 0) | (sets.place[symbols] >= 0))
    share = 1.0 / np.maximum(counts, 1)
    weight = np.where(allowed, np.repeat(share, records.sizes), 0.0)
    silent = _within(records, allowed & (symbols < 0)) * share
    return np.where(symbols < 0, 0.0, weight), np.where(counts > 0, silent, 1.0)


def uldp_ratio(
    channel: Sequence[Mapping[object, Fraction]], sensitive: Sequence[int], protected: Sequence[object]
) -> Fraction:
    """Check both conditions of the definition on a channel, and return the largest ratio of the first one.

    Args:
        channel: for each input the probability of each output.
        sensitive: numbers of the sensitive inputs.
        protected: the protected outputs.

    Returns:
        The largest Pr[y | x] / Pr[y | x'] over protected y and all x, x': e^epsilon of the first condition.

    Raises:
        ValueError: where a condition does not hold: the ratio has no bound, or another output can stem from several
            inputs, from a sensitive one, or from none.
    """
    outputs = dict.fromkeys(y for row in channel for y in row)  # in a fixed order, so that messages are alike
    allowed = set(protected)
    ratio = Fraction(1)
    for y in outputs:
        chances = [row.get(y, Fraction(0)) for row in channel]
        if y in allowed:
            if min(chances) <= 0:
                raise ValueError(f"the protected output {y!r} is impossible for some input: the loss has no bound")
            ratio = max(ratio, max(chances) / min(chances))
            continue
        causes = [x for x, chance in enumerate(chances) if chance > 0]
        if len(causes) > 1 or causes[:1] == [] or causes[0] in set(sensitive):
            raise ValueError(f"the output {y!r} is not protected, but stems from the inputs {causes}")
    return ratio
