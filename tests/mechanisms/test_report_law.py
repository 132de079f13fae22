"""Reports follow the exact law: likelihood-ratio tests of many reports of one record.

False alarms: a test fails below a p-value of 1e-11; 16 such tests together stay under 1e-9. Secrets are
fresh in every run. Power: each test must reject the law of a mechanism with 20 % more or less epsilon.
"""

from fractions import Fraction

import numpy as np
import pytest
from ldp_beam.mechanisms import PCKVGRR, PCKVUE, VALUE_ONE, Records, Secret
from scipy.stats import chi2

FALSE_ALARM = 1e-11
USERS = 300_000


def many(record, n=USERS):
    """Records of n users who all hold `record`, ((key, value), …)."""
    size = len(record)
    return Records(
        users=Secret.new().users().integers(np.arange(n)),
        offsets=np.arange(n + 1) * size,
        keys=np.tile(np.array([key for key, _ in record], np.int32), n),
        values=np.tile(np.array([int(value * VALUE_ONE) for _, value in record], np.int64), n),
    )


def observed(mechanism, record):
    """{report: number} of the reports of many users."""
    reports = mechanism.perturb(many(record), Secret.new().stream(fingerprint="law"))
    if mechanism.name == "pckv-grr":
        rows = np.stack([reports.arrays["key"], reports.arrays["sign"].astype(np.int32)], axis=1)
    else:
        plus, minus = (
            np.unpackbits(reports.arrays[name], axis=1, bitorder="little")[:, : mechanism.keys].astype(int)
            for name in ("plus", "minus")
        )
        rows = plus - minus
    # one number a row, which sorts faster than the row
    codes = (rows + 1) @ (6 ** np.arange(rows.shape[1]))
    _, first, numbers = np.unique(codes, return_index=True, return_counts=True)
    return {tuple(rows[at].tolist()): int(number) for at, number in zip(first, numbers, strict=True)}


def p_value(numbers, law):
    """Of the likelihood-ratio test; every report must be one that the law allows."""
    assert set(numbers) <= set(law)
    n = sum(numbers.values())
    statistic = 2 * sum(c * np.log(c / (n * float(law[y]))) for y, c in numbers.items())
    return chi2.sf(statistic, len(law) - 1)


RECORDS = [
    (),
    ((2, Fraction(1)),),
    ((0, Fraction(-1)), (1, Fraction(1, 2)), (3, Fraction(1))),
    ((1, Fraction(-3, 4)), (2, Fraction(0))),
]


@pytest.mark.parametrize("record", RECORDS, ids=len)
@pytest.mark.parametrize(("kind", "padding"), [(PCKVUE, 1), (PCKVUE, 2), (PCKVGRR, 1), (PCKVGRR, 3)])
def test_reports_follow_the_exact_law(kind, padding, record, law_of):
    mechanism = kind(epsilon="1", keys=4, padding=padding)
    numbers = observed(mechanism, record)
    assert p_value(numbers, law_of(mechanism, record)) > FALSE_ALARM
    if record:
        for epsilon in ("0.8", "1.2"):
            other = kind(epsilon=epsilon, keys=4, padding=padding)
            assert p_value(numbers, law_of(other, record)) < FALSE_ALARM


@pytest.mark.parametrize("epsilon", [0.1, 0.5, 1])
@pytest.mark.parametrize("kind", [PCKVUE, PCKVGRR])
def test_the_held_key_and_the_others_are_reported_as_often_as_stated(kind, epsilon):
    """Four keys, key 2 held: shares within 7 standard errors (24 shares, false alarm 6e-11)."""
    mechanism = kind(epsilon=epsilon, keys=4, padding=1)
    parameters = mechanism.parameters()
    counts = mechanism.count(
        mechanism.perturb(many(((2, Fraction(1)),), 200_000), Secret.new().stream(fingerprint="B"))
    )
    shares = (counts.cells["n1"] + counts.cells["n2"]) / counts.n
    for key, share in enumerate(shares):
        expected = parameters["a"] if key == 2 else parameters["b"]
        assert abs(share - expected) < 7 * np.sqrt(expected * (1 - expected) / counts.n)
