"""Counts of PrivKV, its rounds and KVUE drawn from their law at once: for experiments only, nothing here is private.

Users are a sample of a population. A report of one round is a key, drawn uniformly, and an answer, whose chances
depend on that key's frequency and mean alone; so the counts of one collection are one multinomial number, exactly
and for all keys together.

Rounds ask the *same* users again. For one key at a time that law is drawn exactly too: who does not hold the key
answers each round anew, so that only the holders who draw it in several rounds hang together, through their values;
these few get a value each. Between the keys of one round there is a dependence that is left out, since every user
draws only one of them: the numbers who draw two keys have a correlation of -1 / (d - 1). The law of every single key's
counts over all rounds is that of reports, and with it the expected error of each key and its mean over keys.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from ..data import F64, I64, Bool, Counts
from ..probability import WORDS
from .drawn import DrawnKey
from .law import KeyLaw
from .rounds import MultiRound, State

if TYPE_CHECKING:
    from numpy.random import Generator

__all__ = ["KeyPopulation", "SameUsers", "draw_counts", "draw_state", "held_shares", "other_shares"]


@dataclass(frozen=True, kw_only=True, eq=False)
class KeyPopulation:
    """What the answers depend on of a population from which users are drawn.

    Attributes:
        frequency: share of the population that holds each key, float64 (d,).
        mean: mean value of the holders of each key, in [-1, 1], float64 (d,).
        values: draws a value for each given key, int64 (m,), from that of its holders, float64 (m,); None where all
            holders of a key have the same.
    """

    frequency: F64
    mean: F64
    values: Callable[[I64, Generator], F64] | None = None

    @property
    def keys(self) -> int:
        """Size of the domain."""
        return len(self.frequency)

    def draw(self, keys: I64, generator: Generator) -> F64:
        """Draw the value of one holder of each given key, float64 (m,)."""
        return self.mean[keys] if self.values is None else self.values(keys, generator)


def held_shares(law: KeyLaw, mean: F64) -> F64:
    """Chances of +1, -1 and 0 for holders of a key with these (mean) values, float64 (m, 3)."""
    up = (1.0 + mean) / 2.0
    same, turned = law.same / WORDS, (law.kept - law.same) / WORDS
    plus = up * same + (1.0 - up) * turned
    return np.stack([plus, law.a - plus, np.full(len(mean), 1.0 - law.a)], axis=1)


def other_shares(law: KeyLaw, fed: F64) -> F64:
    """The same for who does not hold it, if +1 is fed back with probability (1 + fed) / 2, float64 (d, 3)."""
    plus = np.full(len(fed), law.fake_plus / WORDS)
    if law.fed:
        up = (1.0 + fed) / 2.0
        plus = up * plus + (1.0 - up) * (law.b - plus)
    return np.stack([plus, law.b - plus, np.full(len(fed), 1.0 - law.b)], axis=1)


def _counts(users: int, answers: I64) -> Counts:
    """Counts for the answers +1, -1 and 0 about each key, int64 (d, 3)."""
    return Counts(n=users, cells={"n1": answers[:, 0], "n2": answers[:, 1], "n_drawn": answers.sum(axis=1)})


def draw_counts(mechanism: DrawnKey, population: KeyPopulation, users: int, generator: Generator) -> Counts:
    """Draw the counts of one collection by a mechanism of one round.

    Args:
        mechanism: PrivKV, KVUE, or a first round.
        population: where the users come from; as many keys as the mechanism has.
        users: number of users.
        generator: source of random numbers.

    Returns:
        Counts as `count` gives them for the users' reports.

    Raises:
        ValueError: for a round in which the server feeds back; see `draw_state`.
    """
    law = mechanism.law
    if law.fed:
        raise ValueError("a later round is asked of the users of the first one; draw all rounds with draw_state")
    held = population.frequency[:, None]
    shares = held * held_shares(law, population.mean)
    shares += (1.0 - held) * other_shares(law, np.zeros(population.keys))
    answers = generator.multinomial(users, (shares / shares.sum()).reshape(-1))
    return _counts(users, answers.reshape(shares.shape))


class SameUsers:
    """Users who are asked in rounds, as far as the counts of single keys depend on them.

    Attributes:
        users: number of users.
        holders: users who hold each key, int64 (d,).
    """

    def __init__(self, population: KeyPopulation, users: int, rounds: int, generator: Generator) -> None:
        """Draw the users, and which keys they draw in each of the rounds.

        Args:
            population: where they come from.
            users: their number.
            rounds: most rounds that will be asked.
            generator: source of random numbers, which the answers take too.
        """
        self.users, self._population, self._generator = users, population, generator
        d, chance = population.keys, 1.0 / population.keys
        self.holders: I64 = generator.binomial(users, np.clip(population.frequency, 0.0, 1.0))
        once = rounds * chance * (1.0 - chance) ** (rounds - 1)
        never = (1.0 - chance) ** rounds
        often = max(0.0, 1.0 - once - never)
        groups = generator.multinomial(self.holders, [once, often, 1.0 - once - often])
        # holders who draw the key once only, by round: a fresh value is asked for once
        self._once: I64 = generator.multinomial(groups[:, 0], np.full(rounds, 1.0 / rounds))
        self._keys: I64 = np.repeat(np.arange(d), groups[:, 1])
        self._draws: Bool = _several(len(self._keys), rounds, chance, generator)
        self._values: F64 = population.draw(self._keys, generator)

    def answer(self, number: int, law: KeyLaw, fed: F64) -> Counts:
        """Draw the counts of a round.

        Args:
            number: number of the round, from 1.
            law: its thresholds.
            fed: means that are fed back, (d,).
        """
        d, random = self._population.keys, self._generator
        others = random.binomial(self.users - self.holders, 1.0 / d)
        answers = random.multinomial(others, other_shares(law, fed))
        answers += random.multinomial(self._once[:, number - 1], held_shares(law, self._population.mean))
        asked = self._draws[:, number - 1]
        shares = held_shares(law, self._values[asked])
        fate = random.random(len(shares))
        given = (fate >= shares[:, 0]).astype(np.int64) + (fate >= shares[:, 0] + shares[:, 1])
        answers += np.bincount(3 * self._keys[asked] + given, minlength=3 * d).reshape(d, 3)
        return _counts(self.users, answers)


def _several(size: int, rounds: int, chance: float, generator: Generator) -> Bool:
    """In which rounds users draw a key, given that they draw it twice or more often, bool (size, rounds)."""
    draws = np.zeros((size, rounds), dtype=np.bool_)
    if rounds < 2 or not size:
        return draws
    if chance >= 1.0:
        return ~draws
    times = np.arange(2, rounds + 1)
    # chances of drawing it t times, up to a factor: C(rounds, t) (chance / (1 - chance))^t
    weights = np.cumprod((rounds - times[:-1]) / (times[:-1] + 1) * chance / (1.0 - chance))
    weights = np.concatenate([[1.0], weights])
    often = 2 + np.searchsorted(np.cumsum(weights / weights.sum())[:-1], generator.random(size), side="right")
    order = generator.random((size, rounds)).argsort(axis=1)
    np.put_along_axis(draws, order, np.arange(rounds) < often[:, None], axis=1)
    return draws


def draw_state(mechanism: MultiRound, population: KeyPopulation, users: int, generator: Generator) -> State:
    """Draw the counts of all rounds until the mechanism ends, and return the state after them.

    Args:
        mechanism: a mechanism that asks in rounds.
        population: where the users come from; as many keys as the mechanism has.
        users: number of users, the same in every round.
        generator: source of random numbers.
    """
    panel = SameUsers(population, users, mechanism.rounds_max, generator)
    state = mechanism.initial()
    while not state.done:
        law, fed = mechanism.for_round(state).law, mechanism.fed_back(state)
        state = mechanism.advance(state, panel.answer(state.round, law, fed))
    return state
