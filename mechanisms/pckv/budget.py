"""How PCKV spends its budget: allocations, integer thresholds, and the exact privacy loss.

Letters as in the paper: a = Pr[a sampled key is reported], p = Pr[its sign is kept], b = Pr[another key is
reported]; d keys, padding length ell, d' = d + ell.

Source:
    Gu, Li, Cheng, Xiong, Cao: PCKV, USENIX Security 2020, theorems 2 to 4 and section 5.
"""

from __future__ import annotations

from dataclasses import dataclass
from decimal import Decimal
from fractions import Fraction
from functools import lru_cache
from typing import Final

from ...errors import ParameterError, did_you_mean
from ..probability import EXACT, WORDS, budget_ratio, largest_threshold, round_down, round_up
from .numerical import other_share

__all__ = [
    "ALLOCATIONS",
    "NUMERICAL",
    "Law",
    "check_allocation",
    "grr_law",
    "grr_ratio",
    "ue_law",
    "ue_law_of_share",
    "ue_ratio",
]

#: Allocations by a closed form, and the one that is searched for.
ALLOCATIONS: Final = ("optimized", "non-optimized", "naive")
NUMERICAL: Final = "numerical"


@dataclass(frozen=True, kw_only=True)
class Law:
    """Integer thresholds of one mechanism, and what follows from them exactly.

    Attributes:
        same: a word below it reports the sampled key with its own sign.
        kept: a word below it reports the sampled key at all.
        other: UE: a word below it sets another key's cell. GRR: 0, other keys are drawn uniformly.
        epsilon_1: budget of the key step, as declared.
        epsilon_2: budget of the sign step, as declared.
        a: kept / 2^64.
        b: probability that another key is reported.
        p: same / kept.
    """

    same: int
    kept: int
    other: int
    epsilon_1: float
    epsilon_2: float
    a: Fraction
    b: Fraction
    p: Fraction


def check_allocation(allocation: str, *, numerical: bool) -> None:
    """Refuse anything but the names of `ALLOCATIONS` and, where the mechanism has it, "numerical".

    Raises:
        ParameterError: for any other.
    """
    allowed = (*ALLOCATIONS, NUMERICAL) if numerical else ALLOCATIONS
    if allocation in allowed:
        return
    if allocation == NUMERICAL:
        raise ParameterError(
            'allocation is "numerical", which pckv-grr does not have: its closed form is within 0.1 % of the best '
            'split. Use "optimized".'
        )
    raise ParameterError(f"allocation is {allocation!r}. {did_you_mean(str(allocation), allowed)}")


def _split(epsilon: Decimal, padding: int, allocation: str) -> tuple[Decimal, Decimal]:
    """Return e^epsilon_1 and e^epsilon_2; PCKV-UE is the case of padding 1, whatever its own padding."""
    total, half = EXACT.exp(epsilon), EXACT.exp(EXACT.divide(epsilon, Decimal(2)))
    spread = EXACT.add(EXACT.multiply(Decimal(padding), EXACT.subtract(total, Decimal(1))), Decimal(1))
    if allocation == "naive":
        return half, half
    if allocation == "non-optimized":
        shrink = EXACT.divide(EXACT.add(1, EXACT.divide(Decimal(1), half)), Decimal(2))
        return EXACT.multiply(spread, shrink), half
    return EXACT.divide(EXACT.add(spread, Decimal(1)), Decimal(2)), spread


def _sign_share(e2: Decimal) -> Decimal:
    return EXACT.divide(e2, EXACT.add(e2, Decimal(1)))


def _unary_key_shares(e1: Decimal, allocation: str) -> tuple[Decimal, Decimal]:
    """Return a and b of PCKV-UE: a = 1/2 and b = 1 / (e^epsilon_1 + 1) in all three allocations."""
    return Decimal("0.5"), EXACT.divide(Decimal(1), EXACT.add(e1, Decimal(1)))


def ue_ratio(same: int, kept: int, other: int) -> Fraction:
    """Largest ratio of the probabilities of one report under two records, PCKV-UE.

    A report's probability is that of a dummy's report times the mean, over the slots of the record, of one
    factor: 2 same / other where the held key's cell has the value's sign, 2 (kept - same) / other where it
        has
    the opposite one, (1 - a) / (1 - b) where it is empty, 1 for a dummy. So the loss is the largest factor
    over the smallest. Two records attain it if the domain has twice as many keys as the padding; the way
    slots are drawn does not matter.
    """
    factors = (
        Fraction(2 * same, other),
        Fraction(2 * (kept - same), other),
        Fraction(WORDS - kept, WORDS - other),
        Fraction(1),
    )
    return max(factors) / min(factors)


