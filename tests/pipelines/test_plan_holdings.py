"""`ldp-beam plan --pairs-per-user`: what is expected of all keys together, beside simulation, and what is refused."""

from decimal import Decimal

import numpy as np
import pytest
from ldp_beam.errors import InputError
from ldp_beam.mechanisms import PCKV, make_mechanism, population_generator
from ldp_beam.mechanisms.expectation import Holdings, expected_errors
from ldp_beam.mechanisms.pckv import simulation as pckv_simulation
from ldp_beam.mechanisms.privkv import simulation as privkv_simulation
from ldp_beam.pipelines.plan_holdings import DomainQuestion, lengths_from_text, make_domain_plan, paddings_for

BASE = ("plan", "--epsilon", "1", "--users", "100000", "--keys", "50")


def simulated(mechanism, frequency, mean, users, repeats):
    """Mean squared errors of what is published, and their standard errors; nobody holds more keys than the padding."""
    random, errors = population_generator(23, 0), []
    for _ in range(repeats):
        if isinstance(mechanism, PCKV):
            sampled = pckv_simulation.draw_sampled(frequency, mean, mechanism.padding, users, random)
            counts = pckv_simulation.draw_counts(mechanism, sampled, random)
        else:
            everybody = privkv_simulation.KeyPopulation(frequency=frequency, mean=mean)
            counts = privkv_simulation.draw_counts(mechanism, everybody, users, random)
        found = mechanism.estimate(counts)
        misses = np.nan_to_num(found.frequency) - frequency, np.nan_to_num(found.mean) - mean
        errors.append(((misses[0] ** 2).sum(), (misses[1] ** 2).mean()))
    return np.mean(errors, axis=0), np.std(errors, axis=0) / np.sqrt(repeats)


@pytest.mark.parametrize("epsilon", [0.5, 2, 5])
@pytest.mark.parametrize("name", ["pckv-ue", "pckv-grr", "privkv", "kvue"])
@pytest.mark.parametrize("users", [3_000, 100_000])
def test_expected_errors_are_those_of_a_simulation(name, epsilon, users):
    """Fixed seed. Within 4 % and five standard errors, from hopeless noise to hardly any, for few users and many.

    Within 12 % where 75 users draw each key: their counts are neither normal nor Poisson.
    """
    keys = 40
    more = {"padding": 4} if name.startswith("pckv") else {}
    mechanism = make_mechanism(name, epsilon=epsilon, keys=keys, **more)
    holdings = Holdings.of(np.array([0.0, 0.0, 0.0, 0.5, 0.5]), keys, exponent=0.0, mean=0.6)
    expected = expected_errors(mechanism, holdings, users)
    frequency = np.full(keys, 3.5 / keys)
    found, doubt = simulated(mechanism, frequency, np.full(keys, 0.6), users, 400)
    near = 0.12 if users < 10_000 and "padding" not in more else 0.04
    assert abs(expected.frequency - found[0]) < near * found[0] + 5 * doubt[0]
    assert abs(expected.mean - found[1]) < near * found[1] + 5 * doubt[1]


def test_what_a_padding_cuts_off_is_expected():
    """Everybody holds all of eight keys, of which a padding of 2 shows a quarter."""
    mechanism = make_mechanism("pckv-ue", epsilon=4, keys=8, padding=2)
    expected = expected_errors(mechanism, Holdings.of(np.eye(9)[8], 8), 10**7)
    assert expected.frequency == pytest.approx(8 * 0.75**2, rel=1e-3)


def test_the_recommendation_is_the_best_of_a_simulation():
    """Two settings of the benchmark `beyond-plan`, in small."""
    for epsilon, lengths in (("1", (0.0, 1.0)), ("4", (0.0, 0.0, 0.0, 1.0))):
        question = DomainQuestion(
            epsilon=Decimal(epsilon), users=100_000, keys=30, lengths=lengths, exponent=0.0, minimise="frequency"
        )
        plan, errors = make_domain_plan(question), {}
        frequency = np.full(30, question.pairs / 30)
        for one in plan.candidates:
            if one.padding == len(lengths) - 1 or one.padding is None:
                made = question.make(one.mechanism, one.allocation, one.padding)
                errors[one] = simulated(made, frequency, np.linspace(-1, 1, 30), 100_000, 60)[0][0]
        assert errors[plan.recommended] <= 1.1 * min(errors.values())
        assert [one.error("frequency") for one in plan.candidates] == sorted(
            one.error("frequency") for one in plan.candidates
        )


def test_json_and_the_table_of_error_against_padding(run_json, run):
    asked = (*BASE, "--pairs-per-user", "1:0.5,6:0.5", "--minimise", "frequency")
    found = run_json(*asked)
    assert found["pairs_per_user"] == 3.5
    assert found["minimises"] == "frequency_error"
    assert {one["padding"] for one in found["candidates"]} == {None, 1, 2, 3, 4, 5, 6}
    best = min(found["candidates"], key=lambda one: one["expected"]["frequency_error"])
    assert (found["mechanism"], found["padding"]) == (best["mechanism"], best["padding"])
    code, out, err = run(*asked)
    assert (code, out) == (0, "")
    assert "Recommended: " in err
    assert "kvue, which has no padding" in err
    one = run_json(*asked, "--mechanism", "pckv-ue")
    assert {candidate["mechanism"] for candidate in one["candidates"]} == {"pckv-ue"}


@pytest.mark.parametrize("ending", ["png", "svg"])
def test_a_picture_of_error_against_padding(run_json, tmp_path, ending):
    pytest.importorskip("matplotlib")
    file = tmp_path / f"plan.{ending}"
    run_json(*BASE, "--pairs-per-user", "3", "--plot", file)
    assert file.read_bytes()[:5] in (b"\x89PNG\r", b"<?xml")


def test_how_many_keys_people_hold_is_read_from_text():
    assert lengths_from_text("3") == (0, 0, 0, 1)
    assert lengths_from_text("0:0.25,2:0.75") == (0.25, 0, 0.75)
    assert paddings_for(lengths_from_text("3")) == [1, 2, 3]
    many = paddings_for(lengths_from_text("500"))
    assert (many[:16], many[-1], len(many) < 45) == (list(range(1, 17)), 500, True)
    for wrong in ("", "x", "1:0.5", "1:0.5,1:0.5", "-1", "0", "1:2", "1:0.5;2:0.5"):
        with pytest.raises(InputError, match="pairs-per-user"):
            lengths_from_text(wrong)


@pytest.mark.parametrize(
    ("more", "message"),
    [
        (("--pairs-per-user", "3", "--padding", "2"), "exclude each other"),
        (("--pairs-per-user", "3", "--frequency", "0.2"), "exclude each other"),
        (("--pairs-per-user", "60"), "nobody can hold 60 of 50 keys"),
        (("--pairs-per-user", "3", "--mean", "2"), "from -1 to 1"),
        (("--pairs-per-user", "3", "--exponent", "-1"), "from 0 to 10"),
        (("--pairs-per-user", "3", "--mechanism", "privkvm"), "No mechanism fits"),
        (("--exponent", "1"), "belongs to --pairs-per-user"),
    ],
)
def test_refusals(run, more, message):
    code, out, err = run(*BASE, *more)
    assert (code, out) == (2, "")
    assert message in err
