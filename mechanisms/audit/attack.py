"""The statistical audit: an attack on the client's real code that bounds epsilon from below.

Reports of many users who hold one of a few extreme records are made by `perturb` itself. The first half is looked
at freely for the pair of records and the set of reports whose probabilities differ most (one part of it ranks the
reports, the other weighs the sets, so that the search does not fit noise); the second half, which that choice has not
seen, gives exact binomial (Clopper-Pearson) bounds of both probabilities:

    epsilon >= ln(lower bound of Pr[set | S] / upper bound of Pr[set | S'])    with the stated confidence.

The attack knows no formula of the mechanism: what it compares are whole reports, single cells, sums of cells,
values of fields, the keys that a report speaks for, and the length of a report in bytes.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from decimal import Decimal
from typing import Any, Final, Protocol

import numpy as np
import numpy.typing as npt

from ...errors import InputError
from ..data import I64, VALUE_ONE, Field, Records, Reports
from ..randomness import Secret, Stream

__all__ = ["CONFIDENCE", "Attack", "Attacked", "attack", "clopper_pearson"]

#: Confidence of the lower bound: a healthy mechanism is accused in one audit of a hundred thousand at most.
CONFIDENCE: Final = 0.99999
_LEAST: Final = 1_000
#: Bytes of reports that are made together.
_BATCH_BYTES: Final = 1 << 25
#: Fields of more different values than this are compared only where they name a watched key.
_VALUES_MAX: Final = 1 << 14
#: Whole reports are compared where there are so few different ones.
_WHOLE_MAX: Final = 1 << 10
_WHOLE: Final = "the whole report"
#: Reports times keys, up to which it is looked up for which keys each report speaks.
_SUPPORTS_MAX: Final = 1 << 26

#: Numbers of reports by record, feature and outcome.
Seen = dict[str, dict[str, dict[int, int]]]


class Attacked(Protocol):
    """What is attacked: the client half of a mechanism, or a client that answers several rounds."""

    @property
    def epsilon(self) -> Decimal:
        """Declared budget."""
        ...

    @property
    def keys(self) -> int:
        """Size of the domain."""
        ...

    @property
    def has_values(self) -> bool:
        """Whether records carry values."""
        ...

    def layout(self) -> tuple[Field, ...]:
        """Arrays of a report."""
        ...

    def perturb(self, records: Records, stream: Stream) -> Reports:
        """Perturb a batch."""
        ...


@dataclass(frozen=True, kw_only=True)
class Attack:
    """What the attack found.

    Attributes:
        epsilon_low: epsilon is at least this, with the stated confidence.
        confidence: probability that a mechanism of this epsilon is not accused.
        declared: the declared epsilon.
        reports: reports a record in the half that decides.
        records: the two records, in words.
        event: the set of reports, in words.
        shares: observed shares of the set under both records.
    """

    epsilon_low: float
    confidence: float
    declared: float
    reports: int
    records: tuple[str, str]
    event: str
    shares: tuple[float, float]

    @property
    def violation(self) -> bool:
        """Whether the mechanism spends more than it declares."""
        return self.epsilon_low > self.declared

    def as_json(self) -> dict[str, Any]:
        """Return the figures for people and programs."""
        return {
            "epsilon_lower_bound": self.epsilon_low,
            "confidence": self.confidence,
            "violation": self.violation,
            "reports_per_record": self.reports,
            "records": list(self.records),
            "event": self.event,
            "shares": list(self.shares),
        }


def attack(
    mechanism: Attacked, reports: int, *, secret: Secret | None = None, confidence: float = CONFIDENCE
) -> Attack:
    """Attack a mechanism's client code.

    Args:
        mechanism: its `perturb` is run on real records through a real stream; of rounds a `transcript.Transcript`.
        reports: reports a record in each half, at least 1,000.
        secret: of the stream; a fresh one by default.
        confidence: of the lower bound.

    Raises:
        InputError: for too few reports.
    """
    if reports < _LEAST:
        raise InputError(f"{reports} reports tell nothing; the statistical audit needs at least {_LEAST:,} a record.")
    stream = (secret or Secret.new()).stream(fingerprint="statistical audit")
    users = Secret.new().users()
    candidates = extreme_records(mechanism)
    watched = sorted({key for record in candidates.values() for key, _ in (record[:1] + record[-1:])})
    ranked, weighed = {}, {}
    for place, (name, record) in enumerate(candidates.items()):
        digests = users.integers(np.arange(reports) + place * reports)
        ranked[name] = _observe(mechanism, record, digests[::2], stream, watched)
        weighed[name] = _observe(mechanism, record, digests[1::2], stream, watched)
    first, second, feature, event = _best_event(ranked, weighed, reports, confidence)
    counts = []
    for place, name in enumerate((first, second)):
        digests = users.integers(np.arange(reports) + (len(candidates) + place) * reports)
        fresh = _observe(mechanism, candidates[name], digests, stream, watched)[feature]
        counts.append(sum(fresh.get(value, 0) for value in event))
    low = clopper_pearson(counts[0], reports, confidence)[0]
    high = clopper_pearson(counts[1], reports, confidence)[1]
    return Attack(
        epsilon_low=max(0.0, math.log(low / high)) if low > 0 else 0.0,
        confidence=confidence,
        declared=float(mechanism.epsilon),
        reports=reports,
        records=(first, second),
        event=f"{feature} is one of {len(event)} outcomes",
        shares=(counts[0] / reports, counts[1] / reports),
    )


# -- records that lie as far apart as any -----------------------------------------------------------------------


def extreme_records(mechanism: Attacked) -> dict[str, tuple[tuple[int, int], ...]]:
    """Return records by name: nobody's, one key with either sign, as many keys as the padding, one more, others."""
    told, padding = _told_keys(mechanism), int(getattr(mechanism, "padding", 1))
    keys = len(told)
    signs = (VALUE_ONE, -VALUE_ONE) if mechanism.has_values else (0,)
    found: dict[str, tuple[tuple[int, int], ...]] = {"no key": ()}
    for size in sorted({1, min(padding, keys), min(padding + 1, keys)}):
        for sign, word in zip(signs, (" at the upper end", " at the lower end"), strict=False):
            shown = word if mechanism.has_values else ""
            found[f"{_some('first', size)}{shown}"] = tuple((key, sign) for key in told[:size])
        if 2 * size <= keys:
            found[_some("last", size)] = tuple((key, signs[0]) for key in told[keys - size :])
    return found


