"""The same input and the same secret give the same counts on every engine, byte for byte."""

import json

import pyarrow.parquet as pq
import pytest

SEED = "41"
LOCAL = [
    ("direct", ("--workers=3",)),
    ("direct", ("--workers=2", "--direct_running_mode=multi_processing")),
    ("prism", ()),
    ("flink", ("--workers=2",)),
    ("spark", ("--workers=2",)),
]
ENGINES = pytest.mark.parametrize(
    ("engine", "more"), LOCAL, indirect=["engine"], ids=["threads", "processes", "prism", "flink", "spark"]
)


@pytest.fixture(scope="module")
def reference(inputs, tmp_path_factory):
    """Counts of both layouts on the local runner with one thread."""
    from ldp_beam.pipelines.cli import main

    found = {}
    for layout in ("nested", "pairs"):
        folder = tmp_path_factory.mktemp("reference") / layout
        with pytest.raises(SystemExit) as end:
            main(["collect", *_arguments(inputs, layout, folder)])
        assert end.value.code == 0
        found[layout] = pq.read_table(folder / "counts.parquet")
    assert found["nested"].equals(found["pairs"])
    return found["nested"]


def _arguments(inputs, layout, output):
    return [
        *("--collection", str(inputs / "collection.toml"), "--input", str(inputs / f"{layout}.parquet")),
        *("--output", str(output), "--seed", SEED, "--json"),
    ]


@pytest.mark.engine
@pytest.mark.parametrize("layout", ["nested", "pairs"])
@ENGINES
def test_collect(engine, more, layout, inputs, reference, run, tmp_path):
    code, out, err = run("collect", *_arguments(inputs, layout, tmp_path / "out"), "--engine", engine, *more)
    assert code == 0, err
    assert pq.read_table(tmp_path / "out" / "counts.parquet").equals(reference)
    assert json.loads(out)["engine"]["name"] == engine


@pytest.mark.engine
@ENGINES
def test_perturb_then_aggregate_then_evaluate(engine, more, inputs, reference, run, run_json, tmp_path):
    where = ("--engine", engine, *more)
    run_json("perturb", *_arguments(inputs, "nested", tmp_path / "reports")[:-1], *where)
    run_json(
        *("aggregate", "--collection", inputs / "collection.toml", "--input", tmp_path / "reports/*.parquet"),
        *("--output", tmp_path / "out", *where),
    )
    assert pq.read_table(tmp_path / "out" / "counts.parquet").equals(reference)
    records = inputs / "nested.parquet"
    here = run_json("evaluate", "--estimates", tmp_path / "out", "--records", records)
    there = run_json("evaluate", "--estimates", tmp_path / "out", "--records", records, *where)
    assert there == here


@pytest.fixture(scope="module")
def in_rounds(inputs, tmp_path_factory):
    """A collection in two rounds, secrets of both sides, and its counts on the local runner."""
    from ldp_beam.pipelines.cli import main

    folder = tmp_path_factory.mktemp("rounds")
    text = (inputs / "collection.toml").read_text().replace("padding = 2", "[privkv]\nrounds = 2")
    (folder / "rounds.toml").write_text(text.replace("pckv-ue", "privkvm"))
    given = ["--collection", str(folder / "rounds.toml"), "--input", str(inputs / "nested.parquet"), "--json"]
    for name in ("clients", "server"):
        with pytest.raises(SystemExit):
            main(["secret", "new", str(folder / name)])
    given += ["--secret-file", str(folder / "clients"), "--period", "p", "--server-secret-file", str(folder / "server")]
    with pytest.raises(SystemExit) as end:
        main(["collect", *given, "--output", str(folder / "out")])
    assert end.value.code == 0
    return given, pq.read_table(folder / "out" / "counts.parquet")


@pytest.mark.engine
@pytest.mark.parametrize("engine", ["prism", "flink", "spark"], indirect=True)
def test_a_collection_in_rounds(engine, in_rounds, run, tmp_path):
    given, counts = in_rounds
    code, _, err = run("collect", *given, "--output", tmp_path / "out", "--engine", engine, "--workers=2")
    assert code == 0, err
    assert pq.read_table(tmp_path / "out" / "counts.parquet").equals(counts)


@pytest.mark.engine
@pytest.mark.parametrize("layout", ["nested", "pairs"])
@pytest.mark.parametrize("name", ["flink", "spark"])
def test_collect_on_a_standalone_cluster_with_external_workers(
    name, layout, inputs, reference, run, cluster_arguments, tmp_path
):
    code, out, err = run("collect", *_arguments(inputs, layout, tmp_path / "out"), *cluster_arguments(name))
    assert code == 0, err
    assert pq.read_table(tmp_path / "out" / "counts.parquet").equals(reference)
    assert json.loads(out)["engine"]["name"] == name


@pytest.mark.engine
@pytest.mark.parametrize("engine", ["prism", "flink", "spark"], indirect=True)
def test_row_counts_come_from_the_data_and_not_from_the_engines_metrics(engine, define, run_json, tmp_path):
    """B34: 10 rows, 3 of them without a user."""
    rows = "user_id,key,value\n" + "".join(f"{'' if i < 3 else f'u{i}'},apple,0.5\n" for i in range(10))
    (tmp_path / "rows.csv").write_text(rows)
    manifest = run_json(
        *("collect", "--collection", define(), "--input", tmp_path / "rows.csv", "--output", tmp_path / "out"),
        *("--engine", engine, "--seed", "1"),
    )
    assert manifest["records"]["rows_read"] == 10
    assert sum(manifest["records"]["rejected"].values()) == 3
    assert manifest["reports"]["counted"] == 7
