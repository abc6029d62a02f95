"""Running a cell again must change nothing: a reader presses Shift-Enter more than once."""

import copy
from pathlib import Path

import nbformat
import pytest
from nbclient import NotebookClient

FOLDER = Path(__file__).parents[2] / "notebooks"
NAMES = sorted(p.stem for p in FOLDER.glob("*.ipynb"))


def shown(cell):
    """What a cell shows, without live widgets' ids and execution counts."""
    printed = "".join(o.text for o in cell.outputs if o.output_type == "stream")
    data = [o.data for o in cell.outputs if "data" in o]
    return [printed, *(d.get("text/html") or d.get("text/plain") for d in data)]


@pytest.mark.parametrize("name", NAMES)
def test_each_cell_twice_changes_nothing(name):
    notebook = nbformat.read(FOLDER / f"{name}.ipynb", as_version=4)
    doubled = []
    for cell in notebook.cells:
        doubled.append(cell)
        if cell.cell_type == "code":
            again = copy.deepcopy(cell)
            again.id = f"{cell.id}-again"[:64]
            doubled.append(again)
    notebook.cells = doubled
    NotebookClient(notebook, timeout=120, resources={"metadata": {"path": str(FOLDER)}}).execute()
    code = [cell for cell in notebook.cells if cell.cell_type == "code"]
    for first, again in zip(code[::2], code[1::2], strict=True):
        if "nbval-ignore-output" not in first.metadata.get("tags", []):
            assert shown(again) == shown(first), f"{name}: a second run of\n{first.source}"
