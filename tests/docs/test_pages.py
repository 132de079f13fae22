"""Every command on every page of docs/ runs and prints what the page shows; the site builds without a warning."""

import importlib.util
import os
import re
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
DOCS = ROOT / "docs"
spec = importlib.util.spec_from_file_location("run_pages", Path(__file__).with_name("run_pages.py"))
run_pages = importlib.util.module_from_spec(spec)
sys.modules["run_pages"] = run_pages
spec.loader.exec_module(run_pages)

PAGES = sorted(DOCS.glob("*.md"))


def with_blocks():
    return [page for page in PAGES if any(b.runs for b in run_pages.blocks(page.read_text(encoding="utf-8")))]


@pytest.fixture(scope="module")
def runs(request, warm_python, tmp_path_factory):
    """The pages that were asked for, each running in a folder of its own, several at a time."""
    asked = [item for item in request.session.items if "runs" in getattr(item, "fixturenames", ())]
    pages = dict.fromkeys(item.callspec.params["page"] for item in asked)
    with ThreadPoolExecutor(max_workers=os.cpu_count()) as pool:
        folders, environment = {page: tmp_path_factory.mktemp(page.stem) for page in pages}, warm_python.environment()
        yield {page: pool.submit(run_pages.run_page, page, folders[page], environment) for page in pages}


@pytest.mark.parametrize("page", with_blocks(), ids=lambda page: page.stem)
def test_what_the_page_says_happens(page, runs):
    ran = runs[page].result()
    assert ran
    for one in ran:
        where = f"{page.name}:{one.block.line}"
        assert one.code == 0, f"{where} failed:\n{one.printed}"
        if one.shown is not None:
            assert one.printed == one.shown.body, f"{where} prints something else than the page shows"


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)
def test_commands_stand_in_blocks_that_run(page):
    """A block of commands in another language would escape the test above."""
    for block in run_pages.blocks(page.read_text(encoding="utf-8")):
        assert block.language not in {"sh", "shell", "console", "zsh", "py", ""}, f"{page.name}:{block.line}"
        if block.language == "text" and block.title is None:
            assert not re.search(r"^\$? ?ldp-beam (collect|perturb|aggregate)", block.body, re.M)


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)
def test_what_does_not_run_says_where_it_is_tested(page):
    text = page.read_text(encoding="utf-8")
    for block in run_pages.blocks(text):
        if block.not_run is not None:
            assert "tests/" in block.not_run, f"{page.name}:{block.line}: {block.not_run}"
        for program in re.findall(r"python ((?:benchmarks|docs)/\S+\.py)", block.body):
            assert (ROOT / program).is_file(), f"{page.name}:{block.line}: {program} does not exist"
        for module in re.findall(r"python -m (benchmarks(?:\.\w+)+)", block.body):
            place = ROOT.joinpath(*module.split("."))
            assert place.with_suffix(".py").is_file() or place.is_dir(), f"{page.name}:{block.line}: no {module}"
    outside = run_pages._FENCE.sub("", text)
    assert not re.search(r"^(    |\t)\$? ?(ldp-beam|python|pip|make) ", outside, re.M), (
        f"{page.name}: an indented command"
    )


def test_a_block_that_fails_or_prints_something_else_is_found(tmp_path):
    page = tmp_path / "page.md"
    page.write_text("```bash\necho one\n```\n```text\ntwo\n```\n\n```bash\nexit 3\n```\n\n```bash\necho never\n```\n")
    ran = run_pages.run_page(page, tmp_path)
    assert [one.code for one in ran] == [0, 3]
    assert ran[0].printed != ran[0].shown.body
    run_first = tmp_path / "other.md"
    run_first.write_text('```toml title="a.toml"\nx = 1\n```\n<!-- not run: why -->\n```bash\nexit 1\n```\n')
    assert run_pages.run_page(run_first, tmp_path) == []
    assert (tmp_path / "a.toml").read_text() == "x = 1\n"


def test_the_site_builds_without_a_warning(tmp_path):
    pytest.importorskip("mkdocs")
    pytest.importorskip("material")
    pytest.importorskip("mkdocstrings")
    done = subprocess.run(
        [sys.executable, "-W", "ignore", "-m", "mkdocs", "build", "--strict", "--quiet", "--site-dir", str(tmp_path)],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=300,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    page = (tmp_path / "reference.html").read_text(encoding="utf-8")
    for name in ("CollectEstimates", "PCKVUE", "EstimateReports", "did_you_mean"):
        assert name in page
