"""`kvlab book build --out FOLDER` replaces an old site of its own, whole or not at all."""

import os
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from full_disk import files_end_at

from kvlab.book.build import build
from kvlab.book.own_files import MARK, mark, refuse, replacing

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


@pytest.mark.parametrize("name", ["notebooks/source", "notebooks/site", "notebooks", ".", ".."])
def test_a_folder_in_the_pages_or_around_them_is_refused(root: Path, name: str) -> None:
    with pytest.raises(ValueError, match=r"lie in one another: name another folder"):
        build(root, root / name)
    assert (root / "notebooks/source/21_9.py").read_text("utf-8") == "1\n"
    assert not (root / "notebooks/site").exists()


def test_the_folder_that_one_is_in_is_refused(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(put(root / "site/inner", "a").parent)
    with pytest.raises(ValueError, match=r"site cannot be replaced, .* the one you are in"):
        build(root, root / "site")


def test_a_file_is_refused(root: Path) -> None:
    letter = put(root, "letter.txt")
    with pytest.raises(ValueError, match=r"letter\.txt is a file, or lies in one: name a folder"):
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
        refuse(site)
    assert (site / "index.html").is_file()


def test_an_empty_folder_and_none_are_fine(tmp_path: Path) -> None:
    (tmp_path / "empty").mkdir()
    for name in ("empty", "not/there"):
        with replacing(tmp_path / name) as new:
            put(new, "index.html")
        assert (tmp_path / name / "index.html").read_text("utf-8") == "dear"
    assert sorted(path.name for path in tmp_path.iterdir()) == ["empty", "not"]


def test_a_site_from_before_the_mark_says_what_to_do(tmp_path: Path) -> None:
    site = put(tmp_path / "site", ".nojekyll").parent
    with pytest.raises(ValueError, match=r"no \.kvlab-book.*delete this one yourself"):
        refuse(site)
    assert (site / ".nojekyll").is_file()


# ---- a build that ends early


@pytest.fixture
def old(tmp_path: Path) -> Path:
    """An old site, alone in its folder."""
    site = put(tmp_path / "home/site", "index.html").parent
    mark(site)
    return site


def assert_only(site: Path) -> None:
    """The old site is whole, and nothing lies beside it."""
    assert (site / "index.html").read_text("utf-8") == "dear"
    assert [path.name for path in site.parent.iterdir()] == ["site"]


@pytest.mark.parametrize(
    ("good", "bad"),
    [("section = []", "section = 5"), ('"kvlab/book/static/host.js"', ""), ("# Start", "[x](y)")],
)
def test_a_mistake_in_the_book_leaves_the_old_site(
    root: Path, old: Path, good: str, bad: str
) -> None:
    for path in (root / "book.toml", root / "notebooks/index.md"):
        path.write_text(path.read_text("utf-8").replace(good, bad), encoding="utf-8")
    with pytest.raises(ValueError):
        build(root, old)
    assert_only(old)


@pytest.mark.parametrize(
    ("most", "error", "said"),
    [
        (20_000, ValueError, "mdBook failed"),
        (300_000, OSError, r"File too large: '.*/home/site'"),  # of views.js
    ],
)
def test_a_disk_that_is_full_leaves_the_old_site(
    root: Path, old: Path, most: int, error: type[Exception], said: str
) -> None:
    with pytest.raises(error, match=said), files_end_at(most):
        build(root, old)
    assert_only(old)


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_build_that_is_ended_leaves_the_old_site(root: Path, old: Path, number: int) -> None:
    slow = """python -c '__import__(\\"time\\").sleep(5)'"""  # mdBook waits for it
    text = (root / "book.toml").read_text("utf-8")
    text = text.replace("python -m kvlab.book.preprocessor", slow)
    (root / "book.toml").write_text(text, encoding="utf-8")
    command = [sys.executable, "-m", "kvlab.cli", "book", "build", "--out", str(old)]
    run = subprocess.Popen(command, cwd=root)
    while run.poll() is None and len(list(old.parent.iterdir())) == 1:
        pass
    assert run.poll() is None
    run.send_signal(number)
    assert run.wait() == 130
    assert_only(old)


def test_what_a_killed_build_has_left_is_removed_by_the_next(old: Path) -> None:
    program = """import sys, time; from pathlib import Path
from kvlab.book.own_files import replacing
with replacing(Path(sys.argv[1])) as new:
    new.mkdir(); (new / "half.html").write_text("half"); print("there", flush=True); time.sleep(60)
"""
    command = [sys.executable, "-c", program, str(old)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as run:
        assert run.stdout.readline() == "there\n"
        run.kill()
    assert len(list(old.parent.iterdir())) == 2
    with replacing(old) as new:
        put(new, "index.html")
    assert_only(old)


def test_an_old_site_that_a_killed_build_had_moved_away_comes_back(old: Path) -> None:
    part = old.with_name(f".site{MARK}-abc")
    part.mkdir()
    os.rename(old, part / "old")
    with pytest.raises(OSError, match="full"), replacing(old):
        raise OSError("full")
    assert_only(old)


def test_what_is_laid_into_the_old_site_meanwhile_is_kept(old: Path) -> None:
    with pytest.raises(ValueError, match=r"'mine\.txt' among it"), replacing(old) as new:
        put(new, "index.html")
        put(old, "mine.txt")
    assert (old / "mine.txt").is_file()
    (old / "mine.txt").unlink()
    assert_only(old)
