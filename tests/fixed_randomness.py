"""Secrets and random numbers of the tests follow from the tests' names: what fails once fails again.

Fresh ones for every test come with another salt, `LDP_BEAM_TEST_SALT=anything make test`; a test that holds for one
salt and not for others is wrong about its own error rate.
"""

import hashlib
import os
from contextlib import contextmanager

import numpy as np

SALT = os.environ.get("LDP_BEAM_TEST_SALT", "")


class FixedRandomness:
    """Stands in the place of the standard library's `secrets` where the product draws its secrets."""

    def __init__(self):
        self.restart("")

    def restart(self, name):
        """Begin anew with what follows from a name."""
        self._name, self._drawn = name, 0

    @contextmanager
    def of(self, name):
        """Draw what follows from a name for a while, and go on afterwards where it stopped."""
        before = self._name, self._drawn
        self.restart(name)
        yield
        self._name, self._drawn = before

    def token_bytes(self, size):
        """Return the next bytes."""
        self._drawn += 1
        return hashlib.shake_256(f"{SALT} {self._name} {self._drawn}".encode()).digest(size)


RANDOMNESS = FixedRandomness()


def generator():
    """Return a generator of random numbers for the test that runs."""
    return np.random.default_rng(np.frombuffer(RANDOMNESS.token_bytes(32), "<u4"))
