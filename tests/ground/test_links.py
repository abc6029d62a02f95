"""The README's links and map and CITATION's address are written from book.toml alone."""

import re
import shutil
from pathlib import Path

import pytest
import yaml

from kvlab.book import links

ROOT = Path(__file__).parents[2]
ADDRESS = "https://github.com/someone/kvlab-copy"


@pytest.fixture
def clone(tmp_path: Path) -> Path:
    for name in ("book.toml", "README.md", "CITATION.cff"):
        shutil.copy(ROOT / name, tmp_path)
    return tmp_path


def set_address(clone: Path, address: str) -> None:
    lines = (clone / "book.toml").read_text(encoding="utf-8").splitlines()
    at = next(n for n, line in enumerate(lines) if line.startswith("repository = "))
    lines[at] = f'repository = "{address}"'
    (clone / "book.toml").write_text("\n".join(lines), encoding="utf-8")


def test_readme_and_citation_say_what_the_manifest_says() -> None:
    assert links.stale(ROOT) == []


def test_without_an_address_there_is_no_link(clone: Path) -> None:
    set_address(clone, "")
    links.write(clone)
    assert "<!-- links:start -->\n<!-- links:end -->" in (clone / "README.md").read_text("utf-8")
    assert "repository-code" not in (clone / "CITATION.cff").read_text("utf-8")


def test_an_address_reaches_readme_and_citation(clone: Path) -> None:
    set_address(clone, ADDRESS)
    assert links.write(clone) == ["README.md", "CITATION.cff"]
    readme = (clone / "README.md").read_text("utf-8")
    start = "notebooks/21_0_start.ipynb"
    assert f"[Repository]({ADDRESS})" in readme
    assert f"colab.research.google.com/github/someone/kvlab-copy/blob/main/{start}" in readme
    assert "mybinder.org/v2/gh/someone/kvlab-copy/main?urlpath=lab%2Ftree%2Fnotebooks" in readme
    citation = yaml.safe_load((clone / "CITATION.cff").read_text("utf-8"))
    assert citation["repository-code"] == ADDRESS
    assert links.write(clone) == []  # a second time changes nothing


def test_each_written_section_has_its_colab_badge(clone: Path) -> None:
    set_address(clone, ADDRESS)
    links.write(clone)
    readme = (clone / "README.md").read_text("utf-8")
    rows = [line for line in readme.splitlines() if line.startswith("| 21.")]
    assert len(rows) == 9
    for row in rows:
        number, page = row.split()[1], re.search(r"notebooks/\w+\.ipynb", row)[0]
        there = f"https://colab.research.google.com/github/someone/kvlab-copy/blob/main/{page}"
        assert f"[![Open {number} in Colab]({links.COLAB_BADGE})]({there})" in row
    table = readme[readme.index("<!-- map:start -->") :].splitlines()[1:12]
    assert {line.count("|") for line in table} == {7}  # six columns, in the head too


def test_without_an_address_the_map_has_no_column_for_it(clone: Path) -> None:
    set_address(clone, "")
    links.write(clone)
    assert "| section | title | minutes | hardware | state |\n" in (clone / "README.md").read_text()


def test_a_section_that_is_not_written_has_no_badge(clone: Path) -> None:
    set_address(clone, ADDRESS)
    text = (clone / "book.toml").read_text("utf-8").replace("written = true", "written = false", 1)
    (clone / "book.toml").write_text(text, encoding="utf-8")
    links.write(clone)
    (row,) = re.findall(r"^\| 21\.0 .*$", (clone / "README.md").read_text("utf-8"), re.MULTILINE)
    assert "planned" in row and "colab" not in row


def test_an_address_elsewhere_has_no_badges(clone: Path) -> None:
    set_address(clone, "https://example.org/kvlab")
    links.write(clone)
    readme = (clone / "README.md").read_text("utf-8")
    assert "[Repository](https://example.org/kvlab)" in readme
    assert "mybinder" not in readme
    assert "colab.research" not in readme


def test_the_address_can_be_taken_back(clone: Path) -> None:
    links.write(clone)
    before = {path: path.read_text("utf-8") for path in links.pages(clone)}
    set_address(clone, ADDRESS)
    links.write(clone)
    set_address(clone, "")
    links.write(clone)
    assert {path: path.read_text("utf-8") for path in before} == before


def test_the_address_stands_at_one_place() -> None:
    """No other file that names an address of a repository could be forgotten."""
    for name in ("pyproject.toml", "environment.yml", "Makefile"):
        assert "github.com" not in (ROOT / name).read_text("utf-8")


def test_check_changes_nothing(
    clone: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture
) -> None:
    set_address(clone, ADDRESS)
    monkeypatch.chdir(clone)
    assert links.main(["--check"]) == 1
    assert "README.md: out of date" in capsys.readouterr().out
    assert links.main([]) == 0
    assert links.main(["--check"]) == 0


def test_a_readme_without_marks_is_an_error(
    clone: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture
) -> None:
    (clone / "README.md").write_text("nothing here\n", encoding="utf-8")
    monkeypatch.chdir(clone)
    assert links.main([]) == 2
    assert "kvlab: README.md needs the marks <!-- links:start -->" in capsys.readouterr().err
