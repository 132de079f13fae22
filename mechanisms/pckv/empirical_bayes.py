"""Empirical Bayes for PCKV: frequencies and means drawn towards a prior that the noisy counts themselves reveal.

Only counts go in, so it costs no privacy. The prior is estimated from all keys together:

* Frequencies: a mixture of normal distributions of one centre and of many widths, whose weights and centre make the
  raw estimates most likely (expectation-maximisation). Rare keys are drawn together, and a few very frequent ones are
  left alone. Where a padding may hide a part of the frequencies, see `hidden`.
* Means: see `mean_priors`. Their likelihood is averaged over what the counts leave open of the frequency, and their
  prior over all that the counts of all keys, or of keys of similar noise, leave open of it.

Where Stein's unbiased estimate of the squared error says that a group fares better with the corrected figures (keys
whose values are nearly all at the ends of the range, where clipping is hard to beat), it keeps them. So it does with
fewer than 20 keys, from which no prior can be read.

Source:
    Robbins, Berkeley Symposium 1956; Efron, Morris, JASA 1973; Stephens, Biostatistics 2017 (mixtures of widths);
    Weinstein, Ma, Brown, Zhang, JASA 2018 (groups of similar variance); Stein, Annals of Statistics 1981.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Final

import numpy as np

from ..data import F64, I64, Bool, Estimates
from .hidden import guarded
from .mean_priors import FIT_KEYS, Signs, places, posterior_means
from .theory import Probabilities, frequency_variance

__all__ = ["KEYS_MIN", "shrink"]

#: With fewer keys nothing is shrunk, and no group of means is smaller.
KEYS_MIN: Final = 20
_EM_STEPS: Final = 60
#: Keys that a mixture is fitted to, at most; of more keys every so-manieth.
_FIT_KEYS: Final = 20_000
#: Keys whose variances lie within this factor share a group.
_GROUP_RATIO: Final = 2.0
#: Nodes of a frequency's posterior, and how many standard deviations they reach to.
_NODES, _NODE_WEIGHTS = np.polynomial.legendre.leggauss(12)
_REACH: Final = 4.5
#: A width of the prior of frequencies is at least this part of the noise where it is put on nodes.
_RESOLVED: Final = 0.3
#: A group keeps the corrected means when they are estimated to be better by this many standard errors.
_DOUBT: Final = 2.0


def shrink(law: Probabilities, padding: int, corrected: Estimates) -> Estimates:
    """Replace the frequencies and means of the corrected estimator by empirical Bayes estimates.

    Args:
        law: probabilities of the mechanism.
        padding: padding length.
        corrected: what the corrected estimator gives, over the whole key domain.

    Returns:
        The same with other frequencies and means, and the flag "shrunk" where a prior was used. Standard errors and
        intervals remain those of the raw, unbiased figures: shrinking makes the squared error over all keys smaller,
        it does not tell more of any single key.
    """
    keys = len(corrected.frequency)
    if corrected.n == 0 or keys < KEYS_MIN or corrected.mean is None:
        return _flagged(corrected, np.zeros(keys, dtype=np.bool_))
    known = _Frequencies.of(law, padding, corrected.frequency_raw, corrected.n)
    signs = _Signs.of(law, padding, known, corrected.support["n1"], corrected.support["n2"])
    mean, shrunk = _means(signs, corrected.mean)
    return _flagged(replace(corrected, frequency=_guarded(known, padding, corrected.frequency), mean=mean), shrunk)


def _guarded(known: _Frequencies, padding: int, corrected: F64) -> F64:
    return guarded(
        padding,
        raw=known.raw,
        noise=known.noise,
        corrected=corrected,
        posterior=known.frequency,
        slope=known.slope,
        least=known.least,
    )


def _flagged(estimates: Estimates, shrunk: Bool) -> Estimates:
    return replace(estimates, flags={**estimates.flags, "shrunk": shrunk})


# -- frequencies --------------------------------------------------------------------------------------------


@dataclass(frozen=True, kw_only=True, eq=False)
class _Mixture:
    """A prior of frequencies: normal distributions of one centre, float64 (widths,) each."""

    widths: F64
    weights: F64
    centre: float

    @classmethod
    def fitted(cls, raw: F64, noise: F64) -> _Mixture:
        """The likeliest one."""
        least = float(np.sqrt(noise.min()))
        top = max(1.0, 20.0 * least)
        widths = np.concatenate([[0.0], np.geomspace(0.1 * least, top, max(8, int(3 * np.log(10 * top / least))))])
        step = -(-len(raw) // _FIT_KEYS)
        weights, centre = _fit(raw[::step], noise[::step], widths)
        return cls(widths=widths, weights=weights, centre=centre)

    def posterior(self, raw: F64, noise: F64) -> tuple[F64, F64]:
        """Posterior mean and variance of each frequency."""
        mean, variance = np.empty_like(raw), np.empty_like(raw)
        for start in range(0, len(raw), _FIT_KEYS):
            part = slice(start, start + _FIT_KEYS)
            blame, precision = _blame(raw[part], noise[part], self.widths, self.weights, self.centre)
            kept = self.widths**2 * precision
            means = self.centre + kept * (raw[part, None] - self.centre)
            mean[part] = (blame * means).sum(axis=1)
            spread = (means - mean[part, None]) ** 2
            variance[part] = (blame * (kept * noise[part, None] + spread)).sum(axis=1)
        return mean, variance

    def log_density(self, frequency: F64, narrowest: float) -> F64:
        """Logarithm of the density, up to a constant; no width is narrower than the given one."""
        density = np.zeros_like(frequency)
        for width, weight in zip(np.maximum(self.widths, narrowest), self.weights, strict=True):
            density += weight / width * np.exp(-0.5 * ((frequency - self.centre) / width) ** 2)
        return np.log(np.maximum(density, 1e-300))


@dataclass(frozen=True, kw_only=True, eq=False)
class _Frequencies:
    """What is known of the frequencies, float64 (d,) each.

    Attributes:
        raw: raw estimates.
        noise: their variances.
        mean: posterior means, not clipped.
        variance: posterior variances.
        prior: the prior.
        least: the smallest frequency that a key may have.
    """

    raw: F64
    noise: F64
    mean: F64
    variance: F64
    prior: _Mixture
    least: float

    @classmethod
    def of(cls, law: Probabilities, padding: int, raw: F64, n: int) -> _Frequencies:
        """Fit the prior, twice: the noise depends a little on the frequency."""
        mean = np.full(len(raw), raw.mean())
        for _ in range(2):
            noise = frequency_variance(law, padding, np.clip(mean, 1.0 / n, 1.0), n)
            prior = _Mixture.fitted(raw, noise)
            mean, variance = prior.posterior(raw, noise)
        return cls(raw=raw, noise=noise, mean=mean, variance=variance, prior=prior, least=1.0 / n)

    @property
    def frequency(self) -> F64:
        """Posterior means within the range."""
        return np.clip(self.mean, self.least, 1.0)

    @property
    def slope(self) -> F64:
        """Derivative of `frequency` in the raw estimates."""
        inside = (self.mean > self.least) & (self.mean < 1.0)
        return np.where(inside, self.variance / self.noise, 0.0)

    def nodes(self, keys: I64) -> tuple[F64, F64]:
        """Nodes of the posterior within the range, and their probabilities, float64 (keys, nodes) each."""
        raw, noise, reach = self.raw[keys], self.noise[keys], _REACH * np.sqrt(self.variance[keys])
        low = np.clip(self.mean[keys] - reach, self.least, 1.0)
        high = np.clip(self.mean[keys] + reach, np.minimum(low + 0.05 * np.sqrt(noise), 1.0), 1.0)
        nodes = (low + high)[:, None] / 2.0 + (high - low)[:, None] / 2.0 * _NODES
        logs = self.prior.log_density(nodes, _RESOLVED * float(np.sqrt(self.noise.min())))
        logs -= 0.5 * (raw[:, None] - nodes) ** 2 / noise[:, None]
        weight = _NODE_WEIGHTS * np.exp(logs - logs.max(axis=1, keepdims=True))
        return nodes, weight / weight.sum(axis=1, keepdims=True)


def _fit(raw: F64, noise: F64, widths: F64) -> tuple[F64, float]:
    """Weights of the widths, and the common centre, by expectation-maximisation."""
    weights, centre = np.full(len(widths), 1.0 / len(widths)), float(raw.mean())
    for _ in range(_EM_STEPS):
        blame, precision = _blame(raw, noise, widths, weights, centre)
        # one observation more, spread over all widths, keeps each of them possible
        weights = (blame.sum(axis=0) + 1.0 / len(widths)) / (len(raw) + 1.0)
        pull = blame * precision
        centre = float((pull * raw[:, None]).sum() / pull.sum())
    return weights, centre


def _blame(raw: F64, noise: F64, widths: F64, weights: F64, centre: float) -> tuple[F64, F64]:
    """Posterior probability of each width, and the precision of a raw estimate under it, (d, widths) each."""
    precision = 1.0 / (noise[:, None] + widths**2)
    logs = 0.5 * np.log(precision) - 0.5 * precision * (raw[:, None] - centre) ** 2
    blame = weights * np.exp(logs - logs.max(axis=1, keepdims=True))
    blame /= blame.sum(axis=1, keepdims=True)
    return blame, precision


# -- means --------------------------------------------------------------------------------------------------


@dataclass(frozen=True, kw_only=True, eq=False)
class _Signs:
    """What the signs of the supporting reports say of each key's mean, (d,) each.

    Attributes:
        law: probabilities of the mechanism.
        padding: padding length.
        known: what is known of the frequencies.
        surplus: positive minus negative reports, as a share of the supporting ones.
        reports: supporting reports, at least 1.
        trust: probability theta for which a supporting report is positive with probability (1 + theta m) / 2, for the
            most likely frequency.
        doubt: what an error of the frequency adds to the variance, for each unit of the squared mean.
    """

    law: Probabilities
    padding: int
    known: _Frequencies
    surplus: F64
    reports: F64
    trust: F64
    doubt: F64

    @classmethod
    def of(cls, law: Probabilities, padding: int, known: _Frequencies, positive: I64, negative: I64) -> _Signs:
        frequency = known.frequency
        reports = np.maximum(positive + negative, 1).astype(np.float64)
        return cls(
            law=law,
            padding=padding,
            known=known,
            surplus=(positive - negative) / reports,
            reports=reports,
            trust=_trust(law, padding, frequency),
            doubt=(law.b / (law.b + law.gap * frequency / padding)) ** 2 * known.variance / frequency**2,
        )

    def variance(self, square: F64 | float) -> F64:
        """Variance of the estimates with the most likely frequency, where the mean's square is `square`."""
        signs = np.maximum(1.0 - self.trust**2 * square, 1e-9) / (self.reports * self.trust**2)
        return np.asarray(signs + square * self.doubt)

    def some(self, keys: I64, group: I64) -> Signs:
        """What is known of some keys of a group, at nodes of their frequencies."""
        nodes, weight = self.known.nodes(keys)
        frequency = self.known.frequency
        return Signs(
            surplus=self.surplus[keys],
            reports=self.reports[keys],
            trust=_trust(self.law, self.padding, nodes),
            weight=weight,
            places=np.array([places(frequency, nodes), places(frequency[group], nodes)]),
        )


