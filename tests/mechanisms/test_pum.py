"""The personalised mechanism: preprocessor, spreading of the tags' mass, errors, the bound; and tags in records.

Its exact law and guarantee are in `test_uldp_definition`. False alarms of the simulations: below 1e-9 together, at the
7 standard errors and more that each states.
"""

import hashlib
import math

import numpy as np
import pytest
from ldp_beam.errors import ParameterError
from ldp_beam.mechanisms import PCKVGRR, PCKVUE, VALUE_ONE, Counts, Records, Secret
from ldp_beam.mechanisms.records import merge_tags
from ldp_beam.mechanisms.uldp.pum import PUM
from ldp_beam.mechanisms.uldp.pum_estimation import Background, bound_terms, parse_background

from tests.fixed_randomness import generator

TAGS = ["home", "work"]


def pum(**more):
    return PUM(**({"epsilon": 1, "keys": 4, "tags": TAGS, "sensitive": []} | more))


def records_of(*people, secret=None):
    """People as lists of (key, tag)."""
    pairs = [pair for held in people for pair in held]
    return Records(
        users=(secret or Secret.from_seed(1)).users().integers(np.arange(len(people))),
        offsets=np.cumsum([0, *(len(held) for held in people)]).astype(np.int64),
        keys=np.array([key for key, _ in pairs], np.int32),
        tags=np.array([tag for _, tag in pairs], np.int16),
    )


# -- client ---------------------------------------------------------------------------------------------------


def test_tags_replace_keys_and_nothing_else_does():
    records = records_of([(0, 0), (1, 1)], [(2, 2)], [(3, -1)], [])
    assert pum()._symbols(records).tolist() == [0, 4, 5, -1]


@pytest.mark.parametrize("base", ["urr", "urap"])
def test_at_a_large_epsilon_untagged_keys_and_tags_come_through(base):
    mechanism = pum(epsilon=20, base=base)
    people = [[(0, 0)]] * 100 + [[(0, 1)]] * 50 + [[(0, 2), (1, 0)]] * 25
    counts = mechanism.count(mechanism.perturb(records_of(*people), Secret.new().stream(fingerprint="x")))
    # noise at epsilon 20 changes one in some thousand reports of uRAP; five of 175 are beyond all odds
    assert np.abs(counts.cells["supports"] - [100, 0, 0, 0, 50, 25]).max() <= 5


def test_records_without_tags_are_refused():
    records = records_of([(0, 0)])
    bare = Records(users=records.users, offsets=records.offsets, keys=records.keys)
    stream = Secret.from_seed(1).stream(fingerprint="x")
    with pytest.raises(ValueError, match="nothing would be hidden"):
        pum().perturb(bare, stream)
    for tag in (3, -2):
        with pytest.raises(ValueError, match="tags must lie in -1 to 2"):
            pum().perturb(records_of([(0, tag)]), stream)
    with pytest.raises(ValueError, match="tags must be int16"):
        Records(users=records.users, offsets=records.offsets, keys=records.keys, tags=np.zeros(1, np.int64))


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"tags": []}, "1 to 1,000 names"),
        ({"tags": "home"}, "list of"),
        ({"tags": ["a", "a"]}, "twice"),
        ({"tags": [""]}, "at least one character"),
        ({"tags": [1]}, "at least one character"),
        ({"base": "rr"}, "base of pum"),
        ({"theta": 0.5}, "only urap"),
        ({"base": "urap", "theta": 2}, "theta"),
        ({"sensitive": [7]}, "from 0 to 3"),
        ({"background": "Drop"}, "proportional"),
        ({"background": 3}, "list of"),
        ({"background": [(0, 0, 0.5)]}, "add up to 0.5"),
        ({"background": [(0, 9, 1.0)]}, "4 keys"),
        ({"background": [(2, 0, 1.0)]}, "2 tags"),
        ({"background": [(0, 0, 0.5), (0, 0, 0.5)]}, "once"),
        ({"background": [(0, 0, 1.5), (0, 1, -0.5)]}, "from 0 to 1"),
    ],
)
def test_wrong_parameters_are_refused(given, message):
    with pytest.raises(ParameterError, match=message):
        pum(**given)


