"""Runs what the pages of docs/ tell people to run, and writes what it prints into them.

Blocks of a page run in order, in one empty folder:

    ```bash, ```python               run; must succeed
    ```toml title="c.toml"           becomes that file, likewise any block with a title
    ```text                          right after a block that ran: what it printed
    <!-- not run: reason -->         before a block: it does not run, for this reason

`python tests/docs/run_pages.py docs/index.md …` writes the printed output into the ```text blocks.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
DOCS = ROOT / "docs"
_FENCE = re.compile(r"^(?P<mark>`{3,})(?P<language>\w*) *(?P<rest>[^\n]*)\n(?P<body>.*?)^(?P=mark)[ ]*$", re.M | re.S)
_TITLE = re.compile(r'title="([^"]+)"')
_NOT_RUN = re.compile(r"<!-- not run: (?P<reason>[^\n]+?) -->\s*\Z")
#: Lines that differ from run to run.
_VARYING = re.compile(r"^(\d[\d,]* rows in .*|.*WARNING:.*)$")
RUNNABLE = {"bash": ["bash", "-euo", "pipefail", "-c"], "python": ["python", "-c"]}


@dataclass(frozen=True)
class Block:
    """A fenced block of a page: its language, title, text, where the text stands, and why it is not run."""

    language: str
    title: str | None
    body: str
    start: int
    end: int
    line: int
    not_run: str | None

    @property
    def runs(self) -> bool:
        return self.language in RUNNABLE and self.not_run is None and self.title is None


def blocks(page: str) -> list[Block]:
    found = []
    for match in _FENCE.finditer(page):
        title = _TITLE.search(match["rest"])
        reason = _NOT_RUN.search(page, 0, match.start())
        found.append(
            Block(
                match["language"],
                title[1] if title else None,
                match["body"],
                match.start("body"),
                match.end("body"),
                page.count("\n", 0, match.start()) + 1,
                reason["reason"] if reason else None,
            )
        )
    return found


@dataclass(frozen=True)
class Ran:
    """A block that ran, what it printed, and the block that shows what it prints, if any."""

    block: Block
    printed: str
    code: int
    shown: Block | None


def run_page(path: Path, folder: Path, environment: dict[str, str] | None = None) -> list[Ran]:
    """Run the blocks of a page in a folder, up to the first that fails.

    Args:
        path: the page.
        folder: where its blocks run.
        environment: what they find; None for this process's, with its interpreter's folder first on the path.
    """
    environment = environment or {
        **os.environ,
        "PATH": f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}",
    }
    page = path.read_text(encoding="utf-8")
    all_blocks, ran = blocks(page), []
    for place, block in enumerate(all_blocks):
        if block.title is not None:
            (folder / block.title).write_text(block.body, encoding="utf-8")
        if not block.runs:
            continue
        after = all_blocks[place + 1] if place + 1 < len(all_blocks) else None
        near = after is not None and not page[block.end : after.start].replace("`", "").replace("text", "").strip()
        shown = after if near and after is not None and after.language == "text" and after.title is None else None
        printed, code = _run(block, folder, environment)
        ran.append(Ran(block, printed, code, shown))
        if code:
            break
    return ran


def _run(block: Block, folder: Path, environment: dict[str, str]) -> tuple[str, int]:
    program, *options = RUNNABLE[block.language]
    done = subprocess.run(
        [shutil.which(program, path=environment["PATH"]) or program, *options, block.body],
        cwd=folder,
        env={**environment, "COLUMNS": "80", "PYTHONWARNINGS": "ignore", "NO_COLOR": "1"},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        stdin=subprocess.DEVNULL,
        text=True,
        timeout=300,
    )
    lines = [line.rstrip() for line in done.stdout.splitlines() if not _VARYING.match(line)]
    return "\n".join(lines).strip("\n") + "\n", done.returncode


def update(path: Path) -> None:
    """Write what the blocks print into the page."""
    with tempfile.TemporaryDirectory() as folder:
        ran = run_page(path, Path(folder))
    page = path.read_text(encoding="utf-8")
    for one in reversed(ran):
        if one.code:
            sys.exit(f"{path}:{one.block.line} failed:\n{one.printed}")
        if one.shown is not None:
            page = page[: one.shown.start] + one.printed + page[one.shown.end :]
    path.write_text(page, encoding="utf-8")


if __name__ == "__main__":
    for name in sys.argv[1:]:
        update(Path(name))
