"""What the engine tests ran with: one JSON file at the end of a session, from which docs/engines.md has its table."""

import json
import os
import re
import subprocess
from pathlib import Path

from ldp_beam.engines import is_resolved, pinned_versions, resolve, tool_version
from ldp_beam.pipelines.running import versions

RECORD = Path(__file__).parents[2] / "build" / "tested-versions.json"
#: Jars that tell an engine's version where our pom does not name them.
TELLING = {"flink": ["flink-runtime"]}


class Used:
    """Which engine each test used, and how the tests ended."""

    def __init__(self):
        self.by_test, self.passed, self.failed = {}, {}, set()

    def note(self, engine):
        """The test that runs now uses an engine."""
        test = os.environ.get("PYTEST_CURRENT_TEST", "").rpartition(" ")[0]
        self.by_test.setdefault(test, set()).add(engine)

    def add(self, report):
        if (
            "engine" not in report.keywords
        ):  # the other tests run apart from these, and shall not write over their record
            return
        for engine in self.by_test.get(report.nodeid, ()):
            if report.failed:
                self.failed.add(engine)
            elif report.passed and report.when == "call":
                self.passed[engine] = self.passed.get(engine, 0) + 1

    def as_json(self):
        """The engines of which tests passed and none failed, with the versions that were there."""
        good = {engine: count for engine, count in self.passed.items() if engine not in self.failed}
        engines = {engine: {**versions_of(engine), "tests": count} for engine, count in sorted(good.items())}
        return {"engines": engines, "failed": sorted(self.failed)}

    def write(self, path=RECORD):
        """Write the record, unless no engine was used."""
        if self.passed or self.failed:
            path.parent.mkdir(exist_ok=True)
            path.write_text(json.dumps(self.as_json(), indent=2) + "\n", encoding="utf-8")


def versions_of(engine):
    """What an engine consists of ("runner") and what it ran with."""
    ours = versions()
    with_python = {"Python": ours["python"]}
    if engine == "direct" or not is_resolved(engine):
        return {"runner": {"apache-beam": ours["apache-beam"]}, "with": with_python}
    if engine == "prism":
        built = _built(resolve("prism") / "prism")
        return {"runner": {"prism": built["module"]}, "with": {**with_python, "Go": built["go"]}}
    return {"runner": _jars(engine), "with": {**with_python, "Java": tool_version("java")}}


def _built(program):
    """The version of the module that a Go program was built from, and that of Go: the program knows both."""
    said = subprocess.run(["go", "version", "-m", program], capture_output=True, text=True, check=True).stdout
    return {"go": re.search(r": go(\S+)", said)[1], "module": re.search(r"\tmod\t\S+\tv(\S+)", said)[1]}


def _jars(engine):
    """The versions of an engine's jars, as their names tell them."""
    names = [*(name for name in pinned_versions(engine) if "slf4j" not in name), *TELLING.get(engine, ())]
    jars = [path.name for path in resolve(engine).glob("*.jar")]
    found = {name: [re.fullmatch(rf"{re.escape(name)}-(\d[\w.]*)\.jar", jar) for jar in jars] for name in names}
    return {name: match[1] for name, matches in found.items() for match in matches if match}
