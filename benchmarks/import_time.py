"""How long a small client waits for `import ldp_beam.mechanisms`, beyond NumPy. `make bench-import_time`."""

from __future__ import annotations

import resource
import statistics
import subprocess
import sys
from collections.abc import Sequence

from benchmarks import harness

RUNS = 15
LIMIT = 0.3


def seconds(statement: str) -> float:
    """Return the processor time of a fresh interpreter that runs one statement; other programs do not disturb it."""
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    subprocess.run([sys.executable, "-c", statement], check=True)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime


def main(argv: Sequence[str] | None = None) -> int:
    """Print the medians of alternating runs and their difference."""
    options = harness.options(__doc__).parse_args(argv)
    runs = 1 if options.smoke else RUNS
    numpy, ours = [], []
    for _ in range(runs):
        numpy.append(seconds("import numpy"))
        ours.append(seconds("import ldp_beam.mechanisms"))
    difference = statistics.median(b - a for a, b in zip(numpy, ours, strict=True))
    print(f"import numpy               {statistics.median(numpy):.3f} s")
    print(f"import ldp_beam.mechanisms {statistics.median(ours):.3f} s")
    print(f"difference                 {difference:.3f} s (limit {LIMIT} s, median of {runs} pairs)")
    harness.write(options.json, {"limit": LIMIT, "difference": difference, "numpy": numpy, "ldp_beam": ours})
    return 0


if __name__ == "__main__":
    sys.exit(main())