def test_estimators_are_those_of_the_base():
    assert "em" in pum(base="urr").estimators
    assert "composite-em" in pum(base="urap").estimators
    with pytest.raises(ParameterError, match="'composite-em'; with base 'urr'"):
        pum().estimate(pum().zero(), "composite-em")


# -- records with tags ------------------------------------------------------------------------------------------


def digest(*arrays):
    state = hashlib.sha256()
    for array in arrays:
        state.update(np.ascontiguousarray(array).tobytes())
    return state.hexdigest()


def test_tags_of_nothing_leave_everything_as_it_is_without_tags():
    """Digests of one run: seeds with and without values, and reports. Whoever changes them changes the scheme."""
    rng = np.random.default_rng(11)
    sizes = rng.integers(0, 4, 300)
    keys = [np.sort(rng.choice(20, size, replace=False)) for size in sizes]
    held = np.concatenate(keys).astype(np.int32)
    valued = Records(
        users=Secret.from_seed(1).users().integers(np.arange(300)),
        offsets=np.concatenate(([0], np.cumsum(sizes))).astype(np.int64),
        keys=held,
        values=rng.integers(-VALUE_ONE, VALUE_ONE + 1, len(held)),
    )
    bare = Records(users=valued.users, offsets=valued.offsets, keys=valued.keys)
    untagged = Records(users=bare.users, offsets=bare.offsets, keys=bare.keys, tags=np.zeros(len(held), np.int16))
    stream = Secret.from_seed(2).stream(fingerprint="f", period="p", round=3)
    assert digest(stream.seeds(valued)) == "2dd0ffce8df9183adc1b0dd13de9a8eebff7e8ca251d8ff771a00fbb8ee46071"
    assert digest(stream.seeds(bare)) == "21153eb06c76b5eb3d11ece28f3d499561a7cddc206ff06177ff4038ace6a057"
    assert np.array_equal(stream.seeds(untagged), stream.seeds(bare))
    for kind, expected in (
        (PCKVUE, "95035a6aa3e05378d0fde2ed29d9c3204f23d26f2ce03fb0d37c71541e9a32f3"),
        (PCKVGRR, "4ce305073f35982f02f9fd22abf1037ffebf1899ef3caff4b2a9ffb4c82a0841"),
    ):
        arrays = kind(epsilon=1, keys=20, padding=2).perturb(valued, stream).arrays
        assert digest(*(arrays[name] for name in sorted(arrays))) == expected


def test_another_tag_gives_other_bits():
    stream = Secret.from_seed(2).stream(fingerprint="f")
    seeds = [stream.seeds(records_of([(3, tag)])).tobytes() for tag in (-1, 0, 1, 2, 1000)]
    assert len(set(seeds)) == 5
    one, other = records_of([(3, 1), (5, 0)]), records_of([(3, 0), (5, 1)])
    assert stream.seeds(one).tobytes() != stream.seeds(other).tobytes()


def test_slices_keep_their_tags():
    records = records_of([(0, 1)], [], [(1, 2), (2, 0)])
    assert records.slice(1, 3).tags.tolist() == [2, 0]
    assert [part.tags.tolist() for part in records.chunks(1)] == [[1], [], [2, 0]]


def test_of_several_tags_a_named_one_comes_first_and_none_last():
    places = np.array([2, 5, 7, 9])
    of = np.array([5, 5, 2, 7, 7, 9, 1, 12])
    tags = np.array([2, 1, 0, -1, 0, 3, 1, 1], np.int16)
    assert merge_tags(places, of, tags).tolist() == [0, 1, -1, 3]
    assert merge_tags(places[:0], of, tags).tolist() == []


# -- where the mass of the tags goes ----------------------------------------------------------------------------

