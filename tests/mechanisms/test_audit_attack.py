"""The attack on the client's code: planted faults are reported, healthy mechanisms are not.

False alarms: a healthy mechanism is accused with probability 1e-5 at most (the attack's confidence) where its
bound is tight; the tests of healthy mechanisms use 1 - 1e-11, thirty of them together 3e-10. Power: at the
numbers of reports used here each planted fault lies at least six standard errors beyond the declared epsilon.
"""

from dataclasses import replace

import numpy as np
import pytest
from ldp_beam.errors import InputError
from ldp_beam.mechanisms import MECHANISMS, PCKVGRR, PCKVUE, MultiRound, Reports, make_mechanism
from ldp_beam.mechanisms.audit.attack import attack, clopper_pearson
from ldp_beam.mechanisms.pckv import pckv
from ldp_beam.mechanisms.probability import WORDS
from scipy.stats import beta

KINDS = [PCKVUE, PCKVGRR]


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize(("epsilon", "keys", "padding"), [(1, 4, 1), (2, 5, 2), (0.5, 100, 1), (1, 20, 3)])
def test_a_healthy_mechanism_is_not_accused(kind, epsilon, keys, padding):
    found = attack(kind(epsilon=epsilon, keys=keys, padding=padding), 50_000, confidence=1 - 1e-11)
    assert not found.violation
    assert found.reports == 50_000
    if padding == 1 and keys < 10:
        assert found.epsilon_low > 0.8 * epsilon  # the attack finds a pair that is nearly the worst


@pytest.mark.parametrize("name", sorted(MECHANISMS))
def test_every_mechanism_can_be_attacked(name):
    """Its own kinds of reports and records; bounds at 1 - 1e-11 as above, some two dozen of them."""
    given = {"padding": 1} if "padding" in MECHANISMS[name].parameters else {}
    more = {
        "urr": {"sensitive": [0, 3, 5]},
        "urap": {"sensitive": [0, 3, 5]},
        "pum": {"tags": ["home", "work"], "sensitive": [1]},
        "percentiles": {"bins": 4},
    }
    mechanism = make_mechanism(name, epsilon=2, keys=2 if name == "rr" else 6, **{**given, **more.get(name, {})})
    if isinstance(mechanism, MultiRound):
        mechanism = mechanism.round(1)
    found = attack(mechanism, 5_000, confidence=1 - 1e-11)
    assert not found.violation
    assert found.epsilon_low > 0.2 * found.declared or name == "percentiles"


# -- planted faults ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("step", ["key", "sign"])
def test_a_keep_probability_that_is_off_by_a_hundredth(kind, step):
    """What the mechanism states, thresholds and exact epsilon, may still be right: the client does something else."""
    mechanism = kind(epsilon=1, keys=4, padding=1)
    law, off = mechanism._law, WORDS // 100
    if step == "key":  # a + 0.01, the sign kept as often as before
        kept = law.kept + off
        law = replace(law, kept=kept, same=law.same * kept // law.kept)
    else:  # p + 0.01
        law = replace(law, same=law.same + law.kept // 100)
    object.__setattr__(mechanism, "_law", law)
    found = attack(mechanism, 4_000_000 if step == "key" else 500_000)
    assert found.violation


@pytest.mark.parametrize("kind", KINDS)
def test_a_fake_value_that_is_not_uniform(kind, monkeypatch):
    mechanism = kind(epsilon=1, keys=4, padding=1)
    if kind is PCKVUE:
        noise = pckv.cell_noise

        def biased(*arguments):
            cells, signs = noise(*arguments)
            signs |= noise(*arguments)[1] >> np.uint64(1)  # a second coin for each cell: +1 in 3 of 4
            return cells, signs

        monkeypatch.setattr(pckv, "cell_noise", biased)
    else:
        sample = pckv.sample
        monkeypatch.setattr(
            pckv, "sample", lambda *a: (lambda s: replace(s, coin=s.coin | (s.key % 2 == 0)))(sample(*a))
        )
    assert attack(mechanism, 50_000).violation


@pytest.mark.parametrize("kind", KINDS)
def test_a_dummy_slot_that_leaks(kind, monkeypatch):
    """Users of whom a dummy was sampled are told from others: their dummy is always reported, or nothing at all."""
    mechanism = kind(epsilon=1, keys=4, padding=2)
    perturb = kind.perturb

    def leaking(self, records, stream):
        made = perturb(self, records, stream)
        nothing = records.sizes == 0
        if kind is PCKVUE:
            made.arrays["plus"][nothing], made.arrays["minus"][nothing] = 0, 0
        else:
            made.arrays["key"][nothing] = self.keys
        return made

    monkeypatch.setattr(kind, "perturb", leaking)
    assert attack(mechanism, 50_000).violation


@pytest.mark.parametrize("kind", KINDS)
def test_random_bits_of_the_key_that_serve_the_value_again(kind, monkeypatch):
    """The word that keeps the key also decides the sign's fate: a kept key then nearly always keeps its sign."""
    mechanism = kind(epsilon=1, keys=4, padding=1)
    sample = pckv.sample

    def reusing(records, padding, law, blocks, **more):
        fates = blocks[0, :, 1]
        drawn = sample(records, padding, law, blocks, **more)
        honest = drawn.plus ^ (fates >= np.uint64(law.same))
        keep_sign = fates < np.uint64(int(law.p * WORDS))
        return replace(drawn, plus=honest ^ ~keep_sign)

    monkeypatch.setattr(pckv, "sample", reusing)
    assert attack(mechanism, 50_000).violation


@pytest.mark.parametrize("kind", KINDS)
def test_a_length_that_depends_on_the_record(kind, monkeypatch):
    mechanism = kind(epsilon=1, keys=40, padding=2)
    perturb = kind.perturb

    def telling(self, records, stream):
        made = perturb(self, records, stream)
        texts = np.array([b"x" * int(size > 1) for size in records.sizes], dtype=object)
        return Reports(n=made.n, arrays={**made.arrays, "comment": texts})

    monkeypatch.setattr(kind, "perturb", telling)
    found = attack(mechanism, 20_000)
    assert found.violation
    assert "length" in found.event


@pytest.mark.parametrize("kind", KINDS)
def test_a_plane_or_field_that_is_wider_for_some(kind, monkeypatch):
    mechanism = kind(epsilon=1, keys=40, padding=2)
    perturb = kind.perturb

    def wider(self, records, stream):
        made = perturb(self, records, stream)
        extra = np.zeros((made.n, 1 + int(records.sizes.max())), dtype=np.uint16)
        return Reports(n=made.n, arrays={**made.arrays, "more": extra})

    monkeypatch.setattr(kind, "perturb", wider)
    assert attack(mechanism, 5_000).violation


# -- the bounds -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("successes", "trials"), [(0, 10), (1, 10), (10, 10), (3, 200_000), (370_000, 1_000_000)])
@pytest.mark.parametrize("confidence", [0.9, 0.999, 1 - 1e-11])
def test_clopper_pearson_equals_the_quantiles_of_the_beta_law(successes, trials, confidence):
    low, high = clopper_pearson(successes, trials, confidence)
    tail = (1 - confidence) / 2
    expected = beta.ppf(tail, successes, trials - successes + 1) if successes else 0
    assert low == pytest.approx(expected, rel=1e-6)
    expected = beta.isf(tail, successes + 1, trials - successes) if successes < trials else 1
    assert high == pytest.approx(expected, rel=1e-6)


def test_too_few_reports_are_refused():
    with pytest.raises(InputError, match="at least 1,000"):
        attack(PCKVUE(epsilon=1, keys=4, padding=1), 999)
