"""`kvlab book build --out FOLDER` deletes an old site of its own, and nothing else."""

from collections.abc import Callable
from pathlib import Path

import pytest

from kvlab.book.build import build
from kvlab.book.own_files import MARK, delete_old, mark

ROOT = Path(__file__).parents[2]
CONFIGURATION = """
[book]
title = "small"
src = "notebooks"
[build]
build-dir = "site"
create-missing = false
use-default-preprocessors = false
[output.html]
additional-js = ["kvlab/book/static/host.js"]
[preprocessor.kvlab]
command = "python -m kvlab.book.preprocessor"
repository = ""
section = []
"""


@pytest.fixture
def root(tmp_path: Path) -> Path:
    """A clone with one page and no notebook."""
    root = tmp_path / "clone"
    (root / "notebooks/source").mkdir(parents=True)
    (root / "notebooks/source/21_9.py").write_text("1\n", encoding="utf-8")
    (root / "kvlab").symlink_to(ROOT / "kvlab")
    (root / "book.toml").write_text(CONFIGURATION, encoding="utf-8")
    (root / "notebooks/SUMMARY.md").write_text("[Start](index.md)\n", encoding="utf-8")
    (root / "notebooks/index.md").write_text("# Start\n", encoding="utf-8")
    return root


def put(folder: Path, name: str) -> Path:
    (folder / name).parent.mkdir(parents=True, exist_ok=True)
    (folder / name).write_text("dear", encoding="utf-8")
    return folder / name


def test_a_site_lists_its_files_and_is_built_again_over_itself(root: Path) -> None:
    site = build(root, root / "site")
    listed = (site / MARK).read_text("utf-8").splitlines()
    assert "index.html" in listed and MARK not in listed
    assert not (site / "source").exists()
    put(site, ".DS_Store")
    (root / "notebooks/index.md").write_text("# Start again\n", encoding="utf-8")
    assert "Start again" in (build(root, site) / "index.html").read_text("utf-8")


def test_a_build_that_failed_leaves_a_folder_that_can_be_built_into(root: Path) -> None:
    text = (root / "book.toml").read_text("utf-8")
    (root / "book.toml").write_text(text.replace("host.js", "frame.js"), encoding="utf-8")
    with pytest.raises(ValueError):
        build(root, root / "site")
    (root / "book.toml").write_text(text, encoding="utf-8")
    assert (build(root, root / "site") / "index.html").is_file()


def test_the_folder_of_the_sources_is_refused(root: Path) -> None:
    with pytest.raises(ValueError, match="something else than an old book"):
        build(root, root / "notebooks/source")
    assert (root / "notebooks/source/21_9.py").read_text("utf-8") == "1\n"


def test_a_file_is_refused(root: Path) -> None:
    letter = put(root, "letter.txt")
    with pytest.raises(ValueError, match=r"letter\.txt is a file: name a folder"):
        build(root, letter)
    assert letter.read_text("utf-8") == "dear"


def test_pages_of_somebody_else_are_refused(root: Path, tmp_path: Path) -> None:
    for name in (".nojekyll", ".git/config", "mine/thesis.txt"):
        put(tmp_path / "pages", name)
    with pytest.raises(ValueError, match="something else than an old book"):
        build(root, tmp_path / "pages")
    assert (tmp_path / "pages/mine/thesis.txt").read_text("utf-8") == "dear"


@pytest.mark.parametrize(
    "add",
    [
        lambda site: put(site, "mine/thesis.txt"),
        lambda site: put(site, ".git/config"),
        lambda site: (site / "linked").symlink_to(site.parent, target_is_directory=True),
    ],
)
def test_what_was_laid_into_a_site_of_ours_is_kept(
    tmp_path: Path, add: Callable[[Path], object]
) -> None:
    site = put(tmp_path / "site", "index.html").parent
    mark(site)
    add(site)
    with pytest.raises(ValueError, match="what the book's build has not written"):
        delete_old(site)
    assert (site / "index.html").is_file()


def test_an_empty_folder_and_none_are_fine(tmp_path: Path) -> None:
    (tmp_path / "empty").mkdir()
    delete_old(tmp_path / "empty")
    delete_old(tmp_path / "none")
    assert (tmp_path / "empty").is_dir() and not (tmp_path / "none").exists()


def test_a_site_from_before_the_mark_says_what_to_do(tmp_path: Path) -> None:
    site = put(tmp_path / "site", ".nojekyll").parent
    with pytest.raises(ValueError, match=r"no \.kvlab-book.*delete this one yourself"):
        delete_old(site)
    assert (site / ".nojekyll").is_file()
