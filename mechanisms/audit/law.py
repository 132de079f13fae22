"""The law of a report in factorised form, and its exact privacy loss by rational arithmetic.

A mechanism publishes its integer thresholds. `laws` turns them into one of three forms, which are small
whatever the size of the domain, and this module computes the largest ratio of probabilities from them. Nothing
here calls `Mechanism.exact_epsilon`: the two computations check each other.

* `Channel`: few classes of inputs, few classes of reports.
* `Cells`: a report of independent cells, of which a sampled key changes its own alone (unary encodings).
* `Keyed`: a report that names one key or a dummy key (generalised randomised response).

With `padding`, a record's own slot is drawn uniformly from max(size, padding) slots. A record of more keys than
the padding is a mixture of records of exactly `padding` keys, and a mixture never has a larger ratio than what
it is mixed from; a value strictly between -1 and 1 is a mixture of the two ends. So sizes from 0 to the padding
with values -1 and 1 give the loss over all records.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from fractions import Fraction

from ..probability import WORDS

__all__ = ["Cells", "Channel", "Draw", "Keyed", "Loss", "ReportLaw", "Span", "loss", "loss_of_size", "span"]

#: A bound of a probability, and the record that it belongs to.
Case = tuple[Fraction, str]
#: Lower and upper bound of a probability; they differ where an integer draw is biased.
Span = tuple[Fraction, Fraction]


def span(probability: Fraction | int) -> Span:
    """Return the span of a probability that is known exactly."""
    exact = Fraction(probability)
    return exact, exact


@dataclass(frozen=True, kw_only=True)
class Draw:
    """An integer drawn from one 64-bit word by multiplication: each outcome has floor(2^64 / bound) words or one more.

    Attributes:
        name: what is drawn.
        bound: number of outcomes.
    """

    name: str
    bound: int

    @property
    def outcome(self) -> Span:
        """Probability of one outcome."""
        return Fraction(WORDS // self.bound, WORDS), Fraction(-(-WORDS // self.bound), WORDS)

    def bias(self) -> float:
        """Largest ratio of the probabilities of two outcomes, minus 1."""
        low, high = self.outcome
        return float(high / low - 1)


@dataclass(frozen=True, kw_only=True)
class Channel:
    """Inputs and reports by class.

    Attributes:
        columns: names of the classes of reports.
        rows: for each input, the probability of *one* report of each class.
        sizes: how many reports each class has.
        unprotected: columns that only one input may cause at all, and no sensitive one (utility-optimised LDP, second
            condition); the ratio is bounded over the others.
        sensitive: inputs that must not cause an unprotected report.
    """

    columns: tuple[str, ...]
    rows: Mapping[str, tuple[Span, ...]]
    sizes: tuple[int, ...]
    unprotected: tuple[str, ...] = ()
    sensitive: tuple[str, ...] = ()


@dataclass(frozen=True, kw_only=True)
class Cells:
    """Independent cells, one a key.

    Attributes:
        own: for each input (such as the sign of the value), the law of the sampled key's cell.
        other: the law of every other cell.
        empty: whether a record can change no cell at all.
    """

    own: Mapping[str, Mapping[str, Fraction]]
    other: Mapping[str, Fraction]
    empty: bool = True

    def factors(self) -> dict[tuple[str, str], Fraction]:
        """Ratio of the own cell's law to that of another key, by input and outcome."""
        return {
            (held, outcome): share / self.other[outcome]
            for held, law in self.own.items()
            for outcome, share in law.items()
        }


@dataclass(frozen=True, kw_only=True)
class Keyed:
    """A report that names one key, with an outcome such as a sign, or a dummy key.

    Attributes:
        own: for each input, the probability that the sampled key is reported, by outcome.
        other: probability that one certain other key is reported, by outcome.
        dummy_from_dummy: probability of the report "a dummy key" with one outcome, a dummy being sampled; None
            where no dummies exist.
        dummy_from_key: the same, a key being sampled.
    """

    own: Mapping[str, Mapping[str, Span]]
    other: Mapping[str, Span]
    dummy_from_dummy: Span | None = None
    dummy_from_key: Span | None = None


