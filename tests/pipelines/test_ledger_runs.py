"""Runs that charge a ledger, and memoised collection."""

import re
import stat

import numpy as np
import pyarrow.parquet as pq
import pytest
from ldp_beam.pipelines.ledger import Ledger


@pytest.fixture
def collection(define):
    return define(epsilon="1")


@pytest.fixture
def secret(run, tmp_path):
    assert run("secret", "new", tmp_path / "s.hex")[0] == 0
    return tmp_path / "s.hex"


@pytest.fixture
def ledger(tmp_path):
    return tmp_path / "ledger.sqlite"


def states(ledger):
    return [entry.state for entry in Ledger(ledger).entries()]


@pytest.mark.parametrize("verb", ["collect", "perturb"])
def test_a_run_is_charged_once_per_period_and_repeats_are_free(
    verb, collection, secret, ledger, nested, people, run_json, tmp_path
):
    given = (verb, "--collection", collection, "--input", nested(people(200)), "--secret-file", secret)
    first = run_json(*given, "--period", "1", "--ledger", ledger, "--output", tmp_path / "a")
    assert first["epsilon"]["spent_per_user"] == "1"
    assert first["epsilon"]["ledger"]["state"] == "charged"
    assert first["epsilon"]["ledger"]["reports"] == 200
    again = run_json(*given, "--period", "1", "--ledger", ledger, "--output", tmp_path / "b")
    assert again["epsilon"]["spent_per_user"] == "0"
    assert again["epsilon"]["ledger"]["state"] == "repeated"
    other = run_json(*given, "--period", "2", "--ledger", ledger, "--output", tmp_path / "c")
    assert other["epsilon"]["ledger"]["spent_so_far"] == "2"
    assert states(ledger) == ["charged", "repeated", "charged"]


def test_collect_and_perturb_of_the_same_reports_are_one_spend(
    collection, secret, ledger, nested, people, run_json, tmp_path
):
    """The digest knows neither workers nor verbs nor the order of the input."""
    everybody = people(500)
    more = ("--secret-file", secret, "--period", "1", "--ledger", ledger, "--collection", collection)
    run_json("collect", *more, "--input", nested(everybody), "--output", tmp_path / "a")
    backwards = nested(everybody[::-1], "back.parquet", row_group_size=50)
    said = run_json("perturb", *more, "--input", backwards, "--workers", 3, "--output", tmp_path / "b")
    assert said["epsilon"]["ledger"]["state"] == "repeated"


def test_changed_data_are_charged_again(collection, secret, ledger, nested, people, run_json, tmp_path):
    more = ("--secret-file", secret, "--period", "1", "--ledger", ledger, "--collection", collection)
    everybody = people(200)
    run_json("collect", *more, "--input", nested(everybody), "--output", tmp_path / "a")
    everybody = [(user, [("cherry", 0.125)]) for user, _ in everybody]  # one change alone may give the same report
    said = run_json("collect", *more, "--input", nested(everybody, "b.parquet"), "--output", tmp_path / "b")
    assert said["epsilon"]["ledger"]["state"] == "charged"
    assert Ledger(ledger).spent() == 2


def test_fresh_secrets_are_charged_each_time(collection, ledger, nested, people, run_json, tmp_path):
    for name in "ab":
        run_json(
            "collect", "--collection", collection, "--input", nested(people(50)), "--ledger", ledger,
            "--output", tmp_path / name,
        )  # fmt: skip
    assert Ledger(ledger).spent() == 2


def test_a_budget_refuses_before_anything_runs(collection, ledger, nested, people, run, run_json, tmp_path):
    said = run_json("ledger", "set-budget", ledger, "1.5")
    assert said == {"population": "everybody", "spent": "0", "budget": "1.5", "remaining": "1.5"}
    given = ("collect", "--collection", collection, "--input", nested(people(50)), "--ledger", ledger)
    run_json(*given, "--output", tmp_path / "a")
    code, _, err = run(*given, "--output", tmp_path / "b")
    assert code == 2
    assert "1 of the lifetime budget 1.5" in err
    assert not (tmp_path / "b").exists()
    run_json(*given, "--population", "others", "--output", tmp_path / "c")
    shown = run_json("ledger", "show", ledger)
    assert [(row["population"], row["spent"]) for row in shown["populations"]] == [("everybody", "1"), ("others", "1")]
    assert run("ledger", "show", "--ledger", ledger)[0] == 0
    assert run_json("ledger", "set-budget", "--ledger", ledger, "--epsilon", "3")["remaining"] == "2"


