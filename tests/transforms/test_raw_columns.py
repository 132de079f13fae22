"""Times of every kind mean the same moment, on any machine."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from datetime import date

import pyarrow as pa
import pytest
from ldp_beam.transforms.raw_columns import NO_TIME, microseconds, null_mask


@pytest.fixture(params=["UTC", "America/New_York"])
def _zone(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setenv("TZ", request.param)
    time.tzset()
    assert os.environ["TZ"] == request.param
    yield
    monkeypatch.undo()
    time.tzset()


DAY = 19_723 * 86_400_000_000  # 2024-01-01 in UTC


@pytest.mark.usefixtures("_zone")
@pytest.mark.parametrize(
    "column",
    [
        pa.array(["2024-01-01", None]),
        pa.array(["2024-01-01T00:00", None], pa.large_string()),
        pa.array([" 2024-01-01T00:00:00.000000000 ", "31/12/2023"]),
        pa.array(["2024-01-01T00:00:00Z", ""]),
        pa.array(["2024-01-01T05:30:00+05:30", "x"]).dictionary_encode(),
        pa.array([date(2024, 1, 1), None]),
        pa.array([date(2024, 1, 1), None], pa.date64()),
        pa.array([DAY // 1_000_000, None], pa.timestamp("s")),
        pa.array([DAY // 1000, None], pa.timestamp("ms", tz="Asia/Tokyo")),
        pa.array([DAY, None], pa.timestamp("us")),
        pa.array([DAY * 1000 + 999, None], pa.timestamp("ns")),
        pa.array([DAY, None], pa.int64()),
    ],
)
def test_one_moment(column: pa.Array) -> None:
    assert microseconds(column).tolist() == [DAY, NO_TIME]


def test_before_1970_and_without_any() -> None:
    assert microseconds(pa.array(["1969-12-31T23:59:59.999999"])).tolist() == [-1]
    assert microseconds(pa.nulls(2)).tolist() == [NO_TIME, NO_TIME]


def test_nulls_hide_in_dictionaries() -> None:
    inside = pa.DictionaryArray.from_arrays(pa.array([0, 1, None]), pa.array(["a", None]))
    mask = null_mask(inside)
    assert mask is not None
    assert mask.tolist() == [False, True, True]
    assert null_mask(pa.array(["a"])) is None
