"""One file with many row groups is read by several tasks at a time, not by one."""

import os
import sys
import uuid
from pathlib import Path

import apache_beam as beam
import pytest
from apache_beam.internal.cloudpickle import cloudpickle
from ldp_beam.mechanisms import Secret
from ldp_beam.pipelines.client import RecordSource, read_records
from ldp_beam.pipelines.running import Engine, engine_pipeline
from ldp_beam.transforms import inputs as inputs_module
from ldp_beam.transforms.collection import Collection

#: Workers in other processes cannot import this file.
cloudpickle.register_pickle_by_value(sys.modules[__name__])


class Trace(beam.DoFn):
    """Leaves a file for every bundle that records came through, named for its process."""

    def __init__(self, folder):
        self._folder = folder

    def start_bundle(self):
        self._bundle = f"{os.getpid()}-{uuid.uuid4().hex}"

    def process(self, batch):
        Path(self._folder, self._bundle).touch()
        yield batch.num_rows


def trace(engine, inputs, folder, monkeypatch):
    """The bundles and processes that read the nested file, cut at every row group."""
    monkeypatch.setattr(inputs_module, "_SLICE_ROWS", 1)
    collection = Collection.load(inputs / "collection.toml")
    source = RecordSource(patterns=[str(inputs / "nested.parquet")])
    checked = source.inspect(collection)
    assert len(inputs_module.slices(checked)) == 20
    with engine_pipeline(engine) as p:
        records, _ = read_records(p, collection, source, checked, Secret.from_seed(1), spill=None)
        records | "Trace" >> beam.ParDo(Trace(str(folder))).with_output_types(int)
    bundles = [path.name for path in folder.iterdir()]
    return bundles, {name.split("-")[0] for name in bundles}


@pytest.mark.engine
@pytest.mark.parametrize("engine", ["flink", "spark"], indirect=True)
def test_several_tasks_read_one_file(engine, inputs, tmp_path, monkeypatch):
    bundles, _ = trace(Engine(name=engine, workers=2), inputs, tmp_path, monkeypatch)
    assert len(bundles) >= 2


@pytest.mark.engine
def test_two_task_managers_read_one_file(inputs, tmp_path, monkeypatch, cluster_arguments):
    """Each TaskManager has a worker of its own, so that two processes read."""
    engine = Engine(beam_arguments=tuple(cluster_arguments("flink")))
    bundles, processes = trace(engine, inputs, tmp_path, monkeypatch)
    assert len(bundles) >= 2
    assert len(processes) == 2
