"""The command: runs figures and writes their results.

python -m benchmarks.accuracy                        all figures
python -m benchmarks.accuracy pckv                   those of a family
python -m benchmarks.accuracy pckv-uu                one
python -m benchmarks.accuracy --list                 their names
python -m benchmarks.accuracy --plots                draw again from the results that are there
"""

from __future__ import annotations

import argparse
import sys
import time
from pathlib import Path

from .figures import Figure, MissingData, Scale
from .plots import draw
from .registry import ALL, chosen
from .results import RESULTS, read_rows, write_rows


def run(figure: Figure, scale: Scale, folder: Path) -> None:
    """Run one figure and write its JSON and its plot.

    Raises:
        MissingData: Its data are not there.
    """
    started = time.monotonic()
    rows = list(figure.rows(scale))
    seconds = time.monotonic() - started
    write_rows(figure, rows, seconds, folder)
    draw(figure, read_rows(figure, folder), folder / f"{figure.name}.svg")


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.accuracy", description=__doc__.splitlines()[0])
    parser.add_argument("names", nargs="*", metavar="NAME", help="figures or families; all where none is given")
    parser.add_argument("--list", action="store_true", help="print the names and what they show")
    parser.add_argument("--plots", action="store_true", help="draw the results that are there, without running")
    parser.add_argument("--tiny", action="store_true", help="few users and repeats: shows only that everything runs")
    parser.add_argument("--data", type=Path, help="folder with the data sets that are not distributed")
    parser.add_argument("--output", type=Path, default=RESULTS, help="where the results go")
    options = parser.parse_args()
    try:
        figures = chosen(options.names)
    except KeyError as error:
        parser.error(f"there is no figure or family {error}; --list gives their names")
    if options.list:
        print("\n".join(f"{name:24}{figure.title}" for name, figure in ALL.items()))
        return 0
    options.output.mkdir(parents=True, exist_ok=True)
    for figure in figures:
        started = time.monotonic()
        try:
            if options.plots:
                draw(figure, read_rows(figure, options.output), options.output / f"{figure.name}.svg")
            else:
                run(figure, Scale(data=options.data, tiny=options.tiny), options.output)
        except MissingData as error:
            print(f"{figure.name:24}left out: {error}", flush=True)
            continue
        print(f"{figure.name:24}{time.monotonic() - started:6.1f} s", flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
