"""The table of versions tested together comes from a record of the tests, and CI sees where the page is behind."""

import json

import pytest

from benchmarks import tested_versions
from benchmarks.tested_versions import ENGINES, PAGE, NoRecordError, told, version_table


def record(**changed):
    engines = {name: {"runner": {name: "1.2"}, "with": {"Python": "3.11.4"}, "tests": 3} for name in ENGINES}
    return {"engines": {**engines, **changed}, "failed": []}


@pytest.fixture
def page(tmp_path, monkeypatch):
    """A page that is in step with a record; returns a function that changes the record."""

    def write(content):
        (tmp_path / "record.json").write_text(json.dumps(content))

    path = tmp_path / "engines.md"
    path.write_text("before\n<!-- versions -->\nold\n<!-- /versions -->\nafter\n")
    for name, value in (("PAGE", path), ("RECORD", tmp_path / "record.json"), ("FIGURES", tmp_path / "absent")):
        monkeypatch.setattr(tested_versions, name, value)
    write(record())
    assert tested_versions.main([]) == 0
    return write


def test_the_table_is_what_the_tests_recorded(page, capsys):
    assert tested_versions.main(["--check"]) == 0
    text = tested_versions.PAGE.read_text()
    assert text.startswith("before\n<!-- versions -->\n| engine | runner | with |\n")
    assert told(text)["flink"] == ("flink 1.2", "Python 3.11.4")
    assert capsys.readouterr().err == ""


def test_another_runner_is_an_error_that_names_both(page, capsys):
    page(record(flink={"runner": {"flink": "1.3"}, "with": {"Python": "3.11.4"}}))
    assert tested_versions.main(["--check"]) == 1
    assert "flink: the page says flink 1.2, the tests ran with flink 1.3" in capsys.readouterr().err
    assert tested_versions.main([]) == 0
    assert tested_versions.main(["--check"]) == 0


def test_another_patch_of_the_machines_python_is_said_and_is_no_error(page, capsys):
    page(record(flink={"runner": {"flink": "1.2"}, "with": {"Python": "3.11.9"}}))
    assert tested_versions.main(["--check"]) == 0
    assert (
        "Not an error: flink: the page says Python 3.11.4, the tests ran with Python 3.11.9" in capsys.readouterr().err
    )


@pytest.mark.parametrize(
    ("content", "said"),
    [
        ({**record(), "failed": ["spark"]}, "tests of spark failed"),
        ({"engines": {"direct": record()["engines"]["direct"]}, "failed": []}, "no test of prism, flink, spark, kafka"),
        (None, "make test"),
    ],
)
def test_without_a_record_of_all_engines_nothing_is_believed(content, said, page, capsys):
    page(content)
    if content is None:
        tested_versions.RECORD.unlink()
    with pytest.raises(NoRecordError, match=said):
        tested_versions.recorded(tested_versions.RECORD)
    before = tested_versions.PAGE.read_text()
    assert tested_versions.main(["--check"]) == tested_versions.main([]) == 1
    assert tested_versions.PAGE.read_text() == before
    assert said in capsys.readouterr().err


def test_an_engine_that_the_page_does_not_tell_of_is_found():
    page, run = {"direct": ("a", "b")}, {"flink": ("a", "b")}
    wrong, other = tested_versions.differences(page, run)
    assert [line.partition(":")[0] for line in wrong] == ["direct", "flink"]
    assert other == []


def test_the_page_tells_of_every_engine():
    found = told(PAGE.read_text(encoding="utf-8"))
    assert tuple(found) == ENGINES
    assert all(version_table({}) and runner and more for runner, more in found.values())
