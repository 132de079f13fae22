"""Padding "auto" from records to estimates: in one run, and in two steps by files."""

import json
from decimal import Decimal

import numpy as np
import pyarrow.parquet as pq
import pytest
from ldp_beam.mechanisms import Secret
from ldp_beam.mechanisms.padding.auto import AutoPadding
from ldp_beam.pipelines.ledger import Ledger
from ldp_beam.transforms.collection import Collection

KEYS = [f"k{i}" for i in range(12)]
#: Everybody holds three keys, so that the choice is plain.
HELD = 3


@pytest.fixture
def auto(define):
    """Return a function that writes a definition with padding "auto"."""

    def write(table="share = 0.25\ncap = 8", **fields):
        values = f"\n[auto]\n{table}" if table is not None else ""
        given = {"epsilon": "4", "padding": '"auto"', "keys": f"list = {json.dumps(KEYS)}", "values": values}
        return define(**(given | fields))

    return write


def crowd(n):
    rng = np.random.default_rng(0)
    return [(f"user-{i}", [(KEYS[k], 0.5) for k in rng.choice(12, HELD, replace=False)]) for i in range(n)]


@pytest.fixture
def records(nested):
    return nested(crowd(6_000))


@pytest.fixture
def secret(tmp_path):
    path = tmp_path / "secret.hex"
    path.write_text(Secret.from_seed(3).hex(), encoding="utf-8")
    path.chmod(0o600)
    return path


def estimates(folder):
    return pq.read_table(next(folder.glob("estimates.parquet")))


@pytest.mark.parametrize("mechanism", ["pckv-ue", "pckv-grr"])
def test_one_run_asks_both_questions(auto, records, run_json, tmp_path, mechanism):
    definition = auto(mechanism=mechanism)
    manifest = run_json(
        "collect", "--collection", definition, "--input", records, "--output", tmp_path / "o", "--seed", 1
    )
    choice = manifest["mechanism"]["padding"]
    assert (choice["padding"], choice["trusted"], choice["rule"]) == (HELD, True, "error")
    assert choice["declared_fingerprint"] == Collection.load(definition).fingerprint
    assert manifest["collection"]["padding"] == HELD
    assert "auto" not in manifest["collection"]
    fixed = auto(None, mechanism=mechanism, padding=HELD, name="fixed.toml")
    assert manifest["fingerprint"] == Collection.load(fixed).fingerprint
    assert manifest["reports"]["counted"] + manifest["reports"]["length_question"] == 6_000
    assert abs(manifest["reports"]["length_question"] - 1_500) < 6.1 * np.sqrt(6_000 * 0.25 * 0.75)
    assert manifest["epsilon"]["spent_per_user"] == "4"
    assert manifest["epsilon"]["exact"] <= 4
    found = estimates(tmp_path / "o")
    assert found["n"][0].as_py() == manifest["reports"]["counted"]
    frequency, error = (found[name].to_numpy() for name in ("frequency_raw", "frequency_se"))
    # unbiased for the share of all users, though a quarter of them was asked something else
    assert (np.abs(frequency - HELD / 12) < 6.5 * error).all()


def test_two_steps_by_files_give_the_same(auto, records, run, run_json, secret, tmp_path):
    definition, state = auto(), tmp_path / "state"
    private = ("--secret-file", secret, "--period", "p")
    common = ("--collection", definition, "--input", records, *private)
    run_json("collect", *common, "--output", tmp_path / "once")
    steps = ("--collection", definition, "--state", state)

    def perturb(round_, output):
        return run_json(
            "perturb", *steps, "--round", round_, "--input", records, *private, "--output", tmp_path / output
        )

    code, _, err = run("perturb", *steps, "--round", 2, "--input", records, *private, "--output", tmp_path / "x")
    assert code == 2
    assert "not open yet" in err
    asked = perturb(1, "r1")
    lengths = run_json("aggregate", *steps, "--round", 1, "--input", tmp_path / "r1", "--output", tmp_path / "lengths")
    assert lengths["mechanism"]["padding"]["padding"] == HELD
    assert lengths["collection"]["name"] == "fruit:length"
    assert json.loads((tmp_path / "lengths" / "manifest.json").read_text())["mechanism"]["padding"]["padding"] == HELD
    told = perturb(2, "r2")
    assert sum(f["rows"] for m in (asked, told) for f in m["files"]) == 6_000
    final = run_json("aggregate", *steps, "--round", 2, "--input", tmp_path / "r2", "--output", tmp_path / "twice")
    assert final["mechanism"]["padding"]["padding"] == HELD
    assert estimates(tmp_path / "twice").equals(estimates(tmp_path / "once"))
    resolved = state / "resolved.toml"
    run_json("aggregate", "--collection", resolved, "--input", tmp_path / "r2", "--output", tmp_path / "resolved")
    assert estimates(tmp_path / "resolved").equals(estimates(tmp_path / "once"))
    for round_, message in ((1, "closed"), (3, "round 1 is the length question")):
        code, _, err = run(
            "perturb", *steps, "--round", round_, "--input", records, *private, "--output", tmp_path / "x"
        )
        assert code == 2
        assert message in err


