"""`kvlab book student DIR` and `kvlab book instructor DIR`: the chapter's notebooks, in two sets.

The student's has no outputs, so that no answer stands on a page before it is asked for, and no word
of solutions. The instructor's keeps the outputs and adds solutions, speaker notes and slides
(jupyterlab-slideshow shows them). Both run from top to bottom.
"""

import copy
import json
import re
from collections.abc import Callable, Iterator
from datetime import datetime
from pathlib import Path
from typing import Any

from kvlab.book import slides
from kvlab.book.notebook_file import read_notebook
from kvlab.book.speaker_notes import OPENING, Note, notes, where_people_go_wrong
from kvlab.core.whole_file import write_whole
from kvlab.exercises import solution
from kvlab.workbook import refuse_no_file, set_aside

Cell = dict[str, Any]
Notebook = dict[str, Any]
ASKED = re.compile(r'"(21\.\w+-p?\d+)"')
OFFER = re.compile(r"[;,]?\s*`solution\([^)]*\)`\s+shows\s+a\s+worked\s+solution")
RAN = re.compile(r": (21\.\w+-p\d+)\n +the run gives: (.*)")  # a box of `reveal`, as text
IMPORTED = re.compile(r"^(from kvlab\.exercises import .*), solution$", re.MULTILINE)


def student(name: str, notebook: Notebook) -> Notebook:
    """Without outputs, and without what leads to a solution."""
    made = _opened(notebook)
    for cell in made["cells"]:
        text = IMPORTED.sub(r"\1", OFFER.sub("", "".join(cell["source"])))
        cell["source"] = text.splitlines(keepends=True)
        if cell["cell_type"] == "code":
            cell["outputs"], cell["execution_count"] = [], None
    return made


def instructor(name: str, notebook: Notebook) -> Notebook:
    """With a slide for each heading, notes to each part, and each exercise's solution below it."""
    cells = [piece for cell in _opened(notebook)["cells"] for piece in slides.pieces(cell)]
    placed = slides.on_slides(cells)
    told, known, runs = notes(name), set(), _runs(notebook)
    total = sum(note.minutes for note in told.values())
    made: list[Cell] = []
    for number, cell in enumerate(placed):
        made.append(cell)
        level, heading = slides.heading(cell)
        if level in (1, 2):
            part = OPENING if level == 1 else heading
            if part not in told:
                raise ValueError(f"the speaker notes to {name} have no part {part!r}: write it")
            views = _views(cells[number + 1 :])
            made.append(_note(cell["id"], _spoken(told[part], total, views)))
        made += _answers(cell, known, runs)
    metadata = slides.notebook_metadata(notebook.get("metadata", {}))
    return notebook | {"cells": made, "metadata": metadata}


def _opened(notebook: Notebook) -> Notebook:
    """A copy in which no output is collapsed: a class sees it when the slide is shown."""
    made = copy.deepcopy(notebook)
    for cell in made["cells"]:
        cell["metadata"].get("jupyter", {}).pop("outputs_hidden", None)
        if cell["metadata"].get("jupyter") == {}:
            del cell["metadata"]["jupyter"]
    return made


def _views(below: list[Cell]) -> list[str]:
    """The views of the part that begins above these cells, each once."""
    found: list[str] = []
    for cell in below:
        if slides.heading(cell)[0] in (1, 2):
            break
        found += slides.shown(cell)
    return list(dict.fromkeys(found))


def _spoken(note: Note, total: int, views: list[str]) -> str:
    line = f"**Speaker notes** · {note.minutes} of {total} minutes\n\n{note.text}"
    named = " and ".join(name.replace("_", " ") for name in views)
    return f"{line}\n\nOn this part's slides, live: {named}." if views else line


def _note(cell_id: str, text: str) -> Cell:
    metadata = {"slideshow": {"slide_type": "notes"}, "tags": ["speaker-notes"]}
    source = text.splitlines(keepends=True)
    return {"cell_type": "markdown", "id": f"{cell_id}-n", "metadata": metadata, "source": source}


def _runs(notebook: Notebook) -> dict[str, str]:
    """prediction -> what the page's run gave, in words."""
    outputs = (one for cell in notebook["cells"] for one in cell.get("outputs", []))
    texts = ("".join(one.get("data", {}).get("text/plain", "")) for one in outputs)
    return {asked: shown for text in texts for asked, shown in RAN.findall(text)}


def _answers(cell: Cell, known: set[str], runs: dict[str, str]) -> Iterator[Cell]:
    """Below the cell that first asks a question: its mistakes, and an exercise's solution."""
    if not slides.asks(cell):
        return
    for number, asked in enumerate(dict.fromkeys(ASKED.findall("".join(cell["source"])))):
        if asked in known:
            continue
        known.add(asked)
        place = f"{cell['id']}-{number + 1}"
        yield _note(place, where_people_go_wrong(asked, runs.get(asked)))
        if "-p" not in asked:
            yield _solved(place, asked)


def _solved(cell_id: str, asked: str) -> Cell:
    box = solution(asked)
    html, text = box._repr_html_(), repr(box)
    data = {"text/html": [html], "text/plain": text.splitlines(keepends=True)}
    shown = {
        "output_type": "execute_result", "execution_count": None, "metadata": {}, "data": data,
    }  # fmt: skip
    return {
        "cell_type": "code",
        "id": f"{cell_id}-s",
        "metadata": {"slideshow": {"slide_type": "skip"}, "tags": ["solution"]},
        "source": [f'solution("{asked}")'],
        "execution_count": None,
        "outputs": [shown],
    }


KINDS: dict[str, Callable[[str, Notebook], Notebook]] = {
    "student": student,
    "instructor": instructor,
}


def write(kind: str, pages: Path, out: Path, *, force: bool, now: datetime) -> list[Path]:
    """Write a set of the notebooks in `pages` into `out`; returns what was written or renamed.

    A file of `out` that differs from what would be written is somebody's work: ValueError names it,
    and nothing is written. force: such a file is kept under a dated name, and then replaced. A set
    that cannot be written to its end (OSError) leaves the folder's files as they were.
    """
    if out.resolve() == pages.resolve():
        raise ValueError(f"{out} holds the shipped notebooks: name another folder")
    made = {}
    for path in sorted(pages.glob("*.ipynb")):
        notebook = read_notebook(path)
        text = json.dumps(KINDS[kind](path.stem, notebook), indent=1, ensure_ascii=False) + "\n"
        made[out / path.name] = text
        refuse_no_file(out / path.name)
    existing = {path for path in made if path.exists()}
    differing = sorted(p for p in existing if p.read_text("utf-8", errors="replace") != made[p])
    if differing and not force:
        raise ValueError(
            f"{', '.join(map(str, differing))} would be overwritten and nothing was written: name "
            "another folder, or add --force, which keeps what is there under a dated name"
        )
    out.mkdir(parents=True, exist_ok=True)
    changed = [path for path in made if path not in existing or path in differing]
    with set_aside(changed, now) as kept:
        for path in changed:
            write_whole(path, made[path])
    return [*kept, *changed]
