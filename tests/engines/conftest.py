"""Engines for tests: started once a session, inputs that are the same for all of them."""

import hashlib
import os
import shutil
import uuid
import zipfile
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from ldp_beam.engines import FlinkCluster, KafkaBroker, SparkCluster, WorkerPool, free_port, is_resolved, job_server
from ldp_beam.pipelines.running import engine_session
from ldp_beam.schemas.kafka_config import KafkaAddress

from tests.engines.versions_used import Used

NEEDS = {"prism": ("go",), "flink": ("java", "mvn"), "spark": ("java", "mvn"), "kafka": ("java", "mvn")}
FAULTS = Path(__file__).parent / "faults"
USED = Used()


def pytest_runtest_logreport(report):
    USED.add(report)


def pytest_sessionfinish():
    USED.write()


def pytest_collection_modifyitems(items):
    """Run these tests last: what they start stays until the session ends, and other tests shall not meet it."""
    here = Path(__file__).parent
    items.sort(key=lambda item: item.path.parent == here)  # stable: otherwise the order stays


def _require_engine(name):
    """Skip a test where an engine cannot run; under CI that is a failure."""
    USED.note(name)
    fetchers = NEEDS[name]
    needed = tuple(tool for tool in fetchers if tool == "java") if is_resolved(name) else fetchers
    missing = [tool for tool in needed if shutil.which(tool) is None]
    if missing and os.environ.get("CI") == "true":
        pytest.fail(f"{name} cannot be tested: {', '.join(missing)} absent")
    if missing:
        pytest.skip(f"{name} needs {', '.join(missing)}, absent here")


@pytest.fixture(scope="session", autouse=True)
def warm_engines():
    """Let the tests of a session share each engine that they start."""
    with engine_session():
        yield


@pytest.fixture(scope="session")
def require_engine():
    """Return a function that skips a test where an engine cannot run."""
    return _require_engine


@pytest.fixture
def engine(request):
    """The name of an engine that can run here (parametrised indirectly)."""
    if request.param == "direct":
        USED.note("direct")
    else:
        _require_engine(request.param)
    return request.param


@pytest.fixture(scope="session")
def worker_pool(tmp_path_factory):
    """A pool of Python workers in which tests can plant a fault: see `faults/sitecustomize.py`."""
    folder = tmp_path_factory.mktemp("pool")
    plan = folder / "plan"
    before = {name: os.environ.get(name) for name in ("PYTHONPATH", "LDP_BEAM_TEST_FAULT")}
    os.environ |= {"PYTHONPATH": str(FAULTS), "LDP_BEAM_TEST_FAULT": str(plan)}
    try:
        pool = WorkerPool(folder)
    finally:
        for name, value in before.items():
            if value is None:
                del os.environ[name]
            else:
                os.environ[name] = value
    pool.plan = plan
    yield pool
    pool.stop()


@pytest.fixture(scope="session")
def flink_server():
    """Beam's options for one embedded Flink that jobs with different workers share."""
    _require_engine("flink")
    with job_server("flink") as server:
        yield ["--runner=FlinkRunner", f"--job_endpoint={server.endpoint}"]


@pytest.fixture(scope="session")
def flink_cluster(tmp_path_factory):
    """A standalone Flink: one JobManager, two TaskManagers with two slots each."""
    _require_engine("flink")
    with FlinkCluster(tmp_path_factory.mktemp("flink-cluster"), task_managers=2, slots=2) as cluster:
        yield cluster


@pytest.fixture(scope="session")
def spark_cluster(tmp_path_factory):
    """A standalone Spark: a master and a worker with two cores."""
    _require_engine("spark")
    with SparkCluster(tmp_path_factory.mktemp("spark-cluster"), workers=1, cores=2) as cluster:
        yield cluster


@pytest.fixture(scope="session")
def broker(tmp_path_factory):
    """A broker of Kafka on a port of its own, and on another with TLS; tests use topics of their own."""
    pytest.importorskip("confluent_kafka")
    _require_engine("kafka")
    from tests.engines.secure_broker import Secured

    folder = tmp_path_factory.mktemp("broker")
    secured = Secured.prepare(folder / "access")
    more = {"listeners": secured.listeners(), "settings": secured.settings()}
    with KafkaBroker(folder / "data", port=free_port(), **more) as running:
        secured.add_people(running.address)
        running.secured = secured
        yield running


@pytest.fixture
def topic(broker):
    """A topic of two partitions, made by its first use."""
    return KafkaAddress(broker.address, f"t-{uuid.uuid4().hex}")


@pytest.fixture
def cluster_arguments(request, worker_pool, tmp_path_factory):
    """Return a function that gives Beam's own options for a cluster of ours and its external workers."""

    def make(name):
        cluster, nothing = request.getfixturevalue(f"{name}_cluster"), tmp_path_factory.mktemp("jar") / "nothing.jar"
        zipfile.ZipFile(nothing, "w").close()
        master = {
            "flink": ["--runner=FlinkRunner", f"--flink_master={cluster.master}", "--parallelism=2"],
            # Its executors have all jars already; without a file to stage the job server would send them at every job.
            "spark": ["--runner=SparkRunner", f"--spark_master_url={cluster.master}", f"--files_to_stage={nothing}"],
        }[name]
        return [*master, "--environment_type=EXTERNAL", f"--environment_config={worker_pool.address}"]

    return make


# -- inputs -----------------------------------------------------------------------------------------------

USERS = 20_000
KEYS = [f"k{i}" for i in range(12)]


@pytest.fixture(scope="session")
def inputs(tmp_path_factory):
    """A folder with the same people as nested Parquet and as pairs, and a definition."""
    folder = tmp_path_factory.mktemp("inputs")
    rng = np.random.default_rng(3)
    sizes = rng.integers(0, 4, USERS)
    users = np.array([f"user-{i}" for i in range(USERS)])
    keys = np.concatenate([rng.choice(KEYS, size, replace=False) for size in sizes])
    values = rng.uniform(-1, 1, len(keys))
    offsets = np.concatenate([[0], np.cumsum(sizes)])
    items = pa.StructArray.from_arrays([pa.array(keys), pa.array(values)], ["key", "value"])
    nested = pa.table({"user_id": users, "items": pa.ListArray.from_arrays(pa.array(offsets, pa.int32()), items)})
    pq.write_table(nested, folder / "nested.parquet", row_group_size=1000)
    nobody = sizes == 0
    pairs = pa.table(
        {
            "user_id": np.concatenate([np.repeat(users, sizes), users[nobody]]),
            "key": pa.array([*keys, *[None] * int(nobody.sum())]),
            "value": pa.array([*values, *[None] * int(nobody.sum())]),
        }
    )
    order = rng.permutation(pairs.num_rows)
    pq.write_table(pairs.take(order), folder / "pairs.parquet", row_group_size=3000)
    listed = ", ".join(f'"{key}"' for key in KEYS)
    (folder / "collection.toml").write_text(
        f'name = "engines"\nmechanism = "pckv-ue"\nepsilon = 2\npadding = 2\n[keys]\nlist = [{listed}]\n'
        "[values]\nrange = [-1, 1]\n"
    )
    return folder


def counts_digest(folder):
    """A digest of the counts of a result, cell by cell."""
    table = pq.read_table(Path(folder) / "counts.parquet")
    return hashlib.sha256(repr(table.to_pydict()).encode()).hexdigest()


@pytest.fixture
def digest():
    return counts_digest
