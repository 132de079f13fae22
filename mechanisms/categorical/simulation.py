"""Counts of mechanisms for single symbols drawn from their law at once: for experiments only, nothing here is private.

A report depends on its user's symbol alone, so users of one symbol are exchangeable and the counts of a collection
follow from how many users have each symbol, in a time that does not depend on the number of users.

* GRR: with probability own - other a report is the symbol itself, otherwise one drawn uniformly from all of them.
* Unary encodings: given the symbol all cells are independent, and every count is a sum of two binomial numbers.
* Succinct histograms: users of one symbol spread over the rows of the public matrix evenly. Of those of a row whose
  entries are +1, and of the others, a binomial number keeps its sign.

Thresholds are those of the reports; only the words that are mapped to another symbol or to a row are taken to be
exactly uniform (they are, but for 2^-44).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from ...errors import ParameterError
from ..data import I64, Counts
from .base import FrequencyOracle
from .grr import GRR
from .hadamard import SHist, walsh_hadamard
from .unary_encoding import OUE, SUE

if TYPE_CHECKING:
    from numpy.random import Generator

__all__ = ["draw_counts"]


def draw_counts(mechanism: FrequencyOracle, symbols: I64, generator: Generator) -> Counts:
    """Draw the counts of the reports of users who hold these symbols.

    Args:
        mechanism: GRR (or RR), SUE, OUE or SHist.
        symbols: users who hold each symbol, int64 (d,); everybody holds one.
        generator: source of random numbers.

    Returns:
        Counts as `count` gives them for the users' reports.

    Raises:
        ParameterError: for another mechanism.
    """
    users = int(symbols.sum())
    if isinstance(mechanism, GRR):
        own = generator.binomial(symbols, float(mechanism.own - mechanism.other))
        drawn = generator.multinomial(users - int(own.sum()), np.full(mechanism.keys, 1.0 / mechanism.keys))
        return Counts(n=users, cells={"supports": own + drawn})
    if isinstance(mechanism, SUE | OUE):
        own = generator.binomial(symbols, float(mechanism.own))
        return Counts(n=users, cells={"supports": own + generator.binomial(users - symbols, float(mechanism.other))})
    if isinstance(mechanism, SHist):
        return _signs_by_row(mechanism, symbols, generator)
    raise ParameterError(f"Counts of {mechanism.name} cannot be drawn at once; make reports and count them.")


def _signs_by_row(mechanism: SHist, symbols: I64, generator: Generator) -> Counts:
    """Counts of either sign for every row of a succinct histogram."""
    rows, kept = mechanism.rows, float(mechanism.own)
    spread = generator.multinomial(symbols, np.full(rows, 1.0 / rows)).T
    padded = np.zeros((rows, rows), dtype=np.int64)
    padded[:, : mechanism.keys] = spread
    # a row's surplus of entries +1 over -1 among its users: one entry of each row's transform
    surplus = np.array([int(walsh_hadamard(users)[row]) for row, users in enumerate(padded)], dtype=np.int64)
    in_row = spread.sum(axis=1)
    plus = (in_row + surplus) // 2
    n1 = generator.binomial(plus, kept) + generator.binomial(in_row - plus, 1.0 - kept)
    return Counts(n=int(symbols.sum()), cells={"n1": n1, "n2": in_row - n1})
