"""Collections in rounds over the command line: both halves over files, the whole in one run, and what is refused."""

import json
import shutil

import numpy as np
import pyarrow.parquet as pq
import pytest
from ldp_beam.errors import RunError
from ldp_beam.pipelines import rounds as rounds_module
from ldp_beam.pipelines.evaluate import read_estimates

DEFINITION = """
name = "fruit"
mechanism = "{mechanism}"
epsilon = {epsilon}
{more}
[keys]
list = ["apple", "banana", "cherry"]
[values]
range = [-1, 1]
"""


@pytest.fixture
def ask(tmp_path):
    """Return a function that writes a definition and returns its path."""

    def write(mechanism="privkvm", epsilon="3", more="[privkv]\nrounds = 2", name="rounds.toml"):
        path = tmp_path / name
        path.write_text(DEFINITION.format(mechanism=mechanism, epsilon=epsilon, more=more), encoding="utf-8")
        return path

    return write


@pytest.fixture
def secrets(tmp_path, run):
    """Options with the clients' secret, and with the server's."""
    for name in ("clients.hex", "server.hex"):
        assert run("secret", "new", tmp_path / name)[0] == 0
    return (
        ("--secret-file", tmp_path / "clients.hex", "--period", "p1"),
        ("--server-secret-file", tmp_path / "server.hex"),
    )


def counts_of(folder):
    return (folder / "counts.parquet").read_bytes()


def test_halves_over_files_give_the_bytes_of_collect(ask, nested, people, secrets, run_json, tmp_path):
    clients, server = secrets
    definition, records, state = ask(), nested(people(400)), tmp_path / "state"
    given = ("--collection", definition, "--input", records, *clients)
    whole = run_json("collect", *given, *server, "--output", tmp_path / "whole", "--ledger", tmp_path / "ledger")
    assert whole["epsilon"]["spent_per_user"] == whole["epsilon"]["declared"] == "3"
    assert whole["epsilon"]["unspent"] == "0"
    assert [one["reports"] for one in whole["epsilon"]["rounds"]] == [400, 400]
    assert whole["epsilon"]["exact"] == whole["epsilon"]["exact_of_rounds"] < 3
    assert whole["epsilon"]["ledger"]["spent_so_far"] == "3"
    spent = []
    for number in (1, 2):
        at = ("--round", number, "--state", state)
        reports, result = tmp_path / f"reports{number}", tmp_path / f"result{number}"
        format_ = ("parquet", "avro")[number - 1]
        sent = run_json("perturb", *given, *at, "--output", reports, "--format", format_)
        assert sent["epsilon"]["round"] == number
        spent.append(sent["epsilon"]["spent_per_user"])
        counted = run_json(
            "aggregate", "--collection", definition, "--input", reports, *at, *server, "--output", result
        )
        assert counted["reports"] == {"counted": 400, "malformed": 0}
        assert counted["epsilon"]["ended"] == (number == 2)
        assert counted["epsilon"]["spent_per_user"] == "0"
    assert spent == ["2.25", "0.75"]
    assert counts_of(tmp_path / "result2") == counts_of(tmp_path / "whole")
    assert (tmp_path / "result2" / "estimates.parquet").read_bytes() == (
        tmp_path / "whole" / "estimates.parquet"
    ).read_bytes()
    assert set(pq.read_table(tmp_path / "whole" / "counts.parquet")["round"].to_pylist()) == {1, 2}
    # stored counts can be estimated anew
    stored = tmp_path / "whole" / "counts.parquet"
    run_json("aggregate", "--collection", definition, "--input", stored, "--output", tmp_path / "anew")
    assert counts_of(tmp_path / "anew") == counts_of(tmp_path / "whole")
    assert read_estimates(tmp_path / "anew").equals(read_estimates(tmp_path / "whole"))
    # what lies in the folder: no estimate for clients, no user id for anybody
    feedback = pq.read_table(state / "feedback-round-2.parquet")
    assert [(field.name, field.type.byte_width) for field in feedback.schema] == [("user", 16), ("signs", 1)]
    assert feedback.num_rows == 400
    assert json.loads((state / "status.json").read_text())["done"] is True
    assert (state / "state-after-round-2.npz").stat().st_mode & 0o077 == 0
    assert not any(b"user-1" in file.read_bytes() for file in state.iterdir())


