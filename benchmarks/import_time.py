"""How long a small client waits for `import ldp_beam.mechanisms`, beyond NumPy. `make bench-import_time`."""

from __future__ import annotations

import resource
import statistics
import subprocess
import sys

RUNS = 15
LIMIT = 0.3


def seconds(statement: str) -> float:
    """Return the processor time of a fresh interpreter that runs one statement; other programs do not disturb it."""
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    subprocess.run([sys.executable, "-c", statement], check=True)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime


def main() -> None:
    """Print the medians of alternating runs and their difference."""
    numpy, ours = [], []
    for _ in range(RUNS):
        numpy.append(seconds("import numpy"))
        ours.append(seconds("import ldp_beam.mechanisms"))
    difference = statistics.median(b - a for a, b in zip(numpy, ours, strict=True))
    print(f"import numpy               {statistics.median(numpy):.3f} s")
    print(f"import ldp_beam.mechanisms {statistics.median(ours):.3f} s")
    print(f"difference                 {difference:.3f} s (limit {LIMIT} s, median of {RUNS} pairs)")


if __name__ == "__main__":
    main()
