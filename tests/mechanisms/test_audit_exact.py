"""The exact audit against brute force, against the mechanisms' own statements, and against planted faults."""

from dataclasses import replace
from fractions import Fraction

import numpy as np
import pytest
from ldp_beam.mechanisms import PCKVGRR, PCKVUE, VALUE_ONE
from ldp_beam.mechanisms.audit.audit import audit_exact
from ldp_beam.mechanisms.audit.enumeration import PIECES, Piece, Word, cut, derive, drawn, enumerated_ratio
from ldp_beam.mechanisms.audit.law import Cells, Channel, Keyed, ReportLaw, check, loss, loss_of_size, span
from ldp_beam.mechanisms.audit.laws import law_of
from ldp_beam.mechanisms.probability import WORDS, log_up

KINDS = [PCKVUE, PCKVGRR]


def as_bytes(mechanism, report):
    """The report of a fixture's law as the bytes that the client would send."""
    if mechanism.name == "pckv-grr":
        key, sign = report
        return np.int32(key).tobytes() + np.int8(sign).tobytes()
    cells = np.array(report)
    planes = [np.packbits(cells == sign, bitorder="little").tobytes() for sign in (-1, 1)]  # minus, plus
    return b"".join(planes)


# -- the client's code, word by word ------------------------------------------------------------------------


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize(("keys", "padding"), [(2, 1), (2, 2), (3, 2)])
def test_the_derived_distribution_is_the_exact_law(kind, keys, padding, law_of):  # the fixture's law
    """Two independent derivations: from formulas in the fixture, and from the client's code."""
    mechanism = kind(epsilon="1.3", keys=keys, padding=padding)
    for record in ((), ((1, Fraction(1, 2)),), ((0, Fraction(-1)), (1, Fraction(1)))):
        held = tuple((key, int(value * VALUE_ONE)) for key, value in record)
        expected = {as_bytes(mechanism, y): share for y, share in law_of(mechanism, record).items() if share}
        assert derive(mechanism, held, PIECES[mechanism.name](mechanism, held)) == expected


@pytest.mark.parametrize("kind", KINDS)
def test_a_threshold_that_is_off_by_one_is_found(kind):
    mechanism = kind(epsilon=1, keys=2, padding=1)
    record = ((0, VALUE_ONE),)
    words = PIECES[mechanism.name](mechanism, record)
    for name in ("same", "kept"):
        faulty = kind(epsilon=1, keys=2, padding=1)
        object.__setattr__(faulty, "_law", replace(mechanism._law, **{name: getattr(mechanism._law, name) + 1}))
        with pytest.raises(ValueError, match="changes within a piece"):
            derive(faulty, record, words)
    derive(mechanism, record, words)


def test_a_word_that_is_not_declared_is_found():
    mechanism = PCKVGRR(epsilon=1, keys=3, padding=1)
    words = PIECES["pckv-grr"](mechanism, ((0, VALUE_ONE),))
    with pytest.raises(ValueError, match="changes within a piece"):
        derive(mechanism, ((0, VALUE_ONE),), words[:-1])


def test_pieces_cover_all_words_once():
    for bound in (1, 2, 3, 10, 101):
        pieces = drawn(bound)
        assert len(pieces) == bound
        assert sum(piece.share for piece in pieces) == 1
        for number, piece in enumerate(pieces):
            assert {word * bound >> 64 for word in piece.words()} == {number}
    assert Piece(0, 10, 2).words() == (0, 8, 4)
    with pytest.raises(ValueError, match="do not cover"):
        Word((0, 0), cut(5)[:1])


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize(("epsilon", "keys", "padding"), [(1, 2, 1), (2, 2, 2), ("0.001", 2, 1), (20, 2, 2), (1, 2, 3)])
def test_factors_and_code_agree_exactly(kind, epsilon, keys, padding):
    """The loss from the published thresholds is the loss of the distributions that the code produces."""
    mechanism = kind(epsilon=epsilon, keys=keys, padding=padding)
    (law,) = law_of(mechanism)
    found = loss(law).ratio
    code = enumerated_ratio(mechanism)
    assert found >= code
    assert float(found / code - 1) < 1e-17  # bounds of the integer draws' biases, nothing else
    assert log_up(found) <= mechanism.exact_epsilon() <= float(epsilon)


# -- every domain ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("allocation", ["optimized", "non-optimized", "naive"])
@pytest.mark.parametrize(("keys", "padding"), [(1, 1), (100, 1), (100, 7), (10_000, 10), (10_000, 10_000)])
def test_never_above_the_declared_and_tight(kind, allocation, keys, padding):
    for epsilon in ("0.001", "0.3", "1", "4", "20"):
        found = audit_exact(kind(epsilon=epsilon, keys=keys, padding=padding, allocation=allocation))
        assert found.method == "factorised"
        assert found.violations == []
        assert found.exact <= float(epsilon)
        if keys >= 2 * padding or kind is PCKVGRR:
            assert found.exact == pytest.approx(found.stated, abs=1e-13)
        if allocation == "optimized" and keys >= 2 * padding:
            assert float(epsilon) - found.exact < 1e-9


