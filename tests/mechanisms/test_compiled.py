"""The compiled loops give the bits that NumPy gives, and are used where they pay."""

import importlib
import subprocess
import sys

import numpy as np
import pytest
from ldp_beam.errors import InputError
from ldp_beam.mechanisms import VALUE_ONE, Records, Secret, compiled, make_mechanism
from ldp_beam.mechanisms.unary import column_sums

pytest.importorskip("numba")
SECRET = Secret.from_seed(5)
USERS = (0, 1, 15, 16, 255, 256, 3_000, 40_000)


@pytest.fixture(scope="module", autouse=True)
def _loaded():
    assert compiled.available()


def both(make):
    """What `make` returns with NumPy and with the compiled loops."""
    found = []
    for use in (False, True):
        with compiled.forced(use) as used:
            assert used == use
            found.append(make())
    return found


def people(users, keys, *, values, most, seed=1):
    random = np.random.default_rng(seed)
    sizes = np.minimum(random.integers(0 if most > 1 else 1, most + 1, users), keys)
    offsets = np.concatenate([[0], np.cumsum(sizes)]).astype(np.int64)
    held = [np.sort(random.choice(keys, size, replace=False)) for size in sizes]
    held = np.concatenate([*held, np.empty(0, np.int64)]).astype(np.int32)
    drawn = random.integers(-VALUE_ONE, VALUE_ONE + 1, len(held)) if values else None
    digests = random.integers(0, 256, (users, 16), dtype=np.uint8)
    return Records(users=digests, offsets=offsets, keys=held, values=drawn)


@pytest.mark.parametrize("users", USERS)
@pytest.mark.parametrize(
    ("name", "keys", "given", "most"),
    [
        ("pckv-ue", 1, {"padding": 1}, 1),
        ("pckv-ue", 64, {"padding": 3}, 5),
        ("pckv-ue", 100, {"padding": 1}, 1),
        ("pckv-ue", 129, {"padding": 1, "epsilon": 6}, 3),
        ("pckv-ue", 700, {"padding": 4, "epsilon": "0.2"}, 6),
        ("pckv-grr", 1, {"padding": 1}, 1),
        ("pckv-grr", 100, {"padding": 1}, 1),
        ("pckv-grr", 5_000, {"padding": 7}, 9),
        ("oue", 100, {}, 1),
        ("sue", 30, {}, 1),
        ("psfo-oue", 70, {"padding": 2}, 4),
        ("grr", 2, {}, 1),
        ("grr", 1_000, {}, 3),
        ("psfo-grr", 60, {"padding": 3}, 4),
    ],
)
def test_reports_and_counts_are_the_same(users, name, keys, given, most):
    if users > 3_000 and most > 1:
        users = 3_000
    mechanism = make_mechanism(name, **{"epsilon": 1, "keys": keys, **given})
    records = people(users, keys, values=mechanism.has_values, most=most)
    stream = SECRET.stream(fingerprint="x")

    def collected():
        reports = mechanism.perturb(records, stream)
        return reports, mechanism.count(reports, mechanism.count(reports))

    (reports, counts), (compiled_reports, compiled_counts) = both(collected)
    for array, found in reports.arrays.items():
        np.testing.assert_array_equal(compiled_reports.arrays[array], found)
    assert compiled_counts.n == counts.n == 2 * users
    for cell, found in counts.cells.items():
        np.testing.assert_array_equal(compiled_counts.cells[cell], found)