@dataclass(frozen=True, kw_only=True)
class ReportLaw:
    """Everything that decides a mechanism's privacy loss.

    Attributes:
        form: the conditional law of a report.
        keys: number of keys of the domain.
        padding: slots that a record is padded to; None where the input is one item, or the choice of the item
            does not depend on the record.
        steps: largest ratio of each step on its own (key, value, …), which naive composition would multiply.
        draws: integers drawn from words.
    """

    form: Channel | Cells | Keyed
    keys: int
    padding: int | None = None
    steps: Mapping[str, Fraction] = field(default_factory=dict)
    draws: tuple[Draw, ...] = ()


@dataclass(frozen=True, kw_only=True)
class Loss:
    """The largest ratio, and where it is attained.

    Attributes:
        ratio: of the probabilities of one report under two records, at least 1.
        report: the report, in words.
        records: the two records, in words.
    """

    ratio: Fraction
    report: str
    records: tuple[str, str]


def loss(law: ReportLaw) -> Loss:
    """Return the largest ratio over every pair of records and every report.

    Raises:
        ValueError: The law is none: shares that do not add up to 1, or an unprotected report that two inputs
            can cause.
    """
    check(law)
    if isinstance(law.form, Channel):
        return _channel(law.form)
    if isinstance(law.form, Keyed):
        return _keyed(law, law.form, _sizes(law))
    if law.padding is None:
        return _single_cells(law.form, law.keys)
    return max((loss_of_size(law, size) for size in {0, 1, _largest(law)}), key=lambda one: one.ratio)


def loss_of_size(law: ReportLaw, size: int) -> Loss:
    """Return the largest ratio over pairs of which one record has `size` keys and the other any number.

    For laws with padding; a size above it has at most the loss of the padding.
    """
    if law.padding is None or isinstance(law.form, Channel):
        return loss(law)
    size = min(size, _largest(law))
    if isinstance(law.form, Keyed):
        return _keyed(law, law.form, (size,))
    return _padded_cells(law.form, law.keys, law.padding, size)


def _largest(law: ReportLaw) -> int:
    return min(law.keys, law.padding or 1)


def _sizes(law: ReportLaw) -> tuple[int, ...]:
    """Sizes of records; one item a record where nothing is padded.

    A slot's probability is the same for all sizes up to the padding, and a dummy's is linear in the size: so the
    probabilities of all sizes lie between those of the ends.
    """
    return (1,) if law.padding is None else tuple(sorted({0, 1, _largest(law)}))


# -- the law adds up ----------------------------------------------------------------------------------------


def check(law: ReportLaw) -> None:
    """Check that shares add up to 1 (bounds: hold 1 between them) and lie in [0, 1].

    Raises:
        ValueError: They do not.
    """
    for low, high in _spans(law.form):
        if not 0 <= low <= high <= 1:
            raise ValueError(f"a share of {float(low)!r} … {float(high)!r} is not a probability")
    for name, low, high in _totals(law):
        if not low <= 1 <= high:
            raise ValueError(f"the shares of {name} add up to {float(low)!r} … {float(high)!r}, not to 1")


def _spans(form: Channel | Cells | Keyed) -> Iterator[Span]:
    if isinstance(form, Cells):
        for law in (form.other, *form.own.values()):
            yield from (span(share) for share in law.values())
    elif isinstance(form, Channel):
        for spans in form.rows.values():
            yield from spans
    else:
        for own in (form.other, *form.own.values()):
            yield from own.values()
        yield from (one for one in (form.dummy_from_dummy, form.dummy_from_key) if one is not None)


