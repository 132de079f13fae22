"""The report page in a real browser: it draws, stays silent, sorts, searches, and works by keyboard.

Chromium and its driver come from the distribution. Without them the tests are skipped with a reason; under
CI=true that is a failure.
"""

import json
import os
import shutil
import time

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from ldp_beam.pipelines.report import report

KEYS = {
    7: [f"shop {i}" for i in range(7)],
    1206: [f"key-{i}" for i in range(1206)],
    20000: [str(i) for i in range(20000)],
}
LIMIT = 60  # seconds; a page that needs longer is frozen


@pytest.fixture(scope="module")
def browser(tmp_path_factory):
    """A headless Chromium that records its console and what it fetches."""
    chromium, driver = shutil.which("chromium"), shutil.which("chromedriver")
    if not chromium or not driver:
        reason = "Chromium or chromedriver is not installed (Debian: apt-get install chromium chromium-driver)"
        if os.environ.get("CI") == "true":
            pytest.fail(reason)
        pytest.skip(reason)
    webdriver = pytest.importorskip("selenium.webdriver")
    options = webdriver.ChromeOptions()
    options.binary_location = chromium
    for switch in (
        "--headless",
        "--no-sandbox",
        "--disable-gpu",
        "--disable-dev-shm-usage",
        "--disable-background-networking",
        "--disable-component-update",
        "--disable-sync",
        "--no-first-run",
        "--window-size=1280,900",
        f"--user-data-dir={tmp_path_factory.mktemp('profile')}",
    ):
        options.add_argument(switch)
    options.set_capability("goog:loggingPrefs", {"browser": "ALL", "performance": "ALL"})
    made = webdriver.Chrome(options=options, service=webdriver.ChromeService(driver))
    yield made
    made.quit()


@pytest.fixture
def open_page(browser, result, tmp_path):
    """Return a function that opens the page of a result and waits until it is drawn."""

    def show(keys, width=1280, height=900, scheme="light", **more):
        browser.execute_cdp_cmd(
            "Emulation.setDeviceMetricsOverride",
            {"width": width, "height": height, "deviceScaleFactor": 1, "mobile": width < 600},
        )
        browser.execute_cdp_cmd(
            "Emulation.setEmulatedMedia", {"features": [{"name": "prefers-color-scheme", "value": scheme}]}
        )
        browser.get_log("performance")
        path = report(result(keys, **more), tmp_path / "page.html")
        browser.get(path.as_uri())
        wait(lambda: browser.execute_script("return document.documentElement.dataset.ready") == "yes")
        return browser

    return show


def wait(condition):
    end = time.monotonic() + LIMIT
    while not condition():
        assert time.monotonic() < end, "the page did not get there in time"
        time.sleep(0.05)


def first_column(browser):
    return browser.execute_script("return [...document.querySelectorAll('#table tbody th')].map(c => c.textContent)")


def press(browser, css, key=None):
    element = browser.find_element("css selector", css)
    if key is None:
        browser.execute_script("arguments[0].click()", element)
    else:
        element.send_keys(key)


def shown(browser, selector):
    return browser.execute_script("return document.querySelectorAll(arguments[0]).length", selector)


@pytest.mark.parametrize("count", sorted(KEYS))
def test_it_draws_without_a_word_on_the_console_and_without_the_network(open_page, count):
    browser = open_page(KEYS[count])
    assert [entry for entry in browser.get_log("browser") if entry["level"] != "INFO"] == []
    events = [json.loads(entry["message"])["message"] for entry in browser.get_log("performance")]
    fetched = [e["params"]["request"]["url"] for e in events if e["method"] == "Network.requestWillBeSent"]
    assert [url for url in fetched if not url.startswith(("file:", "data:", "blob:"))] == []
    wait(lambda: shown(browser, "#bars .bars .point") == min(count, 25))
    wait(lambda: shown(browser, "#scatter .scatterlayer .point") == min(count, 100))
    assert len(first_column(browser)) == min(count, 25)
    assert f"{count:,}" in browser.find_element("id", "status").text


