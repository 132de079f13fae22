"""The cases of benchmarks/kernel.py, as a pyperf script: each is timed in a process of its own."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

import numpy as np
import pyperf
from cryptography.hazmat.primitives.ciphers import Cipher, algorithms, modes
from ldp_beam.mechanisms import VALUE_ONE, Mechanism, Records, Secret, make_mechanism, population_generator

__all__ = ["AES_BUFFERS", "AES_BYTES", "MECHANISMS", "USERS", "label"]

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
#: Bytes that every case of AES makes, in buffers of these sizes.
AES_BYTES = 1 << 23
AES_BUFFERS = tuple(1 << power for power in range(14, 22))


def label(name: str, keys: int) -> str:
    """Name of a mechanism's case."""
    return f"{name} {keys}"


def users_of(keys: int) -> int:
    """Users of one call: fewer where a report is long."""
    return max(1024, min(USERS, USERS * 1_000 // max(keys, 1_000))) if keys <= 100_000 else USERS


def time_mechanism(loops: int, name: str, keys: int) -> float:
    """Seconds for all that happens to users: digest of an integer id, seed, packed report, count."""
    users = users_of(keys)
    given: dict[str, Any] = {"padding": 1} if name.startswith("pckv") else {}
    mechanism: Mechanism = make_mechanism(name, epsilon=1, keys=keys, **given)
    random = population_generator(1, 0)
    ids = random.integers(10_000_000, 99_999_999, users)
    held = random.integers(0, keys, users).astype(np.int32)
    values = random.integers(-VALUE_ONE, VALUE_ONE + 1, users) if given else None
    secret, offsets, counts = Secret.new(), np.arange(users + 1), mechanism.zero()
    digests, stream = secret.users(), secret.stream(fingerprint="benchmark")
    start = time.perf_counter()
    for _ in range(loops):
        records = Records(users=digests.integers(ids), offsets=offsets, keys=held, values=values)
        counts = mechanism.count(mechanism.perturb(records, stream), counts)
    return time.perf_counter() - start


def time_aes(loops: int, size: int) -> float:
    """Seconds for the keystream of AES-128-CTR, in buffers of one size."""
    cipher = Cipher(algorithms.AES(bytes(16)), modes.CTR(bytes(16))).encryptor()
    zeros, out = np.zeros(size, dtype=np.uint8), np.empty(size + 15, dtype=np.uint8)
    start = time.perf_counter()
    for _ in range(loops):
        for _ in range(AES_BYTES // size):
            cipher.update_into(zeros.data, out.data)
    return time.perf_counter() - start


def time_copy(loops: int, keys: int) -> float:
    """Seconds to copy as many bytes as the two planes of a unary report have."""
    source = np.ones((2, users_of(keys), -(-keys // 8)), dtype=np.uint8)
    target = np.empty_like(source)
    start = time.perf_counter()
    for _ in range(loops):
        np.copyto(target, source)
    return time.perf_counter() - start


def main() -> None:
    """Time every case that pyperf asks for."""
    runner = pyperf.Runner(program_args=("-m", "benchmarks.kernel_cases"))
    cases: list[tuple[str, Callable[..., float], tuple[Any, ...]]] = [
        (label(name, keys), time_mechanism, (name, keys)) for name, keys in MECHANISMS
    ]
    cases += [(f"aes-ctr {size}", time_aes, (size,)) for size in AES_BUFFERS]
    cases += [(f"copy {keys}", time_copy, (keys,)) for name, keys in MECHANISMS if name == "pckv-ue"]
    for name, timed, arguments in cases:
        runner.bench_time_func(name, timed, *arguments)


if __name__ == "__main__":
    main()
