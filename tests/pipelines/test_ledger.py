"""The ledger: exact sums, all or none, durable before the first report, safe with several processes at once."""

import os
import signal
import sqlite3
import stat
import subprocess
import sys
import textwrap
from decimal import Decimal
from fractions import Fraction

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from ldp_beam.errors import InputError, RunError
from ldp_beam.pipelines.ledger import Ledger, Spend, decimal_of


def spend(epsilon="1", **more):
    fields = {
        "population": "everybody",
        "collection": "fruit",
        "fingerprint": "f" * 64,
        "mechanism": "pckv-ue",
        "period": "p1",
        "secret_id": "0123456789abcdef",
    }
    return Spend(epsilon=Decimal(epsilon), **(fields | more))


@pytest.fixture
def ledger(tmp_path):
    return Ledger(tmp_path / "ledger.sqlite", create=True)


def pay(ledger, epsilon="1", digest="", **more):
    """Reserve and charge; every call is another period unless one is named."""
    pay.calls = getattr(pay, "calls", 0) + 1
    number = ledger.reserve(spend(epsilon, **({"period": f"call {pay.calls}"} | more)))
    return ledger.settle(number, reports=10, digest=digest or f"digest {pay.calls}")


# -- sums -----------------------------------------------------------------------------------------------------


def test_ten_tenths_fill_a_budget_of_one_exactly(ledger):
    """B13: a sum of floats comes to a hair beside 1."""
    ledger.set_budget("1.0")
    for _ in range(10):
        pay(ledger, "0.1")
    assert ledger.spent() == 1
    with pytest.raises(InputError, match="refuses this run: 1 of the lifetime budget 1 "):
        pay(ledger, "0.1")
    with pytest.raises(InputError, match="refuses this run"):
        ledger.reserve(spend(Decimal("5e-324")))
    assert ledger.spent() == 1
    assert len(ledger.entries()) == 10


def test_a_tenth_and_two_tenths_are_three_tenths(ledger):
    ledger.set_budget("0.3")
    pay(ledger, "0.1")
    pay(ledger, "0.2")
    assert ledger.spent() == Decimal("0.3")


def test_a_thousand_spends_of_a_thousandth(ledger):
    ledger.set_budget(1)
    with ledger._change() as connection:  # the rows of 999 runs at once, as `reserve` and `settle` leave them
        one = ("charged", "everybody", "c", "f", "m", "p", 0, "s", "0.001", "t")
        connection.executemany(
            "INSERT INTO spends (state, population, collection, fingerprint, mechanism, period, round, secret_id,"
            " epsilon, started) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?)",
            [one] * 999,
        )
    pay(ledger, "0.001")
    assert ledger.spent() == 1
    with pytest.raises(InputError, match="refuses"):
        pay(ledger, "0.001")


def test_the_smallest_spend_is_not_lost(ledger):
    pay(ledger, "1")
    pay(ledger, "5e-324")
    assert Fraction(ledger.spent()) == 1 + Fraction(Decimal("5e-324"))


@settings(max_examples=20)
@given(st.lists(st.decimals(min_value="0.001", max_value=20, places=6), min_size=1, max_size=8))
def test_sums_equal_those_of_fractions(tmp_path_factory, epsilons):
    ledger = Ledger(tmp_path_factory.mktemp("sum") / "l", create=True)
    for epsilon in epsilons:
        ledger.reserve(spend(epsilon))
    assert Fraction(ledger.spent()) == sum(Fraction(epsilon) for epsilon in epsilons)


@pytest.mark.parametrize("given_", ["0", "-1", "nan", "inf", "one", "", "1e-3000", None])
def test_what_is_no_epsilon_is_refused(given_):
    with pytest.raises((InputError, TypeError)):
        decimal_of(given_)


# -- charges ----------------------------------------------------------------------------------------------------


def test_a_re_run_is_free_only_if_everything_matches(ledger):
    def run(**changes):
        digest = changes.pop("digest", "same")
        reports = changes.pop("reports", 10)
        number = ledger.reserve(spend(**changes))
        return ledger.settle(number, reports=reports, digest=digest).state

    assert run() == "charged"
    assert run() == "repeated"
    assert ledger.spent() == 1
    for number, changes in enumerate(
        (
            {"digest": "other"},
            {"reports": 11},
            {"secret_id": "another"},
            {"fingerprint": "e" * 64},
            {"period": "p2"},
            {"round": 2},
            {"epsilon": "2"},
        ),
        start=2,
    ):
        assert run(**changes) == "charged", changes
        assert ledger.spent() >= number
    assert run(population="others") == "charged"
    assert ledger.spent("others") == 1


def test_a_repeat_is_let_through_at_the_end_of_the_budget_and_nothing_else(ledger):
    ledger.set_budget(1)
    ledger.settle(ledger.reserve(spend()), reports=10, digest="a")
    again = ledger.reserve(spend())
    assert ledger.settle(again, reports=10, digest="a").state == "repeated"
    different = ledger.reserve(spend())
    with pytest.raises(RunError, match="its reports are different ones"):
        ledger.settle(different, reports=10, digest="b")
    assert ledger.spent() == 1
    with pytest.raises(InputError, match="refuses"):
        ledger.reserve(spend(period="p2"))


def test_a_run_without_reports_is_free(ledger):
    assert ledger.settle(ledger.reserve(spend()), reports=0, digest="0").state == "repeated"
    assert ledger.spent() == 0


