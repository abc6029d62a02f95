"""`kvlab book student` and `kvlab book instructor`: two sets that run, and edits that are safe."""

import json
import re
from datetime import datetime
from pathlib import Path

import nbformat
import pytest
from full_disk import files_end_at
from typer.testing import CliRunner

from kvlab import cli
from kvlab.book import manifest, notebooks, sets, speaker_notes
from kvlab.exercises import registry

ROOT = Path(__file__).parents[2]
PAGES = ROOT / "notebooks"
NOON = datetime(2026, 5, 4, 12, 0, 7)
SECTIONS = manifest.read(ROOT).written


@pytest.fixture(scope="module", params=["student", "instructor"])
def written(request, tmp_path_factory) -> tuple[str, Path]:
    folder = tmp_path_factory.mktemp(request.param)
    sets.write(request.param, PAGES, folder, force=False, now=NOON)
    return request.param, folder


def cells(folder: Path, name: str) -> list[dict]:
    return json.loads((folder / f"{name}.ipynb").read_text("utf-8"))["cells"]


def text(cell: dict) -> str:
    return "".join(cell["source"])


def tagged(found: list[dict], tag: str) -> list[dict]:
    return [cell for cell in found if tag in cell["metadata"].get("tags", [])]


def test_each_notebook_is_there_and_valid(written) -> None:
    _, folder = written
    names = sorted(path.stem for path in folder.glob("*.ipynb"))
    assert names == sorted(section.notebook for section in SECTIONS)
    for name in names:
        notebook = nbformat.read(folder / f"{name}.ipynb", as_version=4)
        nbformat.validate(notebook)
        ids = [cell["id"] for cell in notebook.cells]
        assert len(set(ids)) == len(ids)


def test_no_output_is_collapsed_in_a_class(written) -> None:
    _, folder = written
    shipped = cells(PAGES, "21_6_growth")
    assert any(cell["metadata"].get("jupyter", {}).get("outputs_hidden") for cell in shipped)
    found = [cell["metadata"].get("jupyter") for cell in cells(folder, "21_6_growth")]
    assert all(folded == {"source_hidden": True} for folded in found if folded is not None)


def test_a_section_of_each_set_runs_from_top_to_bottom(written) -> None:
    kind, folder = written
    notebook = nbformat.read(folder / "21_6_growth.ipynb", as_version=4)
    notebooks.execute(notebook, folder)
    shown = json.dumps([cell.get("outputs") for cell in notebook.cells])
    assert "nothing leaked" in shown
    solved = tagged(notebook.cells, "solution")
    assert len(solved) == (0 if kind == "student" else 7)
    assert all("check says: right" in json.dumps(cell["outputs"]) for cell in solved)


def test_students_see_no_outputs_and_no_way_to_a_solution(tmp_path: Path) -> None:
    sets.write("student", PAGES, tmp_path, force=False, now=NOON)
    for section in SECTIONS:
        found, shipped = cells(tmp_path, section.notebook), cells(PAGES, section.notebook)
        assert len(found) == len(shipped)
        assert all(c["outputs"] == [] for c in found if c["cell_type"] == "code")
        assert not re.search(r"\bsolution\(|import.*\bsolution\b", "\n".join(map(text, found)))
        asked = "".join(map(text, shipped)).count("check(")
        assert "".join(map(text, found)).count("check(") == asked  # the stubs are all there


@pytest.fixture(scope="module")
def taught(tmp_path_factory) -> Path:
    folder = tmp_path_factory.mktemp("taught")
    sets.write("instructor", PAGES, folder, force=False, now=NOON)
    return folder


@pytest.mark.parametrize("section", SECTIONS, ids=lambda section: section.id)
def test_notes_cover_each_part_and_their_minutes_are_the_sections(section, taught: Path) -> None:
    parts = speaker_notes.notes(section.notebook)
    prose = [text(c) for c in cells(PAGES, section.notebook) if c["cell_type"] == "markdown"]
    headings = re.findall(r"^## (.*)$", "\n".join(prose), flags=re.MULTILINE)
    assert list(parts) == ["Opening", *headings]
    assert sum(note.minutes for note in parts.values()) == section.minutes
    assert all(20 < len(note.text) < 200 or note.minutes == 0 for note in parts.values())
    spoken = [text(c) for c in tagged(cells(taught, section.notebook), "speaker-notes")]
    told = [note for note in spoken if note.startswith("**Speaker notes**")]
    assert len(told) == len(parts)
    assert f"of {section.minutes} minutes" in told[0]


