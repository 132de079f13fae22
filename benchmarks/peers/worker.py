"""Runs one package on one task and prints its times as JSON: `python worker.py PACKAGE CASE KEYS USERS BATCHES`.

It runs in the environment of the package, which has nothing of this repository, so it imports NumPy and the package
alone. Times are processor seconds of the whole process, so that helper threads count; each batch is what a client does
for `USERS` users and what a server does with their reports, to the estimates. One batch goes before that is not timed.
"""

from __future__ import annotations

import functools
import json
import math
import sys
import time
from collections.abc import Callable
from typing import Any

import numpy as np

EPSILON = 1.0
Estimate = Callable[[Any], Any]


def pure_ldp(case: str, keys: int) -> Estimate:
    if case == "grr":
        from pure_ldp.frequency_oracles.direct_encoding import DEClient as Client
        from pure_ldp.frequency_oracles.direct_encoding import DEServer as Server

        more = {}
    else:
        from pure_ldp.frequency_oracles.unary_encoding import UEClient as Client
        from pure_ldp.frequency_oracles.unary_encoding import UEServer as Server

        more = {"use_oue": True}

    def run(symbols: Any) -> Any:
        client = Client(EPSILON, keys, index_mapper=lambda x: x, **more)
        server = Server(EPSILON, keys, index_mapper=lambda x: x, **more)
        for symbol in symbols.tolist():
            server.aggregate(client.privatise(symbol))
        return server.estimate_all(range(keys), suppress_warnings=True) / len(symbols)

    return run


def multi_freq_ldpy(case: str, keys: int) -> Estimate:
    if case == "grr":
        from multi_freq_ldpy.pure_frequency_oracles.GRR import GRR_Aggregator_MI, GRR_Client

        return lambda s: GRR_Aggregator_MI([GRR_Client(x, keys, EPSILON) for x in s.tolist()], keys, EPSILON)
    from multi_freq_ldpy.pure_frequency_oracles.UE import UE_Aggregator_MI, UE_Client

    return lambda s: UE_Aggregator_MI([UE_Client(x, keys, EPSILON) for x in s.tolist()], EPSILON)


def ldp_toolbox(case: str, keys: int) -> Estimate:
    if case == "grr":
        from ldp_toolbox.protocols.frequency.grr import GeneralizedRandomizedResponse

        protocol = GeneralizedRandomizedResponse(keys, EPSILON)
    else:
        from ldp_toolbox.protocols.frequency.ue import UnaryEncoding

        protocol = UnaryEncoding(keys, EPSILON)
    return lambda s: protocol.estimate([protocol.obfuscate(x) for x in s.tolist()])


def trasgodp(case: str, keys: int) -> Estimate:
    from trasgodp.categorical import dp_randomized_response_kary_array

    names = np.array([f"{key:03d}" for key in range(keys)])  # it refuses numbers; short text is its quickest form
    kept = math.exp(EPSILON) / (math.exp(EPSILON) + keys - 1)
    moved = (1 - kept) / (keys - 1)
    texts: dict[int, Any] = {}

    def run(symbols: Any) -> Any:
        if id(symbols) not in texts:
            texts[id(symbols)] = names[symbols]  # made once: the user's data as the package takes it
        given, counts = np.unique(dp_randomized_response_kary_array(texts[id(symbols)], EPSILON), return_counts=True)
        found = np.zeros(keys)
        found[np.searchsorted(names, given)] = counts
        return (found / len(symbols) - moved) / (kept - moved)

    return run


def opendp(case: str, keys: int) -> Estimate:
    import opendp.prelude as dp

    dp.enable_features("contrib")
    if case == "grr":
        kept = math.exp(EPSILON) / (math.exp(EPSILON) + keys - 1)
        moved = (1 - kept) / (keys - 1)
        respond = dp.m.make_randomized_response(list(range(keys)), prob=kept)

        def run(symbols: Any) -> Any:
            reports = np.array([respond(x) for x in symbols.tolist()])
            return (np.bincount(reports, minlength=keys) / len(reports) - moved) / (kept - moved)

        return run
    flip = 2 / (math.exp(EPSILON / 2) + 1)
    space = dp.bitvector_domain(max_weight=1), dp.discrete_distance()
    measure = dp.m.make_randomized_response_bitvec(*space, f=flip)
    one = np.packbits(np.eye(keys, dtype=np.uint8), axis=1)
    vectors = [row.tobytes() for row in one]

    def run_bits(symbols: Any) -> Any:
        reports = [measure(vectors[x]) for x in symbols.tolist()]
        return np.array(dp.m.debias_randomized_response_bitvec(reports, flip))[:keys] / len(reports)

    return run_bits


