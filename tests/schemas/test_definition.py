"""The collection definition: strict, exact, fingerprinted."""

from __future__ import annotations

import json
import pickle
from dataclasses import replace
from decimal import Decimal
from pathlib import Path

import pyarrow as pa
import pyarrow.csv as pa_csv
import pytest
from ldp_beam.errors import InputError, NotAvailableError
from ldp_beam.schemas import Definition
from ldp_beam.schemas.auto_fields import auto_arguments
from ldp_beam.schemas.definition_text import definition_text
from ldp_beam.schemas.keys import KeyDomain
from ldp_beam.schemas.values import ValueRange

FIELDS = {
    "name": '"ratings"',
    "mechanism": '"pckv-ue"',
    "epsilon": "1.0",
    "padding": "2",
}
TABLES = {"keys": 'list = ["a", "b"]', "values": "range = [1.0, 5.0]"}
THRESHOLDS = {"keep": 3, "flip": 2**60}


def toml(*, drop: str = "", tables: dict[str, str] | None = None, extra: str = "", **fields: str) -> str:
    lines = [f"{name} = {value}" for name, value in (FIELDS | fields).items() if name != drop]
    lines.append(extra)
    for name, body in (TABLES | (tables or {})).items():
        if name != drop:
            lines.append(f"[{name}]\n{body}")
    return "\n".join(lines)


def parse(**changes: object) -> Definition:
    return Definition.from_text(toml(**changes))  # type: ignore[arg-type]  # keyword strings


def test_reads_every_field_and_documented_defaults() -> None:
    definition = parse()
    assert (definition.name, definition.mechanism) == ("ratings", "pckv-ue")
    assert definition.epsilon == 1
    assert definition.parameters == {"padding": 2, "allocation": "optimized"}
    assert definition.estimator == "corrected"
    assert definition.keys.texts().to_pylist() == ["a", "b"]
    assert definition.values is not None
    assert definition.values.bounds == (1.0, 5.0)
    assert (definition.values.outside, definition.values.duplicates) == ("drop", "mean")


def test_epsilon_is_exact() -> None:
    assert parse(epsilon="0.1").epsilon == Decimal("0.1")


@pytest.mark.parametrize("field", ["name", "mechanism", "epsilon", "padding", "keys", "values"])
def test_a_missing_privacy_parameter_is_an_error_that_names_it(field: str) -> None:
    with pytest.raises(InputError, match=rf"{field}.* is missing"):
        parse(drop=field)


def test_a_missing_range_is_an_error() -> None:
    with pytest.raises(InputError, match=r"'values\.range' is missing"):
        parse(tables={"values": 'outside = "drop"'})


@pytest.mark.parametrize("given", ["0", "-1", "40", "709", "710", "1e-17", "1e-9", "20.0001", "inf", "-inf", "nan"])
def test_epsilon_outside_its_limits_is_refused_with_a_reason(given: str) -> None:
    with pytest.raises(InputError, match=r"epsilon.*from 0\.001 to 20: ") as caught:
        parse(epsilon=given)
    assert caught.value.exit_code == 2


@pytest.mark.parametrize("given", ["0.001", "1", "20", "20.0"])
def test_epsilon_limits_are_allowed(given: str) -> None:
    assert parse(epsilon=given).epsilon == Decimal(given)


@pytest.mark.parametrize(
    ("field", "given"),
    [
        ("epsilon", "true"),
        ("epsilon", '"1"'),
        ("epsilon", "[1]"),
        ("padding", "true"),
        ("padding", "1.0"),
        ("padding", '"2"'),
        ("padding", "0"),
        ("padding", "-3"),
        ("name", "3"),
        ("name", '""'),
        ("name", r'"a\nb"'),
        ("mechanism", "1"),
        ("allocation", "false"),
        ("estimator", "1.5"),
    ],
)
def test_wrong_types_name_the_field(field: str, given: str) -> None:
    with pytest.raises(InputError, match=f"'{field}' is "):
        parse(**{field: given})


