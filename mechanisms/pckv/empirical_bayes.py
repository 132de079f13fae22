"""Empirical Bayes for PCKV: frequencies and means drawn towards a prior that the noisy counts themselves reveal.

Only counts go in, so it costs no privacy. The prior is estimated from all keys together:

* Frequencies: a mixture of normal distributions of one centre and of many widths, whose weights and centre make the
  raw estimates most likely (expectation-maximisation). Rare keys are drawn together, and a few very frequent ones are
  left alone.
* Means: given the N reports that support a key, the share of positive ones is a binomial estimate of the mean, whose
  variance is known. Keys of similar variance form a group; a group's means have a normal prior, cut to [-1, 1]. Its
  centre is the most likely one with a penalty; over its width is averaged, each width weighing as much as it makes the
  estimates likely. So where nothing can be told, the result is near 0 and not anywhere. In a second prior the centre is
  a straight line in the rank of a key's frequency among its group, for populations in which frequent keys have other
  means than rare ones; over both is averaged in the same way.
  One prior more says that all means are at the ends of the range.

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
from .theory import Probabilities, frequency_variance

__all__ = ["KEYS_MIN", "shrink"]

#: With fewer keys nothing is shrunk, and no group of means is smaller.
KEYS_MIN: Final = 20
_ROUNDS: Final = 3
_EM_STEPS: Final = 60
#: Keys that a mixture is fitted to, at most; of more keys every so-manieth.
_FIT_KEYS: Final = 20_000
#: Keys whose variances lie within this factor share a group.
_GROUP_RATIO: Final = 2.0
#: Widths of the prior of means that are averaged over.
_WIDTHS: Final = np.concatenate([[0.01], np.geomspace(0.03, 1.5, 15)])
#: Precision of the penalty that holds a group's centre near 0: that of a uniform distribution on [-1, 1].
_CENTRE_PRECISION: Final = 3.0
#: Probability that is given beforehand to a centre that changes with the frequency.
_SLOPED: Final = 0.2
_NODES, _NODE_WEIGHTS = np.polynomial.legendre.leggauss(12)
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
    frequency, variance = _frequencies(law, padding, corrected.frequency_raw, corrected.n)
    positive, negative = corrected.support["n1"], corrected.support["n2"]
    signs = _Signs.of(law, padding, frequency, variance, positive, negative)
    mean, shrunk = _means(signs, corrected.mean)
    return _flagged(replace(corrected, frequency=frequency, mean=mean), shrunk)


def _flagged(estimates: Estimates, shrunk: Bool) -> Estimates:
    return replace(estimates, flags={**estimates.flags, "shrunk": shrunk})


# -- frequencies --------------------------------------------------------------------------------------------


def _frequencies(law: Probabilities, padding: int, raw: F64, n: int) -> tuple[F64, F64]:
    """Posterior means, clipped to [1/n, 1], and posterior variances."""
    frequency = np.full(len(raw), np.clip(raw.mean(), 1.0 / n, 1.0))
    variance = np.zeros(len(raw))
    for _ in range(2):  # the noise depends a little on the frequency; the second round knows it
        noise = frequency_variance(law, padding, frequency, n)
        least = float(np.sqrt(noise.min()))
        top = max(1.0, 20.0 * least)
        widths = np.concatenate([[0.0], np.geomspace(0.1 * least, top, max(8, int(3 * np.log(10 * top / least))))])
        frequency, variance = _mixture(raw, noise, widths)
        frequency = np.clip(frequency, 1.0 / n, 1.0)
    return frequency, variance


def _mixture(raw: F64, noise: F64, widths: F64) -> tuple[F64, F64]:
    """Posterior mean and variance under the likeliest mixture of normal priors of these widths, (d,) each."""
    step = -(-len(raw) // _FIT_KEYS)
    weights, centre = _fit(raw[::step], noise[::step], widths)
    posterior, variance = np.empty_like(raw), np.empty_like(raw)
    for start in range(0, len(raw), _FIT_KEYS):
        part = slice(start, start + _FIT_KEYS)
        blame, precision = _blame(raw[part], noise[part], widths, weights, centre)
        kept = widths**2 * precision
        means = centre + kept * (raw[part, None] - centre)
        posterior[part] = (blame * means).sum(axis=1)
        spread = (means - posterior[part, None]) ** 2
        variance[part] = (blame * (kept * noise[part, None] + spread)).sum(axis=1)
    return posterior, variance


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
        estimate: of the mean, unbiased if the frequency is right.
        trust: probability theta for which a supporting report is positive with probability (1 + theta m) / 2.
        reports: supporting reports, at least 1.
        doubt: what an error of the frequency adds to the variance, for each unit of the squared mean.
    """

    estimate: F64
    trust: F64
    reports: F64
    doubt: F64

    @classmethod
    def of(
        cls, law: Probabilities, padding: int, frequency: F64, variance: F64, positive: I64, negative: I64
    ) -> _Signs:
        true = law.gap * frequency / padding
        supported = law.b + true
        trust = law.trust * frequency / padding / supported
        reports = np.maximum(positive + negative, 1).astype(np.float64)
        return cls(
            estimate=(positive - negative) / (reports * trust),
            trust=trust,
            reports=reports,
            doubt=(law.b / supported) ** 2 * variance / frequency**2,
        )

    def variance(self, square: F64) -> F64:
        """Variance of the estimates where the mean's square is `square`."""
        signs = np.maximum(1.0 - self.trust**2 * square, 1e-9) / (self.reports * self.trust**2)
        return signs + square * self.doubt


