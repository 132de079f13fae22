"""What the report page says and holds, read as text; how it behaves in a browser is tested beside."""

import json
import re
from datetime import UTC, datetime

import numpy as np
import pyarrow.parquet as pq
import pytest
from ldp_beam.errors import InputError
from ldp_beam.mechanisms import MECHANISMS, make_mechanism
from ldp_beam.pipelines import report as report_module
from ldp_beam.pipelines.report import report
from ldp_beam.pipelines.report_text import FLAGS, REASONS
from ldp_beam.schemas import tally

RECORDS = {
    "rows_read": 50_010,
    "users": 50_000,
    "outside_the_domain": 12,
    "rejected": {"rows_without_user": 10, "not_a_number": 4},
}


def page_of(folder, **more):
    path = report(folder, folder.parent / f"{folder.name}.html", **more)
    return path.read_text(encoding="utf-8")


def data_of(page):
    """The figures that a page holds for its script."""
    return json.loads(page.split('<script type="application/json" id="data">')[1].split("</script>")[0])


def words_of(page):
    """The page as a person reads it, without scripts, styles and tags."""
    body = re.sub(r"<(script|style)\b.*?</\1>", " ", page, flags=re.DOTALL)
    return " ".join(re.sub(r"<[^>]+>", " ", body).split())


# -- figures ------------------------------------------------------------------------------------------------


def test_every_figure_of_the_files_is_on_the_page(result):
    folder = result(["bread", "milk", "salt"])
    data = data_of(page_of(folder))
    table = pq.read_table(folder / "estimates.parquet")
    assert data["keys"] == table["key"].to_pylist()
    (frame,) = data["frames"]
    for name in ("frequency", "frequency_se", "frequency_low", "mean", "mean_high", "n1", "n2"):
        expected = [float("nan") if x is None else x for x in table[name].to_pylist()]
        given = [float("nan") if x is None else x for x in frame[name]]
        np.testing.assert_allclose(given, expected, rtol=1e-6)
    for mask, flags in zip(frame["flags"], table["flags"].to_pylist(), strict=True):
        assert [f for bit, f in enumerate(data["flagNames"]) if mask >> bit & 1] == sorted(flags)


@pytest.mark.parametrize("private", [True, False])
def test_it_says_what_is_promised_and_what_is_not(result, private):
    words = words_of(page_of(result(["bread", "milk"], private=private)))
    assert "50,000 reports" in words
    assert "7.39 times (e 2 ) likelier" in words
    assert "the exact loss is" in words
    assert ("None of this holds here" in words) == (not private)
    assert ("not private" in words) == (not private)


def test_rejects_are_told_by_reason_and_left_out_for_the_public(result):
    folder = result(["bread", "milk"], records=RECORDS)
    words = words_of(page_of(folder))
    for part in ("rows that name no user (set aside) 10", "value is not a number (dropped) 4", "50,010 rows were read"):
        assert part in words
    assert "reports that no client of this collection can have made (not counted) 3" in words
    public = page_of(folder, public=True, overwrite=True)
    for exact in ("50,010", "50010", "rows_read", "rows that name no user"):
        assert exact not in words_of(public)
    assert "(not counted) 3" in words_of(public)


def test_windows_follow_each_other(result):
    windows = [datetime(2026, 11, day, tzinfo=UTC) for day in (3, 1, 2)]
    data = data_of(page_of(result(["bread", "milk"], windows=windows)))
    assert [window["label"] for window in data["windows"]] == ["2026-11-01", "2026-11-02", "2026-11-03"]
    assert len(data["frames"]) == 3


def test_flags_are_explained(result):
    words = words_of(page_of(result([f"key-{i}" for i in range(400)], n=2_000)))
    assert "few-holders" in words
    assert "The key is rare" in words


@pytest.mark.parametrize("name", sorted(MECHANISMS))
def test_every_flag_of_every_mechanism_has_an_explanation(name):
    wanted = {"epsilon": "1", "keys": 4, "padding": 2}
    taken = {k: v for k, v in wanted.items() if k in MECHANISMS[name].parameters}
    try:
        mechanism = make_mechanism(name, **taken)
    except InputError as error:
        pytest.skip(f"{name} needs parameters of its own: {error}")
    try:
        flags = mechanism.estimate(mechanism.zero()).flags
    except (InputError, NotImplementedError) as error:
        pytest.skip(f"{name} estimates from rounds: {error}")
    assert set(flags) <= set(FLAGS)


def test_every_reason_of_a_reject_has_an_explanation():
    assert {*tally.INVALID_REASONS, *tally.SET_ASIDE_REASONS, tally.OUTSIDE_DOMAIN} <= set(REASONS)


# -- safety -------------------------------------------------------------------------------------------------


def test_texts_of_keys_cannot_become_markup(result):
    evil = ["</script><script>alert(1)</script>", "<img src=x onerror=alert(1)>", "a\u2028b", "&lt;b&gt;"]
    page = page_of(result(evil))
    assert data_of(page)["keys"] == evil
    assert "<script>alert" not in page
    assert "<img src=x" not in page


def test_the_page_names_no_address_that_a_browser_would_fetch(result):
    page = page_of(result(["bread"]))
    head = page.split("<script")[0]
    assert "default-src 'none'" in head
    assert not re.search(
        r'<(?:link|script|img|iframe)[^>]+(?:src|href)="(?!data:)', page.replace(report_module._plotly(), "")
    )


# -- usage --------------------------------------------------------------------------------------------------


def test_the_command_writes_the_page_and_refuses_to_replace_it(result, run, run_json, tmp_path):
    folder, page = result(["bread", "milk"]), tmp_path / "page.html"
    answer = run_json("report", "--input", folder, "--output", page)
    assert answer == {"file": str(page), "bytes": page.stat().st_size}
    code, _, err = run("report", "--input", folder, "--output", page)
    assert code == 2
    assert "--overwrite" in err
    assert run("report", "--input", folder, "--output", page, "--overwrite")[0] == 0
    assert not list(tmp_path.glob(".*partial"))


@pytest.mark.parametrize(
    ("output", "part"), [("page.txt", "ends in .html"), ("nowhere/page.html", "cannot be written")]
)
def test_a_bad_output_is_refused(result, run, tmp_path, output, part):
    code, _, err = run("report", "--input", result(["bread"]), "--output", tmp_path / output)
    assert code in (1, 2)
    assert part in err


def test_a_folder_without_result_is_refused(run, tmp_path):
    code, _, err = run("report", "--input", tmp_path, "--output", tmp_path / "x.html")
    assert code == 2
    assert "no manifest.json" in err


def test_without_the_charting_library_it_says_what_to_install(result, monkeypatch, tmp_path):
    monkeypatch.setattr(report_module.importlib.util, "find_spec", lambda name: None)
    with pytest.raises(InputError, match=r"ldp-beam\[report\]"):
        report(result(["bread"]), tmp_path / "page.html")
    assert not (tmp_path / "page.html").exists()
