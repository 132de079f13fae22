"""Bringing rows together by user: bucket files hold no text, and nothing of the run stays on the disk."""

from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from ldp_beam.transforms import regroup


@pytest.fixture
def scattered(tmp_path):
    """10,000 rows of 1,000 users in random order."""
    rng = np.random.default_rng(1)
    users = rng.permutation(np.repeat(np.arange(1000), 10))
    keys = rng.integers(0, 3, len(users))
    table = pa.table(
        {
            "user_id": [f"person-{u}" for u in users],
            "key": [["apple", "banana", "cherry"][k] for k in keys],
            "value": rng.uniform(-1, 1, len(users)),
        }
    )
    pq.write_table(table, tmp_path / "rows.parquet", row_group_size=700)
    return tmp_path / "rows.parquet"


def test_counts_do_not_depend_on_the_number_of_buckets(scattered, define, run_json, tmp_path, monkeypatch):
    counts = []
    for rows in (100, 3000, 10**6):
        monkeypatch.setattr(regroup, "_BUCKET_ROWS", rows)
        out = tmp_path / f"o{rows}"
        manifest = run_json(
            "collect", "--collection", define(), "--input", scattered, "--output", out, "--seed", 3, "--workers", 2
        )
        assert manifest["records"]["users"] == manifest["reports"]["counted"] == 1000
        counts.append(pq.read_table(out / "counts.parquet"))
    assert counts[0].equals(counts[1])
    assert counts[0].equals(counts[2])


def watched(kept, fails):
    """Return a merging stage that keeps a copy of every bucket file, with its path, and may then fail."""

    class Watched(regroup._Merge):
        def process(self, element):
            for path in element[1]:
                copy = Path(kept, Path(path).name)
                copy.write_bytes(Path(path).read_bytes())
                copy.with_suffix(".path").write_text(path)
            if fails:
                raise RuntimeError("a worker died")
            yield from super().process(element)

    return Watched


@pytest.mark.parametrize("fails", [False, True])
def test_bucket_files_hold_no_text_and_are_gone_afterwards(fails, scattered, define, run, tmp_path, monkeypatch):
    (tmp_path / "kept").mkdir()
    monkeypatch.setattr(regroup, "_Merge", watched(str(tmp_path / "kept"), fails))
    code, _, err = run("collect", "--collection", define(), "--input", scattered, "--output", tmp_path / "o")
    assert code == int(fails)
    assert ("a worker died" in err) == fails
    paths = [Path(p.read_text()) for p in (tmp_path / "kept").glob("*.path")]
    assert paths
    assert not any(path.exists() or path.parent.exists() for path in paths)
    contents = [p.read_bytes() for p in (tmp_path / "kept").iterdir() if p.suffix != ".path"]
    assert sum(map(len, contents)) == 10_000 * 28
    assert not any(b"person" in content or b"apple" in content for content in contents)


@pytest.mark.parametrize(
    ("rows", "buckets"), [(0, 1), (1, 1), (2**19, 1), (2**19 + 1, 2), (2**21 + 1, 8), (10**12, 1024)]
)
def test_number_of_buckets(rows, buckets):
    assert regroup._buckets(rows, fewest=1) == buckets
    assert regroup._buckets(rows, fewest=16) == max(16, buckets)