@pytest.mark.parametrize("words", [2, 4, 18])
@pytest.mark.parametrize("rows", [0, 1, 15, 16, 17, 255, 256, 257, 4_096, 70_001])
def test_columns_are_counted_alike(words, rows):
    random = np.random.default_rng(rows)
    planes = [random.integers(0, 2**64, (rows, words), dtype=np.uint64) for _ in range(2)]
    planes[1][: rows // 2] = 2**64 - 1
    few, many = both(lambda: column_sums(*planes))
    np.testing.assert_array_equal(many, few)
    bits = np.unpackbits(planes[1].view(np.uint8), axis=1, bitorder="little").sum(axis=0, dtype=np.int64)
    np.testing.assert_array_equal(many[1], bits)


EDGES = sorted({max(0, 10**k + by) for k in range(17) for by in (-1, 0, 1)} - {10**16, 10**16 + 1})


@pytest.mark.parametrize(
    "ids",
    [
        EDGES,
        [*EDGES, 10**16, 2**62, -1, -(2**62)],
        list(range(20_000)),
        list(range(99_999_000, 100_001_000)),
        list(range(10**15, 10**15 + 700)),
        [*range(1_000, 1_512), 5, *range(2_000, 3_000)],
    ],
)
def test_integers_have_the_digests_of_their_texts(ids):
    users = SECRET.users()
    texts = [str(one).encode() for one in ids]
    offsets = np.cumsum([0, *map(len, texts)])
    by_text = users.text(offsets, np.frombuffer(b"".join(texts), np.uint8))
    for found in both(lambda: users.integers(np.array(ids, dtype=np.int64))):
        np.testing.assert_array_equal(found, by_text)


def test_small_integers_of_other_types_have_them_too():
    users = SECRET.users()
    ids = np.arange(250, dtype=np.uint8)
    few, many = both(lambda: users.integers(ids))
    np.testing.assert_array_equal(many, few)
    few, many = both(lambda: users.integers(np.arange(1_000, dtype=np.int64)[::3]))
    np.testing.assert_array_equal(many, few)


@pytest.fixture
def fresh(monkeypatch):
    """The module as a new process has it."""
    state = compiled._State()
    monkeypatch.setattr(compiled, "_STATE", state)
    return state


def test_they_are_loaded_after_many_rows_and_not_used_for_few(fresh):
    assert compiled.loops(compiled._ROWS_BEFORE - 1) is None
    assert not fresh.tried
    assert compiled.loops(compiled._FEW) is not None
    assert compiled.loops(compiled._FEW - 1) is None


def test_a_thread_does_not_wait_for_another_that_loads_them(fresh):
    with fresh.lock:
        assert compiled.loops(compiled._ROWS_BEFORE) is None
    assert compiled.loops(compiled._FEW) is not None


def test_the_environment_says_when(fresh, monkeypatch):
    monkeypatch.setenv("LDP_BEAM_LOOPS", "compiled")
    assert compiled.loops(compiled._FEW) is not None


def test_the_environment_says_never(fresh, monkeypatch):
    monkeypatch.setenv("LDP_BEAM_LOOPS", "numpy")
    assert compiled.loops(compiled._ROWS_BEFORE) is None
    assert compiled.loops(compiled._ROWS_BEFORE) is None


def test_an_environment_that_asks_for_nothing_known_is_told_so(fresh, monkeypatch):
    monkeypatch.setenv("LDP_BEAM_LOOPS", "numba")
    for _ in range(2):
        with pytest.raises(InputError, match=r'LDP_BEAM_LOOPS is \'numba\', but may be "auto", "compiled" or "numpy"'):
            compiled.loops(1)


def test_an_environment_that_asks_for_what_is_not_there_is_told_so(fresh, monkeypatch):
    monkeypatch.setenv("LDP_BEAM_LOOPS", "compiled")
    monkeypatch.setattr(compiled, "_imported", lambda: None)
    with pytest.raises(InputError, match=r"ldp-beam\[accelerated\]"):
        compiled.loops(1)


@pytest.mark.parametrize("failure", [ImportError("no numba"), RuntimeError("cannot cache function: no locator")])
def test_without_numba_numpy_does_it(fresh, monkeypatch, failure):
    def fail(name):
        raise failure

    monkeypatch.setattr(importlib, "import_module", fail)
    assert compiled.loops(compiled._ROWS_BEFORE) is None
    assert not compiled.available()
    with compiled.forced(True) as used:
        assert not used
        mechanism = make_mechanism("grr", epsilon=1, keys=10)
        assert mechanism.perturb(people(300, 10, values=False, most=1), SECRET.stream(fingerprint="x")).n == 300


def test_loops_are_not_run_by_the_interpreter():
    asked = "from ldp_beam.mechanisms import compiled; print(compiled.available())"
    environment = {"NUMBA_DISABLE_JIT": "1", "PATH": ""}
    done = subprocess.run([sys.executable, "-c", asked], env=environment, capture_output=True, text=True, check=True)
    assert done.stdout == "False\n"
