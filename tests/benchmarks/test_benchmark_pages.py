"""The tables of the documentation say what the stored results say."""

import json
import sys
from pathlib import Path

import pytest

from benchmarks import accuracy_tables, pages
from benchmarks.peers import beam_job, compare
from benchmarks.peers.environments import PEERS, Environment, Missing, Peer, environment
from benchmarks.stored_tables import DOCS, RESULTS, filled


@pytest.mark.parametrize(("name", "mark"), [(name, mark) for name, tables in pages.PAGES.items() for mark in tables])
def test_a_table_is_in_step_with_its_results(name, mark):
    names, make = pages.PAGES[name][mark]
    stored = [json.loads((RESULTS / f"{one}.json").read_text(encoding="utf-8")) for one in names]
    page = (DOCS / name).read_text(encoding="utf-8")
    assert f"<!-- {mark} -->\n{make(*stored)}\n<!-- /{mark} -->" in page, "run python -m benchmarks.pages"


def test_the_page_lists_benchmarks_and_no_others():
    assert pages.benchmarks_table().count("\n") == len(pages.BENCHMARKS) + 1
    assert filled("<!-- list -->\n<!-- /list -->", pages.TABLES).count("| `") == len(pages.BENCHMARKS)


def test_a_stale_table_is_found_and_written_anew(tmp_path, monkeypatch):
    page = tmp_path / "scaling.md"
    page.write_text("before\n<!-- share -->\nold\n<!-- /share -->\nafter\n", encoding="utf-8")
    monkeypatch.setattr(pages, "DOCS", tmp_path)
    monkeypatch.setattr(pages, "PAGES", {"scaling.md": pages.PAGES["scaling.md"]})
    assert pages.main(["--check"]) == 1
    assert pages.main([]) == 0
    assert pages.main(["--check"]) == 0
    text = page.read_text(encoding="utf-8")
    assert "old" not in text
    assert text.startswith("before\n<!-- share -->\n")
    assert filled("no marks at all", pages.PAGES["scaling.md"]) == "no marks at all"


def test_all_pages_agree_with_the_stored_results():
    assert pages.main(["--check"]) == 0


@pytest.mark.parametrize(("largest", "verdict"), [(1.019, "most, is reached"), (1.03, "most, is **not** reached")])
def test_the_page_says_whether_an_aim_is_reached(largest, verdict):
    rows = [
        {"population": "gg", "users": 1_000_000, "mechanism": name, "epsilon": epsilon, "mean_ratio": 0.5}
        | {"frequency_ratio": largest if (name, epsilon) == ("pckv-grr", 4) else 0.9}
        for name in ("pckv-ue", "pckv-grr")
        for epsilon in (1, 4)
    ]
    text = accuracy_tables.empirical_bayes_table({"empirical_bayes": rows})
    assert f"of frequencies {largest:.3f} (GG, GRR, epsilon 4)" in text
    assert verdict in text
    assert f"| GG | 0.900 / 0.500 | {largest:.3f} / 0.500 |" in text


def test_ratios_to_peers_are_those_to_the_quickest():
    rows = [
        {"package": "slow", "case": "oue", "task": "oue", "keys": 100, "rates": [1.0, 2.0, 1.0]},
        {"package": "quick", "case": "oue", "task": "oue", "keys": 100, "rates": [2.0, 4.0, 2.0]},
        {"package": compare.REFERENCE, "case": "oue", "task": "oue", "keys": 100, "rates": [50.0, 50.0, 50.0]},
        {"package": compare.OWN, "case": "oue", "task": "oue", "keys": 100, "rates": [20.0, 80.0, 20.0]},
    ]
    compare._compare(rows)
    assert [row["times_best_peer"] for row in rows] == [0.5, 1.0, 25.0, 10.0]
    assert (rows[3]["best_peer"], rows[3]["target"]) == ("quick", 15.0)


def test_a_rate_beyond_start_up_is_a_slope():
    found = {
        "pipeline-dp": {100: [(11.0, 1.0)], 200: [(21.0, 2.0)]},
        "ldp-beam collect": {200: [(3.0, 1.0)], 1_200: [(4.0, 2.0)]},
    }
    figures = beam_job._figures(found)
    assert figures["times"] == pytest.approx(1_000 / 10)
    assert figures["times_whole_job"] == {"rows": 200, "times": 7.0}


def test_a_peer_that_cannot_be_installed_is_named_with_the_reason(tmp_path):
    found = environment(Peer("ldp-beam-there-is-no-such-package", (), ""), tmp_path)
    assert isinstance(found, Missing)
    assert len(found.reason) > 10
    assert "/" not in found.reason
    assert not (tmp_path / "ldp-beam-there-is-no-such-package").exists()


def test_a_peer_that_fails_joins_those_that_are_missing(monkeypatch):
    def fail(python, package, *rest):
        if package == "pure-ldp":
            raise compare.PeerFailedError("it broke")
        return 10.0

    monkeypatch.setattr(compare, "rate", fail)
    missing = {}
    there = {peer.package: Environment(Path(sys.executable), {}) for peer in PEERS}
    rows = compare.frequencies(there, 2, False, missing)
    assert missing == {"pure-ldp": "it broke"}
    assert {row["package"] for row in rows} == set(compare.USERS) - {"pure-ldp"} | {compare.OWN, compare.OWN_PLAIN}
    assert {row["times_best_peer"] for row in rows} == {1.0}


def test_every_peer_has_a_size_for_each_of_its_cases():
    assert all(case in compare.USERS[peer.package] for peer in PEERS for case in peer.cases)
