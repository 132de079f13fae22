"""How much fake users gain, mechanism by mechanism, and whether the server notices.

Three attacks on a few target keys, with a share of fake users among honest ones:

* maximal gain: every fake report supports as many targets as a report can, with the sign +1;
* in the clear: every fake report is a target with the value 1 as the mechanism encodes it, without any noise;
* through the client: fake users run the honest client on records of the targets with the value 1.

Gain is the change of the estimated frequencies of the targets, summed, per percent of fake users; 1 per percent and
target would be what honest users who hold them all cause. For unary reports the detector's verdict stands beside.

    python -m benchmarks.poisoning [--users 200000] [--share 0.05] [--smoke] [--json FILE]

Source:
    Cao, Jia, Gong, USENIX Security 2021; Wu, Cao, Jia, Gong, USENIX Security 2022.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
from ldp_beam.mechanisms import MECHANISMS, VALUE_ONE, Mechanism, Records, Reports, Secret, make_mechanism
from ldp_beam.mechanisms.audit.poisoning import suspicious, unary_null

from benchmarks import harness

KEYS, PADDING, EPSILON = 100, 1, 1
USERS, FAKE_SHARE = 200_000, 0.05
TARGETS = (10, 20, 30, 40, 50)

#: One-round mechanisms with frequencies, by name, and what they need besides epsilon, keys and padding.
MORE: Mapping[str, Mapping[str, Any]] = {"urr": {"sensitive": range(15)}, "urap": {"sensitive": range(15)}}
LEFT_OUT = ("rr", "pum", "percentiles", "privkvm", "privkvm+", "privkvm-harmony", "privkvm-meanest")


def mechanisms(epsilon: float = EPSILON) -> list[Mechanism]:
    """Return the mechanisms that are attacked."""
    made = []
    for name, entry in MECHANISMS.items():
        given = {"padding": PADDING} if "padding" in entry.parameters else {}
        if name not in LEFT_OUT and name not in ("harmony", "meanest"):
            made.append(make_mechanism(name, epsilon=epsilon, keys=KEYS, **given, **MORE.get(name, {})))
    return made


def records(mechanism: Mechanism, held: list[tuple[int, ...]], first: int) -> Records:
    """Records of users who hold these keys with the value 1."""
    sizes = np.array([len(one) for one in held])
    keys = np.array([key for one in held for key in one], np.int32)
    return Records(
        users=Secret.from_seed(0).users().integers(np.arange(first, first + len(held))),
        offsets=np.concatenate(([0], np.cumsum(sizes))).astype(np.int64),
        keys=keys,
        values=np.full(len(keys), VALUE_ONE) if mechanism.has_values else None,
    )


def honest(mechanism: Mechanism, users: int) -> Reports:
    """Reports of honest users, who hold one key each, drawn with weights 1/k."""
    rng = np.random.default_rng(1)
    weights = 1 / np.arange(1, KEYS + 1)
    keys = rng.choice(KEYS, users, p=weights / weights.sum())
    stream = Secret.from_seed(2).stream(fingerprint="honest")
    return mechanism.perturb(records(mechanism, [(int(key),) for key in keys], 0), stream)


def through_the_client(mechanism: Mechanism, fakes: int, targets: tuple[int, ...] = TARGETS) -> Reports:
    """Fake users run the honest client on the targets, one each in turn where a record is one symbol."""
    stream = Secret.from_seed(3).stream(fingerprint="fake")
    many = hasattr(mechanism, "padding")
    held = [targets if many else (targets[i % len(targets)],) for i in range(fakes)]
    return mechanism.perturb(records(mechanism, held, 1 << 40), stream)


def in_the_clear(mechanism: Mechanism, fakes: int, targets: tuple[int, ...] = TARGETS) -> Reports:
    """Every fake report is one target, without noise."""
    parts = np.array_split(np.arange(fakes), len(targets))
    made = [maximal_gain(mechanism, len(part), (key,)) for part, key in zip(parts, targets, strict=True)]
    names = made[0].arrays
    return Reports(n=fakes, arrays={name: np.concatenate([one.arrays[name] for one in made]) for name in names})


def maximal_gain(mechanism: Mechanism, fakes: int, targets: tuple[int, ...] = TARGETS) -> Reports:
    """Every fake report supports as many targets as a report can."""
    template = through_the_client(mechanism, fakes, targets)
    aim = np.array(targets)[np.arange(fakes) % len(targets)]
    arrays = {name: np.array(array) for name, array in template.arrays.items()}
    if unary_null(mechanism) is not None or mechanism.name == "urap":
        for name, plane in arrays.items():
            if plane.ndim == 2:
                plane[...] = 0
                if name != "minus":
                    _set(plane, _cells(mechanism, targets))
        if "other" in arrays:
            arrays["other"][...] = aim
    elif mechanism.name == "subset-selection":
        _choose_sets(mechanism, arrays["bits"], targets)
    elif mechanism.name in ("olh", "shist", "hadamard"):
        return _best_of_many(mechanism, fakes, targets)
    else:
        _name_targets(mechanism, arrays, aim)
    return Reports(n=fakes, arrays=arrays)


def _cells(mechanism: Mechanism, targets: tuple[int, ...]) -> list[int]:
    """Cells of a plane that stand for targets; uRAP has bits for sensitive keys alone."""
    if mechanism.name != "urap":
        return list(targets)
    sensitive = list(MORE["urap"]["sensitive"])
    return [sensitive.index(key) for key in targets if key in sensitive]


def _set(plane: Any, cells: list[int]) -> None:
    for cell in cells:
        plane[:, cell >> 3] |= np.uint8(1 << (cell & 7))


def _choose_sets(mechanism: Mechanism, plane: Any, targets: tuple[int, ...]) -> None:
    size = mechanism.thresholds()["set_size"]
    others = [key for key in range(mechanism.keys) if key not in targets][: max(0, size - len(targets))]
    plane[...] = 0
    _set(plane, [*targets[:size], *others])


def _best_of_many(mechanism: Mechanism, fakes: int, targets: tuple[int, ...], tries: int = 20_000) -> Reports:
    """Look for public hash functions or rows that support many targets at once, and send the best ones."""
    made = through_the_client(mechanism, tries, targets)
    supported: Callable[[Reports], Any] = getattr(mechanism, "supported")  # noqa: B009 - of frequency oracles
    score = supported(made)[:, list(targets)].sum(axis=1)
    best = np.flatnonzero(score == score.max())
    return Reports(n=fakes, arrays={n: np.resize(a[best], (fakes, *a.shape[1:])) for n, a in made.arrays.items()})


def _name_targets(mechanism: Mechanism, arrays: dict[str, Any], aim: Any) -> None:
    for name in ("key", "symbol", "index"):
        if name in arrays:
            arrays[name][...] = aim
    for name in ("sign", "state", "answer"):
        if name in arrays:
            arrays[name][...] = 1


ATTACKS: Mapping[str, Callable[..., Reports]] = {
    "maximal_gain": maximal_gain,
    "in_the_clear": in_the_clear,
    "through_the_client": through_the_client,
}


def gain(mechanism: Mechanism, crowd: Reports, fake: Reports) -> float:
    """Change of the targets' estimated frequencies, summed, per percent of fake users."""
    before = mechanism.estimate(mechanism.count(crowd)).frequency_raw[list(TARGETS)].sum()
    with_fakes = mechanism.count(crowd) + mechanism.count(fake)
    after = mechanism.estimate(with_fakes).frequency_raw[list(TARGETS)].sum()
    return float((after - before) / (100 * fake.n / (crowd.n + fake.n)))


