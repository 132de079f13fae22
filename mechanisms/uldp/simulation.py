"""Counts of the utility-optimised mechanisms drawn from their law at once: for experiments, nothing here is private.

A report depends on one symbol of its user alone, so the counts of a collection follow from how many users tell of each
symbol, in a time that does not depend on the number of users.

* uRR: a report is the symbol itself with probability c3, otherwise a sensitive symbol drawn uniformly.
* uRAP: given the symbol all bits are independent. A sensitive bit's count is a sum of two binomial numbers; another bit
  is set for those alone who tell of it, with probability 1 - d2.
* PUM: the same over keys and tags.

Probabilities are those of the reports' thresholds; only the words that are mapped to a sensitive symbol are taken to be
exactly uniform (they are, but for 2^-44).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from ..data import I64, Bool, Counts
from .pum import PUM
from .urap import URAP
from .urr import URR

if TYPE_CHECKING:
    from numpy.random import Generator

__all__ = ["draw_counts"]


def draw_counts(mechanism: URR | URAP | PUM, symbols: I64, generator: Generator) -> Counts:
    """Draw the counts of the reports of users who tell of these symbols.

    Args:
        mechanism: uRR, uRAP or PUM.
        symbols: users who tell of each symbol, int64 (d,): keys, and behind them the tags of PUM. A user who holds a
            tagged key tells of the tag.
        generator: source of random numbers.

    Returns:
        Counts as `count` gives them for the users' reports.
    """
    users, law, sensitive = int(symbols.sum()), mechanism.parameters(), _sensitive(mechanism)
    if "c3" in law:
        counts: I64 = generator.binomial(symbols, law["c3"])
        number = int(sensitive.sum())
        counts[sensitive] += generator.multinomial(users - int(counts.sum()), np.full(number, 1.0 / number))
        return Counts(n=users, cells={"supports": counts})
    counts = generator.binomial(symbols, np.where(sensitive, law["theta"], 1.0 - law["d2"]))
    counts[sensitive] += generator.binomial(users - symbols[sensitive], law["d1"])
    return Counts(n=users, cells={"supports": counts})


def _sensitive(mechanism: URR | URAP | PUM) -> Bool:
    """Which symbols are sensitive."""
    tags = len(mechanism.tags) if isinstance(mechanism, PUM) else 0
    sensitive = np.zeros(mechanism.keys + tags, dtype=np.bool_)
    sensitive[list(mechanism.sensitive)] = True
    sensitive[mechanism.keys :] = True
    return sensitive