def test_the_second_question_needs_the_secret_and_the_period_of_the_first(auto, records, run, secret, tmp_path):
    steps = ("--collection", auto(), "--state", tmp_path / "state")

    def call(verb, *more):
        return run(verb, *steps, *more)

    first = ("--input", records, "--secret-file", secret, "--period", "p")
    assert call("perturb", "--round", 1, *first, "--output", tmp_path / "r1")[0] == 0
    assert call("aggregate", "--round", 1, "--input", tmp_path / "r1", "--output", tmp_path / "l")[0] == 0
    for other in (("--seed", 4), ("--secret-file", secret, "--period", "q")):
        code, _, err = call("perturb", "--round", 2, "--input", records, *other, "--output", tmp_path / "r2")
        assert code == 2
        assert "under another secret or period" in err
    code, _, err = call("perturb", "--round", 1, "--input", records, "--output", tmp_path / "r2")
    assert code == 2
    code, _, err = run("perturb", "--collection", auto(), *first, "--output", tmp_path / "r2")
    assert code == 2
    assert "--round 1" in err
    other = auto("share = 0.5", name="other.toml")
    code, _, err = run(
        "perturb",
        "--collection",
        other,
        "--state",
        tmp_path / "state",
        "--round",
        2,
        *first,
        "--output",
        tmp_path / "r2",
    )
    assert code == 2
    assert "another collection definition" in err


def test_a_changed_resolved_definition_is_refused(auto, records, run, secret, tmp_path):
    state = tmp_path / "state"
    steps = ("--collection", auto(), "--state", state)
    first = ("--input", records, "--secret-file", secret, "--period", "p")
    assert run("perturb", *steps, "--round", 1, *first, "--output", tmp_path / "r1")[0] == 0
    assert run("aggregate", *steps, "--round", 1, "--input", tmp_path / "r1", "--output", tmp_path / "l")[0] == 0
    text = (state / "resolved.toml").read_text()
    (state / "resolved.toml").write_text(text.replace("epsilon = 4", "epsilon = 5"))
    code, _, err = run("perturb", *steps, "--round", 2, *first, "--output", tmp_path / "r2")
    assert code == 2
    assert "was changed" in err


def test_the_ledger_charges_every_user_once(auto, records, run, run_json, secret, tmp_path):
    definition, book, state = auto(), tmp_path / "ledger.db", tmp_path / "state"
    run("ledger", "set-budget", "--ledger", book, "--epsilon", "4")
    private = ("--secret-file", secret, "--period", "p", "--ledger", book)
    steps = ("--collection", definition, "--state", state, "--input", records)
    run_json("perturb", *steps, "--round", 1, *private, "--output", tmp_path / "r1")
    assert Ledger(book).spent() == Decimal(4)
    answered = ("--input", tmp_path / "r1", "--output", tmp_path / "l")
    assert run("aggregate", *steps[:4], "--round", 1, *answered)[0] == 0
    for output in ("r2", "again"):
        run_json("perturb", *steps, "--round", 2, *private, "--output", tmp_path / output)
        assert Ledger(book).spent() == Decimal(4)
    changed = [(user, held[:1]) for user, held in crowd(6_000)]
    from_others = (*steps[:4], "--input", write_again(tmp_path, changed))
    code, _, err = run("perturb", *from_others, "--round", 2, *private, "--output", tmp_path / "other")
    assert code == 1
    assert "lifetime budget" in err


