"""Accuracy of the PrivKV family at the synthetic setting UU: mean squared errors of means beside a reference.

A million users, 100 keys; each user holds one key, drawn uniformly; each key has one value, drawn uniformly from
[-1, 1]; users and values are redrawn in each repeat. The reference holds means over independent runs; ours over 50
repeats must lie within 10 % of them.

Counts are drawn, not reports: a user draws a key uniformly and her answer depends on nothing else, so the numbers of
holders and others who draw a key are binomial, and their answers multinomial with the shares of the integer
thresholds. A test shows that these shares are those of the mechanism's exact law. (Keys share the users, so counts of
different keys are not independent; the mean over keys of an error does not depend on that.)

    python -m benchmarks.accuracy_privkv [--repeats 50] [--users 1000000] [--smoke] [--json FILE]
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence

import numpy as np
from ldp_beam.mechanisms import Counts, Estimates, Mechanism, MultiRound, make_mechanism, population_generator
from ldp_beam.mechanisms.privkv.law import KeyLaw

from benchmarks import harness

KEYS = 100
WORDS = float(1 << 64)
WITHIN = 0.10
#: Name, mechanism and its parameters, estimator, and the reference: {epsilon: mean squared error of means}.
REFERENCE: dict[str, tuple[str, dict[str, int], str | None, dict[int, float]]] = {
    "PrivKVM c=1": ("privkvm", {"rounds": 1}, None, {2: 0.314, 6: 0.23}),
    "PrivKVM c=6": ("privkvm", {"rounds": 6}, None, {2: 0.453, 6: 0.25}),
    "one real, five virtual": ("privkv", {"virtual_rounds": 5}, "virtual-same-key", {2: 0.295, 6: 0.0708}),
    "KVUE": ("kvue", {}, None, {2: 0.34, 6: 0.0131}),
}

Answers = np.ndarray


def holder_shares(law: KeyLaw, values: np.ndarray) -> Answers:
    """Shares of the answers +1, -1, 0 of those who hold a key with these values, (d, 3)."""
    up = (1.0 + values) / 2.0
    same, flipped = law.same / WORDS, (law.kept - law.same) / WORDS
    plus, minus = up * same + (1.0 - up) * flipped, up * flipped + (1.0 - up) * same
    return np.stack([plus, minus, 1.0 - plus - minus], axis=-1)


def other_shares(law: KeyLaw, fed: np.ndarray) -> Answers:
    """The same of those who do not hold it, to whom +1 was fed back with probability (1 + fed) / 2."""
    plus, other = law.fake_plus / WORDS, law.other / WORDS
    if law.fed:
        up = (1.0 + fed) / 2.0
        plus = up * plus + (1.0 - up) * (other - plus)
    given = np.broadcast_to(plus, fed.shape)
    return np.stack([given, other - given, np.full(fed.shape, 1.0 - other)], axis=-1)


def round_counts(
    law: KeyLaw, held: np.ndarray, values: np.ndarray, fed: np.ndarray, users: int, random: np.random.Generator
) -> Counts:
    """Counts of one round: `held` users hold each key, with the value of that key."""
    holders = random.binomial(held, 1.0 / len(held))
    others = random.binomial(users - held, 1.0 / len(held))
    answers = random.multinomial(holders, holder_shares(law, values))
    answers += random.multinomial(others, other_shares(law, fed))
    return Counts(n=users, cells={"n1": answers[:, 0], "n2": answers[:, 1], "n_drawn": holders + others})


def estimates_of(mechanism: Mechanism, estimator: str | None, ask: Callable[[KeyLaw, np.ndarray], Counts]) -> Estimates:
    """Run all rounds of a mechanism, whose counts `ask` draws for a law and the means fed back."""
    if not isinstance(mechanism, MultiRound):
        return mechanism.estimate(ask(mechanism.law, np.zeros(mechanism.keys)), estimator)
    state = mechanism.initial()
    while not state.done:
        state = mechanism.advance(state, ask(mechanism.for_round(state).law, mechanism.fed_back(state)))
    return mechanism.estimate_state(state, estimator)


def squared_error(mechanism: Mechanism, estimator: str | None, users: int, repeat: int) -> float:
    """One collection: mean squared error of the means; a mean that does not exist counts as 0."""
    random = population_generator(2019, repeat)
    values = random.uniform(-1.0, 1.0, mechanism.keys)
    held = random.multinomial(users, np.full(mechanism.keys, 1.0 / mechanism.keys))
    estimates = estimates_of(mechanism, estimator, lambda law, fed: round_counts(law, held, values, fed, users, random))
    assert estimates.mean is not None
    return float(np.mean((np.nan_to_num(estimates.mean) - values) ** 2))


def main(argv: Sequence[str] | None = None) -> int:
    parser = harness.options(__doc__)
    parser.add_argument("--repeats", type=int, default=50)
    parser.add_argument("--users", type=int, default=1_000_000, help="the reference holds for a million")
    options = parser.parse_args(argv)
    if options.smoke:
        options.repeats = 2
    rows = []
    print(f"{'mechanism':26}{'epsilon':>8}{'MSE of means':>14}{'reference':>11}{'ratio':>8}")
    for label, (name, parameters, estimator, reference) in REFERENCE.items():
        for epsilon, expected in reference.items():
            mechanism = make_mechanism(name, epsilon=epsilon, keys=KEYS, **parameters)
            errors = [squared_error(mechanism, estimator, options.users, r) for r in range(options.repeats)]
            ratio = float(np.mean(errors)) / expected
            passed = abs(ratio - 1.0) <= WITHIN
            rows.append(
                {
                    "mechanism": label,
                    "epsilon": epsilon,
                    "measured": float(np.mean(errors)),
                    "deviation": float(np.std(errors, ddof=1)),
                    "reference": expected,
                    "passed": passed,
                }
            )
            verdict = "" if passed else "  FAILED"
            print(f"{label:26}{epsilon:8}{np.mean(errors):14.4g}{expected:11.4g}{ratio:8.3f}{verdict}", flush=True)
    harness.write(options.json, {"repeats": options.repeats, "users": options.users, "rows": rows})
    return 0 if options.smoke or all(row["passed"] for row in rows) else 1


if __name__ == "__main__":
    sys.exit(main())
