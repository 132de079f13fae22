"""The populations behind the figures are what their captions say."""

from pathlib import Path

import numpy as np
import pytest
from ldp_beam.mechanisms import make_mechanism

from benchmarks.accuracy import privkv
from benchmarks.accuracy.figures import Scale, random_of
from benchmarks.accuracy.shapes import HELD, SHAPES, average, collect, errors, people_of
from benchmarks.accuracy.symbols import CATEGORIES, adult, attributes, census, places, places_order, tagged

DATA = Path(__file__).parents[3] / "shared" / "data"


@pytest.mark.parametrize("number", [15, 610])
def test_places(number):
    people = places(number)
    assert people.keys == 625
    assert people.shares.sum() == pytest.approx(1)
    assert people.sensitive.sum() == number
    assert set(places_order()[:15]) <= set(np.flatnonzero(places(610).sensitive))
    assert np.array_equal(places(number).shares, people.shares)


def test_tagged_places():
    people = tagged(0.2)
    assert people.joint.sum() == pytest.approx(1)
    assert (people.joint >= 0).all()
    assert people.joint[1:].sum() == pytest.approx(0.4, abs=0.01)  # and who is there by chance
    for background in people.backgrounds.values():
        assert background.sum(axis=1) == pytest.approx([1, 1])
    assert people.backgrounds["true"][0] == pytest.approx(people.joint[1] / people.joint[1].sum())


@pytest.mark.parametrize("number", range(1, 10))
def test_attributes(number):
    people = attributes(number)
    assert people.keys == np.prod(CATEGORIES[:number])
    assert people.shares.sum() == pytest.approx(1)
    assert people.sensitive.mean() == pytest.approx(1 / np.prod(CATEGORIES[: min(2, number)]))
    # the first attributes of more are those of fewer
    more = attributes(9).shares.reshape(people.keys, -1).sum(axis=1)
    assert more == pytest.approx(people.shares)


@pytest.mark.skipif(not DATA.is_dir(), reason="the data sets are not distributed with the project")
def test_real_people():
    scale = Scale(data=DATA)
    for definition, sensitive, share in (("and", 35, 0.04568), ("or", 253, 0.59031)):
        people = census(scale, definition)
        assert (people.keys, people.sensitive.sum()) == (277, sensitive)
        assert people.shares[people.sensitive].sum() == pytest.approx(share, abs=1e-5)
    people = adult(scale)
    assert (people.keys, people.sensitive.sum()) == (224, 64)
    assert people.shares.sum() == pytest.approx(1)


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize(
    ("name", "more"),
    [
        ("privkv", {}),
        ("privkvm", {"rounds": 3}),
        ("kvue", {}),
        ("pckv-ue", {"padding": HELD}),
        ("pckv-grr", {"padding": HELD}),
    ],
)
def test_raw_figures_of_a_collection_are_near_the_truth(shape, name, more):
    """Unbiased figures of fixed seeds lie within seven of their own standard errors."""
    people = people_of(shape, 50, seed=1)
    mechanism = make_mechanism(name, epsilon=6, keys=50, **more)
    found, state = collect(mechanism, "baseline", people, 10_000_000, random_of(f"{shape} {name}", 0))
    assert (state is None) == (name != "privkvm")
    assert (np.abs(found.frequency_raw - people.frequency) < 7 * found.frequency_se).all()
    assert (np.abs(found.mean_raw - people.mean) < 7 * found.mean_se).all()


def test_values_and_keys_apart_are_mixed_as_a_user_would_mix_them():
    """k-RR for the key and Harmony for the value of one of ten pairs: user by user, and counts drawn at once."""
    people, n, random = people_of("GAUSS", 100, seed=2), 400_000, random_of("apart", 0)
    key = random.choice(100, n, p=people.frequency / people.frequency.sum())
    value = np.where(random.random(n) < (1 + people.mean[key]) / 2, 1, -1)
    oracle = make_mechanism("grr", epsilon=2, keys=100)
    kept = random.random(n) < float(oracle.own)
    told = np.where(kept, key, (key + random.integers(1, 100, n)) % 100)
    sign = np.where(random.random(n) < np.exp(2) / (np.exp(2) + 1), value, -value)
    mean = np.bincount(told, sign, 100) / np.bincount(told, minlength=100) / np.tanh(1)
    drawn = np.mean([privkv.apart(4, people, n, random_of("apart", i))[1] for i in range(1, 40)], axis=0)
    error = 1 / np.tanh(1) / np.sqrt(np.bincount(told, minlength=100))
    assert (np.abs(drawn - mean) < 6 * error).all()
    assert np.abs(mean).max() < 0.6  # no estimate is clipped


def test_errors_and_their_average():
    people = people_of("PLAW", 20, seed=0)
    found, _ = collect(
        make_mechanism("kvue", epsilon=8, keys=20), None, people, 10_000_000, random_of("errors of a collection", 0)
    )
    one = errors(found, people)
    assert 0 < one["mse_mean"] < 1e-3
    assert 0 < one["re_frequency_top"] < 0.01
    both = average([one, {**one, "mse_mean": 3 * one["mse_mean"]}])
    assert both["mse_mean"] == pytest.approx(2 * one["mse_mean"])
    assert both["log_mse_mean"] == pytest.approx(np.log10(2 * one["mse_mean"]))
    assert both["mse_mean_se"] == pytest.approx(one["mse_mean"])
    assert average([one])["mse_mean_se"] is None