@lru_cache(maxsize=256)
def ue_law(epsilon: Decimal, allocation: str) -> Law:
    """Thresholds of PCKV-UE for an allocation of `ALLOCATIONS`."""
    e1, e2 = _split(epsilon, 1, allocation)
    return _ue_law(epsilon, *_unary_key_shares(e1, allocation), e1, e2)


@lru_cache(maxsize=256)
def ue_law_of_share(epsilon: Decimal, share: Decimal) -> Law:
    """Thresholds of PCKV-UE with a = `share`; see `numerical`."""
    budget = EXACT.exp(epsilon)
    share_b = other_share(share, budget, EXACT)
    odds = EXACT.divide(
        EXACT.multiply(share, EXACT.subtract(1, share_b)), EXACT.multiply(share_b, EXACT.subtract(1, share))
    )
    return _ue_law(epsilon, share, share_b, odds, budget)


def _ue_law(epsilon: Decimal, share_a: Decimal, share_b: Decimal, e1: Decimal, e2: Decimal) -> Law:
    """Round a and p down, b up, then lower p until the exact loss fits."""
    kept, other = round_down(share_a), round_up(share_b)
    limit = budget_ratio(epsilon)
    same = largest_threshold(
        kept // 2,
        round_down(EXACT.multiply(share_a, _sign_share(e2))),
        lambda t: ue_ratio(t, kept, other) <= limit,
    )
    return Law(
        same=same,
        kept=kept,
        other=other,
        epsilon_1=float(EXACT.ln(e1)),
        epsilon_2=float(EXACT.ln(e2)),
        a=Fraction(kept, WORDS),
        b=Fraction(other, WORDS),
        p=Fraction(same, kept),
    )


def grr_ratio(same: int, kept: int, keys: int, padding: int) -> Fraction:
    """Return the largest ratio of the probabilities of one report under two records, PCKV-GRR.

    A slot of the record is drawn by ceil(2^64 / ell) words at most, another key by floor(2^64 / (d' - 1)) words
    at least and one more at most; with these bounds the numerator grows and the denominator shrinks.
    """
    others = keys + padding - 1
    moved = Fraction(WORDS - kept, 2 * WORDS)
    high = moved * Fraction(-(-WORDS // others), WORDS)
    low = moved * Fraction(WORDS // others, WORDS)
    slot = Fraction(-(-WORDS // padding), WORDS)
    numerator = max(slot * Fraction(same, WORDS) + (1 - slot) * high, high)
    denominator = min(slot * Fraction(kept - same, WORDS) + (1 - slot) * low, low)
    return max(numerator / denominator, _dummy_ratio(kept, keys, others))


def _dummy_ratio(kept: int, keys: int, others: int) -> Fraction:
    """The same for the report "a dummy key", all of which are written alike."""
    moved = Fraction(WORDS - kept, WORDS)
    from_dummy = Fraction(kept, WORDS) + moved * Fraction(WORDS + -WORDS * keys // others, WORDS)
    from_key = moved * Fraction(WORDS + -WORDS * (keys - 1) // others, WORDS)
    return max(from_dummy, from_key) / min(from_dummy, from_key)


@lru_cache(maxsize=256)
def grr_law(epsilon: Decimal, keys: int, padding: int, allocation: str) -> Law:
    """Thresholds of PCKV-GRR: a and p rounded down, then p lowered until the exact loss fits."""
    e1, e2 = _split(epsilon, padding, allocation)
    others = keys + padding - 1
    share_a = EXACT.divide(e1, EXACT.add(e1, Decimal(others)))
    kept = round_down(share_a)
    limit = budget_ratio(epsilon)
    same = largest_threshold(
        kept // 2,
        round_down(EXACT.multiply(share_a, _sign_share(e2))),
        lambda t: grr_ratio(t, kept, keys, padding) <= limit,
    )
    return Law(
        same=same,
        kept=kept,
        other=0,
        epsilon_1=float(EXACT.ln(e1)),
        epsilon_2=float(EXACT.ln(e2)),
        a=Fraction(kept, WORDS),
        b=Fraction(WORDS - kept, WORDS * others),
        p=Fraction(same, kept),
    )