def _totals(law: ReportLaw) -> Iterator[tuple[str, Fraction, Fraction]]:
    form = law.form
    if isinstance(form, Cells):
        yield "another key's cell", sum(form.other.values(), Fraction(0)), sum(form.other.values(), Fraction(0))
        for held, shares in form.own.items():
            yield f"the cell of a key with {held}", sum(shares.values(), Fraction(0)), sum(shares.values(), Fraction(0))
    elif isinstance(form, Channel):
        for row, spans in form.rows.items():
            low, high = (
                sum((n * one[side] for n, one in zip(form.sizes, spans, strict=True)), Fraction(0)) for side in (0, 1)
            )
            yield f"input {row}", low, high
    else:
        for held, own in form.own.items():
            low, high = (
                sum((one[side] for one in own.values()), Fraction(0))
                + (law.keys - 1) * sum((one[side] for one in form.other.values()), Fraction(0))
                + (Fraction(0) if form.dummy_from_key is None else len(own) * form.dummy_from_key[side])
                for side in (0, 1)
            )
            yield f"a key with {held}", low, high


# -- channels ------------------------------------------------------------------------------------------------


def _channel(form: Channel) -> Loss:
    best = Loss(ratio=Fraction(1), report="any", records=("any", "any"))
    for column, name in enumerate(form.columns):
        if name in form.unprotected:
            causes = [row for row, spans in form.rows.items() if spans[column][1] > 0]
            if len(causes) > 1 or set(causes) & set(form.sensitive):
                raise ValueError(f"the unprotected report {name} can come from {' and '.join(causes)}")
            continue
        top = max(form.rows, key=lambda row: form.rows[row][column][1])
        for low in form.rows:
            if low == top:
                continue
            best = _better(best, form.rows[top][column][1], form.rows[low][column][0], name, (top, low))
    return best


def _better(best: Loss, high: Fraction, low: Fraction, report: str, records: tuple[str, str]) -> Loss:
    if high == 0:
        return best
    if low == 0:
        raise ValueError(f"the report {report} is possible with {records[0]} and impossible with {records[1]}")
    return Loss(ratio=high / low, report=report, records=records) if high / low > best.ratio else best


# -- cells -----------------------------------------------------------------------------------------------------


def _single_cells(form: Cells, keys: int) -> Loss:
    """One item, or none, changes one cell, or none."""
    best = Loss(ratio=Fraction(1), report="any", records=("any", "any"))
    factors = form.factors()
    for held, law in form.own.items():
        for other in form.own:
            for outcome in law:
                case = (f"a key with {held}", f"the same key with {other}")
                best = _better(best, law[outcome], form.own[other][outcome], f"its cell {outcome}", case)
    top, bottom = max(factors, key=factors.__getitem__), min(factors, key=factors.__getitem__)
    if form.empty:
        case = (f"a key with {top[0]}", "no key")
        best = _better(best, factors[top], Fraction(1), f"its cell {top[1]}", case)
        case = ("no key", f"a key with {bottom[0]}")
        best = _better(best, Fraction(1), factors[bottom], f"its cell {bottom[1]}", case)
    if keys > 1:
        case = (f"a key with {top[0]}", f"another key with {bottom[0]}")
        best = _better(best, factors[top], factors[bottom], f"the first cell {top[1]}, the second {bottom[1]}", case)
    return best


def _padded_cells(form: Cells, keys: int, padding: int, size: int) -> Loss:
    """One record of `size` keys against every other.

    The probability of a report is that of a dummy's report times the mean over the slots of one factor each. For
    keys that only one record holds the best factor is free; for keys that both hold the two factors belong to
    one outcome. The ratio of two sums that are linear in a size is monotone in it, so that the ends suffice.
    """
    factors = form.factors()
    top, bottom = max(factors.values()), min(factors.values())
    shared = {
        (factors[one, outcome], factors[other, outcome])
        for one in form.own
        for other in form.own
        for outcome in form.other
    }
    longest = min(keys, padding)
    best = Loss(ratio=Fraction(1), report="any", records=("any", "any"))
    for other in {0, min(max(keys - size, 0), longest), longest}:
        overlap = max(0, size + other - keys)
        for one_factor, other_factor in shared:
            for first, second in ((size, other), (other, size)):
                high = _mean_factor(first, overlap, top, one_factor, padding, upper=True)
                low = _mean_factor(second, overlap, bottom, other_factor, padding, upper=False)
                case = (f"{first} keys", f"{second} keys")
                best = _better(best, high, low, "cells as likely as possible with the first record", case)
    return best


