"""Laws of the categorical, item-set, value and utility-optimised mechanisms, read off their published thresholds.

One-item mechanisms tell of one symbol of the record, drawn without regard to anything secret but the record itself; so
the law of any record is a mixture of those of single symbols, and single symbols are what is compared here.
"""

from __future__ import annotations

import itertools
from collections.abc import Mapping
from fractions import Fraction
from math import comb, prod
from typing import Final

from ..probability import WORDS
from ..protocol import Mechanism
from .law import Cells, Channel, Draw, Keyed, ReportLaw, Span, span

__all__ = [
    "hadamard_law",
    "hashing_law",
    "personalised_law",
    "response_law",
    "set_response_law",
    "set_unary_law",
    "sign_law",
    "subset_law",
    "uldp_bits_law",
    "uldp_response_law",
    "unary_law",
    "vector_law",
]

_NO_OUTCOME: Final = ""
#: Mended draws of MeanEst for even dimensions: fewer than one in 2^64, of which some become the same vector.
_MENDED: Final = Fraction(1, WORDS - 1)


def _share(threshold: int) -> Fraction:
    return Fraction(threshold, WORDS)


def _times(factor: Fraction, outcome: Span) -> Span:
    return factor * outcome[0], factor * outcome[1]


# -- one symbol ----------------------------------------------------------------------------------------------------


def response_law(mechanism: Mechanism) -> tuple[ReportLaw, ...]:
    """RR and GRR: the drawn symbol is reported, or a uniform other one."""
    t = mechanism.thresholds()
    return (_response(_share(t["kept"]), t["other_keys"], mechanism.keys),)


def _response(kept: Fraction, others: int, keys: int) -> ReportLaw:
    other = Draw(name="other key", bound=others)
    return ReportLaw(
        form=Keyed(
            own={"": {_NO_OUTCOME: span(kept)}},
            other={_NO_OUTCOME: _times(1 - kept, other.outcome)},
        ),
        keys=keys,
        draws=(other,),
    )


def hashing_law(mechanism: Mechanism) -> tuple[ReportLaw, ...]:
    """OLH: for each public hash function the bucket is a response over the buckets."""
    t = mechanism.thresholds()
    return (_response(_share(t["kept"]), t["buckets"] - 1, t["buckets"]),)


def unary_law(mechanism: Mechanism) -> tuple[ReportLaw, ...]:
    """SUE and OUE: one cell is the own one; a record without keys draws a symbol like everybody."""
    return (ReportLaw(form=_cells(mechanism.thresholds(), empty=False), keys=mechanism.keys),)


def _cells(thresholds: Mapping[str, int], *, empty: bool) -> Cells:
    own, other = _share(thresholds["own"]), _share(thresholds["other"])
    return Cells(own={"": {"1": own, "0": 1 - own}}, other={"1": other, "0": 1 - other}, empty=empty)


def hadamard_law(mechanism: Mechanism) -> tuple[ReportLaw, ...]:
    """Succinct histogram, Hadamard response: for two symbols a quarter of all rows each supports both, one or none."""
    kept = _share(mechanism.thresholds()["kept"])
    columns = ("supports both", "supports the first", "supports the second", "supports neither")
    # relative to a report of a row of the same quarter, all of which are alike
    rows = {"the first": (kept, kept, 1 - kept, 1 - kept), "the second": (kept, 1 - kept, kept, 1 - kept)}
    return (
        ReportLaw(
            form=Channel(
                columns=columns,
                rows={name: tuple(span(one / 2) for one in law) for name, law in rows.items()},
                sizes=(1, 1, 1, 1),
            ),
            keys=mechanism.keys,
        ),
    )


def subset_law(mechanism: Mechanism) -> tuple[ReportLaw, ...]:
    """Subset selection: for two symbols a set holds both, one or none."""
    t, d = mechanism.thresholds(), mechanism.keys
    own, size = _share(t["own"]), t["set_size"]
    with_own = _times(own, _one_set(d - 1, size - 1))
    without = _times(1 - own, _one_set(d - 1, size))
    sizes = (_choose(d - 2, size - 2), *[_choose(d - 2, size - 1)] * 2, _choose(d - 2, size))
    return (
        ReportLaw(
            form=Channel(
                columns=("holds both", "holds the first", "holds the second", "holds neither"),
                rows={
                    "the first": (with_own, with_own, without, without),
                    "the second": (with_own, without, with_own, without),
                },
                sizes=sizes,
            ),
            keys=d,
            draws=(Draw(name="member of the set", bound=d - 1),),
        ),
    )


def _choose(n: int, k: int) -> int:
    return comb(n, k) if 0 <= k <= n else 0


