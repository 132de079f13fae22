"""Every mechanism's counts are the same on every engine: one job with a branch for each of them."""

import hashlib
import json
from pathlib import Path
from types import SimpleNamespace

import apache_beam as beam
import numpy as np
import pytest
from ldp_beam.mechanisms import MECHANISMS, VALUE_ONE, MultiRound, Records, Secret, make_mechanism
from ldp_beam.pipelines.running import Engine, engine_pipeline
from ldp_beam.transforms.collection import Collection
from ldp_beam.transforms.count import CountReports
from ldp_beam.transforms.perturb import PerturbRecords
from ldp_beam.transforms.record_batches import records_to_batch

KEYS, USERS, BATCHES = 24, 3000, 6


def mechanism(name):
    """A mechanism with about `KEYS` keys; the first of its rounds, where it has several."""
    entry = MECHANISMS[name]
    least, most = getattr(entry.mechanism, "keys_min", 1), getattr(entry.mechanism, "keys_max", KEYS)
    may_need = {"padding": 2, "sensitive": range(0, KEYS, 3), "tags": ["home", "work"]}
    more = {parameter: given for parameter, given in may_need.items() if parameter in entry.parameters}
    made = make_mechanism(name, epsilon=1, keys=min(max(KEYS, least), most), **more)
    return made.for_round(made.initial()) if isinstance(made, MultiRound) else made


def batches(mechanism):
    """The people, in several batches."""
    rng = np.random.default_rng(5)
    for number in range(BATCHES):
        n = USERS // BATCHES
        sizes = rng.integers(0, min(4, mechanism.keys) + 1, n)
        offsets = np.concatenate([[0], np.cumsum(sizes)]).astype(np.int64)
        keys = np.concatenate([np.sort(rng.choice(mechanism.keys, size, replace=False)) for size in sizes])
        tags = len(getattr(mechanism, "tags", ()))
        yield records_to_batch(
            Records(
                users=Secret.from_seed(1).users().integers(np.arange(number * n, (number + 1) * n)),
                offsets=offsets,
                keys=keys.astype(np.int32),
                values=rng.integers(-VALUE_ONE, VALUE_ONE + 1, len(keys)) if mechanism.has_values else None,
                tags=rng.integers(-1, tags + 1, len(keys)).astype(np.int16) if tags else None,
            )
        )


class Digest(beam.DoFn):
    """Writes a digest of each block of counts."""

    def __init__(self, folder, name):
        self._folder, self._name = folder, name

    def process(self, element):
        (_, _, block), counts = element
        cells = b"".join(k.encode() + v.tobytes() for k, v in sorted(counts.cells.items()))
        digest = hashlib.sha256(cells).hexdigest()
        Path(self._folder, f"{self._name}-{block}.json").write_text(json.dumps([counts.n, digest]))
        yield block


def run(engine, folder):
    with engine_pipeline(engine) as p:
        for name in sorted(MECHANISMS):
            made = mechanism(name)
            # All that the transforms below ask of a definition.
            collection = Collection(SimpleNamespace(report_ids=False), made, f"test {name}")
            records = p | f"{name} records" >> beam.Create(list(batches(made)), reshuffle=False)
            records = records | f"{name} spread" >> beam.Reshuffle()
            reports = records | f"{name} perturb" >> PerturbRecords(collection, Secret.from_seed(2))
            counts, _ = reports | f"{name} count" >> CountReports(collection)
            counts | f"{name} digest" >> beam.ParDo(Digest(str(folder), name)).with_output_types(int)
    return {path.name: json.loads(path.read_text()) for path in folder.iterdir()}


@pytest.fixture(scope="module")
def reference(tmp_path_factory):
    found = run(Engine(), tmp_path_factory.mktemp("mechanisms"))
    assert {name.rpartition("-")[0] for name in found} == set(MECHANISMS)
    assert all(n == USERS for n, _ in found.values())
    return found


@pytest.mark.engine
@pytest.mark.parametrize("engine", ["prism", "flink", "spark"], indirect=True)
def test_every_mechanism_counts_alike(engine, reference, tmp_path):
    assert run(Engine(name=engine, workers=2), tmp_path) == reference
