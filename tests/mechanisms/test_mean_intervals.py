"""Intervals of PCKV means: the means that the two estimates, a sum of values and a frequency, do not rule out."""

import numpy as np
import pytest
from ldp_beam.mechanisms import PCKVUE, Counts, mean_variance

Z = 1.959963984540054
N = 100_000


def estimates(frequency, mean):
    """Estimates from counts that give just these raw figures, one key each, up to rounding."""
    mechanism = PCKVUE(epsilon=2, keys=len(frequency), padding=2)
    law = mechanism.probabilities
    supporters = N * (law.b + law.gap * frequency / 2)
    surplus = N * law.trust * frequency * mean / 2
    cells = {"n1": np.rint((supporters + surplus) / 2), "n2": np.rint((supporters - surplus) / 2)}
    return mechanism, mechanism.estimate(Counts(n=N, cells={k: v.astype(np.int64) for k, v in cells.items()}))


def test_the_ends_are_just_not_ruled_out():
    mechanism, found = estimates(np.array([0.8, 0.5, 0.2, 0.2, 0.1]), np.array([0.1, -0.5, 0.3, -0.3, 0.0]))
    f = found.frequency_raw
    for end in (found.mean_low, found.mean_high):
        assert (np.abs(end) < 1).all()
        error = f * np.sqrt(mean_variance(mechanism.probabilities, 2, f, end, N))
        assert np.abs(f * (found.mean_raw - end)) == pytest.approx(Z * error, rel=1e-9)
    assert (found.mean_low < found.mean_raw).all()
    assert (found.mean_raw < found.mean_high).all()


def test_with_many_holders_they_are_the_usual_ones():
    _, found = estimates(np.array([0.9, 0.9]), np.array([0.2, -0.4]))
    for end, sign in ((found.mean_low, -1), (found.mean_high, 1)):
        assert end == pytest.approx(found.mean_raw + sign * Z * found.mean_se, abs=0.02 * Z * found.mean_se.max())


def test_where_nobody_may_hold_the_key_every_mean_is_possible():
    _, found = estimates(np.array([0.0, -0.01, 0.005]), np.array([0.5, 0.5, 0.5]))
    assert (found.mean_low == -1).all()
    assert (found.mean_high == 1).all()
