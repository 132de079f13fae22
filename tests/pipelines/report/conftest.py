"""Result folders for the tests of the report page, made without running a pipeline."""

import numpy as np
import pyarrow as pa
import pyarrow.csv as pacsv
import pyarrow.parquet as pq
import pytest
from ldp_beam.mechanisms import Counts
from ldp_beam.pipelines.results import manifest_of
from ldp_beam.pipelines.running import Clock, Engine
from ldp_beam.schemas.manifest import Randomness
from ldp_beam.transforms.collection import Collection
from ldp_beam.transforms.estimate import estimate_counts


def collection_of(keys, folder):
    """A collection over these key texts."""
    pacsv.write_csv(pa.table({"key": pa.array(keys, pa.string())}), folder / "keys.csv")
    (folder / "c.toml").write_text(
        'name = "shops"\nmechanism = "pckv-ue"\nepsilon = 2\npadding = 2\n'
        '[keys]\nfile = "keys.csv"\n[values]\nrange = [-1, 1]\n'
    )
    return Collection.load(folder / "c.toml")


def write_result(folder, keys, n=50_000, records=None, private=True, windows=()):
    """Write estimates and manifest as `collect` would, from counts that could have been counted."""
    folder.mkdir(parents=True)
    around = folder.parent / f"{folder.name}-definition"
    around.mkdir()
    collection = collection_of(keys, around)
    tables = []
    for window in windows or (None,):
        batch = estimate_counts(collection, some_counts(collection, n, seed=len(tables)), private=private)
        table = pa.Table.from_batches([batch])
        if window is not None:
            column = pa.array([window] * table.num_rows, pa.timestamp("us", tz="UTC"))
            table = table.append_column("window_start", column).append_column("window_end", column)
        tables.append(table)
    pq.write_table(pa.concat_tables(tables), folder / "estimates.parquet")
    manifest_of(
        "collect" if records is not None else "aggregate",
        collection,
        Randomness(source="fresh secret" if private else "seed", private=private, period="2026-11"),
        Engine(),
        Clock(),
        records=records,
        reports={"counted": n, "malformed": 3},
        files=[{"kind": "estimates", "name": "estimates.parquet", "rows": len(keys)}],
        spends=True,
        warnings=[] if private else ["The randomness came from a seed: this run is not private."],
    ).write(folder)
    return folder


def some_counts(collection, n, seed=0):
    """Counts of a population in which the k-th key is held by about 1 / (k + 2) of the people."""
    law, d = collection.mechanism.probabilities, collection.mechanism.keys
    generator = np.random.default_rng(seed)
    share = 1 / (np.arange(d) + 2.0)
    held = share / collection.mechanism.padding
    supported = held * law.a + (1 - held) * law.b
    positive = held * law.a * 0.7 + (1 - held) * law.b / 2
    n1 = generator.binomial(n, positive)
    n2 = generator.binomial(n, supported - positive)
    zero = collection.mechanism.zero()
    cells = dict(zip(sorted(zero.cells), (n1.astype(np.int64), n2.astype(np.int64)), strict=True))
    return Counts(n=n, cells=cells)


@pytest.fixture
def result(tmp_path):
    """Return a function that makes a result folder over the given keys and returns its path."""

    def make(keys, name="result", **more):
        return write_result(tmp_path / name, keys, **more)

    return make
