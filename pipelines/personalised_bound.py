"""The two terms of theorem 1 for a personalised collection: what `evaluate` adds where the truth is known.

They say what an error is made of: of the noise on keys and tags, or of background knowledge that does not fit.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import apache_beam as beam
import numpy as np
import pyarrow.parquet as pq

from ..engines import temporary_folder
from ..mechanisms import Counts, Secret
from ..mechanisms.uldp.pum import PUM
from ..schemas.counts import MAIN_GROUP, counts_from_table
from ..transforms.collection import Collection
from ..transforms.symbol_truth import CountSymbols, SymbolTruth
from .client import RecordSource, read_records, spill_folder
from .running import Engine, engine_pipeline

__all__ = ["bound_figures"]


def bound_figures(
    collection: Collection, mechanism: PUM, source: RecordSource, result: Path, engine: Engine
) -> dict[str, float | int | None]:
    """Return the terms of the bound for the counts of a result.

    Args:
        collection: the collection.
        mechanism: its mechanism.
        source: the true records.
        result: the folder with the counts.
        engine: where to run.

    Returns:
        "bound_obfuscation", the l1 distance between estimated and true shares of keys and tags; "bound_background", the
        l1 distances between what was assumed and what is true of the keys behind each tag, weighted by the tags'
        estimated shares; and "bound_l1", their sum, which the l1 distance of the estimates from the shares that users
        tell of cannot exceed. None without users or reports.

    Source:
        Murakami, Kawamoto, USENIX Security 2019, theorem 1.
    """
    truth, counts = _truth(collection, mechanism, source, result, engine), _counts(mechanism, result)
    if not truth.n or not counts.n:
        return dict.fromkeys(("bound_obfuscation", "bound_background", "bound_l1"))
    terms = mechanism.bound_terms(
        counts, truth.joint / truth.n, truth.untold / truth.n, collection.definition.estimator
    )
    return {
        "bound_obfuscation": terms.obfuscation,
        "bound_background": terms.background,
        "bound_l1": terms.bound,
    }


def _counts(mechanism: PUM, result: Path) -> Counts:
    sizes = {name: len(cells) for name, cells in mechanism.zero().cells.items()}
    groups = counts_from_table(pq.read_table(result / "counts.parquet"), sizes)
    n, cells = groups[0, MAIN_GROUP]
    return Counts(n=n, cells=cells)


def _truth(collection: Collection, mechanism: PUM, source: RecordSource, result: Path, engine: Engine) -> SymbolTruth:
    inputs = source.inspect(collection)
    beside = None if engine.shares_disk else result.absolute().parent  # a cluster does not see our temporary folder
    with temporary_folder(".ldp-beam-", beside=beside) as folder, spill_folder(engine) as spill:
        path = f"{folder}/symbols.npz"
        with engine_pipeline(engine, writes_to=[folder]) as p:
            records, _ = read_records(p, collection, source, inputs, Secret.new(), spill=spill)
            sums = records | "Symbols" >> CountSymbols(mechanism)  # one SymbolTruth
            sums | "WriteSymbols" >> beam.ParDo(_WriteSymbols(path))
        with np.load(path) as arrays:
            return SymbolTruth(int(arrays["n"]), arrays["joint"], arrays["untold"])


class _WriteSymbols(beam.DoFn):
    def __init__(self, path: str) -> None:
        self._path = path

    def process(self, element: SymbolTruth) -> Iterator[str]:
        np.savez(self._path, n=element.n, joint=element.joint, untold=element.untold)
        yield self._path
