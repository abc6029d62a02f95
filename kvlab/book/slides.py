"""A page's cells as slides: what begins one, how much fits on one, and in what type.

A slide's type grows with the window's width, so that a slide of 16:9 looks the same on every
screen, and its room can be reckoned in advance: in pixels, on a screen of 1280 x 720. Long text is
cut between its paragraphs. Where code and what it shows are longer than a slide, the code is
collapsed: one click opens it. What is longer by itself, such as a long function, scrolls.
"""

import re
from collections.abc import Iterator
from math import ceil
from typing import Any

from kvlab.book.folds import TOLD, keeps

Cell = dict[str, Any]
HEADING = re.compile(r"^(#{1,3}) (.*)$")
ASKS = re.compile(r"^(?:check|predict)\(", re.MULTILINE)
REVEALS = re.compile(r"^\s*reveal\(", re.MULTILINE)
VIEW = re.compile(r'data-view="(\w+)"')
SLIDE = {1: "slide", 2: "slide", 3: "subslide"}
TAGS = re.compile(r"<style.*?</style>|<[^>]*>", re.DOTALL)
FENCED = re.compile(r"^(?:```|\$\$|<(?!/?details|kbd))", re.MULTILINE)
FOLD = re.compile(r"<details>.*?</details>", re.DOTALL)

# Set by jupyterlab-slideshow's companion jupyterlab-fonts, and while slides are shown alone.
STYLE = {
    ":is(.jp-Deck .jp-Notebook)": {
        "--jp-content-font-size1": "clamp(14px, 1.5vw, 34px)",
        "--jp-code-font-size": "clamp(13px, 1.2vw, 27px)",
        "--jp-ui-font-size1": "clamp(13px, 1.02vw, 23px)",  # tables
    },
    # JupyterLab's button to collapse an output, which lies over a view's left edge there
    ":is(.jp-Deck .jp-OutputArea-promptOverlay)": {"display": "none"},
    # in large type a view stands above what its cell prints
    ":is(.jp-Deck .kvlab-code-hidden .jp-OutputArea)": {
        "display": "flex",
        "flex-direction": "column",
    },
    ":is(.jp-Deck .jp-OutputArea-child:has(.kv-framed))": {"order": "-1"},
}
ROOM = 690  # pixels of height for a slide's cells
TEXT, CODE = 31, 20.2  # a line of prose, a line of code or output
PROSE_LINE, BOX_LINE = 92, 71  # signs
PAD, GAP, TITLE, FORMULA, ROW, BOX = 12, 16, 68, 80, 37, 260
FOLDED, FEW = 34, 6  # a collapsed cell's bar, in pixels; lines of code that stay whatever they show
LOOK = 520  # a view in usual type


def notebook_metadata(metadata: dict[str, Any]) -> dict[str, Any]:
    """A notebook's metadata with the type of its slides."""
    return metadata | {"@deathbeds/jupyterlab-fonts": {"styles": STYLE}}


def pieces(cell: Cell) -> Iterator[Cell]:
    """A Markdown cell, cut before its headings, and where a piece would be longer than a slide."""
    text = "".join(cell["source"])
    cut = [text]
    if cell["cell_type"] == "markdown":
        cut = [part for headed in _at_headings(text) for part in _at_paragraphs(headed)]
    for number, part in enumerate(cut):
        name = cell["id"] if not number else f"{cell['id']}-{number + 1}"
        source = part.rstrip("\n") if len(cut) > 1 else part
        yield cell | {"id": name, "source": source.splitlines(keepends=True)}


def _at_headings(text: str) -> list[str]:
    return re.split(r"(?<=\n)(?=###? )", text)


def _at_paragraphs(text: str) -> list[str]:
    """Whole paragraphs, as many as a slide has room for; formulas, code, folds are not cut."""
    if FENCED.search(text):
        return [text]
    parts = [""]
    for paragraph in _paragraphs(text):
        longer = parts[-1] + paragraph
        if parts[-1] and not HEADING.match(parts[-1].strip()) and _prose(longer) > ROOM:
            parts.append(paragraph)
        else:
            parts[-1] = longer
    return parts


def _paragraphs(text: str) -> list[str]:
    """Each with the blank line below it; a fold is one, whatever is in it."""
    found: list[str] = []
    for part in re.split(r"(?<=\n\n)", text):
        if found and found[-1].count("<details") > found[-1].count("</details>"):
            found[-1] += part
        else:
            found.append(part)
    return found


