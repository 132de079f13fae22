"""From estimated shares of keys and tags to shares of keys: where the mass of each tag belongs.

r is the distribution of what is obfuscated: keys that are not sensitive to their user, and one symbol for each tag. The
share of key x is p(x) = r(x) + sum_k r(tag k) pi_k(x), where pi_k is the distribution of the keys that carry tag k:

* given as background knowledge; or where a tag has none, in proportion to r over the keys that are not sensitive to
  everybody;
* or, without any background, all of r on tags is dropped and the rest divided by its sum.

Source:
    Murakami, Kawamoto: Utility-Optimized Local Differential Privacy Mechanisms for Distribution Estimation, USENIX
    Security 2019, sections 5.3 and 5.4 (theorem 1). The standard errors, by the delta method, are ours.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np

from ...errors import ParameterError
from ..data import F64, I64, Bool

__all__ = ["DROP", "PROPORTIONAL", "Background", "BoundTerms", "bound_terms", "parse_background"]

#: Names of what to do without background knowledge.
DROP: Final = "drop"
PROPORTIONAL: Final = "proportional"

#: How far the probabilities of one tag may be from a sum of 1.
_SUM_SLACK: Final = 1e-6


def parse_background(given: object, tags: int, keys: int) -> tuple[tuple[int, int, float], ...] | str:
    """Check background knowledge: "drop", "proportional", or (tag, key, probability) for some of the tags.

    Raises:
        ParameterError: for an unknown word, a tag or key that does not exist or stands twice, or probabilities of a
            tag that are no distribution.
    """
    if isinstance(given, str):
        if given in (DROP, PROPORTIONAL):
            return given
        raise ParameterError(
            f'background is {given!r}, but must be "{PROPORTIONAL}", "{DROP}", or probabilities of keys for tags.'
        )
    if not isinstance(given, Sequence):
        raise ParameterError(f"background is {given!r}, but must be a list of (tag, key, probability).")
    sums, seen = [0.0] * tags, set[tuple[int, int]]()
    entries = [(int(tag), int(key), float(probability)) for tag, key, probability in given]
    for tag, key, probability in entries:
        if not 0 <= tag < tags or not 0 <= key < keys or (tag, key) in seen or not 0.0 <= probability <= 1.0:
            raise ParameterError(
                f"background holds probability {probability!r} of key {key} for tag {tag}, but there are {tags} tags "
                f"and {keys} keys, counted from 0; each pair may stand once, with a probability from 0 to 1."
            )
        seen.add((tag, key))
        sums[tag] += probability
    for tag in {tag for tag, _ in seen}:
        if abs(sums[tag] - 1.0) > _SUM_SLACK:
            raise ParameterError(
                f"The background probabilities of tag number {tag + 1} add up to {sums[tag]!r}, but must add up to 1; "
                "give every key that can carry the tag, or leave the tag out."
            )
    return tuple(sorted(entries))


@dataclass(frozen=True, kw_only=True, eq=False)
class Background:
    """What is known of the keys behind each tag.

    Attributes:
        known: distribution of the keys of each tag, float64 (tags, keys); rows of unknown tags are not used.
        unknown: which tags have none, bool (tags,).
        pool: keys over which unknown tags are spread in proportion, int64.
        drop: whether tags are dropped instead.
    """

    known: F64
    unknown: Bool
    pool: I64
    drop: bool

    @classmethod
    def of(
        cls, entries: tuple[tuple[int, int, float], ...] | str, *, tags: int, keys: int, sensitive: Sequence[int]
    ) -> Background:
        """Arrange what `parse_background` returned; `sensitive` are the keys that are sensitive to everybody."""
        known = np.zeros((tags, keys))
        unknown = np.ones(tags, dtype=np.bool_)
        for tag, key, probability in () if isinstance(entries, str) else entries:
            known[tag, key], unknown[tag] = probability, False
        known[~unknown] /= known[~unknown].sum(axis=1, keepdims=True)
        others: Bool = np.ones(keys, dtype=np.bool_)
        others[list(sensitive)] = False
        # Where everything is sensitive to everybody there is nothing else to take the proportions from.
        pool = np.flatnonzero(others) if others.any() else np.arange(keys)
        return cls(known=known, unknown=unknown, pool=pool, drop=entries == DROP)

    def _split(self, r: F64) -> tuple[F64, F64]:
        keys = self.known.shape[1]
        return r[:keys], r[keys:]

    def proportions(self, shares: F64) -> F64:
        """Return the shares of the pool divided by their sum, or all alike where it is not positive: (pool,)."""
        total = float(shares[self.pool].sum())
        size = len(self.pool)
        return shares[self.pool] / total if total > 0.0 else np.full(size, 1.0 / size)

    def distributions(self, r: F64) -> F64:
        """Return the distribution of keys that each tag is spread by, float64 (tags, keys)."""
        shares, _ = self._split(r)
        result = self.known.copy()
        if self.drop:
            total = float(shares.sum())
            result[:] = shares / total if total > 0.0 else 1.0 / len(shares)
        elif self.unknown.any():
            row = np.zeros(len(shares))
            row[self.pool] = self.proportions(shares)
            result[self.unknown] = row
        return result

    def spread(self, r: F64) -> F64:
        """Return the shares of the keys, float64 (keys,), for shares of keys and tags, float64 (keys + tags,)."""
        shares, tags = self._split(r)
        if self.drop:
            total = float(shares.sum())
            return shares / total if total > 0.0 else shares
        result = shares + tags[~self.unknown] @ self.known[~self.unknown]
        result[self.pool] += tags[self.unknown].sum() * self.proportions(shares)
        return result

    def errors(self, r: F64, v: F64, a: F64, n: int) -> F64:
        """Return the standard errors of `spread`, by the delta method: float64 (keys,).

        Args:
            r: shares of keys and tags.
            v: with a: Cov(r) = diag(v) - a a' / n, float64 (keys + tags,).
            a: see v.
            n: number of reports.
        """
        (shares, tags), (v_keys, v_tags), (a_keys, a_tags) = (self._split(x) for x in (r, v, a))
        own, pooled, pool = np.ones(len(shares)), np.zeros(len(shares)), self.pool
        by_tag = self.known.copy()
        if self.drop:
            total = float(shares.sum())
            pool, by_tag = np.arange(len(shares)), np.zeros_like(by_tag)
            if total > 0.0:
                own, pooled = own / total, -shares / total**2
        elif self.unknown.any():
            mass, total = float(tags[self.unknown].sum()), float(shares[pool].sum())
            by_tag[self.unknown] = 0.0
            by_tag[np.ix_(np.flatnonzero(self.unknown), pool)] = self.proportions(shares)
            if total > 0.0:
                own[pool] += mass / total
                pooled[pool] = -shares[pool] * mass / total**2
        else:
            pool = pool[:0]
        inside = np.zeros(len(shares))
        inside[pool] = 1.0
        spread = own**2 * v_keys + 2.0 * own * pooled * v_keys * inside + pooled**2 * v_keys[pool].sum()
        spread += v_tags @ by_tag**2
        centre = own * a_keys + pooled * a_keys[pool].sum() + a_tags @ by_tag
        error: F64 = np.sqrt(np.maximum(spread - centre**2 / n, 0.0))
        return error


@dataclass(frozen=True, kw_only=True)
class BoundTerms:
    """Theorem 1: l1(estimated p, p) is at most the sum of two terms.

    Attributes:
        obfuscation: l1 distance of estimated and true shares of keys and tags.
        background: estimated share of each tag times the l1 distance of its assumed and true distribution of keys.
    """

    obfuscation: float
    background: float

    @property
    def bound(self) -> float:
        """Sum of the terms."""
        return self.obfuscation + self.background


def bound_terms(background: Background, estimated: F64, joint: F64, untold: F64) -> BoundTerms:
    """Compute both terms for one realisation; over many their means bound the expected loss.

    Args:
        background: what tags were spread by.
        estimated: estimated shares of keys and tags, float64 (keys + tags,).
        joint: true shares of each key without a tag (row 0) and with each tag, float64 (tags + 1, keys).
        untold: true share of users who tell of a key or tag that they do not hold, float64 (keys + tags,).
    """
    true = np.concatenate([joint[0], joint[1:].sum(axis=1)]) + untold
    if background.drop and float(estimated.sum()) > 0.0:
        # dividing by the sum of the keys alone takes no notice of the sum of all
        estimated = estimated / estimated.sum()
    keys = joint.shape[1]
    held = joint[1:].sum(axis=1, keepdims=True)
    truth = np.divide(joint[1:], held, out=np.full_like(joint[1:], 1.0 / keys), where=held > 0.0)
    distance = np.abs(background.distributions(estimated) - truth).sum(axis=1)
    return BoundTerms(
        obfuscation=float(np.abs(estimated - true).sum()),
        background=float(np.abs(estimated[keys:]) @ distance),
    )
