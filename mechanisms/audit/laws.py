"""Laws of the mechanisms, read off their published integer thresholds and nothing else.

One function a mechanism. The thresholds are what enters the fingerprint of a collection, so that whoever holds
a definition can repeat the audit without trusting the code that perturbs.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from fractions import Fraction
from types import MappingProxyType
from typing import Any, Final

from ..attributes import Attributes
from ..probability import WORDS
from ..protocol import Mechanism
from ..repeated import Repeated
from . import categorical
from .drawn_key import drawn_key_law, rounds_law
from .law import Cells, Draw, Keyed, ReportLaw, span

__all__ = ["LAWS", "law_of"]

_SIGNS: Final = ("+1", "-1")


def law_of(mechanism: Mechanism) -> tuple[ReportLaw, ...]:
    """Return the law of each round's report; nothing where a mechanism has no factorised form here.

    Several answers in one row are as many rounds; of attributes of which one is drawn, the one that loses most counts.
    """
    if isinstance(mechanism, Repeated):
        return law_of(mechanism.inner) * mechanism.times
    if isinstance(mechanism, Attributes):
        if mechanism.mode == "sampled":
            return law_of(max(mechanism.inner, key=lambda inner: inner.exact_epsilon()))
        return tuple(law for inner in mechanism.inner for law in law_of(inner))
    read = LAWS.get(mechanism.name)
    return () if read is None else read(mechanism)


def _share(threshold: int) -> Fraction:
    return Fraction(threshold, WORDS)


def _flip(sign: str) -> str:
    return _SIGNS[1 - _SIGNS.index(sign)]


def _parameter(mechanism: Mechanism, name: str) -> Any:
    return getattr(mechanism, name)


def _pckv_ue(mechanism: Mechanism) -> tuple[ReportLaw, ...]:
    t = mechanism.thresholds()
    same, kept, other = (_share(t[name]) for name in ("kept_with_sign", "kept", "other"))
    padding = _parameter(mechanism, "padding")
    law = ReportLaw(
        form=Cells(
            own={sign: {sign: same, _flip(sign): kept - same, "0": 1 - kept} for sign in _SIGNS},
            other={"+1": other / 2, "-1": other / 2, "0": 1 - other},
        ),
        keys=mechanism.keys,
        padding=padding,
        steps={"key": kept * (1 - other) / (other * (1 - kept)), "value": same / (kept - same)},
        draws=(Draw(name="slot", bound=padding),),
    )
    return (law,)


def _pckv_grr(mechanism: Mechanism) -> tuple[ReportLaw, ...]:
    t = mechanism.thresholds()
    same, kept, others = _share(t["kept_with_sign"]), _share(t["kept"]), t["other_keys"]
    padding = _parameter(mechanism, "padding")
    moved, one = (1 - kept) / 2, Draw(name="other key", bound=others)
    other = moved * one.outcome[0], moved * one.outcome[1]
    # dummies are the last of the other keys: what is left when the first ones are taken off
    to_dummy_from_key = Fraction(WORDS - -(-(mechanism.keys - 1) * WORDS // others), WORDS)
    to_dummy_from_dummy = Fraction(WORDS - -(-mechanism.keys * WORDS // others), WORDS)
    law = ReportLaw(
        form=Keyed(
            own={sign: {sign: span(same), _flip(sign): span(kept - same)} for sign in _SIGNS},
            other=dict.fromkeys(_SIGNS, other),
            dummy_from_key=span(moved * to_dummy_from_key),
            dummy_from_dummy=span(kept / 2 + moved * to_dummy_from_dummy),
        ),
        keys=mechanism.keys,
        padding=padding,
        steps={"key": kept / ((1 - kept) / others), "value": same / (kept - same)},
        draws=(Draw(name="slot", bound=padding), one),
    )
    return (law,)


def _percentiles(mechanism: Mechanism) -> tuple[ReportLaw, ...]:
    """A pair of key and bin is one item of the inner oracle."""
    inner: Mechanism = _parameter(mechanism, "_inner")
    return law_of(inner)


#: How to read the law of each mechanism, by its name.
LAWS: Final[Mapping[str, Callable[[Mechanism], tuple[ReportLaw, ...]]]] = MappingProxyType(
    {
        "pckv-ue": _pckv_ue,
        "pckv-grr": _pckv_grr,
        "rr": categorical.response_law,
        "grr": categorical.response_law,
        "sue": categorical.unary_law,
        "oue": categorical.unary_law,
        "olh": categorical.hashing_law,
        "subset-selection": categorical.subset_law,
        "shist": categorical.hadamard_law,
        "hadamard": categorical.hadamard_law,
        "psfo-grr": categorical.set_response_law,
        "psfo-oue": categorical.set_unary_law,
        "percentiles": _percentiles,
        "harmony": categorical.sign_law,
        "meanest": categorical.vector_law,
        "urr": categorical.uldp_response_law,
        "urap": categorical.uldp_bits_law,
        "pum": categorical.personalised_law,
        "privkv": drawn_key_law,
        "kvue": drawn_key_law,
        "privkvm": rounds_law,
        "privkvm+": rounds_law,
        "privkvm-harmony": rounds_law,
        "privkvm-meanest": rounds_law,
    }
)
