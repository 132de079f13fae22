"""The test of two estimates: figures against SciPy, its level under no difference, its power, what it refuses."""

import json

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from ldp_beam.errors import InputError
from ldp_beam.pipelines.compare import compare, holm, two_sided
from scipy import stats

KEYS = [f"key-{i}" for i in range(400)]


def change(folder, **figures):
    """Overwrite columns of a result, whose manifest stays."""
    path = folder / "estimates.parquet"
    table = pq.read_table(path)
    for name, values in figures.items():
        place = table.schema.get_field_index(name)
        table = table.set_column(place, name, pa.array(values, table.schema.field(name).type, from_pandas=True))
    pq.write_table(table, path)
    return table


def change_manifest(folder, edit):
    path = folder / "manifest.json"
    content = json.loads(path.read_text())
    edit(content)
    path.write_text(json.dumps(content))


def test_figures_agree_with_scipy(result):
    one, two = result(KEYS, name="one"), result(KEYS, name="two", n=20_000)
    tables = [pq.read_table(folder / "estimates.parquet") for folder in (one, two)]
    rows = {(row["key"], row["figure"]): row for row in compare(one, two).rows}
    for i, key in enumerate(KEYS[:50]):
        raw = [table["frequency_raw"][i].as_py() for table in tables]
        se = np.hypot(*[table["frequency_se"][i].as_py() for table in tables])
        row = rows[key, "frequency"]
        assert row["z"] == pytest.approx((raw[1] - raw[0]) / se)
        assert row["p"] == pytest.approx(2 * stats.norm.sf(abs(row["z"])))
        assert row["difference_high"] - row["difference_low"] == pytest.approx(2 * stats.norm.ppf(0.975) * se)


def test_holm_agrees_with_its_definition():
    p = np.array([0.01, 0.04, 0.03, 0.005, 0.5])
    np.testing.assert_allclose(holm(p), [0.04, 0.09, 0.09, 0.025, 0.5])
    assert holm(np.array([])).size == 0
    assert two_sided(0) == 1


def test_level_and_power(result):
    """Two results with equal true figures: p-values are uniform.

    The counts come from fixed seeds, so the test cannot flicker; a wrong standard error (30 % too small) would
    give 17 % of p-values below 0.05 instead of 5 %, which 400 keys show beyond doubt.
    """
    generator = np.random.default_rng(1)
    one, two = result(KEYS, name="one"), result(KEYS, name="two")
    se = np.full(len(KEYS), 0.01)
    for folder in (one, two):
        change(
            folder, frequency_raw=0.3 + generator.normal(0, se), frequency_se=se, mean_raw=np.full(len(KEYS), np.nan)
        )
    comparison = compare(one, two)
    below = np.mean([row["p"] < 0.05 for row in comparison.rows])
    assert comparison.tests == len(KEYS)
    assert 0.02 < below < 0.09
    assert not any(row["differs"] for row in comparison.rows)
    moved = pq.read_table(two / "estimates.parquet")["frequency_raw"].to_numpy().copy()
    moved[7] += 0.08  # 5.7 standard errors of the difference
    change(two, frequency_raw=moved)
    comparison = compare(one, two)
    assert [row["key"] for row in comparison.rows if row["differs"]] == ["key-7"]


def test_a_mean_over_few_holders_is_not_tested(result):
    one, two = result(KEYS, name="one", n=2_000), result(KEYS, name="two", n=2_000)
    flags = pq.read_table(one / "estimates.parquet")["flags"].to_pylist()
    few = {key for key, held in zip(KEYS, flags, strict=True) if "few-holders" in held}
    comparison = compare(one, two)
    assert few
    assert not few & {row["key"] for row in comparison.rows if row["figure"] == "mean"}
    assert comparison.left_out >= len(few)


def test_the_order_of_the_keys_does_not_matter(result):
    one, two = result(KEYS, name="one"), result(KEYS[::-1], name="two")
    assert {row["key"] for row in compare(one, two).rows} == set(KEYS)


def test_what_cannot_be_compared_is_refused(result):
    one, two = result(KEYS, name="one"), result([*KEYS[:-1], "other"], name="two")
    with pytest.raises(InputError, match="other keys"):
        compare(one, two)
    three = result(KEYS, name="three")
    change_manifest(three, lambda m: m["collection"]["values"].update(range=["0", "9"]))
    with pytest.raises(InputError, match="different scales"):
        compare(one, three)
    four = result(KEYS, name="four")
    for folder in (one, four):
        change_manifest(folder, lambda m: m["randomness"].update(secret_id="abc", period="2026"))
    with pytest.raises(InputError, match="same secret and period"):
        compare(one, four)
    with pytest.raises(InputError, match="probability"):
        compare(one, three, level=5)


def test_another_padding_is_said(result):
    one, two = result(KEYS, name="one"), result(KEYS, name="two")
    change_manifest(two, lambda m: m["collection"].update(padding=5))
    assert any("padding" in warning for warning in compare(one, two).warnings)


def test_the_command(result, run, run_json):
    one, two = result(KEYS[:5], name="one"), result(KEYS[:5], name="two", n=30_000)
    answer = run_json("compare", "--first", one, "--second", two)
    assert answer["tests"] == len(answer["rows"]) == 10
    code, out, err = run("compare", "--first", one, "--second", two)
    assert (code, out) == (0, "")
    assert "of 10 figures differ" in err