def _mean_factor(size: int, overlap: int, free: Fraction, tied: Fraction, padding: int, *, upper: bool) -> Fraction:
    """Largest (or smallest) mean factor over the slots of a record; dummies have the factor 1."""
    slot = Draw(name="slot", bound=padding).outcome
    total = Fraction(0)
    left = Fraction(1)
    # the draw's bias goes where it does the most harm
    for number, factor in sorted(((size - overlap, free), (overlap, tied)), key=lambda part: part[1], reverse=upper):
        harmful = factor > 1 if upper else factor < 1
        share = min(left, number * slot[1 if harmful else 0]) if size < padding else Fraction(number, size or 1)
        total += share * factor
        left -= share
    return total + left if size < padding else total


# -- keyed reports -----------------------------------------------------------------------------------------------


def _keyed(law: ReportLaw, form: Keyed, sizes: tuple[int, ...]) -> Loss:
    """One record with a size of `sizes` against every other, for reports that name a key or a dummy."""
    best = Loss(ratio=Fraction(1), report="any", records=("any", "any"))
    for outcome in form.other:
        one = _extremes(_key_cases(law, form, outcome, sizes))
        anyone = _extremes(_key_cases(law, form, outcome, _sizes(law)))
        best = _either(best, one, anyone, f"a key with {outcome}")
    if form.dummy_from_dummy is not None and form.dummy_from_key is not None:
        pair = form.dummy_from_dummy, form.dummy_from_key
        one = _extremes(_dummy_cases(law, *pair, sizes))
        anyone = _extremes(_dummy_cases(law, *pair, _sizes(law)))
        best = _either(best, one, anyone, "a dummy key")
    return best


def _either(best: Loss, one: tuple[Case, Case], other: tuple[Case, Case], report: str) -> Loss:
    """Take the worse of the two directions; each side is its smallest and its largest case."""
    best = _better(best, one[1][0], other[0][0], report, (one[1][1], other[0][1]))
    return _better(best, other[1][0], one[0][0], report, (other[1][1], one[0][1]))


def _extremes(cases: Iterator[tuple[Span, str]]) -> tuple[Case, Case]:
    """Return the smallest lower bound and the largest upper bound, each with its record."""
    found = list(cases)
    low = min(found, key=lambda case: case[0][0])
    high = max(found, key=lambda case: case[0][1])
    return (low[0][0], low[1]), (high[0][1], high[1])


def _key_cases(law: ReportLaw, form: Keyed, outcome: str, sizes: tuple[int, ...]) -> Iterator[tuple[Span, str]]:
    """Probability of the report "key k with this outcome" under records that hold k, or do not."""
    other = form.other[outcome]
    for size in sizes:
        if size < law.keys:
            yield other, f"{size} keys without it"
        if size == 0:
            continue
        slot = span(1) if law.padding is None else Draw(name="slot", bound=max(size, law.padding)).outcome
        for held, own in form.own.items():
            low = min(w * own[outcome][0] + (1 - w) * other[0] for w in slot)
            high = max(w * own[outcome][1] + (1 - w) * other[1] for w in slot)
            yield (low, high), f"{size} keys, it with {held}"


def _dummy_cases(
    law: ReportLaw, from_dummy: Span, from_key: Span, sizes: tuple[int, ...]
) -> Iterator[tuple[Span, str]]:
    padding = law.padding or 1
    for size in sizes:
        # the first slots are the record's: a dummy is drawn by the words from ceil(size 2^64 / padding) on
        share = Fraction(WORDS - -(-size * WORDS // padding), WORDS) if size < padding else Fraction(0)
        low, high = (share * dummy + (1 - share) * key for dummy, key in zip(from_dummy, from_key, strict=True))
        yield (low, high), f"{size} keys"