def _trust(law: Probabilities, padding: int, frequency: F64) -> F64:
    return law.trust * frequency / padding / (law.b + law.gap * frequency / padding)


def _means(signs: _Signs, corrected: F64) -> tuple[F64, Bool]:
    """Posterior means; the corrected ones where those look better. And where a prior was used."""
    groups = list(_groups(signs.variance(1.0 / 3.0)))
    mean, square = posterior_means(signs.some, groups)
    x, noise = signs.surplus / signs.trust, signs.variance(square)
    shrunk = np.ones(len(x), dtype=np.bool_)
    for group in groups:
        spread = square[group] - mean[group] ** 2
        if _is_worse(x[group], noise[group], mean[group], spread, corrected[group]):
            mean[group], shrunk[group] = corrected[group], False
    return mean, shrunk


def _groups(noise: F64) -> Iterator[I64]:
    """Keys in groups of similar variance, each with `KEYS_MIN` keys at least that a prior is fitted to."""
    order = np.argsort(noise, kind="stable")
    start, least = 0, KEYS_MIN * -(-len(noise) // FIT_KEYS)
    for stop in range(least, len(order) - least + 1):
        if stop - start >= least and noise[order[stop]] > _GROUP_RATIO * noise[order[start]]:
            yield order[start:stop]
            start = stop
    yield order[start:]


def _is_worse(x: F64, noise: F64, mean: F64, spread: F64, corrected: F64) -> bool:
    """Whether Stein's estimate of the squared error speaks against the posterior means of a group.

    Both estimators are functions of x: the posterior mean has the slope spread / noise, the corrected one 1 within the
    range and 0 beyond. With a noise as wide as the range the estimate is too noisy itself, and shrinking is safe.
    """
    if float(np.median(noise)) >= 1.0:
        return False
    inside = (x > -1.0) & (x < 1.0)
    excess = (mean - x) ** 2 - (corrected - x) ** 2 + 2.0 * (spread - noise * inside)
    return bool(excess.sum() > _DOUBT * excess.std() * np.sqrt(len(x)))