def _one_set(others: int, size: int) -> Span:
    """Probability of one set of `size` of `others` symbols, drawn by Floyd's method.

    Each of its draws gives floor or ceil of 2^64 / bound words to an outcome, and `size`! ways lead to a set.
    """
    bounds = range(others - size + 1, others + 1)
    words = WORDS**size
    ways = prod(range(1, size + 1))
    fewest, most = prod(WORDS // bound for bound in bounds), prod(-(-WORDS // bound) for bound in bounds)
    return Fraction(ways * fewest, words), Fraction(ways * most, words)


# -- sets of items ---------------------------------------------------------------------------------------------------


def set_response_law(mechanism: Mechanism) -> tuple[ReportLaw, ...]:
    """Padding and sampling with GRR; all dummies are written alike."""
    t, keys = mechanism.thresholds(), mechanism.keys
    kept, others = _share(t["kept"]), t["other_keys"]
    padding = others - keys + 1
    other = Draw(name="other key", bound=others)
    # of the others the keys come first and the dummies last
    from_dummy = Fraction(WORDS - -(-keys * WORDS // others), WORDS)
    from_key = Fraction(WORDS - -(-(keys - 1) * WORDS // others), WORDS)
    return (
        ReportLaw(
            form=Keyed(
                own={"": {_NO_OUTCOME: span(kept)}},
                other={_NO_OUTCOME: _times(1 - kept, other.outcome)},
                dummy_from_dummy=span(kept + (1 - kept) * from_dummy),
                dummy_from_key=span((1 - kept) * from_key),
            ),
            keys=keys,
            padding=padding,
            draws=(Draw(name="slot", bound=padding), other),
        ),
    )


def set_unary_law(mechanism: Mechanism) -> tuple[ReportLaw, ...]:
    """Padding and sampling with OUE; the dummies' cells are never made."""
    padding: int = getattr(mechanism, "padding")  # noqa: B009 - a parameter of item-set mechanisms
    return (
        ReportLaw(
            form=_cells(mechanism.thresholds(), empty=True),
            keys=mechanism.keys,
            padding=padding,
            draws=(Draw(name="slot", bound=padding),),
        ),
    )


# -- values ----------------------------------------------------------------------------------------------------------


def sign_law(mechanism: Mechanism) -> tuple[ReportLaw, ...]:
    """Harmony: the coordinate is drawn alike for everybody, the sign is a randomised response."""
    kept = _share(mechanism.thresholds()["kept"])
    rows = {"+1": (span(kept), span(1 - kept)), "-1": (span(1 - kept), span(kept))}
    return (ReportLaw(form=Channel(columns=("+1", "-1"), rows=rows, sizes=(1, 1)), keys=mechanism.keys),)


def vector_law(mechanism: Mechanism) -> tuple[ReportLaw, ...]:
    """MeanEst: opposite vectors are as far apart as any; for even dimensions some reports are orthogonal to both."""
    d, toward = mechanism.keys, _share(mechanism.thresholds()["toward"])
    ties = comb(d, d // 2) if d % 2 == 0 else 0
    half = ((1 << d) - ties) // 2
    mended = Fraction(0) if d % 2 else _MENDED
    near, far = (
        (share * (1 - mended), share * (1 + (d // 2 + 1) * mended))
        for share in (toward / half, (1 - toward) / ((1 << d) - half))
    )
    return (
        ReportLaw(
            form=Channel(
                columns=("on the side of the first", "on the side of the second", "orthogonal"),
                rows={"the first": (near, far, far), "the second": (far, near, far)},
                sizes=(half, half, ties),
            ),
            keys=d,
        ),
    )


# -- utility-optimised --------------------------------------------------------------------------------------


def uldp_response_law(mechanism: Mechanism) -> tuple[ReportLaw, ...]:
    """uRR: the symbol itself is sent, or a uniform sensitive one. Both conditions of the definition are checked."""
    t = mechanism.thresholds()
    sent, u = _share(t["sent"]), t["sensitive"]
    drawn = Draw(name="sensitive symbol", bound=u)
    rest = _times(1 - sent, drawn.outcome)
    some = min(u, 2)
    sensitive = [f"sensitive {i}" for i in range(some)]
    # whatever the input, a symbol is drawn for the same words: the fewest for one of the two, the most for the other
    moved = dict(zip(sensitive, rest, strict=False))
    others = [f"other {i}" for i in range(2)]
    nothing = span(0)
    rows = {
        x: (
            *(span(moved[y] + sent * (x == y)) for y in sensitive),
            rest,
            *(span(sent) if x == y else nothing for y in others),
        )
        for x in (*sensitive, *others)
    }
    return (
        ReportLaw(
            form=Channel(
                columns=(*sensitive, "another sensitive one", *others),
                rows=rows,
                sizes=(*[1] * some, u - some, 1, 1),
                unprotected=tuple(others),
                sensitive=tuple(sensitive),
            ),
            keys=mechanism.keys,
            draws=(drawn,),
        ),
    )


def uldp_bits_law(mechanism: Mechanism) -> tuple[ReportLaw, ...]:
    """uRAP: bits of two sensitive and two other symbols; what is left out has the same law under every input."""
    t = mechanism.thresholds()
    own, other, shown = (_share(t[name]) for name in ("own_sensitive", "other_sensitive", "own_other"))
    some = min(t["sensitive"], 2)
    symbols = [*(f"sensitive {i}" for i in range(some)), "other 0", "other 1"]
    patterns = list(itertools.product((1, 0), repeat=len(symbols)))

    def chance(x: int, y: int) -> Fraction:
        if y < some:
            return own if x == y else other
        return shown if x == y else Fraction(0)

    rows = {
        name: tuple(
            span(prod((chance(x, y) if bit else 1 - chance(x, y) for y, bit in enumerate(bits)), start=Fraction(1)))
            for bits in patterns
        )
        for x, name in enumerate(symbols)
    }
    names = tuple(" ".join(name for name, bit in zip(symbols, bits, strict=True) if bit) or "none" for bits in patterns)
    telling = tuple(name for name, bits in zip(names, patterns, strict=True) if any(bits[some:]))
    form = Channel(
        columns=names,
        rows=rows,
        sizes=(1,) * len(names),
        unprotected=telling,
        sensitive=tuple(symbols[:some]),
    )
    return (ReportLaw(form=form, keys=mechanism.keys),)


def personalised_law(mechanism: Mechanism) -> tuple[ReportLaw, ...]:
    """PUM: the law of its base, over keys and tags."""
    return (uldp_response_law if "sent" in mechanism.thresholds() else uldp_bits_law)(mechanism)