def _told_keys(mechanism: Attacked) -> tuple[int, ...]:
    """Keys whose holders must not be told apart: of utility-optimised mechanisms the sensitive ones alone.

    Where every user says herself what is sensitive, by tags, all keys are tagged here.
    """
    sensitive: tuple[int, ...] = getattr(mechanism, "sensitive", ())
    return sensitive if sensitive and not hasattr(mechanism, "tags") else tuple(range(mechanism.keys))


def _some(which: str, size: int) -> str:
    return f"the {which} key" if size == 1 else f"the {which} {size} keys"


def _copies(mechanism: Attacked, record: tuple[tuple[int, int], ...], users: npt.NDArray[np.uint8]) -> Records:
    n = len(users)
    tags = len(getattr(mechanism, "tags", ()))
    return Records(
        users=users,
        offsets=np.arange(n + 1, dtype=np.int64) * len(record),
        keys=np.tile(np.array([key for key, _ in record], np.int32), n),
        values=np.tile(np.array([value for _, value in record], np.int64), n) if mechanism.has_values else None,
        tags=np.tile(np.array([1 + key % tags for key, _ in record], np.int16), n) if tags else None,
    )


# -- what an observer sees of a report ------------------------------------------------------------------------------


def _observe(
    mechanism: Attacked,
    record: tuple[tuple[int, int], ...],
    users: npt.NDArray[np.uint8],
    stream: Stream,
    watched: list[int],
) -> dict[str, dict[int, int]]:
    """Number of reports by feature and outcome."""
    size = max(1, sum(np.dtype(part.dtype).itemsize * max(part.width, 1) for part in mechanism.layout()))
    batch = max(1024, _BATCH_BYTES // (8 * size))
    total: dict[str, dict[int, int]] = {}
    for start in range(0, len(users), batch):
        made = mechanism.perturb(_copies(mechanism, record, users[start : start + batch]), stream)
        for name, codes in _seen(mechanism, made, watched):
            values, numbers = np.unique(codes, return_counts=True)
            if name == _WHOLE and len(values) > min(_WHOLE_MAX, len(users) // 500):
                continue  # with many outcomes the search would fit noise
            counter = total.setdefault(name, {})
            for value, number in zip(values.tolist(), numbers.tolist(), strict=True):
                counter[value] = counter.get(value, 0) + number
    return total


def _seen(mechanism: Attacked, reports: Reports, watched: list[int]) -> Iterator[tuple[str, I64]]:
    """Yield what an observer may look at: what a client of rounds says itself, or what any report shows."""
    own: Callable[[Reports], Iterator[tuple[str, I64]]] | None = getattr(mechanism, "features", None)
    if own is not None:
        return own(reports)
    return itertools.chain(_features(reports, mechanism.keys, watched), _supports(mechanism, reports, watched))


def _features(reports: Reports, keys: int, watched: list[int]) -> Iterator[tuple[str, I64]]:
    """Yield what can be read off each report as integers, (n,) each."""
    yield "the length in bytes", _lengths(reports)
    planes = {n: a for n, a in reports.arrays.items() if a.ndim == 2 and a.dtype == np.uint8 and 8 * a.shape[1] >= keys}
    fields = {n: a for n, a in reports.arrays.items() if a.ndim == 1 and a.dtype != object}
    if planes:
        sums = [np.bitwise_count(plane).sum(axis=1, dtype=np.int64) for plane in planes.values()]
        yield "the number of set cells", _joint(sums)
        for place, one in enumerate(sums):
            yield f"the number of set cells of plane {place}", one
        states = {key: _joint([_bit(plane, key) for plane in planes.values()]) for key in watched}
        for key, state in states.items():
            yield f"the cell of key {key}", state
        for one_key, other_key in itertools.combinations(states, 2):
            yield f"the cells of keys {one_key} and {other_key}", states[one_key] * 64 + states[other_key]
    if fields:
        narrow = [array.astype(np.int64) for array in fields.values()]
        for name, array in zip(fields, narrow, strict=True):
            yield f"the field {name}", _reduced(array, keys, watched)
        yield "all fields", _joint([_reduced(array, keys, watched) for array in narrow])
    if reports.n and int(_lengths(reports)[0]) <= 8 and not any(a.dtype == object for a in reports.arrays.values()):
        yield _WHOLE, _whole(reports)


def _supports(mechanism: Attacked, reports: Reports, watched: list[int]) -> Iterator[tuple[str, I64]]:
    """Yield which watched keys a report speaks for, where the mechanism can tell (hash functions, rows)."""
    supported = getattr(mechanism, "supported", None)
    if supported is not None and reports.n * mechanism.keys <= _SUPPORTS_MAX:
        held = supported(reports)
        yield f"the support of keys {', '.join(map(str, watched))}", _joint([held[:, key] for key in watched])


def _lengths(reports: Reports) -> I64:
    total = np.zeros(reports.n, dtype=np.int64)
    for array in reports.arrays.values():
        if array.dtype == object:
            total += np.array([len(one) for one in array.tolist()], dtype=np.int64)
        else:
            total += array.dtype.itemsize * math.prod(array.shape[1:])
    return total


def _whole(reports: Reports) -> I64:
    """Reports of up to 8 bytes as one number each."""
    rows = np.zeros((reports.n, 8), dtype=np.uint8)
    start = 0
    for _, array in sorted(reports.arrays.items()):
        part = np.ascontiguousarray(array).view(np.uint8).reshape(reports.n, -1)
        rows[:, start : start + part.shape[1]] = part
        start += part.shape[1]
    codes: I64 = rows.view("<i8").reshape(-1)
    return codes


def _bit(plane: npt.NDArray[Any], key: int) -> I64:
    bits: I64 = (plane[:, key >> 3] >> (key & 7) & 1).astype(np.int64)
    return bits


def _joint(codes: list[I64]) -> I64:
    total = np.zeros(len(codes[0]), dtype=np.int64)
    for code in codes:
        total = total * 1_000_003 + code
    return total


def _reduced(array: I64, keys: int, watched: list[int]) -> I64:
    """Leave fields of few values as they are; of others keep watched keys and dummies apart from the rest."""
    if keys <= _VALUES_MAX and (not len(array) or int(np.abs(array).max()) <= 2 * _VALUES_MAX):
        return array
    known = np.isin(array, [*watched, keys, -1, 0, 1])
    return np.where(known, array, np.int64(-2))


# -- choosing and bounding ---------------------------------------------------------------------------------------------


def _best_event(ranked: Seen, weighed: Seen, n: int, confidence: float) -> tuple[str, str, str, frozenset[int]]:
    """Return the pair of records, the feature, and the set of outcomes that promise the largest bound.

    Some reports rank the outcomes, others weigh the sets that this makes: an order that fits the noise of the first
    promises nothing among the second.
    """
    deviations = _normal_quantile(confidence)
    best: tuple[float, tuple[str, str, str, frozenset[int]]] | None = None
    for first, second in itertools.permutations(ranked, 2):
        tables = (ranked[first], ranked[second], weighed[first], weighed[second])
        for feature in sorted(set.intersection(*map(set, tables))):
            values = sorted(set[int]().union(*(table[feature] for table in tables)))
            a, b, c, d = (np.array([table[feature].get(value, 0) for value in values], float) for table in tables)
            order = np.argsort(-(a + 0.5) / (b + 0.5), kind="stable")
            above, below = np.cumsum(c[order]), np.cumsum(d[order])
            spread = np.sqrt(1 / (above + 1) + 1 / (below + 1))
            promise = np.log((above + 1e-9) / (below + 1)) - deviations * spread
            at = int(np.argmax(promise))
            if best is None or promise[at] > best[0]:
                best = (
                    float(promise[at]),
                    (first, second, feature, frozenset(values[place] for place in order[: at + 1])),
                )
    if best is None:
        raise InputError(f"{n} reports show nothing that two records have in common.")
    return best[1]


def _normal_quantile(confidence: float) -> float:
    """Rough quantile of the normal law, which only steers the search."""
    return math.sqrt(-2 * math.log((1 - confidence) / 2))


def clopper_pearson(successes: int, trials: int, confidence: float) -> tuple[float, float]:
    """Return exact binomial bounds of a probability, each of which fails with probability (1 - confidence) / 2.

    Args:
        successes: how often it happened.
        trials: out of how many.
        confidence: of both bounds together.
    """
    tail = (1 - confidence) / 2
    # Pr[X >= k | p] = I_p(k, n - k + 1) rises in p: the lower bound makes it `tail`, the upper one its opposite.
    low = 0.0 if successes == 0 else _root(lambda p: _beta(p, successes, trials - successes + 1) > tail)
    high = 1.0 if successes == trials else _root(lambda p: _beta(p, successes + 1, trials - successes) > 1 - tail)
    return low, high


def _root(above: Callable[[float], bool]) -> float:
    low, high = 0.0, 1.0
    for _ in range(60):
        middle = (low + high) / 2
        low, high = (low, middle) if above(middle) else (middle, high)
    return (low + high) / 2


def _beta(x: float, a: float, b: float) -> float:
    """Regularised incomplete beta function by its continued fraction."""
    if x <= 0 or x >= 1:
        return float(x >= 1)
    front = math.exp(math.lgamma(a + b) - math.lgamma(a) - math.lgamma(b) + a * math.log(x) + b * math.log1p(-x))
    if x > (a + 1) / (a + b + 2):
        return 1 - front * _fraction(1 - x, b, a) / b
    return front * _fraction(x, a, b) / a


def _fraction(x: float, a: float, b: float) -> float:
    """Lentz's evaluation of the continued fraction of the incomplete beta function."""
    tiny = 1e-300
    c, d = 1.0, 1 - (a + b) * x / (a + 1)
    d = 1 / (d if abs(d) > tiny else tiny)
    value = d
    for m in range(1, 100_000):
        for term in (
            m * (b - m) * x / ((a + 2 * m - 1) * (a + 2 * m)),
            -(a + m) * (a + b + m) * x / ((a + 2 * m) * (a + 2 * m + 1)),
        ):
            d = 1 + term * d
            d = 1 / (d if abs(d) > tiny else tiny)
            c = 1 + term / c
            c = c if abs(c) > tiny else tiny
            value *= c * d
        if abs(c * d - 1) < 1e-15:
            break
    return value