def write_again(folder, people):
    import pyarrow as pa

    items = [[{"key": k, "value": v} for k, v in held] for _, held in people]
    path = folder / "changed.parquet"
    pq.write_table(pa.table({"user_id": [u for u, _ in people], "items": items}), path)
    return path


def test_one_run_is_charged_once_and_its_repetition_is_free(auto, records, run_json, secret, tmp_path):
    book = tmp_path / "ledger.db"
    for output in ("a", "b"):
        arguments = ("--secret-file", secret, "--period", "p", "--ledger", book, "--output", tmp_path / output)
        manifest = run_json("collect", "--collection", auto(), "--input", records, *arguments)
        assert Ledger(book).spent() == Decimal(4)
    assert [entry.state for entry in Ledger(book).entries()] == ["charged", "repeated"]
    assert manifest["epsilon"]["ledger"]["reports"] == 6_000


def test_too_few_users_get_the_fallback_and_are_told(auto, nested, run_json, run, tmp_path):
    definition = auto("fallback = 2", epsilon="1")
    arguments = ("--collection", definition, "--input", nested(crowd(400)), "--seed", 1)
    manifest = run_json("collect", *arguments, "--output", tmp_path / "o")
    assert manifest["mechanism"]["padding"]["trusted"] is False
    assert manifest["collection"]["padding"] == 2
    assert any("too few" in warning for warning in manifest["warnings"])
    _, _, err = run("collect", *arguments, "--output", tmp_path / "p")
    assert "Padding 2: " in err
    assert "too few" in err


def test_reports_of_both_questions_can_be_kept(auto, records, run_json, tmp_path):
    arguments = ("--input", records, "--seed", 1, "--keep-reports", tmp_path / "kept", "--output", tmp_path / "o")
    manifest = run_json("collect", "--collection", auto(), *arguments)
    rows = [sum(pq.read_table(f).num_rows for f in (tmp_path / n).iterdir()) for n in ("kept", "kept-length")]
    assert rows == [manifest["reports"]["counted"], manifest["reports"]["length_question"]]


@pytest.mark.parametrize(
    ("mechanism", "more"), [("psfo-oue", ""), ("psfo-grr", ""), ("percentiles", "bins = 4\noracle = 'psfo-grr'")]
)
def test_every_padded_mechanism_can_leave_it_to_the_users(nested, run_json, tmp_path, mechanism, more):
    values = "[values]\nrange = [-1, 1]\n" if mechanism == "percentiles" else ""
    definition = tmp_path / "c.toml"
    definition.write_text(
        f'name = "x"\nmechanism = "{mechanism}"\nepsilon = 4\npadding = "auto"\n{more}\n'
        f"[keys]\nlist = {json.dumps(KEYS)}\n{values}[auto]\ncap = 8\nshare = 0.3\n"
    )
    assert isinstance(Collection.load(definition).mechanism, AutoPadding)
    arguments = ("--collection", definition, "--input", nested(crowd(4_000)), "--seed", 1)
    manifest = run_json("collect", *arguments, "--output", tmp_path / "o")
    assert manifest["collection"]["padding"] == HELD


def test_a_run_with_pairs_and_threads_gives_the_same(auto, records, nested, run_json, tmp_path):
    rows = ["user_id,key,value", *(f"{user},{key},{value}" for user, held in crowd(6_000) for key, value in held)]
    pairs = tmp_path / "pairs.csv"
    pairs.write_text("\n".join(rows) + "\n")
    for source, output, more in ((records, "a", ()), (pairs, "b", ("--workers", 2))):
        run_json(
            "collect", "--collection", auto(), "--input", source, "--seed", 1, "--output", tmp_path / output, *more
        )
    assert estimates(tmp_path / "a").equals(estimates(tmp_path / "b"))
    counts = [pq.read_table(tmp_path / n / "counts.parquet") for n in ("a", "b")]
    assert counts[0].equals(counts[1])
