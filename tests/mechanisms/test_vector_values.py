"""Vectors behind keys: each coordinate is a key of its own, as docs/mechanisms.md advises."""

import numpy as np
import pytest
from ldp_beam.mechanisms import Records, Secret, make_mechanism, to_fixed


@pytest.mark.parametrize("name", ["pckv-ue", "pckv-grr"])
def test_coordinates_keep_their_connection_with_the_key(name):
    """Three keys of two coordinates; shares and means within 7 standard errors (24 figures: false alarm 6e-11)."""
    rng, n = np.random.default_rng(0), 60_000
    held = np.argsort(rng.random((n, 3)), axis=1)[:, :2]
    held.sort(axis=1)  # everybody holds two of the three keys
    keys = (2 * held[:, :, None] + np.arange(2)).reshape(n, 4).astype(np.int32)
    true = np.array([[0.8, -0.6], [0.1, 0.9], [-0.4, -0.2]])
    signs = np.where(rng.random((n, 2, 2)) < (1 + true[held]) / 2, 1.0, -1.0).reshape(n, 4)
    users = Secret.new().users().integers(np.arange(n))
    records = Records(
        users=users, offsets=np.arange(n + 1) * 4, keys=keys.ravel(), values=to_fixed(signs.ravel(), -1, 1)
    )
    mechanism = make_mechanism(name, epsilon=4, keys=6, padding=4)
    estimates = mechanism.estimate(
        mechanism.count(mechanism.perturb(records, Secret.new().stream(fingerprint="v"))), "baseline"
    )
    assert (np.abs(estimates.frequency - 2 / 3) < 7 * estimates.frequency_se).all()
    assert (np.abs(estimates.mean - true.ravel()) < 7 * estimates.mean_se).all()
