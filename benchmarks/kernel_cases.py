"""The cases of benchmarks/kernel.py, as a pyperf script: each is timed in a process of its own, by processor time."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

import numpy as np
import pyperf
from cryptography.hazmat.primitives.ciphers import Cipher, algorithms, modes
from ldp_beam.mechanisms import VALUE_ONE, Mechanism, Records, Secret, compiled, make_mechanism, population_generator

__all__ = ["AES_BUFFERS", "AES_BYTES", "LOOPS", "MECHANISMS", "USERS", "label", "parts_of", "users_of"]

USERS = 65_536
MECHANISMS = (
    ("pckv-ue", 100),
    ("pckv-ue", 128),
    ("pckv-ue", 1_000),
    ("pckv-ue", 10_000),
    ("pckv-grr", 100),
    ("pckv-grr", 1_000_000),
    ("oue", 100),
    ("oue", 1_000),
    ("grr", 100),
    ("grr", 1_000),
)
#: With the loops that Numba compiles, and with NumPy alone.
LOOPS = ("compiled", "numpy")
#: Bytes that every case of AES makes, in buffers of these sizes.
AES_BYTES = 1 << 23
AES_BUFFERS = tuple(1 << power for power in range(14, 22))


def label(name: str, keys: int, part: str, loops: str) -> str:
    """Name of a mechanism's case."""
    return f"{name} {keys} {part} {loops}"


def parts_of(name: str) -> tuple[str, ...]:
    """What is timed: client, client and server, and the digest of integer ids besides."""
    return ("client", "both", "all") if name == "pckv-ue" else ("all",)


def users_of(keys: int) -> int:
    """Users of one call: fewer where a report is long."""
    return max(1024, min(USERS, USERS * 1_000 // max(keys, 1_000))) if keys <= 100_000 else USERS


def time_mechanism(repeats: int, name: str, keys: int, part: str, loops: str) -> float:
    """Seconds for what happens to users: seed and packed report (client), then count (both), digest of the id (all)."""
    with compiled.forced(loops == "compiled") as used:
        if used != (loops == "compiled"):
            raise SystemExit("error: Numba is not installed; it comes with the extra `bench`.")
        return _time_mechanism(repeats, name, keys, part)


def _time_mechanism(repeats: int, name: str, keys: int, part: str) -> float:
    users = users_of(keys)
    given: dict[str, Any] = {"padding": 1} if name.startswith("pckv") else {}
    mechanism: Mechanism = make_mechanism(name, epsilon=1, keys=keys, **given)
    random = population_generator(1, 0)
    ids = random.integers(10_000_000, 99_999_999, users)
    held = random.integers(0, keys, users).astype(np.int32)
    values = random.integers(-VALUE_ONE, VALUE_ONE + 1, users) if given else None
    secret, offsets, counts = Secret.new(), np.arange(users + 1), mechanism.zero()
    digests, stream = secret.users(), secret.stream(fingerprint="benchmark")
    users_given = digests.integers(ids)
    start = time.process_time()
    for _ in range(repeats):
        digested = digests.integers(ids) if part == "all" else users_given
        reports = mechanism.perturb(Records(users=digested, offsets=offsets, keys=held, values=values), stream)
        if part != "client":
            counts = mechanism.count(reports, counts)
    return time.process_time() - start


def time_aes(loops: int, size: int) -> float:
    """Seconds for the keystream of AES-128-CTR, in buffers of one size."""
    cipher = Cipher(algorithms.AES(bytes(16)), modes.CTR(bytes(16))).encryptor()
    zeros, out = np.zeros(size, dtype=np.uint8), np.empty(size + 15, dtype=np.uint8)
    start = time.process_time()
    for _ in range(loops):
        for _ in range(AES_BYTES // size):
            cipher.update_into(zeros.data, out.data)
    return time.process_time() - start


def time_copy(loops: int, keys: int) -> float:
    """Seconds to copy as many bytes as the two planes of a unary report have."""
    source = np.ones((2, users_of(keys), -(-keys // 8)), dtype=np.uint8)
    target = np.empty_like(source)
    start = time.process_time()
    for _ in range(loops):
        np.copyto(target, source)
    return time.process_time() - start


def main() -> None:
    """Time every case that pyperf asks for."""
    runner = pyperf.Runner(program_args=("-m", "benchmarks.kernel_cases"))
    cases: list[tuple[str, Callable[..., float], tuple[Any, ...]]] = [
        (label(name, keys, part, loops), time_mechanism, (name, keys, part, loops))
        for name, keys in MECHANISMS
        for part in parts_of(name)
        for loops in LOOPS
    ]
    cases += [(f"aes-ctr {size}", time_aes, (size,)) for size in AES_BUFFERS]
    cases += [(f"copy {keys}", time_copy, (keys,)) for name, keys in MECHANISMS if name == "pckv-ue"]
    for name, timed, arguments in cases:
        runner.bench_time_func(name, timed, *arguments)


if __name__ == "__main__":
    main()
