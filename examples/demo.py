"""The product's main job on real answers: what the server learns, beside what is true.

Run it with `make demo`, or with `python -m examples.demo [FOLDER]` from the top of the repository.
"""

from __future__ import annotations

import argparse
import csv
import json
import math
import shlex
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow.compute as pc
import pyarrow.parquet as pq
from ldp_beam.errors import LdpBeamError, RunError
from rich.console import Console
from rich.table import Table

from examples import public_data
from examples.gss.prepare import QUESTIONS, prepare

HERE = Path(__file__).parent
#: Title, collection definition and folder of the result, for each mechanism shown.
RUNS = (
    ("PCKV-GRR: each report names one question and one answer", HERE / "gss" / "collection.toml", "pckv-grr"),
    (
        "PCKV-UE: each report holds a noisy cell for every question",
        HERE / "gss" / "collection-ue.toml",
        "pckv-ue",
    ),
)
EPSILON = 2

INTRODUCTION = """
Between 1972 and 2018 the General Social Survey put seven yes-or-no questions on abortion to \
[b]{people:,} people[/b]. {silent:.0%} of them answered none; they take part all the same, so that \
nobody can tell from a report whether its sender answered at all.

Each person's own side changes her answers at random and sends one small report. The server sees the \
reports and nothing else: [b]no true answer ever reaches it[/b]. The privacy budget is epsilon = {epsilon}: \
no report is more than e^{epsilon} = {ratio:.1f} times likelier from one set of answers than from any other. \
From all reports together the server estimates, for each question, how many people answered it, and how \
they answered on average.

(In this demo one program plays both sides. The random numbers come fresh from the operating system, so \
the figures differ a little from run to run. It collects twice, to compare two mechanisms; a person who \
really sent both reports would spend epsilon twice.)
"""


@dataclass(frozen=True)
class Estimated:
    """One estimated figure, its 95 % interval and the truth."""

    estimate: float | None
    low: float
    high: float
    truth: float

    @property
    def covers(self) -> bool:
        """Whether the interval holds the true figure."""
        return self.low <= self.truth <= self.high

    def text(self, form: str) -> str:
        """The estimate and its interval for people, numbers in the given format."""
        if self.estimate is None:
            return "too noisy to tell"
        return f"{self.estimate:{form}}  ({self.low:{form}} to {self.high:{form}})"


def main() -> None:
    """Prepare the answers, collect them under both mechanisms, and print what came out."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("folder", type=Path, nargs="?", default=Path("demo-output"), help="where all files go")
    folder = parser.parse_args().folder
    # A log has no width of its own; the tables need this much.
    console = Console(width=None if sys.stdout.isatty() else 132, highlight=False)
    try:
        _demo(folder, console)
    except LdpBeamError as error:
        parser.exit(error.exit_code, f"{error}\n")


def _demo(folder: Path, console: Console) -> None:
    truth = prepare(folder)
    _introduce(console, truth, folder)
    for title, collection, name in RUNS:
        result = folder / name
        records = folder / public_data.RECORDS
        _ldp_beam(
            console,
            *("collect", "--collection", _near(collection), "--input", records, "--output", result),
            *("--format", "csv", "--overwrite"),
        )
        judged = _ldp_beam(console, "evaluate", "--estimates", result, "--truth", folder / public_data.TRUTH)
        (folder / f"{name}-evaluation.json").write_text(json.dumps(judged, indent=2) + "\n", encoding="utf-8")
        _show(console, title, _read(result, truth))
    _close(console, folder)


def _introduce(console: Console, truth: list[public_data.Figure], folder: Path) -> None:
    lengths = pc.list_value_length(pq.read_table(folder / public_data.RECORDS)["items"])
    console.print()
    console.rule("Asking without being told")
    console.print(
        INTRODUCTION.format(
            people=truth[0].people,
            silent=pc.mean(pc.equal(lengths, 0)).as_py(),
            epsilon=EPSILON,
            ratio=math.exp(EPSILON),
        )
    )


def _ldp_beam(console: Console, *arguments: str | Path) -> dict[str, Any]:
    """Run the command line as a person would, and return the object that it prints under --json."""
    words = [str(argument) for argument in arguments]
    console.print(f"[dim]$ ldp-beam {shlex.join(words)}[/dim]", soft_wrap=True)
    done = subprocess.run(
        [sys.executable, "-m", "ldp_beam.pipelines", *words, "--json"], stdout=subprocess.PIPE, text=True
    )
    if done.returncode:
        raise RunError(f"ldp-beam {words[0]} ended with exit code {done.returncode}; its message stands above.")
    answer: dict[str, Any] = json.loads(done.stdout)
    return answer


def _near(path: Path) -> Path:
    """The path as one would type it from here, where that is shorter."""
    return path.relative_to(Path.cwd()) if path.is_relative_to(Path.cwd()) else path


def _read(result: Path, truth: list[public_data.Figure]) -> dict[str, tuple[Estimated, Estimated]]:
    """Read the estimated share and mean of every question."""
    with next(iter(sorted(result.glob("estimates*.csv")))).open(newline="", encoding="utf-8") as stream:
        rows = {row["key"]: row for row in csv.DictReader(stream)}
    return {
        figure.key: (
            _figure(rows[figure.key], "frequency", figure.share),
            _figure(rows[figure.key], "mean", figure.mean),
        )
        for figure in truth
    }


def _figure(row: dict[str, str], name: str, truth: float) -> Estimated:
    """One figure of a row; an empty field is a figure that the reports do not give."""
    if not row[name]:
        return Estimated(None, -math.inf, math.inf, truth)
    return Estimated(float(row[name]), float(row[f"{name}_low"]), float(row[f"{name}_high"]), truth)


def _show(console: Console, title: str, figures: dict[str, tuple[Estimated, Estimated]]) -> None:
    table = Table(title=title, title_justify="left", caption_justify="left")
    table.add_column("May a woman have a legal abortion ...", max_width=56)
    table.add_column("Answered it\nestimate (95 % interval)", justify="right")
    table.add_column("true", justify="right", style="green")
    table.add_column("Mean answer\nestimate (95 % interval)", justify="right")
    table.add_column("true", justify="right", style="green")
    for key, (share, mean) in figures.items():
        table.add_row(QUESTIONS[key], share.text(".1%"), f"{share.truth:.1%}", mean.text("+.2f"), f"{mean.truth:+.2f}")
    shown = [figure for pair in figures.values() for figure in pair]
    covered = sum(figure.covers for figure in shown)
    table.caption = (
        "Mean answer: +1 if everybody who answered said yes, -1 if everybody said no.\n"
        f"{covered} of the {len(shown)} intervals hold the true figure; about 95 in 100 do in the long run."
    )
    console.print()
    console.print(table)
    console.print()


def _close(console: Console, folder: Path) -> None:
    console.print("What lies where:")
    for path, what in (
        (
            folder / public_data.RECORDS,
            "the true answers, one row a person; only the people's side reads them",
        ),
        (folder / public_data.TRUTH, "the true figures, which a real server never has"),
        *((folder / name, "estimates, counts and manifest of this mechanism") for _, _, name in RUNS),
        *((folder / f"{name}-evaluation.json", "how far the estimates are from the truth") for _, _, name in RUNS),
    ):
        console.print(f"  [b]{path}[/b]  {what}", soft_wrap=True)


if __name__ == "__main__":
    main()