@pytest.fixture
def begun(ask, nested, people, run_json, tmp_path):
    """The first round answered and counted; options of both halves, and the state folder."""
    definition, state = ask(), tmp_path / "state"
    given = ("--collection", definition, "--seed", 4, "--input", nested(people(60)))
    at = ("--round", 1, "--state", state)
    run_json("perturb", *given, *at, "--output", tmp_path / "r1")
    count = ("--collection", definition, "--input", tmp_path / "r1")
    run_json("aggregate", *count, *at, "--output", tmp_path / "o1")
    return given, ("--collection", definition), state


def test_a_round_is_answered_and_counted_once(begun, nested, people, run, run_json, tmp_path):
    given, count, state = begun
    out = tmp_path / "out"

    def refused(*arguments):
        code, _, said = run(*arguments, "--output", out)
        assert code == 2
        assert not out.exists()
        return said

    first, second, third = (("--round", number, "--state", state) for number in (1, 2, 3))
    r1, r2 = tmp_path / "r1", tmp_path / "r2"
    # what is closed stays closed
    assert "--round 1 is closed" in refused("perturb", *given, *first)
    assert "--round 1 is closed" in refused("aggregate", *count, "--input", r1, *first)
    assert "has rounds 1 to 2" in refused("perturb", *given, *third)
    # reports of another round are not those of this one
    assert "holds reports of round 1" in refused("aggregate", *count, "--input", r1, *second)
    run_json("perturb", *given, *second, "--output", r2)
    assert "have answered round 2 already" in refused("perturb", *given, *second)
    # the same reports under another name
    (file,) = r2.glob("*.parquet")
    shutil.copy(file, r2 / "again.parquet")
    assert "some reports stand twice" in refused("aggregate", *count, "--input", r2, *second)
    (r2 / "again.parquet").unlink()
    # people who did not answer the first round, or under another period
    newcomers = ("--collection", count[1], "--seed", 4, "--input", nested(people(61), "more.parquet"))
    fresh = tmp_path / "fresh"
    shutil.copytree(state, fresh)
    for answers in fresh.glob("answers-round-2-*"):
        answers.unlink()
    assert "did not answer the first round" in refused("perturb", *newcomers, "--round", 2, "--state", fresh)
    assert "All rounds are answered under one period" in refused(
        "perturb", *given, "--period", "other", "--round", 2, "--state", fresh
    )
    assert "does not say who answered round 2" in refused(
        "aggregate", *count, "--input", r2, "--round", 2, "--state", fresh
    )
    run_json("aggregate", *count, "--input", r2, *second, "--output", tmp_path / "o2")
    assert "have ended after round 2" in refused("perturb", *given, *second)
    assert "have ended after round 2" in refused("aggregate", *count, "--input", r2, *second)


def test_a_round_that_is_not_open_yet(ask, nested, people, run, tmp_path):
    definition, records = ask(), nested(people(10))
    code, _, said = run(
        "perturb", "--collection", definition, "--seed", 1, "--input", records,
        "--round", 2, "--state", tmp_path / "s", "--output", tmp_path / "o",
    )  # fmt: skip
    assert code == 2
    assert "--round 2 is not open yet" in said


def test_options_that_do_not_fit_are_refused(ask, define, nested, people, run, tmp_path):
    rounds, once, records = ask(), define(), nested(people(10))
    state = ("--state", tmp_path / "s")
    cases = [
        ("asks in rounds: give --round R", ("perturb", "--collection", rounds, "--seed", 1, "--input", records)),
        ("asks once", ("perturb", "--collection", once, "--seed", 1, "--input", records, "--round", 1, *state)),
        ("asks once", ("collect", "--collection", once, "--seed", 1, "--input", records, *state)),
        ("need --secret-file", ("perturb", "--collection", rounds, "--input", records, "--round", 1, *state)),
        ("needs --secret-file", ("collect", "--collection", rounds, "--input", records, *state)),
    ]
    for message, arguments in cases:
        code, _, said = run(*arguments, "--output", tmp_path / "o")
        assert code == 2, said
        assert message in said
    assert not (tmp_path / "o").exists()


def test_another_definition_does_not_go_on(begun, ask, run, tmp_path):
    given, _, state = begun
    other = ask(epsilon="3.5", name="other.toml")
    code, _, said = run(
        "perturb", "--collection", other, *given[2:], "--round", 2, "--state", state, "--output", tmp_path / "o"
    )
    assert code == 2
    assert "another collection definition" in said


