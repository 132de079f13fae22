"""Options of the Flink and Spark runners that Beam's Python side does not declare, but passes on.

The job server of a run declares them; it is not running yet when the command line is checked, so its names
stand here. (From the job servers of the pinned versions, see engines.)
"""

from __future__ import annotations

import argparse

__all__ = ["RUNNER_OPTIONS", "add_runner_options"]

_FLINK_VALUES = """
auto_watermark_interval checkpoint_timeout_millis checkpointing_interval checkpointing_mode execution_mode_for_batch
execution_retry_delay file_input_split_max_size_m_b flink_conf_dir job_check_interval_in_secs
latency_tracking_interval max_bundle_size max_bundle_time_mills min_pause_between_checkpoints
num_concurrent_checkpoints number_of_execution_retries report_checkpoint_duration savepoint_path
shutdown_sources_after_idle_ms state_backend state_backend_factory state_backend_storage_path
"""
_FLINK_FLAGS = """
allow_non_restored_state disable_metrics enable_stable_input_drain externalized_checkpoints_enabled faster_copy
finish_bundle_before_checkpointing force_unaligned_checkpoint_enabled object_reuse
re_iterable_group_by_key_result retain_externalized_checkpoints_on_cancellation unaligned_checkpoint_enabled
use_data_stream_for_batch
"""
_SPARK_VALUES = """
batch_interval_millis bundle_size checkpoint_dir checkpoint_duration_millis max_records_per_batch
min_read_time_millis read_time_percentage spark_master storage_level streaming_timeout_ms
"""
_SPARK_FLAGS = "cache_disabled uses_provided_spark_context"
_BOTH_VALUES = "bundle_processor_cache_timeout environment_expiration_millis grouping_table_max_size_mb"
_BOTH_FLAGS = "load_balance_bundles"

_VALUES = (*_FLINK_VALUES.split(), *_SPARK_VALUES.split(), *_BOTH_VALUES.split())
_FLAGS = (*_FLINK_FLAGS.split(), *_SPARK_FLAGS.split(), *_BOTH_FLAGS.split())

#: All names, without hyphens.
RUNNER_OPTIONS = frozenset((*_VALUES, *_FLAGS))


def add_runner_options(parser: argparse.ArgumentParser) -> None:
    """Let a parser know these options."""
    for name in _VALUES:
        parser.add_argument(f"--{name}")
    for name in _FLAGS:
        parser.add_argument(f"--{name}", action="store_true")
