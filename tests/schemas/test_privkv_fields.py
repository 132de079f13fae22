"""The table [privkv]: what each mechanism reads, its defaults, what it refuses, and what the fingerprint covers."""

import json
from decimal import Decimal

import pytest
from ldp_beam.errors import InputError
from ldp_beam.schemas.collection import Definition

TEXT = """
name = "n"
mechanism = "{mechanism}"
epsilon = 2
{more}
[keys]
count = 3
[values]
range = [0, 1]
"""


def parse(mechanism, more=""):
    return Definition.from_text(TEXT.format(mechanism=mechanism, more=more))


def fingerprint(mechanism, more=""):
    return parse(mechanism, more).fingerprint({"threshold": 1})


@pytest.mark.parametrize(
    ("mechanism", "expected"),
    [
        ("privkv", {"allocation": "naive", "privkv": {"virtual_rounds": 5}}),
        ("privkvm", {"privkv": {"rounds": 6, "initial": Decimal(0)}}),
        ("privkvm-harmony", {"privkv": {"rounds": 6, "initial": Decimal(0)}}),
        ("privkvm-meanest", {"privkv": {"rounds": 6, "initial": Decimal(0)}}),
        (
            "privkvm+",
            {
                "privkv": {
                    "A0": Decimal("0.05"),
                    "t": Decimal(2),
                    "decay": Decimal(0),
                    "initial": Decimal(0),
                    "max_rounds": 6,
                }
            },
        ),
        ("kvue", {}),
    ],
)
def test_defaults(mechanism, expected):
    found = parse(mechanism).parameters
    assert {name: value for name, value in found.items() if name in expected} == expected


def test_what_is_written_is_read():
    table = '[privkv]\nA0 = 0.125\nt = 1.5\ndecay = 0.25\ninitial = "-0.5"\nmax_rounds = 3'
    found = parse("privkvm+", table).parameters["privkv"]
    numbers = {name: str(value) for name, value in found.items()}
    assert numbers == {"A0": "0.125", "t": "1.5", "decay": "0.25", "initial": "-0.5", "max_rounds": "3"}


@pytest.mark.parametrize(
    ("mechanism", "more", "message"),
    [
        ("privkvm", "[privkv]\nround = 3", r"'privkv\.round' is unknown. Did you mean 'rounds'"),
        ("privkvm", "[privkv]\nvirtual_rounds = 3", r"'privkv\.virtual_rounds' is unknown"),
        ("privkvm", "[privkv]\nrounds = 0", r"'privkv\.rounds' is 0; it must be a whole number from 1 to 100"),
        ("privkvm", "[privkv]\nrounds = 101", "from 1 to 100"),
        ("privkvm", "[privkv]\nrounds = 2.5", r"'privkv\.rounds'"),
        ("privkvm", "[privkv]\ninitial = 2", "from -1 to 1"),
        ("privkvm", '[privkv]\ninitial = "one"', r"'privkv\.initial'"),
        ("privkvm", "[privkv]\ninitial = nan", r"'privkv\.initial'"),
        ("privkvm", "privkv = 3", "must be a table"),
        ("privkvm+", "[privkv]\nt = 1", "above 1"),
        ("privkvm+", "[privkv]\nA0 = -0.1", "from 0 to 2"),
        ("privkvm+", "[privkv]\ndecay = 1", "from 0 to 0.99"),
        ("privkvm+", "[privkv]\nmax_rounds = true", r"'privkv\.max_rounds' is true"),
        ("privkv", "[privkv]\nvirtual_rounds = -1", r"'privkv\.virtual_rounds'"),
        ("privkv", 'allocation = "optimised"', "Did you mean 'optimized'"),
        ("privkvm", 'allocation = "optimized"', "'allocation' is unknown"),
        ("kvue", "[privkv]\nrounds = 2", "'privkv' is unknown"),
        ("pckv-ue", "padding = 1\n[privkv]\nrounds = 2", "'privkv' is unknown"),
        ("kvue", 'estimator = "virtual-half"', "estimator"),
    ],
)
def test_what_does_not_fit_is_refused(mechanism, more, message):
    with pytest.raises(InputError, match=message):
        parse(mechanism, more)


def test_the_fingerprint_covers_what_clients_do():
    assert fingerprint("privkvm") == fingerprint("privkvm", "[privkv]\nrounds = 6\ninitial = 0.0")
    assert fingerprint("privkvm") != fingerprint("privkvm", "[privkv]\nrounds = 5")
    assert fingerprint("privkvm") != fingerprint("privkvm", "[privkv]\ninitial = 1")
    assert fingerprint("privkvm+") != fingerprint("privkvm+", "[privkv]\nt = 3")
    # what the server alone computes
    assert fingerprint("privkv") == fingerprint("privkv", "[privkv]\nvirtual_rounds = 9")
    assert fingerprint("privkv") == fingerprint("privkv", 'estimator = "virtual-half"')


@pytest.mark.parametrize("mechanism", ["privkv", "privkvm", "privkvm+", "kvue"])
def test_the_definition_of_a_manifest_is_the_same_one(mechanism):
    definition = parse(mechanism)
    public = json.loads(json.dumps(definition.public()))
    again = Definition.from_public(public, definition.keys)
    assert again.parameters == definition.parameters
    assert again.fingerprint({"t": 1}) == definition.fingerprint({"t": 1})
