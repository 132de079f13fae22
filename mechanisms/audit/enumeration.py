"""The output distribution of a mechanism, derived from its real client code by feeding it chosen words.

`perturb` is a function of a record and of uniform 64-bit words, and constant while each word stays between two
neighbouring thresholds. So one run for each combination of such pieces, weighted by their exact lengths, gives
the whole distribution of the reports, as fractions. Each combination is run at both ends of its pieces and
inside them, and all words that the mechanism claims not to use are filled anew each time: a threshold that is
off by one, or a word that is used twice, shows as reports that differ within one combination.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from types import MappingProxyType
from typing import Final, cast

import numpy as np
import numpy.typing as npt

from ..attributes import Attributes
from ..categorical.subset_selection import FIRST_DRAW
from ..data import I64, U8, VALUE_ONE, Bool, Records, Reports
from ..privkv.rounds import MultiRound
from ..probability import WORDS
from ..protocol import Mechanism
from ..randomness import U64, BlockSource, Secret, Stream
from ..repeated import Repeated
from ..uldp.core import UtilityOptimised
from ..uldp.pum import PUM
from ..unary import PLANES, row_words
from ..values.meanest import DRAW_BITS, FIRST_VALUE

__all__ = [
    "COMBINATIONS_MAX",
    "PIECES",
    "Piece",
    "Record",
    "Word",
    "combinations",
    "derive",
    "enumerated_ratio",
    "extreme_records",
    "report_bytes",
]

#: A record as ((key, value), …), values in fixed point, keys rising.
Record = tuple[tuple[int, int], ...]

#: Domains of more keys are not enumerated.
KEYS_MAX: Final = 6
#: So many combinations are run at most, over all records.
COMBINATIONS_MAX: Final = 60_000

_USER: Final = 40  # users stand from this bit of the seeds on, counters below and in the top bit
_TIE: Final = 1 << 63
_FILLS: Final = 3


@dataclass(frozen=True)
class Piece:
    """Words low to high - 1, every `step`-th: the report does not depend on which of them is drawn."""

    low: int
    high: int
    step: int = 1

    @property
    def share(self) -> Fraction:
        """Probability of the piece."""
        return Fraction(self._count, WORDS)

    @property
    def _count(self) -> int:
        return -(-(self.high - self.low) // self.step)

    def words(self) -> tuple[int, int, int]:
        """Both ends of the piece and a word inside."""
        last = self._count - 1
        return self.low, self.low + last * self.step, self.low + last * 5 // 8 * self.step


@dataclass(frozen=True)
class Word:
    """One word that a mechanism draws, cut where its report may change.

    Attributes:
        place: counter and lane of the word, or ("cell", number) of a cell's noise, or ("sign", number).
        pieces: cover all words.
        given: the word is sent along, so that the law is derived for one value of it at a time: there is one piece.
    """

    place: tuple[int | str, int]
    pieces: tuple[Piece, ...]
    given: bool = False

    def __post_init__(self) -> None:
        if not self.given and sum(piece.share for piece in self.pieces) != 1:
            raise ValueError(f"the pieces of {self.place} do not cover all words once")


def cut(*edges: int) -> tuple[Piece, ...]:
    """Return the pieces between 0, the edges and 2^64, without empty ones."""
    ends = sorted({0, WORDS, *(min(max(edge, 0), WORDS) for edge in edges)})
    return tuple(Piece(low, high) for low, high in itertools.pairwise(ends))


def drawn(bound: int) -> tuple[Piece, ...]:
    """Return the pieces of an integer drawn by multiplication: 0 to bound - 1."""
    return cut(*(-(-(number << 64) // bound) for number in range(1, bound)))


def _with_coin(pieces: tuple[Piece, ...]) -> tuple[Piece, ...]:
    """Split pieces by their lowest bit, which serves as a coin."""
    return tuple(Piece(piece.low + bit, piece.high, 2) for piece in pieces for bit in (0, 1))


class _Planted(BlockSource):
    """A block function whose words were chosen beforehand; everything else is filled by AES."""

    __slots__ = ("_cells", "_words")

    def __init__(self, words: Mapping[tuple[int, int], U64], cells: dict[str, U64], fill: bytes) -> None:
        super().__init__(fill)
        self._words, self._cells = words, cells

    def fill(self, inputs: U64, out: U64) -> None:
        given = inputs.reshape(-1, 2).copy()
        super().fill(inputs, out)
        self._plant(0, given, out.reshape(-1, 2))

    def fill_plane(self, plane: int, inputs: memoryview, out: memoryview) -> None:
        given = np.frombuffer(bytes(inputs), dtype="<u8").reshape(-1, 2)
        super().fill_plane(plane, inputs, out)
        self._plant(plane, given, np.frombuffer(out[: len(inputs)], dtype="<u8").reshape(-1, 2))

    def _plant(self, plane: int, given: U64, target: U64) -> None:
        user = (given[:, 0] & np.uint64(_TIE - 1)) >> np.uint64(_USER)
        counter = given[:, 0] & np.uint64(_TIE | ((1 << _USER) - 1))
        for at in np.unique(counter).tolist():
            rows = counter == at
            for lane in (0, 1):
                words = self._words.get((at, lane)) if plane == 0 else None
                if words is None:
                    words = self._noise(plane, at, lane)
                if words is not None:
                    target[rows, lane] = words[user[rows]]

    def _noise(self, plane: int, counter: int, lane: int) -> U64 | None:
        """Words of the bit planes and ties that give every cell its chosen number and sign."""
        numbers = self._cells.get("cell")
        if numbers is None:
            return None
        if counter & _TIE:
            cell = counter & (_TIE - 1)
            fits = lane == 0 and cell < numbers.shape[1]
            return cast(U64, numbers[:, cell] << np.uint64(PLANES)) if fits else None
        if not 1 <= plane <= PLANES + 1:
            return None
        if plane == PLANES + 1:
            return _packed(self._cells["sign"] >> np.uint64(63), 2 * counter + lane)
        bits = ~(numbers >> np.uint64(64 - plane)) & np.uint64(1)  # a plane holds complements
        return _packed(bits, 2 * counter + lane)


def _packed(bits: U64, word: int) -> U64:
    part = bits[:, 64 * word : 64 * word + 64]
    result = np.zeros(len(bits), dtype="<u8")
    for number in range(part.shape[1]):
        result |= part[:, number] << np.uint64(number)
    return result


class _PlantedStream(Stream):
    """A stream that numbers its users instead of digesting them."""

    __slots__ = ("_source",)

    def __init__(self, source: _Planted) -> None:
        super().__init__(bytes(16), bytes(16))
        self._source = source

    def source(self) -> BlockSource:
        return self._source

    def seeds(self, records: Records) -> U64:
        first = records.users[:, :8].copy().view("<u8").reshape(-1)
        seeds: U64 = np.repeat((first << np.uint64(_USER))[:, None], 2, axis=1)
        return np.ascontiguousarray(seeds)


def combinations(words: Sequence[Word]) -> int:
    """Return how many combinations of pieces there are."""
    return math.prod(len(word.pieces) for word in words)


def derive(mechanism: Mechanism, record: Record, words: Sequence[Word]) -> dict[bytes, Fraction]:
    """Derive the distribution of the reports of one record from the client's code.

    Args:
        mechanism: its `perturb` is run.
        record: a true record.
        words: every word that the report depends on.

    Returns:
        Exact probability of every report that is possible, by the report's bytes.

    Raises:
        ValueError: Two runs of one combination gave different reports: the code does not follow the thresholds,
            or uses a word that is not in the list.
    """
    # By combination and word: the number of its piece.
    index = np.indices([len(word.pieces) for word in words]).reshape(len(words), -1)
    runs = [_run(mechanism, record, words, index, which) for which in range(_FILLS)]
    if any(run != runs[0] for run in runs[1:]):
        raise ValueError("the report changes within a piece of the words, so the client does not follow its thresholds")
    law: dict[bytes, Fraction] = {}
    shares = [[Fraction(1) if word.given else piece.share for piece in word.pieces] for word in words]
    for number, report in enumerate(runs[0]):
        share = math.prod((shares[w][index[w, number]] for w in range(len(words))), start=Fraction(1))
        law[report] = law.get(report, Fraction(0)) + share
    return law


def _run(
    mechanism: Mechanism, record: Record, words: Sequence[Word], index: npt.NDArray[np.intp], which: int
) -> list[bytes]:
    n = index.shape[1]
    planted: dict[tuple[int, int], U64] = {}
    # Cells that nothing depends on are filled at random like everything else.
    noise = Secret.new().stream(fingerprint="fill").blocks(np.arange(2 * n, dtype="<u8").reshape(n, 2), 0, 1)
    wide = 64 * row_words(mechanism.keys)
    cells = {name: np.tile(noise[0, :, :1], (1, wide)) for name in ("cell", "sign")}
    for number, word in enumerate(words):
        table = np.array([piece.words()[which] for piece in word.pieces], dtype="<u8")
        kind, at = word.place
        if isinstance(kind, str):
            cells[kind][:, at] = table[index[number]]
        else:
            planted[kind, at] = table[index[number]]
    uses_cells = any(isinstance(word.place[0], str) for word in words)
    fill = Secret.new().users().text(np.array([0, 1]), np.zeros(1, np.uint8)).tobytes()
    source = _Planted(planted, cells if uses_cells else {}, fill)
    return report_bytes(mechanism.perturb(_copies(mechanism, record, n), _PlantedStream(source)))


def _copies(mechanism: Mechanism, record: Record, n: int) -> Records:
    users = np.zeros((n, 2), dtype="<u8")
    users[:, 0] = np.arange(n)
    keys = np.tile(np.array([key for key, _ in record], np.int32), n)
    values = np.tile(np.array([value for _, value in record], np.int64), n)
    return Records(
        users=users.view(np.uint8),
        offsets=np.arange(n + 1, dtype=np.int64) * len(record),
        keys=keys,
        values=values if mechanism.has_values else None,
        tags=values.astype(np.int16) if isinstance(mechanism, PUM) else None,
    )


def report_bytes(reports: Reports) -> list[bytes]:
    """Return every report as bytes, its arrays in order of their names."""
    parts = [
        np.ascontiguousarray(array).view(np.uint8).reshape(reports.n, -1) if reports.n else np.zeros((0, 1), np.uint8)
        for _, array in sorted(reports.arrays.items())
    ]
    return [row.tobytes() for row in np.concatenate(parts, axis=1)]


# -- which words the mechanisms draw ------------------------------------------------------------------------------


def _sign(*values: int) -> tuple[Piece, ...]:
    """A value v is +1 below (v + 1) 2^63, of which 2^23 words are alike."""
    return cut(*((value + VALUE_ONE) << 23 for value in values))


def _any_sign(record: Record) -> tuple[Piece, ...]:
    return _sign(0, *(value for _, value in record))


def _pckv_words(mechanism: Mechanism, record: Record, *, coin: bool) -> list[Word]:
    t = mechanism.thresholds()
    padding = int(getattr(mechanism, "padding"))  # noqa: B009 - a parameter of one family
    sign = _any_sign(record)
    return [
        Word((1, 0), drawn(max(len(record), padding))),
        Word((0, 0), _with_coin(sign) if coin else sign),
        Word((0, 1), cut(t["kept_with_sign"], t["kept"])),
    ]


def _pckv_ue(mechanism: Mechanism, record: Record) -> list[Word]:
    other = mechanism.thresholds()["other"]
    noise = [
        Word((kind, cell), pieces)
        for cell in range(mechanism.keys)
        for kind, pieces in (("cell", cut(other)), ("sign", cut(1 << 63)))
    ]
    return [*_pckv_words(mechanism, record, coin=False), *noise]


def _pckv_grr(mechanism: Mechanism, record: Record) -> list[Word]:
    others = mechanism.thresholds()["other_keys"]
    return [*_pckv_words(mechanism, record, coin=True), Word((1, 1), drawn(others))]


def _symbol(mechanism: Mechanism, record: Record, block: int = 0) -> Word:
    """The word that draws a record's slot, or one of its keys, or any symbol where it has none."""
    padding = getattr(mechanism, "padding", None)
    return Word((block, 0), drawn(max(len(record), padding) if padding else len(record) or mechanism.keys))


