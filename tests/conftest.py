"""What all tests share: small collections, small inputs, and the data that may lie beside the checkout."""

import json
import os
import subprocess
import sys
import time
import urllib.request
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import settings
from ldp_beam.mechanisms import randomness

from tests.fixed_randomness import RANDOMNESS, SALT

# Machines that run these tests differ in speed; what is tested is never how long something takes. In CI examples are
# the same in every run; on people's machines hypothesis goes on looking for new ones.
settings.register_profile("ldp-beam", deadline=None, derandomize=os.environ.get("CI") == "true")
settings.load_profile("ldp-beam")

SHARED = Path(__file__).parents[2] / "shared"

DEFINITION = """
name      = "fruit"
mechanism = "{mechanism}"
epsilon   = {epsilon}
padding   = {padding}
{more}
[keys]
{keys}
[values]
range = [{low}, {high}]
{values}
"""


def pytest_configure(config):
    randomness.secrets = RANDOMNESS


def pytest_report_header(config):
    return f"secrets follow from the tests' names and the salt {SALT!r} (LDP_BEAM_TEST_SALT)"


@pytest.hookimpl(wrapper=True)
def pytest_runtest_protocol(item):
    RANDOMNESS.restart(item.nodeid)
    return (yield)


@pytest.hookimpl(wrapper=True)
def pytest_fixture_setup(fixturedef, request):
    """What several tests share does not depend on which of them comes first."""
    if fixturedef.scope == "function":
        return (yield)
    with RANDOMNESS.of(f"{fixturedef.baseid} {fixturedef.argname} {getattr(request, 'param_index', '')}"):
        return (yield)


def pytest_collection_modifyitems(items):
    """`make test-engines` looks into tests/engines alone, so a test on an engine elsewhere would never run."""
    marked = {item.path for item in items if item.get_closest_marker("engine")}
    elsewhere = [str(path) for path in marked if path.parent.name != "engines"]
    if elsewhere:
        raise pytest.UsageError(f"tests on engines belong into tests/engines: {', '.join(elsewhere)}")


@pytest.fixture
def define(tmp_path):
    """Return a function that writes a collection definition and returns its path."""

    def write(name="collection.toml", **fields):
        defaults = {
            "mechanism": "pckv-ue",
            "epsilon": "2",
            "padding": 2,
            "more": "",
            "keys": 'list = ["apple", "banana", "cherry"]',
            "low": -1,
            "high": 1,
            "values": "",
        }
        path = tmp_path / name
        path.write_text(DEFINITION.format(**(defaults | fields)), encoding="utf-8")
        return path

    return write


ITEM = pa.struct([("key", pa.string()), ("value", pa.float64())])


@pytest.fixture
def nested(tmp_path):
    """Return a function that writes [(user, [(key, value), …]), …] as nested Parquet and returns its path."""

    def write(people, name="records.parquet", row_group_size=None):
        items = [[{"key": k, "value": v} for k, v in held] for _, held in people]
        table = pa.table(
            {
                "user_id": pa.array([u for u, _ in people], pa.string()),
                "items": pa.array(items, pa.list_(ITEM)),
            }
        )
        path = tmp_path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        pq.write_table(table, path, row_group_size=row_group_size)
        return path

    return write


@pytest.fixture
def people():
    """Return a function that makes n people with one or two pairs each, every tenth with none."""

    def make(n, keys=("apple", "banana", "cherry")):
        made = []
        for i in range(n):
            held = [(keys[i % len(keys)], (i % 9 - 4) / 4)]
            if i % 3 == 0:
                held.append((keys[(i + 1) % len(keys)], -0.5))
            made.append((f"user-{i}", [] if i % 10 == 9 else held))
        return made

    return make


@pytest.fixture
def run(capsys):
    """Return a function that runs the command line in this process: (exit code, standard output, standard error)."""
    from ldp_beam.pipelines.cli import main

    def call(*arguments):
        with pytest.raises(SystemExit) as end:
            main([str(argument) for argument in arguments])
        out, err = capsys.readouterr()
        return end.value.code, out, " ".join(err.split())

    return call


@pytest.fixture
def run_json(run):
    """Return a function that runs the command line with --json and returns the object."""

    def call(*arguments):
        code, out, err = run(*arguments, "--json")
        assert code == 0, err
        return json.loads(out)

    return call


@pytest.fixture(scope="module", autouse=True)
def beam_remembers(request):
    """Spare small pipelines in this process half of their time; tests on engines have Beam as it is."""
    if request.path.parent.name == "engines":
        yield
        return
    from tests.beam_memory import remembering

    with remembering():
        yield


@pytest.fixture(scope="session")
def warm_python():
    """Clients named `ldp-beam` and `python` that fork a process which has imported everything: see its module."""
    from tests.warm_python import WarmPython

    with WarmPython() as warm:
        yield warm


@pytest.fixture
def shared():
    """Return the folder of data beside the checkout, or skip."""
    if not SHARED.is_dir():
        pytest.skip("the data folder beside the checkout is absent")
    return SHARED


@pytest.fixture(scope="session")
def s3_server(tmp_path_factory):
    """A server that speaks S3, in a process of its own: the environment in which AWS's own client finds it."""
    from ldp_beam.engines import free_port

    endpoint = f"http://127.0.0.1:{(port := free_port())}"
    log = (tmp_path_factory.mktemp("s3") / "log").open("w")
    command = [sys.executable, "-W", "ignore", "-m", "moto.server", "-H", "127.0.0.1", "-p", str(port)]
    process = subprocess.Popen(command, stdout=log, stderr=log)
    end = time.monotonic() + 60
    while True:
        assert process.poll() is None, "the server ended"
        assert time.monotonic() < end, "the server does not answer"
        try:
            urllib.request.urlopen(endpoint, timeout=2).close()
            break
        except OSError:
            time.sleep(0.1)
    who = {"AWS_ACCESS_KEY_ID": "k", "AWS_SECRET_ACCESS_KEY": "s", "AWS_DEFAULT_REGION": "us-east-1"}
    yield {**who, "AWS_ENDPOINT_URL": endpoint}
    process.terminate()
    process.wait()
    log.close()
