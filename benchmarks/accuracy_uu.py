"""Accuracy at the synthetic setting UU: mean squared errors of 50 collections beside a reference.

A million users, 100 keys; each user holds one key, drawn uniformly; each key has one value, drawn uniformly from
[-1, 1]; users and values are redrawn in each repeat. The reference has the mean of 400 repeats made
independently of this code and the standard deviation of one repeat. The mean of our repeats must lie within
three standard errors of it, and an estimator whose squared error is 30 % larger must not.

    python -m benchmarks.accuracy_uu [--repeats 50] [--users 1000000] [--workers 1] [--smoke] [--json FILE]
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor

import numpy as np
from ldp_beam.mechanisms import PCKV, Records, Secret, make_mechanism, population_generator, to_fixed

from benchmarks import harness
from benchmarks.accuracy.reference import PCKV_UU

KEYS = 100
BATCH = 65_536
LIMIT = 3.0
WORSE = 1.3


def squared_errors(mechanism: PCKV, users: int, repeat: int) -> tuple[float, float]:
    """One collection through the real client and server: mean squared error of frequencies and of means."""
    secret = Secret.new()
    digests, stream = secret.users(), secret.stream(fingerprint="uu")
    values = population_generator(2020, repeat).uniform(-1.0, 1.0, KEYS)
    fixed = to_fixed(values, -1.0, 1.0)
    held, counts = np.zeros(KEYS, dtype=np.int64), mechanism.zero()
    random = population_generator(2021, repeat)
    for start in range(0, users, BATCH):
        ids = np.arange(start, min(start + BATCH, users))
        keys = random.integers(0, KEYS, len(ids)).astype(np.int32)
        held += np.bincount(keys, minlength=KEYS)
        offsets = np.arange(len(ids) + 1)
        records = Records(users=digests.integers(ids), offsets=offsets, keys=keys, values=fixed[keys])
        counts = mechanism.count(mechanism.perturb(records, stream), counts)
    estimates = mechanism.estimate(counts)
    assert estimates.mean is not None
    frequency_error = float(np.mean((estimates.frequency - held / users) ** 2))
    return frequency_error, float(np.mean((estimates.mean - values) ** 2))


def row_of(name: str, epsilon: int, figure: str, errors: np.ndarray, reference: tuple[float, float]) -> dict:
    """One line of the table: what came out, how far it is from the reference, and whether 30 % would show."""
    mean, deviation = reference
    error = deviation / np.sqrt(len(errors))
    measured = float(np.mean(errors))
    z, worse = (measured - mean) / error, (WORSE * measured - mean) / error
    passed = bool(abs(z) <= LIMIT and abs(worse) > LIMIT)
    return {
        "mechanism": name,
        "epsilon": epsilon,
        "figure": figure,
        "measured": measured,
        "reference": mean,
        "z": float(z),
        "z_if_30_percent_worse": float(worse),
        "passed": passed,
    }


def main(argv: Sequence[str] | None = None) -> int:
    parser = harness.options(__doc__)
    parser.add_argument("--repeats", type=int, default=50)
    parser.add_argument("--users", type=int, default=1_000_000, help="the reference holds for a million")
    parser.add_argument("--workers", type=int, default=1, help="threads")
    options = parser.parse_args(argv)
    if options.smoke:
        options.repeats, options.users = 2, 20_000
    rows = []
    print(f"{'mechanism':10}{'epsilon':>8} {'MSE of':10}{'measured':>12}{'reference':>12}{'z':>8}{'z if worse':>12}")
    for (name, epsilon), reference in PCKV_UU.items():
        mechanism = make_mechanism(name, epsilon=epsilon, keys=KEYS, padding=1)
        with ThreadPoolExecutor(options.workers) as pool:
            errors = np.array(
                list(pool.map(lambda r, m=mechanism: squared_errors(m, options.users, r), range(options.repeats)))
            )
        for column, figure in enumerate(("frequency", "mean")):
            row = row_of(name, epsilon, figure, errors[:, column], reference[2 * column : 2 * column + 2])
            rows.append(row)
            print(
                f"{name:10}{epsilon:8} {figure:10}{row['measured']:12.4g}{row['reference']:12.4g}{row['z']:8.2f}"
                f"{row['z_if_30_percent_worse']:12.2f}  {'' if row['passed'] else 'FAILED'}",
                flush=True,
            )
    harness.write(options.json, {"repeats": options.repeats, "users": options.users, "rows": rows})
    return 0 if options.smoke or all(row["passed"] for row in rows) else 1


if __name__ == "__main__":
    sys.exit(main())