R = np.array([0.4, 0.1, 0.2, 0.0, 0.2, 0.1])


def spread(background, r=R, sensitive=()):
    return Background.of(parse_background(background, 2, 4), tags=2, keys=4, sensitive=sensitive).spread(r)


def test_background_knowledge_is_taken_as_given():
    known = [(0, 3, 1.0), (1, 0, 0.25), (1, 1, 0.75)]
    assert spread(known) == pytest.approx([0.425, 0.175, 0.2, 0.2])


def test_a_tag_without_background_is_spread_over_keys_that_are_not_sensitive_to_all():
    assert spread([(0, 3, 1.0)], sensitive=[0]) == pytest.approx([0.4, 0.1 + 0.1 / 3, 0.2 + 0.2 / 3, 0.2])
    assert spread("proportional") == pytest.approx(R[:4] / 0.7)
    # nothing to take proportions from: alike; everything sensitive: over all
    assert spread("proportional", np.array([0, 0, 0, 0, 0.5, 0.5])) == pytest.approx([0.25] * 4)
    assert spread("proportional", sensitive=range(4)) == pytest.approx(R[:4] / 0.7)


def test_dropped_tags_leave_the_rest_in_proportion():
    assert spread("drop") == pytest.approx(R[:4] / 0.7)
    assert spread("drop", np.array([-0.1, 0.05, 0.0, 0.0, 0.6, 0.6])).tolist() == [-0.1, 0.05, 0.0, 0.0]


BACKGROUNDS = ["drop", "proportional", [(0, 3, 1.0), (1, 0, 0.25), (1, 1, 0.75)], [(1, 2, 1.0)]]


@pytest.mark.parametrize("background", BACKGROUNDS, ids=str)
def test_errors_are_those_of_the_gradient(background):
    """Against a numerical gradient and an arbitrary covariance of the stated form."""
    rng = np.random.default_rng(0)
    v, a = rng.uniform(0.1, 1, 6), rng.uniform(0, 0.3, 6)
    way = Background.of(parse_background(background, 2, 4), tags=2, keys=4, sensitive=[1])
    step = 1e-6
    gradient = np.stack(
        [(way.spread(R + step * unit) - way.spread(R - step * unit)) / (2 * step) for unit in np.eye(6)]
    )
    covariance = np.diag(v) - np.outer(a, a) / 50
    expected = np.sqrt(np.diag(gradient.T @ covariance @ gradient))
    assert way.errors(R, v, a, 50) == pytest.approx(expected, rel=1e-6)


PEOPLE = [(0, 0, 0.35), (1, 0, 0.15), (2, 0, 0.2), (3, 1, 0.2), (0, 2, 0.05), (1, 2, 0.05)]  # key, tag, share


@pytest.mark.parametrize("base", ["urr", "urap"])
@pytest.mark.parametrize("background", [BACKGROUNDS[2], "proportional"], ids=["known", "proportional"])
def test_estimates_and_their_errors_agree_with_simulation(base, background):
    """300 repeats of 3,000 redrawn users: means within 7 standard errors, variances within 60 % (7 or more)."""
    known = [(0, 3, 1.0), (1, 0, 0.5), (1, 1, 0.5)] if background != "proportional" else background
    mechanism = pum(epsilon=2, base=base, background=known)
    rng, secret = generator(), Secret.new()
    r = np.array([0.35, 0.15, 0.2, 0.0, 0.2, 0.1])
    expected = mechanism._background.spread(r)
    if background != "proportional":
        assert expected == pytest.approx([0.4, 0.2, 0.2, 0.2])  # the truth
    runs = []
    for repeat in range(300):
        drawn = rng.multinomial(3_000, [share for *_, share in PEOPLE])
        keys, tags = (np.repeat([person[i] for person in PEOPLE], drawn) for i in (0, 1))
        records = Records(
            users=secret.users().integers(np.arange(3_000)),
            offsets=np.arange(3_001),
            keys=keys.astype(np.int32),
            tags=tags.astype(np.int16),
        )
        reports = mechanism.perturb(records, secret.stream(fingerprint="x", period=str(repeat)))
        runs.append(mechanism.estimate(mechanism.count(reports)))
    raw = np.array([run.frequency for run in runs])
    # the spread over proportions is not linear: its bias is of the order of the variance
    slack = 0.0 if background != "proportional" else 0.003
    assert (np.abs(raw.mean(axis=0) - expected) <= 7 * raw.std(axis=0) / math.sqrt(300) + slack).all()
    spreads = np.mean([run.frequency_se for run in runs], axis=0)
    held = expected > 0
    assert spreads[held] ** 2 == pytest.approx(raw.var(axis=0)[held], rel=0.6)
    covered = np.mean([(run.frequency_low <= expected) & (expected <= run.frequency_high) for run in runs], axis=0)
    assert (covered[held] > 0.85).all()