@pytest.mark.parametrize("section", SECTIONS, ids=lambda section: section.id)
def test_each_exercise_is_solved_and_each_question_has_its_mistakes(section, taught) -> None:
    found = cells(taught, section.notebook)
    known = registry.ids(section.id) if section.id in registry.sections() else []
    exercises = [name for name in known if "-p" not in name]
    solved = tagged(found, "solution")
    assert sorted(text(cell) for cell in solved) == sorted(f'solution("{n}")' for n in exercises)
    assert all("check says: right" in json.dumps(cell["outputs"]) for cell in solved)
    spoken = "\n".join(text(cell) for cell in tagged(found, "speaker-notes"))
    for name in known:
        item = registry.load(section.id)[name]
        assert f"**{name}" in spoken and item.why in spoken
        said = re.findall(r"^- .*", spoken, flags=re.MULTILINE)
        assert all(any(s.endswith(m.says) for s in said) for m in item.mistakes)


@pytest.mark.parametrize(
    ("asked", "run", "line"),
    [
        ("21.7-p1", "5 positions", "- **6 positions**: That counts the output."),
        ("21.6-p1", "1,536, then 1,792, then 2,048 bytes", "- **256, then 256, then 256 bytes**: "),
        ("21.7-p2", "no", "- **yes**: 200 ms / 40"),
        ("21.7-p14", "b (the cache alone)", " or **c (the weights alone)**: The weights are"),
        ("21.7-p1", None, "- That counts the output."),  # a page that was not run
        ("21.1-6", None, "- **768 GiB**: That is MiB."),
        ("21.1-3", None, "- `h % heads`: That deals the query heads out in turn"),
        ("21.2-2", None, "- n tokens have n - 1 intervals."),  # code that is no one line
    ],
)
def test_a_wrong_answer_stands_before_what_is_said_to_it(asked: str, run: str, line: str) -> None:
    assert line in speaker_notes.where_people_go_wrong(asked, run)


def test_the_set_reckons_the_wrong_numbers_from_the_pages_own_run(taught: Path) -> None:
    spoken = "\n".join(map(text, tagged(cells(taught, "21_7_checkpoint"), "speaker-notes")))
    assert "- **6 positions**: That counts the output." in spoken


def test_headings_begin_slides_and_notes_are_off_them(taught: Path) -> None:
    found = cells(taught, "21_6_growth")
    kinds = {text(c).split("\n")[0]: c["metadata"].get("slideshow") for c in found}
    assert kinds["## The mechanism"] == {"slide_type": "slide"}
    assert kinds["## Summary"] == {"slide_type": "slide"}  # cut from the cell above
    (setup,) = tagged(found, "setup")
    assert setup["metadata"]["slideshow"] == {"slide_type": "skip"}
    asked = 'check({"21.6-1": None, "21.6-2": None, "21.6-7": None})'
    assert kinds[asked] == {"slide_type": "subslide"}
    for tag in ("claim-21.6-b", "claim-21.6-d"):  # the answers to a prediction; a view
        (cell,) = tagged(found, tag)
        assert cell["metadata"]["slideshow"] == {"slide_type": "subslide"}
    notes = tagged(found, "speaker-notes")
    assert all(c["metadata"]["slideshow"] == {"slide_type": "notes"} for c in notes)
    assert any("live: cache growth" in text(c) for c in notes)


def test_nothing_of_the_page_is_lost_in_the_instructors_set(taught: Path) -> None:
    for section in SECTIONS:
        added = ("speaker-notes", "solution")
        kept = [
            c
            for c in cells(taught, section.notebook)
            if not set(added) & set(c["metadata"].get("tags", []))
        ]
        squeezed = [
            "".join("".join(map(text, found)).split())
            for found in (kept, cells(PAGES, section.notebook))
        ]
        assert squeezed[0].replace("<detailsopen>", "<details>") == squeezed[1]