def _means(signs: _Signs, corrected: F64) -> tuple[F64, Bool]:
    """Posterior means; the corrected ones where those look better. And where a prior was used."""
    x = signs.estimate
    mean, square = np.zeros_like(x), np.full_like(x, 1.0 / 3.0)
    for _ in range(_ROUNDS):  # the noise depends on the mean, which the next round knows better
        noise = signs.variance(square)
        groups = list(_groups(noise))
        for group in groups:
            mean[group], square[group] = _averaged(x[group], noise[group], signs.trust[group])
    shrunk = np.ones(len(x), dtype=np.bool_)
    for group in groups:
        spread = square[group] - mean[group] ** 2
        if _is_worse(x[group], noise[group], mean[group], spread, corrected[group]):
            mean[group], shrunk[group] = corrected[group], False
    return mean, shrunk


def _groups(noise: F64) -> Iterator[I64]:
    """Keys in groups of similar variance, each of `KEYS_MIN` keys at least."""
    order = np.argsort(noise, kind="stable")
    start = 0
    for stop in range(KEYS_MIN, len(order) - KEYS_MIN + 1):
        if stop - start >= KEYS_MIN and noise[order[stop]] > _GROUP_RATIO * noise[order[start]]:
            yield order[start:stop]
            start = stop
    yield order[start:]


def _averaged(x: F64, noise: F64, frequency: F64) -> tuple[F64, F64]:
    """Posterior mean and mean square of one group, averaged over a level prior and one that is a line in the rank.

    Args:
        x: estimates of the means.
        noise: their variances.
        frequency: anything that rises with the frequency.
    """
    place = np.empty(len(x))
    place[np.argsort(frequency, kind="stable")] = np.linspace(-1.0, 1.0, len(x))
    level = np.ones((len(x), 1))
    parts = [_posterior(x, noise, level), _posterior(x, noise, np.column_stack([level, place]))]
    logs = np.array([part[2] for part in parts]) + np.log([1.0 - _SLOPED, _SLOPED])
    first, second = np.exp(logs - logs.max()) / np.exp(logs - logs.max()).sum()
    return first * parts[0][0] + second * parts[1][0], first * parts[0][1] + second * parts[1][1]


def _posterior(x: F64, noise: F64, design: F64) -> tuple[F64, F64, float]:
    """Posterior mean and mean square of one group, averaged over the priors, (k,) each; and the log-likelihood.

    Args:
        x: estimates of the means.
        noise: their variances.
        design: what the centre depends on linearly, float64 (k, p); the first column is 1.
    """
    fit, mean = _ends(x, noise)
    logs, first, second = [fit], [mean], [np.ones_like(x)]
    penalty = _CENTRE_PRECISION * np.eye(design.shape[1])
    for width in _WIDTHS:
        precision = 1.0 / (noise + width**2)
        total = design.T @ (precision[:, None] * design) + penalty
        inverse = np.linalg.inv(total)
        pull = design.T @ (precision * x)
        fit = float(np.log(precision).sum() - (precision * x * x).sum() + pull @ inverse @ pull) / 2.0
        logs.append(fit + float(np.linalg.slogdet(penalty)[1] - np.linalg.slogdet(total)[1]) / 2.0)
        centre = np.clip(design @ (inverse @ pull), -1.0, 1.0)
        kept = width**2 * precision
        spread = kept * noise + (1.0 - kept) ** 2 * np.einsum("ij,jk,ik->i", design, inverse, design)
        moments = _cut_normal(centre + kept * (x - centre), np.sqrt(spread))
        first.append(moments[0])
        second.append(moments[1])
    weights = np.exp(np.array(logs) - max(logs))
    likelihood = max(logs) + float(np.log(weights.mean()))
    weights /= weights.sum()
    return weights @ np.array(first), weights @ np.array(second), likelihood


def _ends(x: F64, noise: F64) -> tuple[float, F64]:
    """Log-likelihood and posterior means where every mean is 1 or -1."""
    share = float(np.clip((1.0 + x.mean()) / 2.0, 0.01, 0.99))
    at_top = np.log(share) - 0.5 * (x - 1.0) ** 2 / noise
    at_bottom = np.log(1.0 - share) - 0.5 * (x + 1.0) ** 2 / noise
    both = np.logaddexp(at_top, at_bottom)
    fit = float((both - 0.5 * np.log(noise)).sum() - 0.5 * np.log(len(x)))
    return fit, 2.0 * np.exp(at_top - both) - 1.0


def _cut_normal(centre: F64, spread: F64) -> tuple[F64, F64]:
    """Mean and mean square of normal distributions cut to [-1, 1], by quadrature where their mass lies."""
    low = np.maximum(-1.0, np.minimum(centre, 1.0) - 6.0 * spread)
    high = np.minimum(1.0, np.maximum(centre, -1.0) + 6.0 * spread)
    nodes = ((low + high)[:, None] + (high - low)[:, None] * _NODES) / 2.0
    logs = -0.5 * ((nodes - centre[:, None]) / spread[:, None]) ** 2
    density = _NODE_WEIGHTS * np.exp(logs - logs.max(axis=1, keepdims=True))
    density /= density.sum(axis=1, keepdims=True)
    return (density * nodes).sum(axis=1), (density * nodes**2).sum(axis=1)


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
