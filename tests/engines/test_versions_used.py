"""The record of what engine tests ran with: only what passed, and the versions that were really there."""

import json
from types import SimpleNamespace

import pytest
from ldp_beam.engines import pinned_versions, resolve
from ldp_beam.pipelines.running import versions

from tests.engines.versions_used import Used, versions_of


def ended(test, when="call", keywords=("engine",), **outcome):
    return SimpleNamespace(nodeid=test, when=when, keywords=keywords, **{"passed": False, "failed": False, **outcome})


@pytest.fixture
def used(monkeypatch):
    """A record of three tests, of which the second failed after its call and the third was skipped."""
    found = Used()
    for test, engine in (("a::x[1 2]", "direct"), ("a::y", "direct"), ("a::y", "spark"), ("a::z", "flink")):
        monkeypatch.setenv("PYTEST_CURRENT_TEST", f"{test} (setup)")
        found.note(engine)
    found.add(ended("a::x[1 2]", when="setup", passed=True))
    found.add(ended("a::x[1 2]", passed=True))
    found.add(ended("a::z", when="setup"))
    found.add(ended("a::y", keywords=(), passed=True))  # not an engine test
    found.add(ended("nobody's"))
    return found


def test_an_engine_counts_whose_tests_passed(used, tmp_path):
    used.write(tmp_path / "build" / "record.json")
    record = json.loads((tmp_path / "build" / "record.json").read_text())
    beam = versions()["apache-beam"]
    direct = {"runner": {"apache-beam": beam}, "with": {"Python": versions()["python"]}, "tests": 1}
    assert record == {"engines": {"direct": direct}, "failed": []}


def test_one_failure_takes_an_engine_out(used):
    used.add(ended("a::y", passed=True))
    used.add(ended("a::y", when="teardown", failed=True))
    assert used.as_json() == {"engines": {}, "failed": ["direct", "spark"]}


def test_without_engine_tests_an_older_record_stays(tmp_path):
    Used().write(tmp_path / "record.json")
    assert list(tmp_path.iterdir()) == []


@pytest.mark.engine
@pytest.mark.parametrize("engine", ["prism", "flink", "spark", "kafka"], indirect=True)
def test_what_is_in_the_cache_tells_the_versions_that_are_pinned(engine):
    resolve(engine)
    found = versions_of(engine)
    pinned = {name: version for name, version in pinned_versions(engine).items() if "slf4j" not in name}
    assert found["runner"].items() >= pinned.items()
    assert all(found["with"].values())
    assert set(found["with"]) == {"Python", "Go" if engine == "prism" else "Java"}
