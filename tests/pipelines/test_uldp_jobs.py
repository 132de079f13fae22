"""Utility-optimised collections from end to end: definitions, the two halves, tags from items and from a table."""

import csv
import json

import fastavro
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from ldp_beam.transforms.collection import Collection

DEFINITION = """
name      = "places"
mechanism = "{mechanism}"
epsilon   = {epsilon}
{more}
[keys]
list = ["home", "bar", "park", "shop", "gym"]
[uldp]
{uldp}
"""
ITEM = pa.struct([("key", pa.string()), ("tag", pa.string())])
FIELDS = {
    "urr": 'sensitive = ["bar", "home"]',
    "urap": 'sensitive = ["bar", "home"]',
    "pum": 'sensitive = ["bar"]\ntags = ["private", "work"]\nbase = "urap"',
}


@pytest.fixture
def places(tmp_path):
    """Write a definition and return its path."""

    def write(mechanism="urr", uldp=None, epsilon="2", more="", name="places.toml"):
        text = DEFINITION.format(
            mechanism=mechanism, epsilon=epsilon, more=more, uldp=FIELDS[mechanism] if uldp is None else uldp
        )
        path = tmp_path / name
        path.write_text(text, encoding="utf-8")
        return path

    return write


KEYS = ["home", "bar", "park", "shop", "gym"]


def visitors(n):
    """(user, [(key, tag), …]): one to two places, every third one private."""
    made = []
    for i in range(n):
        held = [(KEYS[i % 5], "private" if i % 3 == 0 else None)]
        if i % 7 == 0:
            held.append((KEYS[(i + 2) % 5], "work" if i % 2 else None))
        made.append((f"user-{i}", [] if i % 50 == 49 else held))
    return made


def nested_file(path, people, *, tags=True):
    items = [[{"key": k, "tag": t} for k, t in held] for _, held in people]
    kind = ITEM if tags else pa.struct([("key", pa.string())])
    if not tags:
        items = [[{"key": item["key"]} for item in held] for held in items]
    table = pa.table({"user_id": [u for u, _ in people], "items": pa.array(items, pa.list_(kind))})
    pq.write_table(table, path)
    return path


def pairs_file(path, people, *, tags=True):
    with path.open("w", newline="", encoding="utf-8") as file:
        rows = csv.writer(file)
        rows.writerow(["user_id", "key", "tag"] if tags else ["user_id", "key"])
        for user, held in people:
            for key, tag in held or [("", "")]:
                rows.writerow([user, key, tag or ""] if tags else [user, key])
    return path


def avro_file(path, people, *, nested):
    text = ["null", "string"]
    fields = [{"name": name, "type": text} for name in ("key", "tag")]
    if nested:
        item = {"type": "record", "name": "item", "fields": fields}
        fields = [{"name": "items", "type": {"type": "array", "items": item}}]
        rows = [{"user_id": u, "items": [{"key": k, "tag": t} for k, t in held]} for u, held in people]
    else:
        rows = [{"user_id": u, "key": k, "tag": t} for u, held in people for k, t in held or [(None, None)]]
    schema = {"type": "record", "name": "person", "fields": [{"name": "user_id", "type": "string"}, *fields]}
    with path.open("wb") as file:
        fastavro.writer(file, fastavro.parse_schema(schema), rows)
    return path


def table_file(path, people, *more):
    with path.open("w", newline="", encoding="utf-8") as file:
        rows = csv.writer(file)
        rows.writerow(["user_id", "key", "tag"])
        rows.writerows([user, key, tag] for user, held in people for key, tag in held if tag)
        rows.writerows(more)
    return path


def counts_of(folder):
    return pq.read_table(folder / "counts.parquet")


@pytest.mark.parametrize(
    ("mechanism", "report_format"), [("urr", "parquet"), ("urap", "avro"), ("pum", "parquet"), ("pum", "avro")]
)
def test_perturb_then_aggregate_gives_the_counts_of_collect(mechanism, report_format, places, run, run_json, tmp_path):
    collection, records = places(mechanism), nested_file(tmp_path / "r.parquet", visitors(800))
    secret = tmp_path / "secret.hex"
    assert run("secret", "new", secret)[0] == 0
    given = ("--collection", collection, "--input", records, "--secret-file", secret, "--period", "p1")
    whole = run_json("collect", *given, "--output", tmp_path / "whole")
    assert whole["epsilon"]["exact"] <= 2
    assert whole["reports"] == {"counted": 800, "malformed": 0}
    run_json("perturb", *given, "--output", tmp_path / "reports", "--format", report_format)
    reports = tmp_path / "reports" / f"*.{report_format}"
    run_json("aggregate", "--collection", collection, "--input", reports, "--output", tmp_path / "halves")
    assert counts_of(tmp_path / "halves").equals(counts_of(tmp_path / "whole"))
    estimates = pq.read_table(tmp_path / "halves" / "estimates.parquet")
    assert estimates.equals(pq.read_table(tmp_path / "whole" / "estimates.parquet"))
    assert estimates["key"].to_pylist() == KEYS
    assert "mean" not in estimates.column_names


