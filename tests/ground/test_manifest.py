"""book.toml: a configuration that mdBook takes, and a manifest that agrees with the notebooks."""

import json
import re
from pathlib import Path

import pytest

from kvlab.book import manifest

ROOT = Path(__file__).parents[2]
SECTIONS = manifest.read(ROOT).sections
WRITTEN = manifest.read(ROOT).written

ENTRY = """
[[preprocessor.kvlab.section]]
id = "21.6"
notebook = "21_6_growth"
title = "Growth"
minutes = 35
hardware = "any laptop"
written = true
claims = ["21.6-a", "21.6-b"]
"""


def write(folder: Path, entries: str, repository: str = "") -> Path:
    head = f'[preprocessor.kvlab]\nrepository = "{repository}"\n'
    (folder / "book.toml").write_text(head + entries, encoding="utf-8")
    return folder


def test_a_section_is_read_as_it_stands(tmp_path: Path) -> None:
    found = manifest.read(write(tmp_path, ENTRY))
    assert found.repository == ""
    assert found.sections == (
        manifest.Section(
            id="21.6",
            notebook="21_6_growth",
            title="Growth",
            minutes=35,
            hardware="any laptop",
            written=True,
            claims=("21.6-a", "21.6-b"),
        ),
    )
    assert found.sections[0].path == "notebooks/21_6_growth.ipynb"


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ("minutes = 35", "", "section 21.6 lacks minutes"),
        ("minutes", "minute = 1\nminutes", "section 21.6 has unknown keys: minute"),
        ('"21.6-b"', '"21.6-a"', "claim 21.6-a is listed twice"),
        ('"21.6-b"', '"21.5-b"', "claim 21.5-b is listed under section 21.6"),
        ("minutes = 35", 'minutes = "many"', "section 21.6: minutes must be a whole number from 1"),
        ("minutes = 35", "minutes = -15", "whole number from 1, not -15"),
        ("minutes = 35", "minutes = nan", "whole number from 1, not nan"),
        ("minutes = 35", "minutes = true", "whole number from 1, not True"),
        ("written = true", 'written = "no"', "written must be true or false, not 'no'"),
        ('"Growth"', "7", "title must be a line of text, not 7"),
        ('"Growth"', '"a\\nb"', "title must be a line of text"),
        ('"21.6"', "21.6", "id must be text, as "),
        ('"21_6_growth"', '"../a"', "notebook must be a name without .ipynb"),
        ('["21.6-a", "21.6-b"]', '"21.6-a"', "claims must be a list, "),
        ('["21.6-a", "21.6-b"]', "5", "claims must be a list, "),
        ('["21.6-a", "21.6-b"]', "[5]", "claims must be a list, "),
        ("claims", 'open_claims = ["21.6-c"]\nclaims', "open claim 21.6-c is not among"),
    ],
)
def test_a_mistake_is_named(tmp_path: Path, old: str, new: str, message: str) -> None:
    with pytest.raises(ValueError, match=re.escape(message)):
        manifest.read(write(tmp_path, ENTRY.replace(old, new, 1)))


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (b"", "[preprocessor.kvlab] lacks 'repository'"),
        (b"\xff", "can't decode byte 0xff"),
        (b"x = = 1", "Invalid value (at line 1, column 5)"),
        (b"a = " + b"[" * 20_000, "recursion"),
        (b'build = "x"', "[build] must be a table, not 'x'"),
        (b"build.build-dir = 5", "[build] build-dir must name a folder, not 5"),
        (b'build.build-dir = ["a"]', "[build] build-dir must name a folder, not ['a']"),
        (b"preprocessor.kvlab = 5", "[preprocessor.kvlab] must be a table, not 5"),
        (b'preprocessor.kvlab = {repository = "", section = [5]}', "each section must be a table"),
        (b"preprocessor.kvlab = {repository = 5, section = []}", "repository must be empty or"),
    ],
)
def test_a_file_that_is_no_manifest_is_named(tmp_path: Path, text: bytes, message: str) -> None:
    (tmp_path / "book.toml").write_bytes(text)
    with pytest.raises(ValueError, match=re.escape(f"{tmp_path / 'book.toml'}: ") + ".*") as said:
        manifest.read(tmp_path)
    assert message in str(said.value)


def test_mdbooks_folders_are_those_of_the_file_or_its_own(tmp_path: Path) -> None:
    found = manifest.read(write(tmp_path, ENTRY))
    assert (found.source, found.site) == ("src", "book")
    assert (manifest.read(ROOT).source, manifest.read(ROOT).site) == ("notebooks", "site")


def test_the_same_section_twice_is_a_mistake(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=r"two sections have the id 21\.6"):
        manifest.read(write(tmp_path, ENTRY + ENTRY))


@pytest.mark.parametrize(
    "address",
    [
        "example.org/kvlab",
        "http://example.org/kvlab",
        "https://example.org/kvlab/",
        'https://github.com/a\\"><script>alert(1)</script>',
        "https://",
    ],
)
def test_an_address_in_another_form_is_a_mistake(tmp_path: Path, address: str) -> None:
    with pytest.raises(ValueError, match="repository must be empty or"):
        manifest.read(write(tmp_path, ENTRY, address))


def test_every_section_of_the_chapter_is_there_in_order() -> None:
    ids = [section.id for section in SECTIONS]
    assert [name for name in ids if name != "21.5b"] == [f"21.{number}" for number in range(8)]
    assert ids.index("21.5b") == ids.index("21.5") + 1  # an extra, for readers who go on
    for section in SECTIONS:
        assert section.notebook.startswith(section.id.replace(".", "_"))


@pytest.mark.parametrize("section", SECTIONS, ids=lambda section: section.id)
def test_claims_are_lettered_without_a_gap(section: manifest.Section) -> None:
    letters = [claim.removeprefix(f"{section.id}-") for claim in section.claims]
    assert letters == list("abcdefghijklmnopqrstuvwxyz"[: len(letters)])


@pytest.mark.parametrize("section", WRITTEN, ids=lambda section: section.id)
def test_each_claim_of_a_written_section_is_one_code_cell(section: manifest.Section) -> None:
    notebook = json.loads((ROOT / section.path).read_text(encoding="utf-8"))
    tagged = [
        (tag.removeprefix("claim-"), cell["cell_type"])
        for cell in notebook["cells"]
        for tag in cell["metadata"].get("tags", [])
        if tag.startswith("claim-")
    ]
    wanted = [claim for claim in section.claims if claim not in section.open_claims]
    assert sorted(tagged) == [(claim, "code") for claim in wanted]


def test_written_sections_are_the_notebooks_and_the_summary() -> None:
    books = sorted(path.stem for path in (ROOT / "notebooks").glob("*.ipynb"))
    sources = sorted(path.stem for path in (ROOT / "notebooks/source").glob("*.py"))
    summary = (ROOT / "notebooks/SUMMARY.md").read_text(encoding="utf-8")
    listed = re.findall(r"^- \[(.*)\]\((.*)\)$", summary, flags=re.MULTILINE)
    assert books == sources == [section.notebook for section in WRITTEN]
    assert listed == [(f"{s.id} {s.title}", f"{s.notebook}.ipynb") for s in WRITTEN]
