"""The page "Read the engine": each file and each name of ours that it mentions is there."""

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "notebooks/reading_the_engine.md").read_text(encoding="utf-8")
STEPS = re.findall(r"^\d+\. \[(kvlab/\S+)\]\(\.\./(\S+)\): (.*)$", PAGE, flags=re.MULTILINE)
OURS = re.findall(r"`(\w+)` in `(kvlab/[\w/.]+)`", PAGE)


def defines(path: str, name: str) -> bool:
    """Whether the file has a class or function of that name, or an attribute of an object."""
    text = (ROOT / path).read_text(encoding="utf-8")
    return re.search(rf"^\s*(class|def) {name}\b|\bself\.{name}\b", text, re.MULTILINE) is not None


@pytest.mark.parametrize(("shown", "linked", "line"), STEPS, ids=[step[0] for step in STEPS])
def test_each_step_names_a_file_and_what_stands_in_it(shown: str, linked: str, line: str) -> None:
    assert shown == linked
    names = re.findall(r"`(\w+)`", line)
    assert names
    assert [name for name in names if not defines(shown, name)] == []


def test_the_steps_are_numbered_without_a_gap() -> None:
    numbers = re.findall(r"^(\d+)\. ", PAGE, flags=re.MULTILINE)
    assert numbers == [str(n) for n in range(1, len(STEPS) + 1)]


@pytest.mark.parametrize(("name", "path"), OURS, ids=[f"{name}-{path}" for name, path in OURS])
def test_each_row_of_the_map_names_what_the_file_defines(name: str, path: str) -> None:
    assert defines(path, name)


def test_each_row_of_the_map_has_a_file_of_ours_and_four_columns_beside_it() -> None:
    rows = [line for line in PAGE.splitlines() if line.startswith("| ")][1:]
    assert len(rows) == len(OURS) >= 12
    assert all(row.count(" | ") == 4 for row in rows)


def test_links_lead_to_files() -> None:
    links = re.findall(r"\]\(([^)]+)\)", PAGE)
    assert len(links) > 20
    files = {link.partition("#")[0] for link in links}  # of names: test_book_reference.py
    assert [name for name in files if not (ROOT / "notebooks" / name).is_file()] == []