def test_columns_are_those_of_the_keys():
    mechanism = pum(background="proportional")
    assert mechanism.zero().cells["supports"].shape == (6,)
    counts = Counts(n=100, cells={"supports": np.array([40, 10, 20, 0, 20, 10])})
    estimates = mechanism.estimate(counts)
    assert estimates.support["supports"].tolist() == [40, 10, 20, 0]
    assert {array.shape for array in (estimates.frequency, estimates.frequency_se, *estimates.flags.values())} == {(4,)}
    assert mechanism.symbol_shares(counts).sum() == pytest.approx(1)


# -- the bound --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("background", BACKGROUNDS, ids=str)
def test_the_bound_holds_for_every_realisation(background):
    """Random truths and random estimates, negative ones included: no simulation of the mechanism is needed."""
    rng = np.random.default_rng(1)
    way = Background.of(parse_background(background, 2, 4), tags=2, keys=4, sensitive=[1])
    for _ in range(2_000):
        joint = rng.dirichlet(np.full(12, 0.5)).reshape(3, 4)
        estimated = np.concatenate([joint[0], joint[1:].sum(axis=1)]) + rng.normal(0, 0.05, 6)
        if background == "drop" and estimated[:4].sum() <= 0:
            continue
        terms = bound_terms(way, estimated, joint, np.zeros(6))
        loss = np.abs(way.spread(estimated) - joint.sum(axis=0)).sum()
        assert loss <= terms.bound + 1e-12
        assert terms.bound == terms.obfuscation + terms.background


def test_terms_are_what_they_say():
    joint = np.array([[0.4, 0.1, 0.2, 0.0], [0.0, 0.0, 0.0, 0.2], [0.05, 0.05, 0.0, 0.0]])
    way = Background.of(parse_background([(0, 3, 1.0), (1, 0, 1.0)], 2, 4), tags=2, keys=4, sensitive=[])
    exact = bound_terms(way, R, joint, np.zeros(6))
    assert exact.obfuscation == pytest.approx(0, abs=1e-15)
    assert exact.background == pytest.approx(0.1 * 1.0)  # tag "work": half of it misplaced, an l1 distance of 1
    off = bound_terms(way, R + np.array([0.1, 0, 0, -0.1, 0, 0]), joint, np.zeros(6))
    assert off.obfuscation == pytest.approx(0.2)


def test_true_shares_weigh_what_a_report_may_tell_of():
    mechanism = pum(sensitive=[3])
    joint, untold = mechanism.true_shares(
        records_of([(0, 0), (1, 0)], [(0, 0), (3, 0)], [(0, 1), (1, 2), (2, 0)], [], [(2, -1)], [(0, 1), (2, -1)])
    )
    assert joint.sum() + untold.sum() == pytest.approx(6)
    assert joint[0].tolist() == [0.5, 0.5, 0, 1]
    assert joint[1].tolist() == [1, 0, 0, 0]
    assert joint[2].tolist() == [0, 0.5, 0, 0]
    assert untold == pytest.approx([0, 0, 0, 2.5 / 3, 2.5 / 3, 2.5 / 3])
