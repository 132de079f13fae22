"""The exact law of a report, from the integer thresholds alone, as fractions.

Written independently of the kernels: a slot or another key is drawn by the words whose product with the
bound has it as high word, counted exactly.
"""

import itertools
from fractions import Fraction

import pytest

N = 1 << 64
SIGNS = (1, -1)


def shares(bound):
    """Exact probabilities of the outcomes 0 to bound - 1 of a multiply-high of one word."""
    edges = [-(-(j << 64) // bound) for j in range(bound + 1)]
    return [Fraction(high - low, N) for low, high in itertools.pairwise(edges)]


def draws(record, padding):
    """Probability of every (key, sign of the value) that is sampled; key None is a dummy."""
    result = {}
    for slot, share in enumerate(shares(max(len(record), padding))):
        key, value = record[slot] if slot < len(record) else (None, Fraction(0))
        for sign in SIGNS:
            part = share * (1 + sign * value) / 2
            result[key, sign] = result.get((key, sign), 0) + part
    return result


def unary_law(mechanism, record):
    t = {name: Fraction(value, N) for name, value in mechanism.thresholds().items()}
    same, flipped, other = t["kept_with_sign"], t["kept"] - t["kept_with_sign"], t["other"]
    law = {}
    for report in itertools.product((1, -1, 0), repeat=mechanism.keys):
        law[report] = Fraction(0)
        for (key, sign), share in draws(record, mechanism.padding).items():
            for i, cell in enumerate(report):
                if i == key:
                    share *= {sign: same, -sign: flipped, 0: 1 - t["kept"]}[cell]
                else:
                    share *= other / 2 if cell else 1 - other
            law[report] += share
    return law


def grr_law(mechanism, record):
    thresholds = mechanism.thresholds()
    same, kept = (Fraction(thresholds[name], N) for name in ("kept_with_sign", "kept"))
    d, others = mechanism.keys, mechanism.keys + mechanism.padding - 1
    assert thresholds["other_keys"] == others
    law = {(key, sign): Fraction(0) for key in range(d + 1) for sign in SIGNS}
    for (key, sign), share in draws(record, mechanism.padding).items():
        own = others if key is None else key
        law[min(own, d), sign] += share * same
        law[min(own, d), -sign] += share * (kept - same)
        rest = [index for index in range(others + 1) if index != own]
        for index, part in zip(rest, shares(others), strict=True):
            for reported in SIGNS:
                law[min(index, d), reported] += share * (1 - kept) * part / 2
    return law


@pytest.fixture(scope="session")
def law_of():
    """Return a function of a mechanism and a record, ((key, value), …), that gives {report: probability}.

    A unary report is the tuple of its cells, a GRR report (key, sign).
    """

    def law(mechanism, record):
        return (unary_law if mechanism.name == "pckv-ue" else grr_law)(mechanism, record)

    return law
