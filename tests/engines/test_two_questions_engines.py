"""Padding "auto" on every engine: the same answers to both questions, so the same padding and the same counts."""

import json

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

pytestmark = pytest.mark.engine

DEFINITION = """
name = "engines"
mechanism = "pckv-grr"
epsilon = 4
padding = "auto"
[auto]
share = 0.3
[keys]
count = 12
[values]
range = [-1, 1]
"""


@pytest.fixture(scope="module")
def given(tmp_path_factory):
    """Definition and records: everybody holds three of twelve keys."""
    folder = tmp_path_factory.mktemp("auto")
    (folder / "c.toml").write_text(DEFINITION, encoding="utf-8")
    items = [[{"key": str((i * 5 + j) % 12), "value": (i % 5 - 2) / 2} for j in range(3)] for i in range(3_000)]
    table = pa.table({"user_id": [f"user {i}" for i in range(3_000)], "items": items})
    pq.write_table(table, folder / "records.parquet", row_group_size=500)
    return "--collection", folder / "c.toml", "--input", folder / "records.parquet", "--seed", "9"


@pytest.fixture(scope="module")
def reference(given, tmp_path_factory):
    from ldp_beam.pipelines.cli import main

    output = tmp_path_factory.mktemp("reference") / "out"
    with pytest.raises(SystemExit) as end:
        main([*map(str, ("collect", *given, "--output", output, "--json"))])
    assert end.value.code == 0
    return output


@pytest.mark.parametrize("engine", ["prism", "flink", "spark"], indirect=True)
def test_both_questions_give_the_same(engine, given, reference, run_json, tmp_path):
    manifest = run_json("collect", *given, "--output", tmp_path / "out", "--engine", engine)
    wanted = json.loads((reference / "manifest.json").read_text(encoding="utf-8"))
    assert manifest["mechanism"] == wanted["mechanism"]
    assert manifest["mechanism"]["padding"]["padding"] == 3
    assert manifest["reports"] == wanted["reports"]
    for name in ("counts.parquet", "estimates.parquet"):
        assert pq.read_table(tmp_path / "out" / name).equals(pq.read_table(reference / name))
