"""`kvlab book student` and `kvlab book claims` over files that are no notebooks, links that lead
nowhere, and folders with somebody's files."""

import json
from datetime import datetime
from pathlib import Path

import nbformat
import pytest

from kvlab.book import claims, sets

PAGES = Path(__file__).parents[2] / "notebooks"
NOON = datetime(2026, 5, 4, 12, 0, 7)
CELL = {"cell_type": "markdown", "id": "a", "metadata": {}, "source": ["# A"]}


def pages(home: Path) -> Path:
    """One page that is a notebook."""
    (home / "pages").mkdir()
    (home / "pages/a.ipynb").write_text(json.dumps({"cells": [CELL]}))
    return home / "pages"


def write(shipped: Path, out: Path, force: bool = False) -> list[Path]:
    return sets.write("student", shipped, out, force=force, now=NOON)


@pytest.mark.parametrize(
    "junk", [b"", b"{", b"[]", b"{}", b'{"cells": 3}', b'{"cells": [3]}', b"\xff\xfe"]
)
def test_a_file_that_is_no_notebook_is_named(tmp_path: Path, junk: bytes) -> None:
    shipped = pages(tmp_path)
    (shipped / "junk.ipynb").write_bytes(junk)
    with pytest.raises(ValueError, match=r"junk\.ipynb is no notebook"):
        write(shipped, tmp_path / "out")
    with pytest.raises(ValueError, match=r"junk\.ipynb is no notebook"):
        claims.claims(tmp_path, shipped)
    assert not (tmp_path / "out").exists()


def shown(**changes: object) -> dict:
    return {"output_type": "display_data", "data": {}, "metadata": {}} | changes


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"cell_type": "heading"}, "is none of markdown, code, raw"),
        ({"source": 5}, "has no source"),
        ({"source": "\ud800"}, "surrogates not allowed"),
        ({"id": 5}, "has an id that is no word: 5"),
        ({"metadata": None}, "has no metadata"),
        ({"metadata": {"jupyter": 5}}, "has no metadata"),
        ({"metadata": {"tags": [5]}}, r"has tags that are no list of words: \[5\]"),
        ({"outputs": None}, "has no list of outputs"),
        ({"outputs": [5]}, "has an output of an unknown type, 5"),
        ({"outputs": [shown(output_type="pyout")]}, "has an output of an unknown type, 'pyout'"),
        ({"outputs": [shown(output_type="stream")]}, r"has an output \(stream\) without its name"),
        ({"outputs": [shown(data={"text/plain": 5})]}, "has an output whose text/plain is no text"),
    ],
)
def test_a_cell_that_is_none_is_named(tmp_path: Path, changes: dict, said: str) -> None:
    ran = {"cell_type": "code", "execution_count": 1, "outputs": []}
    cell = CELL | ran | changes
    (tmp_path / "pages").mkdir()
    (tmp_path / "pages/a.ipynb").write_text(json.dumps({"cells": [CELL, cell]}))
    with pytest.raises(ValueError, match=rf"a\.ipynb is no notebook of nbformat 4 \(.*{said}"):
        claims.claims(tmp_path, tmp_path / "pages")


def test_a_notebook_from_before_cells_had_ids_becomes_a_set(tmp_path: Path) -> None:
    (tmp_path / "pages").mkdir()
    notebook = json.loads((PAGES / "21_6_growth.ipynb").read_text("utf-8"))
    for cell in notebook["cells"]:
        del cell["id"]
    (tmp_path / "pages/21_6_growth.ipynb").write_text(
        json.dumps(notebook | {"nbformat_minor": 4}), encoding="utf-8"
    )
    (page,) = sets.write("instructor", tmp_path / "pages", tmp_path, force=False, now=NOON)
    nbformat.validate(nbformat.read(page, as_version=4))
    ids = [cell["id"] for cell in json.loads(page.read_text("utf-8"))["cells"]]
    assert "cell-1" in ids and len(ids) == len(set(ids))


def test_a_link_in_the_set_s_folder_that_leads_nowhere_is_not_written_through(
    tmp_path: Path,
) -> None:
    (tmp_path / "out").mkdir()
    (tmp_path / "out/a.ipynb").symlink_to(tmp_path / "elsewhere.ipynb")
    with pytest.raises(ValueError, match=r"a\.ipynb is a link to .*elsewhere"):
        write(pages(tmp_path), tmp_path / "out", force=True)
    assert not (tmp_path / "elsewhere.ipynb").exists()


def test_a_file_that_is_no_text_is_kept_under_another_name(tmp_path: Path) -> None:
    shipped = pages(tmp_path)
    (tmp_path / "out").mkdir()
    (tmp_path / "out/a.ipynb").write_bytes(b"\xff\xfe")
    with pytest.raises(ValueError, match=r"a\.ipynb would be overwritten"):
        write(shipped, tmp_path / "out")
    kept, page = write(shipped, tmp_path / "out", force=True)
    assert kept.read_bytes() == b"\xff\xfe" and "# A" in page.read_text("utf-8")
