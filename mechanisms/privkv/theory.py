"""Closed forms of PrivKV, its rounds and KVUE: errors to expect of the raw figures, for plans.

The error bars of `estimation`, taken at the counts to expect. One round with fake values of mean 0 gives PCKV's
closed forms for padding 1 and as many users as draw a key.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from ..data import Prediction
from .estimation import RoundCounts, raw_frequency, raw_mean
from .law import KeyLaw

__all__ = ["expected_rounds", "predict_errors"]


def expected_rounds(laws: Sequence[KeyLaw], drawn: float, frequency: float, mean: float) -> list[RoundCounts]:
    """Return the counts to expect of one key, round by round.

    Args:
        laws: thresholds of the rounds.
        drawn: users who draw the key in a round.
        frequency: the key's frequency.
        mean: mean of its values.

    Returns:
        Counts that need not be whole; from the second round on, the fake value is the expected mean before.
    """
    rounds: list[RoundCounts] = []
    fake = 0.0
    for law in laws:
        fake = fake if law.fed else law.initial
        held, absent = law.a * frequency, law.b * (1.0 - frequency)
        signs, surplus = drawn * (held + absent), drawn * law.trust * (held * mean + absent * fake)
        counts = [np.array([count]) for count in (drawn, (signs + surplus) / 2.0, (signs - surplus) / 2.0, fake)]
        # estimators take counts that are no whole numbers as well
        rounds.append(RoundCounts(law=law, drawn=counts[0], plus=counts[1], minus=counts[2], fake=counts[3]))
        fake = (held * mean + absent * fake) / (held + absent)
    return rounds


def predict_errors(laws: Sequence[KeyLaw], drawn: float, frequency: float, mean: float) -> Prediction:
    """Predict standard errors of the raw figures, and the second-order bias of the raw mean.

    Args:
        laws: thresholds of the rounds.
        drawn: users who draw the key in a round.
        frequency: the key's frequency, above 0.
        mean: mean of its values.
    """
    rounds = expected_rounds(laws, drawn, frequency, mean)
    frequency_se = float(raw_frequency(rounds[0])[1][0])
    mean_se = float(raw_mean(rounds)[1][0])
    weights = [part.law.trust**2 * drawn for part in rounds]
    holders = sum(weight * part.law.a for weight, part in zip(weights, rounds, strict=True))
    fakes = sum(weight * part.law.b * float(part.fake[0]) for weight, part in zip(weights, rounds, strict=True))
    slope = (fakes / holders - mean) / frequency
    first = laws[0]
    share = first.b + first.gap * frequency
    average = first.a * frequency * mean + first.b * (1.0 - frequency) * float(rounds[0].fake[0])
    covariance = weights[0] * average * (1.0 - share) / (first.gap * drawn)
    bias = -slope / frequency * frequency_se**2 - covariance / (frequency**2 * holders)
    return Prediction(frequency_se=frequency_se, mean_se=mean_se, mean_bias=bias)