def test_edits_are_never_overwritten(tmp_path: Path) -> None:
    sets.write("student", PAGES, tmp_path, force=False, now=NOON)
    assert sets.write("student", PAGES, tmp_path, force=False, now=NOON) == []
    mine = tmp_path / "21_6_growth.ipynb"
    mine.write_text("my own work")
    (tmp_path / "21_0_start.ipynb").unlink()
    with pytest.raises(ValueError, match=r"21_6_growth\.ipynb would be overwritten.*--force"):
        sets.write("student", PAGES, tmp_path, force=False, now=NOON)
    assert mine.read_text() == "my own work"
    assert not (tmp_path / "21_0_start.ipynb").exists()
    changed = sets.write("student", PAGES, tmp_path, force=True, now=NOON)
    kept = tmp_path / "21_6_growth.kept-2026-05-04_120007.ipynb"
    assert changed == [kept, tmp_path / "21_0_start.ipynb", mine]
    assert kept.read_text() == "my own work"
    assert mine.read_text() != "my own work"


@pytest.mark.parametrize("force", [False, True])
def test_a_set_without_room_on_the_disk_changes_nothing(tmp_path: Path, force: bool) -> None:
    if force:
        (tmp_path / "21_0_start.ipynb").write_text("my own work")
        (tmp_path / "21_1_reuse.ipynb").write_text("more work")
    before = {path.name: path.read_text() for path in tmp_path.iterdir()}
    with files_end_at(60_000), pytest.raises(OSError, match=r"21_1_reuse\.ipynb"):
        sets.write("student", PAGES, tmp_path, force=force, now=NOON)
    assert before == {path.name: path.read_text() for path in tmp_path.iterdir()}
    assert len(before) == 2 * force


def test_a_folder_in_a_page_s_place_is_named(tmp_path: Path) -> None:
    (tmp_path / "21_6_growth.ipynb").mkdir()
    with pytest.raises(ValueError, match=r"21_6_growth\.ipynb is a folder, .* move it away"):
        sets.write("student", PAGES, tmp_path, force=True, now=NOON)
    assert [path.name for path in tmp_path.iterdir()] == ["21_6_growth.ipynb"]


def test_the_shipped_notebooks_are_no_place_for_a_set() -> None:
    with pytest.raises(ValueError, match="holds the shipped notebooks"):
        sets.write("student", PAGES, PAGES, force=True, now=NOON)


def test_the_commands_say_what_they_wrote(tmp_path: Path, monkeypatch) -> None:
    monkeypatch.chdir(ROOT)
    done = CliRunner().invoke(cli.app, ["book", "student", str(tmp_path)])
    assert done.exit_code == 0
    assert str(tmp_path / "21_6_growth.ipynb") in done.output
    again = CliRunner().invoke(cli.app, ["book", "student", str(tmp_path)])
    assert "is up to date" in again.output
    (tmp_path / "21_6_growth.ipynb").write_text("my own work")
    refused = CliRunner().invoke(cli.app, ["book", "instructor", str(tmp_path)])
    assert refused.exit_code == 2
    assert refused.stderr.startswith("kvlab: ") and "21_6_growth.ipynb" in refused.stderr


@pytest.mark.parametrize("kind", ["student", "instructor"])
def test_a_folder_without_a_name_is_not_this_one(kind: str, tmp_path: Path, monkeypatch) -> None:
    monkeypatch.chdir(tmp_path)
    refused = CliRunner().invoke(cli.app, ["book", kind, ""])
    assert refused.exit_code == 2
    assert refused.stderr == "kvlab: FOLDER is ''; give the name of a folder, such as students\n"
    assert list(tmp_path.iterdir()) == []


def test_the_command_says_how_to_open_the_instructors_set(tmp_path: Path, monkeypatch) -> None:
    monkeypatch.chdir(ROOT)
    elsewhere = CliRunner().invoke(cli.app, ["book", "instructor", str(tmp_path)])
    assert f"to open this: jupyter lab {tmp_path}." in elsewhere.output
    assert "Run all cells" in elsewhere.output
    monkeypatch.setattr(cli, "find_pages", lambda: (tmp_path.parent, PAGES))
    inside = CliRunner().invoke(cli.app, ["book", "instructor", str(tmp_path)])
    assert f"kvlab lab, and there the folder {tmp_path.name} in" in inside.output
