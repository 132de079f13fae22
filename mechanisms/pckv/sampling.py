"""The client's first steps in both PCKV mechanisms: one pair or dummy a user, its sign, and its fate.

Source:
    PCKV, algorithm 1 (padding and sampling) and the key and sign steps of algorithms 2 and 3.
"""

from __future__ import annotations

from dataclasses import dataclass
from types import ModuleType
from typing import Final

import numpy as np
import numpy.typing as npt

from .. import compiled
from ..data import I64, VALUE_ONE, Bool, Records
from ..randomness import U64, mulhi
from .budget import Law

__all__ = ["Sample", "check_records", "has_no_choice", "sample"]

#: A word's upper bits decide a value's sign with the resolution of the values, 2^41 steps from -1 to 1.
_VALUE_SHIFT: Final = np.uint64(64 - 41)
_ONE: Final = np.uint64(1)


@dataclass(frozen=True, kw_only=True, eq=False)
class Sample:
    """What was drawn for n users, (n,) each.

    Attributes:
        key: index of the sampled key; any number where a dummy was sampled.
        real: whether a pair was sampled and not a dummy; None if all were.
        kept: whether the sampled key is to be reported.
        plus: sign to report with the sampled key.
        coin: a fair coin, independent of all others; None where it was not asked for.
    """

    key: npt.NDArray[np.int32]
    real: Bool | None
    kept: Bool
    plus: Bool
    coin: Bool | None


def check_records(records: Records, keys: int, *, has_values: bool = True) -> None:
    """Refuse records that the privacy proof does not speak about.

    Args:
        records: what a mechanism was given.
        keys: size of the key domain.
        has_values: whether every pair must have a value.

    Raises:
        ValueError: for a key outside 0 to keys - 1, keys of a user that are not strictly increasing (a key
            held twice would be sampled twice as often), or missing values.
    """
    held = records.keys
    if has_values and records.values is None:
        raise ValueError("records of a key-value collection need values")
    if not records.one_each and bool((records.sizes < 0).any()):
        raise ValueError("offsets must not decrease")
    if not len(held):
        return
    if int(held.min()) < 0 or int(held.max()) >= keys:
        raise ValueError(f"keys must lie in 0 to {keys - 1}, not {int(held.min())} to {int(held.max())}")
    if not records.one_each and int(records.sizes.max()) > 1:
        rising = held[1:] > held[:-1]
        ends = records.offsets[1:-1] - 1
        rising[ends[(ends >= 0) & (ends < len(rising))]] = True
        if not rising.all():
            raise ValueError("the keys of a user must be strictly increasing; make records canonical first")


def has_no_choice(records: Records, padding: int) -> bool:
    """Whether every user has one slot, so that none need be drawn."""
    return padding == 1 and records.one_each


def _pick(records: Records, padding: int, blocks: U64) -> tuple[I64 | None, Bool | None]:
    """Draw each user's slot: the pair's index (None: that of the user) and where it is real (None: all)."""
    if has_no_choice(records, padding):
        return None, None
    sizes = records.sizes
    slot = mulhi(blocks[1, :, 0], np.maximum(sizes, padding)).view(np.int64)
    real = slot < sizes
    slot += records.offsets[:-1]
    slot[~real] = 0
    return slot, real


def sample(records: Records, padding: int, law: Law, blocks: U64, *, coins: bool = True) -> Sample:
    """Sample, discretise and perturb one pair a user.

    Args:
        records: canonical records with values.
        padding: length to which short records are padded.
        law: thresholds of the mechanism.
        blocks: a user's own blocks, uint64 (2, n, 2): words for the sign and a coin; the fate of the sampled key;
            the slot. The second block is not looked at where nobody has a choice of slots.
        coins: whether coins are needed.

    Returns:
        One draw a user. A dummy has value 0, so that its sign is a fair coin whatever its fate.
    """
    signs, fates = blocks[0, :, 0], blocks[0, :, 1]
    keys, values = records.keys, records.values
    if not len(keys) or values is None:
        keys, values = np.zeros(1, np.int32), np.zeros(1, np.int64)
    if (loops := compiled.loops(records.n)) is not None:
        return _sample_compiled(loops, records, keys, values, padding, law, blocks)
    pair, real = _pick(records, padding, blocks)
    key = keys if pair is None else keys[pair]
    value = (values if pair is None else values[pair]) + VALUE_ONE
    if real is not None:
        value[~real] = VALUE_ONE
    plus = (signs >> _VALUE_SHIFT).view(np.int64) < value
    plus ^= fates >= np.uint64(law.same)
    coin = (signs & _ONE) != 0 if coins else None
    return Sample(key=key, real=real, kept=fates < np.uint64(law.kept), plus=plus, coin=coin)


def _sample_compiled(
    loops: ModuleType,
    records: Records,
    keys: npt.NDArray[np.int32],
    values: I64,
    padding: int,
    law: Law,
    blocks: U64,
) -> Sample:
    """Do the same in one pass, or two where there is a choice."""
    n = records.n
    key, value, real = np.ascontiguousarray(keys), np.ascontiguousarray(values), None
    if not has_no_choice(records, padding):
        offsets, all_keys, all_values = records.offsets, key, value
        key, value, real = np.empty(n, np.int32), np.empty(n, np.int64), np.empty(n, np.bool_)
        loops.pick(offsets, all_keys, all_values, blocks[1], np.uint64(padding), key, value, real)
    kept, plus, coin = (np.empty(n, np.bool_) for _ in range(3))
    loops.fates(value, blocks[0], np.uint64(law.same), np.uint64(law.kept), kept, plus, coin)
    return Sample(key=key, real=real, kept=kept, plus=plus, coin=coin)