def test_what_fails_before_it_runs_charges_nothing(collection, ledger, run, tmp_path):
    """B20: an input that matches nothing."""
    code, _, _ = run(
        "collect", "--collection", collection, "--input", tmp_path / "no" / "*.parquet", "--output", tmp_path / "o",
        "--ledger", ledger,
    )  # fmt: skip
    assert code == 2
    assert not ledger.exists()


def test_a_local_run_that_fails_charges_nothing_and_says_so(collection, ledger, nested, run, tmp_path):
    people = [(f"u{i}", [("apple", 7.0)]) for i in range(20)]  # out of range
    code, _, err = run(
        "collect", "--collection", collection, "--input", nested(people), "--output", tmp_path / "o",
        "--ledger", ledger, "--max-rejects", "0.1",
    )  # fmt: skip
    assert code == 1
    assert "The ledger charged nothing" in err
    assert states(ledger) == ["released"]
    assert Ledger(ledger).spent() == 0


def test_a_damaged_ledger_stops_the_run(collection, ledger, nested, people, run, tmp_path):
    ledger.write_bytes(b"")
    code, _, err = run(
        "collect", "--collection", collection, "--input", nested(people(5)), "--output", tmp_path / "o",
        "--ledger", ledger,
    )  # fmt: skip
    assert code == 2
    assert "damaged" in err
    assert not (tmp_path / "o").exists()


# -- memoised collection ------------------------------------------------------------------------------------------


@pytest.fixture
def memoised(collection, secret, ledger, tmp_path, run_json, nested):
    """Return a function that perturbs people in a period and returns manifest and reports, one row a report."""

    def perturb(everybody, period, states=3, verb="perturb"):
        out = tmp_path / f"{verb}-{period}"
        manifest = run_json(
            verb, "--collection", collection, "--input", nested(everybody, f"{period}.parquet"), "--output", out,
            "--secret-file", secret, "--period", period, "--memoise", tmp_path / "memo", "--memoise-states", states,
            "--ledger", ledger,
        )  # fmt: skip
        rows = [] if verb == "collect" else pq.read_table(list(out.glob("*.parquet"))).to_pylist()
        return manifest, sorted((row["plus"], row["minus"]) for row in rows)

    return perturb


def test_an_unchanged_record_repeats_its_report_for_nothing(memoised, people, tmp_path):
    everybody = people(100)
    first, reports = memoised(everybody, "1")
    assert first["epsilon"]["ledger"]["state"] == "charged"
    second, same = memoised(everybody, "2")
    assert second["epsilon"]["ledger"]["state"] == "repeated"
    assert same == reports
    everybody[3] = ("user-3", [("cherry", 0.125)])
    third, changed = memoised(everybody, "3")
    assert third["epsilon"]["ledger"]["state"] == "charged"
    assert third["epsilon"]["ledger"]["spent_so_far"] == "2"
    assert len(set(map(str, changed)) ^ set(map(str, reports))) <= 2
    assert stat.S_IMODE((tmp_path / "memo").stat().st_mode) == 0o600