def _response(mechanism: Mechanism, record: Record) -> list[Word]:
    t = mechanism.thresholds()
    return [_symbol(mechanism, record, 1), Word((0, 1), cut(t["kept"])), Word((0, 0), drawn(t["other_keys"]))]


def _unary(mechanism: Mechanism, record: Record) -> list[Word]:
    t = mechanism.thresholds()
    cells = [Word(("cell", cell), cut(t["other"])) for cell in range(mechanism.keys)]
    return [_symbol(mechanism, record), Word((0, 1), cut(t["own"])), *cells]


def _rows(mechanism: Mechanism, record: Record) -> list[Word]:
    t = mechanism.thresholds()
    return [_symbol(mechanism, record), Word((0, 1), cut(t["kept"])), Word((1, 0), drawn(t["rows"]))]


def _hashing(mechanism: Mechanism, record: Record) -> list[Word]:
    t = mechanism.thresholds()
    return [_symbol(mechanism, record), Word((0, 1), cut(t["kept"])), Word((1, 0), drawn(t["buckets"] - 1))]


def _subset(mechanism: Mechanism, record: Record) -> list[Word]:
    t = mechanism.thresholds()
    beyond = mechanism.keys - t["set_size"]  # the first draw is one of so many
    draws = [Word((FIRST_DRAW + i // 2, i % 2), drawn(beyond + i)) for i in range(t["set_size"])]
    return [_symbol(mechanism, record), Word((0, 1), cut(t["own"])), *draws]


def _harmony(mechanism: Mechanism, record: Record) -> list[Word]:
    kept = mechanism.thresholds()["kept"]
    return [Word((0, 0), drawn(mechanism.keys)), Word((0, 1), cut(kept)), Word((1, 0), _any_sign(record))]


def _meanest(mechanism: Mechanism, record: Record) -> list[Word] | None:
    d, held = mechanism.keys, dict(record)
    if d % 2 == 0:  # draws of which half the signs agree are drawn again, any number of times
        return None
    vectors = tuple(Piece(low, WORDS, 1 << d) for low in range(1 << d))  # the lowest bits are the signs
    signs = [Word((FIRST_VALUE + j // 2, j % 2), _sign(held.get(j, 0))) for j in range(d)]
    return [Word((0, 0), cut(mechanism.thresholds()["toward"])), *signs, Word((1 << DRAW_BITS, 0), vectors)]


def _drawn_key(mechanism: Mechanism, record: Record) -> list[Word]:
    fates = cut(*mechanism.thresholds().values())
    return [Word((0, 0), drawn(mechanism.keys)), Word((1, 0), _any_sign(record)), Word((1, 1), fates)]


class _AlwaysFed:
    """The server feeds the same sign back to everybody."""

    def __init__(self, plus: bool) -> None:
        self.sign = plus

    def plus(self, users: U8, keys: I64) -> Bool:
        del keys
        return np.full(len(users), self.sign)


def _round(mechanism: Mechanism, record: Record) -> list[Word] | None:
    fed = getattr(mechanism, "fed", None)
    if not isinstance(fed, _AlwaysFed):
        return _drawn_key(mechanism, record)
    t = mechanism.thresholds()
    fates = cut(*t.values(), t["other"] - t["other_plus"])
    label = 2 if fed.sign else 3  # what was fed back is part of the label
    return [Word((0, 0), drawn(mechanism.keys)), Word((label, 0), _any_sign(record)), Word((label, 1), fates)]


def _told(mechanism: Mechanism, record: Record) -> list[Word]:
    """The words that draw what a utility-optimised report tells of."""
    hidden = [key for key, tag in record if tag or key in _sensitive(mechanism)]
    return [Word((0, 0), drawn(len(hidden) or len(record) or 1)), Word((0, 1), drawn(_protected_symbols(mechanism)))]


def _uldp_response(mechanism: Mechanism, record: Record) -> list[Word]:
    t = mechanism.thresholds()
    return [*_told(mechanism, record), Word((1, 0), cut(t["sent"])), Word((1, 1), drawn(t["sensitive"]))]


def _uldp_bits(mechanism: Mechanism, record: Record) -> list[Word]:
    t = mechanism.thresholds()
    cells = [Word(("cell", cell), cut(t["other_sensitive"])) for cell in range(t["sensitive"])]
    return [*_told(mechanism, record), Word((1, 0), cut(t["own_sensitive"], t["own_other"])), *cells]


def _personalised(mechanism: Mechanism, record: Record) -> list[Word]:
    return (_uldp_response if "sent" in mechanism.thresholds() else _uldp_bits)(mechanism, record)


def _sensitive(mechanism: Mechanism) -> tuple[int, ...]:
    return mechanism.sensitive if isinstance(mechanism, UtilityOptimised | PUM) else ()


def _protected_symbols(mechanism: Mechanism) -> int:
    return mechanism.thresholds()["sensitive"]


#: Words that are part of the report, by mechanism: the law is derived for each of a few very different ones.
_SENT_ALONG: Final[Mapping[str, tuple[tuple[Word, ...], ...]]] = MappingProxyType(
    {
        "olh": tuple(
            (Word((2, 0), (Piece(a, a + 1),), given=True), Word((2, 1), (Piece(b, b + 1),), given=True))
            for a, b in ((0, 0), (1 << 63, 0), (3 << 62, 1 << 61), (0x9E3779B97F4A7C15, 0xD1B54A32D192ED03))
        )
    }
)

#: Words that each mechanism draws for a record, by its name; None where they cannot be listed.
PIECES: Final[Mapping[str, Callable[[Mechanism, Record], list[Word] | None]]] = MappingProxyType(
    {
        "pckv-ue": _pckv_ue,
        "pckv-grr": _pckv_grr,
        "rr": _response,
        "grr": _response,
        "psfo-grr": _response,
        "sue": _unary,
        "oue": _unary,
        "psfo-oue": _unary,
        "shist": _rows,
        "hadamard": _rows,
        "olh": _hashing,
        "subset-selection": _subset,
        "harmony": _harmony,
        "meanest": _meanest,
        "privkv": _drawn_key,
        "kvue": _drawn_key,
        "round": _round,
        "urr": _uldp_response,
        "urap": _uldp_bits,
        "pum": _personalised,
    }
)


def extreme_records(
    keys: int, largest: int, *, values: bool, beside: tuple[int, ...] | None = None
) -> Iterator[Record]:
    """Yield every record of at most `largest` keys whose values are -1 or 1; other values are mixtures of these.

    Args:
        keys: size of the domain.
        largest: number of keys of the largest records.
        values: whether records carry values.
        beside: what may stand beside a key instead.
    """
    choices = beside or ((VALUE_ONE, -VALUE_ONE) if values else (0,))
    for size in range(min(keys, largest) + 1):
        for held in itertools.combinations(range(keys), size):
            for signs in itertools.product(choices, repeat=size):
                yield tuple(zip(held, signs, strict=True))


def _smallest(mechanism: Mechanism) -> Iterator[Record]:
    largest = int(getattr(mechanism, "padding", 1)) + 1
    if not mechanism.has_frequency:  # a record is a vector
        largest = mechanism.keys
    tags = tuple(range(-1, len(mechanism.tags) + 1)) if isinstance(mechanism, PUM) else None
    return extreme_records(mechanism.keys, largest, values=mechanism.has_values, beside=tags)


def enumerated_ratio(mechanism: Mechanism) -> Fraction | None:
    """Return the largest ratio over every pair of extreme records and every report, from the client's code.

    Records of more keys than the padding are mixtures of smaller ones, so sizes up to one more are run. Of
    utility-optimised mechanisms the ratio is that of the protected reports.

    Returns:
        The exact ratio; None where the words of the mechanism are not listed here, or the domain is too large.

    Raises:
        ValueError: A report of a utility-optimised mechanism reveals more than the definition allows.
    """
    if isinstance(mechanism, MultiRound):
        return _ratio_of_rounds(mechanism)
    several = isinstance(mechanism, Repeated | Attributes)  # their parts are run on their own
    pieces = None if several else PIECES.get(mechanism.name)
    if pieces is None or mechanism.keys > KEYS_MAX:
        return None
    records = list(_smallest(mechanism))
    words = [pieces(mechanism, record) for record in records]
    largest = words[-1]  # of a record with as many keys as any
    if largest is None or len(records) * combinations(largest) > COMBINATIONS_MAX:
        return None
    ratios = []
    for sent_along in _SENT_ALONG.get(mechanism.name, ((),)):
        laws = [derive(mechanism, r, [*(w or ()), *sent_along]) for r, w in zip(records, words, strict=True)]
        ratios.append(_ratio(mechanism, records, laws))
    return max(ratios)


def _ratio_of_rounds(mechanism: MultiRound) -> Fraction | None:
    """Multiply the ratios of all rounds: the drawn keys are public, and the worst records may differ in each."""
    product = Fraction(1)
    for number in range(1, mechanism.rounds_max + 1):
        one = mechanism.round(number)
        asked = [one.answering(_AlwaysFed(sign)) for sign in (True, False)] if one.law.fed else [one]
        ratios = [enumerated_ratio(each) for each in asked]
        known = [ratio for ratio in ratios if ratio is not None]
        if len(known) < len(ratios):
            return None
        product *= max(known)
    return product


def _ratio(mechanism: Mechanism, records: Sequence[Record], laws: Sequence[Mapping[bytes, Fraction]]) -> Fraction:
    largest = Fraction(1)
    for report in set().union(*laws):
        shown = _revealed(mechanism, report)
        chances = [law.get(report, Fraction(0)) for law in laws]
        if shown is None:
            largest = max(largest, max(chances) / min(chances))
            continue
        for record, chance in zip(records, chances, strict=True):
            if chance and any(tag or key in _sensitive(mechanism) for key, tag in record):
                raise ValueError(f"a record with a sensitive key can send a report that shows key {shown}")
            if chance and shown not in dict(record):
                raise ValueError(f"a report that shows key {shown} can come from a record without it")
    return largest


def _revealed(mechanism: Mechanism, report: bytes) -> int | None:
    """Return the key that a report of a utility-optimised mechanism shows; None for protected reports and others."""
    if not isinstance(mechanism, UtilityOptimised | PUM):
        return None
    symbol = int.from_bytes(report[-4:], "little", signed=True)  # the last array by name: `symbol`, or `other`
    hidden = symbol < 0 or symbol >= mechanism.keys or symbol in _sensitive(mechanism)
    return None if hidden else symbol