@pytest.mark.parametrize(
    ("changes", "hint"),
    [
        ({"extra": "epsilonn = 2"}, "'epsilonn' is unknown. Did you mean 'epsilon'"),
        ({"tables": {"keys": "counts = 3"}}, r"'keys\.counts' is unknown. Did you mean 'count'"),
        ({"tables": {"values": "range = [0, 1]\noutsid = 'drop'"}}, r"'values\.outsid' is unknown"),
        ({"mechanism": '"pckv-eu"'}, "Did you mean 'pckv-ue'"),
        ({"tables": {"values": "range = [0, 1]\noutside = 'clamp'"}}, "'clip', 'drop'"),
        ({"allocation": '"optimised"'}, "Did you mean 'optimized'"),
    ],
)
def test_unknown_names_get_a_suggestion(changes: dict[str, object], hint: str) -> None:
    with pytest.raises(InputError, match=hint):
        parse(**changes)


@pytest.mark.parametrize(
    ("body", "message"),
    [
        ("", "exactly one of"),
        ('count = 3\nlist = ["a"]', "exactly one of"),
        ("list = []", "holds no key"),
        ('list = ["a", "b", "a"]', "stands twice, as number 1 and number 3"),
        ('list = ["caf\\u00e9", "cafe\\u0301"]', "stands twice"),
        ('list = ["a", ""]', "number 2 is empty"),
        ("list = [true]", r"keys\.list number 1' is true"),
        ("list = [1.0]", r"keys\.list number 1' is 1\.0"),
        ("list = [1, '1']", "stands twice"),
        ('list = "a"', r"keys\.list' is 'a'"),
        ("count = 0", "at least 1"),
        ("count = true", r"keys\.count' is true"),
        ("count = 2000000000", "at most"),
        ("range = [3, 1]", "must not be above"),
        ("range = [1]", "two integers"),
        ("range = [0, 1.5]", "two integers"),
        ("range = [99999999999999999999, 99999999999999999999]", "64-bit"),
        ('file = "no-such.csv"', "there is no file"),
        ('file = "keys.txt"', "must be a CSV file"),
    ],
)
def test_key_domains_that_cannot_be_are_refused(body: str, message: str) -> None:
    with pytest.raises(InputError, match=message):
        parse(tables={"keys": body})


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ("[5, 1]", "below the second"),
        ("[1, 1.0]", "below the second"),
        ("[1, 1.00000000000000000000000001]", "below the second"),
        ("[nan, 1]", "finite"),
        ("[0, inf]", "finite"),
        ("[0, 1e400]", "finite"),
        ("[1e-999999999, 1]", "finite"),
        ("[-1e308, 1e308]", "width"),
        ("[0, true]", "is true"),
        ("[0]", "two numbers"),
        ("3", "two numbers"),
    ],
)
def test_value_ranges_that_cannot_be_are_refused(given: str, message: str) -> None:
    with pytest.raises(InputError, match=message):
        parse(tables={"values": f"range = {given}"})


def test_key_file_is_relative_to_the_definition(tmp_path: Path) -> None:
    (tmp_path / "keys.csv").write_text("key,label\n007,x\nNA,y\n2024-01-01,z\n")
    path = tmp_path / "c.toml"
    path.write_text(toml(tables={"keys": 'file = "keys.csv"'}))
    assert Definition.load(path).keys.texts().to_pylist() == ["007", "NA", "2024-01-01"]


def test_messages_name_the_file_and_the_line(tmp_path: Path) -> None:
    path = tmp_path / "c.toml"
    path.write_text('name = "x"\nepsilon =\n')
    with pytest.raises(InputError, match=r"c\.toml is not valid TOML: .*line 2"):
        Definition.load(path)
    path.write_text(toml(epsilon="true"))
    with pytest.raises(InputError, match=r"c\.toml: the field 'epsilon'"):
        Definition.load(path)
    with pytest.raises(InputError, match=r"missing\.toml cannot be read"):
        Definition.load(tmp_path / "missing.toml")
    path.write_bytes(b"name = '\xff'")
    with pytest.raises(InputError, match="not UTF-8"):
        Definition.load(path)


def test_a_byte_order_mark_does_not_matter(tmp_path: Path) -> None:
    path = tmp_path / "c.toml"
    path.write_bytes(b"\xef\xbb\xbf" + toml().encode())
    assert Definition.load(path) == parse()


def test_a_repeated_field_is_an_error() -> None:
    with pytest.raises(InputError, match="not valid TOML"):
        parse(extra="epsilon = 2")


