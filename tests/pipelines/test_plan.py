"""`ldp-beam plan`: predictions beside simulation, users needed, recommendations, and what it refuses.

Simulations use fixed seeds, so nothing here can fail by chance.
"""

from decimal import Decimal

import numpy as np
import pytest
from ldp_beam.mechanisms import MECHANISMS, PCKVUE, Mechanism, make_mechanism, population_generator
from ldp_beam.mechanisms.pckv.simulation import draw_counts, draw_sampled
from ldp_beam.pipelines.plan import Question, make_plan

BASE = ("plan", "--epsilon", "1", "--users", "1000000", "--keys", "100")


def simulated(mechanism, frequency, mean, users, repeats=1500):
    """Mean squared errors of the raw frequency and the baseline mean of one key."""
    random = population_generator(17, 0)
    f, m = np.zeros(mechanism.keys), np.zeros(mechanism.keys)
    f[0], m[0] = frequency, mean
    found = [
        mechanism.estimate(draw_counts(mechanism, draw_sampled(f, m, mechanism.padding, users, random), random))
        for _ in range(repeats)
    ]
    return (
        np.mean([(e.frequency_raw[0] - frequency) ** 2 for e in found]),
        np.mean([(e.mean_raw[0] - mean) ** 2 for e in found]),
    )


@pytest.mark.parametrize(
    ("name", "allocation", "epsilon"),
    [("pckv-ue", "optimized", 1), ("pckv-ue", "numerical", 2), ("pckv-grr", "optimized", 2)],
)
def test_predictions_agree_with_simulation(name, allocation, epsilon):
    """Within 15 % of 1,500 collections, whose own error is about 4 %."""
    question = Question(
        epsilon=Decimal(epsilon), users=200_000, keys=6, padding=2, frequency=0.3, mean=0.4, allocation=allocation
    )
    predicted = make_plan(question, name).chosen.predicted
    errors = simulated(question.make(name, allocation), 0.3, 0.4, 200_000)
    assert predicted["frequency_mse"] == pytest.approx(errors[0], rel=0.15)
    assert predicted["mean_mse"] == pytest.approx(errors[1], rel=0.15)


def test_json_has_what_was_agreed(run_json):
    found = run_json(*BASE, "--mechanism", "pckv-ue", "--padding", "5", "--frequency", "0.3", "--mean", "0.25")
    assert found["mechanism"] == "pckv-ue"
    assert {"a", "b", "p", "epsilon_1", "epsilon_2"} <= set(found["parameters"])
    assert {"frequency_se", "mean_se", "frequency_mse", "mean_mse"} <= set(found["predicted"])
    # golden figures for 100,000 users, a tenth of these
    assert found["predicted"]["frequency_se"] ** 2 == pytest.approx(0.002547840963092518 / 10, rel=1e-9)
    assert found["predicted"]["mean_se"] ** 2 == pytest.approx(0.02034657935785006 / 10, rel=1e-9)
    assert found["report_bytes"] == 26


def test_wanted_errors_are_reached_with_just_so_many_users():
    question = Question(epsilon=Decimal(1), users=1000, keys=100, frequency=0.2)
    for wanted in ("frequency_se", "mean_se"):
        users = make_plan(question, "pckv-ue", {wanted: 0.01}).users_needed[wanted]
        mechanism = make_mechanism("pckv-ue", epsilon=1, keys=100, padding=1)
        enough, short = (mechanism.predict(frequency=0.2, mean=0.5, users=n) for n in (users, users - 1))
        assert getattr(enough, wanted) <= 0.01 * (1 + 1e-9)
        assert getattr(short, wanted) > 0.01


def test_the_recommended_one_has_the_smallest_error_of_all():
    for epsilon, keys, padding in ((1, 20, 1), (1, 1000, 1), (6, 20, 1), (1, 20, 10)):
        plan = make_plan(Question(epsilon=Decimal(epsilon), users=10**6, keys=keys, padding=padding))
        errors = [one.error("mean") for one in plan.others]
        assert errors == sorted(errors)
        assert plan.chosen is plan.recommended
        assert {"pckv-ue", "pckv-grr"} <= {one.mechanism for one in plan.others}
        assert all(MECHANISMS[one.mechanism].mechanism.has_frequency for one in plan.others)


def test_numerical_allocation_is_among_the_candidates_unless_another_is_named():
    question = {"epsilon": Decimal(4), "users": 10**6, "keys": 10, "frequency": 0.5}
    names = {(one.mechanism, one.allocation) for one in make_plan(Question(**question)).others}
    assert ("pckv-ue", "numerical") in names
    named = make_plan(Question(**question, allocation="naive")).others
    assert {one.allocation for one in named if one.mechanism.startswith("pckv")} == {"naive"}


def test_categories_are_compared_with_categories(run_json):
    found = run_json(*BASE, "--mechanism", "oue")
    names = {one["mechanism"] for one in found["candidates"]}
    assert {"grr", "oue"} <= names
    assert not names & {"pckv-ue", "psfo-oue"}
    assert found["predicted"]["mean_se"] is None
    assert found["recommendation"]["minimises"] == "frequency_mse"


def test_the_table_and_a_warning(run):
    code, out, err = run(*BASE, "--frequency", "0.0001", "--wanted-mean-se", "0.1")
    assert (code, out) == (0, "")
    assert "Recommended:" in err
    assert "mean with the wanted standard error" in err
    assert "Warning: The standard error of the frequency" in err


@pytest.mark.parametrize("name", ["urr", "urap", "pum"])
def test_mechanisms_with_sensitive_keys_are_predicted_in_python(run, run_json, name):
    code, _, err = run(*BASE, "--mechanism", name)
    assert code == 2
    assert f"make_mechanism('{name}'" in err
    assert "no option" in run_json(*BASE, "--mechanism", "oue")["left_out"][name]


def test_what_has_no_closed_form_is_left_out_or_refused(run, run_json, monkeypatch):
    monkeypatch.setattr(PCKVUE, "predict", Mechanism.predict)
    code, _, err = run(*BASE, "--mechanism", "pckv-ue")
    assert code == 2
    assert "no closed form" in err
    found = run_json(*BASE)
    assert "no closed form" in found["left_out"]["pckv-ue"]
    assert found["mechanism"] != "pckv-ue"


@pytest.mark.parametrize("ending", ["png", "svg"])
def test_a_picture(run_json, tmp_path, ending):
    pytest.importorskip("matplotlib")
    file = tmp_path / f"plan.{ending}"
    run_json(*BASE, "--plot", file)
    assert file.read_bytes()[:5] in (b"\x89PNG\r", b"<?xml")


@pytest.mark.parametrize(
    ("more", "message"),
    [
        (("--mechanism", "pckv-eu"), "Did you mean 'pckv-ue'"),
        (("--mechanism", "oue", "--allocation", "naive"), "no choice of allocation"),
        (("--frequency", "0"), "above 0 and at most 1"),
        (("--mean", "2"), "from -1 to 1"),
        (("--wanted-mean-se", "0"), "must be above 0"),
        (("--mechanism", "oue", "--wanted-mean-se", "0.1"), "does not estimate"),
        (("--plot", "plan.txt"), "must end in"),
    ],
)
def test_refusals(run, more, message):
    code, out, err = run(*BASE, *more)
    assert (code, out) == (2, "")
    assert message in err