def test_all_layouts_and_sources_of_tags_give_the_same_counts(places, run_json, tmp_path):
    people = visitors(600)
    collection = places("pum")
    # somebody who takes no part, a key that is not held, a key outside the domain
    table = table_file(
        tmp_path / "t.csv", people, ["nobody", "bar", "work"], ["user-1", "gym", "work"], ["user-1", "zoo", "work"]
    )
    runs = {
        "nested": (nested_file(tmp_path / "n.parquet", people),),
        "pairs": (pairs_file(tmp_path / "p.csv", people),),
        "merged": (tmp_path / "n.parquet", "--merge-users"),
        "nested-avro": (avro_file(tmp_path / "n.avro", people, nested=True),),
        "pairs-avro": (avro_file(tmp_path / "p.avro", people, nested=False),),
        "nested-table": (nested_file(tmp_path / "nt.parquet", people, tags=False), "--sensitive-table", table),
        "pairs-table": (pairs_file(tmp_path / "pt.csv", people, tags=False), "--sensitive-table", table),
    }
    manifests = {}
    for name, given in runs.items():
        out = tmp_path / "out" / name
        manifests[name] = run_json(
            "collect", "--collection", collection, "--seed", 3, "--output", out, "--input", *given, "--workers", 2
        )
        assert counts_of(out).equals(counts_of(tmp_path / "out" / "nested")), name
        assert manifests[name]["records"]["users"] == manifests[name]["reports"]["counted"] == 600
    assert manifests["pairs-table"]["records"]["sensitive_rows_unusable"] == 1
    kept = {name: manifest["records"]["pairs_kept"] for name, manifest in manifests.items()}
    assert len(set(kept.values())) == 1


def test_tags_enter_the_random_bits(places, run_json, tmp_path):
    """Without a tag on anything, a collection with tags gives other counts than one where all are tagged."""
    people = [(user, [(key, None) for key, _ in held]) for user, held in visitors(500)]
    tagged = [(user, [(key, "private") for key, _ in held]) for user, held in people]
    for name, some in (("plain", people), ("tagged", tagged)):
        records = nested_file(tmp_path / f"{name}.parquet", some)
        run_json("collect", "--collection", places("pum"), "--input", records, "--seed", 1, "--output", tmp_path / name)
    assert not counts_of(tmp_path / "plain").equals(counts_of(tmp_path / "tagged"))


def test_a_tag_that_nobody_declared_hides_the_key(places, run, run_json, tmp_path):
    """Everybody holds "gym" with an undeclared tag at a large epsilon: no report shows it, and all are counted."""
    people = [(f"u{i}", [("gym", "secret")]) for i in range(500)]
    records = nested_file(tmp_path / "r.parquet", people)
    collection = places("pum", epsilon="10")
    given = ("--collection", collection, "--input", records)
    manifest = run_json("collect", *given, "--output", tmp_path / "out")
    assert manifest["records"]["unknown_tags"] == manifest["reports"]["counted"] == 500
    assert pq.read_table(tmp_path / "out" / "estimates.parquet")["supports"].to_pylist()[4] == 0
    code, _, err = run("collect", *given, "--output", tmp_path / "strict", "--strict")
    assert code == 2
    assert "row 1, column 'tag': the row holds a tag that the collection does not have" in err
    code, _, err = run("collect", *given, "--output", tmp_path / "few", "--max-rejects", "0.5")
    assert code == 1
    assert "unknown tags 500" in err
    run_json("collect", *given, "--output", tmp_path / "kept", "--rejects", tmp_path / "rejects")
    (rejects,) = (tmp_path / "rejects").glob("*.parquet")
    assert pq.read_table(rejects)["reason"].to_pylist() == ["unknown_tags"] * 500


def test_a_table_row_without_a_tag_is_sensitive_all_the_same(places, run_json, tmp_path):
    people = [(f"u{i}", [("gym", None)]) for i in range(300)]
    records = nested_file(tmp_path / "r.parquet", people, tags=False)
    table = table_file(tmp_path / "t.csv", [], *([user, "gym", ""] for user, _ in people))
    run_json(
        "collect", "--collection", places("pum", epsilon="10"), "--input", records, "--sensitive-table", table,
        "--output", tmp_path / "out",
    )  # fmt: skip
    assert pq.read_table(tmp_path / "out" / "estimates.parquet")["supports"].to_pylist()[4] == 0


