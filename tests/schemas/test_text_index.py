"""Looking texts up by hash agrees with a dictionary, whatever collides."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st
from ldp_beam.schemas import text_index
from ldp_beam.schemas.text_index import ABSENT, TextIndex

TEXT = st.text(max_size=20)


@given(st.lists(TEXT, unique=True, max_size=40), st.lists(st.none() | TEXT, max_size=40))
def test_agrees_with_a_dictionary(texts: list[str], asked: list[str | None]) -> None:
    table = {text: place for place, text in enumerate(texts)}
    asked = asked + list(texts)
    expected = [table.get(text, ABSENT) if text is not None else ABSENT for text in asked]
    index = TextIndex(pa.array(texts, pa.string()))
    column = pa.array(["x", *asked, "y"], pa.string())
    for some in (pa.array(asked, pa.string()), column.slice(1, len(asked))):
        found = index.find(some)
        assert found.dtype == np.int32
        assert found.tolist() == expected


def test_hashes_see_every_byte_and_the_length() -> None:
    texts = ["", "\0", "\0\0", *(("a" * i) + "b" + "a" * (40 - i) for i in range(41)), *("a" * i for i in range(1, 60))]
    hashes = text_index._hash(pa.array(texts), 0)
    assert len(np.unique(hashes)) == len(texts)


def test_texts_that_share_a_hash_are_told_apart(monkeypatch: pytest.MonkeyPatch) -> None:
    real = text_index._hash

    def weak(texts: pa.Array, seed: int) -> np.ndarray:
        # Within the list nothing collides under seed 3; afterwards a foreign text has the hash of a listed one.
        return real(texts, 0) % np.uint64(2) if seed < 3 else np.array([len(t) for t in texts.to_pylist()], np.uint64)

    monkeypatch.setattr(text_index, "_hash", weak)
    index = TextIndex(pa.array(["a", "bb", "ccc"]))
    assert index._seed == 3
    assert index.find(pa.array(["ccc", "ddd", "a", "b", "bb", "eeee"])).tolist() == [2, ABSENT, 0, ABSENT, 1, ABSENT]
