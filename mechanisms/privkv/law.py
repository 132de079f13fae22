"""Thresholds of the mechanisms in which a user answers about one key that was drawn in public: PrivKV and KVUE.

The drawn key is part of the report and independent of the record, so a report's law is that of the answer alone:
+1, -1, or 0 for "I do not hold it". Somebody who holds the key with a value of sign s answers s with probability
same, -s with kept - same, 0 otherwise; who does not hold it answers 0 with probability 1 - other, and otherwise the
perturbed sign of a fake value. Values between -1 and 1 mix the two signs, so the extreme ones decide the loss.

Source:
    Ye, Hu, Meng, Zheng: PrivKV, IEEE S&P 2019, algorithms 1 and 2; KVUE as cited by PCKV, USENIX Security 2020.
"""

from __future__ import annotations

from dataclasses import dataclass
from decimal import Decimal
from fractions import Fraction
from functools import lru_cache
from typing import Final

from ...errors import NotAvailableError, ParameterError, did_you_mean
from ..probability import EXACT, WORDS, round_down, round_up

__all__ = ["ALLOCATIONS", "KeyLaw", "as_decimal", "check_allocation", "kvue_law", "split_budget", "split_law"]

#: Splits of the budget of PrivKV between key and value.
ALLOCATIONS: Final = ("naive", "optimized")

_ONE: Final = Decimal(1)
_LATER: Final = ("non-optimized", "numerical")
#: Every probability of a lie (a flipped sign, an answer about a key that is not held) is raised by this share, so that
#: the loss, rounded up to a float, stays below the declared one; each raise costs less than 4e-15 of epsilon.
_MARGIN: Final = EXACT.add(_ONE, EXACT.power(Decimal(2), Decimal(-48)))


@dataclass(frozen=True, kw_only=True)
class KeyLaw:
    """Integer thresholds of 2^64 behind one answer.

    Attributes:
        same: a holder's answer has the sign of the value.
        kept: a holder's answer is +1 or -1.
        other: the answer of somebody who does not hold the key is +1 or -1; an even number.
        fake_plus: it is +1, for the fake value that the client draws itself, or where +1 was fed back.
        fed: whether the fake sign is fed back by the server; then -1 fed back gives +1 with other - fake_plus.
        initial: expected fake value where the client draws it.
        epsilon_1: budget of the key.
        epsilon_2: budget of the sign.
    """

    same: int
    kept: int
    other: int
    fake_plus: int
    fed: bool
    initial: float
    epsilon_1: float
    epsilon_2: float

    @property
    def a(self) -> float:
        """Probability that a held key is answered with a sign."""
        return self.kept / WORDS

    @property
    def b(self) -> float:
        """Probability that a key which is not held is answered with a sign."""
        return self.other / WORDS

    @property
    def gap(self) -> float:
        """Difference a - b, rounded once."""
        return (self.kept - self.other) / WORDS

    @property
    def p(self) -> float:
        """Probability that the sign of a value is kept, given an answer with a sign."""
        return self.same / self.kept

    @property
    def trust(self) -> float:
        """Factor 2p - 1: how much of a mean is left in the answers, rounded once."""
        return (2 * self.same - self.kept) / self.kept

    def ratio(self) -> Fraction:
        """Largest ratio of the probabilities of one answer under two records, whatever was fed back."""
        holder = (self.same, self.kept - self.same)
        fakes = (self.fake_plus, self.other - self.fake_plus)
        found = [Fraction(max(*holder, fake), min(*holder, fake)) for fake in fakes]
        silent = (WORDS - self.kept, WORDS - self.other)
        return max(*found, Fraction(max(silent), min(silent)))

    def thresholds(self) -> dict[str, int]:
        """The integers by name."""
        return {"kept_with_sign": self.same, "kept": self.kept, "other": self.other, "other_plus": self.fake_plus}


def check_allocation(allocation: str) -> None:
    """Refuse anything but the names of `ALLOCATIONS`.

    Raises:
        NotAvailableError: for a name that only other mechanisms have.
        ParameterError: for any other.
    """
    if allocation in ALLOCATIONS:
        return
    if allocation in _LATER:
        raise NotAvailableError.of(f"allocation = {allocation!r} of privkv", instead='Use "naive" or "optimized".')
    raise ParameterError(f"allocation is {allocation!r}. {did_you_mean(str(allocation), ALLOCATIONS)}")


def split_budget(epsilon: Decimal, allocation: str) -> tuple[Decimal, Decimal]:
    """Return e^epsilon_1 and e^epsilon_2 of one round of PrivKV.

    "naive" gives half to the key and half to the sign, as published. "optimized" spends the whole of epsilon where
    the client draws the fake sign itself: then the loss is max(epsilon_2, epsilon_1 + ln(2 / (1 + e^-epsilon_2))),
    so epsilon_2 = epsilon and epsilon_1 = ln((e^epsilon + 1) / 2).
    """
    if allocation == "naive":
        half = EXACT.exp(EXACT.divide(epsilon, Decimal(2)))
        return half, half
    whole = EXACT.exp(epsilon)
    return EXACT.divide(EXACT.add(whole, _ONE), Decimal(2)), whole


def as_decimal(number: Fraction) -> Decimal:
    """Return a fraction with 80 digits."""
    return EXACT.divide(Decimal(number.numerator), Decimal(number.denominator))


@lru_cache(maxsize=256)
def split_law(e1: Decimal, e2: Decimal, *, initial: Decimal = Decimal(0), fed: bool = False) -> KeyLaw:
    """Thresholds of one round: a rounded down, b up, and the flips of signs up.

    Args:
        e1: e^epsilon_1; 1 where the round spends nothing on the key.
        e2: e^epsilon_2.
        initial: expected fake value where the client draws the fake sign, -1 to 1.
        fed: the fake sign is fed back instead.
    """
    kept = round_down(EXACT.divide(e1, EXACT.add(e1, _ONE)))
    other = kept if e1 == 1 else round_up(EXACT.divide(_MARGIN, EXACT.add(e1, _ONE)))
    other += other & 1
    flip = EXACT.divide(_MARGIN, EXACT.add(e2, _ONE))
    turned = round_up(EXACT.multiply(Decimal(kept), flip)) // WORDS + 1
    faked = round_up(EXACT.multiply(Decimal(other), flip)) // WORDS + 1
    weight = Fraction(1) if fed else (1 + Fraction(initial)) / 2
    return KeyLaw(
        same=kept - turned,
        kept=kept,
        other=other,
        fake_plus=faked + int((other - 2 * faked) * weight),
        fed=fed,
        initial=0.0 if fed else float(initial),
        epsilon_1=float(EXACT.ln(e1)),
        epsilon_2=float(EXACT.ln(e2)),
    )


@lru_cache(maxsize=256)
def kvue_law(epsilon: Decimal) -> KeyLaw:
    """Thresholds of KVUE: randomised response over the three answers +1, -1 and 0."""
    total = EXACT.exp(epsilon)
    each = round_up(EXACT.divide(_MARGIN, EXACT.add(total, Decimal(2))))
    return KeyLaw(
        same=WORDS - 2 * each,
        kept=WORDS - each,
        other=2 * each,
        fake_plus=each,
        fed=False,
        initial=0.0,
        epsilon_1=float(epsilon),
        epsilon_2=float(epsilon),
    )