def test_strict_mode_refuses_a_faulty_table(places, run, tmp_path):
    records = nested_file(tmp_path / "r.parquet", visitors(5), tags=False)
    table = table_file(tmp_path / "t.csv", [], ["u", "gym", "work"], ["u", "gym", "hobby"])
    code, _, err = run(
        "collect", "--collection", places("pum"), "--input", records, "--sensitive-table", table, "--strict",
        "--output", tmp_path / "out",
    )  # fmt: skip
    assert code == 2
    assert "row 2" in err


def test_missing_or_double_tags_are_refused(places, run, tmp_path):
    with_tags = nested_file(tmp_path / "with.parquet", visitors(5))
    without = nested_file(tmp_path / "without.parquet", visitors(5), tags=False)
    table = table_file(tmp_path / "t.csv", visitors(5))
    for mechanism, given, message in [
        ("pum", (without,), "no tag field 'tag'"),
        ("pum", (with_tags, "--sensitive-table", table), "Give the tags once"),
        ("pum", (without, "--sensitive-table", tmp_path / "none.csv"), "none.csv"),
        ("pum", (without, "--sensitive-table", pairs_file(tmp_path / "p.csv", [], tags=False)), "no tag column"),
        ("pum", (with_tags, "--tag-column", "tga"), "Did you mean 'tag'?"),
        ("urr", (with_tags, "--sensitive-table", table), "urr does not look at it"),
    ]:
        output = tmp_path / "out"
        code, _, err = run("collect", "--collection", places(mechanism), "--output", output, "--input", *given)
        assert code == 2, message
        assert message in err
        assert not output.exists()


def test_tags_from_a_column_of_another_name(places, run_json, tmp_path):
    people = visitors(200)
    renamed = pq.read_table(nested_file(tmp_path / "a.parquet", people))
    items = [[{"key": i["key"], "why": i["tag"]} for i in held] for held in renamed["items"].to_pylist()]
    kind = pa.list_(pa.struct([("key", pa.string()), ("why", pa.string())]))
    pq.write_table(pa.table({"user_id": renamed["user_id"], "items": pa.array(items, kind)}), tmp_path / "b.parquet")
    for name, more in (("a", ()), ("b", ("--tag-column", "why"))):
        run_json(
            "collect", "--collection", places("pum"), "--seed", 2, "--input", tmp_path / f"{name}.parquet", *more,
            "--output", tmp_path / name,
        )  # fmt: skip
    assert counts_of(tmp_path / "a").equals(counts_of(tmp_path / "b"))


# -- definitions --------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("mechanism", "uldp", "message"),
    [
        ("urr", "", "'uldp.sensitive' is missing"),
        ("urr", "sensitive = []", "without any privacy"),
        ("urr", 'sensitive = ["bra"]', "Did you mean 'bar'?"),
        ("urr", 'sensitive = ["bar", "bar"]', "twice"),
        ("urr", "sensitive = 3", "a list of keys"),
        ("urr", 'sensitive = [""]', "empty text"),
        ("urr", 'sensitive = "nowhere.csv"', "does not exist"),
        ("urr", 'sensitive = ["bar"]\ntheta = 0.5', "'uldp.theta' is unknown"),
        ("urr", 'sensitive = ["bar"]\ntags = ["x"]', "'uldp.tags' is unknown"),
        ("urap", 'sensitive = ["bar"]\ntheta = 1.5', "between 0 and 1"),
        ("pum", 'sensitive = ["bar"]', "'uldp.tags' is missing"),
        ("pum", 'tags = ["x"]', "'uldp.sensitive' is missing"),
        ("pum", "sensitive = []\ntags = []", "at least one name"),
        ("pum", 'sensitive = []\ntags = ["x", "x"]', "twice"),
        ("pum", 'sensitive = []\ntags = ["x"]\nbase = "rr"', "'uldp.base'"),
        ("pum", 'sensitive = []\ntags = ["x"]\ntheta = 0.5', "belongs to base"),
        ("pum", 'sensitive = []\ntags = ["x"]\nbackground = "proportion"', "Did you mean 'proportional'?"),
        ("pum", 'sensitive = []\ntags = ["x"]\nbackground = "none.csv"', "does not exist"),
        ("pum", 'sensitive = []\ntags = ["x"]\nbackground = [["y", "bar", 1]]', "the tag 'y'"),
        ("pum", 'sensitive = []\ntags = ["x"]\nbackground = [["x", "zoo", 1]]', "the key 'zoo'"),
        ("pum", 'sensitive = []\ntags = ["x"]\nbackground = [["x", "bar", 0.5]]', "add up to"),
    ],
)
def test_wrong_tables_are_refused(mechanism, uldp, message, places, run, tmp_path):
    records = nested_file(tmp_path / "r.parquet", visitors(5))
    code, _, err = run(
        "collect", "--collection", places(mechanism, uldp), "--input", records, "--output", tmp_path / "out"
    )
    assert code == 2
    assert message in err