def noticed(mechanism: Mechanism, crowd: Reports, fake: Reports | None) -> bool | None:
    """Whether the detector finds anything; None where it does not apply."""
    null = unary_null(mechanism)
    if null is None:
        return None
    statistics = null.count(crowd) if fake is None else null.count(crowd) + null.count(fake)
    return bool(suspicious(null, statistics))


def measure(mechanism: Mechanism, users: int, share: float) -> dict[str, Any]:
    """Attack one mechanism in all three ways."""
    fakes = int(users * share / (1 - share))
    crowd = honest(mechanism, users)
    row: dict[str, Any] = {"mechanism": mechanism.name, "false_alarm": noticed(mechanism, crowd, None)}
    for name, attack in ATTACKS.items():
        fake = attack(mechanism, fakes)
        accepted = int(mechanism.valid(fake).sum())
        row[name] = gain(mechanism, crowd, fake)
        row[f"{name}_accepted"] = accepted / fakes
        row[f"{name}_noticed"] = noticed(mechanism, crowd, fake)
    return row


def main(argv: Sequence[str] | None = None) -> int:
    """Attack every mechanism and write the figures."""
    parser = harness.options(__doc__)
    parser.add_argument("--users", type=int, default=USERS)
    parser.add_argument("--share", type=float, default=FAKE_SHARE)
    given = parser.parse_args(argv)
    if given.smoke:
        given.users = 2_000
    rows = [measure(mechanism, given.users, given.share) for mechanism in mechanisms()]
    print(f"{'mechanism':18}" + "".join(f"{name.replace('_', ' '):>28}" for name in ATTACKS))
    for row in rows:
        cells = (f"{row[name]:.4f}" + (" noticed" if row[f"{name}_noticed"] else "") for name in ATTACKS)
        print(f"{row['mechanism']:18}" + "".join(f"{cell:>28}" for cell in cells))
    setting = {
        "users": given.users,
        "fake_share": given.share,
        "keys": KEYS,
        "epsilon": EPSILON,
        "targets": len(TARGETS),
    }
    harness.write(given.json, {"setting": setting, "rows": rows})
    return 0


if __name__ == "__main__":
    sys.exit(main())