def test_a_stopped_collect_goes_on_where_it_was(ask, nested, people, run, run_json, monkeypatch, tmp_path):
    given = ("--collection", ask(more="[privkv]\nrounds = 3"), "--seed", 4, "--input", nested(people(60)))
    run_json("collect", *given, "--output", tmp_path / "unbroken")
    job, done = rounds_module._ask, []

    def stops(*arguments):
        if len(done) == 1:
            raise RunError("the power went out")
        done.append(1)
        return job(*arguments)

    monkeypatch.setattr(rounds_module, "_ask", stops)
    state, out = tmp_path / "state", tmp_path / "out"
    assert run("collect", *given, "--state", state, "--output", out)[0] == 1
    assert not out.exists()
    asked = []
    monkeypatch.setattr(rounds_module, "_ask", lambda *given: asked.append(given[3].round) or job(*given))
    run_json("collect", *given, "--state", state, "--output", out)
    assert asked == [2, 3]
    assert counts_of(out) == counts_of(tmp_path / "unbroken")
    code, _, said = run("collect", *given, "--state", state, "--output", tmp_path / "again")
    assert code == 2
    assert "have ended" in said


def test_records_that_change_between_rounds_are_noticed(ask, nested, people, run, monkeypatch, tmp_path):
    given = ("--collection", ask(), "--seed", 4, "--input", nested(people(60)))
    job = rounds_module._ask

    def loses(*arguments):
        counts, *rest = job(*arguments)
        return (counts if arguments[3].round == 1 else type(counts)(n=59, cells=counts.cells), *rest)

    monkeypatch.setattr(rounds_module, "_ask", loses)
    code, _, said = run("collect", *given, "--output", tmp_path / "out")
    assert code == 1
    assert "all rounds ask the same users" in said


def test_privkvm_plus_says_what_it_did_not_spend(ask, nested, people, run_json, tmp_path):
    definition = ask("privkvm+", "4", "[privkv]\nA0 = 2\nmax_rounds = 4")
    manifest = run_json(
        "collect", "--collection", definition, "--seed", 1, "--input", nested(people(60)),
        "--output", tmp_path / "o", "--keep-reports", tmp_path / "r",
    )  # fmt: skip
    said = manifest["epsilon"]
    assert said["ended"]
    assert len(said["rounds"]) == 2  # at a cost of 2 no third round can pay
    assert (said["spent_per_user"], said["unspent"]) == ("3.5", "0.5")
    assert said["exact_of_rounds"] < said["exact"] < 4
    kept = {file["name"]: file for file in manifest["files"] if file["kind"] == "reports"}
    assert sorted(file["round"] for file in kept.values()) == [1, 2]
    for name, file in kept.items():
        metadata = pq.read_schema(tmp_path / "r" / name).metadata
        assert metadata[b"ldp_beam.round"].decode() == str(file["round"])
        assert metadata[b"ldp_beam.round_epsilon"].decode() == ("3", "0.5")[file["round"] - 1]
        assert set(json.loads(metadata[b"ldp_beam.round_thresholds"])) == {
            "kept_with_sign", "kept", "other", "other_plus",
        }  # fmt: skip


@pytest.mark.parametrize("mechanism", ["privkv", "kvue", "privkvm-harmony", "privkvm-meanest"])
def test_every_mechanism_of_the_family_collects(mechanism, ask, nested, people, run_json, tmp_path):
    more = {"privkv": 'estimator = "virtual-same-key"\nallocation = "optimized"', "kvue": ""}
    definition = ask(mechanism, "8", more.get(mechanism, "[privkv]\nrounds = 1"))
    everybody = [(f"u{i}", [("apple", 0.5)] if i % 2 else []) for i in range(3000)]
    records = nested(everybody)
    run_json("collect", "--collection", definition, "--seed", 1, "--input", records, "--output", tmp_path / "o")
    apple = read_estimates(tmp_path / "o").to_pylist()[0]
    assert apple["n"] == 3000
    assert abs(apple["frequency"] - 0.5) < 7 * apple["frequency_se"]
    assert abs(apple["mean_raw"] - 0.5) < 7 * apple["mean_se"] < 2
    assert np.isfinite(apple["mean"])


def test_a_pipeline_of_ones_own_asks_one_round(ask):
    from ldp_beam.errors import ParameterError
    from ldp_beam.mechanisms import Secret
    from ldp_beam.transforms.collection import Collection
    from ldp_beam.transforms.perturb import PerturbRecords

    collection = Collection.load(ask())
    with pytest.raises(ParameterError, match="asks in rounds"):
        PerturbRecords(collection, Secret.from_seed(1))
    one = collection.for_round(collection.mechanism.for_round(collection.mechanism.initial()))
    assert one.fingerprint == collection.fingerprint
    assert one.header("reports").round == 1
    PerturbRecords(one, Secret.from_seed(1))
