"""The reader's copies: made once, brought up to date, never written over; new pages come beside."""

import json

from kvlab import workbook


def write(path, *sources, output="out"):
    cells = [{"cell_type": "code", "source": [s], "outputs": [output]} for s in sources]
    path.parent.mkdir(exist_ok=True)
    path.write_text(json.dumps({"cells": cells}))


def test_a_missing_copy_is_made_and_an_unedited_one_follows_the_shipped(tmp_path):
    shipped, copy = tmp_path / "notebooks/a.ipynb", tmp_path / "workbook/a.ipynb"
    write(shipped, "1 + 1")
    assert workbook.prepare(tmp_path) == (tmp_path / "workbook", [])
    assert copy.read_text() == shipped.read_text()
    write(copy, "1 + 1", output="run and saved by the reader")
    write(shipped, "1 + 2")
    workbook.prepare(tmp_path)
    assert copy.read_text() == shipped.read_text()


def test_an_edited_copy_is_left_alone(tmp_path):
    shipped, copy = tmp_path / "notebooks/a.ipynb", tmp_path / "workbook/a.ipynb"
    write(shipped, "1 + 1")
    workbook.prepare(tmp_path)
    write(copy, "my own work")
    mine = copy.read_text()
    write(shipped, "1 + 2")
    for _ in range(2):
        workbook.prepare(tmp_path)
        assert copy.read_text() == mine


def test_outputs_of_an_up_to_date_copy_are_kept(tmp_path):
    copy = tmp_path / "workbook/a.ipynb"
    write(tmp_path / "notebooks/a.ipynb", "1 + 1")
    workbook.prepare(tmp_path)
    write(copy, "1 + 1", output="mine")
    workbook.prepare(tmp_path)
    assert "mine" in copy.read_text()


def test_a_broken_copy_is_left_alone(tmp_path):
    write(tmp_path / "notebooks/a.ipynb", "1 + 1")
    workbook.prepare(tmp_path)
    (tmp_path / "workbook/a.ipynb").write_text("{")
    workbook.prepare(tmp_path)
    assert (tmp_path / "workbook/a.ipynb").read_text() == "{"
    (tmp_path / "workbook" / workbook.RECORD).unlink()
    workbook.prepare(tmp_path)
    assert (tmp_path / "workbook/a.ipynb").read_text() == "{"


# A newer kvlab, and a copy that the reader has edited


def newer(home, source, number):
    """`home` after kvlab `number`, which ships `source` as its page."""
    write(home / "notebooks/a.ipynb", source)
    _, beside = workbook.prepare(home, number=number)
    return [page.name for page in beside]


def edited(home, name="a.ipynb"):
    write(home / "workbook" / name, f"my own work in {name}")


def test_a_newer_page_comes_beside_an_edited_copy_once(tmp_path):
    newer(tmp_path, "1 + 1", "0.1.0")
    edited(tmp_path)
    assert newer(tmp_path, "1 + 1", "0.2.0") == []  # nothing new in the page
    assert newer(tmp_path, "1 + 2", "0.2.0") == ["a.new-0.2.0.ipynb"]
    assert "1 + 2" in (tmp_path / "workbook/a.new-0.2.0.ipynb").read_text()
    assert "my own work" in (tmp_path / "workbook/a.ipynb").read_text()
    assert newer(tmp_path, "1 + 2", "0.2.0") == []
    (tmp_path / "workbook/a.new-0.2.0.ipynb").unlink()
    assert newer(tmp_path, "1 + 2", "0.2.0") == []  # thrown away, so not wanted
    assert newer(tmp_path, "1 + 3", "0.3.0") == ["a.new-0.3.0.ipynb"]


def test_a_page_beside_is_not_written_over_either(tmp_path):
    newer(tmp_path, "1 + 1", "0.1.0")
    edited(tmp_path)
    newer(tmp_path, "1 + 2", "0.2.0")
    assert newer(tmp_path, "1 + 3", "0.2.0") == ["a.new-0.2.0.ipynb"]  # it was as shipped
    edited(tmp_path, "a.new-0.2.0.ipynb")
    assert newer(tmp_path, "1 + 4", "0.2.0") == ["a.new-0.2.0-2.ipynb"]
    assert "my own work" in (tmp_path / "workbook/a.new-0.2.0.ipynb").read_text()


def test_a_copy_that_has_become_the_newer_page_is_taken_for_it(tmp_path):
    newer(tmp_path, "1 + 1", "0.1.0")
    write(tmp_path / "workbook/a.ipynb", "1 + 2")
    assert newer(tmp_path, "1 + 2", "0.2.0") == []
    assert newer(tmp_path, "1 + 3", "0.3.0") == []
    assert "1 + 3" in (tmp_path / "workbook/a.ipynb").read_text()
