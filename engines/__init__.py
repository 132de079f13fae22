"""The engines that pipelines run on: how Prism, Flink and Spark are resolved, started, watched and stopped.

Nothing here knows what a pipeline does. `job_server` gives an engine inside this machine for the time of a
`with` block, `FlinkCluster` and `SparkCluster` give clusters of several processes, `service` keeps an engine
running between runs, and `KafkaBroker` is a broker for streams. Everything that is started here lives in process
groups of its own and is stopped with them.
"""

from __future__ import annotations

from .beam_servers import beams_runner
from .broker import KAFKA, KafkaBroker, kafka_answers
from .cluster import FlinkCluster, SparkCluster
from .docker import docker_answers
from .flink_jobs import cancel_flink_jobs
from .job_servers import ENGINES, JobServer, JobServerOptions, job_server
from .processes import free_port, swept, temporary_folder
from .resolve import is_resolved, pinned_versions, resolve
from .service import SERVICES, Service, service_status, start_kafka, start_service, stop_service
from .tools import TOOLS, tool_version
from .workers import WorkerPool

__all__ = [
    "ENGINES",
    "KAFKA",
    "SERVICES",
    "TOOLS",
    "FlinkCluster",
    "JobServer",
    "JobServerOptions",
    "KafkaBroker",
    "Service",
    "SparkCluster",
    "WorkerPool",
    "beams_runner",
    "cancel_flink_jobs",
    "docker_answers",
    "free_port",
    "is_resolved",
    "job_server",
    "kafka_answers",
    "pinned_versions",
    "resolve",
    "service_status",
    "start_kafka",
    "start_service",
    "stop_service",
    "swept",
    "temporary_folder",
    "tool_version",
]