# -- fingerprint ----------------------------------------------------------------------------------------


def test_canonical_form_is_sorted_json_with_numbers_as_text() -> None:
    text = parse().canonical(THRESHOLDS)
    fields = json.loads(text)
    assert list(fields) == sorted(fields)
    assert fields == {
        "duplicates": "mean",
        "epsilon": "1",
        "keys": ["a", "b"],
        "mechanism": "pckv-ue",
        "name": "ratings",
        "outside": "drop",
        "padding": "2",
        "range": ["1", "5"],
        "thresholds": {"flip": str(2**60), "keep": "3"},
        "version": "1",
    }


def test_the_fingerprint_is_stable() -> None:
    # A changed figure means that reports of earlier versions are no longer accepted.
    assert parse().fingerprint(THRESHOLDS) == STABLE


STABLE = "9d91dff6b37f1f63570356f76119af9376602627c5dc02e089489cb03db6aa13"


@pytest.mark.parametrize(
    "changes",
    [
        {"epsilon": "1"},
        {"epsilon": "1.00"},
        {"epsilon": "1e0"},
        {"estimator": '"baseline"'},
        {"tables": {"values": 'range = [1, 5]\noutside = "drop"\nduplicates = "mean"'}},
        {"tables": {"values": "range = [1.00, 0.5e1]"}},
    ],
)
def test_what_changes_nothing_for_clients_keeps_the_fingerprint(changes: dict[str, object]) -> None:
    assert parse(**changes).fingerprint(THRESHOLDS) == parse().fingerprint(THRESHOLDS)


@pytest.mark.parametrize(
    "changes",
    [
        {"name": '"other"'},
        {"mechanism": '"pckv-grr"'},
        {"epsilon": "1.0000000000000000000000000000001"},
        {"padding": "3"},
        {"tables": {"keys": 'list = ["b", "a"]'}},
        {"tables": {"keys": 'list = ["a", "b", "c"]'}},
        {"tables": {"values": "range = [1, 6]"}},
        {"tables": {"values": 'range = [1, 5]\noutside = "clip"'}},
        {"tables": {"values": 'range = [1, 5]\nduplicates = "latest"'}},
    ],
)
def test_what_changes_something_for_clients_changes_the_fingerprint(changes: dict[str, object]) -> None:
    assert parse(**changes).fingerprint(THRESHOLDS) != parse().fingerprint(THRESHOLDS)


def test_thresholds_are_part_of_the_fingerprint() -> None:
    assert parse().fingerprint({"keep": 3}) != parse().fingerprint({"keep": 4})


def test_sources_of_the_same_keys_share_the_fingerprint() -> None:
    prints = {
        parse(tables={"keys": body}).fingerprint(THRESHOLDS)
        for body in ("count = 3", "range = [0, 2]", 'list = ["0", "1", "2"]', "list = [0, 1, 2]")
    }
    assert len(prints) == 1


def test_pickles() -> None:
    for body in ("count = 3", 'list = ["x", "y"]'):
        definition = parse(tables={"keys": body})
        clone = pickle.loads(pickle.dumps(definition))
        assert clone == definition
        assert clone.fingerprint(THRESHOLDS) == definition.fingerprint(THRESHOLDS)


def test_public_form_is_json_and_summarises_long_domains() -> None:
    public = parse().public()
    assert json.loads(json.dumps(public)) == public
    assert public["epsilon"] == "1"
    assert public["keys"] == {"count": 2, "list": ["a", "b"]}
    long = parse(tables={"keys": "count = 1001"}).public()["keys"]
    assert long.keys() == {"count", "sha256"}
    assert long["count"] == 1001


def test_a_definition_comes_back_from_its_public_form() -> None:
    definition = parse(epsilon="0.30", extra='allocation = "naive"')
    again = Definition.from_public(json.loads(json.dumps(definition.public())), definition.keys)
    assert again.canonical(THRESHOLDS) == definition.canonical(THRESHOLDS)
    assert again.parameters == definition.parameters
    assert again.estimator == definition.estimator