@pytest.mark.parametrize("count", sorted(KEYS))
def test_sorting_and_searching(open_page, count):
    browser = open_page(KEYS[count])
    press(browser, "#table [data-sort=key]")
    assert first_column(browser)[:3] == KEYS[count][:3]
    press(browser, "#table [data-sort=key]")
    assert first_column(browser)[0] == KEYS[count][-1]
    press(browser, "#last")
    assert first_column(browser)[-1] == KEYS[count][0]
    wanted = KEYS[count][count // 2]
    press(browser, "#search", wanted)
    fits = [key for key in KEYS[count] if wanted in key]
    wait(lambda: len(first_column(browser)) == min(len(fits), 25) and wanted in "".join(first_column(browser)))
    assert set(first_column(browser)) <= set(fits)
    press(browser, "#search", "no such key")
    wait(lambda: first_column(browser) == [])
    assert "No key" in browser.find_element("id", "status").text


@pytest.fixture
def open_percentiles(browser, run_json, tmp_path):
    """Open the page of percentiles of three keys, of which people hold two coordinates each."""
    (tmp_path / "c.toml").write_text(
        'name = "trips"\nmechanism = "percentiles"\nepsilon = 8\nbins = 8\npadding = 1\npercentiles = [25, 50, 75]\n'
        '[keys]\nlist = ["bus", "train", "bike"]\n[values]\nrange = [0, 80]\ncoordinates = ["minutes", "euros"]\n'
    )
    vectors = {"bus": [30.0, 3.0], "train": [60.0, 20.0], "bike": [15.0, 0.5]}
    rows = [(f"{key}{i}", key, vectors[key]) for place, key in enumerate(vectors) for i in range(900 - 200 * place)]
    users, keys, values = zip(*rows, strict=True)
    pq.write_table(pa.table({"user_id": users, "key": keys, "value": values}), tmp_path / "r.parquet")
    run_json(
        *("collect", "--collection", tmp_path / "c.toml", "--input", tmp_path / "r.parquet"),
        *("--output", tmp_path / "result", "--seed", "1"),
    )
    browser.get(report(tmp_path / "result", tmp_path / "page.html").as_uri())
    wait(lambda: browser.execute_script("return document.documentElement.dataset.ready") == "yes")
    return browser


def test_percentiles_are_drawn_and_what_a_key_belongs_to_is_a_column(open_percentiles):
    browser = open_percentiles
    assert [entry for entry in browser.get_log("browser") if entry["level"] != "INFO"] == []
    wait(lambda: shown(browser, "#spread .scatterlayer .point") == 12)  # six keys, extremes and percentiles
    titles = browser.execute_script(
        "return [...document.querySelectorAll('#table thead button')].map(b => b.firstChild.data)"
    )
    assert titles == [
        *("Key", "Coordinate", "Frequency", "± SE", "Mean", "± SE"),
        *("Minimum", "25th percentile", "Median", "75th percentile", "Maximum", "Flags"),
    ]
    assert "median" in browser.find_element("id", "spread-words").text
    press(browser, "#table [data-sort=p50]")
    assert first_column(browser)[0] == "train/minutes"
    press(browser, "#table [data-sort=coordinate]")
    assert [key.split("/")[1] for key in first_column(browser)] == ["euros"] * 3 + ["minutes"] * 3


def test_other_pages_have_no_chart_of_percentiles(open_page):
    assert not open_page(KEYS[7]).find_element("id", "spread-panel").is_displayed()


def test_sorting_by_figures_and_by_keyboard(open_page):
    browser = open_page(KEYS[1206], n=500_000)
    state = "return document.querySelector('#table [data-sort=%s]').closest('th').getAttribute('aria-sort')"
    assert browser.execute_script(state % "frequency") == "descending"
    assert first_column(browser)[:3] == ["key-0", "key-1", "key-2"]
    press(browser, "#table [data-sort=frequency]", "\ue007")  # Enter
    assert browser.execute_script(state % "frequency") == "ascending"
    focused = browser.execute_script("return document.activeElement.dataset.sort")
    assert focused == "frequency"
    press(browser, "#table [data-sort=mean]", " ")
    assert browser.execute_script(state % "mean") == "descending"
    assert browser.execute_script(state % "frequency") == "none"
    means = browser.execute_script(
        "return [...document.querySelectorAll('#table tbody tr')]"
        ".map(r => parseFloat(r.cells[3].firstChild.textContent.replace('−', '-')))"
    )
    assert means == sorted(means, reverse=True)


def test_everything_that_can_be_used_has_a_name(open_page):
    browser = open_page(KEYS[7])
    unnamed = browser.execute_script(
        """return [...document.querySelectorAll('button, select, input, table, nav, [role=img], [role=region]')]
        .filter(e => e.offsetParent && !(e.textContent.trim() && e.tagName === 'BUTTON') && !(e.labels || []).length
          && !e.getAttribute('aria-label') && !e.getAttribute('aria-labelledby') && !e.caption)
        .map(e => e.outerHTML.slice(0, 90))"""
    )
    assert unnamed == []
    assert shown(browser, "#table tbody th[scope=row]") == 7
    assert shown(browser, "#table thead th[scope=col]") == 6
    assert shown(browser, "h1") == 1


CONTRAST = """
const rgb = (t) => t.match(/[\\d.]+/g).map(Number);
const linear = (v) => (v / 255 <= .03928 ? v / 255 / 12.92 : ((v / 255 + .055) / 1.055) ** 2.4);
const lum = ([r, g, b]) => [r, g, b].map(linear)
  .reduce((s, v, i) => s + v * [.2126, .7152, .0722][i], 0);
const ground = (e) => { for (; e; e = e.parentElement) { const c = rgb(getComputedStyle(e).backgroundColor);
  if (c.length < 4 || c[3] > 0) return c; } return [255, 255, 255]; };
return [...document.querySelectorAll('body *')].filter(e => e.offsetParent && !e.closest('svg') && !e.disabled
    && [...e.childNodes].some(n => n.nodeType === 3 && n.textContent.trim()))
  .map(e => { const a = lum(rgb(getComputedStyle(e).color)), b = lum(ground(e));
    return [(Math.max(a, b) + .05) / (Math.min(a, b) + .05), e.outerHTML.slice(0, 80)]; })
  .filter(([ratio]) => ratio < 4.5);
"""


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_text_stands_out_in_both_schemes(open_page, scheme):
    browser = open_page(KEYS[1206], scheme=scheme, private=False, n=3_000)
    assert browser.execute_script("return document.documentElement.dataset.theme") == scheme
    assert browser.execute_script(CONTRAST) == []


def test_the_colours_can_be_chosen(open_page):
    browser = open_page(KEYS[7])
    seen = set()
    for _ in range(3):
        press(browser, "#theme")
        seen.add(browser.execute_script("return document.documentElement.dataset.theme"))
    assert seen == {"light", "dark"}


def test_a_phone_need_not_scroll_sideways(open_page):
    long = ["an exceptionally long key text that goes on and on " * 2, "https://example.org/" + "x" * 120, *KEYS[7]]
    browser = open_page(long, width=390, height=844)
    wait(lambda: browser.execute_script("return document.documentElement.scrollWidth") <= 390)
    assert len(first_column(browser)) == 9


def test_texts_of_keys_are_shown_as_they_are(open_page):
    evil = ["<b>bold</b>", "<img src=x onerror=window.hit=1>", "&amp;", "</script><script>window.hit=1</script>"]
    browser = open_page(evil)
    assert set(first_column(browser)) == set(evil)
    assert browser.execute_script("return window.hit") is None
    ticks = browser.execute_script("return [...document.querySelectorAll('#bars .ytick')].map(t => t.textContent)")
    assert "<b>bold</b>" in ticks


def test_windows_can_be_chosen_and_are_drawn_over_time(open_page):
    from datetime import UTC, datetime

    windows = [datetime(2026, 11, day, tzinfo=UTC) for day in (1, 2, 3)]
    browser = open_page(KEYS[7], windows=windows)
    assert shown(browser, "#window option") == 3
    wait(lambda: shown(browser, "#time .scatterlayer .trace") == 6)
    before = browser.find_element("css selector", "#table tbody td").text
    browser.execute_script(
        "const w = document.getElementById('window'); w.value = '0'; w.dispatchEvent(new Event('change'))"
    )
    assert browser.find_element("css selector", "#table tbody td").text != before


def test_a_mechanism_that_tells_means_alone(open_page, monkeypatch):
    from ldp_beam.pipelines import report_data

    read = report_data.read_estimates

    def without_frequencies(folder):
        table = read(folder)
        return table.select([name for name in table.column_names if not name.startswith("frequency")])

    monkeypatch.setattr(report_data, "read_estimates", without_frequencies)
    browser = open_page(KEYS[7])
    assert [entry for entry in browser.get_log("browser") if entry["level"] != "INFO"] == []
    assert browser.find_element("id", "bars-title").text == "Keys by their mean"
    assert shown(browser, "#bars .bars .point") == 7
    assert shown(browser, "#table thead th") == 4
