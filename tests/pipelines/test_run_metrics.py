"""The engine's counters in the manifest: what they say, and "unavailable" instead of a 0 that is none (B34)."""

import pytest
from ldp_beam.pipelines.results import told_metrics
from ldp_beam.pipelines.stream_metrics import UNAVAILABLE, read_metrics

TALLY = {"tally": {"rows_read": 10, "rejected_rows": 3, "users": 7}}


@pytest.mark.parametrize(
    ("found", "told"),
    [
        ({"rows_read": 10, "rows_rejected": 3, "reports_sent": 7}, [10, 3, 7]),
        ({}, [UNAVAILABLE] * 3),  # an engine that tells nothing
        ({"rows_read": 10, "rows_rejected": 0, "reports_sent": 7}, [10, UNAVAILABLE, 7]),  # a 0 that is none
        ({"rows_read": 10}, [10, UNAVAILABLE, UNAVAILABLE]),
        ({"rows_read": 20, "rows_rejected": 3, "reports_sent": 7}, [20, 3, 7]),  # a retried bundle: the engine's word
    ],
)
def test_what_an_engine_tells(found, told):
    got = told_metrics(found, TALLY, client=True, server=False)
    assert got == dict(zip(("rows_read", "rows_rejected", "reports_sent"), told, strict=True))


def test_a_counter_that_never_moved_is_0_where_the_engine_tells_others():
    tally = {"tally": {"rows_read": 10, "users": 10}}
    assert told_metrics({"rows_read": 10}, tally, client=True, server=False)["rows_rejected"] == 0
    assert told_metrics({}, tally, client=True, server=False)["rows_rejected"] == UNAVAILABLE


def test_an_engine_without_metrics_says_nothing():
    class Gone:
        def metrics(self):
            raise NotImplementedError

    assert set(read_metrics(Gone()).values()) == {UNAVAILABLE}


def test_ten_rows_of_which_three_name_nobody(define, run_json, tmp_path):
    records = tmp_path / "ten.csv"
    rows = [f"{'' if i % 3 == 1 else f'user-{i}'},apple,0.5" for i in range(10)]
    records.write_text("\n".join(["user_id,key,value", *rows]) + "\n")
    collected = run_json(
        *("collect", "--collection", define(), "--input", records, "--output", tmp_path / "out", "--seed", 1),
        *("--keep-reports", tmp_path / "reports"),
    )
    server = {"reports_read": 7, "reports_malformed": 0, "reports_counted": 7}
    assert collected["metrics"] == {"rows_read": 10, "rows_rejected": 3, "reports_sent": 7} | server
    counted = run_json(
        *("aggregate", "--collection", define(), "--input", tmp_path / "reports", "--output", tmp_path / "again")
    )
    assert counted["metrics"] == server
    perturbed = run_json(
        *("perturb", "--collection", define(), "--input", records, "--output", tmp_path / "sent", "--seed", 1)
    )
    assert perturbed["metrics"] == {"rows_read": 10, "rows_rejected": 3, "reports_sent": 7}
