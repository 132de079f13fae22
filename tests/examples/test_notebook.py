"""The notebook is executed from top to bottom, and is stored without output."""

import json
from pathlib import Path

import pytest

NOTEBOOK = Path(__file__).resolve().parents[2] / "examples" / "notebook" / "first_steps.ipynb"


def test_it_is_stored_without_output():
    cells = json.loads(NOTEBOOK.read_text(encoding="utf-8"))["cells"]
    assert all(not cell["outputs"] and cell["execution_count"] is None for cell in cells if cell["cell_type"] == "code")


@pytest.mark.filterwarnings("ignore")
def test_every_cell_runs(tmp_path):
    nbformat = pytest.importorskip("nbformat")
    nbclient = pytest.importorskip("nbclient")
    pytest.importorskip("ipykernel")
    notebook = nbformat.read(NOTEBOOK, as_version=4)
    nbclient.NotebookClient(
        notebook, timeout=300, kernel_name="python3", resources={"metadata": {"path": tmp_path}}
    ).execute()
    shown = [output for cell in notebook.cells if cell.cell_type == "code" for output in cell.outputs]
    assert any("bakery" in str(output.get("data", "")) for output in shown)
