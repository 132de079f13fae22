"""Mechanisms of local differential privacy over whole batches of users: the mathematics of ldp-beam.

Guarantee:
    For any two records S and S' of one user and any report y,

        Pr[y | S] <= e^epsilon * Pr[y | S'],

    where S is everything the user holds: which keys, how many, and every value. One user, one report, one
    round: who answers k times spends k * epsilon. `Mechanism.exact_epsilon` computes the true bound from the
        integers
    that decide each random choice; it never exceeds the declared epsilon.

Not protected:
    That somebody takes part, when, and under which collection; what the population is like as a whole;
    anything learnt from people or files outside the reports. The secret from which the random bits follow is
    as sensitive as the records: its holder can test guesses.

Random bits:
    AES-128 as a pseudo-random function of a secret, so epsilon holds against everybody who cannot break AES
    (computational privacy); with ideal random bits it is exact.

NumPy and `cryptography` are all that is needed here: no Beam, no files, no clock.
"""

from __future__ import annotations

from .categorical.estimation import joint_em
from .categorical.grr import GRR, PSFOGRR, RR
from .categorical.hadamard import HadamardResponse, SHist
from .categorical.local_hashing import OLH
from .categorical.subset_selection import SubsetSelection
from .categorical.unary_encoding import OUE, PSFOOUE, SUE
from .data import VALUE_ONE, Counts, Estimates, Field, Prediction, Records, Reports
from .padding.auto import AutoPadding
from .pckv.pckv import PCKV, PCKVGRR, PCKVUE
from .pckv.theory import Probabilities, factors, frequency_variance, mean_bias, mean_variance
from .privkv.rounds import MultiRound, Round, State
from .protocol import Mechanism
from .randomness import Secret, Stream, UserDigests, population_generator
from .records import canonical_pairs, digest_ids, make_records, to_fixed
from .registry import MECHANISMS, RESERVED, Entry, make_mechanism
from .values.harmony import Harmony
from .values.meanest import MeanEst
from .values.percentiles import Percentiles

__all__ = [
    "GRR",
    "MECHANISMS",
    "OLH",
    "OUE",
    "PCKV",
    "PCKVGRR",
    "PCKVUE",
    "PSFOGRR",
    "PSFOOUE",
    "RESERVED",
    "RR",
    "SUE",
    "VALUE_ONE",
    "AutoPadding",
    "Counts",
    "Entry",
    "Estimates",
    "Field",
    "HadamardResponse",
    "Harmony",
    "MeanEst",
    "Mechanism",
    "MultiRound",
    "Percentiles",
    "Prediction",
    "Probabilities",
    "Records",
    "Reports",
    "Round",
    "SHist",
    "Secret",
    "State",
    "Stream",
    "SubsetSelection",
    "UserDigests",
    "canonical_pairs",
    "digest_ids",
    "factors",
    "frequency_variance",
    "joint_em",
    "make_mechanism",
    "make_records",
    "mean_bias",
    "mean_variance",
    "population_generator",
    "to_fixed",
]