def test_memoised_reports_are_charged_if_any_is_new(ledger):
    ledger.set_budget(1)
    first = ledger.reserve(spend(), tentative=True)
    assert ledger.settle(first, reports=10, digest="a", fresh=10).state == "charged"
    later = ledger.reserve(spend(period="p2"), tentative=True)
    assert ledger.settle(later, reports=10, digest="a", fresh=0).state == "repeated"
    changed = ledger.reserve(spend(period="p3"), tentative=True)
    with pytest.raises(RunError, match="refuses this run"):
        ledger.settle(changed, reports=10, digest="b", fresh=1)
    assert ledger.spent() == 1


def test_a_reservation_counts_until_it_is_settled_or_released(ledger):
    ledger.set_budget(1)
    number = ledger.reserve(spend())
    assert ledger.spent() == 1
    with pytest.raises(InputError, match="refuses"):
        ledger.reserve(spend(period="p2"))
    ledger.release(number)
    assert ledger.spent() == 0
    ledger.release(number)
    settled = pay(ledger)
    ledger.release(settled.entry)  # what is charged stays charged
    assert ledger.spent() == 1


def test_budgets_of_populations_are_their_own(ledger):
    ledger.set_budget(1, "adults")
    ledger.set_budget("0.5", "adults")
    assert ledger.budget("adults") == Decimal("0.5")
    assert ledger.budget() is None
    pay(ledger, 5)
    with pytest.raises(InputError, match="population 'adults'"):
        pay(ledger, 1, population="adults")
    said = {row["population"]: row for row in ledger.as_json()["populations"]}
    assert said["everybody"] == {"population": "everybody", "spent": "5", "budget": None, "remaining": None}
    assert said["adults"] == {"population": "adults", "spent": "0", "budget": "0.5", "remaining": "0.5"}


# -- the file -------------------------------------------------------------------------------------------------------


def test_only_the_owner_reads_it(ledger):
    assert stat.S_IMODE(ledger.path.stat().st_mode) == 0o600
    assert [path.name for path in ledger.path.parent.iterdir()] == ["ledger.sqlite"]


def test_a_missing_or_damaged_file_is_not_an_empty_ledger(tmp_path, ledger):
    with pytest.raises(InputError, match="does not exist"):
        Ledger(tmp_path / "absent")
    empty = tmp_path / "empty"
    empty.touch()
    text = tmp_path / "text"
    text.write_text("spent nothing\n" * 100)
    other = tmp_path / "other"
    sqlite3.connect(other).executescript("CREATE TABLE t (x); INSERT INTO t VALUES (1)")
    for path, what in ((empty, "damaged"), (text, "damaged"), (other, "no ledger")):
        for create in (False, True):
            with pytest.raises(InputError, match=what):
                Ledger(path, create=create)
    for _ in range(60):
        pay(ledger, "0.01")
    whole = ledger.path.read_bytes()
    for damage in (whole[: len(whole) // 2], whole[:4096] + bytes(len(whole) - 4096), whole[:-4096]):
        ledger.path.write_bytes(damage)
        with pytest.raises(InputError, match="damaged"):
            Ledger(ledger.path)
    ledger.path.write_bytes(whole.replace(b"0.01", b"none"))
    with pytest.raises(InputError, match="damaged"):
        Ledger(ledger.path)
    ledger.path.write_bytes(whole)
    assert Ledger(ledger.path).spent() == Decimal("0.6")


def test_paths_with_characters_of_urls(tmp_path):
    ledger = Ledger(tmp_path / "a?b#c%20 d", create=True)
    pay(ledger)
    assert Ledger(ledger.path).spent() == 1


def test_a_process_that_dies_leaves_its_reservation(tmp_path):
    path = tmp_path / "ledger.sqlite"
    code = f"""
        import os, signal
        from decimal import Decimal
        from ldp_beam.pipelines.ledger import Ledger, Spend
        ledger = Ledger({str(path)!r}, create=True)
        ledger.reserve(Spend(population="everybody", collection="c", fingerprint="f", mechanism="m", period="p",
                             secret_id="s", epsilon=Decimal("0.7")))
        os.kill(os.getpid(), signal.SIGKILL)
    """
    done = subprocess.run([sys.executable, "-c", textwrap.dedent(code)], check=False)
    assert done.returncode == -signal.SIGKILL
    assert Ledger(path).spent() == Decimal("0.7")


def test_processes_at_once_never_overspend(tmp_path):
    """Six processes of ten spends each, of which the budget allows 25 in all."""
    path = tmp_path / "ledger.sqlite"
    code = f"""
        import sys
        from decimal import Decimal
        from ldp_beam.errors import InputError
        from ldp_beam.pipelines.ledger import Ledger, Spend
        ledger = Ledger({str(path)!r}, create=True)
        ledger.set_budget("2.5")
        paid = 0
        for i in range(10):
            one = Spend(population="everybody", collection="c", fingerprint="f", mechanism="m",
                        period=sys.argv[1] + str(i), secret_id="s", epsilon=Decimal("0.1"))
            try:
                ledger.settle(ledger.reserve(one), reports=1, digest=sys.argv[1] + str(i))
                paid += 1
            except InputError:
                pass
        print(paid)
    """
    environment = {**os.environ, "PYTHONWARNINGS": "ignore"}
    running = [
        subprocess.Popen(
            [sys.executable, "-c", textwrap.dedent(code), name], stdout=subprocess.PIPE, text=True, env=environment
        )
        for name in "abcdef"
    ]
    paid = [int(process.communicate(timeout=120)[0]) for process in running]
    assert sum(paid) == 25
    ledger = Ledger(path)
    assert ledger.spent() == Decimal("2.5")
    assert len(ledger.entries()) == 25
