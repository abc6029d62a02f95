"""The Makefile's set-up: which Python it refuses and where it takes torch from."""

import os
import shutil
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]


@pytest.fixture
def clone(tmp_path: Path) -> Path:
    for name in ("Makefile", "pyproject.toml", "constraints.txt"):
        shutil.copy(ROOT / name, tmp_path)
    return tmp_path


def make(clone: Path, *arguments: str) -> subprocess.CompletedProcess:
    """Run make without the settings of a make that may run these tests."""
    inherited = ("MAKEFLAGS", "MAKELEVEL", "MFLAGS", "PYTHON", "TORCH_INDEX")
    clean = {key: value for key, value in os.environ.items() if key not in inherited}
    return subprocess.run(
        ["make", *arguments], cwd=clone, env=clean, capture_output=True, text=True
    )


def test_make_alone_lists_the_targets(clone: Path) -> None:
    shown = make(clone).stdout.splitlines()
    targets = [line.split("\t")[0] for line in shown]
    assert targets == ["help", "lab", "test", "notebooks", "book", "bench", "soak"]


def test_an_old_python_is_refused_in_a_sentence(clone: Path) -> None:
    old = clone / "old-python"
    old.write_text("#!/bin/sh\nexit 1\n", encoding="utf-8")  # its version check fails
    old.chmod(0o755)
    run = make(clone, "lab", f"PYTHON={old}")
    assert run.returncode != 0
    assert "kvlab needs Python 3.11 or newer" in run.stdout
    assert not (clone / ".venv").exists()


@pytest.mark.parametrize(
    ("setting", "address"),
    [
        ("cpu", "https://download.pytorch.org/whl/cpu"),
        ("cu130", "https://download.pytorch.org/whl/cu130"),
        ("https://mirror.example/torch", "https://mirror.example/torch"),
    ],
)
def test_torch_index_is_a_name_or_an_address(clone: Path, setting: str, address: str) -> None:
    shown = make(clone, "-n", "lab", f"TORCH_INDEX={setting}").stdout
    assert f"--index-url {address} -c constraints.txt torch\n" in shown


def test_without_torch_index_pip_decides(clone: Path) -> None:
    shown = make(clone, "-n", "lab").stdout
    assert "index-url" not in shown
    assert '-c constraints.txt -e ".[dev]"' in shown


def test_an_environment_that_is_ready_is_left_alone(clone: Path) -> None:
    (clone / ".venv").mkdir()
    (clone / ".venv/.ready").touch()
    assert "pip" not in make(clone, "-n", "lab").stdout
    newer = (clone / ".venv/.ready").stat().st_mtime + 10
    os.utime(clone / "constraints.txt", (newer, newer))
    assert "pip install" in make(clone, "-n", "lab").stdout
