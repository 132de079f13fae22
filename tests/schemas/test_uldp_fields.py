"""The table [uldp]: files become part of the definition, and a manifest gives the definition back."""

import json

import pytest
from ldp_beam.errors import InputError
from ldp_beam.schemas.collection import Definition
from ldp_beam.transforms.collection import Collection

HEAD = 'name = "t"\nmechanism = "{}"\nepsilon = 1\n[keys]\nlist = ["a", "b", "7", "caf\\u00e9"]\n[uldp]\n'


def parse(mechanism, uldp, folder="."):
    return Definition.from_text(HEAD.format(mechanism) + uldp, folder=folder)


def test_keys_and_tags_become_indices(tmp_path):
    (tmp_path / "s.csv").write_text("note,key\nx,7\n,cafe\u0301\n", encoding="utf-8")
    (tmp_path / "b.csv").write_text('tag,key,probability\n1,a,0.25\n1,b,"0.75"\n', encoding="utf-8")
    uldp = 'sensitive = "s.csv"\ntags = ["x", 1]\nbase = "urap"\ntheta = 0.75\nbackground = "b.csv"'
    mechanism = Collection.of(parse("pum", uldp, tmp_path)).mechanism
    assert mechanism.sensitive == (2, 3)
    assert mechanism.tags == ("x", "1")
    assert mechanism.background == ((1, 0, 0.25), (1, 1, 0.75))
    assert str(mechanism.theta) == "0.75"


@pytest.mark.parametrize(
    ("mechanism", "uldp"),
    [
        ("urr", 'sensitive = [7, "a"]'),
        ("urap", 'sensitive = ["b"]\ntheta = 0.6'),
        ("pum", 'sensitive = []\ntags = ["x"]'),
        ("pum", 'sensitive = ["a"]\ntags = ["x", "y"]\nbackground = "proportional"'),
        (
            "pum",
            'sensitive = []\ntags = ["x"]\nbase = "urap"\ntheta = 0.6\nbackground = [["x", "a", 0.1], ["x", 7, 0.9]]',
        ),
    ],
)
def test_a_manifest_gives_the_definition_back(mechanism, uldp):
    definition = parse(mechanism, uldp)
    public = json.loads(json.dumps(definition.public()))
    again = Definition.from_public(public, definition.keys)
    assert again == definition
    one, other = Collection.of(definition), Collection.of(again)
    assert one.mechanism == other.mechanism
    assert one.fingerprint == other.fingerprint


def test_the_order_of_the_sensitive_keys_does_not_matter():
    lists = ('["a", "caf\\u00e9"]', '["cafe\\u0301", "a"]')
    one, other = (Collection.of(parse("urr", f"sensitive = {keys}")) for keys in lists)
    assert one.mechanism == other.mechanism
    assert one.fingerprint == other.fingerprint


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("kye\na\n", "with key as columns"),
        ('key\na\n""\n', "empty text"),
        ("key\n", "is empty"),
        ("", "cannot be read"),
        ("key\na\na\n", "twice"),
        ("key\nz\n", "which is not among the 4 keys"),
    ],
)
def test_faulty_files_of_sensitive_keys(content, message, tmp_path):
    (tmp_path / "s.csv").write_text(content)
    with pytest.raises(InputError, match=message):
        Collection.of(parse("urr", 'sensitive = "s.csv"', tmp_path))


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("tag,key\nx,a\n", "with tag, key, probability as columns"),
        ("tag,key,probability\nx,a,much\n", "'much'"),
        ("tag,key,probability\nx,a,\n", "background"),
        ("tag,key,probability\n", "holds no row"),
        ("tag,key,probability\nx,a,0.4\nx,b,0.4\n", "add up to 0.8"),
        ("tag,key,probability\nx,a,nan\n", "probability"),
    ],
)
def test_faulty_files_of_background_knowledge(content, message, tmp_path):
    (tmp_path / "b.csv").write_text(content)
    with pytest.raises(InputError, match=message):
        Collection.of(parse("pum", 'sensitive = []\ntags = ["x"]\nbackground = "b.csv"', tmp_path))
