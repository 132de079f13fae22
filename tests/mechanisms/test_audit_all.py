"""The exact audit of every mechanism: its law agrees with what it states, and with its code on small domains."""

from dataclasses import replace
from decimal import Decimal

import numpy as np
import pytest
from ldp_beam.mechanisms import MECHANISMS, make_mechanism
from ldp_beam.mechanisms.audit.audit import audit_exact
from ldp_beam.mechanisms.audit.enumeration import PIECES, enumerated_ratio
from ldp_beam.mechanisms.audit.law import loss
from ldp_beam.mechanisms.audit.laws import LAWS, law_of
from ldp_beam.mechanisms.probability import log_up

MORE = {
    "urr": {"sensitive": [0, 1]},
    "urap": {"sensitive": [0, 1]},
    "pum": {"tags": ["home", "work"], "sensitive": [1]},
    "percentiles": {"bins": 4, "padding": 2},
}
#: Mechanisms whose papers compose their steps naively: the exact loss is below the declared epsilon.
LOOSE = {"privkv", "privkvm", "privkvm+", "privkvm-harmony", "privkvm-meanest"}


#: Sizes of domains whose reports can all be listed; `meanest` draws again where the number is even.
KEYS = {
    **dict.fromkeys(("psfo-oue", "psfo-grr", "grr", "sue", "oue", "olh", "subset-selection", "urr", "urap"), 4),
    **dict.fromkeys(("meanest", "harmony", "privkv", "kvue", "pum"), 3),
}


def make(name, epsilon, keys):
    given = {"padding": 2} if "padding" in MECHANISMS[name].parameters else {}
    return make_mechanism(name, epsilon=epsilon, keys=2 if name == "rr" else keys, **{**given, **MORE.get(name, {})})


def test_every_mechanism_has_a_law():
    assert set(LAWS) == set(MECHANISMS)


@pytest.mark.parametrize("name", sorted(MECHANISMS))
@pytest.mark.parametrize(("epsilon", "keys"), [("0.001", 5), ("1", 20), ("2.5", 7), ("20", 20), ("1", 3000)])
def test_the_law_gives_what_the_mechanism_states(name, epsilon, keys):
    found = audit_exact(make(name, epsilon, keys), enumerate_reports=False)
    assert found.method == "factorised"
    assert found.violations == []
    assert Decimal(found.exact) <= Decimal(epsilon)
    assert found.exact == pytest.approx(found.stated, abs=1e-12)
    if name not in LOOSE:
        assert float(epsilon) - found.exact < 1e-9


@pytest.mark.parametrize("name", sorted(PIECES.keys() - {"round"}))
@pytest.mark.parametrize("epsilon", ["0.5", "3"])
def test_the_code_gives_what_the_law_says(name, epsilon):
    mechanism = make(name, epsilon, KEYS.get(name, 2))
    code = enumerated_ratio(mechanism)
    assert code is not None
    (law,) = law_of(mechanism)
    assert log_up(code) == pytest.approx(audit_exact(mechanism, enumerate_reports=False).exact, abs=1e-13)
    assert law.keys


@pytest.mark.parametrize("name", ["privkvm", "privkvm+", "privkvm-harmony", "privkvm-meanest"])
def test_the_code_of_all_rounds_gives_what_their_laws_say(name):
    """Every round, with either sign fed back; the ratios of the rounds multiply."""
    more = {"max_rounds": 3} if name == "privkvm+" else {"rounds": 3}
    mechanism = make_mechanism(name, epsilon="2", keys=3, **more)
    code = enumerated_ratio(mechanism)
    assert log_up(code) == pytest.approx(audit_exact(mechanism, enumerate_reports=False).exact, abs=1e-13)


def test_a_domain_too_large_to_list_is_not_run():
    assert enumerated_ratio(make("olh", "1", 7)) is None
    assert enumerated_ratio(make("meanest", "1", 4)) is None
    assert enumerated_ratio(make_mechanism("privkvm", epsilon=1, keys=7)) is None


def test_code_that_tells_of_a_key_although_a_sensitive_one_is_held_is_found(monkeypatch):
    """Of {sensitive, other} the other key would be told half of the time."""
    mechanism = make("urr", "1", 4)
    monkeypatch.setattr("ldp_beam.mechanisms.uldp.definition._eligible", _everything)
    with pytest.raises(ValueError, match=r"changes within a piece|sensitive key can send"):
        enumerated_ratio(mechanism)


def _everything(records, sensitive):
    return np.ones(len(sensitive), dtype=bool), records.sizes


def test_code_that_shows_a_sensitive_symbol_as_another_is_found(monkeypatch):
    """The sets name key 1 sensitive, the obfuscation forgets it."""
    mechanism = make("urap", "1", 4)
    broken = mechanism._core.sets.place.copy()
    broken[1] = -1
    monkeypatch.setattr(mechanism._core, "sets", replace(mechanism._core.sets, place=broken))
    with pytest.raises(ValueError, match=r"sensitive|changes within"):
        enumerated_ratio(mechanism)


def test_both_conditions_of_uldp_are_checked():
    for name in ("urr", "urap", "pum"):
        (law,) = law_of(make(name, "1", 10))
        assert law.form.unprotected
        for column, report in enumerate(law.form.columns):
            causes = [row for row, spans in law.form.rows.items() if spans[column][1] > 0]
            if report in law.form.unprotected:
                assert len(causes) <= 1
                assert not set(causes) & set(law.form.sensitive)
            else:
                assert len(causes) == len(law.form.rows)


def test_an_unprotected_report_of_a_sensitive_input_is_found():
    (law,) = law_of(make("urr", "1", 10))
    leaking = replace(law.form, sensitive=(*law.form.sensitive, "other 0"))
    with pytest.raises(ValueError, match="can come from other 0"):
        loss(replace(law, form=leaking))


@pytest.mark.parametrize("name", sorted(LOOSE))
def test_naive_composition_of_the_privkv_family_is_the_declared_epsilon(name):
    """Steps of epsilon/2 and epsilon/(2c) add up; in later rounds the key step spends nothing."""
    found = audit_exact(make(name, "1", 20))
    assert found.exact < 1
    assert found.naive == pytest.approx(1, abs=1e-6)
