"""`kvlab book student` and `kvlab book claims` over files that are no notebooks, links that lead
nowhere, and folders with somebody's files."""

import json
from datetime import datetime
from pathlib import Path

import pytest

from kvlab.book import claims, sets

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
