"""`kvlab reset`: a page as shipped, and the reader's copy kept beside it."""

import json
import shutil
import subprocess
import sys
import tomllib
from datetime import datetime
from pathlib import Path

import pytest
import typer
from typer.testing import CliRunner

from kvlab import cli, workbook

ROOT = Path(__file__).parents[2]
NOON = datetime(2026, 5, 4, 12, 0, 7)


def notebook(path: Path, source: str) -> None:
    path.parent.mkdir(exist_ok=True)
    path.write_text(json.dumps({"cells": [{"cell_type": "code", "source": [source]}]}))


@pytest.fixture
def home(tmp_path: Path) -> Path:
    """A clone with three pages; the reader has edited the copy of one."""
    for name in ("21_0_start", "21_5_paging", "21_5b_kernel"):
        notebook(tmp_path / f"notebooks/{name}.ipynb", name)
    workbook.prepare(tmp_path)
    notebook(tmp_path / "workbook/21_5_paging.ipynb", "my own work")
    return tmp_path


def reset(home: Path, page: str) -> tuple[Path, Path | None]:
    return workbook.reset(home, home / "notebooks", page, NOON)


@pytest.mark.parametrize(
    "page", ["21.5", "21_5", "21_5_paging", "21_5_paging.ipynb", "workbook/21_5_paging.ipynb"]
)
def test_the_page_is_as_shipped_and_the_copy_is_kept(home: Path, page: str) -> None:
    back, kept = reset(home, page)
    assert back == home / "workbook/21_5_paging.ipynb"
    assert back.read_bytes() == (home / "notebooks/21_5_paging.ipynb").read_bytes()
    assert kept == home / "workbook/21_5_paging.kept-2026-05-04_120007.ipynb"
    assert "my own work" in kept.read_text()


def test_two_copies_of_one_second_have_two_names(home: Path) -> None:
    reset(home, "21.5")
    notebook(home / "workbook/21_5_paging.ipynb", "more work")
    _, kept = reset(home, "21.5")
    assert kept.name == "21_5_paging.kept-2026-05-04_120007-2.ipynb"
    assert "more work" in kept.read_text()
    assert "my own work" in (kept.parent / "21_5_paging.kept-2026-05-04_120007.ipynb").read_text()


def test_a_page_that_is_as_shipped_is_left_alone(home: Path) -> None:
    assert reset(home, "21.5b") == (home / "workbook/21_5b_kernel.ipynb", None)
    assert sorted(path.name for path in (home / "workbook").glob("*.kept-*")) == []


def test_a_missing_page_is_made(home: Path) -> None:
    (home / "workbook/21_0_start.ipynb").unlink()
    back, kept = reset(home, "21.0")
    assert back.is_file() and kept is None


def test_after_a_reset_the_page_follows_the_shipped_again(home: Path) -> None:
    reset(home, "21.5")
    notebook(home / "notebooks/21_5_paging.ipynb", "a newer text")
    workbook.prepare(home)
    assert "a newer text" in (home / "workbook/21_5_paging.ipynb").read_text()


@pytest.mark.parametrize("page", ["21.9", "21", "growth", "", "../21", "21_5_"])
def test_an_unknown_page_is_named_and_nothing_is_changed(home: Path, page: str) -> None:
    with pytest.raises(ValueError, match=r"there is no notebook .*21_0_start, 21_5_paging"):
        reset(home, page)
    assert "my own work" in (home / "workbook/21_5_paging.ipynb").read_text()


def test_the_command_says_what_it_kept(home: Path, monkeypatch) -> None:
    (home / "book.toml").touch()
    monkeypatch.setattr(workbook, "CLONE", home)
    done = CliRunner().invoke(cli.app, ["reset", "21.5"])
    assert done.exit_code == 0
    assert "Your copy is kept as" in done.output and "is as shipped" in done.output
    wrong = CliRunner().invoke(cli.app, ["reset", "21.9"])
    assert wrong.exit_code == 2
    assert wrong.stderr.startswith("kvlab: there is no notebook '21.9'")


def test_without_a_clone_the_installed_pages_are_copied(
    tmp_path: Path, home: Path, monkeypatch
) -> None:
    mine = tmp_path / "mine"
    mine.mkdir()
    monkeypatch.chdir(mine)
    monkeypatch.setattr(workbook, "CLONE", tmp_path / "no_clone")
    monkeypatch.setattr(workbook, "INSTALLED", home / "notebooks")
    assert cli.find_pages() == (mine, home / "notebooks")
    assert CliRunner().invoke(cli.app, ["reset", "21.5"]).exit_code == 0
    assert (mine / "workbook/21_5_paging.ipynb").is_file()


@pytest.fixture(scope="module")
def installed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """An environment into which kvlab is copied, with two pages, as pip does; its Python."""
    home = tmp_path_factory.mktemp("installed")
    make = [sys.executable, "-m", "venv", "--without-pip", str(home / "venv")]
    subprocess.run(make, check=True)
    (site,) = (home / "venv").glob("lib/python*/site-packages")
    shutil.copytree(ROOT / "kvlab", site / "kvlab", ignore=shutil.ignore_patterns("__pycache__"))
    (site / "packages.pth").write_text(f"{Path(typer.__file__).parents[1]}\n")
    pages = home / "venv/share/kvlab/notebooks"
    pages.mkdir(parents=True)
    for name in ("21_0_start.ipynb", "21_6_growth.ipynb"):
        shutil.copy(ROOT / "notebooks" / name, pages)
    return home / "venv/bin/python"


@pytest.mark.skipif(sys.platform == "win32", reason="an environment has other folders there")
@pytest.mark.parametrize("extra", [(), ("pyproject.toml", "book.toml", "kvlab/cli.py")])
def test_a_reader_s_folder_of_the_name_notebooks_ships_nothing(
    installed: Path, tmp_path: Path, extra: tuple[str, ...]
) -> None:
    """Not even beside a clone's files: that clone is not the running package's."""
    for name in ("21_0_start", "21_6_growth"):
        notebook(tmp_path / f"notebooks/{name}.ipynb", "edited by the reader")
    for name in extra:
        (tmp_path / name).parent.mkdir(exist_ok=True)
        shutil.copy(ROOT / name, tmp_path / name)
    command = [str(installed), "-c", "from kvlab.cli import app; app()", "reset", "21.6"]
    command.insert(1, "-I")  # as the script `kvlab` does, look for nothing in this folder
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (0, "")
    shipped = (ROOT / "notebooks/21_6_growth.ipynb").read_bytes()
    assert (tmp_path / "workbook/21_6_growth.ipynb").read_bytes() == shipped


def test_a_wheel_carries_every_notebook() -> None:
    table = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
    shared = table["tool"]["hatch"]["build"]["targets"]["wheel"]["shared-data"]
    for path in (ROOT / "notebooks").glob("*.ipynb"):
        assert shared[f"notebooks/{path.name}"] == f"share/kvlab/notebooks/{path.name}"
    assert workbook.INSTALLED.parts[-3:] == ("share", "kvlab", "notebooks")