@pytest.mark.parametrize("kind", KINDS)
def test_every_size_of_a_record_is_covered(kind):
    """The loss by size, against a search over all pairs of sizes with the factors written out here."""
    mechanism = kind(epsilon=1, keys=12, padding=4)
    (law,) = law_of(mechanism)
    whole = loss(law).ratio
    by_size = [loss_of_size(law, size).ratio for size in range(13)]
    assert max(by_size) == whole
    assert all(1 <= ratio <= whole for ratio in by_size)
    assert by_size[4:] == [by_size[4]] * 9  # more keys than the padding: mixtures
    if kind is PCKVUE:
        t = {name: Fraction(number, WORDS) for name, number in mechanism.thresholds().items()}
        factors = [2 * t["kept_with_sign"] / t["other"], 2 * (t["kept"] - t["kept_with_sign"]) / t["other"]]
        factors.append((1 - t["kept"]) / (1 - t["other"]))
        top, bottom = max(factors), min(factors)
        for size in range(5):
            pairs = [
                ((one * top + 4 - one) / 4, (other * bottom + 4 - other) / 4)
                for one, other in [(size, o) for o in range(5)] + [(o, size) for o in range(5)]
            ]
            assert by_size[size] == max(high / low for high, low in pairs)


def test_naive_composition_is_the_sum_of_the_steps():
    """Equal budgets of 1 and 1 compose to 1.3799 (unary) at any padding; naive composition charges 2."""
    found = audit_exact(PCKVUE(epsilon=2, keys=100, padding=5, allocation="naive"))
    assert found.exact == pytest.approx(1.3799, abs=5e-5)
    assert found.naive == pytest.approx(2, abs=1e-9)
    found = audit_exact(PCKVGRR(epsilon=2, keys=100, padding=5, allocation="naive"))
    assert found.exact == pytest.approx(0.4668, abs=5e-5)
    assert found.naive == pytest.approx(2, abs=1e-9)


# -- faults ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("name", ["same", "kept", "other"])
def test_a_mechanism_whose_thresholds_leak_is_reported(kind, name):
    mechanism = kind(epsilon=1, keys=4, padding=1)
    step = WORDS // 100
    law = mechanism._law
    moved = {"same": {"same": law.same + step}, "kept": {"same": law.same + step, "kept": law.kept + step}}
    moved["other"] = {"other": law.other - step} if kind is PCKVUE else moved["same"]
    object.__setattr__(mechanism, "_law", replace(law, **moved[name]))
    found = audit_exact(mechanism)
    assert found.exact > 1
    assert found.violations


def test_a_mechanism_that_understates_itself_is_reported(monkeypatch):
    mechanism = PCKVUE(epsilon=1, keys=50, padding=1)
    monkeypatch.setattr(PCKVUE, "exact_epsilon", lambda self: 0.5)
    assert any("more than the 0.5" in text for text in audit_exact(mechanism).violations)


def test_the_laws_are_checked():
    half = Fraction(1, 2)
    with pytest.raises(ValueError, match="add up"):
        check(ReportLaw(form=Cells(own={"v": {"0": half, "1": half}}, other={"0": half, "1": half / 2}), keys=2))
    negative = {"0": Fraction(3, 2), "1": -half}
    with pytest.raises(ValueError, match="not a probability"):
        check(ReportLaw(form=Cells(own={"v": negative}, other={"0": half, "1": half}), keys=2))
    with pytest.raises(ValueError, match="add up"):
        loss(ReportLaw(form=Keyed(own={"v": {"": span(half)}}, other={"": span(half)}), keys=5))
    rows = {"x": (span(half), span(half)), "y": (span(1), span(0))}
    with pytest.raises(ValueError, match="impossible"):
        loss(ReportLaw(form=Channel(columns=("a", "b"), rows=rows, sizes=(1, 1)), keys=2))
    rows = {"x": (span(half), span(half)), "y": (span(half), span(half))}
    unprotected = Channel(columns=("a", "b"), rows=rows, sizes=(1, 1), unprotected=("b",))
    with pytest.raises(ValueError, match="can come from x and y"):
        loss(ReportLaw(form=unprotected, keys=2))


def test_single_items():
    """RR, GRR and a unary encoding in the three forms, against their closed forms."""
    p, q = Fraction(3, 4), Fraction(1, 4)
    rows = {"yes": (span(p), span(q)), "no": (span(q), span(p))}
    assert loss(ReportLaw(form=Channel(columns=("1", "0"), rows=rows, sizes=(1, 1)), keys=2)).ratio == 3
    grr = Keyed(own={"": {"": span(Fraction(1, 2))}}, other={"": span(Fraction(1, 10))})
    assert loss(ReportLaw(form=grr, keys=6)).ratio == 5
    unary = Cells(own={"": {"1": Fraction(1, 2), "0": Fraction(1, 2)}}, other={"1": q, "0": p})
    assert loss(ReportLaw(form=unary, keys=6)).ratio == 3
    alone = Cells(own={"": {"1": Fraction(1, 2), "0": Fraction(1, 2)}}, other={"1": q, "0": p}, empty=False)
    assert loss(ReportLaw(form=alone, keys=1)).ratio == 1
