"""All benchmarks, in one list: `python -m benchmarks` runs them, a test runs the smoke form of each."""

from __future__ import annotations

import importlib
from dataclasses import dataclass
from types import ModuleType

__all__ = ["BENCHMARKS", "Benchmark", "find"]


@dataclass(frozen=True)
class Benchmark:
    """One benchmark: module `benchmarks.<name>`.

    Attributes:
        name: name of the module, and of its results in results/ and its plot.
        what: what it measures, in one line.
        minutes: about how long it takes on two cores.
        needs: what it needs that is not in the repository; such a one runs by name only.
        arguments: what is given to it besides `--json`, in the run of all.
    """

    name: str
    what: str
    minutes: float
    needs: str = ""
    arguments: tuple[str, ...] = ()

    @property
    def module(self) -> str:
        """Full name of the module."""
        return f"benchmarks.{self.name}"

    def load(self) -> ModuleType:
        """Import the module."""
        return importlib.import_module(self.module)


BENCHMARKS: tuple[Benchmark, ...] = (
    Benchmark("kernel", "client and server code on arrays, as multiples of AES-CTR and of a memory copy", 18),
    Benchmark("peers", "GRR and OUE beside five other packages, `collect` beside PipelineDP", 12),
    Benchmark("import_time", "how long a small client waits for the mechanisms to be imported", 1),
    Benchmark("collect", "the whole job `collect` beside the same loop without Beam: rates, slopes, memory", 6),
    Benchmark("share", "where the time of `collect` goes, step by step, and what of it is Beam's own", 1),
    Benchmark("scale", "time and memory as users and keys grow, to a hundred million people", 5),
    Benchmark("shuffle", "bytes that cross a shuffle, from the engine's own metrics", 1),
    Benchmark("engines", "the same job on the local runner, Prism, Flink and Spark", 10, needs="Java, Maven and Go"),
    Benchmark("counts_store", "a year of days with 100,000 keys, estimated anew from a counts store", 3),
    Benchmark("coverage", "how often 95 % intervals hold the truth", 3),
    Benchmark("poisoning", "what fake users gain, mechanism by mechanism, and whether it is noticed", 3),
    Benchmark("accuracy_uu", "errors of PCKV at a synthetic setting, beside a reference", 30),
    Benchmark("accuracy_beyond", "numerical allocation and empirical Bayes, as ratios of errors", 36),
    Benchmark("streaming", "rate and delay of streams on Prism and Flink", 20, needs="Java, Maven, Go"),
    Benchmark("uldp_published", "uRR and uRAP beside published errors on census data", 20, needs="the published files"),
)


def find(name: str) -> Benchmark:
    """Return the benchmark of that name.

    Raises:
        SystemExit: where there is none.
    """
    for one in BENCHMARKS:
        if one.name == name:
            return one
    raise SystemExit(f"There is no benchmark {name!r}; there are: {', '.join(one.name for one in BENCHMARKS)}.")
