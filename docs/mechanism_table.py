"""The table of docs/mechanisms.md, from the registry and the mechanisms' own predictions.

python docs/mechanism_table.py          prints the table
python docs/mechanism_table.py --write  puts it into docs/mechanisms.md

The common setting: 100,000 users, epsilon = 1, a domain of 20 keys (rr: 2) of which each user holds one, five of them
sensitive where that matters, and a key with a share of 10 % and a mean of 0 (range -1 to 1) that is sensitive. Where a
mechanism has no closed form of its errors, they are those that its estimator states at the expected counts.
"""

from __future__ import annotations

import inspect
import math
import sys
from pathlib import Path
from typing import Any

import numpy as np
from ldp_beam.mechanisms import MECHANISMS, Counts, Entry
from ldp_beam.mechanisms.privkv.drawn import DrawnKey
from ldp_beam.mechanisms.privkv.rounds import MultiRound, State

USERS, KEYS, EPSILON, SHARE, MEAN = 100_000, 20, "1", 0.1, 0.0
PARAMETERS: dict[str, Any] = {"padding": 1, "sensitive": tuple(range(5)), "tags": ("private",), "rounds": 3}
PAGE = Path(__file__).with_name("mechanisms.md")
BEGIN, END = "<!-- table: begin -->\n", "<!-- table: end -->\n"
HEADER = (
    "| name | estimates | report, bytes | guarantee | when to use it | error of a share | error of a mean | source |"
)


def build(entry: Entry) -> Any:
    """Make the mechanism at the common setting."""
    wanted = inspect.signature(entry.mechanism).parameters
    more = {name: value for name, value in PARAMETERS.items() if name in wanted}
    keys = min(KEYS, getattr(entry.mechanism, "keys_max", KEYS))
    return entry.mechanism(epsilon=EPSILON, keys=keys, **more)  # type: ignore[call-arg]  # checked by each itself


def errors(mechanism: Any) -> tuple[float, float]:
    """Return the standard errors of a share and of a mean; NaN where it estimates none."""
    more = {"sensitive": True} if "sensitive" in inspect.signature(mechanism.predict).parameters else {}
    predicted = mechanism.predict(frequency=SHARE, mean=MEAN, users=USERS, **more)
    if not math.isnan(predicted.frequency_se) or not math.isnan(predicted.mean_se):
        return predicted.frequency_se, predicted.mean_se
    estimates = _at_expected_counts(mechanism)
    return float(estimates.frequency_se[0]), float(estimates.mean_se[0])


def _at_expected_counts(mechanism: Any) -> Any:
    if isinstance(mechanism, MultiRound):
        state = State()
        while not state.done:
            state = mechanism.advance(state, _expected(mechanism.round(state.round)))
        return mechanism.estimate_state(state)
    return mechanism.estimate(_expected(mechanism))


def _expected(answer: DrawnKey) -> Counts:
    """Counts to expect where a mean of 0 makes both signs alike."""
    drawn = USERS // answer.keys
    signs = round(drawn * float(answer.law.a * SHARE + answer.law.b * (1 - SHARE)) / 2)
    cells = {"n_drawn": drawn, "n1": signs, "n2": signs}
    return Counts(n=USERS, cells={name: np.full(answer.keys, count, np.int64) for name, count in cells.items()})


def report_bytes(mechanism: Any) -> int:
    """Return the size of one report."""
    return sum(np.dtype(part.dtype).itemsize * max(1, part.width) for part in mechanism.layout())


def rows() -> list[str]:
    """Return the rows of the table."""
    lines = [HEADER, "|" + "---|" * (HEADER.count("|") - 1)]
    for name, entry in MECHANISMS.items():
        mechanism = build(entry)
        share, mean = (("-" if math.isnan(error) else f"{error:.4f}") for error in errors(mechanism))
        size = f"{report_bytes(mechanism)} ({entry.report_size})"
        cells = (f"`{name}`", entry.estimates, size, entry.guarantee, entry.use, share, mean, entry.source)
        lines.append("| " + " | ".join(cells) + " |")
    return lines


def page(text: str) -> str:
    """Return the page with the table of today."""
    before, rest = text.split(BEGIN)
    _, after = rest.split(END)
    return before + BEGIN + "\n".join(rows()) + "\n" + END + after


if __name__ == "__main__":
    if "--write" in sys.argv[1:]:
        PAGE.write_text(page(PAGE.read_text(encoding="utf-8")), encoding="utf-8")
    else:
        print("\n".join(rows()))
