"""`kvlab lab` and `kvlab reset` where something goes wrong: nothing piles up, nothing is halved."""

import json
import os
from datetime import datetime
from pathlib import Path

import pytest
from full_disk import files_end_at

from kvlab import workbook

NOON = datetime(2026, 5, 4, 12, 0, 7)


def write(path: Path, source: str) -> None:
    path.parent.mkdir(exist_ok=True)
    path.write_text(json.dumps({"cells": [{"cell_type": "code", "source": [source]}]}))


def names(home: Path) -> list[str]:
    return sorted(path.name for path in (home / "workbook").iterdir())


def test_a_page_that_fails_each_time_adds_one_copy_of_the_others(tmp_path: Path) -> None:
    write(tmp_path / "notebooks/a.ipynb", "1 + 1")
    workbook.prepare(tmp_path)
    write(tmp_path / "workbook/a.ipynb", "my own work")
    write(tmp_path / "notebooks/a.ipynb", "1 + 2")
    (tmp_path / "notebooks/b.ipynb").mkdir()  # cannot be copied
    for _ in range(3):
        with pytest.raises(OSError, match=r"b\.ipynb"):
            workbook.prepare(tmp_path, number="0.2.0")
    assert names(tmp_path) == [workbook.RECORD, "a.ipynb", "a.new-0.2.0.ipynb"]


def test_a_new_page_that_lies_there_already_is_taken_for_it(tmp_path: Path) -> None:
    write(tmp_path / "notebooks/a.ipynb", "1 + 2")
    write(tmp_path / "workbook/a.ipynb", "my own work")
    for _ in range(2):
        workbook.prepare(tmp_path, number="0.2.0")
        (tmp_path / "workbook" / workbook.RECORD).unlink()
    assert names(tmp_path) == ["a.ipynb", "a.new-0.2.0.ipynb"]


DEEP = "[" * 200_000  # json gives up on it


@pytest.mark.parametrize("damage", ["", "[]", "{", '{"a.ipynb": {}}', '"a"', DEEP])
def test_a_damaged_record_stops_neither_lab_nor_reset(tmp_path: Path, damage: str) -> None:
    write(tmp_path / "notebooks/a.ipynb", "1 + 1")
    workbook.prepare(tmp_path)
    (tmp_path / "workbook" / workbook.RECORD).write_text(damage)
    assert workbook.prepare(tmp_path) == (tmp_path / "workbook", [])
    (tmp_path / "workbook" / workbook.RECORD).write_text(damage)
    workbook.reset(tmp_path, tmp_path / "notebooks", "a", NOON)
    assert list(json.loads((tmp_path / "workbook" / workbook.RECORD).read_text())) == ["a.ipynb"]