def plain_numpy(case: str, keys: int) -> Estimate:
    """What NumPy alone does with a generator that is not secret: no package, a mark to compare with."""
    random = np.random.Generator(np.random.SFC64(1))
    if case == "grr":
        kept = math.exp(EPSILON) / (math.exp(EPSILON) + keys - 1)
        moved = (1 - kept) / (keys - 1)

        def run(symbols: Any) -> Any:
            other = random.integers(0, keys - 1, len(symbols), dtype=np.int32)
            other += other >= symbols
            reports = np.where(random.random(len(symbols), dtype=np.float32) < kept, symbols, other)
            return (np.bincount(reports, minlength=keys) / len(reports) - moved) / (kept - moved)

        return run
    rare = 1 / (math.exp(EPSILON) + 1)
    rows = max(1, (1 << 20) // keys)

    def run_bits(symbols: Any) -> Any:
        counts = np.zeros(keys, dtype=np.int64)
        for start in range(0, len(symbols), rows):
            some = symbols[start : start + rows]
            bits = random.random((len(some), keys), dtype=np.float32) < rare
            bits[np.arange(len(some)), some] = random.random(len(some)) < 0.5
            counts += bits.sum(axis=0)
        return (counts / len(symbols) - rare) / (0.5 - rare)

    return run_bits


def ldp_beam(case: str, keys: int, use: bool = True) -> Estimate:
    """This package: ids digested, a pseudo-random function a user, packed reports, counts, estimates.

    With the loops that Numba compiles (two of the peers use it, too), or with NumPy alone.
    """
    from ldp_beam.mechanisms import VALUE_ONE, Records, Secret, compiled, make_mechanism

    more = {"padding": 1} if case.startswith("pckv") else {}
    mechanism = make_mechanism(case, epsilon=EPSILON, keys=keys, **more)
    secret = Secret.new()
    digests, stream = secret.users(), secret.stream(fingerprint="benchmark")
    values = np.random.default_rng(1).integers(-VALUE_ONE, VALUE_ONE + 1, 1 << 20) if more else None

    def run(symbols: Any) -> Any:
        with compiled.forced(use) as used:
            if used != use:
                raise SystemExit("Numba is not installed; it comes with the extra `bench`.")
            return estimated(symbols)

    def estimated(symbols: Any) -> Any:
        counts = mechanism.zero()
        for start in range(0, len(symbols), 1 << 16):
            some = symbols[start : start + (1 << 16)]
            records = Records(
                users=digests.integers(np.arange(start, start + len(some)) + 10_000_000),
                offsets=np.arange(len(some) + 1),
                keys=some,
                values=None if values is None else values[: len(some)],
            )
            counts = mechanism.count(mechanism.perturb(records, stream), counts)
        return mechanism.estimate(counts).frequency

    return run


PACKAGES: dict[str, Callable[[str, int], Estimate]] = {
    "pure-ldp": pure_ldp,
    "multi-freq-ldpy": multi_freq_ldpy,
    "ldp-toolbox": ldp_toolbox,
    "trasgodp": trasgodp,
    "opendp": opendp,
    "plain numpy": plain_numpy,
    "ldp-beam": ldp_beam,
    "ldp-beam, NumPy": functools.partial(ldp_beam, use=False),
}


def people(keys: int, users: int) -> Any:
    """Symbols of the users: half of them among few symbols, the others spread over all."""
    random = np.random.default_rng(7)
    few = np.minimum(random.geometric(0.2, users) - 1, keys - 1)
    return np.where(random.random(users) < 0.5, few, random.integers(0, keys, users)).astype(np.int32)


def main(package: str, case: str, keys: int, users: int, batches: int) -> None:
    """Warm up, time the batches, check that the estimates are estimates, print."""
    run = PACKAGES[package](case, keys)
    symbols = people(keys, users)
    run(symbols)
    seconds = []
    for _ in range(batches):
        start = time.process_time()
        shares = run(symbols)
        seconds.append(time.process_time() - start)
    print(json.dumps({"users": users, "seconds": seconds, "shares": [float(share) for share in shares[:3]]}))


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2], *(int(number) for number in sys.argv[3:6]))
