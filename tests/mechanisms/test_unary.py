"""Bit planes: the noise against a slow reference, exactly; counting against unpacked bits."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from ldp_beam.mechanisms import PCKVUE, Counts, Reports, Secret
from ldp_beam.mechanisms.unary import PLANES, cell_noise, column_sums, row_words, set_cells, set_noise, wide_rows

STREAM = Secret.from_seed(5).stream(fingerprint="planes")


def seeds_of(n, seed=0):
    return np.random.default_rng(seed).integers(0, 2**64, (n, 2), dtype=np.uint64)


def bits_of(rows, cells):
    return np.unpackbits(rows.view(np.uint8), axis=1, bitorder="little")[:, :cells].astype(bool)


def slow_noise(seeds, threshold, cells, planes):
    """Assemble each cell's number from the bits of the stream's blocks, as Python integers."""
    plane_bits = []
    for plane in range(1, planes + 2):
        blocks = [STREAM.blocks(seeds, c, 1, plane=plane)[0] for c in range(row_words(cells) // 2)]
        plane_bits.append(bits_of(np.ascontiguousarray(np.concatenate(blocks, axis=1)), cells))
    signs = plane_bits.pop()
    noise = np.zeros((len(seeds), cells), dtype=bool)
    for user in range(len(seeds)):
        for cell in range(cells):
            number = 0
            for bits in plane_bits:
                number = 2 * number + (not bits[user, cell])
            own = STREAM.blocks(seeds[user : user + 1], (1 << 63) + cell, 1)[0, 0, 0]
            number = (number << (64 - planes)) + (int(own) >> planes)
            noise[user, cell] = number < threshold
    return noise, signs


THRESHOLDS = [1, 2**64 - 1, 2**63, 2**52, 2**52 + 1, 6451809112984823104, 3551289370158262272]


@pytest.mark.parametrize("threshold", THRESHOLDS)
@pytest.mark.parametrize(("cells", "planes"), [(1, 12), (64, 3), (128, 1), (130, 2), (300, 4)])
def test_noise_is_exact(threshold, cells, planes):
    seeds = seeds_of(6)
    assert np.array_equal(
        bits_of(set_noise(seeds, threshold, cells, STREAM.source(), planes).copy(), cells),
        bits_of(cell_noise(seeds, threshold, cells, STREAM.source(), planes)[0], cells),
    )
    noise, signs = cell_noise(seeds, threshold, cells, STREAM.source(), planes)
    slow, slow_signs = slow_noise(seeds, threshold, cells, planes)
    assert np.array_equal(bits_of(noise, cells), slow)
    assert np.array_equal(bits_of(signs, cells), slow_signs)


def test_noise_with_the_usual_planes_uses_the_tie_path():
    seeds = seeds_of(150)
    threshold = 6451809112984823104
    noise, _ = cell_noise(seeds, threshold, 100, STREAM.source())
    slow, _ = slow_noise(seeds, threshold, 100, PLANES)
    assert np.array_equal(bits_of(noise, 100), slow)


@given(st.data())
def test_one_cell_a_row_is_set_and_no_other(data):
    n = data.draw(st.integers(1, 20))
    cells = data.draw(st.integers(1, 200))
    rows = np.random.default_rng(n).integers(0, 2**64, (n, row_words(cells)), dtype=np.uint64)
    users = np.array(sorted(data.draw(st.sets(st.integers(0, n - 1)))), np.int64)
    place = np.array([data.draw(st.integers(0, cells - 1)) for _ in users], np.int64)
    values = np.array([data.draw(st.booleans()) for _ in users], bool)
    expected = bits_of(rows, 64 * rows.shape[1])
    expected[users, place] = values
    other, before = rows.copy(), rows.copy()
    set_cells(users, place, (rows, values), (other, ~values))
    assert np.array_equal(bits_of(rows, 64 * rows.shape[1]), expected)
    expected[users, place] = ~values
    assert np.array_equal(bits_of(other, 64 * rows.shape[1]), expected)
    assert np.array_equal(before, rows) or len(users)


@pytest.mark.parametrize("n", [0, 1, 2, 12, 13, 14, 39, 100, 1000, 12_345])
@pytest.mark.parametrize("words", [2, 4, 16])
def test_counts_equal_those_of_unpacked_bits(n, words):
    rows = np.random.default_rng(n).integers(0, 2**64, (n, words), dtype=np.uint64)
    before = rows.copy()
    assert np.array_equal(column_sums(rows), bits_of(rows, 64 * words).sum(axis=0))
    assert np.array_equal(rows, before)


@pytest.mark.parametrize("n", [0, 1, 255, 256, 777, 20_000, 70_000])
@pytest.mark.parametrize("words", [2, 6])
def test_several_planes_are_counted_as_each_alone(n, words):
    planes = np.random.default_rng(n).integers(0, 2**64, (3, n, words), dtype=np.uint64)
    expected = [bits_of(np.ascontiguousarray(plane), 64 * words).sum(axis=0) for plane in planes]
    assert np.array_equal(column_sums(*planes), expected)


def test_counts_of_full_rows():
    assert (column_sums(np.full((70_001, 2), 2**64 - 1, np.uint64)) == 70_001).all()


@pytest.mark.parametrize("cells", [1, 8, 100, 128, 129])
def test_narrow_rows_of_any_origin_count_alike(cells):
    width = -(-cells // 8)
    wide = np.random.default_rng(1).integers(0, 2**64, (50, row_words(cells)), dtype=np.uint64)
    view = wide.view(np.uint8)[:, :width]
    expected = bits_of(wide, cells).sum(axis=0)
    padded = np.zeros((50, width + 3), np.uint8)
    padded[:, 1 : width + 1] = view
    for plane in (view, view.copy(), padded[:, 1 : width + 1], np.asfortranarray(view)):
        assert np.array_equal(column_sums(wide_rows(plane, cells))[:cells], expected)
    part = view[3:17]
    assert np.array_equal(column_sums(wide_rows(part, cells))[:cells], bits_of(wide[3:17].copy(), cells).sum(axis=0))
    last = view[::7]
    assert np.array_equal(column_sums(wide_rows(last, cells))[:cells], bits_of(wide[::7].copy(), cells).sum(axis=0))


def test_own_rows_are_not_copied():
    wide = np.zeros((50, 2), dtype="<u8")
    rows = wide_rows(wide.view(np.uint8)[:, :13], 100)
    assert np.shares_memory(rows, wide)
    assert not rows.flags.writeable


MECHANISM = PCKVUE(epsilon=1, keys=13, padding=1)


@st.composite
def reports(draw):
    n = draw(st.integers(0, 30))
    cells = np.random.default_rng(draw(st.integers(0, 99))).integers(-1, 2, (n, 13))
    planes = {
        "plus": np.packbits(cells == 1, axis=1, bitorder="little"),
        "minus": np.packbits(cells == -1, axis=1, bitorder="little"),
    }
    return Reports(n=n, arrays=planes)


@settings(max_examples=50)
@given(reports(), reports(), reports())
def test_counts_are_a_commutative_monoid(one, two, three):
    a, b, c = map(MECHANISM.count, (one, two, three))
    assert ((a + b) + c).equals(a + (b + c))
    assert (a + b).equals(b + a)
    assert (a + MECHANISM.zero()).equals(a)
    joined = Reports(
        n=one.n + two.n + three.n,
        arrays={name: np.concatenate([part.arrays[name] for part in (one, two, three)]) for name in ("plus", "minus")},
    )
    assert MECHANISM.count(joined).equals(a + b + c)
    into = MECHANISM.count(three, MECHANISM.count(two, MECHANISM.count(one)))
    assert into.equals(a + b + c)


def test_counts_of_other_cells_cannot_be_added():
    with pytest.raises(ValueError, match="cannot be added"):
        MECHANISM.zero() + Counts(n=0, cells={"other": np.zeros(13, np.int64)})


def test_malformed_reports_are_found():
    good = np.array([[0b0001, 0], [0b1000, 0b10000], [0, 0], [0, 0]], np.uint8)
    bad = np.array([[0b0001, 0], [0b0100, 0b00001], [0, 0b00100000], [0, 0]], np.uint8)
    found = MECHANISM.valid(Reports(n=4, arrays={"plus": good, "minus": bad}))
    assert found.tolist() == [False, True, False, True]
    kept = Reports(n=4, arrays={"plus": good, "minus": bad}).select(found)
    assert kept.n == 2
    assert MECHANISM.valid(kept).all()