def test_an_interrupted_copy_leaves_the_page_as_it_was(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    shipped, copy = tmp_path / "notebooks/a.ipynb", tmp_path / "workbook/a.ipynb"
    write(shipped, "1 + 1")
    workbook.prepare(tmp_path)
    write(shipped, "1 + 2")

    def interrupted(source: str, target: Path) -> None:
        if Path(target) == copy:
            raise KeyboardInterrupt
        replace(source, target)

    replace = os.replace
    monkeypatch.setattr(os, "replace", interrupted)
    with pytest.raises(KeyboardInterrupt):
        workbook.prepare(tmp_path)
    assert "1 + 1" in copy.read_text()
    assert names(tmp_path) == [workbook.RECORD, "a.ipynb"]
    monkeypatch.undo()
    workbook.prepare(tmp_path)
    assert copy.read_text() == shipped.read_text()


@pytest.mark.skipif(os.name != "posix", reason="Windows has other permissions")
def test_a_copy_has_the_permissions_of_a_file_that_is_written_by_hand(tmp_path: Path) -> None:
    write(tmp_path / "notebooks/a.ipynb", "1 + 1")
    workbook.prepare(tmp_path)
    (tmp_path / "by_hand").write_text("x")
    modes = [
        path.stat().st_mode & 0o777
        for path in (tmp_path / "by_hand", tmp_path / "workbook/a.ipynb")
    ]
    assert modes[0] == modes[1]


def test_a_link_that_leads_nowhere_is_not_written_through(tmp_path: Path) -> None:
    write(tmp_path / "notebooks/a.ipynb", "1 + 1")
    (tmp_path / "workbook").mkdir()
    (tmp_path / "workbook/a.ipynb").symlink_to(tmp_path / "elsewhere.ipynb")
    with pytest.raises(ValueError, match=r"a\.ipynb is a link to .*elsewhere"):
        workbook.prepare(tmp_path)
    with pytest.raises(ValueError, match="is a link to"):
        workbook.reset(tmp_path, tmp_path / "notebooks", "a", NOON)
    assert not (tmp_path / "elsewhere.ipynb").exists()


def test_a_file_in_the_place_of_the_folder_is_named(tmp_path: Path) -> None:
    write(tmp_path / "notebooks/a.ipynb", "1 + 1")
    (tmp_path / "workbook").write_text("dear")
    with pytest.raises(ValueError, match="workbook is a file, and your copies go into a folder"):
        workbook.prepare(tmp_path)
    assert (tmp_path / "workbook").read_text() == "dear"


def test_a_page_that_is_nested_too_deep_is_the_reader_s_work(tmp_path: Path) -> None:
    write(tmp_path / "notebooks/a.ipynb", "1 + 1")
    workbook.prepare(tmp_path)
    (tmp_path / "workbook/a.ipynb").write_text(DEEP)
    assert workbook.prepare(tmp_path) == (tmp_path / "workbook", [])
    assert (tmp_path / "workbook/a.ipynb").read_text() == DEEP


@pytest.mark.parametrize("name", ["a.ipynb", workbook.RECORD])
def test_a_folder_in_a_file_s_place_is_named(tmp_path: Path, name: str) -> None:
    write(tmp_path / "notebooks/a.ipynb", "1 + 1")
    (tmp_path / "workbook" / name).mkdir(parents=True)
    for work in (
        lambda: workbook.prepare(tmp_path),
        lambda: workbook.reset(tmp_path, tmp_path / "notebooks", "a", NOON),
    ):
        with pytest.raises(ValueError, match=f"{name} is a folder, .* move it away"):
            work()
    assert (tmp_path / "workbook" / name).is_dir()


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="Windows has no named pipes")
def test_a_pipe_in_a_page_s_place_is_not_waited_for(tmp_path: Path) -> None:
    write(tmp_path / "notebooks/a.ipynb", "1 + 1")
    (tmp_path / "workbook").mkdir()
    os.mkfifo(tmp_path / "workbook/a.ipynb")
    with pytest.raises(ValueError, match=r"a\.ipynb is no plain file"):
        workbook.prepare(tmp_path)


@pytest.mark.parametrize("long", ["page", "record"])
def test_a_reset_without_room_on_the_disk_changes_nothing(tmp_path: Path, long: str) -> None:
    write(tmp_path / "notebooks/a.ipynb", "1" * 5000 if long == "page" else "1 + 1")
    write(tmp_path / "workbook/a.ipynb", "my own work")
    others = {f"{number}.ipynb": None for number in range(500 if long == "record" else 1)}
    (tmp_path / "workbook" / workbook.RECORD).write_text(json.dumps(others))
    before = {path.name: path.read_text() for path in (tmp_path / "workbook").iterdir()}
    name = "a.ipynb" if long == "page" else workbook.RECORD
    with files_end_at(2000), pytest.raises(OSError, match=f"workbook/{name}'"):
        workbook.reset(tmp_path, tmp_path / "notebooks", "a", NOON)
    assert before == {path.name: path.read_text() for path in (tmp_path / "workbook").iterdir()}
