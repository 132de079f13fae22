"""Count and mean per key by PipelineDP on Beam's local runner: `python pipeline_dp_worker.py PAIRS KEYS OUTPUT`.

It runs in PipelineDP's environment. The keys are public, as `collect` knows its keys too; Beam's local runner is the
same as the one of `collect`, in one process.
"""

from __future__ import annotations

import sys

import apache_beam as beam
import pipeline_dp
from apache_beam.runners.portability.fn_api_runner import FnApiRunner


def main(pairs: str, keys: int, output: str) -> None:
    """Read, aggregate, write as text."""
    with beam.Pipeline(runner=FnApiRunner()) as pipeline:
        rows = pipeline | beam.io.ReadFromParquet(pairs)
        accountant = pipeline_dp.NaiveBudgetAccountant(total_epsilon=1.0, total_delta=1e-6)
        engine = pipeline_dp.DPEngine(accountant, pipeline_dp.BeamBackend())
        extractors = pipeline_dp.DataExtractors(
            privacy_id_extractor=lambda row: row["user_id"],
            partition_extractor=lambda row: row["key"],
            value_extractor=lambda row: row["value"],
        )
        parameters = pipeline_dp.AggregateParams(
            metrics=[pipeline_dp.Metrics.COUNT, pipeline_dp.Metrics.MEAN],
            max_partitions_contributed=1,
            max_contributions_per_partition=1,
            min_value=-1.0,
            max_value=1.0,
        )
        result = engine.aggregate(rows, parameters, extractors, public_partitions=[str(key) for key in range(keys)])
        accountant.compute_budgets()
        result | beam.io.WriteToText(output)


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]), sys.argv[3])
