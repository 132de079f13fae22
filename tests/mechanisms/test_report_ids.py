"""Report ids: uniform whatever the record, apart from the report's own bits; the audit finds planted faults."""

import numpy as np
import pytest
from ldp_beam.mechanisms import Secret, make_records
from ldp_beam.mechanisms.audit.report_ids import id_violations
from ldp_beam.mechanisms.randomness import Stream


def test_the_ids_of_the_product_add_nothing():
    assert id_violations() == []


class ShowsTheSeed(Stream):
    __slots__ = ()

    def ids(self, seeds):
        return np.ascontiguousarray(seeds).view(np.uint8)


class ShowsOneBitOfTheSeed(Stream):
    __slots__ = ()

    def ids(self, seeds):
        found = super().ids(seeds).copy()
        found[:, 0] = (found[:, 0] & 0xFE) | (seeds[:, 0] & np.uint64(1)).astype(np.uint8)
        return found


class RepeatsTheFirstBlock(Stream):
    __slots__ = ()

    def _id_source(self):
        return self.source()


@pytest.mark.parametrize(
    ("kind", "message"),
    [
        (ShowsTheSeed, "not one whole block"),
        (ShowsOneBitOfTheSeed, "not one whole block"),
        (RepeatsTheFirstBlock, "repeats a block"),
    ],
)
def test_an_id_that_tells_of_the_record_is_found(kind, message):
    (found,) = id_violations(kind)
    assert message in found


def stream(**label):
    return Secret.from_seed(5).stream(**({"fingerprint": "f", "period": "p", "round": 0} | label))


def ids_of(records, **label):
    one = stream(**label)
    return {row.tobytes() for row in one.ids(one.seeds(records))}


def test_a_repeated_label_gives_the_same_ids_and_any_other_label_fresh_ones():
    users = [f"u{i}" for i in range(200)]
    digests = Secret.from_seed(5).users()
    records = make_records(digests, users, [[(0, 0.5)]] * 200)
    changed = make_records(digests, users, [[(0, -0.5)]] * 200)
    first = ids_of(records)
    assert len(first) == 200
    assert ids_of(records) == first
    for other in (
        ids_of(changed), ids_of(records, period="q"), ids_of(records, round=1), ids_of(records, fingerprint="g")
    ):  # fmt: skip
        assert len(other) == 200
        assert not first & other


def test_no_reports_have_no_ids():
    assert stream().ids(np.empty((0, 2), dtype=np.uint64)).shape == (0, 16)
