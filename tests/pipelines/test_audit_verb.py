"""`ldp-beam audit`: the object that it prints, and its exit code."""

import json
from dataclasses import replace

import pytest
from ldp_beam.mechanisms import PCKVUE

PCKV = ("audit", "--mechanism", "pckv-ue", "--epsilon", "1", "--keys", "10000", "--padding", "10")


def test_a_mechanism_by_name(run_json):
    said = run_json(*PCKV)
    assert said["mechanism"] == "pckv-ue"
    assert said["declared_epsilon"] == 1
    assert 1 - 1e-9 < said["exact_epsilon"] <= 1
    assert said["method"] == "factorised"
    assert said["violations"] == []
    assert said["naive_composition_epsilon"] > 1.6
    assert set(said["epsilon_by_set_size"]) == {"0", "1", "9", "10", "11", "10000"}
    assert said["epsilon_by_set_size"]["0"] < said["epsilon_by_set_size"]["10000"] == said["exact_epsilon"]
    assert said["integer_draws"]["slot"]["outcomes"] == 10
    assert said["report"] == {"fields": {"plus": 1250, "minus": 1250}, "bytes": 2500, "holds_user_id": False}
    assert said["statistical"] is None


def test_a_collection_and_the_attack(define, run_json):
    said = run_json("audit", "--collection", define(mechanism="pckv-grr"), "--reports", 20_000)
    assert said["enumerated_epsilon"] == pytest.approx(said["exact_epsilon"], abs=1e-13)
    attacked = said["statistical"]
    assert 1 < attacked["epsilon_lower_bound"] < 2 == said["declared_epsilon"]
    assert attacked["confidence"] == 0.99999
    assert attacked["violation"] is False


def test_other_parameters_have_a_name(run_json):
    said = run_json("audit", "--mechanism", "privkvm", "--epsilon", "1", "--keys", "30", "--parameter", "rounds=4")
    assert said["rounds"] == 4
    assert said["exact_epsilon"] < 1
    assert said["naive_composition_epsilon"] == pytest.approx(1, abs=1e-6)


def test_rounds_are_attacked_together(run_json):
    given = (
        "--mechanism",
        "privkvm",
        "--epsilon",
        "2",
        "--keys",
        "30",
        "--parameter",
        "rounds=3",
        "--reports",
        "20000",
    )
    said = run_json("audit", *given)
    found = said["statistical"]
    assert found["declared_epsilon"] == 2
    assert not found["violation"]
    # half of epsilon and a third of the other half are spent in the first round
    assert found["epsilon_lower_bound"] > 1


def test_people_read_the_same(run):
    code, out, err = run("audit", "--mechanism", "pckv-ue", "--epsilon", "1", "--keys", "2", "--padding", "1")
    assert (code, out) == (0, "")
    assert "exact: 1.0" in err
    assert "naive composition would have charged: 1.62" in err
    assert "word by word: 1.0" in err


def test_a_violation_is_told_and_fails(run, monkeypatch):
    make = PCKVUE._make_law

    def leaking(self):
        law = make(self)
        return replace(law, same=law.same + (1 << 57))

    monkeypatch.setattr(PCKVUE, "_make_law", leaking)
    code, out, err = run(*PCKV, "--json")
    assert code == 1
    assert json.loads(out)["violations"]
    assert "above the declared 1" in err


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ((), "Give --collection FILE.toml, or --mechanism"),
        (("--mechanism", "pckv"), "Did you mean"),
        (("--mechanism", "pckv-ue", "--epsilon", "1", "--keys", "5"), "needs 'padding'"),
        ((*PCKV[1:], "--parameter", "rounds"), "NAME=VALUE"),
        ((*PCKV[1:], "--confidence", "0.9"), "give --reports"),
        ((*PCKV[1:], "--reports", "5000", "--confidence", "1"), "between 0.5 and 1"),
        ((*PCKV[1:], "--reports", "5"), "at least 1,000"),
        (("--collection", "c.toml", "--epsilon", "1"), "--collection says everything"),
    ],
)
def test_wrong_usage(run, given, message):
    code, _, err = run("audit", *given)
    assert code == 2
    assert message in err
