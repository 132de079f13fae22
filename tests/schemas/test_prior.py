"""The table [prior] of a definition: what it may hold; it acts on the fingerprint through the thresholds alone."""

import pytest
from ldp_beam.errors import InputError
from ldp_beam.schemas.collection import Definition
from ldp_beam.transforms.collection import Collection

PRIOR = "[prior]\nfrequency = 0.5\nmean = 0.5\nusers = 1000000\n"


def define(prior=PRIOR, allocation='allocation = "numerical"', mechanism="pckv-ue", epsilon=2):
    text = f'name = "x"\nmechanism = "{mechanism}"\nepsilon = {epsilon}\npadding = 1\n{allocation}\n'
    return Definition.from_text(text + f"[keys]\ncount = 5\n[values]\nrange = [0, 1]\n{prior}")


def test_the_prior_reaches_the_mechanism():
    collection = Collection.of(define())
    assert collection.mechanism.parameters()["a"] == pytest.approx(0.7578125)
    other = Collection.of(define(PRIOR.replace("0.5\nusers", "0\nusers")))
    assert other.fingerprint != collection.fingerprint
    assert Collection.of(define(PRIOR + "mean_weight = 0\n")).fingerprint != collection.fingerprint


def test_priors_of_the_same_thresholds_ask_the_same():
    near = PRIOR.replace("1000000", "1000001")
    assert Collection.of(define(near)).fingerprint == Collection.of(define()).fingerprint


def test_a_manifest_gives_the_definition_back():
    definition = define(PRIOR + "mean_weight = 0.25\n")
    again = Definition.from_public(definition.public(), definition.keys)
    assert again.parameters == definition.parameters
    assert Collection.of(again).fingerprint == Collection.of(definition).fingerprint


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"prior": ""}, r"\[prior\] is missing"),
        ({"prior": "[prior]\nfrequency = 0.5\nmean = 0\n"}, r"'prior\.users' is missing"),
        ({"prior": PRIOR + "keys = 3\n"}, r"'prior\.keys' is unknown"),
        ({"prior": PRIOR.replace("0.5\nmean", "0\nmean")}, r"'prior\.frequency' is 0"),
        ({"prior": PRIOR.replace("1000000", "0")}, r"'prior\.users' is 0"),
        ({"prior": PRIOR.replace("0.5\nusers", '"high"\nusers')}, r"'prior\.mean' is 'high'"),
        ({"allocation": ""}, "acts on allocation = 'numerical' alone"),
        ({"mechanism": "pckv-grr", "prior": ""}, "'allocation' is 'numerical'"),
        ({"mechanism": "pckv-grr", "allocation": ""}, "'prior' is unknown"),
    ],
)
def test_wrong_priors_are_refused(changes, message):
    with pytest.raises(InputError, match=message):
        define(**changes)
