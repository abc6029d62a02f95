"""Running a cell again must change nothing: nbval runs each cell of the notebooks twice in a row.

That is done by notebooks/conftest.py; here it is seen at work on small notebooks of its own.
"""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import nbformat
import pytest

pytest.importorskip("nbval", reason="the notebooks are run with the extra dev")

ROOT = Path(__file__).parents[2]


def nbval(folder: Path, *options: str) -> list[str]:
    """What a run over `folder` prints, line by line."""
    command = [sys.executable, "-m", "pytest", "-q", "-rfE", "-p", "no:cacheprovider"]
    command += ["--nbval", "--nbval-current-env", "-c", str(ROOT / "pyproject.toml"), *options]
    own = {k: v for k, v in os.environ.items() if k != "PYTEST_ADDOPTS"}  # its output is read
    run = subprocess.run(
        [*command, str(folder)], capture_output=True, text=True, cwd=folder, env=own
    )
    return run.stdout.splitlines()


def write(path: Path, *cells: tuple[str, str]) -> None:
    """A notebook whose cells were committed with what they printed."""
    made = [
        nbformat.v4.new_code_cell(
            source, execution_count=1, outputs=[nbformat.v4.new_output("stream", text=printed)]
        )
        for source, printed in cells
    ]
    nbformat.write(nbformat.v4.new_notebook(cells=made), path)


def test_a_cell_that_shows_something_else_the_second_time_fails(tmp_path: Path) -> None:
    shutil.copy(ROOT / "notebooks/conftest.py", tmp_path)
    write(
        tmp_path / "counting.ipynb",
        ("seen = []\nprint('ready')", "ready\n"),
        ("seen.append(1)\nprint(len(seen))", "1\n"),
        ("print(len(seen) > 0)", "True\n"),
    )
    lines = nbval(tmp_path)
    failed = [line.partition("::")[2] for line in lines if line.startswith("FAILED")]
    assert [line.partition(" - ")[0] for line in failed] == ["Cell 1 again"]
    assert "1 failed, 5 passed" in lines[-1]


def test_each_cell_of_the_notebooks_is_there_twice() -> None:
    lines = nbval(ROOT / "notebooks", "--collect-only")
    found = [line.partition("::") for line in lines if "::Cell " in line]
    names = [(Path(path).name, name) for path, _, name in found]
    wanted = []
    for path in sorted((ROOT / "notebooks").glob("*.ipynb")):
        cells = nbformat.read(path, as_version=4).cells
        count = sum(cell.cell_type == "code" for cell in cells)
        twice = [f"Cell {i}{again}" for i in range(count) for again in ("", " again")]
        wanted += [(path.name, name) for name in twice]
    assert names == wanted != []