def test_a_padding_may_be_left_to_the_users_answers() -> None:
    plain = parse(padding='"auto"')
    assert plain.parameters["padding"] == "auto"
    assert plain.parameters["auto"] == {
        "share": Decimal("0.1"),
        "cap": 1_000,
        "rule": "error",
        "fallback": 1,
        "exponent": Decimal(1),
    }
    given = parse(padding='"auto"', tables={"auto": 'share = 0.2\ncap = 20\nrule = "percentile"\nfallback = 4'})
    assert given.parameters["auto"]["share"] == Decimal("0.2")
    assert given.fingerprint({}) != plain.fingerprint({})
    resolved = given.with_padding(3)
    assert resolved.fingerprint({}) == parse(padding="3").fingerprint({})


@pytest.mark.parametrize(
    ("tables", "message"),
    [
        ({"auto": "share = 1.0"}, "auto.share.*between 0 and 1"),
        ({"auto": "cap = 0"}, "auto.cap"),
        ({"auto": "cap = 1001"}, "auto.cap"),
        ({"auto": 'rule = "median"'}, "auto.rule"),
        ({"auto": "exponent = 11"}, "auto.exponent"),
        ({"auto": "group = 1"}, "auto.group.*unknown"),
        ({"auto": 'frequencies = "absent.csv"'}, "does not exist"),
        ({"auto": "frequencies = [[1, 2]]"}, "auto.frequencies"),
    ],
)
def test_a_wrong_table_auto_is_refused(tables: dict[str, str], message: str) -> None:
    with pytest.raises(InputError, match=message):
        parse(padding='"auto"', tables=tables)


def test_the_table_auto_needs_the_padding_auto() -> None:
    with pytest.raises(InputError, match=r"acts on padding = \"auto\" alone"):
        parse(tables={"auto": "share = 0.1"})


def test_vectors_need_a_padding_that_is_a_number() -> None:
    with pytest.raises(NotAvailableError, match="coordinates"):
        parse(padding='"auto"', tables={"values": 'range = [1, 5]\ncoordinates = ["x", "y"]'})


def test_earlier_frequencies_come_from_a_file(tmp_path: Path) -> None:
    (tmp_path / "earlier.csv").write_text("key,frequency\na,0.5\nb,-0.01\n", encoding="utf-8")
    text = toml(padding='"auto"', tables={"auto": 'frequencies = "earlier.csv"'})  # type: ignore[arg-type]
    found = Definition.from_text(text, folder=tmp_path)
    assert found.parameters["auto"]["frequencies"] == (("a", Decimal("0.5")), ("b", Decimal(0)))
    assert auto_arguments(dict(found.parameters["auto"]), found.keys)["frequencies"] == (0.5, 0.0)
    with pytest.raises(InputError, match="no key of the collection"):
        auto_arguments({"frequencies": (("c", Decimal("0.5")),)}, found.keys)


@pytest.mark.parametrize("keys_file", [None, "keys.csv"])
def test_a_definition_can_be_written_and_read_again(tmp_path: Path, keys_file: str | None) -> None:
    odd = ["a", "007", "NA", 'quo"te', "back\\slash", "line\nbreak", "tab\t", "é", "a,b", " x "]
    values = ValueRange(low=Decimal("-0.5"), high=Decimal("1e3"), outside="clip")
    written = replace(parse(padding="3"), keys=KeyDomain.of_texts(odd), values=values)
    text = definition_text(written, keys_file=keys_file, comment="two\nlines")
    if keys_file:
        pa_csv.write_csv(pa.table({"key": written.keys.texts()}), tmp_path / keys_file)
    read = Definition.from_text(text, folder=tmp_path)
    assert read.canonical({"t": 1}) == written.canonical({"t": 1})
    assert read.values == written.values


def test_a_definition_of_vectors_can_be_written_and_read_again() -> None:
    vectors = {"values": 'range = [1, 5]\ncoordinates = ["x", "y"]'}
    written = parse(padding="3", tables=vectors)
    read = Definition.from_text(definition_text(written))
    assert read.canonical({}) == written.canonical({})


def test_a_definition_with_a_prior_can_be_written_and_read_again() -> None:
    prior = {"prior": "frequency = 0.01\nmean = 0.5\nusers = 1000000"}
    written = parse(padding="3", allocation='"numerical"', tables=prior)
    assert Definition.from_text(definition_text(written)).parameters == written.parameters
