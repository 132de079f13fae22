"""docs/mechanisms.md holds the table that the registry and the mechanisms give today."""

import importlib.util
from pathlib import Path

import pytest
from ldp_beam.mechanisms import MECHANISMS

ROOT = Path(__file__).parents[2]


@pytest.fixture(scope="module")
def table():
    spec = importlib.util.spec_from_file_location("mechanism_table", ROOT / "docs" / "mechanism_table.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_the_page_holds_the_table_of_today(table):
    text = table.PAGE.read_text(encoding="utf-8")
    assert table.page(text) == text, "run python docs/mechanism_table.py --write"


def test_every_mechanism_has_a_row_with_an_error(table):
    rows = table.rows()
    assert len(rows) == 2 + len(MECHANISMS)
    for row, (name, entry) in zip(rows[2:], MECHANISMS.items(), strict=True):
        cells = [cell.strip() for cell in row.strip("|").split("|")]
        assert cells[0] == f"`{name}`"
        share, mean = cells[5:7]
        assert (share != "-") == entry.mechanism.has_frequency
        assert (mean != "-") == entry.has_values
        assert int(cells[2].split()[0]) > 0
        assert entry.use
