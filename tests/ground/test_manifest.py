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
        ("claims", 'open_claims = ["21.6-c"]\nclaims', "open claim 21.6-c is not among"),
    ],
)
def test_a_mistake_is_named(tmp_path: Path, old: str, new: str, message: str) -> None:
    with pytest.raises(ValueError, match=re.escape(message)):
        manifest.read(write(tmp_path, ENTRY.replace(old, new, 1)))


def test_the_same_section_twice_is_a_mistake(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=r"two sections have the id 21\.6"):
        manifest.read(write(tmp_path, ENTRY + ENTRY))


@pytest.mark.parametrize("address", ["example.org/kvlab", "https://example.org/kvlab/"])
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
