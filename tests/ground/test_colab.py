"""The setup cell of every notebook on Colab: kvlab is added there, and what is there stays.

pip itself runs, on a made-up machine: an environment of packages that are a name and a version, and
an index with newer ones. It resolves and says what it would install; nothing is downloaded.
"""

import json
import os
import subprocess
import sys
import zipfile
from importlib.util import find_spec
from pathlib import Path

import jupytext
import pytest

ROOT = Path(__file__).parents[2]
THERE = {"torch": "2.11.0+cu128", "triton": "3.6.0", "numpy": "2.0.2", "anywidget": "0.9.21"}
COLAB = "import sys, types; sys.modules['google.colab'] = types.ModuleType('google.colab')\n"


def for_colab(path: Path) -> str:
    """What the page's setup cell does on Colab: its text, up to the page's own imports."""
    cells = jupytext.read(path).cells
    (setup,) = [cell.source for cell in cells if "setup" in cell.metadata.get("tags", [])]
    text, end, _ = setup.partition("+ done.stderr\n")
    return text + end


PAGES = sorted((ROOT / "notebooks/source").glob("21*.py"))
CELL = for_colab(PAGES[0])


def wheel(folder: Path, name: str, number: str, *needs: str) -> None:
    about = [f"Metadata-Version: 2.1\nName: {name}\nVersion: {number}", "Provides-Extra: serve"]
    about += [f"Requires-Dist: {need}" for need in needs]
    inside = f"{name}-{number}.dist-info"
    with zipfile.ZipFile(folder / f"{name}-{number}-py3-none-any.whl", "w") as file:
        file.writestr(f"{inside}/METADATA", "\n".join(about) + "\n")
        file.writestr(f"{inside}/WHEEL", "Wheel-Version: 1.0\nTag: py3-none-any\n")
        file.writestr(f"{inside}/RECORD", "")


@pytest.fixture(scope="module")
def machine(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """An environment with Colab's versions by name alone, and an index that has newer ones."""
    home = tmp_path_factory.mktemp("colab")
    make = [sys.executable, "-m", "venv", "--without-pip", str(home / "venv")]
    subprocess.run(make, check=True)
    (site,) = (home / "venv").glob("lib/python*/site-packages")
    (site / "pip").symlink_to(Path(find_spec("pip").origin).parent)
    for name, number in THERE.items():
        about = site / f"{name}-{number}.dist-info"
        about.mkdir()
        (about / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: {number}\n")
    (home / "index").mkdir()
    for name in THERE:
        wheel(home / "index", name, "99.0")
    return home


def run_cell(machine: Path, *needs: str) -> tuple[subprocess.CompletedProcess, set[str]]:
    """The cell where kvlab needs this. Returns the process, and what pip would have installed."""
    wheel(machine / "index", "kvlab", "0.1.0", *needs)
    report = machine / "report.json"
    report.unlink(missing_ok=True)
    settings = {
        **{name: text for name, text in os.environ.items() if not name.startswith("PIP_")},
        **{"PIP_CONFIG_FILE": os.devnull, "PIP_NO_INDEX": "1", "PIP_DRY_RUN": "1"},
        **{"PIP_FIND_LINKS": str(machine / "index"), "PIP_REPORT": str(report)},
        **{"PYTHONPATH": "", "PIP_DISABLE_PIP_VERSION_CHECK": "1"},
    }
    python = machine / "venv/bin/python"
    command = [python, "-c", COLAB + CELL]
    done = subprocess.run(command, env=settings, capture_output=True, text=True, cwd=machine)
    found = json.loads(report.read_text())["install"] if report.is_file() else []
    return done, {entry["metadata"]["name"] for entry in found}


def test_each_page_does_the_same_on_colab_and_nothing_elsewhere() -> None:
    assert len(PAGES) == 9
    assert {for_colab(path) for path in PAGES} == {CELL}
    branch = CELL.split("\n\n", 1)[1].splitlines()
    assert branch[0].startswith('if "google.colab" in sys.modules:')
    assert all(line.startswith("    ") for line in branch[1:] if line)


def test_where_kvlab_fits_it_alone_is_added(machine: Path) -> None:
    done, added = run_cell(machine, "torch>=2.11", "triton>=3.6", "numpy>=1.26")
    assert done.returncode == 0, done.stderr
    assert added == {"kvlab"}


@pytest.mark.parametrize(("name", "number"), THERE.items())
def test_what_colab_has_is_never_replaced(machine: Path, name: str, number: str) -> None:
    """A kvlab that needs a newer one is refused, and the message names both sides."""
    done, added = run_cell(machine, f"{name}>=90")
    assert done.returncode == 1
    assert added == set()
    assert "AssertionError: " in done.stderr
    assert f"The user requested (constraint) {name}=={number}" in done.stderr
    assert f"depends on {name}>=90" in done.stderr


def test_a_machine_without_triton_gets_it(machine: Path) -> None:
    """As on Colab without a GPU, where torch is a CPU build."""
    (there,) = (machine / "venv").glob("lib/python*/site-packages/triton-3.6.0.dist-info")
    away = there.rename(machine / there.name)
    try:
        done, added = run_cell(machine, "torch>=2.11", "triton>=3.6")
    finally:
        away.rename(there)
    assert done.returncode == 0, done.stderr
    assert added == {"kvlab", "triton"}
