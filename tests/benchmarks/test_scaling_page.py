"""The tables of docs/scaling.md are those of the stored results."""

import json

from benchmarks import scaling_page
from benchmarks.scaling_page import PAGE, RESULTS, TABLES, main, updated


def test_the_page_agrees_with_the_stored_results():
    assert main(["--check"]) == 0


def test_every_mark_stands_on_the_page_with_the_results_that_there_are():
    page = PAGE.read_text(encoding="utf-8")
    for mark, (names, make) in TABLES.items():
        assert f"<!-- {mark} -->\n" in page
        assert f"<!-- /{mark} -->" in page
        paths = [RESULTS / f"{name}.json" for name in names]
        if all(path.exists() for path in paths):
            assert make(*(json.loads(path.read_text(encoding="utf-8")) for path in paths)) in page


def test_a_stale_table_is_found_and_written_anew(tmp_path, monkeypatch):
    page = tmp_path / "scaling.md"
    page.write_text("before\n<!-- share -->\nold\n<!-- /share -->\nafter\n", encoding="utf-8")
    monkeypatch.setattr(scaling_page, "PAGE", page)
    assert main(["--check"]) == 1
    assert main([]) == 0
    assert main(["--check"]) == 0
    text = page.read_text(encoding="utf-8")
    assert "old" not in text
    assert text.startswith("before\n<!-- share -->\n")
    assert updated("no marks at all") == "no marks at all"