def test_averaging_fifty_periods_gains_nothing_for_unchanged_users(secret, define):
    """Fifty periods of fresh reports average the noise away; fifty of memoised ones are one report."""
    from ldp_beam.mechanisms import Secret
    from ldp_beam.mechanisms.records import make_records
    from ldp_beam.transforms.collection import Collection
    from ldp_beam.transforms.memo import MEMOISED_PERIOD

    collection, users = Collection.load(define(epsilon="2", padding=1)), 400
    key = Secret.from_hex(secret.read_text())
    records = make_records(key.users(), range(users), [{i % 3: 1.0} for i in range(users)])

    def average(period_of):
        total = np.zeros((users, 3))
        for period in range(50):
            stream = key.stream(fingerprint=collection.fingerprint, period=period_of(period))
            reports = collection.mechanism.perturb(records, stream)
            total += np.unpackbits(reports.arrays["plus"], axis=1, count=3, bitorder="little")
        return total / 50

    held = np.arange(users) % 3
    fresh = average(lambda period: f"p{period}").argmax(axis=1) == held
    memoised = average(lambda period: MEMOISED_PERIOD)
    once = memoised == 1
    # fresh reports give nearly everybody's key away; memoised ones are 0 or 1 after fifty periods as after one
    assert fresh.mean() > 0.95
    assert ((memoised == 0) | (memoised == 1)).all()
    assert once[np.arange(users), held].mean() < 0.5


def test_the_cap_holds_whatever_the_data_do(memoised, people, collection):
    """A user who changes in every period reports on two states and repeats the last from then on."""
    seen = []
    for period in range(5):
        everybody = people(30)
        everybody[0] = ("user-0", [("apple", period / 8)])
        manifest, reports = memoised(everybody, str(period), states=2)
        seen.append(reports)
    assert seen[1] == seen[2] == seen[3] == seen[4]
    assert manifest["epsilon"]["ledger"]["spent_so_far"] == "2"


def test_states_of_a_refused_run_are_charged_when_they_are_sent(memoised, people, run, run_json, ledger, tmp_path):
    """A run that the budget refuses has noted its new states already; they are not free for that."""
    run_json("ledger", "set-budget", ledger, "1")
    everybody = people(20)
    memoised(everybody, "1")
    everybody[0] = ("user-0", [("cherry", 0.125)])
    with pytest.raises(AssertionError, match="refuses this run"):
        memoised(everybody, "2")
    assert Ledger(ledger).spent() == 1
    run_json("ledger", "set-budget", ledger, "2")
    said, _ = memoised(everybody, "3")
    assert said["epsilon"]["ledger"]["state"] == "charged"
    assert Ledger(ledger).spent() == 2


def test_memoised_periods_are_not_pooled(memoised, people, collection, run, run_json, tmp_path):
    for period in ("1", "2"):
        memoised(people(50), period)
        memoised(people(50), period, verb="collect")
    inputs = (tmp_path / "perturb-1", tmp_path / "perturb-2")
    code, _, err = run("aggregate", "--collection", collection, "--input", *inputs, "--output", tmp_path / "o")
    assert code == 2
    assert re.search("memoised reports of 2 periods", err)
    counts = [folder / "counts.parquet" for folder in (tmp_path / "collect-1", tmp_path / "collect-2")]
    assert run("aggregate", "--collection", collection, "--input", *counts, "--output", tmp_path / "o")[0] == 2
    said = run_json(
        "aggregate", "--collection", collection, "--input", *inputs, "--period", "2", "--output", tmp_path / "o"
    )
    assert said["reports"]["counted"] == 50
    assert said["reports"]["refused_files"] == 1


@pytest.mark.parametrize(
    ("more", "message"),
    [
        (("--memoise", "m"), "belong together"),
        (("--memoise-states", 2), "belong together"),
        (("--memoise", "m", "--memoise-states", 2), "needs --secret-file"),
        (("--memoise", "m", "--memoise-states", 2, "--seed", 1), "needs --secret-file"),
        (("--population", "x"), "give --ledger"),
    ],
)
def test_options_that_do_not_fit_together(more, message, collection, nested, people, run, tmp_path):
    code, _, err = run(
        "collect", "--collection", collection, "--input", nested(people(5)), "--output", tmp_path / "o", *more
    )
    assert code == 2
    assert message in err


def test_a_memo_belongs_to_one_collection_and_secret(memoised, people, define, nested, secret, run, tmp_path):
    memoised(people(10), "1")
    code, _, err = run(
        "perturb", "--collection", define("other.toml", epsilon="2"), "--input", nested(people(10)),
        "--output", tmp_path / "o", "--secret-file", secret, "--period", "1",
        "--memoise", tmp_path / "memo", "--memoise-states", 3,
    )  # fmt: skip
    assert code == 2
    assert "not the memo of this collection" in err
