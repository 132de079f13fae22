"""The server's second step: counts → estimates with standard errors and 95 % intervals."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

import apache_beam as beam
import numpy as np
import numpy.typing as npt
import pyarrow as pa

from ..mechanisms import Counts, Estimates, Mechanism
from ..schemas.counts import MAIN_GROUP
from ..schemas.estimates import FREQUENCY_COLUMNS, MEAN_COLUMNS, estimates_schema, estimates_table
from .collection import Collection
from .count import CountBlock, add_counts, join_blocks

__all__ = ["EstimateCounts", "GatherCounts", "estimate_counts", "estimates_batch"]

_GROUP_BLOCKS = beam.typehints.KV[tuple[int, str], tuple[int, Counts]]
#: Stands beside the blocks of the main group, so that the group is there even without any.
_NO_BLOCK = -1


def estimate_counts(
    collection: Collection,
    counts: Counts,
    *,
    private: bool = True,
    period: str = "",
    shares: npt.NDArray[np.float64] | None = None,
) -> pa.RecordBatch:
    """Estimate every declared key from the counts of a collection.

    Args:
        collection: what was collected; its definition names the estimator and the raw units.
        counts: counts over the whole key domain.
        private: False where the reports' randomness came from a seed.
        period: name of the period, for the file header.
        shares: what the column `frequency` holds instead of what the estimator gives, (d,).

    Returns:
        One row a key, in the order of the domain: see `schemas.estimates`.
    """
    estimates = collection.mechanism.estimate(counts, collection.definition.estimator)
    if shares is not None:
        estimates = replace(estimates, frequency=shares)
    return estimates_batch(collection, estimates, private=private, period=period)


def estimates_batch(
    collection: Collection, estimates: Estimates, *, private: bool = True, period: str = ""
) -> pa.RecordBatch:
    """Lay estimates of [-1, 1] out in the collection's raw units, one row a key."""
    definition = collection.definition
    if definition.values is not None:
        estimates = estimates.in_units(float(definition.values.low), float(definition.values.high))
    schema = estimates_schema(
        has_values=estimates.mean is not None,
        has_frequency=collection.mechanism.has_frequency,
        further=tuple(estimates.further),
        support=tuple(sorted(estimates.support)),
        labels=tuple(definition.labels),
        header=collection.header("estimates", period=period, private=private),
    )
    return estimates_table(
        definition.keys.texts(),
        _figures(estimates, schema),
        estimates.support,
        estimates.n,
        estimates.flags,
        schema,
        definition.labels,
    )


def _figures(estimates: Estimates, schema: pa.Schema) -> dict[str, npt.NDArray[np.float64]]:
    names = FREQUENCY_COLUMNS + MEAN_COLUMNS
    return {name: getattr(estimates, name) for name in names if name in schema.names} | dict(estimates.further)


class GatherCounts(beam.PTransform):
    """(`CountBlock`, `Counts`) → ((round, group), `Counts`) over the whole domain, n = 0 included.

    In the global window the main group exists even where no report came, so that every declared key has an
    estimate (flagged "no-reports") and an empty input is not mistaken for a missing one. Where the reports are
    in windows, a window without reports has no counts.
    """

    def __init__(self, collection: Collection) -> None:
        super().__init__()
        self._collection = collection

    def expand(
        self, counts: beam.PCollection[tuple[CountBlock, Counts]]
    ) -> beam.PCollection[tuple[tuple[int, str], Counts]]:
        blocks = counts | "ByGroup" >> beam.MapTuple(_by_group).with_output_types(_GROUP_BLOCKS)
        if counts.windowing.is_default():
            main = (self._collection.round, MAIN_GROUP), (_NO_BLOCK, Counts(n=0, cells={}))
            none = counts.pipeline | "NoReports" >> beam.Create([main], reshuffle=False)
            none.element_type = _GROUP_BLOCKS
            blocks = (blocks, none) | beam.Flatten()
        return (
            blocks
            | beam.GroupByKey()
            | "Join"
            >> beam.Map(_join, self._collection.mechanism).with_output_types(beam.typehints.KV[tuple[int, str], Counts])
        )


def _by_group(key: CountBlock, counts: Counts) -> tuple[tuple[int, str], tuple[int, Counts]]:
    return (key[0], key[1]), (key[2], counts)


def _join(
    group: tuple[tuple[int, str], Iterable[tuple[int, Counts]]], mechanism: Mechanism
) -> tuple[tuple[int, str], Counts]:
    """Put the blocks of a group together, or make the counts of no reports where there are none."""
    key, blocks = group
    parts: dict[int, list[Counts]] = {}
    for block, counts in blocks:
        parts.setdefault(block, []).append(counts)
    parts.pop(_NO_BLOCK, None)
    if not parts:
        return key, mechanism.zero()
    return key, join_blocks((block, _sum(each)) for block, each in parts.items())


def _sum(counts: list[Counts]) -> Counts:
    return counts[0] if len(counts) == 1 else add_counts(counts) or counts[0]


class EstimateCounts(beam.PTransform):
    """((round, group), `Counts`) → one record batch of estimates for each group.

    Args:
        collection: what was collected.
        private: False where the reports' randomness came from a seed.
        period: name of the period.
        shares: what the column `frequency` holds instead of what the estimator gives, (d,).
    """

    def __init__(
        self,
        collection: Collection,
        *,
        private: bool = True,
        period: str = "",
        shares: npt.NDArray[np.float64] | None = None,
    ) -> None:
        super().__init__()
        self._collection, self._private, self._period, self._shares = collection, private, period, shares

    def expand(self, counts: beam.PCollection[tuple[tuple[int, str], Counts]]) -> beam.PCollection[pa.RecordBatch]:
        collection, private, period, shares = self._collection, self._private, self._period, self._shares
        return counts | "Estimate" >> beam.MapTuple(
            lambda _, group_counts: estimate_counts(
                collection, group_counts, private=private, period=period, shares=shares
            )
        ).with_output_types(pa.RecordBatch)