def on_slides(cells: list[Cell]) -> list[Cell]:
    """The cells with the kind of slide that each begins; the others stay on the slide above."""
    placed, used, asked = [], 0.0, False
    for cell in map(_opened, cells):
        kind, needs = _kind(cell), height(cell)
        if kind is None and (asked or used + needs > ROOM):
            kind = "subslide"
        if kind not in ("skip", "notes"):
            used = needs + (0 if kind else used)
            asked = asks(cell)  # a hint below a question is not on its slide
        if kind:
            metadata = cell["metadata"] | {"slideshow": {"slide_type": kind}}
            cell = cell | {"metadata": metadata}
        placed.append(cell)
    return placed


def _opened(cell: Cell) -> Cell:
    """Folds below a run opened, and code that would push what it shows off the slide collapsed."""
    if cell["cell_type"] == "markdown":
        opened = TOLD.replace("<details>", "<details open>")
        source = [line.replace(TOLD, opened) for line in cell["source"]]
        return cell | {"source": source}
    lines, shows = len(cell["source"]), cell.get("outputs", [])
    needs = PAD + CODE * lines + sum(LOOK if shown({"outputs": [o]}) else _output(o) for o in shows)
    if not shows or _is_setup(cell) or asks(cell) or lines <= FEW or needs <= ROOM:
        return cell
    hidden = {"jupyter": cell["metadata"].get("jupyter", {}) | {"source_hidden": True}}
    return cell | {"metadata": cell["metadata"] | hidden}


def _kind(cell: Cell) -> str | None:
    """The slide that a cell begins whatever stands above it."""
    source = "".join(cell["source"])
    if _is_setup(cell) or (cell["cell_type"] == "code" and keeps(cell)):
        return "skip"
    if shown(cell) or asks(cell) or REVEALS.search(source):
        return "subslide"
    return SLIDE.get(heading(cell)[0])


def _is_setup(cell: Cell) -> bool:
    return "setup" in cell["metadata"].get("tags", [])


def heading(cell: Cell) -> tuple[int, str]:
    """(1 to 3, the text) of a cell that begins with a heading; (0, "") of another."""
    first = cell["source"][0].rstrip("\n") if cell["source"] else ""
    found = HEADING.match(first) if cell["cell_type"] == "markdown" else None
    return (len(found[1]), found[2]) if found else (0, "")


def shown(cell: Cell) -> list[str]:
    """The views in a cell's outputs, by name."""
    forms = (output.get("data", {}).get("text/html", "") for output in cell.get("outputs", []))
    return [name for html in forms for name in VIEW.findall("".join(html))]


def asks(cell: Cell) -> bool:
    """Whether the reader is asked for an answer, or for a prediction, in this cell."""
    return cell["cell_type"] == "code" and ASKS.search("".join(cell["source"])) is not None


def height(cell: Cell) -> float:
    """About how many pixels a cell takes on a slide 1280 wide."""
    if cell["cell_type"] == "markdown":
        return _prose("".join(cell["source"]))
    hidden = cell["metadata"].get("jupyter", {}).get("source_hidden", False)
    code = FOLDED if hidden else CODE * len(cell["source"])
    return PAD + code + sum(map(_output, cell.get("outputs", [])))


def _output(output: dict[str, Any]) -> float:
    data = output.get("data", {})
    if "image/png" in data or "image/svg+xml" in data or shown({"outputs": [output]}):
        return ROOM
    if "text/html" in data:
        words = TAGS.sub("", "".join(data["text/html"]))
        return max(BOX, TEXT * ceil(len(words) / BOX_LINE))
    if "text/markdown" in data:
        return _prose("".join(data["text/markdown"]))
    text = output.get("text") or data.get("text/plain") or output.get("traceback") or ""
    return GAP + CODE * len("".join(text).rstrip("\n").split("\n"))


def _prose(text: str) -> float:
    """Of Markdown: headings, paragraphs, lists, tables, formulas, code."""
    total, fenced = float(PAD), False
    for paragraph in re.split(r"\n\n+", FOLD.sub("a fold", text).strip("\n")):
        lines = paragraph.split("\n")
        if paragraph.startswith("```") or fenced:
            fenced ^= paragraph.count("```") % 2 == 1
            total += GAP + CODE * len(lines)
        elif paragraph.startswith("#"):
            total += TITLE
        elif paragraph.startswith("$$"):
            total += FORMULA
        elif paragraph.startswith("|"):
            total += GAP + sum(ROW * ceil(len(line) / (PROSE_LINE * 1.2)) for line in lines)
        elif re.match(r"\s*(?:[-*]|\d+\.) ", paragraph):
            total += GAP + sum(TEXT * ceil(len(line) / PROSE_LINE) for line in lines)
        else:
            total += GAP + TEXT * ceil(len(paragraph) / PROSE_LINE)
    return total
