"""A counts store filled on each engine: the same bytes, and counters that are right or said to be missing (B34)."""

from pathlib import Path

import pytest

pytestmark = pytest.mark.engine

DAYS = ("2026-11-01", "2026-11-02")


def content(folder):
    paths = sorted(path for path in Path(folder).rglob("*") if path.is_file() and not path.name.startswith("."))
    return {str(path.relative_to(folder)): path.read_bytes() for path in paths}


@pytest.fixture(scope="module")
def ten_rows(tmp_path_factory):
    """Ten rows, of which three name no user."""
    path = tmp_path_factory.mktemp("rows") / "ten.csv"
    rows = [f"{'' if i % 3 == 1 else f'user-{i}'},apple,0.5" for i in range(10)]
    path.write_text("\n".join(["user_id,key,value", *rows]) + "\n")
    return path


@pytest.mark.parametrize("engine", ["prism", "flink", "spark"], indirect=True)
def test_the_same_store_and_no_false_zero(engine, ten_rows, define, run_json, tmp_path):
    definition = define()
    for day in DAYS:
        run_json(
            *("perturb", "--collection", definition, "--input", ten_rows, "--output", tmp_path / day, "--seed", 1),
            *("--period", day),
        )
    inputs = [tmp_path / day for day in DAYS]
    told = {}
    for name in ("direct", engine):
        told[name] = run_json(
            *(
                "aggregate",
                "--collection",
                definition,
                "--input",
                *inputs,
                "--counts-store",
                tmp_path / f"store-{name}",
            ),
            *("--output", tmp_path / f"result-{name}", "--engine", name),
        )
    assert content(tmp_path / f"store-{engine}") == content(tmp_path / "store-direct")
    assert told["direct"]["metrics"] == {"reports_read": 14, "reports_malformed": 0, "reports_counted": 14, "late": 0}
    for name, value in told["direct"]["metrics"].items():
        assert told[engine]["metrics"][name] in (value, "unavailable")
    collected = run_json(
        *("collect", "--collection", definition, "--input", ten_rows, "--output", tmp_path / "collected", "--seed", 1),
        *("--engine", engine),
    )
    for name, value in {"rows_read": 10, "rows_rejected": 3, "reports_sent": 7, "reports_counted": 7}.items():
        assert collected["metrics"][name] in (value, "unavailable")
    assert collected["reports"]["counted"] == 7  # which no counter decides
