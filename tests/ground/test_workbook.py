"""The reader's copies: made once, brought up to date, never written over."""

import json

from kvlab import workbook


def write(path, *sources, output="out"):
    cells = [{"cell_type": "code", "source": [s], "outputs": [output]} for s in sources]
    path.parent.mkdir(exist_ok=True)
    path.write_text(json.dumps({"cells": cells}))


def test_a_missing_copy_is_made_and_an_unedited_one_follows_the_shipped(tmp_path):
    shipped, copy = tmp_path / "notebooks/a.ipynb", tmp_path / "workbook/a.ipynb"
    write(shipped, "1 + 1")
    assert workbook.prepare(tmp_path) == tmp_path / "workbook"
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