def test_the_table_is_required(places, run, tmp_path):
    path = places("urr")
    path.write_text(path.read_text().split("[uldp]")[0])
    records = nested_file(tmp_path / "r.parquet", visitors(5))
    code, _, err = run("collect", "--collection", path, "--input", records, "--output", tmp_path / "out")
    assert code == 2
    assert "the table [uldp] is missing" in err


@pytest.mark.parametrize(("base", "estimator"), [("urr", "composite-em"), ("urap", "em")])
def test_an_estimator_that_does_not_fit_the_base_is_refused_at_once(base, estimator, places, run, tmp_path):
    collection = places(
        "pum", f'sensitive = []\ntags = ["private", "work"]\nbase = "{base}"', more=f'estimator = "{estimator}"'
    )
    records = nested_file(tmp_path / "r.parquet", visitors(5))
    code, _, err = run("collect", "--collection", collection, "--input", records, "--output", tmp_path / "out")
    assert code == 2
    assert "'estimator'" in err


def test_what_enters_the_fingerprint(places, tmp_path):
    def fingerprint(*definition):
        return Collection.load(places(*definition)).fingerprint

    (tmp_path / "sensitive.csv").write_text("key\nbar\nhome\n")
    listed = fingerprint("urr")
    assert fingerprint("urr", 'sensitive = "sensitive.csv"') == listed
    assert fingerprint("urr", 'sensitive = ["bar"]') != listed
    personal = fingerprint("pum")
    assert fingerprint("pum", FIELDS["pum"] + '\nbackground = "proportional"') == personal
    assert fingerprint("pum", FIELDS["pum"].replace("work", "office")) != personal


def test_evaluate_tells_both_terms_of_the_bound(places, run_json, tmp_path):
    people = [(f"u{i}", [(KEYS[i % 5], "private" if i % 5 == 0 else None)]) for i in range(4000)]
    records = nested_file(tmp_path / "r.parquet", people)
    (tmp_path / "right.csv").write_text("tag,key,probability\nprivate,home,1\nwork,gym,0.5\nwork,shop,0.5\n")
    (tmp_path / "wrong.csv").write_text("tag,key,probability\nprivate,gym,1\n")
    figures = {}
    for name in ("right.csv", "wrong.csv", "drop"):
        fields = f'sensitive = []\ntags = ["private", "work"]\nbackground = "{name}"'
        collection = places("pum", fields, epsilon="4", more='estimator = "norm-sub"')
        out = tmp_path / f"out-{name}"
        run_json("collect", "--collection", collection, "--input", records, "--seed", 4, "--output", out)
        evaluated = run_json("evaluate", "--estimates", out, "--records", records)
        figures[name] = evaluated["figures"]
        estimated = np.array([row["frequency"] for row in evaluated["keys"]])
        l1 = np.abs(estimated - [row["true_frequency"] for row in evaluated["keys"]]).sum()
        assert figures[name]["bound_l1"] == pytest.approx(
            figures[name]["bound_obfuscation"] + figures[name]["bound_background"]
        )
        assert l1 <= figures[name]["bound_l1"] + 1e-12
    assert figures["right.csv"]["bound_background"] < 0.05 < figures["wrong.csv"]["bound_background"]
    # a fifth of the people, assumed at a key that none of them is at: twice a fifth
    assert figures["wrong.csv"]["bound_background"] == pytest.approx(0.4, abs=0.15)


@pytest.mark.parametrize("mechanism", ["urr", "urap", "pum"])
def test_a_simulation_does_not_guess_what_is_sensitive(mechanism, run, tmp_path):
    given = ("--population", "uniform", "--users", 10, "--keys", 5, "--output", tmp_path / "r.parquet")
    code, _, err = run("simulate", *given, "--mechanism", mechanism, "--collection-to", tmp_path / "c.toml")
    assert code == 2
    assert "what is sensitive" in err
    assert not list(tmp_path.iterdir())


def test_mechanisms_are_listed(run):
    _, out, _ = run("mechanisms", "--json")
    listed = {entry["name"]: entry for entry in json.loads(out)["mechanisms"]}
    assert {"urr", "urap", "pum"} <= listed.keys()
    assert "sensitive" in listed["urr"]["parameters"]
