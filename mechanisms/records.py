"""From people's pairs to canonical records: fixed-point values, one pair a user and key, sorted keys.

The canonical record enters the label of a user's random bits, so it must not depend on the order, the file
or the engine that the pairs came through. All averaging is in integers for that reason.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Final

import numpy as np
import numpy.typing as npt

from ..errors import InputError
from .data import I16, I32, I64, U8, VALUE_ONE, Records
from .randomness import UserDigests

__all__ = ["canonical_pairs", "digest_ids", "make_records", "merge_tags", "to_fixed"]

#: So many values of [-1, 1] may be summed in 64 bits.
_SUMMABLE: Final = 1 << 22


def to_fixed(values: npt.ArrayLike, low: float, high: float) -> I64:
    """Map values of [low, high] to fixed-point integers: [-1, 1] times 2^40, halves to even.

    Args:
        values: finite numbers of [low, high], any shape; check before.
        low: lower end of the declared range.
        high: upper end, above `low`.
    """
    raw = np.asarray(values, dtype=np.float64)
    fixed: I64 = np.rint((2.0 * (raw - low) / (high - low) - 1.0) * VALUE_ONE).astype(np.int64)
    return fixed


def canonical_pairs(
    user: npt.NDArray[np.integer], keys: I32, values: I64 | None, users: int
) -> tuple[I64, I32, I64 | None]:
    """Sort pairs by user and key and average the values of equal ones, halves to even.

    Args:
        user: number of the user of each pair, 0 to users - 1, any integer type, (m,).
        keys: key indices from 0, int32 (m,).
        values: fixed-point values, int64 (m,), or None.
        users: number of users.

    Returns:
        Offsets int64 (users + 1,), keys int32 and values int64, as `Records` wants them. Arrays that are in
        order already are returned as they are.
    """
    owner = user.astype(np.int64, copy=False)
    if not _in_order(owner, keys):
        owner, keys, values = _merge(owner, keys, values)
    offsets = np.zeros(users + 1, dtype=np.int64)
    np.cumsum(np.bincount(owner, minlength=users), out=offsets[1:])
    return offsets, keys, values


def _in_order(owner: I64, keys: I32) -> bool:
    """Whether users never decrease and keys strictly increase within a user."""
    step = owner[1:] - owner[:-1]
    if len(step) and int(step.min()) > 0:
        return True
    rising = (step > 0) | ((step == 0) & (keys[1:] > keys[:-1]))
    return bool(rising.all())


def _merge(owner: I64, keys: I32, values: I64 | None) -> tuple[I64, I32, I64 | None]:
    span = int(keys.max()) + 1
    place = owner * span + keys
    if values is None:
        place = np.unique(place)
        return place // span, (place % span).astype(np.int32), None
    order = np.argsort(place, kind="stable")
    place, values = place[order], values[order]
    first = np.flatnonzero(np.concatenate(([True], place[1:] != place[:-1])))
    place = place[first]
    repeats = np.diff(first, append=len(values))
    if int(repeats.max()) > 1:
        values = _average(values, first, repeats)
    return place // span, (place % span).astype(np.int32), values


def _average(values: I64, first: I64, repeats: I64) -> I64:
    """Mean of each run of values, in integers, halves to even."""
    sums = np.add.reduceat(values, first)
    whole, rest = np.divmod(sums, repeats)
    twice = 2 * rest
    whole += (twice > repeats) | ((twice == repeats) & (whole & 1 == 1))
    for run in np.flatnonzero(repeats > _SUMMABLE):  # sums that 64 bits might not hold
        stop = first[run] + repeats[run]
        whole[run] = _exact_average(values[first[run] : stop])
    return whole


def _exact_average(values: I64) -> int:
    total = sum(int(part.sum()) for part in np.array_split(values, -(-len(values) // _SUMMABLE)))
    whole, rest = divmod(total, len(values))
    return whole + (2 * rest > len(values) or (2 * rest == len(values) and whole % 2 == 1))


def merge_tags(places: I64, of: I64, tags: I16) -> I16:
    """Return the tag of each canonical pair: of several the smallest that is named, else -1 before 0.

    Args:
        places: a number for each canonical pair, strictly increasing, (m,).
        of: the number of the pair that each tag belongs to, in any order, (r,); tags of other pairs are left out.
        tags: tags of `Records`, (r,).

    Returns:
        int16 (m,).
    """
    # Minus one, as an unsigned number: named tags come first, then -1, then 0.
    ranks = np.full(len(places), np.iinfo(np.uint16).max, dtype=np.uint16)
    at = np.searchsorted(places, of)
    found = at < len(places)
    found[found] = places[at[found]] == of[found]
    np.minimum.at(ranks, at[found], tags[found].view(np.uint16) - np.uint16(1))
    ranks += np.uint16(1)
    return ranks.view(np.int16)


def digest_ids(digests: UserDigests, ids: Sequence[int] | Sequence[str] | npt.NDArray[np.integer]) -> U8:
    """Digest Python or NumPy user ids; an integer counts as its decimal text.

    Args:
        digests: keyed digests of a secret.
        ids: integers or strings; booleans and floats are refused.

    Returns:
        uint8 (n, 16).

    Raises:
        InputError: for ids of another type.
    """
    if isinstance(ids, np.ndarray) and ids.dtype.kind in "iu":
        return digests.integers(ids)
    texts = [_id_text(one) for one in ids]
    raw = [text.encode("utf-8") for text in texts]
    offsets = np.zeros(len(raw) + 1, dtype=np.int64)
    np.cumsum([len(text) for text in raw], out=offsets[1:])
    return digests.text(offsets, np.frombuffer(b"".join(raw), dtype=np.uint8))


def _id_text(one: object) -> str:
    if isinstance(one, str):
        return str(one)
    if isinstance(one, int | np.integer) and not isinstance(one, bool):
        return str(int(one))
    raise InputError(f"A user id is {one!r}, but ids are texts or whole numbers; convert it to a text first.")


def make_records(
    digests: UserDigests,
    ids: Sequence[int] | Sequence[str] | npt.NDArray[np.integer],
    items: Iterable[Mapping[int, float] | Iterable[tuple[int, float]]],
    *,
    low: float = -1.0,
    high: float = 1.0,
) -> Records:
    """Build canonical records from Python data, for clients and scripts without Beam.

    Args:
        digests: `secret.users()`.
        ids: one id a user.
        items: for each user the pairs of key index and value, as a mapping or as tuples; repeated keys are
            averaged.
        low: lower end of the values' range.
        high: upper end.

    Raises:
        InputError: for numbers of ids and items that differ, or a value that is not in [low, high].
    """
    pairs = [list(one.items() if isinstance(one, Mapping) else one) for one in items]
    users = digest_ids(digests, ids)
    if len(pairs) != len(users):
        raise InputError(f"There are {len(users)} user ids but {len(pairs)} records; give one record for each id.")
    owner = np.repeat(np.arange(len(pairs)), [len(one) for one in pairs])
    keys = np.array([key for one in pairs for key, _ in one], dtype=np.int32)
    raw = np.array([value for one in pairs for _, value in one], dtype=np.float64)
    if not bool(((raw >= low) & (raw <= high)).all()):
        wrong = float(raw[~((raw >= low) & (raw <= high))][0])
        raise InputError(f"A value is {wrong!r}, but the range is {low!r} to {high!r}; drop or clip it first.")
    offsets, keys, values = canonical_pairs(owner, keys, to_fixed(raw, low, high), len(pairs))
    return Records(users=users, offsets=offsets, keys=keys, values=values)
